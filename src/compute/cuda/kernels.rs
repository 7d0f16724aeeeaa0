//! The kernels: PTX made from `kernels/*.cu` (by `kernels/ptx.py`), compiled by the driver when a module
//! is loaded. That takes seconds the first time on a machine, and the driver keeps what it made.

use super::gpu::{Arg, failed, said};
use crate::compute::{DeviceError, Result};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A module for each `.cu` file.
pub(super) const MODULES: &[(&str, &str)] = &[
    ("decode", include_str!("../../../kernels/ptx/decode.ptx")),
    ("draw", include_str!("../../../kernels/ptx/draw.ptx")),
    ("elements", include_str!("../../../kernels/ptx/elements.ptx")),
    ("embed", include_str!("../../../kernels/ptx/embed.ptx")),
    ("gemm", include_str!("../../../kernels/ptx/gemm.ptx")),
    ("gemm_fp8", include_str!("../../../kernels/ptx/gemm_fp8.ptx")),
    ("gemv", include_str!("../../../kernels/ptx/gemv.ptx")),
    ("kv", include_str!("../../../kernels/ptx/kv.ptx")),
    ("limits", include_str!("../../../kernels/ptx/limits.ptx")),
    ("lora", include_str!("../../../kernels/ptx/lora.ptx")),
    ("moe", include_str!("../../../kernels/ptx/moe.ptx")),
    ("moe_gemm", include_str!("../../../kernels/ptx/moe_gemm.ptx")),
    ("moe_gemv", include_str!("../../../kernels/ptx/moe_gemv.ptx")),
    ("prefill", include_str!("../../../kernels/ptx/prefill.ptx")),
    ("recurrent", include_str!("../../../kernels/ptx/recurrent.ptx")),
    ("repack", include_str!("../../../kernels/ptx/repack.ptx")),
    ("rows", include_str!("../../../kernels/ptx/rows.ptx")),
];

#[derive(Default)]
pub(super) struct Kernels {
    modules: HashMap<&'static str, Module>,
    /// Modules that are being loaded, each by a thread.
    coming: HashMap<&'static str, JoinHandle<std::result::Result<Module, DriverError>>>,
    /// PTX of a test's own modules.
    added: HashMap<&'static str, String>,
    functions: HashMap<&'static str, Loaded>,
}

#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

// SAFETY: a handle of a context that may be used from any thread.
unsafe impl Send for Module {}

struct Loaded {
    function: sys::CUfunction,
    /// Bytes of every parameter.
    sizes: Vec<usize>,
    /// Dynamic shared memory that it may have without asking.
    shared: u32,
}

/// What every kernel may have.
const SHARED_FOR_ALL: u32 = 48 << 10;

impl Kernels {
    pub(super) fn add(&mut self, module: &'static str, ptx: String) {
        self.added.insert(module, ptx);
    }

    /// Begins to load these, side by side.
    pub(super) fn preload(&mut self, context: &Arc<CudaContext>, modules: &[&'static str]) {
        for (name, ptx) in MODULES.iter().filter(|(name, _)| modules.contains(name)) {
            let context = context.clone();
            let load = move || {
                context.bind_to_thread()?;
                compile(ptx)
            };
            // Where no thread can be had, the module is loaded when it is used.
            if let Ok(thread) = thread::Builder::new().name("kernels".into()).spawn(load) {
                self.coming.insert(name, thread);
            }
        }
    }

    /// The kernel, once its arguments are known to be of the right sizes.
    pub(super) fn function(
        &mut self,
        module: &'static str,
        kernel: &'static str,
        args: &[Arg],
        shared: u32,
    ) -> Result<sys::CUfunction> {
        if !self.functions.contains_key(kernel) {
            let loaded = self.load(module, kernel)?;
            self.functions.insert(kernel, loaded);
        }
        let loaded = self.functions.get_mut(kernel).expect("just put there");
        if !loaded.sizes.iter().copied().eq(args.iter().map(|arg| arg.bytes())) {
            return Err(DeviceError(format!(
                "CUDA: {kernel} takes parameters of {:?} bytes and was given {args:?}",
                loaded.sizes
            )));
        }
        if shared > loaded.shared {
            let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is of a module that is loaded.
            let set =
                unsafe { result::function::set_function_attribute(loaded.function, most, shared as i32) };
            set.map_err(failed(&format!("{shared} bytes of shared memory for {kernel}")))?;
            loaded.shared = shared;
        }
        Ok(loaded.function)
    }

    fn load(&mut self, module: &'static str, kernel: &'static str) -> Result<Loaded> {
        let added = self.added.get(module).map(String::as_str);
        let ptx = added.or_else(|| MODULES.iter().find(|(name, _)| *name == module).map(|(_, ptx)| *ptx));
        let ptx = ptx.ok_or_else(|| DeviceError(format!("CUDA: there is no module {module}")))?;
        if !self.modules.contains_key(module) {
            let loaded = match self.coming.remove(module) {
                Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                None => compile(ptx),
            };
            self.modules.insert(module, loaded.map_err(not_loaded(module))?);
        }
        let name = CString::new(kernel).expect("names are text");
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.modules[module].0, name) };
        let function = function.map_err(failed(&format!("looking for {kernel} in {module}")))?;
        let sizes = parameters(ptx, kernel)
            .ok_or_else(|| DeviceError(format!("CUDA: {kernel} is not an entry of {module}'s PTX")))?;
        Ok(Loaded { function, sizes, shared: SHARED_FOR_ALL })
    }
}

