use super::{EngineSettings, INSTRUCTION_SETS};
use crate::protocol::{REASONING_PARSERS, TOOL_CALL_PARSERS, TOOL_ROUNDS, Thinking, WeightFormat, yes_or_no};
use std::path::PathBuf;

/// Everything that can be set beside the sampling parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What runs when no model is named.
    pub model: String,
    /// Never touch the network.
    pub offline: bool,
    /// Where fetched models are kept, instead of the user's data folder.
    pub models: Option<PathBuf>,
    pub engine: EngineSettings,
    /// Of a new chat.
    pub system: Option<String>,
    /// Whether and how long the model thinks first.
    pub thinking: Thinking,
    /// A built-in theme, or the name of a file in the themes folder.
    pub theme: Option<String>,
    pub background: Background,
    /// Draw with ASCII only.
    pub ascii: bool,
    /// The screen takes the mouse.
    pub mouse: bool,
    /// Nothing flashes, and the picture changes seldom.
    pub reduced_motion: bool,
    /// How the end of a long answer is told.
    pub notify: Notify,
    /// The terminal's window is named after the chat.
    pub window_title: bool,
    /// Answers with tool calls in a row.
    pub tool_rounds: u32,
    /// What is said is kept, and can be gone on with.
    pub save_sessions: bool,
    /// Where tools are declared; `None` is tools.toml beside config.toml.
    pub tools_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            model: "smollm2-135m".into(),
            offline: false,
            models: None,
            engine: EngineSettings::default(),
            system: None,
            thinking: Thinking::default(),
            theme: None,
            background: Background::default(),
            ascii: false,
            mouse: true,
            reduced_motion: false,
            notify: Notify::default(),
            window_title: true,
            tool_rounds: TOOL_ROUNDS,
            save_sessions: true,
            tools_file: None,
        }
    }
}

/// What the screen is drawn on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// As the theme's file says.
    #[default]
    Auto,
    /// The theme's own.
    Paint,
    /// The terminal's, whatever the theme says: also where that is a picture or lets one shine through.
    Terminal,
}

impl Background {
    const NAMES: [(&str, Background); 3] =
        [("auto", Background::Auto), ("paint", Background::Paint), ("terminal", Background::Terminal)];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, background)| *background == self).map_or("", |(name, _)| name)
    }
}

/// How someone who looks elsewhere is told that a long answer has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    Off,
    #[default]
    Bell,
    /// By the desktop, where the terminal passes it on.
    Desktop,
}

impl Notify {
    const NAMES: [(&str, Notify); 3] =
        [("off", Notify::Off), ("bell", Notify::Bell), ("desktop", Notify::Desktop)];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, notify)| *notify == self).map_or("", |(name, _)| name)
    }
}

/// One setting: what flags, environment, config file and `--dry-run` all know of it. A new setting
/// is one row of [`SETTINGS`]; those that may change while the engine runs are rows of
/// [`SCHEDULING`](crate::protocol::SCHEDULING) instead.
pub struct SettingSpec {
    /// The config file's table and key; the variable is `GLASSBOX_` and the key in capitals.
    pub table: &'static str,
    pub name: &'static str,
    pub help: &'static str,
    pub get: fn(&Options) -> String,
    /// Sets it from what was typed, or says what would be right.
    pub set: fn(&mut Options, &str) -> Result<(), &'static str>,
}

