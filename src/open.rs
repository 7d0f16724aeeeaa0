//! From a model file to an engine behind a [`Handle`]. Part of the wiring, as `launch` is: it names
//! files, text, model and engine together.

use crate::base::Clock;
use crate::compute::cpu::{Cpu, Isa};
use crate::compute::{Backend, DeviceError, Profiled};
use crate::config::{EngineSettings, Given, Origin};
use crate::engine::{self, Opened};
use crate::model::{self, DoesNotFit, LoadError, LoadOptions, Loaded};
use crate::protocol::{Failure, FailureKind, Handle, LoadStage, ModelInfo};
use crate::script::{self, MemoryRow};
use crate::text::{TextModel, VocabSpec};
use crate::weights::{Found, Gguf, GgufError, ReasoningHint, Summary};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// An engine with this model. Returns at once: its own thread reads the file and reports.
///
/// `file` is the model's, where it is open already; `chat_template` replaces the model's own.
pub fn engine(
    found: &Found,
    file: Option<Gguf>,
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

struct Opening {
    name: String,
    path: PathBuf,
    file: Option<Gguf>,
    reasoning: Option<ReasoningHint>,
    chat_template: Option<String>,
    settings: EngineSettings,
}

impl Opening {
    fn open(&self, report: &dyn Fn(LoadStage, u64, u64)) -> Result<Opened, Failure> {
        let start = Instant::now();
        let file = self.file.clone().map_or_else(|| Gguf::open(&self.path), Ok).map_err(unusable)?;
        let cpu = cpu(&self.settings).map_err(|e| Failure::new(FailureKind::BadRequest, e.to_string()))?;
        let device = cpu.device().name;
        // The weights are the long way, on every core; the tokenizer is made beside them.
        let (text, loaded) = std::thread::scope(|scope| {
            let text = scope.spawn(|| {
                let text = text_model(&file, self.chat_template.as_deref());
                // Of a large vocabulary few texts are looked at again, and those come back.
                file.advise_dontneed(0..usize::MAX);
                text
            });
            let loaded = match self.settings.profile {
                false => self.load(&file, cpu, report),
                true => self.load(&file, Profiled::new(cpu), report),
            };
            let text = text.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (text, loaded)
        });
        let (mut text, loaded) = (text?, loaded?);
        if let Some(hint) = self.reasoning {
            text = text.with_reasoning(hint == ReasoningHint::Think);
        }
        let text = text
            .with_parsers(&self.settings.reasoning_parser, &self.settings.tool_call_parser)
            .map_err(|why| Failure::new(FailureKind::BadRequest, why))?;
        let info = self.info(&file, &text, &loaded, device)?;
        let load_ms = start.elapsed().as_secs_f64() * 1e3;
        let memory = loaded.memory;
        Ok(Opened {
            runner: loaded.runner,
            text: Arc::new(text),
            info: ModelInfo { load_ms, ..info },
            memory,
        })
    }

    fn load(
        &self,
        file: &Gguf,
        backend: impl Backend,
        report: &dyn Fn(LoadStage, u64, u64),
    ) -> Result<Loaded, Failure> {
        let options = load_options(&self.settings);
        model::load(file, backend, &options, &|done, total| report(LoadStage::Repacking, done, total))
            .map_err(|error| {
                let kind = match error {
                    LoadError::Memory(DoesNotFit::BeyondTraining { .. }) => FailureKind::BadRequest,
                    LoadError::Memory(DoesNotFit::Memory(_)) => FailureKind::Busy,
                    LoadError::Device(_) => FailureKind::Internal,
                    LoadError::File(_) | LoadError::Unsupported { .. } => FailureKind::Model,
                };
                Failure::new(kind, error.to_string())
            })
    }

    fn info(
        &self,
        file: &Gguf,
        text: &TextModel,
        loaded: &Loaded,
        device: String,
    ) -> Result<ModelInfo, Failure> {
        let summary = Summary::of(file).map_err(unusable)?;
        Ok(ModelInfo {
            name: self.name.clone(),
            path: self.path.display().to_string(),
            architecture: loaded.architecture.clone(),
            parameters: summary.parameters,
            quantization: summary.formats.first().map_or("", |share| share.format).to_owned(),
            file_bytes: summary.file_bytes,
            layers: loaded.layers,
            vocab_size: loaded.runner.limits().vocab_size,
            context_length: loaded.kv.max_model_len,
            trained_context_length: loaded.trained_context_length,
            has_chat_template: text.has_chat_template(),
            reasoning_parser: text.reasoning_parser().map(str::to_owned),
            tool_call_parser: text.tool_call_parser().map(str::to_owned),
            device,
            device_reason: "this version runs on the CPU".into(),
            kv_blocks: loaded.kv.blocks - 1,
            block_size: loaded.kv.block_size,
            kv_bytes_per_token: loaded.kv_bytes_per_token,
            weights_bytes: loaded.weight_bytes as u64,
            load_ms: 0.0,
        })
    }
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
        block_size: settings.block_size,
        kv_cache_dtype: settings.kv_cache_dtype,
        kv_cache_bytes: settings.kv_cache_bytes,
        memory_utilization: settings.memory_utilization,
        host_kv_bytes: settings.host_kv_bytes,
        max_batched_tokens: settings.scheduler.max_num_batched_tokens,
        hybrid_kv_cache: true,
    }
}

