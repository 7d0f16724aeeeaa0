//! A decoder driven by batches.

use super::config::{ModelConfig, Widths};
use super::device_draw::{self, Places, RowMemory, device_row};
use super::groups::CacheLayout;
use super::layers::{Buffers, Decoder, Mixture, Pass, StateWork};
use super::{Batch, Launched, Meter, ModelLimits, Row, Runner, Usage};
use crate::compute::draw::DrawRow;
use crate::compute::{
    self, Backend, CacheShape, Capacity, DeviceError, MatrixSize, Result, RopeTable, Span, Spent, Step,
};
use crate::kv::{BlockId, CacheSpec};
use crate::parallel::Communicator;
use crate::protocol::{DeviceLimits, OperationTime};
use crate::sample::{self, RowError, SampleRow, Sampled, Scratch};

pub struct ModelRunner<B: Backend> {
    backend: B,
    decoder: Decoder<B>,
    group: Box<dyn Communicator<B>>,
    limits: ModelLimits,
    dim: usize,
    buffers: Buffers<B>,
    caches: Vec<B::Cache>, // as many as a cache group has layers
    layout: CacheLayout,
    ropes: Vec<RopeTable>,
    /// Hidden states of the wanted positions. [max_outputs, dim]
    hidden: B::Buf,
    some_hidden: B::Buf, // [logit_rows, dim]
    logits: B::Buf,      // [logit_rows, vocab_size]
    /// Rows of logits that are made at a time, whatever the batch asks for.
    logit_rows: usize,
    /// Buffer rows that are wanted, in order.
    wanted: Vec<usize>,
    scratch: Scratch,
    drawing: Drawing,
    usage: Usage,
    /// Windows of the layers, and how many have it.
    windows: Vec<(Option<usize>, usize)>,
    mixtures: Vec<MixtureSize>,
    states: StateWork,
    /// One token's keys and values in one layer.
    kv_bytes: usize,
    /// A product with a key and one with a value, in every head of a layer.
    flops_per_past_token: usize,
}

/// Experts of a layer: all their matrices, how many they are, and how many a token sees.
struct MixtureSize {
    all: MatrixSize,
    experts: usize,
    top: usize,
}

/// Outputs whose logits are made at a time: those from `first` on, or all.
struct Part<'a> {
    first: usize,
    rows: &'a [SampleRow<'a>],
    whole: bool,
}

type Drawn = std::result::Result<Sampled, RowError>;

/// What rows that a device draws from borrow.
#[derive(Default)]
struct Drawing {
    places: Places,
    memories: Vec<RowMemory>,
}

