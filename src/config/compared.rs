use super::options::own_name;
use super::{Given, Origin};
use crate::protocol::{SCHEDULING, SchedulerSettings, SchedulingSpec};

/// What `bench speed --compare` is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    Setting(Compared),
    /// Another program, as a command line for `sh`.
    Peer(String),
}

impl Comparison {
    /// A setting is a word, or a name and a word around a `=`; all else is a command.
    pub fn parse(typed: &str) -> Result<Self, String> {
        let is_word = |text: &str| !text.trim().contains([' ', '\t', '\n', '/', '\'', '"']);
        let is_setting = match typed.split_once('=') {
            Some((name, value)) => is_word(name) && is_word(value),
            None => is_word(typed),
        };
        match is_setting {
            true => Compared::parse(typed).map(Comparison::Setting),
            false => Ok(Comparison::Peer(typed.to_owned())),
        }
    }
}

/// The one setting that a comparison changes. Only the scheduler's may change while an
/// engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    name: &'static str,
    value: String,
}

impl Compared {
    /// `static`, `async`, or NAME=VALUE.
    pub fn parse(typed: &str) -> Result<Self, String> {
        let assigned = match typed {
            "static" => "batching=static",
            "async" => "async_scheduling=true",
            _ if !typed.contains('=') => {
                return Err(
                    "static, async, NAME=VALUE (as num_scheduler_steps=4) or a command line is wanted; \
                            a command without arguments needs a / before its name"
                        .into(),
                );
            }
            other => other,
        };
        Given::assignment(assigned, Origin::Flag)?;
        let (name, value) = assigned.split_once('=').unwrap_or((assigned, ""));
        let Some(spec) = SchedulingSpec::find(&own_name(name.trim())) else {
            let all: Vec<_> = SCHEDULING.iter().map(|spec| spec.name).collect();
            return Err(format!(
                "{} is fixed once the engine runs; what can change is {}",
                name.trim(),
                all.join(", ")
            ));
        };
        Ok(Self { name: spec.name, value: value.trim().to_owned() })
    }

    /// The settings with the one changed, and both values by name: `batching=continuous`,
    /// `batching=static`.
    pub fn apply(&self, base: &SchedulerSettings) -> Result<(SchedulerSettings, [String; 2]), String> {
        let spec = SchedulingSpec::find(self.name).expect("it was found when it was parsed");
        let mut changed = base.clone();
        (spec.set)(&mut changed, &self.value)?;
        let names = [base, &changed].map(|settings| format!("{}={}", spec.name, (spec.get)(settings)));
        match changed == *base {
            true => Err(format!("{} already: there is nothing to compare it with", names[0])),
            false => Ok((changed, names)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::Batching;

    #[test]
    fn the_short_names_are_settings_too() {
        let base = SchedulerSettings::default();
        let (changed, names) = Compared::parse("static").unwrap().apply(&base).unwrap();
        assert_eq!(changed, SchedulerSettings { batching: Batching::Static, ..base.clone() });
        assert_eq!(names, ["batching=continuous", "batching=static"]);
        let (changed, _) = Compared::parse("async").unwrap().apply(&base).unwrap();
        assert!(changed.async_scheduling);
        let (changed, names) = Compared::parse("max-seqs = 4").unwrap().apply(&base).unwrap();
        assert_eq!((changed.max_num_seqs, names[1].as_str()), (4, "max_num_seqs=4"));
    }

    #[test]
    fn what_is_no_setting_is_a_command() {
        for typed in
            ["llama-bench -m {model} -o json", "./bench", "FLAGS=1 ./bench", "A=b bench -x", "bench --n=4 -x"]
        {
            assert_eq!(Comparison::parse(typed), Ok(Comparison::Peer(typed.into())));
        }
        for typed in ["static", "max-seqs = 4"] {
            assert_eq!(Comparison::parse(typed), Compared::parse(typed).map(Comparison::Setting));
        }
        assert!(Comparison::parse("statik").unwrap_err().contains("a command line"));
    }

    #[test]
    fn what_cannot_be_compared_says_why() {
        for (typed, wanted) in [
            ("statik", "static, async, NAME=VALUE"),
            ("batchin=static", "did you mean \"batching\"?"),
            ("batching=dynamic", "continuous static"),
            ("block_size=32", "fixed once the engine runs"),
            ("temperature=1", "sampling parameter"),
        ] {
            let said = Compared::parse(typed).unwrap_err();
            assert!(said.contains(wanted), "{typed}: {said}");
        }
        let base = SchedulerSettings { batching: Batching::Static, ..SchedulerSettings::default() };
        let said = Compared::parse("static").unwrap().apply(&base).unwrap_err();
        assert_eq!(said, "batching=static already: there is nothing to compare it with");
    }
}
