use super::options::{ALIASES, own_name};
use super::{Options, SETTINGS, SettingSpec};
use crate::base::nearest;
use crate::protocol::{
    PARAMS, ParamKind, ParamSpec, ParamValue, SCHEDULING, SamplingParams, SchedulerSettings, SchedulingSpec,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Who said so, weakest first: a later one wins over an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    BuiltIn,
    /// The model's own generation settings.
    Model,
    File {
        path: PathBuf,
        line: usize,
    },
    /// A table of the config file for models of a name.
    ModelTable {
        path: PathBuf,
        line: usize,
    },
    Environment(String),
    /// By its name.
    Preset(String),
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::BuiltIn => f.write_str("built-in"),
            Origin::Model => f.write_str("model"),
            Origin::File { path, line } | Origin::ModelTable { path, line } => {
                write!(f, "{}:{line}", path.display())
            }
            Origin::Environment(name) => f.write_str(name),
            Origin::Preset(name) => write!(f, "preset {name}"),
            Origin::Flag => f.write_str("flag"),
        }
    }
}

/// One value from one source, checked.
#[derive(Clone)]
pub struct Given {
    pub origin: Origin,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Param(&'static ParamSpec, ParamValue),
    Setting(&'static SettingSpec, String),
    Scheduling(&'static SchedulingSpec, String),
}

impl Given {
    /// Checks `text` against the range of the parameter or setting `name`; the error says what would
    /// be right.
    pub fn new(name: &str, text: &str, origin: Origin) -> Result<Self, String> {
        let value = if let Some(spec) = ParamSpec::find(name) {
            let mut trial = SamplingParams::default();
            spec.parse(&mut trial, text).map_err(|e| e.to_string())?;
            trial.check().map_err(|e| e.to_string())?;
            Value::Param(spec, (spec.get)(&trial))
        } else if let Some(spec) = SettingSpec::find(name) {
            (spec.set)(&mut Options::default(), text)
                .map_err(|expected| format!("{name} must be {expected}, not {text:?}"))?;
            Value::Setting(spec, text.into())
        } else if let Some(spec) = SchedulingSpec::find(&own_name(name)) {
            (spec.set)(&mut SchedulerSettings::default(), text)
                .map_err(|expected| format!("{name} must be {expected}, not {text:?}"))?;
            Value::Scheduling(spec, text.into())
        } else {
            return Err(format!("unknown setting {name:?}"));
        };
        Ok(Self { origin, value })
    }

    /// `NAME=VALUE` of an engine setting: any of the scheduler's, or of the config file's `[engine]`.
    pub fn assignment(typed: &str, origin: Origin) -> Result<Self, String> {
        let (name, value) = typed.split_once('=').ok_or("NAME=VALUE is wanted, as max_num_seqs=8")?;
        let (name, value) = (name.trim(), value.trim());
        let of_engine = SettingSpec::find(name).is_some_and(|spec| spec.table == "engine");
        if of_engine || SchedulingSpec::find(&own_name(name)).is_some() {
            return Self::new(name, value, origin);
        }
        let own = SETTINGS.iter().filter(|s| s.table == "engine").map(|s| s.name);
        let known =
            SCHEDULING.iter().map(|s| s.name).chain(own).chain(ALIASES.iter().map(|(alias, _)| *alias));
        Err(match nearest(&name.replace('-', "_"), known) {
            Some(near) => format!("unknown setting {name:?}; did you mean {near:?}?"),
            None if ParamSpec::find(name).is_some() => {
                format!("{name:?} is a sampling parameter: it has a flag of its own")
            }
            None => {
                let all: Vec<_> = SCHEDULING.iter().map(|s| s.name).collect();
                format!("unknown setting {name:?}; the scheduler's are {}", all.join(", "))
            }
        })
    }

    /// The items of a list parameter such as `stop`, each as it is.
    ///
    /// # Errors
    /// As [`new`](Self::new); and where `name` is no list.
    pub fn list(name: &str, items: Vec<String>, origin: Origin) -> Result<Self, String> {
        let spec = ParamSpec::find(name).filter(|spec| spec.kind == ParamKind::List);
        let spec = spec.ok_or_else(|| format!("{name} takes one value, not a list"))?;
        let mut trial = SamplingParams::default();
        spec.set(&mut trial, ParamValue::List(items)).map_err(|e| e.to_string())?;
        Ok(Self { origin, value: Value::Param(spec, (spec.get)(&trial)) })
    }

    /// The value as text, as it could be given.
    pub fn text(&self) -> String {
        match &self.value {
            Value::Param(_, value) => value.to_string(),
            Value::Setting(_, text) | Value::Scheduling(_, text) => text.clone(),
        }
    }

    pub fn name(&self) -> &'static str {
        match &self.value {
            Value::Param(spec, _) => spec.name,
            Value::Setting(spec, _) => spec.name,
            Value::Scheduling(spec, _) => spec.name,
        }
    }
}

/// Every source laid over the one below it, and for each value where it came from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub sampling: SamplingParams,
    pub options: Options,
    origins: BTreeMap<&'static str, Origin>,
}

/// A line of `--dry-run`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SettingRow {
    pub name: &'static str,
    pub value: String,
    pub origin: String,
}

impl Settings {
    /// Of two values for one name the stronger origin wins, whatever their order here; of two flags
    /// the later.
    pub fn resolve(given: impl IntoIterator<Item = Given>) -> Self {
        let mut given: Vec<Given> = given.into_iter().collect();
        given.sort_by_key(|one| strength(&one.origin));
        let mut settings = Self::default();
        for one in given {
            settings.origins.insert(one.name(), one.origin.clone());
            settings.apply(one.value);
        }
        settings
    }

