//! From a model file to an engine behind a [`Handle`]. Part of the wiring, as `launch` is: it names
//! files, text, model and engine together.

use crate::base::Clock;
use crate::compute::cpu::{Cpu, Isa};
use crate::compute::{Backend, DeviceError, Profiled, gpu};
use crate::config::{Device, EngineSettings, Given, Origin};
use crate::engine::{self, Opened};
use crate::model::{self, BLOCK_SIZE, DoesNotFit, LoadError, LoadOptions, Loaded};
use crate::protocol::{Failure, FailureKind, Handle, LoadStage, ModelInfo};
use crate::script::{self, DeviceRow, GpuFacts, MemoryRow, Placement};
use crate::text::{HubError, HubFiles, TextModel, VocabSpec};
use crate::weights::{Checkpoint, CheckpointError, Found, LayerLoss, ReasoningHint, Summary};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// An engine with this model. Returns at once: its own thread reads the file and reports.
///
/// `file` is the model's, where it is open already; `chat_template` replaces the model's own.
pub fn engine(
    found: &Found,
    file: Option<Checkpoint>,
    chat_template: Option<String>,
    mut settings: EngineSettings,
) -> Handle {
    settings.threads.get_or_insert_with(script::physical_cores);
    let opening = Opening {
        name: found.name.clone(),
        path: found.path.clone(),
        file,
        reasoning: found.reasoning,
        chat_template,
        settings: settings.clone(),
    };
    engine::spawn(settings, Clock::wall(), move |report| opening.open(report))
}

/// One pass of so many is timed kernel by kernel, which takes longer: it is no graph.
const SAMPLED_PASSES: u32 = 64;

struct Opening {
    name: String,
    path: PathBuf,
    file: Option<Checkpoint>,
    reasoning: Option<ReasoningHint>,
    chat_template: Option<String>,
    settings: EngineSettings,
}

impl Opening {
    fn open(&self, report: &dyn Fn(LoadStage, u64, u64)) -> Result<Opened, Failure> {
        let start = Instant::now();
        let file = self.file.clone().map_or_else(|| Checkpoint::open(&self.path), Ok).map_err(unusable)?;
        // The weights are the long way, on every core; the tokenizer is made beside them.
        let (text, placed) = std::thread::scope(|scope| {
            let text = scope.spawn(|| {
                let text = text_model(&file, self.chat_template.as_deref());
                // Of a large vocabulary few texts are looked at again, and those come back.
                file.advise_dontneed();
                text
            });
            let placed = self.place(&file, report);
            let text = text.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (text, placed)
        });
        let (mut text, placed) = (text?, placed?);
        if let Some(hint) = self.reasoning {
            text = text.with_reasoning(hint == ReasoningHint::Think);
        }
        let text = text
            .with_parsers(&self.settings.reasoning_parser, &self.settings.tool_call_parser)
            .map_err(|why| Failure::new(FailureKind::BadRequest, why))?;
        let info = self.info(&file, &text, &placed)?;
        let load_ms = start.elapsed().as_secs_f64() * 1e3;
        let Loaded { runner, memory, .. } = placed.loaded;
        Ok(Opened { runner, text: Arc::new(text), info: ModelInfo { load_ms, ..info }, memory })
    }

    /// Loads the model where the settings say. What may go anywhere goes to the CPU where a GPU does not
    /// do, and says why.
    fn place(&self, file: &Checkpoint, report: &dyn Fn(LoadStage, u64, u64)) -> Result<Placed, Failure> {
        let (gpu, mut reason) = choose(self.settings.device, gpu::open).map_err(unfit)?;
        if let Some(gpu) = gpu {
            let device = gpu.device().name;
            match self.load(file, gpu, report) {
                Ok(loaded) => return Ok(Placed { loaded, device, reason }),
                Err(error) if self.settings.device == Device::Auto && is_of_the_device(&error) => {
                    reason = format!("{device} was not used: {error}");
                }
                Err(error) => return Err(not_loaded(&error)),
            }
        }
        let cpu = cpu(&self.settings).map_err(unfit)?;
        let device = cpu.device().name;
        let loaded = self.load(file, cpu, report).map_err(|error| not_loaded(&error))?;
        Ok(Placed { loaded, device, reason })
    }

