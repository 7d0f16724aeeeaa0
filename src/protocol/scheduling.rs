//! How the scheduler shares a step among sequences. Names are vLLM's, then SGLang's.

use super::named::named;
use serde::{Deserialize, Serialize};

named! {
    /// Whom a step serves first, and who gives way when blocks run out.
    SchedulingPolicy {
        /// First come, first served; the youngest gives way.
        #[default]
        Fcfs = "fcfs",
        /// Lowest `priority` first, then arrival; the highest gives way.
        Priority = "priority",
    }
}

named! {
    /// In which order waiting requests are looked at (SGLang's `schedule_policy`).
    SchedulePolicy {
        #[default]
        Fcfs = "fcfs",
        /// Longest prefix match first.
        Lpm = "lpm",
        /// Depth first through the tree of shared prefixes, heaviest subtree first.
        DfsWeight = "dfs-weight",
        /// Longest `max_tokens` first.
        Lof = "lof",
        Random = "random",
        /// Highest response ratio next: 1 + waited / uncached tokens.
        Hrrn = "hrrn",
        ShortestPrefillFirst = "shortest-prefill-first",
        /// Running sequences take turns of `time_slice_ms` in `max_num_seqs` places.
        RoundRobin = "round-robin",
    }
}

named! {
    /// What becomes of a sequence that must give its blocks back.
    PreemptionMode {
        /// Its blocks are dropped, its tokens are computed again (vLLM V1).
        #[default]
        Recompute = "recompute",
        /// Its blocks go to host memory and come back.
        Swap = "swap",
        /// SGLang: admission bets on how long answers get (`schedule_conservativeness`); a lost bet
        /// takes back the sequence with the shortest answer, which is computed again.
        Retract = "retract",
    }
}

named! {
    /// When a finished sequence's place is filled.
    Batching {
        /// At the next step.
        #[default]
        Continuous = "continuous",
        /// When the whole batch has finished: for comparison.
        Static = "static",
    }
}

/// Everything about scheduling that may change while the engine runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulerSettings {
    /// Token budget of one step.
    pub max_num_batched_tokens: usize,
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Most sequences admitted at a time; `None` is `max_num_seqs`.
    pub max_num_active_seqs: Option<usize>,
    /// Split prompts that do not fit the budget.
    pub enable_chunked_prefill: bool,
    /// Most tokens of one prompt in one step while there are others; 0 is no limit.
    pub long_prefill_token_threshold: usize,
    /// Never less than an equal share of the budget.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Admit a sequence only when all of it fits, not just its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Share of the blocks kept free when a sequence is admitted beside running ones.
    pub watermark: f32,
    /// While something decodes, prompts run only every so many steps; unless some were left waiting
    /// when they last did.
    pub prefill_schedule_interval: u32,
    pub scheduling_policy: SchedulingPolicy,
    pub schedule_policy: SchedulePolicy,
    /// One turn of round robin, in milliseconds of step time.
    pub time_slice_ms: f32,
    pub preemption_mode: PreemptionMode,
    /// Of `retract`: 1 expects answers as long as usual, more expects longer ones.
    pub schedule_conservativeness: f32,
    pub batching: Batching,
    /// Plan step N+1 while step N runs.
    pub async_scheduling: bool,
    /// Decode so many tokens for each plan.
    pub num_scheduler_steps: u32,
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            max_num_batched_tokens: 512,
            max_num_seqs: 32,
            max_num_active_seqs: None,
            enable_chunked_prefill: true,
            long_prefill_token_threshold: 0,
            long_prefill_token_threshold_adaptive: false,
            scheduler_reserve_full_isl: true,
            watermark: 0.0,
            prefill_schedule_interval: 1,
            scheduling_policy: SchedulingPolicy::Fcfs,
            schedule_policy: SchedulePolicy::Fcfs,
            time_slice_ms: 10.0,
            preemption_mode: PreemptionMode::Recompute,
            schedule_conservativeness: 1.0,
            batching: Batching::Continuous,
            async_scheduling: false,
            num_scheduler_steps: 1,
        }
    }
}

impl SchedulerSettings {
    /// Every value as it could have been typed; otherwise which cannot be, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let mut typed = Self::default();
        for spec in SCHEDULING {
            let value = (spec.get)(self);
            (spec.set)(&mut typed, &value)
                .map_err(|right| format!("{} must be {right}, not {value}", spec.name))?;
        }
        Ok(())
    }
}

/// One of [`SchedulerSettings`]: what `/set`, `--set`, the config file and the batch panel all know of
/// it. A new one is one row of [`SCHEDULING`].
pub struct SchedulingSpec {
    pub name: &'static str,
    pub help: &'static str,
    /// Values that are names; empty for numbers.
    pub choices: &'static [&'static str],
    pub get: fn(&SchedulerSettings) -> String,
    /// Sets it from what was typed, or says what would be right.
    pub set: fn(&mut SchedulerSettings, &str) -> Result<(), &'static str>,
}

