//! The driver, as little of it as is needed: one context, two streams, memory, launches, graphs.
//!
//! Nothing here knows of models. Calls are those of the CUDA Driver API (CUDA Toolkit documentation),
//! through `cudarc`, which opens `libcuda` at run time; tests put a stand-in in its place
//! (`kernels/emulator`).

use super::kernels::{Kernels, MODULES};
use super::memory::{Memory, Pinned};
use crate::compute::{Amount, DeviceError, Result};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A device that is open. Everything is queued on one stream, in order; copies that nobody waits for
/// have a second one.
pub struct Gpu {
    kernels: RefCell<Kernels>,
    compute: Stream,
    copies: Stream,
    mode: Cell<Mode>,
    timing: RefCell<Option<Timing>>,
    /// Of the launches since [`Gpu::record`] or [`Gpu::replay`].
    trail: RefCell<DefaultHasher>,
    launches: Arc<AtomicU64>,
    pub(super) facts: Facts,
    // Last: everything above is freed while it is still there.
    context: Arc<CudaContext>,
}

/// What the driver says of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub ordinal: usize,
    pub name: String,
    /// 8.0 is 80.
    pub capability: u32,
    pub multiprocessors: u32,
    pub memory_bytes: usize,
    /// Dynamic shared memory that a block may ask for.
    pub shared_bytes: u32,
    /// 12.4 is 12040.
    pub driver: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Launches are queued at once.
    Eager,
    /// They go into a graph.
    Recording,
    /// They are in the graph that will be launched: only looked at.
    Replaying,
}

/// A kernel's argument; its size is checked against the kernel's own list.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    Ptr(u64),
    I32(i32),
    U32(u32),
    U64(u64),
    F32(f32),
}

/// Blocks, threads of a block, and bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: u32,
    pub shared: u32,
}

impl Shape {
    pub fn new(grid: [usize; 3], block: usize) -> Self {
        Self { grid: grid.map(|n| n as u32), block: block as u32, shared: 0 }
    }

    pub fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes as u32, ..self }
    }
}

struct Stream(sys::CUstream);

// SAFETY: a stream may be used from any thread; `Gpu` is used by one at a time.
unsafe impl Send for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it was created by `Gpu::open`, and nothing is queued on it after.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}

/// What the driver said, with what was tried.
pub(super) fn failed(what: &str) -> impl FnOnce(DriverError) -> DeviceError + use<'_> {
    move |error| DeviceError(format!("CUDA: {what}: {}", said(&error)))
}

/// `out of memory (CUDA_ERROR_OUT_OF_MEMORY)`
pub(super) fn said(error: &DriverError) -> String {
    let text = |found: std::result::Result<&std::ffi::CStr, DriverError>| {
        found.map_or_else(|_| "unknown".to_owned(), |text| text.to_string_lossy().into_owned())
    };
    format!("{} ({})", text(error.error_string()), text(error.error_name()))
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // The thread that opened it may have been another one.
        let _ = self.bind();
    }
}

impl Gpu {
    /// The device of this number. [`super::open`] says beforehand whether there is one.
    pub fn open(ordinal: usize) -> Result<Self> {
        let context = CudaContext::new(ordinal).map_err(failed("opening the device"))?;
        let attribute = |which| context.attribute(which).map_err(failed("asking the device"));
        use sys::CUdevice_attribute as A;
        let facts = Facts {
            ordinal,
            name: context.name().map_err(failed("asking the device's name"))?,
            capability: (attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? * 10
                + attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?) as u32,
            multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
            memory_bytes: context.total_mem().map_err(failed("asking the device's memory"))?,
            shared_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32,
            driver: driver_version().map_err(failed("asking the driver's version"))?,
        };
        let stream = || {
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
            stream.map(Stream).map_err(failed("creating a stream"))
        };
        Ok(Self {
            kernels: RefCell::new(Kernels::default()),
            compute: stream()?,
            copies: stream()?,
            mode: Cell::new(Mode::Eager),
            timing: RefCell::default(),
            trail: RefCell::default(),
            launches: Arc::default(),
            facts,
            context,
        })
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Before anything is asked of the driver on a thread.
    pub(super) fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(failed("using the device on this thread"))
    }

