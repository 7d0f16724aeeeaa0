use super::{Given, GuidedFlags, Origin, SamplingFlags};
use crate::protocol::{BeamSearch, EarlyStopping};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// Beam search, where a width asks for it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Beam search")]
pub struct BeamFlags {
    /// Beam search with so many beams instead of sampling; --choices says how many of the best answers
    #[arg(long, value_name = "W", allow_negative_numbers = true, value_parser = beam_width)]
    pub beam_width: Option<u32>,
    /// An answer's score is its summed log-probability / (its tokens ^ X) [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true, requires = "beam_width")]
    pub length_penalty: Option<f32>,
    /// When the search is over: true (as soon as W answers have ended), false (no open beam scores
    /// better at its length) or never (none can ever score better) [default: false]
    #[arg(long, value_name = "WHEN", value_parser = early_stopping, requires = "beam_width")]
    pub early_stopping: Option<EarlyStopping>,
}

impl BeamFlags {
    pub fn search(&self) -> Option<BeamSearch> {
        let default = BeamSearch::default();
        self.beam_width.map(|width| BeamSearch {
            width,
            length_penalty: self.length_penalty.unwrap_or(default.length_penalty),
            early_stopping: self.early_stopping.unwrap_or(default.early_stopping),
        })
    }
}

/// Where and how the engine runs.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Engine")]
pub struct EngineFlags {
    /// Longest prompt plus answer, in tokens [default: the model's, where memory allows]
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = checked("ctx"))]
    pub ctx: Option<String>,
    /// Worker threads [default: one for each physical core]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = checked("threads"))]
    pub threads: Option<String>,
    /// Bind each compute thread to a core of its own; on Linux, ignored elsewhere
    #[arg(long)]
    pub pin_threads: bool,
    /// What the kernels use: portable, avx2, avx-vnni or avx512-vnni [default: the best there is]
    #[arg(long, value_name = "NAME", value_parser = checked("instruction_set"))]
    pub instruction_set: Option<String>,
    /// Where the model runs: auto (a GPU that can be used, else the CPU), cpu, cuda or cuda:N
    /// [default: auto]
    #[arg(long, value_name = "DEVICE", value_parser = checked("device"))]
    pub device: Option<String>,
    /// Memory for the KV cache, such as 512MiB [default: a share of what is free]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = checked("kv_memory"))]
    pub kv_memory: Option<String>,
    /// Most of the free memory for weights and KV cache, 0.1 to 1 [default: 0.9]
    #[arg(long, alias = "gpu-memory-utilization", value_name = "SHARE", allow_negative_numbers = true, value_parser = checked("memory_utilization"))]
    pub memory_utilization: Option<String>,
    /// Tokens of one KV block, 1 to 256 [default: 16]
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = checked("block_size"))]
    pub block_size: Option<String>,
    /// What keys and values are stored as: f16, bf16, f32, int8 or fp8 [default: f16]
    #[arg(long, value_name = "DTYPE", value_parser = checked("kv_cache_dtype"))]
    pub kv_cache_dtype: Option<String>,
    /// Encode the model's matrices while it is loaded: q4_k, q5_k, q6_k, q8_0, int8 or fp8
    /// [default: none, as they are]
    #[arg(long, value_name = "FORMAT", value_parser = checked("quantize"))]
    pub quantize: Option<String>,
    /// How past prompts are found again: hash, radix or off [default: hash]
    #[arg(long, value_name = "KIND", value_parser = checked("prefix_cache"))]
    pub prefix_cache: Option<String>,
    /// What the radix tree drops first: lru, lfu, fifo, mru, filo, slru or priority [default: lru]
    #[arg(long, value_name = "POLICY", value_parser = checked("radix_eviction_policy"))]
    pub radix_eviction_policy: Option<String>,
    /// Host memory for blocks that the KV cache has no room for [default: 0, none]
    #[arg(long, alias = "swap-space", value_name = "SIZE", allow_negative_numbers = true, value_parser = checked("host_kv_memory"))]
    pub host_kv_memory: Option<String>,
    /// Keep cached blocks in this folder, also after the program ends
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = checked("kv_cache_dir"))]
    pub kv_cache_dir: Option<String>,
    /// Most bytes of that folder [default: 4GiB]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = checked("kv_cache_dir_size"))]
    pub kv_cache_dir_size: Option<String>,
    /// Token budget of one step [default: 512]
    #[arg(long, alias = "max-batched-tokens", value_name = "TOKENS", allow_negative_numbers = true, value_parser = checked("max_num_batched_tokens"))]
    pub max_num_batched_tokens: Option<String>,
    /// Most sequences in one step [default: 32]
    #[arg(long, alias = "max-seqs", value_name = "N", allow_negative_numbers = true, value_parser = checked("max_num_seqs"))]
    pub max_num_seqs: Option<String>,
    /// Whom a step serves first: fcfs or priority [default: fcfs]
    #[arg(long, value_name = "POLICY", value_parser = checked("scheduling_policy"))]
    pub scheduling_policy: Option<String>,
    /// The order in which waiting requests are looked at: fcfs, lpm, dfs-weight, lof, random, hrrn, shortest-prefill-first or round-robin [default: fcfs]
    #[arg(long, value_name = "POLICY", value_parser = checked("schedule_policy"))]
    pub schedule_policy: Option<String>,
    /// What becomes of a sequence that gives its blocks back: recompute, swap or retract [default: recompute]
    #[arg(long, value_name = "MODE", value_parser = checked("preemption_mode"))]
    pub preemption_mode: Option<String>,
    /// Ask the model for every token, also where a grammar leaves only one
    #[arg(long)]
    pub no_fast_forward: bool,
    /// How thoughts are told from the answer: a family's name, tags:<a>,</a> or none [default: auto]
    #[arg(long, value_name = "NAME", value_parser = checked("reasoning_parser"))]
    pub reasoning_parser: Option<String>,
    /// The format of the model's tool calls: a family's name, or none [default: auto]
    #[arg(long, value_name = "NAME", value_parser = checked("tool_call_parser"))]
    pub tool_call_parser: Option<String>,
    /// Any setting of the scheduler or the engine, as batching=static; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<String>,
    /// Where fetched models are kept [default: see `glassbox paths`]
    #[arg(long = "models-dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub models: Option<String>,
    /// Never touch the network
    #[arg(long)]
    pub offline: bool,
}