    fn apply(&mut self, value: Value) {
        match value {
            Value::Param(spec, value) => {
                spec.set(&mut self.sampling, value).expect("Given::new set the same value")
            }
            Value::Setting(spec, text) => {
                (spec.set)(&mut self.options, &text).expect("Given::new parsed the same text")
            }
            Value::Scheduling(spec, text) => (spec.set)(&mut self.options.engine.scheduler, &text)
                .expect("Given::new parsed the same text"),
        }
    }

    pub fn origin(&self, name: &str) -> &Origin {
        self.origins.get(name).unwrap_or(&Origin::BuiltIn)
    }

    /// Every value with its origin, in the order of the tables.
    pub fn rows(&self) -> Vec<SettingRow> {
        let params = PARAMS.iter().map(|spec| (spec.name, (spec.get)(&self.sampling).to_string()));
        let options = SETTINGS.iter().map(|spec| (spec.name, (spec.get)(&self.options)));
        let scheduler = &self.options.engine.scheduler;
        let scheduling = SCHEDULING.iter().map(|spec| (spec.name, (spec.get)(scheduler)));
        params
            .chain(options)
            .chain(scheduling)
            .map(|(name, value)| SettingRow { name, value, origin: self.origin(name).to_string() })
            .collect()
    }
}

fn strength(origin: &Origin) -> u8 {
    match origin {
        Origin::BuiltIn => 0,
        Origin::Model => 1,
        Origin::File { .. } => 2,
        Origin::ModelTable { .. } => 3,
        Origin::Environment(_) => 4,
        Origin::Preset(_) => 5,
        Origin::Flag => 6,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(line: usize) -> Origin {
        Origin::File { path: "config.toml".into(), line }
    }

    #[test]
    fn the_stronger_source_wins_and_is_remembered() {
        let settings = Settings::resolve([
            Given::new("temp", "0.2", Origin::Flag).unwrap(),
            Given::new("temperature", "0.9", Origin::Model).unwrap(),
            Given::new("top_k", "7", Origin::Model).unwrap(),
            Given::new("top_k", "9", file(3)).unwrap(),
            Given::new("threads", "2", Origin::Environment("GLASSBOX_THREADS".into())).unwrap(),
            Given::new("threads", "8", file(4)).unwrap(),
        ]);
        assert_eq!(settings.sampling.temperature, 0.2);
        assert_eq!(settings.origin("temperature"), &Origin::Flag);
        assert_eq!(settings.sampling.top_k, 9);
        assert_eq!(settings.origin("top_k").to_string(), "config.toml:3");
        assert_eq!(settings.options.engine.threads, Some(2));
        assert_eq!(settings.origin("threads").to_string(), "GLASSBOX_THREADS");
        assert_eq!(settings.origin("min_p"), &Origin::BuiltIn);
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_name() {
        for (name, text) in [("temp", "-1"), ("top_p", "2"), ("top-p", "0"), ("threads", "0"), ("ctx", "x")] {
            let Err(message) = Given::new(name, text, Origin::Flag) else { panic!("{name} {text} passed") };
            assert!(message.contains("must be") && message.contains(text), "{message}");
        }
        assert!(Given::new("colour", "red", Origin::Flag).is_err());
        assert!(Given::list("stop", vec![String::new()], Origin::Flag).is_err());
        assert!(Given::list("top_k", vec!["3".into()], Origin::Flag).is_err());
    }

    #[test]
    fn every_scheduler_setting_can_be_assigned_and_old_names_still_work() {
        for spec in SCHEDULING {
            let value = (spec.get)(&SchedulerSettings::default());
            let given = Given::assignment(&format!("{}={value}", spec.name), Origin::Flag).unwrap();
            assert_eq!(Settings::resolve([given]).origin(spec.name), &Origin::Flag);
        }
        let settings = Settings::resolve(
            ["max-batched-tokens=64", "max_seqs = 3", "gpu_memory_utilization=0.5", "swap-space=1GiB"]
                .map(|typed| Given::assignment(typed, Origin::Flag).unwrap()),
        );
        let engine = &settings.options.engine;
        assert_eq!((engine.scheduler.max_num_batched_tokens, engine.scheduler.max_num_seqs), (64, 3));
        assert_eq!((engine.memory_utilization, engine.host_kv_bytes), (0.5, 1 << 30));
        assert_eq!(settings.origin("max_num_seqs"), &Origin::Flag);
    }

    #[test]
    fn a_wrong_assignment_says_what_would_be_right() {
        for (typed, wanted) in [
            ("max_num_seq=3", "did you mean \"max_num_seqs\"?"),
            ("max_num_seqs", "NAME=VALUE"),
            ("max_num_seqs=0", "max_num_seqs must be a whole number above 0, not \"0\""),
            ("preemption_mode=kill", "one of recompute swap retract"),
            ("temperature=1", "a flag of its own"),
            ("theme=dark", "the scheduler's are max_num_batched_tokens"),
        ] {
            let Err(said) = Given::assignment(typed, Origin::Flag) else { panic!("{typed} passed") };
            assert!(said.contains(wanted), "{typed}: {said}");
        }
    }

    #[test]
    fn every_row_says_where_its_value_is_from() {
        let rows = Settings::resolve([Given::list("stop", vec!["\n".into()], file(1)).unwrap()]).rows();
        assert_eq!(rows.len(), PARAMS.len() + SETTINGS.len() + SCHEDULING.len());
        let stop = rows.iter().find(|row| row.name == "stop").unwrap();
        assert_eq!((stop.value.as_str(), stop.origin.as_str()), ("\"\\n\"", "config.toml:1"));
    }
}
