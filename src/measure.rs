//! The benches of the command line: from flags to an engine that is measured, and a report. Part of the
//! wiring, as `launch` is.

use crate::bench;
use crate::compute::cpu::Limits;
use crate::compute::gpu::{self, Alone, Ceilings, Rate};
use crate::compute::{DeviceError, Units};
use crate::config::{Against, Compared, Device, EngineSettings, GpuArgs, Origin, PrefixArgs, SpeedArgs};
use crate::launch::Context;
use crate::model::BLOCK_SIZE;
use crate::open;
use crate::protocol::{Failure, Handle, ModelInfo, PrefixCache};
use crate::script::{self, Progress, Quit, Status, written};
use crate::store::{IfMissing, KV_BYTES_PER_VALUE};
use crate::weights::{Checkpoint, Summary};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn speed(args: &SpeedArgs) -> Result<Status, Quit> {
    let context = Context::read(args.engine.given())?;
    let wanted = args.model.as_deref().unwrap_or(&context.settings.options.model);
    match args.against().map_err(|why| Quit::new(Status::Usage, why))? {
        Against::Setting(compared) => compare(args, compared, &context, wanted),
        Against::Peers(commands) => rates(args, &commands, &context, wanted),
    }
}

fn rates(args: &SpeedArgs, commands: &[&str], context: &Context, model: &str) -> Result<Status, Quit> {
    let mut settings = context.settings.options.engine.clone();
    settings.profile = args.profile;
    if args.profile && settings.scheduler.async_scheduling {
        let why = "--profile: with async_scheduling a step's operations run beside it; switch it off";
        return Err(Quit::new(Status::Usage, why));
    }
    let found = context.store.obtain(model, IfMissing::Ask, false)?;
    let tests = bench::tests(args);
    let (step_tokens, threads) = (settings.scheduler.max_num_batched_tokens, settings.threads);
    fit(&mut settings, &bench::needs(&tests, step_tokens), &found.path)?;
    let mut handle = open::engine(&found, None, None, settings);

    let progress = Progress::loading();
    let info = bench::wait_until_ready(&mut handle, |done, total| progress.set(done, total))?;
    drop(progress);
    let threads = threads.unwrap_or_else(script::physical_cores);
    let measured = args.limits.then(|| limits(&mut handle, threads, &info)).transpose()?;
    let limits = measured.as_ref().map(|(limits, _)| limits);
    let limit = measured.as_ref().map(|(limits, cpu)| {
        move |kind| match (kind, cpu) {
            (bench::Kind::Decode, Some(cpu)) => cpu.model_read_now(),
            (bench::Kind::Prefill, Some(cpu)) => cpu.int8_now(),
            (bench::Kind::Decode, None) => limits.memory_gb_per_s * 1e9,
            (bench::Kind::Prefill, None) => limits.matrix_gops * 1e9,
        }
    });
    let limit = limit.as_ref().map(|limit| limit as bench::Limit);
    let mut bench = bench::Bench::new(&mut handle, &info, step_tokens, limit);
    let peers: Vec<_> =
        commands.iter().map(|command| bench::Peer::new(command, &info.path, threads)).collect();
    let rounds = match peers.is_empty() {
        true => Vec::new(),
        false => counting("rounds", args.repetitions, |done| {
            bench.against(&tests, &peers, args.repetitions, done)
        })?,
    };
    let mut report = match bench::Report::begin(io::stdout().lock(), &info, threads, limits, args.json) {
        Ok(report) => report,
        Err(e) => return written(Err(e)),
    };
    let mut rounds = rounds.into_iter();
    let mut alone = |test: &bench::Test| {
        counting(&test.name(), args.repetitions, |done| bench.measure(test, args.repetitions, done))
    };
    for test in &tests {
        let (samples, peers) = match rounds.next() {
            Some(round) => round,
            None => (alone(test)?, Vec::new()),
        };
        if let Err(e) = report.row(bench::Row { peers, ..bench::Row::new(test, samples, limits) }) {
            return written(Err(e));
        }
    }
    written(report.end())
}

/// Shows how many of the repetitions are done.
fn counting<T>(
    label: &str,
    repetitions: u32,
    run: impl FnOnce(&mut dyn FnMut(u32)) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let progress = Progress::counting(label);
    progress.set(0, repetitions.into());
    run(&mut |i| progress.set(i.into(), repetitions.into()))
}

