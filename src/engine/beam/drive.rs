use super::{Advance, Candidate, Search, Verdict};
use crate::engine::account::Drawn;
use crate::engine::intake::Accepted;
use crate::engine::output::is_end;
use crate::engine::sequence::Sequence;
use crate::engine::sequences::Key;
use crate::engine::step::Engine;
use crate::grammar::Guide;
use crate::kv::BlockTable;
use crate::protocol::{
    BeamScore, BeamView, Event, Failure, FailureKind, FinishReason, RequestId, SeqId, TokenId,
};
use crate::sample::{RowError, Sampled, SamplerState};
use crate::text::{OutputParser, TextModel};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// All searches under way. Every open beam is a sequence; one that has its candidates is held until
/// the others of its search have theirs.
#[derive(Default)]
pub struct Beams {
    live: BTreeMap<RequestId, Live>,
    /// A search that this step took further, and that goes on.
    moved: Option<RequestId>,
    /// After the newest step, and until the step's record has it.
    pub(super) newest: Option<Arc<BeamView>>,
    pub(super) new: Option<Arc<BeamView>>,
}

pub(super) struct Live {
    pub search: Search,
    /// Beside `search.open`.
    pub beams: Vec<Beam>,
    pub prompt_len: usize,
    first_token: Duration,
}

pub(super) struct Beam {
    pub id: SeqId,
    report: Option<(Key, Vec<Candidate>)>,
    /// Looks for stop strings, where there are any.
    parser: Option<OutputParser>,
}

impl Beams {
    /// A request was let in whose answers are to be searched for.
    pub fn begin(&mut self, accepted: &Accepted, parser: impl FnOnce() -> OutputParser) {
        let Some(params) = accepted.request.beam else { return };
        let id = SeqId { request: accepted.request.id, choice: 0 };
        let parser = (!accepted.request.params.stop.is_empty()).then(parser);
        let live = Live {
            search: Search::new(params, accepted.choices as usize),
            beams: vec![Beam { id, report: None, parser }],
            prompt_len: accepted.prompt_tokens,
            first_token: Duration::ZERO,
        };
        self.live.insert(id.request, live);
    }

    pub fn clear(&mut self) {
        self.live.clear();
    }

    pub fn view(&self) -> Option<Arc<BeamView>> {
        self.newest.clone()
    }

    pub fn take_new(&mut self) -> Option<Arc<BeamView>> {
        self.new.take()
    }
}

impl Engine {
    /// The row of an open beam. It stays held.
    pub(in crate::engine) fn report(&mut self, key: Key, drawn: Option<Drawn>, events: &mut Vec<Event>) {
        let seq = &mut self.scheduler.sequences[key];
        seq.in_flight -= 1;
        let live = self.beams.live.get_mut(&seq.id.request);
        let Some(beam) = live.and_then(|live| live.beams.iter_mut().find(|beam| beam.id == seq.id)) else {
            return;
        };
        match drawn {
            Some(Ok(sampled)) => beam.report = Some((key, candidates(&sampled))),
            // Nothing may follow: this beam has no continuation, others may have.
            Some(Err(RowError::AllMasked { .. })) | None => beam.report = Some((key, Vec::new())),
            Some(Err(why)) => {
                self.kv.forget(&seq.table);
                let (request, failure) =
                    (seq.id.request, Failure::new(FailureKind::Internal, why.to_string()));
                self.output.close_request(request, &FinishReason::Error(failure), events);
                self.scheduler.end(request);
            }
        }
    }

