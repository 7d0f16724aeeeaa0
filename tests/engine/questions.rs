//! Questions to a running engine: what other parameters would have drawn, how many tokens something
//! is, another place in the queue.

use crate::harness::*;
use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::engine::{Opened, spawn};
use glassbox::model::{Batch, DeviceError, Launched, Meter, ModelLimits, Runner, Scripted};
use glassbox::protocol::*;
use glassbox::sample::{RowError, SampleRow, Sampled};
use glassbox::text::TextModel;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn watched() -> EngineSettings {
    EngineSettings { trace_candidates: 24, ..settings() }
}

fn ask(bench: &mut Bench, seq: SeqId, index: usize, params: SamplingParams) -> Result<SamplingTrace, String> {
    bench.events.clear();
    bench.send(Command::WhatIf(Box::new(WhatIf { seq, index, params })));
    match bench.events.pop() {
        Some(Event::WhatIf(answer)) => {
            assert_eq!((answer.asked.seq, answer.asked.index), (seq, index));
            answer.trace.map(|trace| *trace)
        }
        other => panic!("{other:?}"),
    }
}

/// Runs to the end, with every waterfall on the way.
fn traces(bench: &mut Bench) -> BTreeMap<(SeqId, usize), Arc<SamplingTrace>> {
    let mut traces = BTreeMap::new();
    while bench.engine.can_step() {
        bench.step();
        if let Some(trace) = bench.engine.snapshot().sampling {
            traces.insert((trace.seq, trace.index), trace);
        }
    }
    traces
}

/// Every token that was looked at, asked about with its own parameters, is what it was.
fn all_are_themselves(bench: &mut Bench, least: usize) {
    let traces = traces(bench);
    assert!(traces.len() >= least, "{} traces", traces.len());
    for ((seq, index), trace) in traces {
        let again = ask(bench, seq, index, trace.params.clone()).unwrap();
        assert_eq!(again, *trace, "token {index} of {seq}");
    }
}

#[test]
fn a_tokens_own_parameters_give_its_own_waterfall() {
    let penalties = SamplingParams {
        repetition_penalty: 1.3,
        frequency_penalty: 0.4,
        presence_penalty: 0.2,
        dry_multiplier: 0.8,
        bad_words: vec!["q".into()],
        logit_bias: [(65, 3.0)].into(),
        ..seeded(5, 20)
    };
    let cuts = SamplingParams { temperature: 0.7, top_k: 40, top_p: 0.9, min_p: 0.02, ..seeded(6, 20) };
    let steered = SamplingParams { mirostat: 2, mirostat_tau: 3.0, ..seeded(7, 20) };
    let ends = SamplingParams { ignore_eos: false, min_tokens: 12, ..seeded(8, 20) };
    for params in
        [seeded(4, 20), penalties, cuts, steered, ends, SamplingParams { seed: None, ..seeded(0, 20) }]
    {
        for overlap in [false, true] {
            let settings = watched().tuned(|s| s.async_scheduling = overlap);
            let mut bench = Bench::with(settings, babbler());
            bench.ask("hello, you there", params.clone());
            all_are_themselves(&mut bench, 10);
        }
    }
}

#[test]
fn masks_choices_and_branches_are_remembered() {
    let grammar = Grammar::Regex("[a-f]{1,9}x[0-9]{9}".into());
    let guided = Some(Guided { grammar, in_reasoning: false });
    for overlap in [false, true] {
        let mut bench = Bench::with(watched().tuned(|s| s.async_scheduling = overlap), babbler());
        let request = bench.request("x", seeded(3, 20));
        bench.submit(Request { guided: guided.clone(), parse_reasoning: false, ..request });
        all_are_themselves(&mut bench, 9);
    }

    let mut bench = Bench::with(watched(), babbler());
    let request = bench.request("hello", seeded(3, 9));
    let id = bench.submit(Request { n: 3, guided, parse_reasoning: false, ..request });
    bench.send(Command::Focus(Some(SeqId { request: id, choice: 2 })));
    all_are_themselves(&mut bench, 8);

    let mut bench = Bench::with(watched(), babbler());
    let parent = first(bench.ask("hello", seeded(3, 20)));
    (0..9).for_each(|_| bench.step());
    let (id, keep, then) = (RequestId(9), 5 + 4, vec![65]);
    let fork = ForkRequest { id, parent, keep, then, params: seeded(9, 20) };
    bench.send(Command::Fork(Box::new(fork)));
    bench.send(Command::Focus(Some(first(id))));
    all_are_themselves(&mut bench, 12);
}