/// What the device can do at most; of a CPU with what measures it again beside each repetition: it has
/// faster and slower moments.
fn limits(
    handle: &mut Handle,
    threads: usize,
    info: &ModelInfo,
) -> Result<(bench::Limits, Option<Limits>), Quit> {
    if !info.device.starts_with("CPU") {
        return Ok((bench::measured_by_engine(handle)?, None));
    }
    let cpu = Limits::measure(threads, info.weights_bytes as usize)
        .map_err(|e| Quit::new(Status::Busy, e.to_string()))?;
    Ok((described(&cpu, threads, info), Some(cpu)))
}

fn described(limits: &Limits, threads: usize, info: &ModelInfo) -> bench::Limits {
    let found = limits.found();
    bench::Limits {
        units: Units::Threads(threads).to_string(),
        memory_gb_per_s: found.memory_read / 1e9,
        memory_bytes: Some(found.memory_bytes),
        model: Some(bench::ModelRead {
            bytes: info.weights_bytes as usize,
            gb_per_s: found.model_read / 1e9,
        }),
        matrix_gops: found.int8 / 1e9,
        matrix_name: format!("int8 dot products, {}", found.int8_instruction),
        f32_gflops: found.f32 / 1e9,
    }
}

/// Places of a comparison's batch, where nothing says otherwise: fewer than its requests.
const COMPARED_SEQS: usize = 8;
const COMPARED_REQUESTS: u32 = 32;

fn compare(args: &SpeedArgs, compared: &Compared, context: &Context, model: &str) -> Result<Status, Quit> {
    let mut settings = context.settings.options.engine.clone();
    if *context.settings.origin("max_num_seqs") == Origin::BuiltIn {
        settings.scheduler.max_num_seqs = COMPARED_SEQS;
    }
    let base = settings.scheduler.clone();
    let (changed, names) = compared.apply(&base).map_err(|why| Quit::new(Status::Usage, why))?;
    let found = context.store.obtain(model, IfMissing::Ask, false)?;
    let load = bench::Load::mixed(args.requests.unwrap_or(COMPARED_REQUESTS));
    // An engine can be changed to less than it was made for, not to more.
    settings.scheduler.max_num_batched_tokens =
        base.max_num_batched_tokens.max(changed.max_num_batched_tokens);
    fit(&mut settings, &load.needs(base.max_num_seqs.max(changed.max_num_seqs)), &found.path)?;
    let threads = settings.threads.unwrap_or_else(script::physical_cores);
    let mut handle = open::engine(&found, None, None, settings);

    let progress = Progress::loading();
    let info = bench::wait_until_ready(&mut handle, |done, total| progress.set(done, total))?;
    drop(progress);
    let progress = Progress::counting(&names[1]);
    let repetitions = args.repetitions;
    let samples = bench::compare(&mut handle, &info, &load, [&base, &changed], repetitions, |i| {
        progress.set(i.into(), repetitions.into());
    })?;
    drop(progress);
    let ratio = bench::Ratio::new(&info, threads, &load, base.max_num_seqs, names, samples);
    written(ratio.print(io::stdout().lock(), args.json))
}

pub fn prefix(args: &PrefixArgs) -> Result<Status, Quit> {
    let context = Context::read(args.engine.given())?;
    let wanted = args.model.as_deref().unwrap_or(&context.settings.options.model);
    let found = context.store.obtain(wanted, IfMissing::Ask, false)?;
    let mut settings = context.settings.options.engine.clone();
    let mut temporary = None;
    if settings.kv_cache_dir.is_none() {
        let folder = std::env::temp_dir().join(format!("glassbox-bench-{}", std::process::id()));
        settings.kv_cache_dir = Some(temporary.insert(Temporary(folder)).0.clone());
    }
    let length = args.n_prompt as usize;
    // One prompt at a time, and room for what is cached of others.
    let tokens = length + 1;
    let needs = bench::Needs { sequences: 1, length: tokens, cache_tokens: 2 * tokens, prefix_cache: true };
    fit(&mut settings, &needs, &found.path)?;

    let start = || {
        let mut handle = open::engine(&found, None, None, settings.clone());
        let progress = Progress::loading();
        let info = bench::wait_until_ready(&mut handle, |done, total| progress.set(done, total))?;
        Ok::<_, Quit>((handle, info))
    };
    let (mut handle, info) = start()?;
    let prompts = bench::prompts(&info, length, args.repetitions);
    let mut rows = bench::compute_and_find(&mut handle, &prompts)?.to_vec();
    bench::shut_down(&mut handle)?;
    let (mut handle, _) = start()?;
    rows.push(bench::restore(&mut handle, &prompts)?);
    bench::shut_down(&mut handle)?;
    written(bench::print_restored(io::stdout().lock(), &info, length, &rows, args.json))
}

