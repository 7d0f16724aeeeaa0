use super::limits::{Limits, Shares};
use super::report::{heading_of, line_of};
use super::steps::Timed;
use crate::protocol::OperationTime;
use serde::Serialize;
use std::io::{self, Write};

/// Where the time of a test's steps went, operations and all between them: the shares are 1 together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    pub steps: usize,
    /// From the start of one step to the start of the next.
    pub us_per_step: f64,
    /// Its kernels ran beside the program, which waited for them in a part of the step that is not told.
    #[serde(skip)]
    pub of_kernels: bool,
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
    /// While it ran, where bytes and operations are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tflop_per_s: Option<f64>,
    /// Of the device's limits, where those were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
}

/// Beginnings of names: of operations, then of a GPU's kernels.
const MATMUL: [&str; 5] = ["project", "gated", "head", "gemv_", "gemm_"];
const ATTENTION: [&str; 3] = ["attend", "decode_", "prefill_"];
const KERNELS: [&str; 2] = ["gemv_", "gemm_"];
/// Operations of a step's second half; the others are its forward pass.
const OF_SAMPLING: [&str; 2] = ["head", "download"];

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|beginning| name.starts_with(beginning))
}

impl Profile {
    /// Of all repetitions together; `None` where the engine does not time its operations.
    pub fn of(runs: &[Timed], limits: Option<&Limits>) -> Option<Self> {
        let records = || runs.iter().flat_map(Timed::steps);
        let mut operations: Vec<OperationTime> = Vec::new();
        for time in records().flat_map(|record| &record.operations) {
            match operations.iter_mut().find(|known| known.name == time.name) {
                Some(known) => {
                    (known.calls, known.us) = (known.calls + time.calls, known.us + time.us);
                    (known.bytes, known.flops) = (known.bytes + time.bytes, known.flops + time.flops);
                }
                None => operations.push(time.clone()),
            }
        }
        if operations.is_empty() {
            return None;
        }
        operations.sort_by(|a, b| b.us.total_cmp(&a.us));

        let steps = records().count();
        let total = runs.iter().map(|run| run.total_ms() * 1e3).sum::<f64>();
        let row = |name: &str, us: f64| ProfileRow {
            name: name.to_owned(),
            calls_per_step: None,
            us_per_step: us / steps as f64,
            share: us / total,
            gb_per_s: None,
            tflop_per_s: None,
            shares: None,
        };
        let inside = operations.iter().map(|time| {
            let per_s = |amount: u64| amount as f64 / (time.us / 1e6);
            let (bytes, flops) = (per_s(time.bytes), per_s(time.flops));
            let counted = |amount: u64| amount > 0 && time.us > 0.0;
            ProfileRow {
                calls_per_step: Some(f64::from(time.calls) / steps as f64),
                gb_per_s: counted(time.bytes).then_some(bytes / 1e9),
                tflop_per_s: counted(time.flops).then_some(flops / 1e12),
                shares: limits.filter(|_| counted(time.bytes)).map(|limits| limits.shares(bytes, flops)),
                ..row(&time.name, time.us)
            }
        });
        let of = |names: &[&str]| -> f64 {
            operations.iter().filter(|time| begins(&time.name, names)).map(|time| time.us).sum()
        };
        let all: f64 = operations.iter().map(|time| time.us).sum();
        let (matmul, attention, of_sampling) = (of(&MATMUL), of(&ATTENTION), of(&OF_SAMPLING));
        let of_kernels = operations.iter().any(|time| begins(&time.name, &KERNELS));
        let phase = |ms: fn(&crate::protocol::Phases) -> f64| -> f64 {
            records().map(|record| ms(&record.phases) * 1e3).sum()
        };
        let (forward, sampling) = (phase(|p| p.forward_ms), phase(|p| p.sample_ms));
        let passes = match of_kernels {
            true => vec![("beside kernels", forward + sampling - all)],
            false => vec![
                ("rest of the forward pass", forward - (all - of_sampling)),
                ("sampling", sampling - of_sampling),
            ],
        };
        let outside = std::iter::once(("scheduling", phase(|p| p.schedule_ms)))
            .chain(passes)
            .chain([("output", phase(|p| p.output_ms)), ("between steps", total - phase(|p| p.total_ms()))]);
        Some(Self {
            steps,
            us_per_step: total / steps as f64,
            of_kernels,
            matmul_share: matmul / total,
            attention_share: attention / total,
            other_share: (total - matmul - attention) / total,
            rows: inside.chain(outside.map(|(name, us)| row(name, us))).collect(),
        })
    }

