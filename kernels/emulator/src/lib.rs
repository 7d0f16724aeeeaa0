//! A stand-in `libcuda` for tests: the driver calls that glassbox makes, with our own kernels run on
//! the CPU, one fiber for each CUDA thread. The host code that drives a GPU runs on it unchanged.
//!
//! It shows what a test on a GPU shows (wrong results, launches out of bounds) and more: accesses
//! outside an allocation, memory read before it was written (it holds NaN), a missing barrier (run it
//! in several [`Order`]s), a missing wait for a copy ([`lazy`]), barriers that not all threads reach,
//! PTX that is older than its source, and, on request, every [`Fault`] of a device. It cannot show weak
//! memory order, bank conflicts, races that no order at barriers exposes, or how a tensor core rounds.
//!
//! | file | what stands there |
//! |---|---|
//! | `cuda_emu.h` | the part of CUDA C++ that the kernels use |
//! | `emulator.cpp`, `fiber.cpp` | how the threads of a block take turns, meet, and fail |
//! | `libcuda.cpp`, `driver.h`, `ptx.cpp` | the driver: memory, streams, graphs, modules |
//! | `broken.cu` | kernels with a mistake each |
//! | `rebuild` | the library with a kernel changed |

mod rebuild;

use libloading::Library;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

pub use rebuild::rebuild;

/// How the threads of a block, and the blocks of a grid, take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Forward,
    Reverse,
    /// From this seed.
    Random(u64),
}

/// What goes wrong from now on, until [`reset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The n-th allocation from now, of the device or pinned, finds no memory: 1 is the next.
    Allocation(u32),
    /// The n-th launch from now, of a kernel or a graph, is refused.
    Launch(u32),
    /// The n-th kernel that runs from now, in a graph or not, ends with an illegal address. The context
    /// is of no use from then on; a fresh one is.
    Kernel(u32),
    /// The n-th capture that ends from now has failed.
    Capture(u32),
    /// The PTX of every kernel seems to be older than its source.
    Stale,
    /// The device has so many bytes.
    Memory(usize),
    /// There are so many devices: all are the same one.
    Devices(u32),
    /// The driver does not start: a `CUresult`, as 304 or 800 (no permission) or 803 (kernel module and
    /// library of different versions).
    Start(u32),
    /// 12.4 is 12040.
    Driver(u32),
    /// 8.0 is 80.
    Capability(u32),
    /// The newest PTX that the driver reads: 8.0 is 80.
    Ptx(u32),
    Multiprocessors(u32),
}

/// Numbers of `enum Knob` in `driver.h`.
#[repr(i32)]
enum Knob {
    Order,
    Seed,
    Lazy,
    Workers,
    NoAllocation,
    NoLaunch,
    KernelDies,
    CaptureFails,
    Stale,
    Memory,
    Devices,
    Init,
    Driver,
    Capability,
    Ptx,
    Multiprocessors,
}

/// Makes this process's `libcuda` the emulator. To be called before the first driver call; later calls
/// change nothing. `false` where it could not be built: there is no C++ compiler.
///
/// Works because the loader, asked for `libcuda.so`, gives back the library of that name that is
/// loaded already.
pub fn install() -> bool {
    library().is_some()
}

/// To be put in `LD_PRELOAD` of another process, which then finds it as [`install`] does here.
pub fn path() -> Option<String> {
    let path = std::env::var("CUDA_EMULATOR").unwrap_or_else(|_| env!("CUDA_EMULATOR").to_owned());
    (!path.is_empty()).then_some(path)
}

/// `CUDA_EMULATOR` at run time (a test of changed kernels), or as it was built.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let open = || {
        let path = path()?;
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
    set(Knob::Seed, seed as i64);
    set(Knob::Order, kind);
}

/// Whether queued work waits until something waits for it: what is read too early is then not there.
pub fn lazy(on: bool) {
    set(Knob::Lazy, i64::from(on));
}

/// How many threads share the blocks of a grid: 1 until it is told.
pub fn workers(count: u32) {
    set(Knob::Workers, i64::from(count.max(1)));
}

/// From now on. Faults of different kinds add up.
pub fn fault(fault: Fault) {
    let (knob, value) = match fault {
        Fault::Allocation(n) => (Knob::NoAllocation, i64::from(n)),
        Fault::Launch(n) => (Knob::NoLaunch, i64::from(n)),
        Fault::Kernel(n) => (Knob::KernelDies, i64::from(n)),
        Fault::Capture(n) => (Knob::CaptureFails, i64::from(n)),
        Fault::Stale => (Knob::Stale, 1),
        Fault::Memory(bytes) => (Knob::Memory, i64::try_from(bytes).unwrap_or(i64::MAX)),
        Fault::Devices(n) => (Knob::Devices, i64::from(n)),
        Fault::Start(error) => (Knob::Init, i64::from(error)),
        Fault::Driver(version) => (Knob::Driver, i64::from(version)),
        Fault::Capability(capability) => (Knob::Capability, i64::from(capability)),
        Fault::Ptx(version) => (Knob::Ptx, i64::from(version)),
        Fault::Multiprocessors(n) => (Knob::Multiprocessors, i64::from(n)),
    };
    set(knob, value);
}

/// A driver as at first: no faults, no context, nothing allocated. Whatever is open on it is of no use
/// from here on, and is best dropped before.
pub fn reset() {
    // SAFETY: the signature is that of the C function.
    unsafe { call::<unsafe extern "C" fn() -> i32>("emu_reset", |f| f()) }
}

/// What the last kernel that failed did, with its block and thread; or why a module was refused.
pub fn last_fault() -> String {
    let mut text = [0 as c_char; 512];
    // SAFETY: the signature is that of the C function, which writes a text no longer than it is told.
    unsafe {
        call::<unsafe extern "C" fn(*mut c_char, i32) -> i32>("emu_last_fault", |f| {
            f(text.as_mut_ptr(), text.len() as i32)
        });
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    }
}

fn set(knob: Knob, value: i64) {
    // SAFETY: the signature is that of the C function.
    unsafe { call::<unsafe extern "C" fn(i32, i64) -> i32>("emu_set", |f| f(knob as i32, value)) }
}

/// # Safety
/// `F` is the signature of the function of that name.
unsafe fn call<F: Copy>(name: &str, run: impl FnOnce(F) -> i32) {
    let library = library().expect("the emulator is installed");
    // SAFETY: the caller's.
    let function = unsafe { library.get::<F>(name.as_bytes()) }.unwrap_or_else(|e| panic!("{name}: {e}"));
    let result = run(*function);
    assert_eq!(result, 0, "{name}");
}
