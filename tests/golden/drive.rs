//! A model that prompts are put through, in one pass or in many.

use super::support::{Driven, batch, isa, logits, own_blocks, run_batch};
use glassbox::compute::cpu::Cpu;
use glassbox::model::{self, LoadOptions, Outputs, Runner};
use glassbox::protocol::KvCacheDtype;
use glassbox::weights::Checkpoint;

pub struct Model {
    runner: Box<dyn Runner>,
    vocab: usize,
}

pub type Rows = Vec<Vec<f32>>;

/// A part of a sequence: the tokens from `start` to `end` of them, in blocks from `first` on.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    pub tokens: &'a [u32],
    pub start: usize,
    pub end: usize,
    pub first_block: u32,
}

impl Model {
    pub fn load(file: &Checkpoint) -> Result<Self, model::LoadError> {
        let options = LoadOptions {
            kv_cache_dtype: KvCacheDtype::F32,
            // Whatever the context that a case says it was trained for.
            kv_cache_bytes: Some(16 << 20),
            ..LoadOptions::default()
        };
        let loaded = model::load(file, Cpu::with_isa(Some(2), isa()), &options, &|_, _| ())?;
        let vocab = loaded.runner.limits().vocab_size;
        Ok(Self { runner: loaded.runner, vocab })
    }

    /// One pass; logits after every token of every part, part after part.
    pub fn pass(&mut self, parts: &[Part]) -> Vec<Rows> {
        let driven: Vec<Driven> = parts.iter().enumerate().map(|(i, part)| self.driven(i, part)).collect();
        let mut batch = batch(&driven);
        // The sequence as it will be in the end.
        batch.rows.iter_mut().zip(parts).for_each(|(row, part)| row.rope_len = part.tokens.len());
        let sampled = run_batch(&mut *self.runner, &batch, self.vocab);
        let mut all = logits(&sampled, self.vocab).into_iter();
        parts.iter().map(|part| all.by_ref().take(part.end - part.start).collect()).collect()
    }

    fn driven<'a>(&self, seq: usize, part: &Part<'a>) -> Driven<'a> {
        Driven {
            seq: seq as u64,
            tokens: &part.tokens[part.start..part.end],
            start: part.start,
            blocks: own_blocks(&*self.runner, part.first_block, part.tokens.len()),
            outputs: Outputs::All,
        }
    }

    /// Blocks that a sequence of so many tokens takes.
    pub fn blocks(&self, tokens: usize) -> u32 {
        own_blocks(&*self.runner, 1, tokens).len() as u32
    }

    pub fn whole(&mut self, tokens: &[u32]) -> Rows {
        self.pass(&[Part { tokens, start: 0, end: tokens.len(), first_block: 1 }]).remove(0)
    }

    pub fn chunked(&mut self, tokens: &[u32], size: usize) -> Rows {
        let starts = (0..tokens.len()).step_by(size);
        let parts =
            starts.map(|start| Part { tokens, start, end: (start + size).min(tokens.len()), first_block: 3 });
        parts.flat_map(|part| self.pass(&[part]).remove(0)).collect()
    }

    /// The prompt, then token by token what is likeliest.
    pub fn greedy(&mut self, prompt: &[u32], steps: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        tokens.resize(prompt.len() + steps, 0);
        let mut computed = 0;
        for at in prompt.len()..tokens.len() {
            let part = Part { tokens: &tokens, start: computed, end: at, first_block: 1 };
            tokens[at] = likeliest(self.pass(&[part])[0].last().unwrap());
            computed = at;
        }
        tokens.split_off(prompt.len())
    }
}

fn likeliest(row: &[f32]) -> u32 {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as u32
}