/// How the screen looks and behaves.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Screen")]
pub struct UiFlags {
    /// dark, light, contrast, catppuccin-mocha, catppuccin-latte, gruvbox-dark, gruvbox-light, nord,
    /// tokyo-night, or a file of the themes folder [default: the last one chosen]
    #[arg(long, value_name = "NAME", value_parser = checked("theme"))]
    pub theme: Option<String>,
    /// What the screen is drawn on: paint (the theme's), terminal (its own) or auto (as the theme says)
    /// [default: auto]
    #[arg(long, value_name = "WHAT", value_parser = checked("background"))]
    pub background: Option<String>,
    /// Draw with ASCII only
    #[arg(long)]
    pub ascii: bool,
    /// Leave the mouse to the terminal
    #[arg(long)]
    pub no_mouse: bool,
    /// Nothing flashes, and the screen changes at most five times a second while answers stream
    #[arg(long)]
    pub reduced_motion: bool,
    /// How the end of a long answer is told when the window lost the focus: off, bell or desktop
    /// [default: bell]
    #[arg(long, value_name = "HOW", value_parser = checked("notify"))]
    pub notify: Option<String>,
    /// Leave the title of the terminal's window alone
    #[arg(long)]
    pub no_window_title: bool,
}

impl UiFlags {
    pub fn given(&self) -> Vec<Given> {
        let set = |flag: bool, value: &str| flag.then(|| value.to_owned());
        flags([
            ("theme", &self.theme),
            ("background", &self.background),
            ("ascii", &set(self.ascii, "true")),
            ("mouse", &set(self.no_mouse, "false")),
            ("reduced_motion", &set(self.reduced_motion, "true")),
            ("notify", &self.notify),
            ("window_title", &set(self.no_window_title, "false")),
        ])
    }
}