    /// Begins to load the kernels of these modules, before they are asked for.
    pub(super) fn preload(&self, modules: &[&'static str]) {
        self.kernels.borrow_mut().preload(&self.context, modules);
    }

    /// A module of a test, as PTX, under a name that no module has.
    #[doc(hidden)]
    pub fn add_module(&self, name: &'static str, ptx: String) {
        self.kernels.borrow_mut().add(name, ptx);
    }

    /// Bytes free and bytes in all.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        result::mem_get_info().map_err(failed("asking for free memory"))
    }

    /// Memory that holds anything. `what` is it for: said where there is none left.
    pub fn alloc(&self, bytes: usize, what: &str) -> Result<Memory> {
        self.bind()?;
        let bytes = bytes.max(1);
        // SAFETY: it is freed once, by `Memory`.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(at) => Ok(Memory { at, bytes, context: self.context.clone() }),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(self.out_of_memory(bytes, what)),
            Err(error) => Err(failed(&format!("{} MiB for {what}", bytes.div_ceil(1 << 20)))(error)),
        }
    }

    fn out_of_memory(&self, bytes: usize, what: &str) -> DeviceError {
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        let free = match self.memory() {
            Ok((free, all)) => format!("{} of {} MiB are free", mib(free), mib(all)),
            Err(_) => "how much is free cannot be told".to_owned(),
        };
        DeviceError(format!(
            "CUDA device {}: no memory for {} MiB of {what}: {free}; lower --memory-utilization, \
             --kv-cache-bytes or --max-model-len, or use --device cpu",
            self.facts.ordinal,
            mib(bytes)
        ))
    }

    /// Memory of the host that the device reads and writes while the host goes on.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned> {
        self.bind()?;
        let bytes = bytes.max(1);
        // SAFETY: it is freed once, by `Pinned`. Without flags it is cached, and quick to read.
        let at = unsafe { result::malloc_host(bytes, 0) };
        let at = at.map_err(failed("pinning memory of the host"))?;
        // SAFETY: `bytes` of it are ours.
        unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0, bytes) };
        Ok(Pinned { at: at.cast(), bytes, context: self.context.clone() })
    }

    /// Queues a kernel of `module` by its name.
    pub fn launch(
        &self,
        module: &'static str,
        kernel: &'static str,
        shape: Shape,
        args: &[Arg],
    ) -> Result<()> {
        if self.mode.get() != Mode::Eager {
            let mut trail = self.trail.borrow_mut();
            (kernel, shape).hash(&mut *trail);
            args.iter().for_each(|arg| arg.word().hash(&mut *trail));
        }
        if self.mode.get() == Mode::Replaying {
            return Ok(());
        }
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.bind()?;
        let mut kernels = self.kernels.borrow_mut();
        let function = kernels.function(module, kernel, args, shape.shared)?;
        let mut words: [u64; MOST_ARGS] = [0; MOST_ARGS];
        let mut params: [*mut c_void; MOST_ARGS] = [std::ptr::null_mut(); MOST_ARGS];
        assert!(args.len() <= MOST_ARGS, "{kernel}: {} arguments", args.len());
        for (i, arg) in args.iter().enumerate() {
            words[i] = arg.word();
            params[i] = (&raw mut words[i]).cast();
        }
        let ([x, y, z], block) = (shape.grid, (shape.block, 1, 1));
        let begun = self.mark_time()?;
        // SAFETY: number and sizes of the arguments are those of the kernel; that pointers among them
        // hold what it reads and writes is the caller's contract, stated at every kernel.
        unsafe {
            result::launch_kernel(
                function,
                (x, y, z),
                block,
                shape.shared,
                self.compute.0,
                &mut params[..args.len()],
            )
        }
        .map_err(|error| failed(&format!("launching {kernel} {:?} x {}", shape.grid, shape.block))(error))?;
        if let Some(begun) = begun {
            let ended = self.mark_time()?.expect("times are taken");
            let mut timing = self.timing.borrow_mut();
            let timing = timing.as_mut().expect("times are taken");
            let work = std::mem::take(&mut timing.next);
            timing.spans.push(Timed { kernel, begun, ended, work });
        }
        Ok(())
    }

    /// Queues a copy of the first `bytes` of pinned memory, which stay as they are until it is done. While
    /// a graph is recorded the copy goes around it, and is waited for.
    pub fn upload(&self, to: u64, from: &Pinned, bytes: usize) -> Result<()> {
        self.upload_from(to, from, 0, bytes)
    }

    /// The same of those at `start`.
    pub fn upload_from(&self, to: u64, from: &Pinned, start: usize, bytes: usize) -> Result<()> {
        self.bind()?;
        let from = &from.bytes()[start..][..bytes];
        if self.mode.get() == Mode::Recording {
            // SAFETY: as below.
            let copied = unsafe { result::memcpy_htod_async(to, from, self.copies.0) };
            // SAFETY: the stream is open, and nothing of it is recorded.
            let copied = copied.and_then(|()| unsafe { result::stream::synchronize(self.copies.0) });
            return copied.map_err(failed("copying to the device"));
        }
        // SAFETY: the source is pinned and as large; the target is the caller's.
        unsafe { result::memcpy_htod_async(to, from, self.compute.0) }
            .map_err(failed("copying to the device"))
    }

    /// Queues a copy of `bytes` to pinned memory; it is there after [`Gpu::wait`]. May be recorded.
    pub fn download(&self, to: &mut Pinned, from: u64, bytes: usize) -> Result<()> {
        self.download_to(to, 0, from, bytes)
    }

    /// The same to those at `start`.
    pub fn download_to(&self, to: &mut Pinned, start: usize, from: u64, bytes: usize) -> Result<()> {
        self.bind()?;
        if self.mode.get() != Mode::Eager {
            (to.at as u64, start, from, bytes).hash(&mut *self.trail.borrow_mut());
        }
        if self.mode.get() == Mode::Replaying {
            return Ok(());
        }
        // SAFETY: the target is pinned and as large; the source is the caller's.
        unsafe { result::memcpy_dtoh_async(&mut to.bytes_mut()[start..][..bytes], from, self.compute.0) }
            .map_err(failed("copying from the device"))
    }

    /// Queues a copy between two places of the device; not recorded.
    pub fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: both are the caller's, and as large.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.compute.0) }
            .map_err(failed("copying on the device"))
    }

    /// Copies and waits: for loading and for tests.
    pub fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's memory is as large.
        unsafe { result::memcpy_htod_async(to, from, self.compute.0) }
            .map_err(failed("copying to the device"))?;
        self.wait()
    }

    pub fn read(&self, to: &mut [u8], from: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's memory is as large.
        unsafe { result::memcpy_dtoh_async(to, from, self.compute.0) }
            .map_err(failed("copying from the device"))?;
        self.wait()
    }

    pub fn zero(&self, memory: &Memory) -> Result<()> {
        self.bind()?;
        // SAFETY: the memory is as large.
        unsafe { result::memset_d8_async(memory.at, 0, memory.bytes, self.compute.0) }
            .map_err(failed("clearing memory"))
    }

    /// Until everything queued is done. The first to hear of a kernel that failed.
    pub fn wait(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream is open.
        unsafe { result::stream::synchronize(self.compute.0) }.map_err(failed("waiting for the device"))
    }

    /// Counts kernels and graphs as they are queued; those in graphs left out.
    pub fn launches(&self) -> Arc<AtomicU64> {
        self.launches.clone()
    }

    /// The context is broken: a kernel failed, or the device is gone. Nothing on it will work again.
    pub fn is_lost(&self) -> bool {
        use sys::CUresult as E;
        let _ = self.bind();
        // SAFETY: the stream is open; a broken context says so at every question.
        let said = unsafe { sys::cuStreamQuery(self.compute.0) };
        matches!(
            said,
            E::CUDA_ERROR_ILLEGAL_ADDRESS
                | E::CUDA_ERROR_MISALIGNED_ADDRESS
                | E::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | E::CUDA_ERROR_INVALID_PC
                | E::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | E::CUDA_ERROR_HARDWARE_STACK_ERROR
                | E::CUDA_ERROR_LAUNCH_FAILED
                | E::CUDA_ERROR_LAUNCH_TIMEOUT
                | E::CUDA_ERROR_ASSERT
                | E::CUDA_ERROR_ECC_UNCORRECTABLE
                | E::CUDA_ERROR_CONTEXT_IS_DESTROYED
                | E::CUDA_ERROR_UNKNOWN
        )
    }

    // ---- graphs ----

    /// From here on launches go into a graph.
    pub fn record(&self) -> Result<()> {
        self.bind()?;
        *self.trail.borrow_mut() = DefaultHasher::new();
        // Others may be asked for anything meanwhile, as the other stream is for a copy.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is ours and not the default one.
        unsafe { result::stream::begin_capture(self.compute.0, mode) }
            .map_err(failed("recording a graph"))?;
        self.mode.set(Mode::Recording);
        Ok(())
    }

    /// The graph of everything since [`Gpu::record`]. Nothing of it has run.
    pub fn recorded(&self) -> Result<Graph> {
        self.mode.set(Mode::Eager);
        self.bind()?;
        // SAFETY: a capture was begun on this stream.
        let graph =
            unsafe { result::stream::end_capture(self.compute.0) }.map_err(failed("recording a graph"))?;
        // SAFETY: the graph is whole; it is needed for this call only.
        let exec = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: nothing else has it.
        let _ = unsafe { result::graph::destroy(graph) };
        let exec = exec.map_err(failed("preparing a graph"))?;
        Ok(Graph { exec, trail: self.trail.borrow().finish(), context: self.context.clone() })
    }

    /// Gives up what is being recorded or looked at.
    pub fn discard(&self) {
        if self.mode.replace(Mode::Eager) == Mode::Recording {
            let _ = self.bind();
            // SAFETY: a capture was begun on this stream. What it says is known: it failed.
            if let Ok(graph) = unsafe { result::stream::end_capture(self.compute.0) }
                && !graph.is_null()
            {
                // SAFETY: nothing else has it.
                let _ = unsafe { result::graph::destroy(graph) };
            }
        }
    }

    /// From here on launches are those of a graph that is there: none is made, all are looked at, until
    /// [`Gpu::start`] or [`Gpu::discard`].
    pub fn replay(&self) {
        *self.trail.borrow_mut() = DefaultHasher::new();
        self.mode.set(Mode::Replaying);
    }

    /// Whether the launches since [`Gpu::replay`] or [`Gpu::record`] are those of the graph.
    pub fn is(&self, graph: &Graph) -> bool {
        self.trail.borrow().finish() == graph.trail
    }

    /// Queues the graph.
    pub fn start(&self, graph: &Graph) -> Result<()> {
        self.mode.set(Mode::Eager);
        self.bind()?;
        self.launches.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the graph is whole, and what it points to lives as long as the backend.
        unsafe { result::graph::launch(graph.exec, self.compute.0) }.map_err(failed("launching a graph"))
    }

    // ---- times ----

    /// From here on every launch is timed, until [`Gpu::times`]; launches of graphs are not.
    pub fn take_times(&self) {
        *self.timing.borrow_mut() = Some(Timing::default());
    }

    /// What the next launch reads and computes, where times are taken.
    pub fn work(&self, work: impl FnOnce() -> Amount) {
        if let Some(timing) = self.timing.borrow_mut().as_mut() {
            timing.next = work();
        }
    }

    /// Waits; each kernel launched since [`Gpu::take_times`] with how long it ran and what was said of it, in
    /// order. Empty where the driver is too old to be asked (before 12.8).
    pub fn times(&self) -> Result<Vec<(&'static str, Duration, Amount)>> {
        let Some(timing) = self.timing.borrow_mut().take() else { return Ok(Vec::new()) };
        self.wait()?;
        if self.facts.driver < TIMES_FROM {
            return Ok(Vec::new());
        }
        let spent = |Timed { kernel, begun, ended, work }: &Timed| {
            // SAFETY: both are of one stream, and past.
            let ms = unsafe { result::event::elapsed(begun.event, ended.event) }
                .map_err(failed("reading times"))?;
            Ok((*kernel, Duration::from_secs_f64(f64::from(ms) / 1e3), *work))
        };
        timing.spans.iter().map(spent).collect()
    }

    fn mark_time(&self) -> Result<Option<Event>> {
        if self.mode.get() != Mode::Eager || self.timing.borrow().is_none() {
            return Ok(None);
        }
        let event = self.new_event(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
        self.mark(&event)?;
        Ok(Some(event))
    }

    /// An event without a time, to be waited for.
    pub fn event(&self) -> Result<Event> {
        self.new_event(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn new_event(&self, flags: sys::CUevent_flags) -> Result<Event> {
        self.bind()?;
        let event = result::event::create(flags).map_err(failed("creating an event"))?;
        Ok(Event { event, context: self.context.clone() })
    }

    /// It happens when everything queued so far is done.
    pub fn mark(&self, event: &Event) -> Result<()> {
        self.bind()?;
        // SAFETY: event and stream are open.
        unsafe { result::event::record(event.event, self.compute.0) }.map_err(failed("recording an event"))
    }
}

/// The first driver that has the call for times which `cudarc` makes.
const TIMES_FROM: u32 = 12080;

#[derive(Default)]
struct Timing {
    spans: Vec<Timed>,
    /// Of the launch to come.
    next: Amount,
}

struct Timed {
    kernel: &'static str,
    begun: Event,
    ended: Event,
    work: Amount,
}

/// Largest number of arguments of a kernel.
const MOST_ARGS: usize = 32;

impl Arg {
    pub(super) fn bytes(self) -> usize {
        match self {
            Arg::Ptr(_) | Arg::U64(_) => 8,
            Arg::I32(_) | Arg::U32(_) | Arg::F32(_) => 4,
        }
    }

    fn word(self) -> u64 {
        match self {
            Arg::Ptr(x) | Arg::U64(x) => x,
            Arg::I32(x) => u64::from(x as u32),
            Arg::U32(x) => u64::from(x),
            Arg::F32(x) => u64::from(x.to_bits()),
        }
    }
}

impl From<&Memory> for Arg {
    fn from(memory: &Memory) -> Self {
        Arg::Ptr(memory.at)
    }
}

/// `None` is a null pointer.
impl From<Option<&Memory>> for Arg {
    fn from(memory: Option<&Memory>) -> Self {
        Arg::Ptr(memory.map_or(0, |memory| memory.at))
    }
}

impl From<usize> for Arg {
    fn from(x: usize) -> Self {
        Arg::I32(i32::try_from(x).expect("sizes of tensors are below 2^31"))
    }
}

impl From<f32> for Arg {
    fn from(x: f32) -> Self {
        Arg::F32(x)
    }
}

/// A place in the queue.
pub struct Event {
    event: sys::CUevent,
    context: Arc<CudaContext>,
}

// SAFETY: a handle; used by one thread at a time.
unsafe impl Send for Event {}

impl Event {
    /// Until what was queued before the last [`Gpu::mark`] is done; at once where there was none.
    pub fn wait(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(failed("using the device on this thread"))?;
        // SAFETY: created by `Gpu::event`.
        unsafe { result::event::synchronize(self.event) }.map_err(failed("waiting for the device"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: created by `Gpu::event`, destroyed here only.
        let _ = unsafe { result::event::destroy(self.event) };
    }
}

/// Launches that are queued as one.
pub struct Graph {
    exec: sys::CUgraphExec,
    trail: u64,
    context: Arc<CudaContext>,
}

// SAFETY: a handle; used by one thread at a time.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: instantiated by `Gpu::recorded`, destroyed here only.
        let _ = unsafe { result::graph::exec_destroy(self.exec) };
    }
}

/// 12.4 is 12040.
pub(super) fn driver_version() -> std::result::Result<u32, DriverError> {
    let mut version = 0;
    // SAFETY: the pointer is to a number of the right size.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(version as u32)
}

/// Every module's name, for tests that go through all of them.
pub fn modules() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|(name, _)| *name)
}
