//! What goes wrong on a device, and how it is told: one clear line each. On the stand-in only, which goes
//! wrong as it is asked to; kernels with a mistake are those of `kernels/emulator/broken.cu`.

use crate::harness::{self, Device, get, on_gpu, put, room};
use cuda_emulator::{Fault, Order, fault};
use glassbox::compute::NormKind;
use glassbox::compute::cuda::rows::{self, Norm};
use glassbox::compute::cuda::{Arg, Gpu, Shape, devices, open};

/// A driver as at first; and again after the test.
struct Driver {
    _device: Device,
}

impl Driver {
    /// `None` where there is no stand-in.
    fn new() -> Option<Self> {
        let device = harness::device()?;
        if on_gpu() {
            return None;
        }
        cuda_emulator::reset();
        Some(Self { _device: device })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        cuda_emulator::reset();
    }
}

/// What opening the device says with this wrong.
fn refused(wrong: Fault) -> String {
    fault(wrong);
    let said = open(0).err().expect("it must not open").0;
    cuda_emulator::reset();
    said
}

// ---- no device to use ----

#[test]
fn each_reason_for_no_device_is_one_line_that_helps() {
    let Some(_driver) = Driver::new() else { return };
    let cases = [
        (Fault::Devices(0), "there is no CUDA device (or CUDA_VISIBLE_DEVICES hides it)"),
        (Fault::Start(800), "no permission to use the NVIDIA device (/dev/nvidia*)"),
        (Fault::Start(304), "no permission to use the NVIDIA device (/dev/nvidia*)"),
        (Fault::Start(803), "restart the machine"),
        (Fault::Start(3), "the NVIDIA driver does not start: initialization error"),
        (Fault::Driver(11080), "too old: it knows CUDA 11.8, and 12.0 (driver R525) is needed"),
        (Fault::Capability(75), "has compute capability 7.5; 8.0 (Ampere) or later is needed"),
    ];
    for (wrong, wanted) in cases {
        let said = refused(wrong);
        assert!(said.contains(wanted) && !said.contains('\n'), "{wrong:?}: {said}");
    }
    assert_eq!(devices(), Ok(1));
}

#[test]
fn a_device_that_is_not_there_is_counted() {
    let Some(_driver) = Driver::new() else { return };
    assert_eq!(open(1).err().unwrap().0, "there is no CUDA device 1: there is 1 device, counted from 0");
    fault(Fault::Devices(2));
    assert_eq!(open(5).err().unwrap().0, "there is no CUDA device 5: there are 2 devices, counted from 0");
}

/// In a process of its own, which has no stand-in.
#[test]
fn without_a_driver_nothing_panics() {
    if std::path::Path::new("/proc/driver/nvidia").exists() {
        return eprintln!("skipped: there is a driver");
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", "faults::no_driver", "--ignored", "--nocapture"]).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("no NVIDIA driver (libcuda) is installed"), "{said}");
}

#[test]
#[ignore = "run by without_a_driver_nothing_panics"]
fn no_driver() {
    eprintln!("{:?} {:?}", devices(), open(0).err());
}

// ---- memory ----

#[test]
fn no_memory_says_what_was_asked_what_was_free_and_what_helps() {
    let Some(_driver) = Driver::new() else { return };
    fault(Fault::Memory(64 << 20));
    let gpu = open(0).unwrap();
    let held = gpu.alloc(16 << 20, "the cache").unwrap();
    assert_eq!(gpu.memory().unwrap(), (48 << 20, 64 << 20));
    let said = gpu.alloc(100 << 20, "weights").err().unwrap().0;
    assert!(said.contains("no memory for 100 MiB of weights: 48 of 64 MiB are free"), "{said}");
    assert!(said.contains("lower --memory-utilization"), "{said}");
    drop(held);
    assert_eq!(gpu.memory().unwrap().0, 64 << 20);
    gpu.alloc(64 << 20, "weights").unwrap();
}

#[test]
fn an_allocation_that_fails_does_so_once() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    fault(Fault::Allocation(2));
    let _first = gpu.alloc(1 << 20, "scratch").unwrap();
    let said = gpu.alloc(3 << 20, "scratch").err().unwrap().0;
    assert!(said.contains("no memory for 3 MiB of scratch"), "{said}");
    fault(Fault::Allocation(1));
    let said = gpu.pinned(64).err().unwrap().0;
    assert!(said.contains("pinning memory of the host: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"), "{said}");
    gpu.alloc(3 << 20, "scratch").unwrap();
    gpu.pinned(64).unwrap();
}

