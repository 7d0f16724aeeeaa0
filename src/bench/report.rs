use super::limits::{Limits, Shares};
use super::measure::{Measured, PerSecond};
use super::peer::Paired;
use super::plan::{Kind, Test};
use super::profile::Profile;
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
    /// Medians of what the engine counts: bytes read of weights and KV cache; multiplications and
    /// additions.
    pub gb_per_s: Option<f64>,
    pub gops: Option<f64>,
    /// Median of the shares of what the machine could do beside each repetition: of a decode those of
    /// reading, of a prefill those of multiplying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_of_limit: Option<f64>,
    /// Of what was measured first, both of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// Median time until every sequence had its first token: of a prefill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The same test by others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Paired>,
}

impl Row {
    pub fn new(test: &Test, samples: Vec<Measured>, limits: Option<&Limits>) -> Self {
        let rates: Vec<f64> = samples.iter().map(|sample| sample.rate).collect();
        let summary = Summary::of(rates.iter().copied());
        let tokens_if = |kind| if test.kind == kind { test.tokens } else { 0 };
        let usage: Option<Vec<_>> = samples.iter().map(|sample| sample.usage).collect();
        let usage = usage.filter(|all| !all.is_empty()).map(|all| PerSecond {
            bytes: Summary::of(all.iter().map(|usage| usage.bytes)).p50,
            operations: Summary::of(all.iter().map(|usage| usage.operations)).p50,
        });
        let shares: Option<Vec<f64>> = samples.iter().map(|sample| sample.share_of_limit).collect();
        let shares = shares.filter(|all| !all.is_empty());
        let ttft: Option<Vec<f64>> = samples.iter().map(|sample| sample.ttft_ms).collect();
        let ttft = ttft.filter(|all| !all.is_empty());
        let runs: Vec<_> = samples.into_iter().filter_map(|sample| sample.timed).collect();
        Self {
            test: test.name(),
            n_prompt: tokens_if(Kind::Prefill),
            n_gen: tokens_if(Kind::Decode),
            n_depth: test.depth,
            n_sequences: test.batch,
            avg_ts: summary.mean,
            stddev_ts: deviation(&rates, summary.mean),
            median_ts: summary.p50,
            samples_ts: rates,
            gb_per_s: usage.map(|usage| usage.bytes / 1e9),
            gops: usage.map(|usage| usage.operations / 1e9),
            share_of_limit: shares.map(|all| Summary::of(all).p50),
            shares: usage.zip(limits).map(|(usage, limits)| limits.shares(usage.bytes, usage.operations)),
            ttft_ms: ttft.map(|all| Summary::of(all).p50),
            profile: Profile::of(&runs, limits),
            peers: Vec::new(),
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
    limits: Option<&'a Limits>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<&'a Limits>,
    #[serde(flatten)]
    row: &'a Row,
}

/// With the share of the limit, where there is one: 80 columns.
const COLUMNS: [&str; 6] = ["test", "t/s", "median", "GB/s", "GOPS", "limit"];
const WIDTHS: [usize; 6] = [17, 17, 8, 6, 6, 5];

impl<'a, W: Write> Report<'a, W> {
    pub fn begin(
        out: W,
        info: &'a ModelInfo,
        threads: usize,
        limits: Option<&'a Limits>,
        json: bool,
    ) -> io::Result<Self> {
        let mut report = Self { out, info, threads, limits, json, rows: Vec::new() };
        if !json {
            heading(&mut report.out, info)?;
            limits.iter().try_for_each(|limits| limits.print(&mut report.out))?;
            let n = report.columns();
            heading_of(&mut report.out, &COLUMNS[..n], &WIDTHS[..n])?;
            report.out.flush()?;
        }
        Ok(report)
    }

    fn columns(&self) -> usize {
        COLUMNS.len() - usize::from(self.limits.is_none())
    }

    pub fn row(&mut self, row: Row) -> io::Result<()> {
        if !self.json {
            let figure = |figure: Option<f64>| figure.map_or_else(|| "-".into(), |x| format!("{x:.1}"));
            let cells = [
                row.test.clone(),
                format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts),
                format!("{:.2}", row.median_ts),
                figure(row.gb_per_s),
                figure(row.gops),
                row.share_of_limit.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0)),
            ];
            let columns = self.columns();
            line_of(&mut self.out, &cells[..columns], &WIDTHS)?;
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
                limits: self.limits,
                row,
            };
            let lines: Vec<Line> = self.rows.iter().map(line).collect();
            serde_json::to_writer_pretty(&mut self.out, &lines).map_err(io::Error::from)?;
            writeln!(self.out)?;
        } else {
            for row in &self.rows {
                row.profile.iter().try_for_each(|profile| profile.print(&row.test, &mut self.out))?;
            }
            super::peer::print(&self.rows, &mut self.out)?;
        }
        self.out.flush()
    }
}

