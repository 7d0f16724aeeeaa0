use super::measure::{Bench, Measured};
use super::plan::{Kind, Test};
use super::ratio::Times;
use super::report::{Row, heading_of, line_of};
use crate::base::{Summary, visible};
use crate::protocol::{Failure, FailureKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, Write};
use std::process::{Command, Output};

/// Another program that measures the same model, by its command line for `sh`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    command: String,
}

/// What it said of one test; the names are llama-bench's.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct PeerRow {
    pub n_prompt: u32,
    pub n_gen: u32,
    #[serde(default)]
    pub n_depth: u32,
    #[serde(default = "one")]
    pub n_sequences: u32,
    /// Tokens per second.
    pub avg_ts: f64,
}

fn one() -> u32 {
    1
}

impl Peer {
    /// `{model}` and `{threads}` of the command stand for the model's file and the thread count.
    pub fn new(command: &str, model: &str, threads: usize) -> Self {
        let command = command.replace("{threads}", &threads.to_string());
        Self { command: command.replace("{model}", &quoted(model)) }
    }

    /// Runs it once, to its end.
    ///
    /// # Errors
    /// It cannot be run, it fails, or its output has no rates in it.
    pub fn run(&self) -> Result<Vec<PeerRow>, Failure> {
        let output = Command::new("sh").arg("-c").arg(&self.command).output();
        let output = output.map_err(|e| self.failed(FailureKind::Internal, &format!("sh: {e}")))?;
        if !output.status.success() {
            let kind = if output.status.code() == Some(127) {
                FailureKind::BadRequest
            } else {
                FailureKind::Internal
            };
            return Err(self.failed(kind, &format!("{}{}", output.status, last_lines(&output))));
        }
        let rows = rows(&String::from_utf8_lossy(&output.stdout));
        if rows.is_empty() {
            let why = format!(
                "no JSON object with n_prompt, n_gen and avg_ts in its output (llama-bench needs -o json){}",
                last_lines(&output)
            );
            return Err(self.failed(FailureKind::BadRequest, &why));
        }
        Ok(rows)
    }

    fn failed(&self, kind: FailureKind, why: &str) -> Failure {
        Failure::new(kind, format!("--compare {}: {why}", self.command))
    }
}

/// For the shell: as it is where that is safe, else in single quotes.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

const LAST_LINES: usize = 5;

/// Of what it complained about.
fn last_lines(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    if last.is_empty() { String::new() } else { format!("; it said: {}", last.join(" / ")) }
}

/// Every object of the output that has the fields, however much other text stands between them.
fn rows(output: &str) -> Vec<PeerRow> {
    let mut rows = Vec::new();
    let mut rest = output;
    while let Some(start) = rest.find(['[', '{']) {
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                collect(value, &mut rows);
                rest = &rest[values.byte_offset()..];
            }
            _ => rest = &rest[1..],
        }
    }
    rows
}

fn collect(value: Value, rows: &mut Vec<PeerRow>) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| collect(value, rows)),
        value => rows.extend(PeerRow::deserialize(value).ok().filter(|row| row.avg_ts > 0.0)),
    }
}

impl PeerRow {
    fn is_of(&self, test: &Test) -> bool {
        let (n_prompt, n_gen) = match test.kind {
            Kind::Prefill => (test.tokens, 0),
            Kind::Decode => (0, test.tokens),
        };
        (self.n_prompt, self.n_gen, self.n_depth, self.n_sequences)
            == (n_prompt, n_gen, test.depth, test.batch)
    }

    fn name(&self) -> String {
        let depth = if self.n_depth > 0 { format!(" @ d{}", self.n_depth) } else { String::new() };
        match (self.n_prompt, self.n_gen) {
            (n, 0) => format!("pp{n}{depth}"),
            (0, n) => format!("tg{n}{depth}"),
            (p, n) => format!("pp{p}+tg{n}{depth}"),
        }
    }
}

