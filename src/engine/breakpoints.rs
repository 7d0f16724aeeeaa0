use crate::protocol::{
    Breakpoint, RequestId, SeqId, SetBreakpoint, StepRecord, Threshold, TokenId, TokenMatch, WatchedState,
};

/// The breakpoints in force. Ids are counted from 1 and never used again.
#[derive(Debug, Default)]
pub struct Breakpoints {
    set: Vec<SetBreakpoint>,
    /// Of those on KV use: ids of the ones that were met and stay met until the use falls.
    over: Vec<u32>,
    last_id: u32,
}

/// What one step did, as far as breakpoints can tell.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub record: &'a StepRecord,
    /// Blocks of the pool that sequences may own.
    pub total_blocks: usize,
    pub drawn: &'a [Drawn<'a>],
    /// States that sequences got into since the step before.
    pub states: &'a [(SeqId, WatchedState)],
}

/// A token of this step. Entropy in nats and natural log-probability, both of the distribution
/// before the sampler's stages.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'a> {
    pub seq: SeqId,
    pub id: TokenId,
    pub text: &'a str,
    pub entropy: f32,
    pub logprob: f32,
}

impl Breakpoints {
    /// Its id.
    pub fn add(&mut self, on: Breakpoint) -> u32 {
        self.last_id += 1;
        self.set.push(SetBreakpoint { id: self.last_id, on, hits: 0 });
        self.last_id
    }

    /// Takes one away, or all; says how many went.
    pub fn clear(&mut self, id: Option<u32>) -> usize {
        let before = self.set.len();
        self.set.retain(|set| id.is_some_and(|id| set.id != id));
        self.over.retain(|over| self.set.iter().any(|set| set.id == *over));
        before - self.set.len()
    }

    pub fn list(&self) -> &[SetBreakpoint] {
        &self.set
    }

    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// The oldest breakpoint that this step met, and why. Every one that was met counts a hit.
    pub fn check(&mut self, seen: &Seen) -> Option<(u32, String)> {
        let mut first = None;
        for set in &mut self.set {
            let met = reason(&set.on, seen);
            // A level stays met while it is exceeded: it stops the engine once, not at every step.
            if let Breakpoint::KvUse { .. } = set.on {
                let was_over = self.over.contains(&set.id);
                match (&met, was_over) {
                    (Some(_), true) => continue,
                    (Some(_), false) => self.over.push(set.id),
                    (None, _) => self.over.retain(|id| *id != set.id),
                }
            }
            if let Some(why) = met {
                set.hits += 1;
                first.get_or_insert((set.id, why));
            }
        }
        first
    }
}

/// Why the step met the condition, in words with their numbers.
fn reason(on: &Breakpoint, seen: &Seen) -> Option<String> {
    let record = seen.record;
    match on {
        Breakpoint::Preemption => record
            .preempted
            .first()
            .map(|p| format!("sequence {} gave back {}: {p}", p.seq, counted(p.blocks_freed, "block"))),
        Breakpoint::Eviction => (record.blocks_evicted > 0).then(|| {
            let were = if record.blocks_evicted == 1 { "was" } else { "were" };
            format!("{} {were} dropped", counted(record.blocks_evicted, "cached block"))
        }),
        Breakpoint::CopyOnWrite => (record.blocks_copied > 0).then(|| {
            let were = if record.blocks_copied == 1 { "was" } else { "were" };
            format!("{} {were} copied before a write", counted(record.blocks_copied, "shared block"))
        }),
        Breakpoint::Token { request, token } => {
            let met = |drawn: &&Drawn| is_of(drawn.seq, *request) && matches(token, drawn);
            seen.drawn.iter().find(met).map(drew)
        }
        Breakpoint::Entropy(limit) => {
            seen.drawn.iter().find(|drawn| limit.is_met(drawn.entropy)).map(|drawn| {
                format!("{} at an entropy of {} nats, {}", drew(drawn), short(drawn.entropy), side(*limit))
            })
        }
        Breakpoint::Probability(limit) => {
            let met = seen.drawn.iter().find(|drawn| limit.is_met(drawn.logprob.exp()));
            met.map(|drawn| {
                format!("{} with probability {}, {}", drew(drawn), short(drawn.logprob.exp()), side(*limit))
            })
        }
        Breakpoint::KvUse { above } => {
            let owned = seen.total_blocks.saturating_sub(record.blocks_free);
            let share = owned as f64 / seen.total_blocks.max(1) as f64;
            (share > f64::from(*above)).then(|| {
                let (share, limit) = (share * 100.0, f64::from(*above) * 100.0);
                let total = seen.total_blocks;
                format!(
                    "sequences own {owned} of {total} blocks, {share:.1}%, above {}%",
                    short(limit as f32)
                )
            })
        }
        Breakpoint::State { request, state } => {
            let met = seen.states.iter().find(|(seq, now)| now == state && is_of(*seq, *request));
            met.map(|(seq, now)| format!("sequence {seq} is {}", now.name()))
        }
        Breakpoint::Step(step) => (record.step == *step).then(|| format!("step {step} was taken")),
    }
}