/// The two lines on top of a table, its first column to the left.
pub(super) fn heading_of(out: &mut impl Write, names: &[&str], widths: &[usize]) -> io::Result<()> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    line_of(out, &names, widths)?;
    write!(out, "| {:-<1$} |", "", widths[0])?;
    widths[1..].iter().try_for_each(|width| write!(out, " {:->1$}: |", "", width - 1))?;
    writeln!(out)
}

pub(super) fn line_of(out: &mut impl Write, cells: &[String], widths: &[usize]) -> io::Result<()> {
    write!(out, "| {:<1$} |", cells[0], widths[0])?;
    cells.iter().zip(widths).skip(1).try_for_each(|(cell, width)| write!(out, " {cell:>width$} |"))?;
    writeln!(out)
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
    use super::super::limits::tests::limits;
    use super::*;

    const TEST: Test = Test { kind: Kind::Decode, tokens: 32, depth: 64, batch: 1 };

    fn samples(rates: &[f64]) -> Vec<Measured> {
        let measured = |rate: &f64| Measured {
            rate: *rate,
            usage: Some(PerSecond { bytes: rate * 1e9, operations: rate * 2e9 }),
            share_of_limit: Some(rate / 50.0),
            ttft_ms: Some(4000.0 / rate),
            timed: None,
        };
        rates.iter().map(measured).collect()
    }

    fn report(limits: Option<&Limits>, json: bool) -> String {
        let info = ModelInfo { name: "tiny".into(), device: "CPU".into(), ..ModelInfo::default() };
        let mut out = Vec::new();
        let mut report = Report::begin(&mut out, &info, 2, limits, json).unwrap();
        report.row(Row::new(&TEST, samples(&[10.0, 20.0, 60.0]), limits)).unwrap();
        report.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn mean_deviation_and_median_are_those_of_the_samples() {
        let row = Row::new(&TEST, samples(&[10.0, 20.0, 60.0]), None);
        assert_eq!((row.avg_ts, row.median_ts), (30.0, 20.0));
        assert!((row.stddev_ts - 700f64.sqrt()).abs() < 1e-9);
        assert_eq!((row.gb_per_s, row.gops), (Some(20.0), Some(40.0)));
        assert_eq!(Row::new(&TEST, samples(&[5.0]), None).stddev_ts, 0.0);
        // Of a run whose records were not all seen, nothing is made up.
        let mut unseen = samples(&[10.0, 20.0]);
        unseen[1].usage = None;
        let row = Row::new(&TEST, unseen, None);
        assert_eq!((row.gb_per_s, row.gops, row.median_ts), (None, None, 15.0));
    }

    #[test]
    fn the_table_has_a_line_for_each_test() {
        let table = report(None, false);
        let line = table.lines().last().unwrap();
        assert_eq!(line, "| tg32 @ d64        |     30.00 ± 26.46 |    20.00 |   20.0 |   40.0 |");
    }

    #[test]
    fn limits_come_first_and_every_line_fits_a_terminal() {
        let table = report(Some(&limits()), false);
        let limit = table.find("| read of 94 MiB, as the weights         |         50.0 GB/s |").unwrap();
        let row = "| tg32 @ d64        |     30.00 ± 26.46 |    20.00 |   20.0 |   40.0 |  40 % |";
        assert!(table.find(row).unwrap() > limit, "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }

    #[test]
    fn the_json_has_every_sample() {
        let rows: serde_json::Value = serde_json::from_str(&report(None, true)).unwrap();
        assert_eq!(rows[0]["samples_ts"], serde_json::json!([10.0, 20.0, 60.0]));
        assert_eq!((&rows[0]["test"], &rows[0]["n_gen"]), (&"tg32 @ d64".into(), &32.into()));
        assert_eq!((&rows[0]["model"], &rows[0]["n_threads"]), (&"tiny".into(), &2.into()));
        assert_eq!((&rows[0]["gb_per_s"], &rows[0]["gops"]), (&20.0.into(), &40.0.into()));
        assert!(rows[0].get("limits").is_none() && rows[0].get("profile").is_none());
        let rows: serde_json::Value = serde_json::from_str(&report(Some(&limits()), true)).unwrap();
        assert_eq!(
            (&rows[0]["share_of_limit"], &rows[0]["limits"]["matrix_gops"]),
            (&0.4.into(), &1000.0.into())
        );
        // 20 GB/s of 12.5 that memory gives: a cache holds some of it.
        assert_eq!(rows[0]["shares"], serde_json::json!({ "memory": 1.6, "mfu": 0.04 }));
        assert_eq!(rows[0]["ttft_ms"], 200.0);
    }
}