pub const SETTINGS: &[SettingSpec] = &[
    SettingSpec {
        table: "engine",
        name: "model",
        help: "what runs when no model is named",
        get: |o| o.model.clone(),
        set: |o, typed| match typed.trim() {
            "" => Err("a model's name or path"),
            name => {
                o.model = name.into();
                Ok(())
            }
        },
    },
    SettingSpec {
        table: "engine",
        name: "device",
        help: "where the model runs: auto (a GPU that can be used, else the CPU), cpu, cuda or cuda:N",
        get: |o| o.engine.device.to_string(),
        set: |o, typed| typed.parse().map(|x| o.engine.device = x),
    },
    SettingSpec {
        table: "engine",
        name: "offline",
        help: "never touch the network",
        get: |o| o.offline.to_string(),
        set: |o, typed| yes_or_no(typed).map(|x| o.offline = x),
    },
    SettingSpec {
        table: "engine",
        name: "models",
        help: "where fetched models are kept",
        get: |o| o.models.as_ref().map_or_else(|| "none".into(), |d| d.display().to_string()),
        set: |o, typed| match typed {
            "" => Err("a folder"),
            dir => {
                o.models = Some(dir.into());
                Ok(())
            }
        },
    },
    SettingSpec {
        table: "engine",
        name: "threads",
        help: "worker threads; auto is one for each physical core",
        get: |o| auto(o.engine.threads),
        set: |o, typed| count_or_auto(typed, 1024).map(|x| o.engine.threads = x),
    },
    SettingSpec {
        table: "engine",
        name: "pin_threads",
        help: "bind each compute thread to a core of its own; on Linux, ignored elsewhere",
        get: |o| o.engine.pin_threads.to_string(),
        set: |o, typed| yes_or_no(typed).map(|x| o.engine.pin_threads = x),
    },
    SettingSpec {
        table: "engine",
        name: "instruction_set",
        help: "what the kernels use: portable, avx2, avx-vnni or avx512-vnni; auto is the best there is",
        get: |o| o.engine.instruction_set.unwrap_or("auto").into(),
        set: |o, typed| {
            let known = INSTRUCTION_SETS.into_iter().find(|name| *name == typed);
            if known.is_none() && typed != "auto" {
                return Err("auto, portable, avx2, avx-vnni or avx512-vnni");
            }
            o.engine.instruction_set = known;
            Ok(())
        },
    },
    SettingSpec {
        table: "engine",
        name: "ctx",
        help: "longest prompt plus answer, in tokens; auto is the model's",
        get: |o| auto(o.engine.max_model_len),
        set: |o, typed| count_or_auto(typed, 1 << 30).map(|x| o.engine.max_model_len = x),
    },
    SettingSpec {
        table: "engine",
        name: "kv_memory",
        help: "memory for the KV cache, such as 512MiB or 2GiB; auto is one full context",
        get: |o| auto(o.engine.kv_cache_bytes),
        set: |o, typed| {
            o.engine.kv_cache_bytes = match typed {
                "auto" => None,
                size => Some(parse_bytes(size)?),
            };
            Ok(())
        },
    },
    SettingSpec {
        table: "engine",
        name: "memory_utilization",
        help: "most of the free memory that weights and KV cache may take together, 0.1 to 1",
        get: |o| o.engine.memory_utilization.to_string(),
        set: |o, typed| {
            let share = typed.parse().ok().filter(|x| (0.1..=1.0).contains(x));
            share.ok_or("a number from 0.1 to 1").map(|x| o.engine.memory_utilization = x)
        },
    },
    SettingSpec {
        table: "engine",
        name: "block_size",
        help: "tokens of one KV block, 1 to 256; auto is 16, or more for models with recurrent layers",
        get: |o| auto(o.engine.block_size),
        set: |o, typed| {
            let size = count_or_auto(typed, 256).map_err(|_| "a whole number from 1 to 256, or auto");
            size.map(|x| o.engine.block_size = x)
        },
    },
    SettingSpec {
        table: "engine",
        name: "kv_cache_dtype",
        help: "what keys and values are stored as: f16, bf16, f32, int8 or fp8",
        get: |o| o.engine.kv_cache_dtype.to_string(),
        set: |o, typed| typed.parse().map(|x| o.engine.kv_cache_dtype = x),
    },
    SettingSpec {
        table: "engine",
        name: "quantize",
        help: "what the model's matrices are encoded as while it is loaded: none, q4_k, q5_k, q6_k, q8_0, int8 or fp8",
        get: |o| o.engine.quantize.map_or("none", WeightFormat::name).to_owned(),
        set: |o, typed| {
            o.engine.quantize = match typed {
                "none" => None,
                format => Some(format.parse().map_err(|_| "none, or one of q4_k q5_k q6_k q8_0 int8 fp8")?),
            };
            Ok(())
        },
    },
    SettingSpec {
        table: "engine",
        name: "prefix_cache",
        help: "how the blocks of past prompts are found again: hash, radix or off",
        get: |o| o.engine.prefix_cache.to_string(),
        set: |o, typed| typed.parse().map(|x| o.engine.prefix_cache = x),
    },
    SettingSpec {
        table: "engine",
        name: "radix_eviction_policy",
        help: "which blocks the radix tree drops first",
        get: |o| o.engine.radix_eviction_policy.to_string(),
        set: |o, typed| typed.parse().map(|x| o.engine.radix_eviction_policy = x),
    },
    SettingSpec {
        table: "engine",
        name: "host_kv_memory",
        help: "host memory for blocks that the KV cache has no room for; 0 is none",
        get: |o| o.engine.host_kv_bytes.to_string(),
        set: |o, typed| {
            o.engine.host_kv_bytes = match typed {
                "0" | "none" => 0,
                size => parse_bytes(size).map_err(|_| "a size such as 2GiB, or 0 for none")?,
            };
            Ok(())
        },
    },
    SettingSpec {
        table: "engine",
        name: "kv_cache_dir",
        help: "folder where cached blocks outlive the program; none is no folder",
        get: |o| o.engine.kv_cache_dir.as_ref().map_or_else(|| "none".into(), |d| d.display().to_string()),
        set: |o, typed| match typed {
            "" => Err("a folder, or none"),
            "none" => {
                o.engine.kv_cache_dir = None;
                Ok(())
            }
            dir => {
                o.engine.kv_cache_dir = Some(dir.into());
                Ok(())
            }
        },
    },
    SettingSpec {
        table: "engine",
        name: "kv_cache_dir_size",
        help: "most bytes of that folder",
        get: |o| o.engine.kv_cache_dir_bytes.to_string(),
        set: |o, typed| {
            let size = parse_bytes(typed).map_err(|_| "a size above 0 such as 4GiB");
            size.map(|x| o.engine.kv_cache_dir_bytes = x)
        },
    },
    SettingSpec {
        table: "engine",
        name: "reasoning_parser",
        help: "the family whose markers tell thoughts from the answer; auto looks at the model",
        get: |o| o.engine.reasoning_parser.clone(),
        set: |o, typed| {
            let pair = typed.strip_prefix("tags:").and_then(|pair| pair.split_once(','));
            let tags =
                pair.is_some_and(|(open, close)| !open.is_empty() && !close.is_empty() && open != close);
            if !tags && !["auto", "none"].contains(&typed) && !REASONING_PARSERS.contains(&typed) {
                return Err("auto, none, tags:<a>,</a>, think, deepseek-r1, qwen3, glm, kimi, minimax, \
                     minimax-append-think, nemotron, step3, hunyuan, seed-oss, mistral, gemma, granite or gpt-oss");
            }
            o.engine.reasoning_parser = typed.into();
            Ok(())
        },
    },
    SettingSpec {
        table: "engine",
        name: "tool_call_parser",
        help: "the format of the model's tool calls; auto looks at the model",
        get: |o| o.engine.tool_call_parser.clone(),
        set: |o, typed| {
            if !["auto", "none"].contains(&typed) && !TOOL_CALL_PARSERS.contains(&typed) {
                return Err(
                    "auto, none, hermes, llama3-json, pythonic, mistral, qwen3-coder, seed-oss, deepseek-v3, \
                     deepseek-v3.1, glm, kimi, granite, gpt-oss, phi-4, functiongemma, gemma4 or minimax",
                );
            }
            o.engine.tool_call_parser = typed.into();
            Ok(())
        },
    },
    SettingSpec {
        table: "engine",
        name: "think",
        help: "whether the model thinks first: on, off or its template's levels; auto is as it does by itself",
        get: |o| match (&o.thinking.effort, o.thinking.enabled) {
            (Some(level), _) => level.clone(),
            (None, Some(on)) => if on { "on" } else { "off" }.into(),
            (None, None) => "auto".into(),
        },
        set: |o, typed| o.thinking.set(typed),
    },
    SettingSpec {
        table: "engine",
        name: "think_budget",
        help: "thoughts of so many tokens are closed by force; none is no limit",
        get: |o| o.thinking.budget.map_or_else(|| "none".into(), |n| n.to_string()),
        set: |o, typed| {
            o.thinking.budget = match typed {
                "none" => None,
                n => Some(n.parse().map_err(|_| "a whole number from 0, or none")?),
            };
            Ok(())
        },
    },
    SettingSpec {
        table: "engine",
        name: "fast_forward",
        help: "take tokens that a grammar forces without asking the model",
        get: |o| o.engine.fast_forward.to_string(),
        set: |o, typed| yes_or_no(typed).map(|x| o.engine.fast_forward = x),
    },
    SettingSpec {
        table: "chat",
        name: "system",
        help: "system prompt of a new chat; empty is none",
        get: |o| o.system.clone().unwrap_or_default(),
        set: |o, typed| {
            o.system = (!typed.is_empty()).then(|| typed.into());
            Ok(())
        },
    },
    SettingSpec {
        table: "ui",
        name: "theme",
        help: "a built-in theme or a file of the themes folder; auto is the last one, else dark or light",
        get: |o| o.theme.clone().unwrap_or_else(|| "auto".into()),
        set: |o, typed| match typed {
            "" => Err("a theme's name"),
            "auto" => {
                o.theme = None;
                Ok(())
            }
            name => {
                o.theme = Some(name.into());
                Ok(())
            }
        },
    },
    SettingSpec {
        table: "ui",
        name: "background",
        help: "what the screen is drawn on: paint is the theme's, terminal its own; auto is as the theme says",
        get: |o| o.background.name().into(),
        set: |o, typed| {
            let known = Background::NAMES.iter().find(|(name, _)| *name == typed);
            known.map(|(_, background)| o.background = *background).ok_or("auto, paint or terminal")
        },
    },
    SettingSpec {
        table: "ui",
        name: "ascii",
        help: "draw with ASCII only",
        get: |o| o.ascii.to_string(),
        set: |o, typed| yes_or_no(typed).map(|x| o.ascii = x),
    },
    SettingSpec {
        table: "ui",
        name: "save_sessions",
        help: "keep what is said on the screen, to go on with it",
        get: |o| o.save_sessions.to_string(),
        set: |o, typed| yes_or_no(typed).map(|x| o.save_sessions = x),
    },
    SettingSpec {
        table: "ui",
        name: "mouse",
        help: "the screen takes the mouse; with Shift it stays the terminal's",
        get: |o| o.mouse.to_string(),
        set: |o, typed| yes_or_no(typed).map(|x| o.mouse = x),
    },
    SettingSpec {
        table: "ui",
        name: "reduced_motion",
        help: "nothing flashes, and the screen changes at most five times a second while answers stream",
        get: |o| o.reduced_motion.to_string(),
        set: |o, typed| yes_or_no(typed).map(|x| o.reduced_motion = x),
    },
    SettingSpec {
        table: "ui",
        name: "notify",
        help: "how the end of an answer of 10 s or more is told when the window lost the focus: off, bell or desktop",
        get: |o| o.notify.name().into(),
        set: |o, typed| {
            let known = Notify::NAMES.iter().find(|(name, _)| *name == typed);
            known.map(|(_, notify)| o.notify = *notify).ok_or("off, bell or desktop")
        },
    },
    SettingSpec {
        table: "ui",
        name: "window_title",
        help: "the terminal's window is named after the chat and the model",
        get: |o| o.window_title.to_string(),
        set: |o, typed| yes_or_no(typed).map(|x| o.window_title = x),
    },
    SettingSpec {
        table: "tools",
        name: "tool_rounds",
        help: "answers with tool calls in a row, after which a chat stops",
        get: |o| o.tool_rounds.to_string(),
        set: |o, typed| {
            let rounds = typed.parse().ok().filter(|x| (1..=100).contains(x));
            rounds.map(|x| o.tool_rounds = x).ok_or("a whole number from 1 to 100")
        },
    },
    SettingSpec {
        table: "tools",
        name: "tools_file",
        help: "where a chat's tools are declared; auto is tools.toml beside config.toml",
        get: |o| o.tools_file.as_ref().map_or_else(|| "auto".into(), |f| f.display().to_string()),
        set: |o, typed| match typed {
            "" => Err("a file, or auto"),
            "auto" => {
                o.tools_file = None;
                Ok(())
            }
            file => {
                o.tools_file = Some(file.into());
                Ok(())
            }
        },
    },
];

