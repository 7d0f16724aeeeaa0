//! The lines of a trace file as data. Keys are short because there are many lines; docs/trace.md says
//! what each means.

use crate::protocol::{
    BeamView, Command, KvEvent, MemoryPlan, ModelInfo, Preemption, Reason, RowKind, RowRecord,
    SchedulerSettings, SeqId, SequenceState, SetBreakpoint, Shortage, TierView, Waiting,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of the lines written here. A reader takes what it knows of a later one.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub glassbox_trace: u32,
    /// Version of the program that recorded.
    #[serde(default)]
    pub glassbox: String,
    /// None: the model did not load.
    #[serde(default)]
    pub model: Option<ModelInfo>,
    #[serde(default)]
    pub scheduler: SchedulerSettings,
    /// How many, the null block too; tokens and bytes of each.
    #[serde(default)]
    pub blocks: usize,
    #[serde(default)]
    pub block_size: usize,
    #[serde(default)]
    pub bytes_per_block: usize,
    #[serde(default)]
    pub memory: MemoryPlan,
}

/// Every other line. Times are microseconds since the header was written.
#[derive(Debug)]
pub enum Line {
    /// A batch of events, as one step sent it.
    Events(EventsLine),
    Command(CommandLine),
    Step(Box<StepLine>),
    View(Box<ViewLine>),
    Kv(KvLine),
    Gap(GapLine),
}

impl Line {
    /// `None` for a line of a kind that only a later version knows; the keys that are new to this one.
    ///
    /// # Errors
    /// What is wrong with a line of a known kind.
    pub fn read(value: Value) -> Result<(Option<Line>, Vec<String>), serde_json::Error> {
        let Value::Object(map) = &value else {
            return Err(serde::de::Error::custom("a line is a JSON object"));
        };
        let has = |key: &str| map.contains_key(key);
        let kind = KINDS.iter().find(|(key, _)| has(key));
        let Some((key, known)) = kind else { return Ok((None, map.keys().cloned().collect())) };
        let unknown = map.keys().filter(|key| !known.contains(&key.as_str())).cloned().collect();
        let line = match *key {
            "e" => Line::Events(serde_json::from_value(value)?),
            "command" => Line::Command(serde_json::from_value(value)?),
            "s" => Line::Step(serde_json::from_value(value)?),
            "v" => Line::View(serde_json::from_value(value)?),
            "kv" => Line::Kv(serde_json::from_value(value)?),
            _ => Line::Gap(serde_json::from_value(value)?),
        };
        Ok((Some(line), unknown))
    }
}

/// By the key that only this kind has.
const KINDS: [(&str, &[&str]); 6] = [
    ("e", &["t", "e"]),
    ("command", &["t", "command"]),
    ("s", &["s", "a", "p", "r", "n", "m", "l", "w", "x", "k", "f", "b", "c", "u"]),
    ("v", &["t", "v", "q", "g", "o", "b", "n", "c", "z", "scheduler", "breakpoints", "u"]),
    ("kv", &["t", "kv"]),
    ("gap", &["t", "gap"]),
];

#[derive(Debug, Serialize, Deserialize)]
pub struct EventsLine {
    pub t: u64,
    pub e: Vec<Value>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct CommandLine {
    pub t: u64,
    pub command: Command,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct KvLine {
    pub t: u64,
    pub kv: Vec<KvEvent>,
}

/// Steps that were gone before they could be written: the first and the last.
#[derive(Debug, Serialize, Deserialize)]
pub struct GapLine {
    pub t: u64,
    pub gap: (u64, u64),
}

/// A `StepRecord`. What is absent is as in the step before, or follows from the rows.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepLine {
    /// Its number.
    pub s: u64,
    /// Microseconds from the engine's start to the step's.
    #[serde(default)]
    pub a: u64,
    /// Microseconds of schedule, forward, sample, output.
    #[serde(default)]
    pub p: [u64; 4],
    #[serde(default)]
    pub r: Vec<Row>,
    /// Tokens scheduled, where they are not the sum of the rows'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<usize>,
    /// Token budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub m: Option<usize>,
    /// Slots: all, used, idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l: Option<[usize; 3]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub w: Option<WaitingPatch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub x: Vec<Preempted>,
    /// Blocks taken, freed, hit, evicted, copied, saved, loaded; zeros at the end left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub k: Vec<usize>,
    /// Blocks free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f: Option<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub b: Vec<BlockForm>,
    /// By how much each counter grew.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub c: BTreeMap<String, i64>,
    /// The sampler's waterfall of the focused sequence's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub u: Option<Value>,
    /// A beam search, as the panel shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e: Option<Arc<BeamView>>,
}

/// What a snapshot says beyond what the steps up to it do.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ViewLine {
    #[serde(default)]
    pub t: u64,
    /// Of which step it is.
    pub v: u64,
    /// Sequences that are new, or not what their rows made of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub q: Vec<SequenceForm>,
    /// Sequences that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub g: Vec<Seq>,
    /// All sequences, where their order changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub o: Option<Vec<Seq>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub b: Vec<BlockForm>,
    /// Blocks free, cached, owned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<[usize; 3]>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub c: BTreeMap<String, i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub z: Option<Vec<TierView>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakpoints: Option<Vec<SetBreakpoint>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub u: Option<Value>,
}