fn is_of(seq: SeqId, request: Option<RequestId>) -> bool {
    request.is_none_or(|request| seq.request == request)
}

fn matches(token: &TokenMatch, drawn: &Drawn) -> bool {
    match token {
        TokenMatch::Id(id) => drawn.id == *id,
        TokenMatch::Text(text) => drawn.text.contains(text),
    }
}

fn drew(drawn: &Drawn) -> String {
    format!("sequence {} drew {:?} ({})", drawn.seq, drawn.text, drawn.id)
}

fn side(limit: Threshold) -> String {
    match limit {
        Threshold::Above(limit) => format!("above {}", short(limit)),
        Threshold::Below(limit) => format!("below {}", short(limit)),
    }
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Three decimals, or two digits of what is smaller, without zeros at the end.
fn short(x: f32) -> String {
    let digits = if x == 0.0 || x.abs() >= 0.01 { 3 } else { (1.0 - x.abs().log10().floor()) as usize };
    let text = format!("{x:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protocol::{Preemption, SequenceState, Shortage};

    fn seq(request: u64) -> SeqId {
        SeqId { request: RequestId(request), choice: 0 }
    }

    fn record() -> StepRecord {
        StepRecord { step: 120, blocks_free: 25, ..StepRecord::default() }
    }

    fn paris() -> Drawn<'static> {
        Drawn { seq: seq(2), id: 7042, text: " Paris", entropy: 2.75, logprob: 0.031f32.ln() }
    }

    fn quiet(record: &StepRecord) -> Seen<'_> {
        Seen { record, total_blocks: 100, drawn: &[], states: &[] }
    }

    /// What one breakpoint says of a step, twice the same.
    fn said(on: &str, seen: &Seen) -> Option<String> {
        let mut breakpoints = Breakpoints::default();
        breakpoints.add(on.parse().unwrap());
        let (id, why) = breakpoints.check(seen)?;
        assert_eq!((id, breakpoints.list()[0].hits), (1, 1));
        Some(why)
    }

    #[test]
    fn a_preemption_names_who_gave_way_and_for_whom() {
        let shortage = Shortage { needed: 1, ..Shortage::default() };
        let preempted =
            vec![Preemption { seq: seq(3), blocks_freed: 5, swapped: false, by: seq(2), shortage }];
        let why = said("preemption", &quiet(&StepRecord { preempted, ..record() })).unwrap();
        assert_eq!(why, "sequence 3 gave back 5 blocks: sequence 2 needs 1 block, 0 free, 0 evictable");
        assert_eq!(said("preemption", &quiet(&record())), None);
    }

    #[test]
    fn evictions_and_copies_are_counted() {
        let step = StepRecord { blocks_evicted: 2, blocks_copied: 1, ..record() };
        assert_eq!(said("eviction", &quiet(&step)).unwrap(), "2 cached blocks were dropped");
        assert_eq!(said("cow", &quiet(&step)).unwrap(), "1 shared block was copied before a write");
        assert_eq!(said("eviction", &quiet(&record())), None);
        assert_eq!(said("cow", &quiet(&record())), None);
    }

    #[test]
    fn a_token_is_met_by_its_id_or_by_a_part_of_its_text_in_any_or_one_request() {
        let step = record();
        let seen = Seen { drawn: &[paris()], ..quiet(&step) };
        for on in ["token 7042", "token \"Par\"", "token of 2 \" Paris\"", "token of 2 7042"] {
            assert_eq!(said(on, &seen).unwrap(), "sequence 2 drew \" Paris\" (7042)", "{on}");
        }
        for on in ["token 7043", "token \"paris\"", "token of 3 7042"] {
            assert_eq!(said(on, &seen), None, "{on}");
        }
    }

    #[test]
    fn entropy_and_probability_are_those_of_the_drawn_token() {
        let step = record();
        let seen = Seen { drawn: &[paris()], ..quiet(&step) };
        assert_eq!(
            said("entropy > 2.5", &seen).unwrap(),
            "sequence 2 drew \" Paris\" (7042) at an entropy of 2.75 nats, above 2.5"
        );
        assert_eq!(
            said("p < 0.05", &seen).unwrap(),
            "sequence 2 drew \" Paris\" (7042) with probability 0.031, below 0.05"
        );
        for on in ["entropy < 2.5", "entropy > 3", "p > 0.05", "p < 0.03"] {
            assert_eq!(said(on, &seen), None, "{on}");
        }
        let rare = Drawn { logprob: 0.00042f32.ln(), ..paris() };
        let why = said("p < 0.05", &Seen { drawn: &[rare], ..seen }).unwrap();
        assert!(why.contains("probability 0.00042,"), "{why}");
    }

    #[test]
    fn the_kv_cache_is_met_once_each_time_it_fills_up() {
        let (full, empty) = (record(), StepRecord { blocks_free: 60, ..record() });
        let mut breakpoints = Breakpoints::default();
        breakpoints.add("kv > 70%".parse().unwrap());
        let mut met = |record| breakpoints.check(&quiet(record)).map(|(_, why)| why);
        assert_eq!(met(&empty), None);
        assert_eq!(met(&full).unwrap(), "sequences own 75 of 100 blocks, 75.0%, above 70%");
        assert_eq!(met(&full), None, "still full: said already");
        assert_eq!(met(&empty), None);
        assert!(met(&full).is_some());
        assert_eq!(breakpoints.list()[0].hits, 2);
    }

    #[test]
    fn a_state_is_met_when_a_sequence_gets_into_it() {
        let step = record();
        let states = [(seq(2), WatchedState::Is(SequenceState::Preempted)), (seq(3), WatchedState::Finished)];
        let seen = Seen { states: &states, ..quiet(&step) };
        assert_eq!(said("state finished", &seen).unwrap(), "sequence 3 is finished");
        assert_eq!(said("state preempted of 2", &seen).unwrap(), "sequence 2 is preempted");
        assert_eq!(said("state finished of 2", &seen), None);
        assert_eq!(said("state running", &seen), None);
    }

    #[test]
    fn a_step_is_met_when_it_is_taken() {
        assert_eq!(said("step 120", &quiet(&record())).unwrap(), "step 120 was taken");
        assert_eq!(said("step 121", &quiet(&record())), None);
    }

    #[test]
    fn the_oldest_speaks_all_count_and_ids_are_never_used_again() {
        let step = record();
        let mut breakpoints = Breakpoints::default();
        let ids = ["step 1", "step 120", "step 120"].map(|on| breakpoints.add(on.parse().unwrap()));
        assert_eq!(ids, [1, 2, 3]);
        assert_eq!(breakpoints.check(&quiet(&step)).unwrap().0, 2);
        let hits: Vec<u64> = breakpoints.list().iter().map(|set| set.hits).collect();
        assert_eq!(hits, [0, 1, 1]);
        assert_eq!((breakpoints.clear(Some(3)), breakpoints.clear(Some(3))), (1, 0));
        assert_eq!(breakpoints.clear(None), 2);
        assert!(breakpoints.is_empty());
        assert_eq!(breakpoints.add(Breakpoint::Eviction), 4);
    }
}