    /// Takes every search further of which all open beams have reported.
    pub(in crate::engine) fn advance_beams(
        &mut self,
        born: &mut Vec<(Key, Sequence)>,
        events: &mut Vec<Event>,
    ) {
        if self.beams.live.is_empty() {
            return;
        }
        self.beams.live.retain(|request, _| self.output.is_open(*request));
        let complete = |live: &Live| live.beams.iter().all(|beam| beam.report.is_some());
        let ready: Vec<RequestId> =
            self.beams.live.iter().filter(|(_, live)| complete(live)).map(|(request, _)| *request).collect();
        for request in ready {
            let Some(mut live) = self.beams.live.remove(&request) else { continue };
            match self.advance_beam(&mut live, born, events) {
                true => self.look_at_beams(&live, true),
                false => {
                    self.beams.moved = Some(request);
                    self.beams.live.insert(request, live);
                }
            }
        }
    }

    /// One token further; gives back whether the search is over and its answers are told.
    fn advance_beam(
        &mut self,
        live: &mut Live,
        born: &mut Vec<(Key, Sequence)>,
        events: &mut Vec<Event>,
    ) -> bool {
        let reported = live.beams.iter_mut().filter_map(|beam| beam.report.take());
        let (keys, reports): (Vec<Key>, Vec<Vec<Candidate>>) = reported.unzip();
        let seq = &self.scheduler.sequences[keys[0]];
        let left = seq.left_to_draw().min(self.lengths.longest() - seq.tokens.len());
        if live.search.depth == 0 {
            live.first_token = self.clock.now();
            (1..live.search.n as u32).for_each(|i| self.output.start(&answer(seq, i), events));
        }
        let Live { search, beams, .. } = live;
        let (text, sequences) = (&self.text, &self.scheduler.sequences);
        let verdict = |beam: usize, token| verdict(text, &sequences[keys[beam]], &beams[beam], token);
        let next = search.advance(&reports, left, verdict);
        if next.over {
            self.tell(live, keys[0], events);
            keys.iter().for_each(|key| self.scheduler.sequences[*key].ended = true);
            return true;
        }
        live.beams = self.branch_beams(live, &keys, &next, born);
        false
    }

    /// The first beam that comes of an old one takes over its sequence, the others fork it, and an old
    /// one of which none comes ends.
    fn branch_beams(
        &mut self,
        live: &Live,
        keys: &[Key],
        next: &Advance,
        born: &mut Vec<(Key, Sequence)>,
    ) -> Vec<Beam> {
        let mut taken = vec![None; keys.len()];
        let mut used: Vec<u32> = live.beams.iter().map(|beam| beam.id.choice).collect();
        let mut open = Vec::with_capacity(next.open.len());
        for &(from, node) in &next.open {
            let token = live.search.nodes[node as usize].drawn.token;
            let parent = &self.scheduler.sequences[keys[from]];
            let id = match taken[from] {
                None => parent.id,
                Some(_) => {
                    let choice =
                        (0..).find(|choice| !used.contains(choice)).expect("fewer beams than numbers");
                    used.push(choice);
                    let id = SeqId { choice, ..parent.id };
                    let (table, computed) = match parent.table.is_empty() {
                        true => (BlockTable::default(), 0),
                        false => (self.kv.fork(id, &parent.table, parent.num_computed), parent.num_computed),
                    };
                    let mut child = parent.fork(parent.id.choice, table, computed);
                    (child.id, child.started, child.beam) = (id, true, parent.beam);
                    child.guide = parent.guide.as_ref().map(|guide| Box::new(guide.fork()));
                    take(&mut child, token);
                    born.push((keys[from], child));
                    id
                }
            };
            taken[from].get_or_insert(token);
            let parser = live.beams[from].parser.clone().map(|mut parser| {
                parser.push(token);
                parser
            });
            open.push(Beam { id, report: None, parser });
        }
        for (key, token) in keys.iter().zip(taken) {
            let seq = &mut self.scheduler.sequences[*key];
            seq.held = false;
            match token {
                Some(token) => take(seq, token),
                None => seq.ended = true,
            }
        }
        open
    }