/// Tokens per second of a test in a run; the fastest, where it was measured in several ways.
fn rate(rows: &[PeerRow], test: &Test) -> Option<f64> {
    rows.iter().filter(|row| row.is_of(test)).map(|row| row.avg_ts).max_by(f64::total_cmp)
}

/// A test by a peer, each repetition beside ours of the same moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Counted from 1.
    pub peer: usize,
    pub command: String,
    pub median_ts: f64,
    pub samples_ts: Vec<f64>,
    /// Ours over the peer's, pair by pair.
    pub ratio: Times,
    /// No other peer's median is higher.
    pub best: bool,
}

impl Paired {
    fn new(peer: usize, command: &str, ours: &[f64], theirs: Vec<f64>) -> Self {
        Self {
            peer,
            command: command.to_owned(),
            median_ts: Summary::of(theirs.iter().copied()).p50,
            ratio: Times::of(ours, &theirs),
            samples_ts: theirs,
            best: false,
        }
    }
}

/// What a test gave in all rounds, and beside it the peers that measured it too.
pub type Rounds = (Vec<Measured>, Vec<Paired>);

impl Bench<'_> {
    /// All tests and every peer in turn, `repetitions` times: a machine that slows down slows all of
    /// them. Nothing of the engine runs while a peer does. `done` hears of each round.
    ///
    /// # Errors
    /// As a test's or a peer's; or a peer measured none of the tests.
    pub fn against(
        &mut self,
        tests: &[Test],
        peers: &[Peer],
        repetitions: u32,
        mut done: impl FnMut(u32),
    ) -> Result<Vec<Rounds>, Failure> {
        let mut ours = vec![Vec::new(); tests.len()];
        let mut theirs = vec![Vec::new(); peers.len()];
        for round in 1..=repetitions {
            for (test, samples) in tests.iter().zip(&mut ours) {
                // The peers have emptied the caches, and warm their own.
                self.warm_up(test)?;
                samples.push(self.repetition(test)?);
            }
            for (peer, runs) in peers.iter().zip(&mut theirs) {
                let rows = peer.run()?;
                in_common(peer, tests, &rows)?;
                runs.push(rows);
            }
            done(round);
        }
        let pair = |(test, ours): (&Test, Vec<Measured>)| {
            let pairs = pairs(test, &ours, peers, &theirs);
            (ours, pairs)
        };
        Ok(tests.iter().zip(ours).map(pair).collect())
    }
}

fn in_common(peer: &Peer, tests: &[Test], rows: &[PeerRow]) -> Result<(), Failure> {
    if tests.iter().any(|test| rate(rows, test).is_some()) {
        return Ok(());
    }
    let theirs: Vec<String> = rows.iter().map(PeerRow::name).collect();
    let ours: Vec<String> = tests.iter().map(Test::name).collect();
    let why = format!("no test in common: it measured {}, and we {}", theirs.join(", "), ours.join(", "));
    Err(peer.failed(FailureKind::BadRequest, &why))
}

/// By each peer that measured the test in every round.
fn pairs(test: &Test, ours: &[Measured], peers: &[Peer], theirs: &[Vec<Vec<PeerRow>>]) -> Vec<Paired> {
    let ours: Vec<f64> = ours.iter().map(|measured| measured.rate).collect();
    let pair = |(index, (peer, runs)): (usize, (&Peer, &Vec<Vec<PeerRow>>))| {
        let rates: Option<Vec<f64>> = runs.iter().map(|rows| rate(rows, test)).collect();
        Some(Paired::new(index + 1, &peer.command, &ours, rates?))
    };
    let mut all: Vec<Paired> = peers.iter().zip(theirs).enumerate().filter_map(pair).collect();
    if let Some(best) = all.iter_mut().max_by(|a, b| a.median_ts.total_cmp(&b.median_ts)) {
        best.best = true;
    }
    all
}