// ---- kernels ----

const THREADS: usize = 64;

/// The broken kernels take a pointer and a number.
fn broken(gpu: &Gpu) {
    let names = ["bounds", "sync", "poison", "barrier", "alignment", "copy"];
    let entries = names.map(|name| entry(name, ".param .u64 x, .param .u32 n"));
    gpu.add_module("broken", format!("{HEAD}{}", entries.concat()));
}

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn entry(name: &str, parameters: &str) -> String {
    format!(".visible .entry broken_{name}({parameters})\n{{ ret; }}\n")
}

/// Launches one and waits for it: what it wrote to 64 numbers, or what was said.
fn run(gpu: &Gpu, kernel: &'static str, threads: usize) -> Result<Vec<f32>, String> {
    let x = put(gpu, &vec![0.0f32; THREADS]);
    let shape = Shape::new([1, 1, 1], threads).shared(THREADS * 4);
    gpu.launch("broken", kernel, shape, &[(&x).into(), threads.into()]).map_err(|error| error.0)?;
    gpu.wait().map_err(|error| error.0)?;
    Ok(get(gpu, &x, THREADS))
}

fn fails(kernel: &'static str, threads: usize) -> (String, String) {
    let gpu = open(0).unwrap();
    broken(&gpu);
    let said = run(&gpu, kernel, threads).unwrap_err();
    (said, cuda_emulator::last_fault())
}

#[test]
fn a_write_out_of_bounds_is_told_at_the_next_wait_and_the_device_opens_again() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    broken(&gpu);
    let x = put(&gpu, &[0.0f32; THREADS]);
    let shape = Shape::new([1, 1, 1], THREADS);
    gpu.launch("broken", "broken_bounds", shape, &[(&x).into(), THREADS.into()]).unwrap();
    let wanted = "CUDA: waiting for the device: an illegal memory access was encountered \
                  (CUDA_ERROR_ILLEGAL_ADDRESS)";
    assert_eq!(gpu.wait().unwrap_err().0, wanted);
    let fault = cuda_emulator::last_fault();
    assert!(fault.contains("broken_bounds") && fault.contains("thread (63,0,0)"), "{fault}");
    // Nothing works on it from here on, as on a GPU.
    assert!(gpu.alloc(1, "x").is_err() && gpu.wait().is_err() && gpu.memory().is_err());
    // Once nobody has it, it can be opened as if nothing had been.
    drop((x, gpu));
    let gpu = open(0).unwrap();
    assert_eq!(gpu.memory().unwrap(), (4 << 30, 4 << 30));
    let x = put(&gpu, &[3.0f32, 4.0]);
    rows::norm(&gpu, &x, &x, 1, 2, None).unwrap();
    assert_eq!(get::<f32>(&gpu, &x, 2), [3.0, 4.0]);
}

#[test]
fn memory_that_was_freed_is_out_of_bounds() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    let (x, gone) = (put(&gpu, &[1.0f32; 32]), put(&gpu, &[1.0f32; 32]).at(0));
    let none = Arg::Ptr(0);
    let args = [(&x).into(), Arg::Ptr(gone), none, none, 32.into(), 32.into(), 1e-5.into(), 0.into()];
    gpu.launch("rows", "rows_norm", Shape::new([1, 1, 1], 256), &args).unwrap();
    assert!(gpu.wait().unwrap_err().0.contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

/// First to last everything is there in time; last to first it is not.
#[test]
fn a_missing_barrier_shows_in_an_order() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    broken(&gpu);
    let wanted: Vec<f32> = std::iter::once(THREADS).chain(0..THREADS - 1).map(|i| i as f32).collect();
    assert_eq!(run(&gpu, "broken_sync", THREADS).unwrap(), wanted);
    cuda_emulator::order(Order::Reverse);
    assert_ne!(run(&gpu, "broken_sync", THREADS).unwrap(), wanted);
}

#[test]
fn what_was_not_written_is_no_number() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    broken(&gpu);
    assert!(run(&gpu, "broken_poison", THREADS).unwrap().iter().all(|x| x.is_nan()));
    assert!(get::<f32>(&gpu, &room::<f32>(&gpu, 8), 8).iter().all(|x| x.is_nan()));
    // A copy that is not waited for has not been made.
    assert!(run(&gpu, "broken_copy", 1).unwrap()[0].is_nan());
}

