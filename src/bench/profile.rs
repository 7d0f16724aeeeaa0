use super::report::heading_of;
use super::steps::Timed;
use serde::Serialize;
use std::io::{self, Write};

/// Where the time of a test's steps went, operations and all between them: the shares are 1 together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    pub steps: usize,
    /// From the start of one step to the start of the next.
    pub us_per_step: f64,
    /// Of matrices, of attention over the past, and of all else.
    pub matmul_share: f64,
    pub attention_share: f64,
    pub other_share: f64,
    /// Operations by their time, then what is no operation in the order of a step.
    pub rows: Vec<ProfileRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileRow {
    pub name: String,
    /// `None`: no operation of the device, but time outside all of them.
    pub calls_per_step: Option<f64>,
    pub us_per_step: f64,
    pub share: f64,
}

const MATMUL: [&str; 3] = ["project", "gated", "head"];
const ATTENTION: [&str; 1] = ["attend"];
/// Operations of a step's second half; the others are its forward pass.
const OF_SAMPLING: [&str; 2] = ["head", "download"];

impl Profile {
    /// Of all repetitions together; `None` where the engine does not time its operations.
    pub fn of(runs: &[Timed]) -> Option<Self> {
        let records = || runs.iter().flat_map(Timed::steps);
        let mut operations: Vec<(&str, u32, f64)> = Vec::new();
        for time in records().flat_map(|record| &record.operations) {
            match operations.iter_mut().find(|(name, ..)| *name == time.name) {
                Some((_, calls, us)) => (*calls, *us) = (*calls + time.calls, *us + time.us),
                None => operations.push((&time.name, time.calls, time.us)),
            }
        }
        if operations.is_empty() {
            return None;
        }
        operations.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));

        let steps = records().count();
        let total = runs.iter().map(|run| run.total_ms() * 1e3).sum::<f64>();
        let row = |name: &str, calls: Option<u32>, us: f64| ProfileRow {
            name: name.to_owned(),
            calls_per_step: calls.map(|calls| f64::from(calls) / steps as f64),
            us_per_step: us / steps as f64,
            share: us / total,
        };
        let of = |names: &[&str]| -> f64 {
            operations.iter().filter(|(name, ..)| names.contains(name)).map(|(_, _, us)| us).sum()
        };
        let all: f64 = operations.iter().map(|(_, _, us)| us).sum();
        let (matmul, attention, of_sampling) = (of(&MATMUL), of(&ATTENTION), of(&OF_SAMPLING));
        let phase = |ms: fn(&crate::protocol::Phases) -> f64| -> f64 {
            records().map(|record| ms(&record.phases) * 1e3).sum()
        };
        let outside = [
            ("scheduling", phase(|p| p.schedule_ms)),
            ("rest of the forward pass", phase(|p| p.forward_ms) - (all - of_sampling)),
            ("sampling", phase(|p| p.sample_ms) - of_sampling),
            ("output", phase(|p| p.output_ms)),
            ("between steps", total - phase(|p| p.total_ms())),
        ];
        let inside = operations.iter().map(|(name, calls, us)| row(name, Some(*calls), *us));
        Some(Self {
            steps,
            us_per_step: total / steps as f64,
            matmul_share: matmul / total,
            attention_share: attention / total,
            other_share: (total - matmul - attention) / total,
            rows: inside.chain(outside.into_iter().map(|(name, us)| row(name, None, us))).collect(),
        })
    }

    pub(super) fn print(&self, test: &str, out: &mut impl Write) -> io::Result<()> {
        let Self { steps, us_per_step, matmul_share, attention_share, other_share, rows } = self;
        let s = if *steps == 1 { "" } else { "s" };
        writeln!(out, "\n{test}: {steps} step{s} of {us_per_step:.0} us")?;
        heading_of(out, &["operation", "calls a step", "us a step", "share"], &[24, 12, 11, 7])?;
        for ProfileRow { name, calls_per_step, us_per_step, share } in rows {
            let calls = calls_per_step.map_or(String::new(), |calls| format!("{calls:.1}"));
            let share = format!("{:.1} %", share * 100.0);
            writeln!(out, "| {name:<24} | {calls:>12} | {us_per_step:>11.1} | {share:>7} |")?;
        }
        let [matmul, attention, other] =
            [matmul_share, attention_share, other_share].map(|share| share * 100.0);
        writeln!(out, "matrices {matmul:.1} %, attention {attention:.1} %, all else {other:.1} %")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::steps::tests::record;
    use super::*;
    use crate::protocol::{Counters, OperationTime, RowKind, StepRecord};
    use std::sync::Arc;

    fn run(steps: std::ops::Range<u64>) -> Timed {
        let time = |name: &'static str, calls, us| OperationTime { name: name.into(), calls, us };
        let timed = |step| {
            let operations = vec![
                time("attend", 30, 50.0),
                time("project", 60, 400.0),
                time("head", 1, 150.0),
                time("embed", 1, 2.0),
            ];
            Arc::new(StepRecord { operations, ..(*record(step, RowKind::Decode)).clone() })
        };
        Timed::prefill(Counters::default(), steps.map(timed).collect()).unwrap()
    }

    #[test]
    fn a_profile_adds_up_to_the_whole_time() {
        let profile = Profile::of(&[run(3..7), run(20..24)]).unwrap();
        assert_eq!(profile.steps, 8);
        // Four steps of a millisecond, with three gaps as long between them.
        assert!((profile.us_per_step - 1750.0).abs() < 1e-6);
        let sum = |of: fn(&ProfileRow) -> f64| profile.rows.iter().map(of).sum::<f64>();
        assert!((sum(|row| row.share) - 1.0).abs() < 1e-9);
        assert!((sum(|row| row.us_per_step) - 1750.0).abs() < 1e-6);
        let us = |name: &str| profile.rows.iter().find(|row| row.name == name).unwrap().us_per_step;
        let close = |name, wanted: f64| assert!((us(name) - wanted).abs() < 1e-6, "{name}: {}", us(name));
        close("project", 400.0);
        close("scheduling", 100.0);
        close("rest of the forward pass", 600.0 - 452.0);
        close("sampling", 200.0 - 150.0);
        close("between steps", 750.0);
        assert_eq!((profile.rows[0].name.as_str(), profile.rows[0].calls_per_step), ("project", Some(60.0)));
        assert!((profile.matmul_share - 550.0 / 1750.0).abs() < 1e-9);
        let shares = profile.matmul_share + profile.attention_share + profile.other_share;
        assert!((shares - 1.0).abs() < 1e-9);
        assert_eq!(
            Profile::of(&[Timed::prefill(Counters::default(), vec![record(1, RowKind::Prefill)]).unwrap()]),
            None
        );
    }

    #[test]
    fn its_table_is_narrow() {
        let mut out = Vec::new();
        Profile::of(&[run(3..7)]).unwrap().print("tg128", &mut out).unwrap();
        let table = String::from_utf8(out).unwrap();
        assert!(table.contains("tg128: 4 steps of 1750 us"), "{table}");
        assert!(
            table.contains("| project                  |         60.0 |       400.0 |  22.9 % |"),
            "{table}"
        );
        assert!(table.ends_with("matrices 31.4 %, attention 2.9 %, all else 65.7 %\n"), "{table}");
        assert!(table.lines().all(|line| line.len() <= 80));
    }
}