/// The pairs of all tests, then each test against the best.
pub(super) fn print(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let mut peers: Vec<(usize, &str)> =
        rows.iter().flat_map(|row| &row.peers).map(|pair| (pair.peer, pair.command.as_str())).collect();
    peers.sort_unstable();
    peers.dedup();
    if peers.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    peers.iter().try_for_each(|(peer, command)| writeln!(out, "peer {peer}: {}", visible(command)))?;
    let widths = [17, 4, 10, 10, 6, 14];
    heading_of(out, &["test", "peer", "ours", "peer's", "ratio", "min to max"], &widths)?;
    for row in rows {
        for Paired { peer, median_ts, ratio, .. } in &row.peers {
            let cells = [
                row.test.clone(),
                peer.to_string(),
                format!("{:.2}", row.median_ts),
                format!("{median_ts:.2}"),
                format!("{:.2}", ratio.median),
                format!("{:.2} to {:.2}", ratio.min, ratio.max),
            ];
            line_of(out, &cells, &widths)?;
        }
    }
    let best = |row: &Row| {
        let pair = row.peers.iter().find(|pair| pair.best)?;
        Some(format!("{} {:.2} (peer {})", row.test, pair.ratio.median, pair.peer))
    };
    let best: Vec<String> = rows.iter().filter_map(best).collect();
    writeln!(out, "times the best peer: {}", best.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// As llama-bench writes them, without most of their fields.
    const LLAMA_BENCH: &str = r#"[
  { "build_commit": "unknown", "n_threads": 2, "flash_attn": true, "n_prompt": 512, "n_gen": 0, "n_depth": 0,
    "avg_ns": 309000000, "avg_ts": 1656.5, "stddev_ts": 0.0, "samples_ts": [ 1656.5 ] },
  { "build_commit": "unknown", "n_threads": 2, "flash_attn": true, "n_prompt": 0, "n_gen": 128, "n_depth": 0,
    "avg_ns": 731000000, "avg_ts": 175.25, "stddev_ts": 0.0, "samples_ts": [ 175.25 ] }
]"#;

    fn row(n_prompt: u32, n_gen: u32, n_depth: u32, avg_ts: f64) -> PeerRow {
        PeerRow { n_prompt, n_gen, n_depth, n_sequences: 1, avg_ts }
    }

    const PP512: Test = Test { kind: Kind::Prefill, tokens: 512, depth: 0, batch: 1 };
    const TG128: Test = Test { kind: Kind::Decode, tokens: 128, ..PP512 };

    fn measured(rates: &[f64]) -> Vec<Measured> {
        rates.iter().map(|rate| Measured { rate: *rate, ..Measured::default() }).collect()
    }

    #[test]
    fn rates_are_found_in_an_array_in_lines_and_among_other_words() {
        let two = vec![row(512, 0, 0, 1656.5), row(0, 128, 0, 175.25)];
        assert_eq!(rows(LLAMA_BENCH), two);
        let lines = "{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 1656.5}\n\
                     {\"n_prompt\": 0, \"n_gen\": 128, \"n_depth\": 0, \"avg_ts\": 175.25}\n";
        assert_eq!(rows(lines), two);
        let noisy = format!("[2026] loading {{model}} ...\n{LLAMA_BENCH}\ndone [ok] }}{{\n");
        assert_eq!(rows(&noisy), two);
        let ours = r#"[{"n_prompt": 0, "n_gen": 8, "n_depth": 64, "n_sequences": 4, "avg_ts": 9.5}]"#;
        assert_eq!(rows(ours), [PeerRow { n_sequences: 4, ..row(0, 8, 64, 9.5) }]);
        for nothing in
            ["", "{}", "| pp512 | 1656.50 |", "[1, 2]", r#"{"n_prompt": 512, "n_gen": 0, "avg_ts": 0}"#]
        {
            assert_eq!(rows(nothing), [], "{nothing}");
        }
    }

    #[test]
    fn a_test_is_paired_with_the_same_test_only() {
        let rows = [row(512, 0, 64, 1.0), row(512, 128, 0, 2.0), row(512, 0, 0, 3.0), row(512, 0, 0, 4.0)];
        assert_eq!(rate(&rows, &PP512), Some(4.0), "the fastest of two ways");
        assert_eq!(rate(&rows, &TG128), None);
        assert_eq!(rate(&rows, &Test { batch: 2, ..PP512 }), None);
        assert_eq!(rate(&rows, &Test { depth: 64, ..PP512 }), Some(1.0));
    }

    #[test]
    fn ratios_are_of_pairs_and_the_best_peer_is_marked() {
        let runs = |rates: [f64; 3]| rates.map(|rate| vec![row(512, 0, 0, rate)]).to_vec();
        // The machine was slow during the second round: both sides were.
        let ours = measured(&[30.0, 15.0, 33.0]);
        let peers = [Peer::new("slow", "m", 1), Peer::new("fast", "m", 1), Peer::new("other", "m", 1)];
        let theirs = [runs([10.0, 5.0, 10.0]), runs([20.0, 10.0, 20.0]), vec![vec![row(64, 0, 0, 1.0)]; 3]];
        let pairs = pairs(&PP512, &ours, &peers, &theirs);
        assert_eq!(pairs.len(), 2, "the third did not measure it");
        assert_eq!(pairs[0].ratio, Times { median: 3.0, min: 3.0, max: 3.3 });
        assert_eq!(pairs[1].ratio, Times { median: 1.5, min: 1.5, max: 1.65 });
        assert_eq!((pairs[1].peer, pairs[1].median_ts, pairs[0].best, pairs[1].best), (2, 20.0, false, true));

        let row = Row { peers: pairs, ..Row::new(&PP512, ours, None) };
        let mut out = Vec::new();
        print(&[row], &mut out).unwrap();
        let table = String::from_utf8(out).unwrap();
        assert!(
            table
                .contains("| pp512             |    2 |      30.00 |      20.00 |   1.50 |   1.50 to 1.65 |"),
            "{table}"
        );
        assert!(table.starts_with("\npeer 1: slow\npeer 2: fast\n|"), "{table}");
        assert!(table.ends_with("times the best peer: pp512 1.50 (peer 2)\n"), "{table}");
        assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    }

    #[test]
    fn model_and_threads_reach_the_command_as_one_word_each() {
        let peer = Peer::new("echo {threads} {model}", "/a/it's mine.gguf", 2);
        let output = Command::new("sh").arg("-c").arg(&peer.command).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "2 /a/it's mine.gguf\n");
        assert_eq!(Peer::new("x {model}", "/m/a-b.gguf", 1).command, "x /m/a-b.gguf");
    }

    #[test]
    fn a_peer_that_gives_no_rates_says_why() {
        let said = |command: &str| Peer::new(command, "m", 1).run().unwrap_err();
        let failure = said("/nonexistent/bench -x");
        assert_eq!(failure.kind, FailureKind::BadRequest);
        assert!(failure.message.contains("not found"), "{}", failure.message);
        let failure = said("for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 3");
        assert_eq!(failure.kind, FailureKind::Internal);
        assert!(
            failure.message.ends_with("exit status: 3; it said: line 3 / line 4 / line 5 / line 6 / line 7")
        );
        let failure = said("echo '| pp512 | 12 |'");
        assert!(failure.message.contains("llama-bench needs -o json"), "{}", failure.message);
        let rows = [row(512, 128, 0, 1.0), row(64, 0, 8, 1.0)];
        let failure = in_common(&Peer::new("b", "m", 1), &[TG128], &rows).unwrap_err();
        assert!(
            failure.message.ends_with("it measured pp512+tg128, pp64 @ d8, and we tg128"),
            "{}",
            failure.message
        );
    }
}