/// What a chat starts with.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Prompt")]
pub struct PromptFlags {
    /// Values of a file in the presets folder, NAME.toml; flags win over it
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// System prompt
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// Use this chat template (Jinja) instead of the model's own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub chat_template: Option<PathBuf>,
    /// Whether the model thinks first: on, off, or a level its template knows [default: auto]
    #[arg(long, value_name = "on|off|LEVEL", value_parser = checked("think"))]
    pub think: Option<String>,
    /// Close thoughts of so many tokens by force
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = checked("think_budget"))]
    pub think_budget: Option<String>,
}

impl PromptFlags {
    pub fn given(&self) -> Vec<Given> {
        flags([("system", &self.system), ("think", &self.think), ("think_budget", &self.think_budget)])
    }
}

/// One answer, for scripts.
#[derive(Args, Clone, Debug, Default)]
pub struct RunArgs {
    /// A model's name or path, then the prompt. A single word that names no model is the prompt
    #[arg(value_name = "MODEL] [PROMPT", value_hint = ValueHint::FilePath)]
    pub words: Vec<String>,
    /// The model; everything else is then the prompt
    #[arg(short, long, value_name = "MODEL", value_hint = ValueHint::FilePath)]
    pub model: Option<String>,
    /// The prompt; - reads it from stdin
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Add a text file to the prompt; may be repeated. Order: stdin, files, prompt
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Vec<PathBuf>,
    #[command(flatten)]
    pub chat: PromptFlags,
    /// Send the prompt as it is, without a chat template
    #[arg(long, conflicts_with_all = ["system", "chat_template"], help_heading = "Prompt")]
    pub raw: bool,
    #[command(flatten)]
    pub guided: GuidedFlags,

    /// One JSON object instead of text; same as --output-format json
    #[arg(long, conflicts_with = "output_format", help_heading = "Output")]
    pub json: bool,
    /// What goes to stdout
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub output_format: Option<Format>,
    /// With JSON output: every token with its K likeliest alternatives
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = checked("logprobs"), help_heading = "Output")]
    pub logprobs: Option<String>,
    /// Answers to sample from the one prompt, in one batch; choice i uses seed + i
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), allow_negative_numbers = true, help_heading = "Output")]
    pub choices: u32,
    #[command(flatten)]
    pub beam: BeamFlags,
    /// Sample so many, and keep the --choices of them with the largest mean log-probability; nothing is
    /// shown before all have ended
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1024), allow_negative_numbers = true, help_heading = "Output")]
    pub best_of: Option<u32>,
    /// Where the model's thoughts go, in text output [default: hide]
    #[arg(long, value_enum, value_name = "WHERE", help_heading = "Output")]
    pub reasoning: Option<ShowReasoning>,
    /// Print the answer when it is complete
    #[arg(long, help_heading = "Output")]
    pub no_stream: bool,
    /// With ndjson output: a line for every engine step
    #[arg(long, help_heading = "Output")]
    pub steps: bool,
    /// Nothing on stderr but errors
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Tokens and speed on stderr at the end
    #[arg(long, help_heading = "Output")]
    pub stats: bool,
    /// Record the engine's steps and all that is said, for `glassbox replay`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub trace: Option<PathBuf>,
    /// Show what would run, each setting with where it is from, and stop
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Fetch the model without asking if it is not here
    #[arg(short, long, help_heading = "Engine")]
    pub yes: bool,

    /// Lower is served first, under --scheduling-policy priority
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        help_heading = "Engine"
    )]
    pub priority: i32,
    /// Share cached blocks only with requests of the same salt
    #[arg(long, value_name = "TEXT", value_parser = salt, help_heading = "Engine")]
    pub cache_salt: Option<String>,

    /// Tools the model may ask for: a JSON array of functions, as OpenAI's API takes them, or a TOML file
    /// of commands and MCP servers; nothing is run without --run-tools
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "raw", help_heading = "Tools")]
    pub tools: Option<PathBuf>,
    /// auto, none, required, or a tool's name: required and a name hold the answer to a call
    #[arg(long, value_name = "CHOICE", default_value = "auto", requires = "tools", help_heading = "Tools")]
    pub tool_choice: String,
    /// At most one call in one answer, where calls are required
    #[arg(long, requires = "tools", help_heading = "Tools")]
    pub no_parallel_tool_calls: bool,
    /// Carry the calls out without a question, and answer with what they give back
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        requires = "tools",
        conflicts_with = "raw",
        help_heading = "Tools"
    )]
    pub run_tools: Option<RunTools>,

    #[command(flatten)]
    pub sampling: SamplingFlags,
    #[command(flatten)]
    pub engine: EngineFlags,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The answer only, as it comes
    #[default]
    Text,
    /// One object at the end
    Json,
    /// An event a line, as it comes
    Ndjson,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShowReasoning {
    /// On stdout, between <think> and </think>
    Show,
    #[default]
    Hide,
    Stderr,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunTools {
    /// Only say what would run, and give the model that
    Dry,
    /// Run every call as it is declared, unasked
    Yes,
}

impl RunArgs {
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output_format.unwrap_or_default() }
    }

    pub fn given(&self) -> Vec<Given> {
        let mut given = self.sampling.given();
        given.extend(self.engine.given());
        given.extend(self.chat.given());
        given.extend(self.logprobs.iter().map(|k| flag("logprobs", k)));
        given
    }
}