/// Other names that people know a setting by, and its own.
pub const ALIASES: &[(&str, &str)] = &[
    ("max_batched_tokens", "max_num_batched_tokens"),
    ("max_seqs", "max_num_seqs"),
    ("gpu_memory_utilization", "memory_utilization"),
    ("swap_space", "host_kv_memory"),
];

/// A setting's own name, in this program's spelling.
pub fn own_name(name: &str) -> String {
    let name = name.replace('-', "_");
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| (*own).to_owned())
}

impl SettingSpec {
    pub fn find(name: &str) -> Option<&'static SettingSpec> {
        let name = own_name(name);
        SETTINGS.iter().find(|spec| spec.name == name)
    }
}

/// A number of bytes: `1048576`, `512MiB`, `2G` (binary, as `2GiB`), `1.5GB` (decimal).
pub fn parse_bytes(typed: &str) -> Result<usize, &'static str> {
    const EXPECTED: &str = "a size above 0 such as 512MiB or 2GiB, or auto";
    let typed = typed.trim();
    let digits = typed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(typed.len());
    let (number, unit) = typed.split_at(digits);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        _ => return Err(EXPECTED),
    };
    let bytes = number.parse::<f64>().map_err(|_| EXPECTED)? * scale;
    // Above 2^53 a float no longer counts single bytes, and no machine has that much.
    if (1.0..9e15).contains(&bytes) { Ok(bytes as usize) } else { Err(EXPECTED) }
}