impl<B: Backend> ModelRunner<B> {
    pub(super) fn new(
        mut backend: B,
        decoder: Decoder<B>,
        group: Box<dyn Communicator<B>>,
        config: &ModelConfig,
        layout: CacheLayout,
        shape: CacheShape,
        limits: ModelLimits,
    ) -> Result<Self> {
        let (tokens, dim) = (limits.max_batched_tokens, config.dim);
        let ropes: Vec<RopeTable> = decoder.ropes.iter().map(|rope| RopeTable::new(rope.style)).collect();
        backend.prepare(&Capacity {
            tokens,
            outputs: limits.max_outputs,
            groups: limits.groups.len(),
            blocks: limits.max_model_len.div_ceil(limits.block_size),
            vocab: limits.vocab_size,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        })?;
        let logit_rows = backend.logit_rows().min(limits.max_outputs);
        let buffers = Buffers::new(&mut backend, tokens, dim, &config.widths)?;
        let caches = (0..layout.group_size).map(|_| backend.cache(shape)).collect::<Result<_>>()?;
        let mut windows: Vec<(Option<usize>, usize)> = Vec::new();
        let states = decoder.layers.iter().filter_map(|layer| layer.mixer.state()).sum();
        let attends = decoder.layers.iter().filter(|layer| layer.mixer.state().is_none());
        for window in attends.map(|layer| layer.mixer.window()) {
            match windows.iter_mut().find(|(known, _)| *known == window) {
                Some((_, layers)) => *layers += 1,
                None => windows.push((window, 1)),
            }
        }
        let mixtures = decoder.mixtures().map(|mixture| mixture_size(&backend, mixture)).collect();
        Ok(Self {
            ropes,
            hidden: backend.alloc(limits.max_outputs * dim)?,
            some_hidden: backend.alloc(logit_rows * dim)?,
            logits: backend.alloc(logit_rows * limits.vocab_size)?,
            logit_rows,
            backend,
            decoder,
            group,
            limits,
            dim,
            buffers,
            caches,
            layout,
            wanted: Vec::new(),
            scratch: Scratch::default(),
            drawing: Drawing::default(),
            usage: Usage::default(),
            windows,
            mixtures,
            states,
            kv_bytes: shape.kv_heads * shape.token_bytes(),
            flops_per_past_token: 4 * config.heads * config.head_dim,
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
        if let Some(copy) = batch.copies.iter().find(|c| !self.owns(c.from) || !self.owns(c.to)) {
            return Err(DeviceError(format!("a copy from block {} to block {}", copy.from, copy.to)));
        }
        batch.rows.iter().try_for_each(|row| {
            limits
                .groups
                .iter()
                .enumerate()
                .try_for_each(|(group, spec)| self.check_table(batch, row, group, *spec))
        })
    }

    /// Every position that the row writes or sees has a block. What lies before its window needs none:
    /// the null block stands there.
    fn check_table(&self, batch: &Batch, row: &Row, group: usize, spec: CacheSpec) -> Result<()> {
        let size = self.limits.block_size;
        let table = batch.table(row, group, self.limits.groups.len());
        if spec == CacheSpec::Recurrent {
            let state = table.last().is_some_and(|block| self.owns(*block));
            let problem = || {
                DeviceError(format!("sequence {} has no block for its state in cache group {group}", row.seq))
            };
            return if state { Ok(()) } else { Err(problem()) };
        }
        let end = row.start + row.tokens.len();
        let first = match spec {
            CacheSpec::Sliding { window } => (row.start + 1).saturating_sub(window),
            CacheSpec::Full | CacheSpec::Recurrent => 0,
        };
        let missing =
            (first / size..end.div_ceil(size)).find(|i| !table.get(*i).is_some_and(|b| self.owns(*b)));
        match missing {
            None => Ok(()),
            Some(block) => Err(DeviceError(format!(
                "sequence {} has no block for position {} in cache group {group}",
                row.seq,
                (block * size).max(first)
            ))),
        }
    }

    /// It is a block of the pool, and not the null block.
    fn owns(&self, block: BlockId) -> bool {
        (1..self.limits.num_blocks).contains(&(block as usize))
    }

    fn check_block(&self, block: BlockId, bytes: usize) -> Result<()> {
        let limits = &self.limits;
        if !self.owns(block) || bytes != limits.bytes_per_block {
            return Err(DeviceError(format!(
                "{bytes} bytes of block {block}: there are blocks 1 to {} of {} bytes",
                limits.num_blocks - 1,
                limits.bytes_per_block
            )));
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

    /// All rows of logits come to the host, and tokens are drawn here.
    fn draw_here(&mut self, part: Part, sampled: &mut Vec<Drawn>) -> Result<()> {
        let vocab = self.limits.vocab_size;
        self.backend.start()?;
        self.make_logits(&part)?;
        let logits = self.backend.download(&mut self.logits, 0..part.rows.len() * vocab)?;
        for (logits, row) in logits.chunks_exact_mut(vocab).zip(part.rows) {
            sampled.push(sample::sample(logits, row, &mut self.scratch));
        }
        Ok(())
    }

    /// The device draws what it can, and of the other rows the logits come here.
    fn draw_there(&mut self, part: Part, sampled: &mut Vec<Drawn>) -> Result<()> {
        let vocab = self.limits.vocab_size;
        let Drawing { places, memories } = &mut self.drawing;
        memories.resize_with(memories.len().max(part.rows.len()), Default::default);
        let asked: Vec<Option<DrawRow>> = (part.rows.iter().zip(memories))
            .map(|(row, memory)| device_row(row, vocab, places, memory))
            .collect();
        if asked.iter().all(Option::is_none) {
            return self.draw_here(part, sampled);
        }
        let here: Vec<bool> = asked.iter().map(Option::is_none).collect();
        let asked: Vec<DrawRow> = asked.into_iter().map(|row| row.unwrap_or(DrawRow::SCORED)).collect();
        self.backend.begin_logits(&asked)?;
        let made = self.make_logits(&part).and_then(|()| self.backend.draw(&mut self.logits));
        let ended = self.backend.end_logits(made.is_ok());
        made.and(ended)?;
        let drawn = self.backend.drawn()?;
        for (i, (row, drawn)) in part.rows.iter().zip(drawn).enumerate() {
            sampled.push(match here[i] {
                false => device_draw::sampled(drawn, row),
                true => {
                    let logits = self.backend.download(&mut self.logits, i * vocab..(i + 1) * vocab)?;
                    sample::sample(logits, row, &mut self.scratch)
                }
            });
        }
        Ok(())
    }

    fn make_logits(&mut self, part: &Part) -> Result<()> {
        let rows = part.rows.len();
        let hidden = if part.whole {
            &self.hidden
        } else {
            self.backend.copy_rows(&mut self.some_hidden, &self.hidden, part.first, rows, self.dim)?;
            &self.some_hidden
        };
        self.decoder.head.forward(&mut self.backend, &mut self.logits, hidden, rows)
    }

    /// Weights are read once a pass and multiplied with every token; in each layer a row reads the past
    /// that its first token sees and its own, and each of its tokens is multiplied with its own past.
    fn account(&mut self, batch: &Batch) {
        let size = self.decoder.size;
        self.usage.bytes_read += size.bytes as u64;
        self.usage.flops += (2 * size.weights * batch.tokens.len()) as u64;
        for MixtureSize { all, experts, top } in &self.mixtures {
            // Each token's may be others, until all are read.
            let pairs = batch.tokens.len() * top;
            self.usage.bytes_read += (all.bytes / experts * pairs.min(*experts)) as u64;
            self.usage.flops += (2 * all.weights / experts * pairs) as u64;
        }
        // Read once for all of a sequence's tokens, and changed by each.
        self.usage.bytes_read += (self.states.values * size_of::<f32>() * batch.rows.len()) as u64;
        self.usage.flops += (self.states.flops_per_token * batch.tokens.len()) as u64;
        for (window, layers) in &self.windows {
            let window = window.unwrap_or(usize::MAX);
            for row in &batch.rows {
                let (start, len) = (row.start, row.tokens.len());
                let past = start.min(window - 1) + len;
                self.usage.bytes_read += (layers * past * self.kv_bytes) as u64;
                self.usage.flops += (layers * seen(start, len, window) * self.flops_per_past_token) as u64;
            }
        }
    }
}

fn mixture_size<B: Backend>(backend: &B, mixture: &Mixture<B>) -> MixtureSize {
    let mut all = MatrixSize::default();
    [&mixture.gate, &mixture.up, &mixture.down].into_iter().for_each(|w| all += backend.matrix_size(w));
    MixtureSize { all, experts: mixture.rule.experts, top: mixture.rule.top }
}

fn device_limits(found: compute::Limits) -> DeviceLimits {
    let compute::Limits { units, memory_read, matrix, matrix_name, halves, f32 } = found;
    DeviceLimits { units: units.to_string(), memory_read, matrix, matrix_name, halves, f32 }
}

/// Bytes of all buffers of a runner, and of what the operations keep beside them.
pub(super) fn workspace_bytes(config: &ModelConfig, tokens: usize, backend: &impl Backend) -> usize {
    let Widths { normed, qkv, attended, gated, router, side } = config.widths;
    let dim = config.dim;
    let row = (3 + usize::from(normed)) * dim + qkv + attended + gated + router + side; // x, projected, hidden
    let values = tokens * row + backend.logit_rows().min(tokens) * (dim + config.vocab_size);
    let experts = config.mixture.map_or(0, |mixture| backend.mixture_bytes(tokens, &mixture));
    values * size_of::<f32>() + backend.scratch_bytes(tokens, dim.max(attended).max(gated)) + experts
}

/// Positions seen by `len` tokens of which the first sees `start + 1`, each at most `window`.
fn seen(start: usize, len: usize, window: usize) -> usize {
    let growing = window.saturating_sub(start).min(len);
    triangle(start, growing) + (len - growing) * window
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
        let groups = self.limits.groups.len();
        let span = |row: &Row, group| Span {
            first: row.tokens.start,
            len: row.tokens.len(),
            start: row.start,
            table: batch.table(row, group, groups),
        };
        let spans: Vec<Vec<Span>> =
            (0..groups).map(|group| batch.rows.iter().map(|row| span(row, group)).collect()).collect();
        for (table, rope) in self.ropes.iter_mut().zip(&self.decoder.ropes) {
            table.clear();
            for row in &batch.rows {
                rope.extend(table, row.start..row.start + row.tokens.len(), row.rope_len);
            }
        }
        self.wanted.clear();
        self.wanted.extend(batch.rows.iter().flat_map(Row::output_tokens));
        let wanted = &self.wanted;
        self.backend.begin(&Step { tokens: &batch.tokens, groups: &spans, ropes: &self.ropes, wanted })?;
        let mut pass = Pass {
            backend: &mut self.backend,
            group: &*self.group,
            caches: &mut self.caches,
            places: &self.layout.places,
            ropes: &self.ropes,
            spans: &spans,
            tokens: &batch.tokens,
        };
        let passed = self.decoder.forward(&mut pass, &mut self.buffers);
        let passed = passed
            .and_then(|()| self.backend.gather(&mut self.hidden, &self.buffers.x, &self.wanted, self.dim));
        let ended = self.backend.end(passed.is_ok());
        passed.and(ended)?;
        self.account(batch);
        Ok(Launched { outputs: self.wanted.len() })
    }

    fn sample(
        &mut self,
        launched: Launched,
        rows: &[SampleRow],
    ) -> Result<Vec<std::result::Result<Sampled, RowError>>> {
        assert_eq!(launched.outputs, rows.len(), "one sampling row for each output");
        if rows.is_empty() {
            self.backend.start()?;
        }
        let mut sampled = Vec::with_capacity(rows.len());
        for (chunk, of) in rows.chunks(self.logit_rows).enumerate() {
            let part = Part { first: chunk * self.logit_rows, rows: of, whole: of.len() == rows.len() };
            match self.backend.draws() {
                true => self.draw_there(part, &mut sampled)?,
                false => self.draw_here(part, &mut sampled)?,
            }
            let size = self.backend.matrix_size(&self.decoder.head.weight);
            self.usage.bytes_read += size.bytes as u64;
            self.usage.flops += (2 * size.weights * of.len()) as u64;
        }
        Ok(sampled)
    }

    fn start(&mut self) -> Result<()> {
        self.backend.start()
    }

    fn read_block(&mut self, block: BlockId, into: &mut [u8]) -> Result<()> {
        self.check_block(block, into.len())?;
        self.backend.read_block(&self.caches, block, into)
    }

    fn write_block(&mut self, block: BlockId, from: &[u8]) -> Result<()> {
        self.check_block(block, from.len())?;
        self.backend.write_block(&mut self.caches, block, from)
    }

    fn meter(&self) -> Option<Meter> {
        let meter = self.backend.meter()?;
        Some(Box::new(move |stop| meter(stop).map(device_limits)))
    }

    fn is_lost(&self) -> bool {
        self.backend.is_lost()
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn take_profile(&mut self) -> Vec<OperationTime> {
        let time = |Spent { name, calls, time, work }| OperationTime {
            name: name.into(),
            calls,
            us: time.as_secs_f64() * 1e6,
            bytes: work.bytes,
            flops: work.flops,
        };
        self.backend.take_profile().into_iter().map(time).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::seen;

    #[test]
    fn each_token_sees_its_past_and_at_most_the_window() {
        for window in [1, 2, 5, 9, 100, usize::MAX] {
            for (start, len) in [(0, 0), (0, 1), (0, 9), (3, 4), (8, 1), (20, 3)] {
                let counted: usize = (start..start + len).map(|i| (i + 1).min(window)).sum();
                assert_eq!(seen(start, len, window), counted, "{len} from {start}, window {window}");
            }
        }
    }
}