    /// The search is over: its answers are told as if they had been drawn, a token at a time.
    fn tell(&mut self, live: &Live, key: Key, events: &mut Vec<Event>) {
        let (request, search) = (self.scheduler.sequences[key].id.request, &live.search);
        let mut found = 0;
        for hypothesis in search.best() {
            let mut seq = answer(&self.scheduler.sequences[key], found);
            seq.tokens.truncate(live.prompt_len);
            seq.chain.truncate(live.prompt_len);
            let path = search.path(hypothesis.node);
            let logprob = path.last().map_or(0.0, |node| node.sum);
            self.output.found(seq.id, BeamScore { logprob, score: hypothesis.score }, live.first_token);
            for node in path {
                seq.push(node.drawn.token);
                self.stats.generated(false);
                if self.output.token(&mut seq, sampled(&node.drawn), false, events) {
                    break;
                }
            }
            // Its grammar was at its end, or there was no room for more.
            let room = seq.left_to_draw() > 0 && seq.tokens.len() < self.lengths.longest();
            let reason = if room { FinishReason::Stop } else { FinishReason::Length };
            self.output.close(seq.id, reason, events);
            self.finished.push(seq);
            found += 1;
        }
        let why = format!("beam search found {found} answers; there are no more");
        let none = FinishReason::Error(Failure::new(FailureKind::BadRequest, why));
        (found..search.n as u32)
            .for_each(|choice| self.output.close(SeqId { request, choice }, none.clone(), events));
    }

    /// What the panel is to see of the searches after a step, while somebody looks.
    pub(in crate::engine) fn show_beams(&mut self) {
        let Some(request) = self.beams.moved.take() else { return };
        if let Some(live) = self.beams.live.remove(&request) {
            self.look_at_beams(&live, false);
            self.beams.live.insert(request, live);
        }
    }

    fn look_at_beams(&mut self, live: &Live, over: bool) {
        if self.focus.candidates == 0 || live.search.depth == 0 {
            return;
        }
        let view = Arc::new(super::view::view(live, over, &self.scheduler, &self.text));
        (self.beams.newest, self.beams.new) = (Some(view.clone()), Some(view));
    }
}

fn take(seq: &mut Sequence, token: TokenId) {
    seq.push(token);
    // Its mask allowed it; should it not be so, the next mask is empty and the beam ends there.
    let _ = seq.follow(token);
}

/// The sequence of the i-th answer: without blocks, to tell it and to branch from it later.
fn answer(seq: &Sequence, choice: u32) -> Sequence {
    let mut answer = seq.fork(seq.id.choice, BlockTable::default(), 0);
    answer.id.choice = choice;
    // It shares the prompt with the first one.
    answer.cached_tokens = if choice == 0 { seq.cached_tokens } else { seq.prompt_len };
    (answer.started, answer.ended) = (true, true);
    answer
}

fn verdict(text: &TextModel, seq: &Sequence, beam: &Beam, token: TokenId) -> Verdict {
    let stops = |parser: &OutputParser| parser.clone().push(token).stopped.is_some();
    let completes = |guide: &Guide| matches!(guide.fork().commit(token), Ok(true));
    let ends = is_end(text, &seq.params, token)
        || beam.parser.as_ref().is_some_and(stops)
        || seq.guide.as_deref().is_some_and(completes);
    match ends {
        true => Verdict::Ends,
        false => Verdict::GoesOn,
    }
}

fn candidates(sampled: &Sampled) -> Vec<Candidate> {
    let entropy = sampled.entropy;
    let candidate = |(rank, top): (u32, &crate::protocol::TopToken)| Candidate {
        token: top.id,
        logprob: top.logprob,
        rank,
        entropy,
    };
    (1..).zip(&sampled.top).map(candidate).collect()
}

fn sampled(drawn: &Candidate) -> Sampled {
    let Candidate { token, logprob, rank, entropy } = *drawn;
    Sampled { token, logprob, rank, entropy, top: Vec::new(), state: SamplerState::default(), trace: None }
}
