//! A decoder driven by batches.

use super::config::ModelConfig;
use super::layers::{Buffers, Decoder, Pass};
use super::{Batch, Launched, ModelLimits, Row, Runner, Usage};
use crate::compute::{Backend, CacheShape, DeviceError, Result, RopeTable, Span};
use crate::parallel::Communicator;
use crate::sample::{self, RowError, SampleRow, Sampled, Scratch};

/// Rows of logits that are made at a time: bounds their memory, whatever the batch asks for.
const LOGIT_ROWS: usize = 16;

pub struct ModelRunner<B: Backend> {
    backend: B,
    decoder: Decoder<B>,
    group: Box<dyn Communicator<B>>,
    limits: ModelLimits,
    dim: usize,
    buffers: Buffers<B>,
    caches: Vec<B::Cache>, // one for each layer
    ropes: Vec<RopeTable>,
    /// Hidden states of the wanted positions. [max_outputs, dim]
    hidden: B::Buf,
    some_hidden: B::Buf, // [LOGIT_ROWS, dim]
    logits: B::Buf,      // [LOGIT_ROWS, vocab_size]
    /// Buffer rows that are wanted, in order.
    wanted: Vec<usize>,
    scratch: Scratch,
    usage: Usage,
    kv_bytes_per_token: usize,
    /// A product with a key and one with a value, in every head of every layer.
    flops_per_past_token: usize,
}

impl<B: Backend> ModelRunner<B> {
    pub(super) fn new(
        mut backend: B,
        decoder: Decoder<B>,
        group: Box<dyn Communicator<B>>,
        config: &ModelConfig,
        limits: ModelLimits,
    ) -> Result<Self> {
        let (tokens, dim) = (limits.max_batched_tokens, config.dim);
        let buffers = Buffers {
            x: backend.alloc(tokens * dim)?,
            qkv: backend.alloc(tokens * config.qkv_rows())?,
            attended: backend.alloc(tokens * config.heads * config.head_dim)?,
            gated: backend.alloc(tokens * config.feed_forward)?,
            projected: backend.alloc(tokens * dim)?,
        };
        let shape = CacheShape {
            blocks: limits.num_blocks,
            block_size: limits.block_size,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        };
        let caches = (0..config.layers).map(|_| backend.cache(shape)).collect::<Result<_>>()?;
        Ok(Self {
            ropes: decoder.ropes.iter().map(|rope| RopeTable::new(rope.style)).collect(),
            hidden: backend.alloc(limits.max_outputs * dim)?,
            some_hidden: backend.alloc(LOGIT_ROWS * dim)?,
            logits: backend.alloc(LOGIT_ROWS * limits.vocab_size)?,
            backend,
            decoder,
            group,
            limits,
            dim,
            buffers,
            caches,
            wanted: Vec::new(),
            scratch: Scratch::default(),
            usage: Usage::default(),
            kv_bytes_per_token: config.kv_bytes_per_token(),
            flops_per_past_token: 4 * config.layers * config.heads * config.head_dim,
        })
    }

    /// Refuses what would read or write outside the buffers: a scheduler's mistake, not a user's.
    fn check(&self, batch: &Batch) -> Result<()> {
        let outputs: usize = batch.rows.iter().map(Row::num_outputs).sum();
        let limits = &self.limits;
        if batch.tokens.len() > limits.max_batched_tokens || outputs > limits.max_outputs {
            return Err(DeviceError(format!(
                "a batch of {} tokens and {outputs} outputs; the model was prepared for {} and {}",
                batch.tokens.len(),
                limits.max_batched_tokens,
                limits.max_outputs
            )));
        }
        if let Some(token) = batch.tokens.iter().find(|t| **t as usize >= limits.vocab_size) {
            return Err(DeviceError(format!(
                "token {token} is outside the vocabulary of {}",
                limits.vocab_size
            )));
        }
        for row in &batch.rows {
            let table = batch.table(row, 0, limits.groups.len());
            let end = row.start + row.tokens.len();
            if table.len() * limits.block_size < end || table.iter().any(|b| *b as usize >= limits.num_blocks)
            {
                return Err(DeviceError(format!(
                    "sequence {} has no block for position {}",
                    row.seq,
                    end - 1
                )));
            }
        }
        Ok(())
    }