impl EngineFlags {
    pub fn given(&self) -> Vec<Given> {
        let on = |flag: bool| flag.then(|| "true".to_owned());
        let (offline, pin_threads) = (on(self.offline), on(self.pin_threads));
        let fast_forward = self.no_fast_forward.then(|| "false".to_owned());
        let mut given = flags([
            ("ctx", &self.ctx),
            ("threads", &self.threads),
            ("pin_threads", &pin_threads),
            ("instruction_set", &self.instruction_set),
            ("device", &self.device),
            ("kv_memory", &self.kv_memory),
            ("memory_utilization", &self.memory_utilization),
            ("block_size", &self.block_size),
            ("kv_cache_dtype", &self.kv_cache_dtype),
            ("quantize", &self.quantize),
            ("prefix_cache", &self.prefix_cache),
            ("radix_eviction_policy", &self.radix_eviction_policy),
            ("host_kv_memory", &self.host_kv_memory),
            ("kv_cache_dir", &self.kv_cache_dir),
            ("kv_cache_dir_size", &self.kv_cache_dir_size),
            ("max_num_batched_tokens", &self.max_num_batched_tokens),
            ("max_num_seqs", &self.max_num_seqs),
            ("scheduling_policy", &self.scheduling_policy),
            ("schedule_policy", &self.schedule_policy),
            ("preemption_mode", &self.preemption_mode),
            ("fast_forward", &fast_forward),
            ("reasoning_parser", &self.reasoning_parser),
            ("tool_call_parser", &self.tool_call_parser),
            ("models", &self.models),
            ("offline", &offline),
        ]);
        given.extend(self.set.iter().map(|typed| {
            Given::assignment(typed, Origin::Flag).expect("clap checked the same text already")
        }));
        given
    }
}

fn flags<'a>(pairs: impl IntoIterator<Item = (&'static str, &'a Option<String>)>) -> Vec<Given> {
    pairs.into_iter().filter_map(|(name, text)| Some(flag(name, text.as_ref()?))).collect()
}

fn flag(name: &str, text: &str) -> Given {
    Given::new(name, text, Origin::Flag).expect("clap checked the same text already")
}

/// A clap value parser that keeps the text and refuses what the setting `name` refuses.
fn checked(name: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| Given::new(name, text, Origin::Flag).map(|_| text.to_owned())
}

fn salt(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("the salt must be a non-empty text".into()) } else { Ok(text.to_owned()) }
}

fn assignment(typed: &str) -> Result<String, String> {
    Given::assignment(typed, Origin::Flag).map(|_| typed.to_owned())
}

fn beam_width(typed: &str) -> Result<u32, String> {
    let width = typed.parse().ok();
    let beam = BeamSearch { width: width.unwrap_or(0), ..BeamSearch::default() };
    beam.check().map(|()| beam.width).map_err(|bad| format!("it must be {}", bad.expected))
}

fn early_stopping(typed: &str) -> Result<EarlyStopping, String> {
    EarlyStopping::parse(typed).map_err(|bad| format!("it must be {}", bad.expected))
}
