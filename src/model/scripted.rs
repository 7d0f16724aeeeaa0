use super::{Batch, DeviceError, Launched, ModelLimits, RopeLengths, Row, Runner};
use crate::base::{self, Clock};
use crate::kv::{BlockId, CacheSpec};
use crate::protocol::TokenId;
use crate::sample::{RowError, SampleRow, Sampled, Scratch, sample};
use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Says what a test told it, over the toy vocabulary: the 256 bytes, an end token, `<think>` and
/// `</think>`. Makes tests of engine and screen exact and instant.
///
/// It keeps no tensors, but it does keep a shadow of the KV cache: which token, after which past,
/// was written to each slot of each block. Every launch reads the whole context of every row back
/// through its block table, and a row that would attend to anything but its own past is a
/// [`DeviceError`] that names the row, the position and what was found there.
pub struct Scripted {
    limits: ModelLimits,
    script: Script,
    shadow: Shadow,
    /// A hash of all that each launched output attends to.
    pasts: Vec<u64>,
    launches: u64,
    faults: Vec<(u64, Fault)>,
    lost: bool,
    poison: Option<Poison>,
    pace: Option<(Clock, Duration)>,
    recorder: Option<Sender<Batch>>,
    scratch: Scratch,
    logits: Vec<f32>,
}

/// Fills the logits after a row's tokens.
type Script = Box<dyn Fn(&SampleRow, &mut [f32]) + Send>;
type Poison = Box<dyn Fn(&SampleRow) -> bool + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `launch` gives a [`DeviceError`].
    Device,
    Panic,
    /// The same as `Device`, and so does every launch after it: it must be opened again.
    Lost,
}

impl Scripted {
    pub const VOCAB: usize = 259;
    pub const END: TokenId = 256;
    pub const THINK: TokenId = 257;
    pub const THINK_END: TokenId = 258;

    /// A pool of `num_blocks` blocks that sequences can own, and everything else ample.
    pub fn limits(num_blocks: usize, block_size: usize) -> ModelLimits {
        ModelLimits {
            vocab_size: Self::VOCAB,
            max_model_len: 4096,
            max_batched_tokens: 4096,
            max_outputs: 256,
            block_size,
            num_blocks: num_blocks + 1,
            bytes_per_block: SLOT_BYTES * block_size,
            groups: vec![CacheSpec::Full],
            rope_lengths: RopeLengths::Same,
            cache_identity: "scripted".into(),
        }
    }

    /// Answers every prompt with `reply`, then the end token.
    pub fn saying(limits: ModelLimits, reply: &str) -> Self {
        Self::replying(limits, &[("", reply)])
    }

    /// The reply beside the first text that the prompt contains.
    pub fn replying(limits: ModelLimits, replies: &[(&str, &str)]) -> Self {
        let replies: Vec<(Vec<u8>, Vec<TokenId>)> =
            replies.iter().map(|(prompt, reply)| (prompt.as_bytes().to_vec(), Self::encode(reply))).collect();
        Self::following(limits, move |prompt, generated| {
            let bytes: Vec<u8> = prompt.iter().filter_map(|id| u8::try_from(*id).ok()).collect();
            let found = replies
                .iter()
                .find(|(part, _)| part.is_empty() || bytes.windows(part.len()).any(|window| window == part));
            found.and_then(|(_, reply)| reply.get(generated.len()).copied()).unwrap_or(Self::END)
        })
    }

    /// The token that `next` names after a prompt and what was generated so far is far the likeliest.
    pub fn following(
        limits: ModelLimits,
        next: impl Fn(&[TokenId], &[TokenId]) -> TokenId + Send + 'static,
    ) -> Self {
        Self::with_logits(limits, move |row, logits| {
            noise(row.tokens, 1.0, logits);
            let (prompt, generated) = row.tokens.split_at(row.prompt_len.min(row.tokens.len()));
            logits[next(prompt, generated) as usize] = 20.0;
        })
    }

    /// Babbles: every logit is a hash of the whole past, so that any wrong token in it shows.
    pub fn babbling(limits: ModelLimits) -> Self {
        Self::with_logits(limits, |row, logits| noise(row.tokens, 8.0, logits))
    }

    pub fn with_logits(
        limits: ModelLimits,
        script: impl Fn(&SampleRow, &mut [f32]) + Send + 'static,
    ) -> Self {
        let shadow = Shadow::new(&limits);
        Self {
            logits: vec![0.0; limits.vocab_size],
            limits,
            script: Box::new(script),
            shadow,
            pasts: Vec::new(),
            launches: 0,
            faults: Vec::new(),
            lost: false,
            poison: None,
            pace: None,
            recorder: None,
            scratch: Scratch::default(),
        }
    }