fn auto(value: Option<usize>) -> String {
    value.map_or_else(|| "auto".into(), |x| x.to_string())
}

fn count_or_auto(typed: &str, max: usize) -> Result<Option<usize>, &'static str> {
    match typed {
        "auto" => Ok(None),
        _ => count(typed, max).map(Some).map_err(|_| "a whole number above 0, or auto"),
    }
}

fn count(typed: &str, max: usize) -> Result<usize, &'static str> {
    typed.parse().ok().filter(|x| (1..=max).contains(x)).ok_or("a whole number above 0")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Device;

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("2g"), Ok(2 << 30));
        assert_eq!(parse_bytes("1.5GB"), Ok(1_500_000_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for bad in ["", "MiB", "-1", "0", "1e400", "12 parsecs", "99999999G", "1.2.3M"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_setting_takes_back_what_it_shows() {
        let engine = EngineSettings {
            block_size: Some(256),
            memory_utilization: 0.35,
            host_kv_bytes: 2 << 30,
            quantize: Some(WeightFormat::Q5K),
            kv_cache_dir: Some("/kv".into()),
            pin_threads: true,
            instruction_set: Some("avx2"),
            ..EngineSettings::default()
        };
        let (models, system) = (Some("/m".into()), Some("Be brief.\nBe kind.".into()));
        let shown = Options { models, system, engine, ..Options::default() };
        for spec in SETTINGS {
            let mut again = Options::default();
            (spec.set)(&mut again, &(spec.get)(&shown)).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
            assert_eq!((spec.get)(&again), (spec.get)(&shown), "{}", spec.name);
        }
    }

    #[test]
    fn what_no_engine_could_use_is_refused() {
        for (name, bad) in [
            ("block_size", "0"),
            ("block_size", "257"),
            ("memory_utilization", "0.05"),
            ("gpu_memory_utilization", "1.5"),
            ("memory_utilization", "NaN"),
            ("kv_cache_dtype", "int4"),
            ("quantize", "q3_k"),
            ("prefix_cache", "tree"),
            ("radix_eviction_policy", "oldest"),
            ("swap_space", "much"),
            ("pin_threads", "some"),
            ("instruction_set", "avx3"),
            ("kv_cache_dir_size", "0"),
        ] {
            let spec = SettingSpec::find(name).unwrap();
            assert!((spec.set)(&mut Options::default(), bad).is_err(), "{name} took {bad}");
        }
    }

    #[test]
    fn a_device_is_named_with_or_without_its_number() {
        let device = SettingSpec::find("device").unwrap();
        let cases = [
            ("auto", Device::Auto, "auto"),
            ("cpu", Device::Cpu, "cpu"),
            ("cuda", Device::Cuda(0), "cuda"),
            ("cuda:0", Device::Cuda(0), "cuda"),
            ("cuda:3", Device::Cuda(3), "cuda:3"),
        ];
        for (typed, right, shown) in cases {
            let mut options = Options::default();
            (device.set)(&mut options, typed).unwrap();
            assert_eq!((options.engine.device, (device.get)(&options)), (right, shown.to_owned()));
        }
        for bad in ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda 1", "CUDA", "cuda:99999999999999999999"] {
            let refused = (device.set)(&mut Options::default(), bad);
            assert_eq!(refused, Err("auto, cpu, cuda or cuda:N"), "{bad}");
        }
    }
}