    fn load(
        &self,
        file: &Checkpoint,
        mut backend: impl Backend,
        report: &dyn Fn(LoadStage, u64, u64),
    ) -> Result<Loaded, LoadError> {
        let options = load_options(&self.settings);
        let report = |done, total| report(LoadStage::Repacking, done, total);
        // Whoever looks at the sampler looks at the metrics too; a script should not be slowed.
        let every = match self.settings.profile {
            true => Some(1),
            false => (self.settings.trace_candidates > 0).then_some(SAMPLED_PASSES),
        };
        let takes_times = every.is_some_and(|every| backend.sample_times(every));
        match self.settings.profile && !takes_times {
            false => model::load(file, backend, &options, &report),
            true => model::load(file, Profiled::new(backend), &options, &report),
        }
    }

    fn info(&self, file: &Checkpoint, text: &TextModel, placed: &Placed) -> Result<ModelInfo, Failure> {
        let summary = Summary::of(file).map_err(unusable)?;
        let Placed { loaded, device, reason } = placed;
        Ok(ModelInfo {
            name: self.name.clone(),
            path: self.path.display().to_string(),
            architecture: loaded.architecture.clone(),
            parameters: summary.parameters,
            quantization: match loaded.losses.first() {
                Some(layer) => layer.worst.to.name(),
                None => summary.formats.first().map_or("", |share| share.format),
            }
            .to_owned(),
            quantized: self.quantized(&summary, &loaded.losses),
            file_bytes: summary.file_bytes,
            layers: loaded.layers,
            vocab_size: loaded.runner.limits().vocab_size,
            context_length: loaded.kv.max_model_len,
            trained_context_length: loaded.trained_context_length,
            has_chat_template: text.has_chat_template(),
            reasoning_parser: text.reasoning_parser().map(str::to_owned),
            tool_call_parser: text.tool_call_parser().map(str::to_owned),
            device: device.clone(),
            device_reason: reason.clone(),
            kv_blocks: loaded.kv.blocks - 1,
            block_size: loaded.kv.block_size,
            kv_bytes_per_token: loaded.kv_bytes_per_token,
            state_bytes: loaded.state_bytes,
            weights_bytes: loaded.weight_bytes as u64,
            load_ms: 0.0,
        })
    }

    /// As what the matrices were encoded, and with what error, if they were: mean of all layers, and the worst.
    fn quantized(&self, summary: &Summary, losses: &[LayerLoss]) -> Option<String> {
        let format = self.settings.quantize?;
        let found = summary.formats.first().map_or("", |share| share.format);
        let Some(worst) = losses.iter().max_by(|a, b| a.worst.error.total_cmp(&b.worst.error)) else {
            return Some(format!("left as {found}: nothing takes more bits than {format}"));
        };
        let mean = losses.iter().map(|layer| layer.mean).sum::<f64>() / losses.len() as f64;
        let (mean, most, name) = (100.0 * mean, 100.0 * worst.worst.error, &worst.worst.name);
        Some(format!("{format} of {found}, error {mean:.2} %, most {most:.2} % in {name}"))
    }
}

/// A model on its device.
struct Placed {
    loaded: Loaded,
    device: String,
    /// Why there; nothing where that needs no words.
    reason: String,
}

/// The GPU to run on, or none, and why.
///
/// # Errors
/// Why the one that was asked for cannot be used.
fn choose<G>(
    device: Device,
    open: impl FnOnce(usize) -> Result<G, DeviceError>,
) -> Result<(Option<G>, String), DeviceError> {
    let asked = || "asked for".to_owned();
    match device {
        Device::Cpu => Ok((None, asked())),
        Device::Cuda(ordinal) => match open(ordinal) {
            Ok(gpu) => Ok((Some(gpu), asked())),
            Err(why) => Err(DeviceError(format!("--device {device} cannot be used: {why}"))),
        },
        Device::Auto => Ok(match open(0) {
            Ok(gpu) => (Some(gpu), String::new()),
            Err(why) => (None, why.to_string()),
        }),
    }
}

/// Another device may do better; of everything else it would say the same.
fn is_of_the_device(error: &LoadError) -> bool {
    matches!(error, LoadError::Device(_) | LoadError::Memory(DoesNotFit::Memory(_)))
}

fn not_loaded(error: &LoadError) -> Failure {
    let kind = match error {
        LoadError::Memory(DoesNotFit::BeyondTraining { .. }) => FailureKind::BadRequest,
        LoadError::Memory(DoesNotFit::Memory(_)) => FailureKind::Busy,
        LoadError::Device(_) => FailureKind::Internal,
        LoadError::File(_) | LoadError::Unsupported { .. } => FailureKind::Model,
    };
    Failure::new(kind, error.to_string())
}