    fn copy_blocks(&mut self, batch: &Batch) -> Result<()> {
        if batch.copies.is_empty() {
            return Ok(());
        }
        let copies: Vec<_> = batch.copies.iter().map(|c| (c.from, c.to)).collect();
        self.caches.iter_mut().try_for_each(|cache| self.backend.copy_blocks(cache, &copies))
    }

    /// Weights are read once a pass and multiplied with every token; a row reads its whole past, and
    /// each of its tokens is multiplied with its own.
    fn account(&mut self, batch: &Batch) {
        let size = self.decoder.size;
        let past: usize = batch.rows.iter().map(|r| r.start + r.tokens.len()).sum();
        let seen: usize = batch.rows.iter().map(|r| triangle(r.start, r.tokens.len())).sum();
        self.usage.bytes_read += (size.bytes + past * self.kv_bytes_per_token) as u64;
        self.usage.flops += (2 * size.weights * batch.tokens.len() + seen * self.flops_per_past_token) as u64;
    }
}

/// Positions seen by `len` tokens of which the first sees `start + 1`.
fn triangle(start: usize, len: usize) -> usize {
    len * start + len * (len + 1) / 2
}

impl<B: Backend> Runner for ModelRunner<B> {
    fn limits(&self) -> &ModelLimits {
        &self.limits
    }

    fn launch(&mut self, batch: &Batch) -> Result<Launched> {
        self.check(batch)?;
        self.copy_blocks(batch)?;
        let spans: Vec<Span> = batch
            .rows
            .iter()
            .map(|row| Span {
                first: row.tokens.start,
                len: row.tokens.len(),
                start: row.start,
                table: batch.table(row, 0, self.limits.groups.len()),
            })
            .collect();
        for (table, rope) in self.ropes.iter_mut().zip(&self.decoder.ropes) {
            let positions = batch.rows.iter().flat_map(|row| row.start..row.start + row.tokens.len());
            table.fill(positions, &rope.inverse_frequencies);
        }
        let mut pass = Pass {
            backend: &mut self.backend,
            group: &*self.group,
            caches: &mut self.caches,
            ropes: &self.ropes,
            spans: &spans,
            tokens: &batch.tokens,
        };
        self.decoder.forward(&mut pass, &mut self.buffers)?;
        self.wanted.clear();
        self.wanted.extend(batch.rows.iter().flat_map(Row::output_tokens));
        self.backend.gather(&mut self.hidden, &self.buffers.x, &self.wanted, self.dim)?;
        self.account(batch);
        Ok(Launched { outputs: self.wanted.len() })
    }

    fn sample(
        &mut self,
        launched: Launched,
        rows: &[SampleRow],
    ) -> Result<Vec<std::result::Result<Sampled, RowError>>> {
        assert_eq!(launched.outputs, rows.len(), "one sampling row for each output");
        let vocab_size = self.limits.vocab_size;
        let mut sampled = Vec::with_capacity(rows.len());
        for (chunk, rows) in rows.chunks(LOGIT_ROWS).enumerate() {
            let first = chunk * LOGIT_ROWS;
            let indices: [usize; LOGIT_ROWS] = std::array::from_fn(|i| first + i);
            self.backend.gather(&mut self.some_hidden, &self.hidden, &indices[..rows.len()], self.dim)?;
            self.decoder.head.forward(&mut self.backend, &mut self.logits, &self.some_hidden, rows.len())?;
            let logits = self.backend.download(&mut self.logits, rows.len() * vocab_size)?;
            for (logits, row) in logits.chunks_exact_mut(vocab_size).zip(rows) {
                sampled.push(sample::sample(logits, row, &mut self.scratch));
            }
            let size = self.backend.matrix_size(&self.decoder.head.weight);
            self.usage.bytes_read += size.bytes as u64;
            self.usage.flops += (2 * size.weights * rows.len()) as u64;
        }
        Ok(sampled)
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}
