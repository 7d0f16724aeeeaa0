use super::compare::Sample;
use super::load::{ANSWERS, Load, PROMPTS};
use super::report::heading;
use crate::base::Summary;
use crate::protocol::ModelInfo;
use serde::Serialize;
use std::io::{self, Write};

/// A load under two settings: what each gave, and how many times the tokens per second of the second
/// the first has.
#[derive(Serialize)]
pub struct Ratio<'a> {
    model: &'a str,
    model_filename: &'a str,
    device: &'a str,
    n_threads: usize,
    n_requests: usize,
    max_num_seqs: usize,
    sides: [Side; 2],
    ratio: Times,
    #[serde(skip)]
    info: &'a ModelInfo,
}

#[derive(Serialize)]
struct Side {
    setting: String,
    median: Sample,
    samples: Vec<Sample>,
}

/// How many times as fast the first is, pair by pair: each was measured within a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Times {
    pub(super) fn of(ours: &[f64], theirs: &[f64]) -> Self {
        let Summary { p50, min, max, .. } = Summary::of(ours.iter().zip(theirs).map(|(a, b)| a / b));
        Self { median: p50, min, max }
    }
}

impl<'a> Ratio<'a> {
    /// `names` are the settings compared, as `batching=static`.
    pub fn new(
        info: &'a ModelInfo,
        threads: usize,
        load: &Load,
        max_num_seqs: usize,
        names: [String; 2],
        samples: [Vec<Sample>; 2],
    ) -> Self {
        let rates = |side: &Vec<Sample>| side.iter().map(|s| s.tokens_per_second).collect::<Vec<_>>();
        let [ours, theirs] = samples.each_ref().map(rates);
        let [a, b] = names;
        let [one, two] = samples;
        let side = |setting, samples: Vec<_>| Side { setting, median: Sample::median(&samples), samples };
        Self {
            model: &info.name,
            model_filename: &info.path,
            device: &info.device,
            n_threads: threads,
            n_requests: load.len(),
            max_num_seqs,
            sides: [side(a, one), side(b, two)],
            ratio: Times::of(&ours, &theirs),
            info,
        }
    }

    pub fn print(&self, mut out: impl Write, json: bool) -> io::Result<()> {
        if json {
            serde_json::to_writer_pretty(&mut out, self).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            self.table(&mut out)?;
        }
        out.flush()
    }

    fn table(&self, out: &mut impl Write) -> io::Result<()> {
        heading(out, self.info)?;
        let runs = self.sides[0].samples.len();
        writeln!(
            out,
            "{} requests at once, prompts of {} to {} tokens, answers of {} to {}; {} places; medians of {runs}",
            self.n_requests,
            PROMPTS.start(),
            PROMPTS.end(),
            ANSWERS.start(),
            ANSWERS.end(),
            self.max_num_seqs,
        )?;
        writeln!(out)?;
        let wide = self.sides.iter().map(|side| side.setting.len()).max().unwrap_or(0).max(7);
        let columns = ["wall s", "t/s", "TTFT ms", "p99 ms", "steps", "used", "idle", "preempted"];
        write!(out, "| {:<wide$} |", "setting")?;
        columns.iter().try_for_each(|name| write!(out, " {name:>9} |"))?;
        write!(out, "\n| {:-<wide$} |", "")?;
        columns.iter().try_for_each(|_| write!(out, " {:->8}: |", ""))?;
        writeln!(out)?;
        for side in &self.sides {
            let m = &side.median;
            write!(out, "| {:<wide$} |", side.setting)?;
            let figures = [m.wall_s, m.tokens_per_second, m.ttft_mean_ms, m.ttft_p99_ms, m.steps];
            for (figure, digits) in figures.iter().zip([2, 2, 1, 1, 0]) {
                write!(out, " {figure:>9.digits$} |")?;
            }
            writeln!(out, " {:>9.2} | {:>9.2} | {:>9.0} |", m.slots_used, m.slots_idle, m.preemptions)?;
        }
        let Times { median, min, max } = self.ratio;
        let [a, b] = &self.sides;
        writeln!(out)?;
        writeln!(
            out,
            "{} / {}: {median:.2} times the tokens per second ({min:.2} to {max:.2})",
            a.setting, b.setting
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn printed(json: bool) -> String {
        let info = ModelInfo { name: "tiny".into(), device: "CPU".into(), ..ModelInfo::default() };
        let sample = |rate: f64| Sample { wall_s: 60.0 / rate, tokens_per_second: rate, ..Sample::default() };
        let names = ["batching=continuous".to_owned(), "batching=static".to_owned()];
        // The machine was slow during the second pair: both sides were.
        let samples =
            [vec![sample(30.0), sample(15.0), sample(33.0)], vec![sample(20.0), sample(10.0), sample(20.0)]];
        let ratio = Ratio::new(&info, 2, &Load::mixed(32), 8, names, samples);
        let mut out = Vec::new();
        ratio.print(&mut out, json).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_table_ends_with_the_ratio_of_the_pairs() {
        let table = printed(false);
        let last = table.lines().last().unwrap();
        let wanted = "batching=continuous / batching=static: 1.50 times the tokens per second (1.50 to 1.65)";
        assert_eq!(last, wanted);
        let row = table.lines().find(|line| line.starts_with("| batching=static ")).unwrap();
        assert!(row.starts_with("| batching=static     |      3.00 |     20.00 |"), "{row}");
        let width = |line: &&str| line.len();
        let widths: std::collections::BTreeSet<usize> =
            table.lines().filter(|line| line.starts_with('|')).map(|line| width(&line)).collect();
        assert_eq!(widths.len(), 1, "{table}");
    }

    #[test]
    fn the_json_has_every_sample_and_the_ratio() {
        let value: serde_json::Value = serde_json::from_str(&printed(true)).unwrap();
        assert_eq!(value["sides"][1]["setting"], "batching=static");
        assert_eq!(value["sides"][0]["samples"][2]["tokens_per_second"], 33.0);
        assert_eq!((&value["ratio"]["median"], &value["n_requests"]), (&1.5.into(), &32.into()));
    }
}
