use super::plan::{Kind, Test};
use crate::base::{Summary, visible};
use crate::protocol::ModelInfo;
use serde::Serialize;
use std::io::{self, Write};

/// One test with what it gave; names as in llama-bench's JSON where it has them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub test: String,
    pub n_prompt: u32,
    pub n_gen: u32,
    pub n_depth: u32,
    pub n_sequences: u32,
    /// Tokens per second, of all sequences together.
    pub avg_ts: f64,
    pub stddev_ts: f64,
    pub median_ts: f64,
    pub samples_ts: Vec<f64>,
}

impl Row {
    pub fn new(test: &Test, samples: Vec<f64>) -> Self {
        let summary = Summary::of(samples.iter().copied());
        let tokens_if = |kind| if test.kind == kind { test.tokens } else { 0 };
        Self {
            test: test.name(),
            n_prompt: tokens_if(Kind::Prefill),
            n_gen: tokens_if(Kind::Decode),
            n_depth: test.depth,
            n_sequences: test.batch,
            avg_ts: summary.mean,
            stddev_ts: deviation(&samples, summary.mean),
            median_ts: summary.p50,
            samples_ts: samples,
        }
    }
}

/// Of a sample: divided by one less than their number.
fn deviation(samples: &[f64], mean: f64) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (squares / (samples.len() - 1) as f64).sqrt()
}

/// Writes rows as they are done: a table for people, an array at the end for programs.
pub struct Report<'a, W: Write> {
    out: W,
    info: &'a ModelInfo,
    threads: usize,
    json: bool,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    model_filename: &'a str,
    model_type: String,
    model_size: u64,
    model_n_params: u64,
    device: &'a str,
    n_threads: usize,
    #[serde(flatten)]
    row: &'a Row,
}

impl<'a, W: Write> Report<'a, W> {
    pub fn begin(out: W, info: &'a ModelInfo, threads: usize, json: bool) -> io::Result<Self> {
        let mut report = Self { out, info, threads, json, rows: Vec::new() };
        if !json {
            heading(&mut report.out, info)?;
            writeln!(report.out, "| {:<20} | {:>20} | {:>10} |", "test", "t/s", "median")?;
            writeln!(report.out, "| {:-<20} | {:->19}: | {:->9}: |", "", "", "")?;
        }
        Ok(report)
    }

    pub fn row(&mut self, row: Row) -> io::Result<()> {
        if !self.json {
            let mean = format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts);
            writeln!(self.out, "| {:<20} | {mean:>20} | {:>10.2} |", row.test, row.median_ts)?;
            self.out.flush()?;
        }
        self.rows.push(row);
        Ok(())
    }

    pub fn end(mut self) -> io::Result<()> {
        if self.json {
            let line = |row| Line {
                model: &self.info.name,
                model_filename: &self.info.path,
                model_type: format!("{} {}", self.info.architecture, self.info.quantization),
                model_size: self.info.weights_bytes,
                model_n_params: self.info.parameters,
                device: &self.info.device,
                n_threads: self.threads,
                row,
            };
            let lines: Vec<Line> = self.rows.iter().map(line).collect();
            serde_json::to_writer_pretty(&mut self.out, &lines).map_err(io::Error::from)?;
            writeln!(self.out)?;
        }
        self.out.flush()
    }
}

/// Which model, on what.
pub(super) fn heading(out: &mut impl Write, info: &ModelInfo) -> io::Result<()> {
    writeln!(out, "{} on {}", visible(&info.name), visible(&info.device))?;
    let model = format!(
        "{} {}, {:.1} M parameters, {:.1} MiB of weights",
        info.architecture,
        info.quantization,
        info.parameters as f64 / 1e6,
        info.weights_bytes as f64 / (1 << 20) as f64
    );
    writeln!(out, "{}", visible(&model))?;
    writeln!(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEST: Test = Test { kind: Kind::Decode, tokens: 32, depth: 64, batch: 1 };

    fn report(json: bool) -> String {
        let info = ModelInfo { name: "tiny".into(), device: "CPU".into(), ..ModelInfo::default() };
        let mut out = Vec::new();
        let mut report = Report::begin(&mut out, &info, 2, json).unwrap();
        report.row(Row::new(&TEST, vec![10.0, 20.0, 60.0])).unwrap();
        report.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn mean_deviation_and_median_are_those_of_the_samples() {
        let row = Row::new(&TEST, vec![10.0, 20.0, 60.0]);
        assert_eq!((row.avg_ts, row.median_ts), (30.0, 20.0));
        assert!((row.stddev_ts - 700f64.sqrt()).abs() < 1e-9);
        assert_eq!(Row::new(&TEST, vec![5.0]).stddev_ts, 0.0);
    }

    #[test]
    fn the_table_has_a_line_for_each_test() {
        let table = report(false);
        let line = table.lines().last().unwrap();
        assert_eq!(line, "| tg32 @ d64           |        30.00 ± 26.46 |      20.00 |");
    }

    #[test]
    fn the_json_has_every_sample() {
        let rows: serde_json::Value = serde_json::from_str(&report(true)).unwrap();
        assert_eq!(rows[0]["samples_ts"], serde_json::json!([10.0, 20.0, 60.0]));
        assert_eq!((&rows[0]["test"], &rows[0]["n_gen"]), (&"tg32 @ d64".into(), &32.into()));
        assert_eq!((&rows[0]["model"], &rows[0]["n_threads"]), (&"tiny".into(), &2.into()));
    }
}
