//! Lines to moments. A recorder learns of steps from snapshots, some time after (or before) the events
//! that came of them; here every step stands right before its own events again.

use super::events;
use super::format::{EventsLine, Header, Line, StepLine, ViewLine};
use super::mirror::{Known, Mirror};
use super::read::Lines;
use crate::protocol::{
    BeamView, BlockChange, Command, Counters, Event, KvEvent, RequestId, SamplingParams, SamplingTrace,
    SchedulerSettings, SeqId, SetBreakpoint, StepRecord, TierView, TokenId,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// While nothing runs, or while the recorded engine was paused, nobody wants to wait longer.
const LONGEST_PAUSE_US: u64 = 2_000_000;
/// Steps looked ahead for the one that drew a batch's tokens, where some are missing.
const LOOK_AHEAD: usize = 64;

pub struct Timeline {
    pub header: Header,
    /// Before the first moment.
    pub beginning: Arc<State>,
    pub moments: Vec<Moment>,
    pub steps: Vec<Arc<StepRecord>>,
    /// For each step, how many moments there are up to it and the events that came of it.
    pub ends: Vec<usize>,
    pub kv_events: Vec<KvEvent>,
    pub notes: Vec<String>,
}

/// Something that happened, and what it changed.
pub struct Moment {
    /// Microseconds since the first.
    pub at: u64,
    pub events: Vec<Event>,
    pub blocks: Vec<BlockChange>,
    /// Everything else, as it is then.
    pub after: Arc<State>,
}

/// The engine's state, but for its block map.
#[derive(Clone, Default)]
pub struct State {
    pub step: u64,
    /// How many steps, and events of the cache, there were.
    pub steps: usize,
    pub kv_events: usize,
    pub sequences: Arc<Vec<(Arc<Known>, Arc<SamplingParams>)>>,
    /// Blocks free, cached, owned.
    pub counts: [usize; 3],
    pub counters: Counters,
    pub tiers: Arc<Vec<TierView>>,
    pub scheduler: Arc<SchedulerSettings>,
    pub breakpoints: Arc<Vec<SetBreakpoint>>,
    pub sampling: Option<Arc<SamplingTrace>>,
    pub beams: Option<Arc<BeamView>>,
}

impl Timeline {
    pub fn of(lines: Lines) -> Self {
        let Lines { header, lines, mut notes } = lines;
        let (happened, told, unknown) = split(lines);
        if unknown > 0 {
            let (s, are) = if unknown == 1 { ("", "is") } else { ("s", "are") };
            notes.push(format!("{unknown} event{s} that this version does not know {are} left out"));
        }
        let aligned = align(&happened, &told);
        let mut building = Building::new(header, notes, offset(&happened, &told, &aligned));
        building.merge(happened, told, &aligned);
        building.timeline.shorten_pauses();
        building.timeline
    }

    /// Waits in which nobody waited for the engine are cut.
    fn shorten_pauses(&mut self) {
        let mut open: HashMap<RequestId, u32> = HashMap::new();
        let (mut cut, mut before, mut paused) = (0, 0, false);
        for moment in &mut self.moments {
            let gap = moment.at - before;
            before = moment.at;
            if gap > LONGEST_PAUSE_US && (open.is_empty() || paused) {
                cut += gap - LONGEST_PAUSE_US;
            }
            moment.at -= cut;
            for event in &moment.events {
                match event {
                    Event::Sent(command) => match &**command {
                        Command::Submit(request) => drop(open.insert(request.id, request.n)),
                        Command::Fork(fork) => drop(open.insert(fork.id, 1)),
                        _ => {}
                    },
                    Event::Finished { seq, .. } => {
                        if let Some(left) = open.get_mut(&seq.request) {
                            *left -= 1;
                            if *left == 0 {
                                open.remove(&seq.request);
                            }
                        }
                    }
                    Event::Paused(now) => paused = *now,
                    _ => {}
                }
            }
            // The replay has its own pauses.
            moment.events.retain(|event| !matches!(event, Event::Paused(_)));
        }
    }
}

/// What the front end heard and said, in order.
struct Happened {
    line: usize,
    at: u64,
    events: Vec<Event>,
}

/// What snapshots told, in order.
struct Told {
    line: usize,
    what: What,
}

enum What {
    Step(Box<StepLine>),
    View {
        view: Box<ViewLine>,
        /// It came with the step before it.
        grouped: bool,
    },
    Kv(u64, Vec<KvEvent>),
}

fn split(lines: Vec<(usize, Line)>) -> (Vec<Happened>, Vec<Told>, usize) {
    let (mut happened, mut told, mut unknown) = (Vec::new(), Vec::new(), 0);
    let mut after_step = false;
    for (line, content) in lines {
        let grouped = std::mem::replace(&mut after_step, matches!(content, Line::Step(_)));
        match content {
            Line::Events(EventsLine { t, e }) => {
                let (events, missed) = events::read(e);
                unknown += missed;
                happened.push(Happened { line, at: t, events: events.into_iter().map(replayed).collect() });
            }
            Line::Command(sent) => {
                let events = vec![Event::Sent(Box::new(sent.command))];
                happened.push(Happened { line, at: sent.t, events });
            }
            Line::Step(step) => told.push(Told { line, what: What::Step(step) }),
            Line::View(view) => told.push(Told { line, what: What::View { view, grouped } }),
            Line::Kv(kv) => told.push(Told { line, what: What::Kv(kv.t, kv.kv) }),
            Line::Gap(gap) => {
                let note = format!("steps {} to {} were not recorded", gap.gap.0, gap.gap.1);
                happened.push(Happened { line, at: gap.t, events: vec![Event::Note(note)] });
            }
        }
    }
    (happened, told, unknown)
}

/// A breakpoint of then does not stop the replay.
fn replayed(event: Event) -> Event {
    match event {
        Event::Broke { id, step, why } => {
            Event::Note(format!("breakpoint {id} stopped the engine at step {step}: {why}"))
        }
        other => other,
    }
}

/// For each thing told, the happening it belongs before: that of a step with the tokens it drew.
fn align(happened: &[Happened], told: &[Told]) -> Vec<Option<usize>> {
    let mut aligned = vec![None; told.len()];
    let drawn: Vec<(usize, Vec<(SeqId, TokenId)>)> = told
        .iter()
        .enumerate()
        .filter_map(|(i, told)| match &told.what {
            What::Step(step) => Some((i, draws(step))),
            _ => None,
        })
        .filter(|(_, draws)| !draws.is_empty())
        .collect();
    let mut next = 0;
    for (i, batch) in happened.iter().enumerate() {
        let mut tokens: HashMap<(SeqId, TokenId), usize> = HashMap::new();
        for event in &batch.events {
            if let Event::Token { seq, token } = event {
                *tokens.entry((*seq, token.id)).or_default() += 1;
            }
        }
        if tokens.is_empty() {
            continue;
        }
        let ahead = drawn[next..].iter().take(LOOK_AHEAD);
        let Some(skip) = ahead.clone().position(|(_, draws)| take(&mut tokens, draws)) else { continue };
        next += skip;
        aligned[drawn[next].0] = Some(i);
        next += 1;
        // One batch may hold the tokens of several steps.
        while drawn.get(next).is_some_and(|(_, draws)| take(&mut tokens, draws)) {
            aligned[drawn[next].0] = Some(i);
            next += 1;
        }
    }
    aligned
}

fn draws(step: &StepLine) -> Vec<(SeqId, TokenId)> {
    let rows = step.r.iter().map(crate::protocol::RowRecord::from);
    rows.filter_map(|row| Some((row.seq, row.sampled?))).collect()
}

/// Takes all of them out, or none.
fn take(tokens: &mut HashMap<(SeqId, TokenId), usize>, draws: &[(SeqId, TokenId)]) -> bool {
    let all = draws.iter().all(|draw| tokens.get(draw).is_some_and(|n| *n > 0));
    if all {
        draws.iter().for_each(|draw| *tokens.entry(*draw).or_default() -= 1);
    }
    all
}

/// From the engine's clock to the recorder's: by the first step whose events are known.
fn offset(happened: &[Happened], told: &[Told], aligned: &[Option<usize>]) -> i64 {
    let pairs = told.iter().zip(aligned).filter_map(|(told, at)| match (&told.what, at) {
        (What::Step(step), Some(at)) => Some(happened[*at].at as i64 - end(step)),
        _ => None,
    });
    pairs.min().unwrap_or(0)
}

fn end(step: &StepLine) -> i64 {
    (step.a + step.p.iter().sum::<u64>()) as i64
}

struct Building {
    timeline: Timeline,
    mirror: Mirror,
    offset: i64,
    now: u64,
    params: HashMap<SeqId, Arc<SamplingParams>>,
    asked: HashMap<RequestId, Arc<SamplingParams>>,
    ended: HashSet<SeqId>,
    state: Arc<State>,
}

impl Building {
    fn new(header: Header, notes: Vec<String>, offset: i64) -> Self {
        let mirror = Mirror::new(header.blocks, header.scheduler.clone());
        let (moments, steps, ends, kv_events) = Default::default();
        let mut building = Self {
            timeline: Timeline { header, beginning: Arc::default(), moments, steps, ends, kv_events, notes },
            mirror,
            offset,
            now: 0,
            params: HashMap::new(),
            asked: HashMap::new(),
            ended: HashSet::new(),
            state: Arc::default(),
        };
        building.renew_state();
        building.timeline.beginning = building.state.clone();
        building
    }

    fn merge(&mut self, happened: Vec<Happened>, told: Vec<Told>, aligned: &[Option<usize>]) {
        // Nothing told may overtake another: what stands before an aligned step goes with it.
        let mut due: Vec<usize> = aligned.iter().map(|at| at.unwrap_or(usize::MAX)).collect();
        for i in (1..due.len()).rev() {
            due[i - 1] = due[i - 1].min(due[i]);
        }
        let mut told = told.into_iter().zip(aligned.iter().zip(due)).peekable();
        for (i, batch) in happened.into_iter().enumerate() {
            let mut of_batch = None;
            while let Some((told, (aligned, _))) = told.next_if(|(told, (aligned, due))| {
                let with_step = matches!(told.what, What::View { grouped: true, .. }) && of_batch.is_some();
                *due <= i || with_step || (aligned.is_none() && told.line < batch.line)
            }) {
                let latest = batch.at;
                self.tell(told.what, latest);
                of_batch = aligned.map(|_| self.timeline.steps.len() - 1).or(of_batch);
            }
            self.happen(batch);
            if let Some(step) = of_batch {
                self.timeline.ends[step] = self.timeline.moments.len();
            }
        }
        for (told, _) in told {
            self.tell(told.what, u64::MAX);
        }
    }

    fn happen(&mut self, batch: Happened) {
        let mut changed = false;
        for event in &batch.events {
            match event {
                Event::Sent(command) => match &**command {
                    Command::Submit(request) => {
                        self.asked.insert(request.id, Arc::new(request.params.clone()));
                    }
                    Command::Fork(fork) => {
                        self.asked.insert(fork.id, Arc::new(fork.params.clone()));
                    }
                    _ => {}
                },
                Event::ParamsApplied { seq, params, .. } => {
                    self.params.insert(*seq, Arc::new((**params).clone()));
                    changed = true;
                }
                Event::Finished { seq, .. } => {
                    self.ended.insert(*seq);
                    changed = true;
                }
                Event::Kv(events) => {
                    self.timeline.kv_events.extend(events.iter().cloned());
                    changed = true;
                }
                _ => {}
            }
        }
        if changed {
            self.renew_state();
        }
        self.push(batch.at, batch.events, Vec::new());
    }

    fn tell(&mut self, what: What, latest: u64) {
        match what {
            What::Step(line) => {
                let record = self.mirror.read_step(&line);
                let blocks = record.blocks.clone();
                self.timeline.steps.push(Arc::new(record));
                self.renew_state();
                let at = (end(&line) + self.offset).max(0) as u64;
                self.push(at.min(latest), Vec::new(), blocks);
                self.timeline.ends.push(self.timeline.moments.len());
            }
            What::View { view, grouped } => {
                let blocks = self.mirror.read_view(&view);
                self.renew_state();
                self.push(view.t.min(latest), Vec::new(), blocks);
                if let Some(end) = self.timeline.ends.last_mut().filter(|_| grouped) {
                    *end = self.timeline.moments.len();
                }
            }
            What::Kv(at, events) => {
                self.timeline.kv_events.extend(events);
                self.renew_state();
                self.push(at.min(latest), Vec::new(), Vec::new());
            }
        }
    }

    fn push(&mut self, at: u64, events: Vec<Event>, blocks: Vec<BlockChange>) {
        self.now = self.now.max(at);
        self.timeline.moments.push(Moment { at: self.now, events, blocks, after: self.state.clone() });
    }

    fn renew_state(&mut self) {
        let params = |seq: &SeqId| {
            let known = self.params.get(seq).or_else(|| self.asked.get(&seq.request));
            known.cloned().unwrap_or_default()
        };
        let here = self.mirror.sequences.iter().filter(|known| !self.ended.contains(&known.seq));
        let sequences = here.map(|known| (known.clone(), params(&known.seq))).collect();
        let mirror = &self.mirror;
        self.state = Arc::new(State {
            step: mirror.step,
            steps: self.timeline.steps.len(),
            kv_events: self.timeline.kv_events.len(),
            sequences: Arc::new(sequences),
            counts: mirror.counts,
            counters: mirror.counters,
            tiers: mirror.tiers.clone(),
            scheduler: mirror.scheduler.clone(),
            breakpoints: mirror.breakpoints.clone(),
            sampling: mirror.sampling.clone(),
            beams: mirror.beams.clone(),
        });
    }
}