fn hilly(row: u64) -> impl Fn(usize) -> f32 {
    move |id| ((id as u64 * 37 + row * 11) % 101) as f32 / 12.0
}

/// How many of a row's likeliest tokens reach `top_p`, counted slowly.
fn nucleus(logits: impl Fn(usize) -> f32, top_p: f64) -> usize {
    let mut weights: Vec<f64> = (0..Scripted::VOCAB).map(|id| f64::from(logits(id)).exp()).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    let all: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let reached = |weight: &f64| {
        sum += weight / all;
        sum >= top_p
    };
    weights.iter().position(reached).map_or(weights.len(), |at| at + 1)
}

#[test]
fn other_parameters_cut_where_a_slow_twin_cuts() {
    let script = Scripted::with_logits(Scripted::limits(64, 4), |row, logits| {
        let of = hilly(row.tokens.len() as u64);
        logits.iter_mut().enumerate().for_each(|(id, logit)| *logit = of(id));
    });
    let mut bench = Bench::with(watched(), script);
    let seq = first(bench.ask("hello", seeded(1, 6)));
    let recorded = traces(&mut bench);
    for index in 0..6 {
        for top_p in [0.11, 0.53, 0.87] {
            let params = SamplingParams { top_p, ..seeded(99, 6) };
            let trace = ask(&mut bench, seq, index, params.clone()).unwrap();
            let stage = trace.stages.iter().find(|view| view.stage == Stage::TopP).unwrap();
            assert_eq!(
                stage.survivors,
                nucleus(hilly(5 + index as u64), f64::from(top_p)),
                "{index} {top_p}"
            );
            let known = &recorded[&(seq, index)];
            assert_eq!((trace.params.top_p, trace.entropy), (top_p, known.entropy));
            assert_eq!(trace.candidates[0].raw_probability, known.candidates[0].raw_probability);
        }
        let greedy = ask(&mut bench, seq, index, greedy()).unwrap();
        assert_eq!(greedy.drawn, greedy.candidates[0].id);
    }
}

#[test]
fn it_is_answered_while_paused_and_after_the_end_and_says_why_not() {
    let mut bench = Bench::with(watched(), babbler());
    let seq = first(bench.ask("hello", seeded(1, 8)));
    (0..4).for_each(|_| bench.step());
    bench.send(Command::Pause);
    assert!(ask(&mut bench, seq, 2, greedy()).is_ok());
    assert!(ask(&mut bench, seq, 2, seeded(2, 3)).is_ok(), "and again");
    let why = ask(&mut bench, seq, 4, greedy()).unwrap_err();
    assert!(why.contains("logits of token 5 are not kept"), "{why}");
    let why = ask(&mut bench, seq, 2, SamplingParams { top_p: 7.0, ..greedy() }).unwrap_err();
    assert!(why.contains("top_p must be") && why.contains('7'), "{why}");
    let nothing = SamplingParams { allowed_token_ids: vec![3], banned_token_ids: vec![3], ..greedy() };
    let why = ask(&mut bench, seq, 2, nothing).unwrap_err();
    assert!(why.contains("every token is masked"), "{why}");
    let why = ask(&mut bench, SeqId { choice: 9, ..seq }, 2, greedy()).unwrap_err();
    assert!(why.contains("not known any more"), "{why}");

    bench.send(Command::Resume);
    bench.run();
    assert!(ask(&mut bench, seq, 7, greedy()).is_ok(), "finished");

    let request = bench.request("hello", SamplingParams { max_tokens: Some(3), ..greedy() });
    let beam =
        first(bench.submit(Request { beam: Some(BeamSearch { width: 2, ..Default::default() }), ..request }));
    bench.step();
    let why = ask(&mut bench, beam, 0, greedy()).unwrap_err();
    assert!(why.contains("beam"), "{why}");
}

#[test]
fn nothing_is_kept_while_nobody_looks() {
    let mut bench = Bench::new(babbler());
    let seq = first(bench.ask("hello", seeded(1, 8)));
    bench.run();
    assert!(ask(&mut bench, seq, 3, greedy()).unwrap_err().contains("not kept"));
}