fn compile(ptx: &str) -> std::result::Result<Module, DriverError> {
    let text = CString::new(ptx).expect("PTX is text");
    // SAFETY: the text is whole, and ends in 0.
    unsafe { result::module::load_data(text.as_ptr().cast()) }.map(Module)
}

/// The two that say what would help are said in our words.
fn not_loaded(module: &str) -> impl FnOnce(DriverError) -> DeviceError + use<'_> {
    use sys::CUresult as E;
    move |error| match error.0 {
        E::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => DeviceError(format!(
            "CUDA: the NVIDIA driver is too old for the kernels of {module}: {}",
            said(&error)
        )),
        E::CUDA_ERROR_NO_BINARY_FOR_GPU => DeviceError(format!(
            "CUDA: the kernels of {module} need a newer device than this one: {}",
            said(&error)
        )),
        _ => failed(&format!("loading the kernels of {module}"))(error),
    }
}

// SAFETY: handles of a context that may be used from any thread; used by one at a time.
unsafe impl Send for Kernels {}

impl Drop for Kernels {
    fn drop(&mut self) {
        let coming = std::mem::take(&mut self.coming).into_values();
        let coming = coming.filter_map(|thread| thread.join().ok()?.ok());
        for module in self.modules.values().copied().chain(coming) {
            // SAFETY: loaded here, and nothing of it runs: streams are waited for before.
            let _ = unsafe { result::module::unload(module.0) };
        }
    }
}

/// Bytes of every parameter of an entry: `.param .u64 name` or `.param .align 8 .b8 name[16]`.
fn parameters(ptx: &str, kernel: &str) -> Option<Vec<usize>> {
    let start = ptx.match_indices(".entry ").find_map(|(at, word)| {
        let rest = &ptx[at + word.len()..];
        let name = rest.split(['(', '\n', ' ']).next()?;
        (name == kernel).then_some(rest)
    })?;
    let list = start.split(')').next()?;
    list.split(".param").skip(1).map(parameter).collect()
}

fn parameter(text: &str) -> Option<usize> {
    if let Some((_, len)) = text.split_once('[') {
        return len.split(']').next()?.trim().parse().ok();
    }
    let kind = text.split_whitespace().find(|word| word.starts_with('.') && !word.starts_with(".align"))?;
    kind.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().ok().map(|bits| bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_from_the_text() {
        let ptx = ".visible .entry one(\n .param .u64 one_param_0,\n .param .f32 one_param_1\n)\n{ }\n\
                   .visible .entry one_more(\n .param .align 8 .b8 p[24],\n .param .u32 q\n) .maxntid 1 {}";
        assert_eq!(parameters(ptx, "one"), Some(vec![8, 4]));
        assert_eq!(parameters(ptx, "one_more"), Some(vec![24, 4]));
        assert_eq!(parameters(ptx, "two"), None);
    }
}
