//! A stand-in `libcuda` for tests: the driver calls that glassbox makes, with our own kernels run on
//! the CPU, one fiber for each CUDA thread. The host code that drives a GPU runs on it unchanged.
//!
//! It shows what a test on a GPU shows (wrong results, launches out of bounds) and more: accesses
//! outside an allocation, memory read before it was written (it holds NaN), a missing barrier (run it
//! in several [`Order`]s), a missing wait for a copy ([`lazy`]), barriers that not all threads reach,
//! PTX that is older than its source. It cannot show weak memory order, bank conflicts, races that no
//! order at barriers exposes, or how a tensor core rounds.

use libloading::Library;
use std::sync::OnceLock;

/// How the threads of a block, and the blocks of a grid, take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Forward,
    Reverse,
    /// From this seed.
    Random(u64),
}

/// Makes this process's `libcuda` the emulator. To be called before the first driver call; later calls
/// change nothing. `false` where it could not be built: there is no C++ compiler.
///
/// Works because the loader, asked for `libcuda.so`, gives back the library of that name that is
/// loaded already.
pub fn install() -> bool {
    library().is_some()
}

/// Where the library is: `CUDA_EMULATOR` at run time (a test of changed kernels), or as it was built.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let open = || {
        let path = std::env::var("CUDA_EMULATOR").unwrap_or_else(|_| env!("CUDA_EMULATOR").to_owned());
        if path.is_empty() {
            return None;
        }
        // SAFETY: its constructors only register kernels.
        Some(unsafe { Library::new(&path) }.unwrap_or_else(|e| panic!("{path}: {e}")))
    };
    LIBRARY.get_or_init(open).as_ref()
}

/// From now on.
pub fn order(order: Order) {
    let (kind, seed) = match order {
        Order::Forward => (0, 0),
        Order::Reverse => (1, 0),
        Order::Random(seed) => (2, seed),
    };
    // SAFETY: the signature is that of the C function.
    unsafe { call::<unsafe extern "C" fn(i32, u64) -> i32>("emu_set_order", |f| f(kind, seed)) }
}

/// Whether queued work waits until something waits for it: what is read too early is then not there.
pub fn lazy(on: bool) {
    // SAFETY: the signature is that of the C function.
    unsafe { call::<unsafe extern "C" fn(i32) -> i32>("emu_set_lazy", |f| f(i32::from(on))) }
}

/// # Safety
/// `F` is the signature of the function of that name.
unsafe fn call<F: Copy>(name: &str, run: impl FnOnce(F) -> i32) {
    let library = library().expect("the emulator is installed");
    // SAFETY: the caller's.
    let function = unsafe { library.get::<F>(name.as_bytes()) }.unwrap_or_else(|e| panic!("{name}: {e}"));
    run(*function);
}