    /// Fails at the `launch`-th launch, counted from 1.
    pub fn failing_at(mut self, launch: u64, fault: Fault) -> Self {
        self.faults.push((launch, fault));
        self
    }

    /// The logits of these rows are NaN.
    pub fn poisoning(mut self, rows: impl Fn(&SampleRow) -> bool + Send + 'static) -> Self {
        self.poison = Some(Box::new(rows));
        self
    }

    /// Every step moves the virtual clock by this much.
    pub fn taking(mut self, clock: Clock, step: Duration) -> Self {
        self.pace = Some((clock, step));
        self
    }

    /// Sends a copy of every batch.
    pub fn recording(mut self, recorder: Sender<Batch>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// A text as tokens of the toy vocabulary; think tags are single tokens.
    pub fn encode(text: &str) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let tags = [("<think>", Self::THINK), ("</think>", Self::THINK_END)];
            let tag = tags.into_iter().find(|(tag, _)| rest.starts_with(tag));
            let (id, len) = tag.map_or((TokenId::from(rest.as_bytes()[0]), 1), |(tag, id)| (id, tag.len()));
            tokens.push(id);
            // A byte of a longer character: the rest of it follows as bytes.
            match rest.is_char_boundary(len) {
                true => rest = &rest[len..],
                false => {
                    let char_len = rest.chars().next().map_or(1, char::len_utf8);
                    tokens.extend(rest.bytes().take(char_len).skip(1).map(TokenId::from));
                    rest = &rest[char_len..];
                }
            }
        }
        tokens
    }

    fn check(&self, batch: &Batch) -> Result<(), DeviceError> {
        let outputs: usize = batch.rows.iter().map(Row::num_outputs).sum();
        let bounds = [
            ("tokens", batch.tokens.len(), self.limits.max_batched_tokens),
            ("outputs", outputs, self.limits.max_outputs),
        ];
        for (what, given, most) in bounds {
            if given > most {
                return Err(DeviceError(format!("a batch of {given} {what}; the most is {most}")));
            }
        }
        Ok(())
    }
}

impl Runner for Scripted {
    fn limits(&self) -> &ModelLimits {
        &self.limits
    }

    fn launch(&mut self, batch: &Batch) -> Result<Launched, DeviceError> {
        self.launches += 1;
        match self.faults.iter().find(|(at, _)| *at == self.launches).map(|(_, fault)| fault) {
            Some(Fault::Device) => return Err(DeviceError("the device was told to fail".into())),
            Some(Fault::Panic) => panic!("the runner was told to panic"),
            Some(Fault::Lost) => self.lost = true,
            None => {}
        }
        if self.lost {
            return Err(DeviceError("the device was told to be lost".into()));
        }
        self.check(batch)?;
        self.pasts.clear();
        self.shadow.copy(batch)?;
        for row in &batch.rows {
            let pasts = self.shadow.run(batch, row)?;
            self.pasts.extend(row.output_tokens().map(|token| pasts[token - row.tokens.start]));
        }
        if let Some(recorder) = &self.recorder {
            // A test that stopped listening loses nothing.
            let _ = recorder.send(batch.clone());
        }
        Ok(Launched { outputs: self.pasts.len() })
    }

