//! Grammars are compiled on threads of their own while their sequences wait (vLLM:
//! WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR); masks are made while the model computes.

use super::output::Output;
use super::plan::Plan;
use super::scheduler::Scheduler;
use super::sequence::Sequence;
use super::sequences::Key;
use super::step::Engine;
use crate::grammar::{Compiler, GrammarError, Guide};
use crate::model::Outputs;
use crate::protocol::{Event, Failure, FailureKind, FinishReason, Grammar, SeqId, TokenId};
use crate::sample::TokenMask;
use crate::text::TextModel;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A grammar may be compiled for so long.
const LONGEST: Duration = Duration::from_secs(30);
/// Nothing else to do than to wait for a grammar: not longer than this before looking for commands.
const WAIT: Duration = Duration::from_millis(5);
/// Masks that take longer together are made on several threads: starting one costs some 30 us.
const WORTH_THREADS: Duration = Duration::from_micros(120);

/// Compiles grammars; knows who waits for which.
pub struct Grammars {
    compiler: Arc<Compiler>,
    text: Arc<TextModel>,
    /// Opens thoughts.
    opener: Option<TokenId>,
    /// Started when first needed.
    pool: Option<Pool>,
    /// Heard of, and not looked at yet.
    news: Vec<News>,
    waits: Vec<Wait>,
    /// For thoughts that an answer must follow; made when first needed.
    thoughts: Option<Thoughts>,
    spent: Duration,
    /// What a mask takes of late.
    per_mask: Duration,
    /// Asked for once: the system looks into files for it.
    processors: usize,
}

struct Thoughts {
    /// All but end tokens.
    mask: TokenMask,
    /// Tokens that may have the end of a tag in them, and more.
    suspects: Vec<TokenId>,
}

struct Pool {
    compiler: Arc<Compiler>,
    jobs: Sender<Grammar>,
    inbox: Arc<Mutex<Receiver<Grammar>>>,
    results: Sender<News>,
    news: Receiver<News>,
}

/// What a thread of the pool tells.
enum News {
    Begun(Grammar),
    Done(Grammar, Result<Box<Guide>, GrammarError>),
}

struct Wait {
    key: Key,
    grammar: Grammar,
    /// When a thread took it up.
    begun: Option<Instant>,
}

impl Grammars {
    pub fn new(text: Arc<TextModel>) -> Self {
        let compiler = Arc::new(Compiler::new(text.clone()));
        let opener = text.think_token();
        Self {
            compiler,
            text,
            opener,
            pool: None,
            news: Vec::new(),
            waits: Vec::new(),
            thoughts: None,
            spent: Duration::ZERO,
            per_mask: Duration::ZERO,
            processors: processors(),
        }
    }

    /// A guide, or later one from [`poll`](Self::poll).
    fn ask(&mut self, key: Key, grammar: &Grammar) -> Option<Guide> {
        if let Some(guide) = self.compiler.compiled(grammar) {
            return Some(guide);
        }
        let compiler = &self.compiler;
        let pool = self.pool.get_or_insert_with(|| Pool::start(compiler));
        if !self.waits.iter().any(|wait| wait.grammar == *grammar) {
            // The pool's threads end only after this sender.
            let _ = pool.jobs.send(grammar.clone());
        }
        self.waits.push(Wait { key, grammar: grammar.clone(), begun: None });
        None
    }

    /// Who need not wait any longer.
    fn poll(&mut self) -> Vec<(Key, Result<Guide, GrammarError>)> {
        if self.waits.is_empty() {
            return Vec::new();
        }
        self.news.extend(self.pool.iter().flat_map(|pool| pool.news.try_iter()));
        let mut come = Vec::new();
        for news in self.news.drain(..) {
            match news {
                News::Begun(grammar) => {
                    let of = self.waits.iter_mut().filter(|wait| wait.grammar == grammar);
                    of.for_each(|wait| wait.begun = Some(Instant::now()));
                }
                News::Done(grammar, guide) => {
                    for wait in self.waits.extract_if(.., |wait| wait.grammar == grammar) {
                        come.push((wait.key, guide.as_ref().map(|guide| guide.fork()).map_err(Clone::clone)));
                    }
                }
            }
        }
        let late = |wait: &mut Wait| wait.begun.is_some_and(|begun| begun.elapsed() > LONGEST);
        let mut late: Vec<Wait> = self.waits.extract_if(.., late).collect();
        come.extend(late.iter().map(|wait| (wait.key, Err(GrammarError::too_long(LONGEST)))));
        // Their threads are still at it: others must not wait for that.
        late.dedup_by(|a, b| a.grammar == b.grammar);
        late.iter().for_each(|_| self.pool.iter().for_each(Pool::add_thread));
        come
    }

