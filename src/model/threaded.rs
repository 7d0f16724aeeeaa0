use super::{Batch, Closed, DeviceError, Launched, Meter, ModelLimits, Row, Runner, Usage};
use crate::kv::BlockId;
use crate::protocol::OperationTime;
use crate::sample::{RowError, SampleRow, Sampled};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// A runner whose forward passes run on a thread of their own: `launch` returns at once, and the
/// caller may plan the next step meanwhile. Everything else waits for the pass and then runs on the
/// caller's thread, as it would without.
///
/// A pass that fails is told to whoever calls next. One that panics is an error like any other, and
/// the runner is used on: what it holds is the caller's to throw away.
pub struct Threaded {
    limits: ModelLimits,
    state: RefCell<State>,
    /// Nothing only while it is dropped.
    passes: Option<Sender<Pass>>,
    worker: Option<JoinHandle<()>>,
}

struct State {
    /// `None` while a pass runs, and for ever should the worker be gone.
    runner: Option<Box<dyn Runner>>,
    /// Memory for the worker's copy of a batch.
    batch: Batch,
    running: bool,
    /// Of the newest pass, until somebody asks.
    outcome: Option<Result<Launched, DeviceError>>,
    finished: Receiver<Finished>,
    usage: Usage,
}

struct Pass {
    runner: Box<dyn Runner>,
    batch: Batch,
}

struct Finished {
    runner: Box<dyn Runner>,
    batch: Batch,
    outcome: Result<Launched, DeviceError>,
}

impl Threaded {
    /// Puts the runner in `place` on a thread of its own.
    pub fn take_over(place: &mut Box<dyn Runner>) {
        let limits = place.limits().clone();
        let runner = std::mem::replace(place, Box::new(Closed::new(limits, gone())));
        *place = Box::new(Self::new(runner));
    }

    pub fn new(runner: Box<dyn Runner>) -> Self {
        let (passes, work) = channel();
        let (results, finished) = channel();
        let limits = runner.limits().clone();
        let worker = thread::Builder::new()
            .name("forward".into())
            .spawn(move || run(&work, &results))
            .expect("the system can start a thread");
        let usage = runner.usage();
        let batch = Batch::default();
        let state = State { runner: Some(runner), batch, running: false, outcome: None, finished, usage };
        Self { limits, state: RefCell::new(state), passes: Some(passes), worker: Some(worker) }
    }
}

