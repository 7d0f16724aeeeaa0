use super::measure::{engine_gone, send};
use super::report::heading;
use crate::base::{SplitMix, Summary};
use crate::protocol::{
    Command, Event, Failure, FinishReason, Handle, ModelInfo, Prompt, Request, RequestId, SamplingParams,
    TokenId,
};
use serde::Serialize;
use std::io::{self, Write};

/// Time to first token of one prompt, by where the keys and values of its tokens come from.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Restored {
    #[serde(rename = "from")]
    name: &'static str,
    median_ms: f64,
    samples_ms: Vec<f64>,
    /// Prompt tokens that were not computed, in each run.
    cached_tokens: Vec<usize>,
}

/// Prompts of tokens without structure that share nothing, one for each repetition and one before
/// them that warms caches and clocks.
pub fn prompts(info: &ModelInfo, length: usize, repetitions: u32) -> Vec<Vec<TokenId>> {
    let vocabulary = info.vocab_size.max(1) as u64;
    let prompt = |i: u32| {
        let mut random = SplitMix(u64::from(i));
        (0..length).map(|_| (random.draw() % vocabulary) as TokenId).collect()
    };
    (0..=repetitions).map(prompt).collect()
}

/// Each prompt twice: computed, then found in the KV cache.
pub fn compute_and_find(handle: &mut Handle, prompts: &[Vec<TokenId>]) -> Result<[Restored; 2], Failure> {
    let mut rows = [Restored::named("computed"), Restored::named("KV cache")];
    for prompt in prompts {
        send(handle, Command::ResetPrefixCache)?;
        rows.iter_mut().try_for_each(|row| row.time(handle, prompt))?;
    }
    Ok(rows.map(Restored::warm))
}

/// Each prompt once, by an engine that has just started over a folder that knows them.
pub fn restore(handle: &mut Handle, prompts: &[Vec<TokenId>]) -> Result<Restored, Failure> {
    let mut row = Restored::named("disk");
    prompts.iter().try_for_each(|prompt| row.time(handle, prompt))?;
    Ok(row.warm())
}

/// Ends the engine; when this returns, what it keeps on disk is there.
pub fn shut_down(handle: &mut Handle) -> Result<(), Failure> {
    send(handle, Command::Shutdown)?;
    while handle.events.blocking_recv().is_some() {}
    Ok(())
}

impl Restored {
    fn named(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    fn time(&mut self, handle: &mut Handle, prompt: &[TokenId]) -> Result<(), Failure> {
        let params = SamplingParams {
            temperature: 0.0,
            max_tokens: Some(1),
            ignore_eos: true,
            ..SamplingParams::default()
        };
        let request = Request::new(RequestId(0), Prompt::Tokens(prompt.to_vec()), params);
        send(handle, Command::Submit(Box::new(request)))?;
        loop {
            for event in handle.events.blocking_recv().ok_or_else(engine_gone)? {
                let Event::Finished { outcome, .. } = event else { continue };
                if let FinishReason::Error(failure) = outcome.reason {
                    return Err(failure);
                }
                self.samples_ms.push(outcome.timings.ttft_ms);
                self.cached_tokens.push(outcome.usage.cached_tokens);
                return Ok(());
            }
        }
    }

    /// Without the first run, which warmed things up.
    fn warm(mut self) -> Self {
        self.samples_ms.remove(0);
        self.cached_tokens.remove(0);
        self.median_ms = Summary::of(self.samples_ms.iter().copied()).p50;
        self
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    model: &'a str,
    device: &'a str,
    n_prompt: usize,
    rows: &'a [Restored],
}

/// A table for people, an object for programs.
pub fn print_restored(
    mut out: impl Write,
    info: &ModelInfo,
    length: usize,
    rows: &[Restored],
    json: bool,
) -> io::Result<()> {
    if json {
        let whole = Whole { model: &info.name, device: &info.device, n_prompt: length, rows };
        serde_json::to_writer_pretty(&mut out, &whole).map_err(io::Error::from)?;
        writeln!(out)?;
        return out.flush();
    }
    heading(&mut out, info)?;
    let runs = rows.first().map_or(0, |row| row.samples_ms.len());
    writeln!(out, "time to first token of a prompt of {length} tokens; medians of {runs}")?;
    writeln!(out)?;
    writeln!(out, "| {:<10} | {:>10} | {:>21} | {:>13} |", "from", "TTFT ms", "range", "cached tokens")?;
    writeln!(out, "| {:-<10} | {:->9}: | {:->20}: | {:->12}: |", "", "", "", "")?;
    for row in rows {
        let Summary { min, max, .. } = Summary::of(row.samples_ms.iter().copied());
        let range = format!("{min:.1} to {max:.1}");
        let cached = row.cached_tokens.iter().min().copied().unwrap_or(0);
        writeln!(out, "| {:<10} | {:>10.1} | {range:>21} | {cached:>13} |", row.name, row.median_ms)?;
    }
    out.flush()
}