/// This machine lacks what was asked for.
fn unfit(error: DeviceError) -> Failure {
    Failure::new(FailureKind::BadRequest, error.to_string())
}

fn cpu(settings: &EngineSettings) -> Result<Cpu, DeviceError> {
    let cpu = Cpu::with_isa(settings.threads, instruction_set(settings)?);
    if settings.pin_threads { cpu.pinned() } else { Ok(cpu) }
}

/// What was asked for, if this processor has it; the best there is where nothing was.
pub fn instruction_set(settings: &EngineSettings) -> Result<Isa, DeviceError> {
    settings.instruction_set.map_or_else(|| Ok(Isa::detect()), str::parse)
}

fn load_options(settings: &EngineSettings) -> LoadOptions {
    LoadOptions {
        max_model_len: settings.max_model_len,
        block_size: settings.block_size.unwrap_or(BLOCK_SIZE),
        longer_blocks: settings.block_size.is_none(),
        kv_cache_dtype: settings.kv_cache_dtype,
        kv_cache_bytes: settings.kv_cache_bytes,
        memory_utilization: settings.memory_utilization,
        host_kv_bytes: settings.host_kv_bytes,
        max_batched_tokens: settings.scheduler.max_num_batched_tokens,
        hybrid_kv_cache: true,
        quantize: settings.quantize,
    }
}

/// What the model would take, without loading it, on each device that settings allow; the one it would run on
/// comes first.
pub fn placements(file: &Checkpoint, settings: &EngineSettings) -> Vec<Placement> {
    let options = load_options(settings);
    let mut places = Vec::new();
    match choose(settings.device, gpu::open) {
        Ok((Some(gpu), _)) => places.push(placement(file, &gpu, &options)),
        Ok((None, _)) => {}
        Err(why) => {
            let memory = MemoryRow::Refused { problem: why.to_string() };
            return vec![Placement {
                device: settings.device.to_string(),
                chosen: true,
                memory,
                encoded: Vec::new(),
            }];
        }
    }
    if matches!(settings.device, Device::Auto | Device::Cpu) {
        let cpu = Cpu::new(settings.threads.or_else(|| Some(script::physical_cores())));
        places.push(placement(file, &cpu, &options));
    }
    let fits = places.iter().position(|place| matches!(place.memory, MemoryRow::Planned { .. }));
    places.swap(0, fits.unwrap_or(0));
    places[0].chosen = true;
    places
}

/// Of the device that it would run on.
pub fn memory(path: &Path, settings: &EngineSettings) -> MemoryRow {
    match Checkpoint::inspect(path) {
        Err(error) => MemoryRow::Refused { problem: error.to_string() },
        Ok(file) => placements(&file, settings).swap_remove(0).memory,
    }
}

fn placement(file: &Checkpoint, backend: &impl Backend, options: &LoadOptions) -> Placement {
    let memory = match model::plan(file, backend, options) {
        Err(error) => MemoryRow::Refused { problem: error.to_string() },
        Ok((kv, plan)) => MemoryRow::Planned {
            plan,
            kv_blocks: kv.blocks - 1,
            block_size: kv.block_size,
            context: kv.max_model_len,
        },
    };
    let encoded = model::encoded_for(file, backend);
    let encoded = encoded.iter().map(|(from, to)| format!("{} as {}", from.name(), to.name())).collect();
    Placement { device: backend.device().name, chosen: false, memory, encoded }
}

/// Every GPU there is, or why there is none, for a report.
pub fn gpus() -> Vec<DeviceRow> {
    let row = |(ordinal, found): (usize, Result<gpu::Found, DeviceError>)| match found {
        Err(why) => DeviceRow::no_gpu(Some(ordinal), why.to_string()),
        Ok(gpu) => DeviceRow::gpu(
            ordinal,
            GpuFacts {
                model: gpu.name,
                compute_capability: format!("{}.{}", gpu.capability / 10, gpu.capability % 10),
                memory_free_bytes: gpu.free_bytes,
                memory_total_bytes: gpu.total_bytes,
                driver_cuda_version: format!("{}.{}", gpu.driver / 1000, gpu.driver % 1000 / 10),
            },
        ),
    };
    match gpu::all() {
        Err(why) => vec![DeviceRow::no_gpu(None, why.to_string())],
        Ok(all) => all.into_iter().enumerate().map(row).collect(),
    }
}

/// A chat of so many tokens is what a model should at least be good for.
const MODEST_CONTEXT: usize = 2048;