    fn sample(
        &mut self,
        launched: Launched,
        rows: &[SampleRow],
    ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError> {
        if launched.outputs != rows.len() {
            return Err(DeviceError(format!("{} rows for {} outputs", rows.len(), launched.outputs)));
        }
        if let Some((clock, step)) = &self.pace {
            clock.advance(*step);
        }
        let mut sampled = Vec::with_capacity(rows.len());
        for (row, past) in rows.iter().zip(&self.pasts) {
            // Nobody waits for it: its sequence has ended since.
            let unwanted = !row.draw && row.top == 0 && row.target.is_none();
            if !unwanted && row.tokens.iter().fold(0, |past, token| mix(past, *token)) != *past {
                return Err(DeviceError(format!(
                    "sequence {} attends to other tokens than its own",
                    row.seq
                )));
            }
            (self.script)(row, &mut self.logits);
            if self.poison.as_ref().is_some_and(|poison| poison(row)) {
                self.logits.fill(f32::NAN);
            }
            sampled.push(sample(&self.logits, row, &mut self.scratch));
        }
        Ok(sampled)
    }

    fn is_lost(&self) -> bool {
        self.lost
    }

    fn read_block(&mut self, block: BlockId, into: &mut [u8]) -> Result<(), DeviceError> {
        for (slot, bytes) in self.shadow.block(block).iter().zip(into.chunks_exact_mut(SLOT_BYTES)) {
            bytes.copy_from_slice(&slot.map_or([0; SLOT_BYTES], Written::to_bytes));
        }
        Ok(())
    }

    fn write_block(&mut self, block: BlockId, from: &[u8]) -> Result<(), DeviceError> {
        for (slot, bytes) in self.shadow.block(block).iter_mut().zip(from.chunks_exact(SLOT_BYTES)) {
            *slot = Written::from_bytes(bytes);
        }
        Ok(())
    }
}

/// Which token, with which past, each slot holds: slot `position % block_size` of a block. A block
/// belongs to one cache group at a time, as in vLLM's hybrid manager.
struct Shadow {
    block_size: usize,
    groups: Vec<CacheSpec>,
    slots: Vec<Option<Written>>,
    written: HashSet<usize>,
}

#[derive(Clone, Copy)]
struct Written {
    position: usize,
    token: TokenId,
    /// A hash of all tokens up to and with this one.
    past: u64,
}

const SLOT_BYTES: usize = 16;

impl Written {
    /// Position (from 1, so that nothing is all zeros), token, past; little endian.
    fn to_bytes(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..4].copy_from_slice(&(self.position as u32 + 1).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.token.to_le_bytes());
        bytes[8..].copy_from_slice(&self.past.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let past = u64::from(word(8)) | u64::from(word(12)) << 32;
        Some(Self { position: word(0).checked_sub(1)? as usize, token: word(4), past })
    }
}

impl Shadow {
    fn new(limits: &ModelLimits) -> Self {
        let slots = vec![None; limits.num_blocks * limits.block_size];
        let (block_size, groups) = (limits.block_size, limits.groups.clone());
        Self { block_size, groups, slots, written: HashSet::new() }
    }

    fn block(&mut self, block: BlockId) -> &mut [Option<Written>] {
        let from = block as usize * self.block_size;
        &mut self.slots[from..from + self.block_size]
    }

    fn copy(&mut self, batch: &Batch) -> Result<(), DeviceError> {
        self.written.clear();
        for copy in &batch.copies {
            if copy.from == 0 || copy.to == 0 || copy.from == copy.to {
                return Err(DeviceError(format!("a copy from block {} to block {}", copy.from, copy.to)));
            }
            let from = copy.from as usize * self.block_size;
            self.slots.copy_within(from..from + self.block_size, copy.to as usize * self.block_size);
        }
        Ok(())
    }

    /// Reads a row's past in every group, writes its tokens; the past after each of them.
    fn run(&mut self, batch: &Batch, row: &Row) -> Result<Vec<u64>, DeviceError> {
        let fail = |why: String| DeviceError(format!("sequence {}: {why}", row.seq));
        let (count, end) = (self.groups.len(), row.start + row.tokens.len());
        if row.tokens.is_empty() || row.blocks.len() < count * end.div_ceil(self.block_size) {
            return Err(fail(format!("{} blocks for positions up to {end}", row.blocks.len() / count)));
        }
        let mut before = None;
        for group in 0..count {
            let table = batch.table(row, group, count);
            let past = self.read(table, self.groups[group], row.start).map_err(fail)?;
            match (before, past) {
                (Some(one), Some(other)) if one != other => {
                    return Err(fail(format!("group {group} holds another past than those before it")));
                }
                (None, Some(_)) => before = past,
                _ => {}
            }
        }
        let mut past = before.unwrap_or(0);
        let pasts: Vec<u64> = batch.tokens[row.tokens.clone()]
            .iter()
            .map(|token| {
                past = mix(past, *token);
                past
            })
            .collect();
        for group in 0..count {
            let table = batch.table(row, group, count);
            for (position, (token, past)) in
                (row.start..).zip(batch.tokens[row.tokens.clone()].iter().zip(&pasts))
            {
                let slot = self.slot(table, self.groups[group], position);
                let fresh = self.groups[group] == CacheSpec::Recurrent || self.written.insert(slot);
                if slot < self.block_size || !fresh {
                    return Err(fail(format!("position {position} writes a slot that is not its own")));
                }
                self.slots[slot] = Some(Written { position, token: *token, past: *past });
            }
        }
        Ok(pasts)
    }

