//! An engine driven by hand through many conversations at once.

use crate::talks::Talk;
use glassbox::engine::{Engine, Intake};
use glassbox::protocol::*;
use std::collections::{HashMap, HashSet};

/// A token that was said, and the bits of its log-probability and of the distribution's entropy.
pub type Word = (TokenId, u32, u32);

/// What came of a conversation: for every turn, every choice's answer.
#[derive(Clone, Default)]
pub struct Told {
    pub turns: Vec<Vec<Vec<Word>>>,
    /// Of the last turn's first choice, what a branch of it said after the point of the fork.
    pub branch: Option<(usize, Vec<Word>)>,
}

/// Evidence of what really happened.
#[derive(Default)]
pub struct Seen {
    pub counters: Counters,
    pub tiers: Vec<TierView>,
    pub steps: u64,
    /// The tick in which the first token was told.
    pub first_word: u64,
    /// Most requests at a time that had started and not finished.
    pub most_open: usize,
    /// Requests that started before one that came earlier.
    pub overtaken: usize,
    pub branches: usize,
    pub aborts: usize,
    pub answers: usize,
    pub tokens: usize,
    /// Prompts computed in parts.
    pub chunks: usize,
    pub loaded: usize,
    pub static_waits: usize,
    pub round_waits: usize,
}

pub struct Driver<'a> {
    engine: Engine,
    intake: Intake,
    talks: &'a [Talk],
    /// Every choice is a request by itself, one at a time; nobody forks or breaks off.
    pub alone: bool,
    pub told: Vec<Told>,
    open: HashMap<usize, Open>,
    /// Whose a request is, and which choice its first is; no choice: a branch.
    owners: HashMap<RequestId, (usize, Option<usize>)>,
    unstarted: HashSet<RequestId>,
    started: HashSet<RequestId>,
    requests: u64,
    read_up_to: u64,
    pub seen: Seen,
}

/// A conversation that waits for an answer.
struct Open {
    history: Vec<TokenId>,
    request: RequestId,
    answers: Vec<Vec<Word>>,
    asked: u32,
    unfinished: usize,
    aborted: bool,
}

/// Steps between two looks at the records; the engine remembers more.
const LOOK_EVERY: u64 = 128;

impl<'a> Driver<'a> {
    pub fn new(engine: Engine, talks: &'a [Talk]) -> Self {
        let intake = engine.intake();
        Self {
            engine,
            intake,
            talks,
            alone: false,
            told: vec![Told::default(); talks.len()],
            open: HashMap::new(),
            owners: HashMap::new(),
            unstarted: HashSet::new(),
            started: HashSet::new(),
            requests: 0,
            read_up_to: 0,
            seen: Seen::default(),
        }
    }

    /// All conversations, so many at a time.
    pub fn run(mut self, width: usize) -> (Vec<Told>, Seen) {
        self.engine.run_ahead();
        let mut events = Vec::new();
        let mut next = 0;
        loop {
            while next < self.talks.len() && self.open.len() < width {
                let history = self.talks[next].system.clone();
                self.ask(next, history, &mut events);
                next += 1;
            }
            self.hear(&mut events);
            if self.open.is_empty() {
                break;
            }
            assert!(self.engine.can_step(), "conversations are open and there is nothing to do");
            self.engine.tick(&mut events);
            self.seen.steps += 1;
            self.engine.self_check().unwrap();
            self.hear(&mut events);
            self.disturb(&mut events);
            self.go_on(&mut events);
            if self.seen.steps.is_multiple_of(LOOK_EVERY) {
                self.look();
            }
        }
        while self.engine.can_step() {
            self.engine.tick(&mut events);
        }
        self.look();
        let snapshot = self.engine.snapshot();
        assert_eq!(snapshot.kv.owned, 0, "idle, and blocks are owned");
        (self.seen.counters, self.seen.tiers) = (snapshot.counters, snapshot.kv.tiers);
        self.engine.shut_down(&mut events);
        (self.told, self.seen)
    }

    fn send(&mut self, command: Command, events: &mut Vec<Event>) {
        let work = self.intake.take(command);
        self.engine.apply(work, events);
    }