pub fn gpu(args: &GpuArgs) -> Result<Status, Quit> {
    if let Some(folder) = &args.table {
        return written(bench::print_summary(&json_files(folder)?, &mut io::stdout().lock()));
    }
    let Device::Cuda(ordinal) = args.device else {
        return Err(Quit::new(Status::Usage, "--device: a GPU is measured, as cuda or cuda:N"));
    };
    let refused = |why: DeviceError| Quit::new(Status::Usage, format!("--device {}: {why}", args.device));
    let extent = gpu::Extent { tiny: args.tiny, most: Duration::from_secs(args.seconds.into()) };
    let mut report = None;
    let progress = Progress::counting("kernels");
    let measured = gpu::measure(ordinal, extent, &mut |ceilings, alone| {
        let report = report.get_or_insert_with(|| report_of(ceilings));
        report.kernels.extend(alone.map(|alone| kernel(ceilings, alone)));
        progress.set(report.kernels.len() as u64, 0);
    });
    drop(progress);
    measured.map_err(refused)?;
    let report = report.expect("ceilings come first");
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::from);
        text.and_then(|text| fs::write(path, text + "\n"))
            .map_err(|e| Quit::new(Status::Failed, format!("{}: {e}", path.display())))?;
    }
    let mut out = io::stdout().lock();
    written(report.print(&mut out).and_then(|()| out.flush()))
}

fn report_of(found: &Ceilings) -> bench::GpuReport {
    let ceilings = bench::GpuCeilings {
        read_gb_per_s: found.read / 1e9,
        copy_gb_per_s: found.copy / 1e9,
        f16_tflops: found.f16 / 1e12,
        bf16_tflops: found.bf16 / 1e12,
        int8_tops: found.int8 / 1e12,
        f32_tflops: found.f32 / 1e12,
    };
    let (device, multiprocessors) = (found.device.clone(), found.multiprocessors);
    bench::GpuReport { device, multiprocessors, ceilings, kernels: Vec::new() }
}

fn kernel(ceilings: &Ceilings, alone: Alone) -> bench::GpuKernel {
    let flops_per_s = match alone.rate {
        Rate::F16 => ceilings.f16,
        Rate::Bf16 => ceilings.bf16,
        Rate::Int8 => ceilings.int8,
        Rate::F32 => ceilings.f32,
    };
    let work = bench::KernelWork {
        bytes: alone.work.bytes,
        flops: alone.work.flops,
        flops_per_s,
        bytes_per_s: ceilings.read,
    };
    let measured = match alone.time {
        Ok(time) => bench::KernelTime::new(time.as_secs_f64() * 1e6, work),
        Err(why) => bench::KernelTime::Failed { error: why.to_string() },
    };
    bench::GpuKernel { kernel: alone.kernel, shape: alone.shape, measured }
}

/// What lies in the folder and can be read, by name; a part of a run may have failed.
fn json_files(folder: &Path) -> Result<Vec<bench::File>, Quit> {
    let failed = |e: io::Error| Quit::new(Status::Usage, format!("{}: {e}", folder.display()));
    let paths: io::Result<Vec<PathBuf>> =
        fs::read_dir(folder).map_err(failed)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    let file = |path: &PathBuf| {
        let content = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Some((path.file_stem()?.to_string_lossy().into_owned(), content))
    };
    Ok(paths.iter().filter_map(file).collect())
}

/// A folder that goes when it is no longer needed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may never have been made; and what is left of it is in a folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const LEAST_CACHE_TOKENS: usize = 256;

/// Room for the tests, where the flags do not say otherwise.
fn fit(settings: &mut EngineSettings, needs: &bench::Needs, model: &Path) -> Result<(), Quit> {
    if !needs.prefix_cache {
        settings.prefix_cache = PrefixCache::Off;
    }
    settings.scheduler.max_num_seqs = settings.scheduler.max_num_seqs.max(needs.sequences);
    let file = Checkpoint::inspect(model).map_err(open::unusable)?;
    let summary = Summary::of(&file).map_err(open::unusable)?;
    if let (None, Some(bytes)) = (settings.kv_cache_bytes, summary.kv_bytes_per_token(KV_BYTES_PER_VALUE)) {
        // Each sequence may leave a block half empty; the pool keeps one block to itself. A pool that
        // holds no conversation at all is refused, whatever the tests need.
        let tokens = needs.cache_tokens.max(LEAST_CACHE_TOKENS)
            + (needs.sequences + 1) * settings.block_size.unwrap_or(BLOCK_SIZE);
        settings.kv_cache_bytes = Some(tokens * bytes as usize);
    }
    Ok(())
}