/// What models take at least, one after the other.
pub struct Needs {
    cpu: Cpu,
    options: LoadOptions,
}

impl Needs {
    pub fn new(settings: &EngineSettings) -> Self {
        let cpu = Cpu::new(settings.threads.or_else(|| Some(script::physical_cores())));
        Self { cpu, options: load_options(settings) }
    }

    /// Bytes, and for a chat of how many tokens; `None` where the file cannot be used at all.
    pub fn of(&self, path: &Path) -> Option<(u64, usize)> {
        let context = self.options.max_model_len.unwrap_or(MODEST_CONTEXT);
        let file = Checkpoint::inspect(path).ok()?;
        let needs = model::needs(&file, &self.cpu, &self.options, context).ok()?;
        Some((needs.bytes as u64, needs.context))
    }
}

/// What a file knows of text, with another chat template where one is given.
pub fn text_model(file: &Checkpoint, chat_template: Option<&str>) -> Result<TextModel, Failure> {
    let text = TextModel::new(vocabulary(file).map_err(unusable)?)
        .map_err(|e| Failure::new(FailureKind::Model, format!("{}: {e}", file.path().display())))?;
    match chat_template {
        None => Ok(text),
        Some(source) => text
            .with_chat_template(source)
            .map_err(|e| Failure::new(FailureKind::Template, format!("--chat-template: {e}"))),
    }
}