    /// What a group's layers would attend to before position `start`: the past there, where the group
    /// can tell.
    fn read(&self, table: &[BlockId], group: CacheSpec, start: usize) -> Result<Option<u64>, String> {
        let first = match group {
            CacheSpec::Full => 0,
            CacheSpec::Sliding { window } => (start + 1).saturating_sub(window),
            CacheSpec::Recurrent => start.saturating_sub(1),
        };
        let mut past = if first == 0 { Some(0) } else { None };
        for position in first..start {
            let slot = self.slot(table, group, position);
            match self.slots[slot] {
                Some(found)
                    if found.position == position
                        && past.is_none_or(|p| found.past == mix(p, found.token)) =>
                {
                    past = Some(found.past);
                }
                Some(found) => {
                    let (block, token, of) = (slot / self.block_size, found.token, found.position);
                    return Err(format!(
                        "position {position} reads block {block}, which holds token {token} of position {of} after another past"
                    ));
                }
                None => return Err(format!("position {position} was never written")),
            }
        }
        Ok(past)
    }

    /// A recurrent state lies in the first slot of the sequence's last block.
    fn slot(&self, table: &[BlockId], group: CacheSpec, position: usize) -> usize {
        match group {
            CacheSpec::Recurrent => table.last().map_or(0, |block| *block as usize * self.block_size),
            _ => table[position / self.block_size] as usize * self.block_size + position % self.block_size,
        }
    }
}

/// Evenly spread over [0, `spread`), the same for the same tokens.
fn noise(tokens: &[TokenId], spread: f32, logits: &mut [f32]) {
    let past = tokens.iter().fold(0, |past, token| mix(past, *token));
    for (logit, id) in logits.iter_mut().zip(0..) {
        *logit = (mix(past, id) >> 40) as f32 / (1 << 24) as f32 * spread;
    }
}

/// A running hash of tokens.
fn mix(past: u64, token: TokenId) -> u64 {
    base::mix(past.rotate_left(5), u64::from(token) + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{BlockCopy, Outputs};
    use crate::protocol::{RequestId, SeqId};

    fn seq(request: u64) -> SeqId {
        SeqId { request: RequestId(request), choice: 0 }
    }

    fn batch(seq: SeqId, tokens: &[TokenId], start: usize, blocks: &[BlockId]) -> Batch {
        let row = Row {
            seq,
            tokens: 0..tokens.len(),
            start,
            rope_len: 0,
            blocks: 0..blocks.len(),
            outputs: Outputs::Last,
        };
        Batch { copies: Vec::new(), tokens: tokens.to_vec(), blocks: blocks.to_vec(), rows: vec![row] }
    }

    fn refused(runner: &mut Scripted, batch: &Batch) -> String {
        runner.launch(batch).unwrap_err().0
    }

    #[test]
    fn texts_become_bytes_and_tags() {
        assert_eq!(Scripted::encode("<think>é</think>a"), [257, 0xC3, 0xA9, 258, 97]);
    }

    /// The check must bite, or the engine's tests prove nothing.
    #[test]
    fn a_row_that_attends_to_another_past_is_found() {
        let mut runner = Scripted::saying(Scripted::limits(8, 2), "x");
        runner.launch(&batch(seq(0), &[1, 2, 3], 0, &[1, 2])).unwrap();
        runner.launch(&batch(seq(0), &[4], 3, &[1, 2])).unwrap();
        assert!(refused(&mut runner, &batch(seq(0), &[5], 4, &[1, 4, 3])).contains("never written"));
        runner.launch(&batch(seq(1), &[9, 9], 0, &[5])).unwrap();
        assert!(refused(&mut runner, &batch(seq(0), &[5], 4, &[5, 2, 3])).contains("another past"));
        assert!(refused(&mut runner, &batch(seq(0), &[5], 4, &[1, 2])).contains("2 blocks"));
        assert!(refused(&mut runner, &batch(seq(0), &[5], 4, &[1, 2, 0])).contains("not its own"));
        runner.launch(&batch(seq(0), &[5], 4, &[1, 2, 3])).unwrap();
    }

    #[test]
    fn two_rows_may_not_write_one_slot_but_a_copy_parts_them() {
        let mut runner = Scripted::saying(Scripted::limits(8, 2), "x");
        runner.launch(&batch(seq(0), &[1], 0, &[1])).unwrap();
        let mut both = batch(seq(0), &[2], 1, &[1]);
        both.tokens.push(3);
        both.blocks.push(1);
        both.rows.push(Row {
            seq: seq(1),
            tokens: 1..2,
            start: 1,
            rope_len: 0,
            blocks: 1..2,
            outputs: Outputs::Last,
        });
        assert!(refused(&mut runner, &both).contains("not its own"));
        both.blocks[1] = 2;
        both.copies.push(BlockCopy { from: 1, to: 2 });
        assert_eq!(runner.launch(&both).unwrap().outputs, 2);
    }
}