#[test]
fn barriers_that_not_all_reach_and_odd_addresses_end_the_kernel() {
    let Some(_driver) = Driver::new() else { return };
    let (said, fault) = fails("broken_barrier", 32);
    assert!(said.contains("CUDA_ERROR_LAUNCH_FAILED") && fault.contains("deadlock"), "{said} {fault}");
    let (said, fault) = fails("broken_alignment", 1);
    assert!(
        said.contains("CUDA_ERROR_MISALIGNED_ADDRESS") && fault.contains("thread (0,0,0)"),
        "{said} {fault}"
    );
}

#[test]
fn a_kernel_that_dies_in_a_graph_is_told_at_the_wait() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    let x = put(&gpu, &[1.0f32; 32]);
    let twice = || {
        rows::add(&gpu, &x, &x, 1, 32, None).unwrap();
        rows::add(&gpu, &x, &x, 1, 32, None).unwrap();
    };
    twice();
    gpu.record().unwrap();
    twice();
    let graph = gpu.recorded().unwrap();
    fault(Fault::Kernel(2));
    gpu.start(&graph).unwrap();
    assert!(gpu.wait().unwrap_err().0.contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

#[test]
fn a_launch_that_is_refused_leaves_the_device_as_it_was() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    let x = put(&gpu, &[1.0f32; 32]);
    fault(Fault::Launch(1));
    let said = rows::add(&gpu, &x, &x, 1, 32, None).unwrap_err().0;
    let wanted = "CUDA: launching rows_add [1, 1, 1] x 256: too many resources requested for launch";
    assert!(said.starts_with(wanted), "{said}");
    let said = gpu.launch("rows", "rows_add", Shape::new([1, 1, 1], 512), &add(&x)).unwrap_err().0;
    assert!(said.contains("launching rows_add [1, 1, 1] x 512: invalid argument"), "{said}");
    rows::add(&gpu, &x, &x, 1, 32, None).unwrap();
    assert_eq!(get::<f32>(&gpu, &x, 32), [2.0; 32]);
}

fn add(x: &glassbox::compute::cuda::Memory) -> [Arg; 7] {
    [x.into(), x.into(), Arg::Ptr(0), Arg::Ptr(0), 32.into(), 0.0.into(), 0.into()]
}

#[test]
fn arguments_of_another_number_or_size_are_not_launched() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    let x = put(&gpu, &[1.0f32; 32]);
    let shape = Shape::new([1, 1, 1], 256);
    let mut wide = add(&x);
    wide[4] = Arg::U64(32);
    for args in [&add(&x)[..6], &wide] {
        let said = gpu.launch("rows", "rows_add", shape, args).unwrap_err().0;
        let wanted = "CUDA: rows_add takes parameters of [8, 8, 8, 8, 4, 4, 4] bytes and was given";
        assert!(said.starts_with(wanted), "{said}");
    }
    let said = gpu.launch("rows", "rows_none", shape, &[]).unwrap_err().0;
    assert!(said.contains("looking for rows_none in rows: named symbol not found"), "{said}");
    assert_eq!(gpu.launch("none", "x", shape, &[]).unwrap_err().0, "CUDA: there is no module none");
}

// ---- modules ----

#[test]
fn ptx_that_is_older_than_its_source_is_refused() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    gpu.add_module("broken", format!("{HEAD}{}", entry("sync", ".param .u64 x")));
    let x = put(&gpu, &[0.0f32]);
    let said = gpu.launch("broken", "broken_sync", Shape::new([1, 1, 1], 1), &[(&x).into()]).unwrap_err().0;
    assert!(said.contains("looking for broken_sync in broken: device kernel image is invalid"), "{said}");
    assert!(cuda_emulator::last_fault().contains("make it again (kernels/ptx.py)"));
    fault(Fault::Stale);
    assert!(rows::norm(&gpu, &x, &x, 1, 1, None).is_err());
}

#[test]
fn a_module_that_the_driver_cannot_read_says_which_is_too_old() {
    let Some(_driver) = Driver::new() else { return };
    let said = |wrong, ptx: &str| {
        let gpu = open(0).unwrap();
        gpu.add_module("mine", ptx.to_owned());
        fault(wrong);
        gpu.launch("mine", "x", Shape::new([1, 1, 1], 1), &[]).unwrap_err().0
    };
    let said_of_driver = said(Fault::Ptx(79), HEAD);
    assert!(
        said_of_driver.contains("the NVIDIA driver is too old for the kernels of mine"),
        "{said_of_driver}"
    );
    cuda_emulator::reset();
    let said_of_device = said(Fault::Capability(86), ".version 8.0\n.target sm_89\n");
    assert!(said_of_device.contains("mine need a newer device than this one"), "{said_of_device}");
    let nonsense = said(Fault::Ptx(90), "no PTX");
    assert!(nonsense.contains("loading the kernels of mine: a PTX JIT compilation failed"), "{nonsense}");
}