/// The worker: one pass after the other, until nobody can ask for more.
fn run(work: &Receiver<Pass>, results: &Sender<Finished>) {
    for Pass { mut runner, batch } in work {
        let pass = || {
            let launched = runner.launch(&batch)?;
            runner.start().map(|()| launched)
        };
        let outcome = catch_unwind(AssertUnwindSafe(pass)).unwrap_or_else(|panic| {
            Err(DeviceError(format!("the forward pass panicked: {}", said(&*panic))))
        });
        if results.send(Finished { runner, batch, outcome }).is_err() {
            return;
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why")
}

impl State {
    /// Waits for the pass that runs, if one does.
    fn settle(&mut self) {
        if !std::mem::take(&mut self.running) {
            return;
        }
        match self.finished.recv() {
            Ok(Finished { runner, batch, outcome }) => {
                self.usage = runner.usage();
                (self.runner, self.batch, self.outcome) = (Some(runner), batch, Some(outcome));
            }
            Err(_) => self.outcome = Some(Err(gone())),
        }
    }

    /// The runner, at rest; or what went wrong in the pass before.
    fn settled(&mut self) -> Result<&mut dyn Runner, DeviceError> {
        self.settle();
        if let Some(Err(_)) = self.outcome
            && let Some(Err(error)) = self.outcome.take()
        {
            return Err(error);
        }
        match &mut self.runner {
            Some(runner) => Ok(&mut **runner),
            None => Err(gone()),
        }
    }
}

fn gone() -> DeviceError {
    DeviceError("the thread of the forward pass is gone, and the model with it".into())
}

impl Runner for Threaded {
    fn limits(&self) -> &ModelLimits {
        &self.limits
    }

    fn launch(&mut self, batch: &Batch) -> Result<Launched, DeviceError> {
        let state = self.state.get_mut();
        state.settled()?;
        let runner = state.runner.take().ok_or_else(gone)?;
        let mut copy = std::mem::take(&mut state.batch);
        copy.copy_from(batch);
        let passes = self.passes.as_ref().expect("there until it is dropped");
        passes.send(Pass { runner, batch: copy }).map_err(|_| gone())?;
        (state.running, state.outcome) = (true, None);
        Ok(Launched { outputs: batch.rows.iter().map(Row::num_outputs).sum() })
    }

    fn sample(
        &mut self,
        _: Launched,
        rows: &[SampleRow],
    ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError> {
        let state = self.state.get_mut();
        state.settled()?;
        let Some(Ok(launched)) = state.outcome.take() else {
            return Err(DeviceError("nothing was launched since the last tokens were drawn".into()));
        };
        state.settled()?.sample(launched, rows)
    }

    fn read_block(&mut self, block: BlockId, into: &mut [u8]) -> Result<(), DeviceError> {
        self.state.get_mut().settled()?.read_block(block, into)
    }

    fn write_block(&mut self, block: BlockId, from: &[u8]) -> Result<(), DeviceError> {
        self.state.get_mut().settled()?.write_block(block, from)
    }

    fn take_profile(&mut self) -> Vec<OperationTime> {
        let state = self.state.get_mut();
        state.settle();
        state.runner.as_mut().map_or_else(Vec::new, |runner| runner.take_profile())
    }

    fn meter(&self) -> Option<Meter> {
        let mut state = self.state.borrow_mut();
        state.settle();
        state.runner.as_ref()?.meter()
    }

    /// So is one whose thread is gone.
    fn is_lost(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.settle();
        state.runner.as_ref().is_none_or(|runner| runner.is_lost())
    }

    fn usage(&self) -> Usage {
        let mut state = self.state.borrow_mut();
        state.settle();
        if let Some(runner) = &state.runner {
            state.usage = runner.usage();
        }
        state.usage
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        self.passes = None;
        if let Some(worker) = self.worker.take() {
            // It catches the panics of passes; nothing else in it can panic.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{Fault, Outputs, Scripted};
    use crate::protocol::{SamplingParams, SeqId, TokenId};

    const PROMPT: [TokenId; 9] = [3, 1, 4, 1, 5, 9, 2, 6, 5];

    fn batch(tokens: &[TokenId], start: usize) -> Batch {
        let row = Row {
            seq: SeqId::default(),
            tokens: 0..tokens.len(),
            start,
            rope_len: 0,
            blocks: 0..8,
            outputs: Outputs::Last,
        };
        Batch { copies: Vec::new(), tokens: tokens.to_vec(), blocks: (1..9).collect(), rows: vec![row] }
    }

    fn draw(runner: &mut dyn Runner, launched: Launched, tokens: &[TokenId]) -> Result<TokenId, DeviceError> {
        let params = SamplingParams { temperature: 0.0, ..Default::default() };
        let row = SampleRow {
            seq: SeqId::default(),
            params: &params,
            seed: 0,
            tokens,
            prompt_len: PROMPT.len(),
            end_tokens: &[],
            mask: None,
            phrases: &Default::default(),
            state: Default::default(),
            draw: true,
            target: None,
            top: 0,
            beams: 0,
            trace: 0,
            keep: None,
        };
        Ok(runner.sample(launched, &[row])?[0].as_ref().unwrap().token)
    }

    fn step(runner: &mut dyn Runner, tokens: &[TokenId], start: usize) -> Result<TokenId, DeviceError> {
        let launched = runner.launch(&batch(&tokens[start..], start))?;
        assert_eq!(launched.outputs, 1);
        draw(runner, launched, tokens)
    }

    fn answer(runner: &mut dyn Runner) -> Vec<TokenId> {
        let (mut tokens, mut start) = (PROMPT.to_vec(), 0);
        while tokens.len() < 30 {
            let token = step(runner, &tokens, start).unwrap();
            start = tokens.len();
            tokens.push(token);
        }
        tokens
    }

    fn scripted() -> Scripted {
        Scripted::babbling(Scripted::limits(8, 4))
    }

    #[test]
    fn says_what_its_runner_says_alone() {
        let mut threaded = Threaded::new(Box::new(scripted()));
        assert_eq!(threaded.limits(), scripted().limits());
        assert_eq!(answer(&mut threaded), answer(&mut scripted()));
        assert_eq!(threaded.usage(), scripted().usage());
    }

    /// Nobody asks for the tokens of a prompt's chunk; its failure must not be lost for that.
    #[test]
    fn a_failure_comes_out_of_the_next_call_whichever_it_is() {
        let failing = || Threaded::new(Box::new(scripted().failing_at(1, Fault::Device)));
        let mut block = [0; 16];
        type Call = fn(&mut Threaded, &mut [u8]) -> Result<(), DeviceError>;
        let calls: [Call; 4] = [
            |runner, _| draw(runner, Launched { outputs: 1 }, &PROMPT).map(drop),
            |runner, _| runner.launch(&batch(&PROMPT, 0)).map(drop),
            |runner, block| runner.read_block(1, block),
            |runner, block| runner.write_block(1, block),
        ];
        let alone = scripted().failing_at(1, Fault::Device).launch(&batch(&PROMPT, 0)).unwrap_err();
        for call in calls {
            let mut runner = failing();
            runner.launch(&batch(&PROMPT, 0)).unwrap();
            runner.usage();
            assert_eq!(call(&mut runner, &mut block), Err(alone.clone()));
            assert!(answer(&mut runner).starts_with(&PROMPT), "the runner is used on");
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_runner_is_used_on() {
        let mut runner = Threaded::new(Box::new(scripted().failing_at(1, Fault::Panic)));
        let error = step(&mut runner, &PROMPT, 0).unwrap_err().0;
        assert!(error.starts_with("the forward pass panicked: "), "{error}");
        assert_eq!(answer(&mut runner), answer(&mut scripted()));
    }

    #[test]
    fn tokens_are_drawn_once() {
        let mut runner = Threaded::new(Box::new(scripted()));
        step(&mut runner, &PROMPT, 0).unwrap();
        let error = draw(&mut runner, Launched { outputs: 1 }, &PROMPT).unwrap_err().0;
        assert!(error.contains("nothing was launched"), "{error}");
    }

    /// Its pass ends when it is told to.
    struct Waiting {
        limits: ModelLimits,
        go: Receiver<()>,
    }

    impl Runner for Waiting {
        fn limits(&self) -> &ModelLimits {
            &self.limits
        }
        fn launch(&mut self, batch: &Batch) -> Result<Launched, DeviceError> {
            self.go.recv().map_err(|_| DeviceError("nobody said go".into()))?;
            Ok(Launched { outputs: batch.rows.len() })
        }
        fn sample(
            &mut self,
            _: Launched,
            _: &[SampleRow],
        ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError> {
            Ok(Vec::new())
        }
        fn read_block(&mut self, _: BlockId, into: &mut [u8]) -> Result<(), DeviceError> {
            into.fill(7);
            Ok(())
        }
    }

    fn waiting() -> (Sender<()>, Threaded) {
        let (say, go) = channel();
        (say, Threaded::new(Box::new(Waiting { limits: Scripted::limits(8, 4), go })))
    }

    #[test]
    fn launch_returns_while_the_pass_still_runs_and_reading_waits_for_it() {
        let (say, mut runner) = waiting();
        let launched = runner.launch(&batch(&PROMPT, 0)).unwrap();
        assert_eq!(launched.outputs, 1);
        say.send(()).unwrap();
        let mut block = [0; 4];
        runner.read_block(1, &mut block).unwrap();
        assert_eq!(block, [7; 4]);
        assert!(runner.sample(launched, &[]).is_ok(), "reading a block does not use up the outputs");
    }

    #[test]
    fn dropped_in_the_middle_of_a_pass_it_waits_for_its_end() {
        let (say, mut runner) = waiting();
        runner.launch(&batch(&PROMPT, 0)).unwrap();
        say.send(()).unwrap();
        drop(runner);
        assert!(say.send(()).is_err(), "the inner runner is gone as well");
    }
}