    fn new_request(&mut self, talk: usize, first_choice: Option<usize>) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.owners.insert(id, (talk, first_choice));
        self.unstarted.insert(id);
        id
    }

    /// The next question of a conversation.
    fn ask(&mut self, talk: usize, mut history: Vec<TokenId>, events: &mut Vec<Event>) {
        let turn = &self.talks[talk].turns[self.told[talk].turns.len()];
        history.extend(&turn.question);
        let answers = vec![Vec::new(); turn.n as usize];
        let request = RequestId(0);
        let open = Open { history, request, answers, asked: 0, unfinished: 0, aborted: false };
        self.open.insert(talk, open);
        self.ask_choices(talk, events);
    }

    fn ask_choices(&mut self, talk: usize, events: &mut Vec<Event>) {
        let turn = &self.talks[talk].turns[self.told[talk].turns.len()];
        let asked = self.open[&talk].asked;
        let id = self.new_request(talk, Some(asked as usize));
        let open = self.open.get_mut(&talk).unwrap();
        let n = if self.alone { 1 } else { turn.n };
        (open.request, open.asked, open.unfinished) = (id, asked + n, n as usize);
        let seed = turn.params.seed.map(|seed| seed + u64::from(asked));
        let params = SamplingParams { seed, ..turn.params.clone() };
        let prompt = Prompt::Tokens(open.history.clone());
        let priority = self.talks[talk].priority;
        let request = Request { n, priority, ..Request::new(id, prompt, params) };
        self.send(Command::Submit(Box::new(request)), events);
    }

    fn hear(&mut self, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Token { seq, token } => {
                    if self.seen.first_word == 0 {
                        self.seen.first_word = self.seen.steps;
                    }
                    let (talk, choice) = self.owners[&seq.request];
                    let word = (token.id, token.logprob.to_bits(), token.entropy.to_bits());
                    match choice {
                        Some(first) => {
                            let open = self.open.get_mut(&talk).unwrap();
                            open.answers[first + seq.choice as usize].push(word);
                        }
                        None => self.told[talk].branch.as_mut().unwrap().1.push(word),
                    }
                    self.seen.tokens += 1;
                }
                Event::Started { seq, .. } => self.started_one(seq.request),
                Event::Finished { seq, outcome } => {
                    if let FinishReason::Error(why) = &outcome.reason {
                        panic!("choice {seq} ended: {}", why.message);
                    }
                    let talk = self.owners[&seq.request].0;
                    self.open.get_mut(&talk).unwrap().unfinished -= 1;
                    self.unstarted.remove(&seq.request);
                    self.started.remove(&seq.request);
                    self.seen.answers += 1;
                }
                Event::Note(note) => panic!("{note}"),
                _ => {}
            }
        }
    }

    fn started_one(&mut self, request: RequestId) {
        if self.unstarted.remove(&request) {
            self.seen.overtaken += usize::from(self.unstarted.iter().any(|other| *other < request));
            self.started.insert(request);
            self.seen.most_open = self.seen.most_open.max(self.started.len());
        }
    }

    /// Breaks answers off, and branches them.
    fn disturb(&mut self, events: &mut Vec<Event>) {
        if self.alone {
            return;
        }
        let mut open: Vec<usize> = self.open.keys().copied().collect();
        open.sort_unstable();
        for talk in open {
            let Talk { turns, abort, fork, .. } = &self.talks[talk];
            let open = self.open.get_mut(&talk).unwrap();
            if self.told[talk].turns.len() + 1 < turns.len() || open.unfinished == 0 {
                continue;
            }
            let (parent, said) = (open.request, open.answers[0].len());
            if abort.is_some_and(|at| said >= at) && !open.aborted {
                open.aborted = true;
                self.seen.aborts += 1;
                self.send(Command::Abort(parent), events);
            } else if let Some(at) = *fork
                && said > at
                && self.told[talk].branch.is_none()
            {
                open.unfinished += 1;
                let keep = open.history.len() + at;
                let params = turns[turns.len() - 1].params.clone();
                self.told[talk].branch = Some((at, Vec::new()));
                self.seen.branches += 1;
                let id = self.new_request(talk, None);
                let parent = SeqId { request: parent, choice: 0 };
                let fork = ForkRequest { id, parent, keep, then: Vec::new(), params };
                self.send(Command::Fork(Box::new(fork)), events);
            }
        }
        self.hear(events);
    }

    /// Where every answer is there, the next question is asked.
    fn go_on(&mut self, events: &mut Vec<Event>) {
        let done = |open: &Open| open.unfinished == 0;
        let mut done: Vec<usize> =
            self.open.iter().filter(|(_, open)| done(open)).map(|(talk, _)| *talk).collect();
        done.sort_unstable();
        for talk in done {
            let turns = &self.talks[talk].turns;
            if self.open[&talk].asked < turns[self.told[talk].turns.len()].n {
                self.ask_choices(talk, events);
                continue;
            }
            let Open { mut history, answers, .. } = self.open.remove(&talk).unwrap();
            history.extend(answers[0].iter().map(|word| word.0));
            self.told[talk].turns.push(answers);
            if self.told[talk].turns.len() < turns.len() {
                self.ask(talk, history, events);
            }
        }
    }

    /// Reads the records of the steps since the last look.
    fn look(&mut self) {
        let snapshot = self.engine.snapshot();
        for record in snapshot.steps.iter().filter(|record| record.step > self.read_up_to) {
            let chunk = |row: &&RowRecord| row.kind == RowKind::Prefill && row.sampled.is_none();
            self.seen.chunks += record.rows.iter().filter(chunk).count();
            self.seen.loaded += record.blocks_loaded;
            for waiting in &record.waiting {
                self.seen.static_waits += usize::from(matches!(waiting.reason, Reason::Batch { .. }));
                self.seen.round_waits += usize::from(matches!(waiting.reason, Reason::Round { .. }));
            }
        }
        self.read_up_to = snapshot.step;
    }
}