/// What the model would take, without loading it.
pub fn memory(path: &Path, settings: &EngineSettings) -> MemoryRow {
    let planned = Gguf::inspect(path).map_err(LoadError::File).and_then(|file| {
        let cpu = Cpu::new(settings.threads.or_else(|| Some(script::physical_cores())));
        model::plan(&file, &cpu, &load_options(settings))
    });
    match planned {
        Err(error) => MemoryRow::Refused { problem: error.to_string() },
        Ok((kv, plan)) => MemoryRow::Planned {
            plan,
            kv_blocks: kv.blocks - 1,
            block_size: kv.block_size,
            context: kv.max_model_len,
        },
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
        let file = Gguf::inspect(path).ok()?;
        let needs = model::needs(&file, &self.cpu, &self.options, context).ok()?;
        Some((needs.bytes as u64, needs.context))
    }
}

/// What a file knows of text, with another chat template where one is given.
pub fn text_model(file: &Gguf, chat_template: Option<&str>) -> Result<TextModel, Failure> {
    let text = TextModel::new(vocabulary(file).map_err(unusable)?)
        .map_err(|e| Failure::new(FailureKind::Model, format!("{}: {e}", file.path().display())))?;
    match chat_template {
        None => Ok(text),
        Some(source) => text
            .with_chat_template(source)
            .map_err(|e| Failure::new(FailureKind::Template, format!("--chat-template: {e}"))),
    }
}

/// What the file's `tokenizer.ggml.*` keys say.
pub fn vocabulary(file: &Gguf) -> Result<VocabSpec, GgufError> {
    let id = |key: &str| -> Result<Option<u32>, GgufError> {
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
    })
}

/// The model's own generation settings, where its file has some. What is out of range is left out: a
/// file must not be able to make every run fail.
pub fn generation_settings(file: &Gguf) -> Vec<Given> {
    const REALS: [(&str, &str); 4] = [
        ("temp", "temperature"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("penalty_repeat", "repetition_penalty"),
    ];
    let real = |(key, name): (&str, &str)| {
        let value = file.f32(&format!("general.sampling.{key}")).ok().flatten()?;
        Given::new(name, &value.to_string(), Origin::Model).ok()
    };
    let top_k = file.u64("general.sampling.top_k").ok().flatten();
    let top_k = top_k.and_then(|k| Given::new("top_k", &k.to_string(), Origin::Model).ok());
    REALS.into_iter().filter_map(real).chain(top_k).collect()
}

pub fn unusable(error: GgufError) -> Failure {
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