    pub(super) fn print(&self, test: &str, out: &mut impl Write) -> io::Result<()> {
        let Self { steps, us_per_step, matmul_share, attention_share, other_share, rows, .. } = self;
        let s = if *steps == 1 { "" } else { "s" };
        writeln!(out, "\n{test}: {steps} step{s} of {us_per_step:.0} us")?;
        let (names, widths): (&[&str], &[usize]) = match self.of_kernels {
            false => (&["operation", "calls a step", "us a step", "share"], &[24, 12, 11, 7]),
            true => (
                &["kernel", "calls", "us a step", "share", "GB/s", "TFLOP/s", "limit"],
                &[17, 6, 9, 7, 7, 7, 5],
            ),
        };
        heading_of(out, names, widths)?;
        for row in rows {
            let figure = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.1}"));
            let cells = [
                row.name.clone(),
                figure(row.calls_per_step),
                format!("{:.1}", row.us_per_step),
                format!("{:.1} %", row.share * 100.0),
                figure(row.gb_per_s),
                figure(row.tflop_per_s),
                row.shares.map_or(String::new(), |shares| format!("{:.0} %", shares.larger() * 100.0)),
            ];
            line_of(out, &cells[..names.len()], widths)?;
        }
        let [matmul, attention, other] =
            [matmul_share, attention_share, other_share].map(|share| share * 100.0);
        writeln!(out, "matrices {matmul:.1} %, attention {attention:.1} %, all else {other:.1} %")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::limits::tests::limits;
    use super::super::steps::tests::record;
    use super::*;
    use crate::protocol::{Counters, RowKind, StepRecord};
    use std::sync::Arc;

    fn run(steps: std::ops::Range<u64>) -> Timed {
        let operations =
            [("attend", 30, 50.0), ("project", 60, 400.0), ("head", 1, 150.0), ("embed", 1, 2.0)];
        of(steps, &operations.map(|(name, calls, us)| time(name, calls, us, 0, 0)))
    }

    fn time(name: &'static str, calls: u32, us: f64, bytes: u64, flops: u64) -> OperationTime {
        OperationTime { name: name.into(), calls, us, bytes, flops }
    }

    fn of(steps: std::ops::Range<u64>, operations: &[OperationTime]) -> Timed {
        let timed = |step| {
            let operations = operations.to_vec();
            Arc::new(StepRecord { operations, ..(*record(step, RowKind::Decode)).clone() })
        };
        Timed::prefill(Counters::default(), steps.map(timed).collect()).unwrap()
    }

    #[test]
    fn a_profile_adds_up_to_the_whole_time() {
        let profile = Profile::of(&[run(3..7), run(20..24)], None).unwrap();
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
            Profile::of(
                &[Timed::prefill(Counters::default(), vec![record(1, RowKind::Prefill)]).unwrap()],
                None
            ),
            None
        );
    }

    #[test]
    fn its_table_is_narrow() {
        let mut out = Vec::new();
        Profile::of(&[run(3..7)], None).unwrap().print("tg128", &mut out).unwrap();
        let table = String::from_utf8(out).unwrap();
        assert!(table.contains("tg128: 4 steps of 1750 us"), "{table}");
        assert!(
            table.contains("| project                  |         60.0 |       400.0 |  22.9 % |"),
            "{table}"
        );
        assert!(table.ends_with("matrices 31.4 %, attention 2.9 %, all else 65.7 %\n"), "{table}");
        assert!(table.lines().all(|line| line.len() <= 80));
    }

    /// Of kernels there is more to say, and a part of the step less: nobody knows when they were waited for.
    #[test]
    fn kernels_have_rates_and_shares_of_the_limits() {
        let kernels = [
            time("gemv_q4_k_1", 60, 400.0, 4_000_000, 40_000_000),
            time("decode_f16_4", 30, 50.0, 100_000, 10_000),
            time("rows_norm", 60, 30.0, 0, 0),
        ];
        let profile = Profile::of(&[of(3..7, &kernels)], Some(&limits())).unwrap();
        let gemv = &profile.rows[0];
        assert_eq!((gemv.gb_per_s, gemv.tflop_per_s), (Some(10.0), Some(0.1)));
        assert_eq!(gemv.shares, Some(Shares { memory: 0.8, mfu: 0.1 }));
        assert_eq!((profile.rows[2].gb_per_s, profile.rows[2].shares), (None, None));
        let us = |name: &str| profile.rows.iter().find(|row| row.name == name).map(|row| row.us_per_step);
        assert!((us("beside kernels").unwrap() - (800.0 - 480.0)).abs() < 1e-6);
        assert_eq!(us("sampling"), None);
        assert!((profile.rows.iter().map(|row| row.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((profile.matmul_share - 400.0 / 1750.0).abs() < 1e-9);
        let mut out = Vec::new();
        profile.print("tg128", &mut out).unwrap();
        let table = String::from_utf8(out).unwrap();
        let row = "| gemv_q4_k_1       |   60.0 |     400.0 |  22.9 % |    10.0 |     0.1 |  80 % |";
        assert!(table.contains(row), "{table}");
        assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    }
}