// ---- graphs ----

/// After each of them the stream works as before.
fn still_works(gpu: &Gpu) {
    let x = put(gpu, &[1.0f32; 32]);
    rows::add(gpu, &x, &x, 1, 32, None).unwrap();
    gpu.record().unwrap();
    rows::add(gpu, &x, &x, 1, 32, None).unwrap();
    let graph = gpu.recorded().unwrap();
    assert_eq!(get::<f32>(gpu, &x, 32), [2.0; 32]);
    gpu.start(&graph).unwrap();
    gpu.start(&graph).unwrap();
    assert_eq!(get::<f32>(gpu, &x, 32), [8.0; 32]);
}

#[test]
fn a_capture_that_waits_for_itself_fails_and_can_be_given_up() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    still_works(&gpu);
    gpu.record().unwrap();
    let said = gpu.wait().unwrap_err().0;
    assert!(
        said.contains("waiting for the device: operation not permitted when stream is capturing"),
        "{said}"
    );
    gpu.discard();
    still_works(&gpu);
    // What is no part of it may be asked for.
    gpu.record().unwrap();
    drop(gpu.alloc(1 << 20, "scratch").unwrap());
    gpu.discard();
    still_works(&gpu);
}

#[test]
fn a_capture_that_fails_at_its_end_says_so() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    let x = put(&gpu, &[1.0f32; 32]);
    still_works(&gpu);
    fault(Fault::Capture(1));
    gpu.record().unwrap();
    rows::add(&gpu, &x, &x, 1, 32, None).unwrap();
    let said = gpu.recorded().err().unwrap().0;
    assert!(said.contains("recording a graph: operation failed due to a previous error"), "{said}");
    still_works(&gpu);
}

#[test]
fn what_was_recorded_and_given_up_never_runs() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    let x = put(&gpu, &[1.0f32; 32]);
    rows::add(&gpu, &x, &x, 1, 32, None).unwrap();
    gpu.record().unwrap();
    rows::add(&gpu, &x, &x, 1, 32, None).unwrap();
    gpu.discard();
    assert_eq!(get::<f32>(&gpu, &x, 32), [2.0; 32]);
    still_works(&gpu);
}

// ---- waiting, threads ----

#[test]
fn what_is_read_before_it_is_waited_for_is_not_there() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    cuda_emulator::lazy(true);
    let x = put(&gpu, &[5.0f32; 32]);
    let mut back = gpu.pinned(32 * 4).unwrap();
    let weight = put(&gpu, &[1.0f32; 32]);
    rows::norm(
        &gpu,
        &x,
        &x,
        1,
        32,
        Some(Norm { weight: &weight, bias: None, eps: 0.0, kind: NormKind::Rms }),
    )
    .unwrap();
    gpu.download(&mut back, x.at(0), 32 * 4).unwrap();
    assert_eq!(back.floats_mut(32), [0.0; 32]);
    gpu.wait().unwrap();
    assert!(back.floats_mut(32).iter().all(|x| (x - 1.0).abs() < 1e-6));
}

#[test]
fn a_device_opened_on_one_thread_works_and_closes_on_another() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    let x = put(&gpu, &[1.0f32; 32]);
    let work = move || {
        rows::add(&gpu, &x, &x, 1, 32, None).unwrap();
        gpu.wait().unwrap();
        still_works(&gpu);
    };
    std::thread::spawn(work).join().unwrap();
    assert_eq!(open(0).unwrap().memory().unwrap(), (4 << 30, 4 << 30));
}

#[test]
fn times_are_of_what_ran_between() {
    let Some(_driver) = Driver::new() else { return };
    let gpu = open(0).unwrap();
    let x = put(&gpu, &vec![1.0f32; 256 * 64]);
    gpu.take_times();
    rows::add(&gpu, &x, &x, 1, 64, None).unwrap();
    rows::add(&gpu, &x, &x, 256, 64, None).unwrap();
    let times = gpu.times().unwrap();
    assert_eq!(times.iter().map(|(kernel, ..)| *kernel).collect::<Vec<_>>(), ["rows_add", "rows_add"]);
    assert!(!times[0].1.is_zero() && times[1].1 > times[0].1, "{times:?}");
}