    /// There is nothing to compute before a grammar has come.
    pub fn wait(&mut self) {
        let come = self.pool.as_ref().and_then(|pool| pool.news.recv_timeout(WAIT).ok());
        self.news.extend(come);
    }

    /// All sequences are gone.
    pub fn reset(&mut self) {
        self.waits.clear();
    }

    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// What a thought may be: it does not end the answer, nor run on into it.
    fn thought_mask(&mut self, seq: SeqId, output: &Output) -> TokenMask {
        let thoughts = self.thoughts.get_or_insert_with(|| Thoughts::of(&self.text));
        let mut mask = thoughts.mask.clone();
        if output.closes_thoughts(seq) {
            let straddling = thoughts.suspects.iter().filter(|id| output.straddles(seq, **id));
            straddling.for_each(|id| mask.forbid(*id));
        }
        mask
    }
}

impl Thoughts {
    fn of(text: &TextModel) -> Self {
        let mut mask = TokenMask(vec![u32::MAX; text.vocab_size().div_ceil(32)]);
        text.end_tokens().iter().for_each(|id| mask.forbid(*id));
        let suspect = |id: &TokenId| {
            let piece = text.piece(*id);
            let piece = piece.trim_ascii_end();
            !text.is_control(*id) && piece.iter().rev().skip(1).any(|byte| matches!(byte, b'>' | b']' | b'|'))
        };
        let suspects = (0..text.vocab_size() as TokenId).filter(suspect).collect();
        Self { mask, suspects }
    }
}

impl Pool {
    /// As many threads as vLLM has for this: half the processors, rounded up.
    fn start(compiler: &Arc<Compiler>) -> Self {
        let (jobs, inbox) = channel();
        let (results, news) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let pool = Self { compiler: compiler.clone(), jobs, inbox, results, news };
        (0..processors().div_ceil(2)).for_each(|_| pool.add_thread());
        pool
    }