impl ViewLine {
    /// Nothing that its steps did not say.
    pub fn is_empty(&self) -> bool {
        *self == ViewLine { t: self.t, v: self.v, ..ViewLine::default() }
    }
}

/// Request, or `[request, choice]` where the choice is not the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Seq {
    First(u64),
    Choice(u64, u32),
}

impl From<SeqId> for Seq {
    fn from(seq: SeqId) -> Self {
        match seq.choice {
            0 => Seq::First(seq.request.0),
            choice => Seq::Choice(seq.request.0, choice),
        }
    }
}

impl From<Seq> for SeqId {
    fn from(seq: Seq) -> Self {
        let (request, choice) = match seq {
            Seq::First(request) => (request, 0),
            Seq::Choice(request, choice) => (request, choice),
        };
        SeqId { request: crate::protocol::RequestId(request), choice }
    }
}

/// `[seq, kind, tokens, computed, sampled]`; kind 0 is prefill, 1 decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row(Seq, u8, usize, usize, Option<u32>);

impl From<&RowRecord> for Row {
    fn from(row: &RowRecord) -> Self {
        let kind = u8::from(row.kind == RowKind::Decode);
        Row(row.seq.into(), kind, row.tokens, row.computed, row.sampled)
    }
}

impl From<&Row> for RowRecord {
    fn from(&Row(seq, kind, tokens, computed, sampled): &Row) -> Self {
        let kind = if kind == 0 { RowKind::Prefill } else { RowKind::Decode };
        RowRecord { seq: seq.into(), kind, tokens, computed, sampled }
    }
}

/// `[length, [[at, seq, reason], ...]]`: the waiting of the step before, cut or grown to this length,
/// with these put in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitingPatch(pub usize, pub Vec<(usize, Seq, Reason)>);

impl WaitingPatch {
    pub fn between(before: &[Waiting], after: &[Waiting]) -> Option<Self> {
        let changed = after.iter().enumerate().filter(|(i, waiting)| before.get(*i) != Some(waiting));
        let changed: Vec<_> = changed.map(|(i, w)| (i, Seq::from(w.seq), w.reason)).collect();
        (!changed.is_empty() || before.len() != after.len()).then_some(Self(after.len(), changed))
    }

    pub fn apply(&self, waiting: &mut Vec<Waiting>) {
        waiting.truncate(self.0);
        for (at, seq, reason) in &self.1 {
            let new = Waiting { seq: (*seq).into(), reason: *reason };
            match waiting.get_mut(*at) {
                Some(old) => *old = new,
                None => waiting.push(new),
            }
        }
    }
}

/// `[seq, blocks freed, swapped, by, [needed, free, cached, reserved]]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preempted(Seq, usize, u8, Seq, [usize; 4]);

impl From<&Preemption> for Preempted {
    fn from(p: &Preemption) -> Self {
        let Shortage { needed, free, cached, reserved } = p.shortage;
        let shortage = [needed, free, cached, reserved];
        Preempted(p.seq.into(), p.blocks_freed, p.swapped.into(), p.by.into(), shortage)
    }
}

impl From<&Preempted> for Preemption {
    fn from(&Preempted(seq, blocks_freed, swapped, by, shortage): &Preempted) -> Self {
        let [needed, free, cached, reserved] = shortage;
        let shortage = Shortage { needed, free, cached, reserved };
        Preemption { seq: seq.into(), blocks_freed, swapped: swapped != 0, by: by.into(), shortage }
    }
}

/// `[block, references, cached, owner, used]`; a `used` that is absent is the step of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockForm {
    pub block: u32,
    pub references: u16,
    pub cached: bool,
    pub owner: Option<Seq>,
    pub used: Option<u64>,
}

impl Serialize for BlockForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (block, references, cached) = (self.block, self.references, u8::from(self.cached));
        match (self.owner, self.used) {
            (None, None) => (block, references, cached).serialize(serializer),
            (owner, None) => (block, references, cached, owner).serialize(serializer),
            (owner, used) => (block, references, cached, owner, used).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for BlockForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Five(u32, u16, u8, Option<Seq>, Option<u64>),
            Four(u32, u16, u8, Option<Seq>),
            Three(u32, u16, u8),
        }
        let (block, references, cached, owner, used) = match Form::deserialize(deserializer)? {
            Form::Five(block, references, cached, owner, used) => (block, references, cached, owner, used),
            Form::Four(block, references, cached, owner) => (block, references, cached, owner, None),
            Form::Three(block, references, cached) => (block, references, cached, None, None),
        };
        Ok(Self { block, references, cached: cached != 0, owner, used })
    }
}

/// `[seq, state, prompt, cached, generated, computed, preemptions, kept, [blocks]]`: tokens, and the
/// block table, of which the first `kept` are as they were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequenceForm(
    pub Seq,
    pub SequenceState,
    pub usize,
    pub usize,
    pub usize,
    pub usize,
    pub u32,
    pub usize,
    pub Vec<u32>,
);

/// Microseconds of milliseconds.
pub fn us(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

pub fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}