/// What the file's `tokenizer.ggml.*` keys say, or what a hub's folder has in files of its own (which a GGUF file
/// made from one may carry).
pub fn vocabulary(file: &Checkpoint) -> Result<VocabSpec, CheckpointError> {
    let carries = || file.value("tokenizer.ggml.model").is_none() && file.carried("tokenizer.json").is_some();
    if file.is_hub() || carries() {
        let spec = VocabSpec::from_hub(&hub_files(file)?).map_err(|error| in_folder(file, error))?;
        return Ok(VocabSpec { architecture: file.architecture()?.to_owned(), ..spec });
    }
    let id = |key: &str| -> Result<Option<u32>, CheckpointError> {
        // An id beyond u32 is beyond every vocabulary, which is said there.
        Ok(file.u64(&format!("tokenizer.ggml.{key}"))?.map(|id| u32::try_from(id).unwrap_or(u32::MAX)))
    };
    Ok(VocabSpec {
        model: file.require_str("tokenizer.ggml.model")?.to_owned(),
        pre: file.str("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: file.require_texts("tokenizer.ggml.tokens")?,
        types: file.i32s("tokenizer.ggml.token_type")?.unwrap_or_default(),
        scores: file.f32s("tokenizer.ggml.scores")?.unwrap_or_default(),
        merges: file.texts("tokenizer.ggml.merges")?.unwrap_or_default(),
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        eot: id("eot_token_id")?,
        unk: id("unknown_token_id")?,
        extra_end: id("eom_token_id")?.into_iter().collect(),
        add_bos: file.bool("tokenizer.ggml.add_bos_token")?,
        add_space_prefix: file.bool("tokenizer.ggml.add_space_prefix")?,
        remove_extra_whitespaces: file.bool("tokenizer.ggml.remove_extra_whitespaces")?,
        chat_template: file.str("tokenizer.chat_template")?.map(str::to_owned),
        architecture: file.str("general.architecture")?.unwrap_or_default().to_owned(),
        ..VocabSpec::default()
    })
}

/// Of one text file beside the weights, in bytes; the largest known `tokenizer.json` has 34 MB.
const LONGEST_COMPANION: u64 = 256 << 20;

/// The files about text in a hub's folder.
fn hub_files(file: &Checkpoint) -> Result<HubFiles, CheckpointError> {
    let read = |name: &str| match (file.companion(name), file.carried(name)) {
        (Some(path), _) => companion(&path).map(Some),
        (None, carried) => Ok(carried.map(|text| text.as_bytes().to_vec())),
    };
    let wrong =
        |problem: &str| CheckpointError::Hub { path: file.path().to_owned(), problem: problem.into() };
    Ok(HubFiles {
        tokenizer: read("tokenizer.json")?.ok_or_else(|| wrong("there is no tokenizer.json"))?,
        tokenizer_config: read("tokenizer_config.json")?,
        chat_template: read("chat_template.jinja")?,
        chat_template_json: read("chat_template.json")?,
        generation_config: read("generation_config.json")?,
        config: read("config.json")?,
    })
}

fn companion(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let unread = |source| CheckpointError::Open { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(unread)?.len();
    if bytes > LONGEST_COMPANION {
        let problem =
            format!("{bytes} bytes are more than the {LONGEST_COMPANION} that such a file may have");
        return Err(CheckpointError::Hub { path: path.to_owned(), problem });
    }
    std::fs::read(path).map_err(unread)
}

fn in_folder(file: &Checkpoint, error: HubError) -> CheckpointError {
    CheckpointError::Hub { path: file.path().join(error.file), problem: error.problem }
}

/// The model's own generation settings, where its file has some. What is out of range is left out: a
/// file must not be able to make every run fail.
pub fn generation_settings(file: &Checkpoint) -> Vec<Given> {
    const REALS: [(&str, &str); 4] = [
        ("temp", "temperature"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("penalty_repeat", "repetition_penalty"),
    ];
    if let Some(path) = file.companion("generation_config.json") {
        let files = HubFiles { generation_config: companion(&path).ok(), ..HubFiles::default() };
        let own = files.sampling().unwrap_or_default().into_iter();
        return own
            .filter_map(|(name, value)| Given::new(name, &value.to_string(), Origin::Model).ok())
            .collect();
    }
    let real = |(key, name): (&str, &str)| {
        let value = file.f32(&format!("general.sampling.{key}")).ok().flatten()?;
        Given::new(name, &value.to_string(), Origin::Model).ok()
    };
    let top_k = file.u64("general.sampling.top_k").ok().flatten();
    let top_k = top_k.and_then(|k| Given::new("top_k", &k.to_string(), Origin::Model).ok());
    REALS.into_iter().filter_map(real).chain(top_k).collect()
}

pub fn unusable(error: CheckpointError) -> Failure {
    Failure::new(FailureKind::Model, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::INSTRUCTION_SETS;

    #[test]
    fn the_settings_names_are_the_kernels_own() {
        for isa in Isa::available() {
            assert!(INSTRUCTION_SETS.contains(&isa.to_string().as_str()), "{isa}");
        }
    }

    #[test]
    fn a_gpu_is_taken_where_it_can_be_and_missed_in_words() {
        let there = |ordinal| Ok(ordinal);
        let missing = |_| Err::<usize, _>(DeviceError("no driver".into()));
        let cases = [
            (Device::Auto, Ok((Some(0), "")), Ok((None, "no driver"))),
            (Device::Cpu, Ok((None, "asked for")), Ok((None, "asked for"))),
            (Device::Cuda(0), Ok((Some(0), "asked for")), Err("--device cuda cannot be used: no driver")),
            (Device::Cuda(2), Ok((Some(2), "asked for")), Err("--device cuda:2 cannot be used: no driver")),
        ];
        for (device, with, without) in cases {
            let owned = |right: Result<(Option<usize>, &str), &str>| {
                right.map(|(gpu, why)| (gpu, why.to_owned())).map_err(|why| DeviceError(why.into()))
            };
            assert_eq!(choose(device, there), owned(with));
            assert_eq!(choose(device, missing), owned(without));
        }
    }

    /// A file that is broken, or a context that no device has, is not tried a second time.
    #[test]
    fn only_what_lies_with_the_device_is_tried_on_another() {
        let tried = [
            LoadError::Device(DeviceError("out of memory".into())),
            LoadError::Memory(DoesNotFit::Memory("too large".into())),
        ];
        assert!(tried.iter().all(is_of_the_device));
        let not = [
            LoadError::Memory(DoesNotFit::BeyondTraining { wanted: 2, trained: 1 }),
            LoadError::Unsupported { file: "f".into(), problem: "p".into() },
        ];
        assert!(!not.iter().any(is_of_the_device));
    }

    #[test]
    fn what_this_machine_lacks_is_refused_with_what_it_has() {
        let open = |settings: EngineSettings| cpu(&settings).err().map(|e| e.to_string());
        let many = EngineSettings { threads: Some(1000), pin_threads: true, ..EngineSettings::default() };
        if cfg!(target_os = "linux") {
            assert!(open(many).is_some_and(|why| why.contains("1000 threads cannot be pinned")));
        }
        for name in INSTRUCTION_SETS {
            let settings = EngineSettings { threads: Some(1), ..EngineSettings::default() };
            let refused = open(EngineSettings { instruction_set: Some(name), ..settings });
            let is_here = Isa::available().iter().any(|isa| isa.to_string() == name);
            assert_eq!(refused.is_none(), is_here, "{refused:?}");
        }
    }
}