    fn add_thread(&self) {
        let (compiler, inbox, results) = (self.compiler.clone(), self.inbox.clone(), self.results.clone());
        let body = move || {
            loop {
                let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
                // Nobody asks or listens any more: the engine is gone.
                let Ok(grammar) = job else { return };
                let _ = results.send(News::Begun(grammar.clone()));
                let built = catch_unwind(AssertUnwindSafe(|| compiler.compile(&grammar)));
                let guide = built.unwrap_or_else(|_| Err(GrammarError::failed()));
                let _ = results.send(News::Done(grammar, guide.map(Box::new)));
            }
        };
        let thread = thread::Builder::new().name("grammars".into());
        thread.spawn(body).expect("the system can start a thread");
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

impl Engine {
    /// A new sequence gets its guide, or waits for it.
    pub(super) fn begin_grammar(&mut self, key: Key, events: &mut Vec<Event>) {
        let seq = &mut self.scheduler.sequences[key];
        let Some(guided) = seq.guided.clone() else { return };
        match self.grammars.ask(key, &guided.grammar) {
            Some(guide) => self.guide(key, Ok(guide), events),
            None => seq.wait(),
        }
    }

    /// Grammars that have been compiled since the last step.
    pub(super) fn poll_grammars(&mut self, events: &mut Vec<Event>) {
        for (key, guide) in self.grammars.poll() {
            self.guide(key, guide, events);
        }
    }

    /// A branch begins inside its grammar: behind what it took over.
    fn guide(&mut self, key: Key, guide: Result<Guide, GrammarError>, events: &mut Vec<Event>) {
        let Some(seq) = self.scheduler.sequences.get_mut(key) else { return };
        let said = guide.and_then(|mut guide| {
            let from = self.output.obeyed_from(seq).unwrap_or(seq.num_generated());
            for token in &seq.tokens[seq.prompt_len + from..] {
                guide.commit(*token)?;
            }
            Ok(guide)
        });
        match said {
            Ok(guide) => {
                seq.guide = Some(Box::new(guide));
                seq.wait();
            }
            Err(why) => {
                let request = seq.id.request;
                let failure = Failure::new(FailureKind::Grammar, why.to_string());
                self.output.close_request(request, &FinishReason::Error(failure), events);
                self.take_out(request, events);
            }
        }
    }

    /// Whether somebody in the step may not draw what they like.
    pub(super) fn has_guides(&self, plan: &Plan) -> bool {
        let guided = |seq: &Sequence| seq.guide.is_some() || seq.mask.is_some();
        plan.rows.iter().any(|row| self.scheduler.sequences.get(row.key).is_some_and(guided))
    }

    /// What each row of the step may draw.
    pub(super) fn make_masks(&mut self, plan: &Plan) {
        let Self { scheduler, output, grammars, clock, .. } = self;
        let begun = clock.now();
        let mut guided = 0;
        for (row, planned) in plan.batch.rows.iter().zip(&plan.rows) {
            let draws = matches!(row.outputs, Outputs::Last | Outputs::Draws(_));
            let Some(seq) = scheduler.sequences.get_mut(planned.key).filter(|_| draws) else { continue };
            seq.mask = None;
            if seq.guide.is_none() || seq.is_past(row) {
                continue;
            }
            if output.obeys(seq) {
                seq.mask = Some(TokenMask(Vec::new()));
                guided += 1;
            } else {
                seq.mask = Some(grammars.thought_mask(seq.id, output));
            }
        }
        if guided > 0 {
            grammars.fill_masks(scheduler, guided);
            for planned in &plan.rows {
                if let Some(seq) = scheduler.sequences.get_mut(planned.key) {
                    open_thoughts(seq, output, grammars.opener);
                }
            }
            grammars.spent += clock.now() - begun;
        }
    }
}

impl Grammars {
    /// Makes the masks that are still empty.
    fn fill_masks(&mut self, scheduler: &mut Scheduler, guided: usize) {
        let empty = |seq: &&mut Sequence| seq.mask.as_ref().is_some_and(|mask| mask.0.is_empty());
        let mut rows: Vec<&mut Sequence> = scheduler.sequences.iter_mut().filter(empty).collect();
        let fill = |rows: &mut [&mut Sequence]| rows.iter_mut().for_each(|seq| fill_mask(seq));
        let few = self.per_mask * guided as u32 <= WORTH_THREADS;
        let threads = if few { 1 } else { self.processors.min(guided) };
        let (mine, others) = rows.split_at_mut(guided.div_ceil(threads));
        let share = mine.len();
        let begun = Instant::now();
        thread::scope(|scope| {
            others.chunks_mut(share).for_each(|rows| drop(scope.spawn(move || fill(rows))));
            fill(mine);
            self.per_mask = (self.per_mask * 3 + begun.elapsed() / share as u32) / 4;
        });
    }
}

/// Where there is none, nothing can be drawn, and that ends the sequence.
fn fill_mask(seq: &mut Sequence) {
    let made = seq.guide.as_mut().and_then(|guide| guide.mask().ok());
    seq.mask = Some(TokenMask(made.unwrap_or_default()));
}

/// Before anything is said the model may still choose to think first.
fn open_thoughts(seq: &mut Sequence, output: &Output, opener: Option<TokenId>) {
    let free = seq.guided.as_ref().is_some_and(|guided| !guided.in_reasoning);
    if let (Some(mask), Some(id)) = (&mut seq.mask, opener)
        && free
        && output.may_think(seq.id)
    {
        mask.allow(id);
    }
}

impl Output {
    /// Whether the sequence's next token is the grammar's affair.
    pub(super) fn obeys(&self, seq: &Sequence) -> bool {
        self.obeyed_from(seq).is_some()
    }

    /// How many of its tokens the grammar has nothing to do with; `None`: the next one neither.
    fn obeyed_from(&self, seq: &Sequence) -> Option<usize> {
        let guided = seq.guided.as_ref()?;
        if guided.in_reasoning { Some(0) } else { self.answer_from(seq.id) }
    }
}