impl SchedulingSpec {
    pub fn find(name: &str) -> Option<&'static SchedulingSpec> {
        let name = name.replace('-', "_");
        SCHEDULING.iter().find(|spec| spec.name == name)
    }
}

macro_rules! spec {
    ($field:ident, $help:expr, $read:expr) => {
        spec!($field, $help, &[], |x: &_| ToString::to_string(x), $read)
    };
    ($field:ident, $help:expr, $choices:expr, $show:expr, $read:expr) => {
        SchedulingSpec {
            name: stringify!($field),
            help: $help,
            choices: $choices,
            get: |s| $show(&s.$field),
            set: |s, typed| $read(typed.trim()).map(|x| s.$field = x),
        }
    };
}

pub const SCHEDULING: &[SchedulingSpec] = &[
    spec!(max_num_batched_tokens, "token budget of one step", |t| whole(t, 1, 1 << 20)),
    spec!(max_num_seqs, "most sequences in one step", |t| whole(t, 1, 4096)),
    spec!(
        max_num_active_seqs,
        "most sequences admitted at a time; auto is max_num_seqs",
        &["auto"],
        |x: &Option<usize>| x.map_or("auto".into(), |x| x.to_string()),
        |t: &str| match t {
            "auto" => Ok(None),
            _ => whole(t, 1, 1 << 20).map(Some).map_err(|_| "a whole number above 0, or auto"),
        }
    ),
    spec!(enable_chunked_prefill, "split prompts that do not fit the budget", YES_NO, show, yes_or_no),
    spec!(
        long_prefill_token_threshold,
        "most tokens of one prompt in a step while there are others; 0 is off",
        |t| whole(t, 0, 1 << 20)
    ),
    spec!(
        long_prefill_token_threshold_adaptive,
        "that threshold is at least an equal share of the budget",
        YES_NO,
        show,
        yes_or_no
    ),
    spec!(
        scheduler_reserve_full_isl,
        "admit a sequence only when all of it fits, not just its first chunk",
        YES_NO,
        show,
        yes_or_no
    ),
    spec!(watermark, "share of the blocks kept free at admission", |t| real(t, 0.0, 0.9)),
    spec!(prefill_schedule_interval, "while something decodes, prompts run only every so many steps", |t| {
        whole(t, 1, 1000).map(|x| x as u32)
    }),
    spec!(
        scheduling_policy,
        "whom a step serves first and who gives way",
        SchedulingPolicy::NAMES,
        show,
        str::parse
    ),
    spec!(
        schedule_policy,
        "the order in which waiting requests are looked at",
        SchedulePolicy::NAMES,
        show,
        str::parse
    ),
    spec!(time_slice_ms, "one turn of round robin", |t| real(t, 0.01, 60_000.0)),
    spec!(
        preemption_mode,
        "what becomes of a sequence that gives its blocks back",
        PreemptionMode::NAMES,
        show,
        str::parse
    ),
    spec!(schedule_conservativeness, "of retract: more than 1 expects longer answers", |t| real(
        t, 0.01, 100.0
    )),
    spec!(batching, "when a finished place is filled", Batching::NAMES, show, str::parse),
    spec!(async_scheduling, "plan step N+1 while step N runs", YES_NO, show, yes_or_no),
    spec!(num_scheduler_steps, "decode so many tokens for each plan", |t| whole(t, 1, 64).map(|x| x as u32)),
];

const YES_NO: &[&str] = &["true", "false"];

fn show(x: &impl ToString) -> String {
    x.to_string()
}

fn whole(typed: &str, min: usize, max: usize) -> Result<usize, &'static str> {
    let wrong = if min == 0 { "a whole number" } else { "a whole number above 0" };
    typed.parse().ok().filter(|x| (min..=max).contains(x)).ok_or(wrong)
}

fn real(typed: &str, min: f32, max: f32) -> Result<f32, &'static str> {
    typed.parse().ok().filter(|x| (min..=max).contains(x)).ok_or("a number in range")
}

/// Reads a switch as typed, or says what would be right.
pub fn yes_or_no(typed: &str) -> Result<bool, &'static str> {
    match typed.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("true or false"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_row_takes_back_what_it_shows_and_refuses_nonsense() {
        let shown = SchedulerSettings { watermark: 0.25, batching: Batching::Static, ..Default::default() };
        for spec in SCHEDULING {
            let mut again = SchedulerSettings::default();
            (spec.set)(&mut again, &(spec.get)(&shown)).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
            assert_eq!((spec.get)(&again), (spec.get)(&shown), "{}", spec.name);
            for bad in ["", "-1", "1e99", "nonsense"] {
                assert!((spec.set)(&mut again, bad).is_err(), "{} took {bad:?}", spec.name);
            }
            for choice in spec.choices {
                (spec.set)(&mut again, choice).unwrap();
            }
        }
        assert_eq!(SchedulingSpec::find("scheduling-policy").unwrap().name, "scheduling_policy");
    }
}
