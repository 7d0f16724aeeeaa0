//! Driving a `Runner` by hand: what the parity tests share.
#![allow(dead_code, unused_imports, clippy::unwrap_used)]

mod cpu;
mod golden;

pub use cpu::{cpu, isa};
pub use golden::Golden;

use glassbox::compute::cpu::{Cpu, Isa};
use glassbox::model::{self, Batch, LoadOptions, Outputs, Row, Runner};
use glassbox::protocol::{RequestId, SamplingParams, SeqId, TokenId};
use glassbox::sample::{Phrases, SampleRow, Sampled, SamplerState};
use glassbox::weights::Checkpoint;
use std::path::{Path, PathBuf};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub fn load(path: &Path, threads: usize, isa: Isa) -> Box<dyn Runner> {
    load_with(&Checkpoint::open(path).unwrap(), threads, isa, &LoadOptions::default())
}

pub fn load_with(file: &Checkpoint, threads: usize, isa: Isa, options: &LoadOptions) -> Box<dyn Runner> {
    model::load(file, Cpu::with_isa(Some(threads), isa), options, &|_, _| ()).unwrap().runner
}

/// Blocks of its own for a sequence of so many tokens, from `first` on: a table for each cache group.
pub fn own_blocks(runner: &dyn Runner, first: u32, tokens: usize) -> Vec<u32> {
    let limits = runner.limits();
    let count = tokens.div_ceil(limits.block_size) * limits.groups.len();
    let blocks: Vec<u32> = (first..).take(count).collect();
    assert!(blocks.iter().all(|b| (*b as usize) < limits.num_blocks), "{} blocks", limits.num_blocks);
    blocks
}

/// One sequence's place in a hand-made batch.
pub struct Driven<'a> {
    pub seq: u64,
    pub tokens: &'a [TokenId],
    pub start: usize,
    /// One table for each cache group, one after the other.
    pub blocks: Vec<u32>,
    pub outputs: Outputs,
}

pub fn batch(rows: &[Driven]) -> Batch {
    let mut batch = Batch::default();
    for row in rows {
        let (tokens, blocks) = (batch.tokens.len(), batch.blocks.len());
        batch.tokens.extend(row.tokens);
        batch.blocks.extend(&row.blocks);
        batch.rows.push(Row {
            seq: SeqId { request: RequestId(row.seq), choice: 0 },
            tokens: tokens..batch.tokens.len(),
            start: row.start,
            rope_len: 0,
            blocks: blocks..batch.blocks.len(),
            outputs: row.outputs,
        });
    }
    batch
}

/// Runs a batch; each output's `top` likeliest tokens with their logits.
pub fn run(runner: &mut dyn Runner, rows: &[Driven], top: usize) -> Vec<Sampled> {
    run_batch(runner, &batch(rows), top)
}

pub fn run_batch(runner: &mut dyn Runner, batch: &Batch, top: usize) -> Vec<Sampled> {
    let params = SamplingParams { temperature: 0.0, ..Default::default() };
    let launched = runner.launch(batch).unwrap();
    let phrases = Phrases::default();
    let row = |seq| SampleRow {
        seq,
        params: &params,
        seed: 0,
        tokens: &[0],
        prompt_len: 1,
        end_tokens: &[],
        mask: None,
        phrases: &phrases,
        state: SamplerState::default(),
        draw: true,
        target: None,
        top,
        beams: 0,
        trace: 0,
        keep: None,
    };
    let rows: Vec<_> = (0..launched.outputs).map(|_| row(SeqId::default())).collect();
    runner.sample(launched, &rows).unwrap().into_iter().map(|s| s.unwrap()).collect()
}

/// Whole rows of logits, by token id.
pub fn logits(sampled: &[Sampled], vocab: usize) -> Vec<Vec<f32>> {
    sampled
        .iter()
        .map(|s| {
            assert_eq!(s.top.len(), vocab);
            let mut row = vec![0.0; vocab];
            s.top.iter().for_each(|t| row[t.id as usize] = t.logit);
            row
        })
        .collect()
}