fn counted(bench: &mut Bench, what: Counted) -> Result<Vec<usize>, Failure> {
    bench.events.clear();
    bench.send(Command::Count(Box::new(Count { ticket: 7, what })));
    match bench.events.pop() {
        Some(Event::Counted { ticket: 7, tokens }) => tokens,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_prompt_is_counted_as_it_would_be_accepted() {
    let mut bench = Bench::new(babbler());
    let mut request = bench.request("twelve bytes", seeded(1, 2));
    let tokens = counted(&mut bench, Counted::Prompt(Box::new(request.clone()))).unwrap();
    bench.submit(request.clone());
    let accepted = bench.events.iter().find_map(|event| match event {
        Event::Accepted { prompt_tokens, .. } => Some(*prompt_tokens),
        _ => None,
    });
    assert_eq!((accepted, tokens), (Some(12), vec![12]));
    // Too long to be accepted, and counted for that very reason.
    request.prompt = Prompt::Text("x".repeat(9_000));
    assert_eq!(counted(&mut bench, Counted::Prompt(Box::new(request.clone()))), Ok(vec![9_000]));
    let texts = ["", "hey", "né"].map(str::to_owned).into();
    assert_eq!(counted(&mut bench, Counted::Texts(texts)), Ok(vec![0, 3, 3]));
    request.prompt = Prompt::Chat(Vec::new());
    let why = counted(&mut bench, Counted::Prompt(Box::new(request))).unwrap_err();
    assert_eq!(why.kind, FailureKind::BadRequest, "{why}");
}

/// It needs no step and waits for none: the engine is paused. And it is in order with what follows.
#[test]
fn threads_count_while_the_engine_stands() {
    let mut handle = spawn(settings(), Clock::wall(), |_| {
        let (runner, text) = (Box::new(babbler()), Arc::new(TextModel::bytes()));
        Ok(Opened { runner, text, info: ModelInfo::default(), memory: MemoryPlan::default() })
    });
    handle.commands.send(Command::Pause).unwrap();
    for ticket in 0..5 {
        let what = Counted::Texts(vec!["x".repeat(ticket as usize)]);
        handle.commands.send(Command::Count(Box::new(Count { ticket, what }))).unwrap();
    }
    let mut counts = Vec::new();
    while counts.len() < 5 {
        for event in handle.events.blocking_recv().unwrap() {
            if let Event::Counted { ticket, tokens } = event {
                counts.push((ticket, tokens.unwrap()[0]));
            }
        }
    }
    assert_eq!(counts, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    handle.shut_down(std::time::Duration::from_secs(10));
}

#[test]
fn without_a_model_every_question_is_answered_with_the_reason() {
    let failed = Failure::new(FailureKind::Model, "no such file");
    let mut handle = spawn(settings(), Clock::wall(), move |_| Err(failed.clone()));
    let what = Counted::Texts(vec!["x".into()]);
    handle.commands.send(Command::Count(Box::new(Count { ticket: 1, what }))).unwrap();
    let asked = WhatIf { seq: SeqId::default(), index: 0, params: greedy() };
    handle.commands.send(Command::WhatIf(Box::new(asked))).unwrap();
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let events = handle.events.blocking_recv().unwrap();
        answers.extend(events.into_iter().filter_map(|event| match event {
            Event::Counted { tokens, .. } => Some(tokens.unwrap_err().message),
            Event::WhatIf(answer) => Some(answer.trace.unwrap_err()),
            _ => None,
        }));
    }
    assert_eq!(answers, ["no such file"; 2]);
}

fn reprioritise(bench: &mut Bench, id: RequestId, priority: i32) {
    bench.send(Command::SetPriority(Reprioritise { id, priority }));
}

#[test]
fn another_priority_is_another_place_in_the_queue() {
    let settings = settings().seqs(1).tuned(|s| s.scheduling_policy = SchedulingPolicy::Priority);
    let mut bench = Bench::with(settings, babbler());
    let ids: Vec<RequestId> = (0..4).map(|_| bench.ask("hello", seeded(1, 3))).collect();
    bench.step();
    reprioritise(&mut bench, ids[3], -1);
    reprioritise(&mut bench, ids[1], 5);
    reprioritise(&mut bench, RequestId(99), 5);
    let shown: Vec<i32> = bench.engine.snapshot().sequences.iter().map(|view| view.priority).collect();
    assert_eq!(shown, [0, -1, 0, 5], "running, then waiting in the queue's order");
    bench.run();
    let started: Vec<RequestId> = bench.started().iter().map(|seq| seq.request).collect();
    assert_eq!(started, [ids[0], ids[3], ids[2], ids[1]]);
    assert!(bench.notes().is_empty());
}

/// A running sequence that became the least important gives way.
#[test]
fn who_runs_can_lose_its_rank_too() {
    let settings = settings().seqs(8).tuned(|s| s.scheduling_policy = SchedulingPolicy::Priority);
    let mut bench = Bench::with(settings, Scripted::babbling(Scripted::limits(8, 4)));
    let ids = ["aaaaaaa", "bbbbbbb", "ccccccc"].map(|prompt| bench.ask(prompt, seeded(1, 14)));
    bench.step();
    reprioritise(&mut bench, ids[0], 9);
    while bench.record().preempted.is_empty() {
        bench.step();
    }
    assert_eq!(bench.record().preempted[0].seq, first(ids[0]));
    bench.run();
}

#[test]
fn under_fcfs_it_is_said_that_it_changes_nothing() {
    let mut bench = Bench::with(settings().seqs(1), babbler());
    let ids: Vec<RequestId> = (0..3).map(|_| bench.ask("hello", seeded(1, 3))).collect();
    reprioritise(&mut bench, ids[2], -1);
    assert!(bench.notes()[0].contains("act only under scheduling_policy = priority; it is fcfs"));
    bench.run();
    assert_eq!(bench.started().iter().map(|seq| seq.request).collect::<Vec<_>>(), ids);
}

fn inspect(bench: &mut Bench, what: Inspect) -> Inspected {
    bench.events.clear();
    bench.send(Command::Inspect(what));
    match bench.events.pop() {
        Some(Event::Inspected(inspected)) => inspected,
        other => panic!("{other:?}"),
    }
}

fn block(bench: &mut Bench, block: u32) -> BlockDetail {
    match inspect(bench, Inspect::Block(block)) {
        Inspected::Block(detail) => *detail,
        other => panic!("{other:?}"),
    }
}

fn tree(bench: &mut Bench) -> CacheTree {
    match inspect(bench, Inspect::Tree) {
        Inspected::Tree(tree) => *tree,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_block_tells_whose_it_is_what_it_holds_and_what_came_before() {
    for prefix_cache in [PrefixCache::Hash, PrefixCache::Radix, PrefixCache::Off] {
        let mut bench = Bench::with(EngineSettings { prefix_cache, ..settings() }, babbler());
        let (a, b) = (bench.ask("a common start", seeded(1, 9)), bench.ask("a common end", seeded(1, 9)));
        (0..3).for_each(|_| bench.step());
        let views = bench.engine.snapshot().sequences;
        let on = prefix_cache != PrefixCache::Off;
        for view in &views {
            for (at, id) in view.blocks.iter().enumerate() {
                let detail = block(&mut bench, *id);
                let shared = on && at < 2;
                assert_eq!(detail.owners.len(), if shared { 2 } else { 1 }, "{prefix_cache:?} {at}");
                assert!(detail.owners.contains(&(view.seq, at)));
                let text: String = detail.tokens.iter().map(|(_, text)| text.as_str()).collect();
                let prompt = ["a common start", "a common end"][usize::from(view.seq.request == b)];
                let of_prompt = &prompt[(4 * at).min(prompt.len())..(4 * at + 4).min(prompt.len())];
                assert!(text.starts_with(of_prompt), "{text:?} at {at}");
                let full = 4 * at + 4 <= view.computed_tokens;
                assert_eq!(detail.tokens.len() == 4, full);
                assert_eq!(
                    (detail.cached, detail.chain.len()),
                    (on && full, if on && full { at + 1 } else { 0 })
                );
            }
        }
        // After the end nobody owns them; what is cached is still told.
        let last = views[0].blocks[2];
        bench.send(Command::Abort(a));
        bench.send(Command::Abort(b));
        let detail = block(&mut bench, last);
        assert_eq!((detail.references, detail.owners.len()), (0, 0));
        assert_eq!((detail.tokens.len(), detail.chain.len()), if on { (4, 3) } else { (0, 0) });
        for nobodys in [0, 9_999] {
            assert_eq!(block(&mut bench, nobodys), BlockDetail { block: nobodys, ..Default::default() });
        }
    }
}

#[test]
fn the_cache_is_a_tree_of_prefixes() {
    for (prefix_cache, index) in [(PrefixCache::Hash, "hash"), (PrefixCache::Radix, "radix")] {
        let mut bench = Bench::with(EngineSettings { prefix_cache, ..settings() }, babbler());
        let running = bench.ask("a common start", seeded(1, 40));
        bench.ask("a common end and more", seeded(1, 1));
        (0..3).for_each(|_| bench.step());
        bench.send(Command::Pause);
        let tree = tree(&mut bench);
        assert_eq!((tree.index.as_str(), tree.left_out, tree.nodes.len()), (index, 0, 3));
        let mut below: Vec<_> =
            tree.nodes[1..].iter().map(|node| (node.text.as_str(), node.tokens)).collect();
        below.sort_unstable();
        assert_eq!((tree.nodes[0].text.as_str(), tree.nodes[0].tokens), ("a common", 8));
        assert!(below[0].0.starts_with(" end and mor") && below[1].0.starts_with(" sta"), "{below:?}");
        assert!(tree.nodes[1..].iter().all(|node| node.parent == Some(0)));
        let owned: Vec<usize> = tree.nodes.iter().map(|node| node.references).collect();
        assert_eq!((owned[0], owned[1] + owned[2]), (1, 1), "the other has ended");
        assert!(tree.nodes.iter().all(|node| node.used > 0 && node.blocks.len() * 4 == node.tokens));
        bench.send(Command::Abort(running));
    }
    let mut bench = Bench::with(EngineSettings { prefix_cache: PrefixCache::Off, ..settings() }, babbler());
    bench.ask("hello", seeded(1, 9));
    bench.run();
    assert_eq!(tree(&mut bench), CacheTree { index: "off".into(), ..Default::default() });
}

/// A device that takes as long to measure as a test wants.
struct Measured {
    runner: Scripted,
    begun: std::sync::mpsc::Sender<()>,
}

impl Runner for Measured {
    fn limits(&self) -> &ModelLimits {
        self.runner.limits()
    }

    fn launch(&mut self, batch: &Batch) -> Result<Launched, DeviceError> {
        self.runner.launch(batch)
    }

    fn sample(
        &mut self,
        launched: Launched,
        rows: &[SampleRow],
    ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError> {
        self.runner.sample(launched, rows)
    }

    /// The first is never done; the second at once.
    fn meter(&self) -> Option<Meter> {
        let begun = self.begun.clone();
        let first = begun.send(()).is_ok();
        Some(Box::new(move |stop| {
            while first && !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            match first {
                true => Err(DeviceError("stopped".into())),
                false => {
                    Ok(DeviceLimits { units: "2 threads".into(), memory_read: 1e10, ..Default::default() })
                }
            }
        }))
    }
}

fn limits(handle: &mut Handle) -> Result<DeviceLimits, String> {
    handle.commands.send(Command::MeasureLimits).unwrap();
    next_limits(handle)
}

fn next_limits(handle: &mut Handle) -> Result<DeviceLimits, String> {
    loop {
        for event in handle.events.blocking_recv().unwrap() {
            if let Event::Limits(limits) = event {
                return limits.map(|limits| *limits);
            }
        }
    }
}

#[test]
fn limits_are_measured_only_while_nothing_runs_and_told_again_at_once() {
    let (begun, begins) = std::sync::mpsc::channel();
    let mut handle = spawn(settings(), Clock::wall(), move |_| {
        let (runner, text) =
            (Box::new(Measured { runner: babbler(), begun: begun.clone() }), Arc::new(TextModel::bytes()));
        Ok(Opened { runner, text, info: ModelInfo::default(), memory: MemoryPlan::default() })
    });
    handle.commands.send(Command::MeasureLimits).unwrap();
    begins.recv().unwrap();
    drop(begins);
    // An answer that begins ends the measurement; one that stands still keeps another from beginning.
    handle.commands.send(Command::Pause).unwrap();
    let request = Request::new(RequestId(1), Prompt::Text("hello".into()), seeded(1, 5));
    handle.commands.send(Command::Submit(Box::new(request))).unwrap();
    assert_eq!(next_limits(&mut handle), Err("stopped".into()));
    assert_eq!(limits(&mut handle), Err("not measured while answers run".into()));
    handle.commands.send(Command::Abort(RequestId(1))).unwrap();
    let found = limits(&mut handle).unwrap();
    assert_eq!((found.units.as_str(), found.memory_read), ("2 threads", 1e10));
    assert_eq!(limits(&mut handle), Ok(found));
    handle.shut_down(std::time::Duration::from_secs(10));
}

#[test]
fn what_cannot_be_measured_says_so() {
    let mut handle = spawn(settings(), Clock::wall(), |_| {
        let (runner, text) = (Box::new(babbler()), Arc::new(TextModel::bytes()));
        Ok(Opened { runner, text, info: ModelInfo::default(), memory: MemoryPlan::default() })
    });
    assert_eq!(limits(&mut handle), Err("this device cannot be measured".into()));
}
