//! Beam search: what a plain implementation finds, in every company and every mode.

use crate::harness::*;
use crate::real;
use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::model::Scripted;
use glassbox::protocol::*;
use glassbox::text::{TextModel, VocabSpec};

/// An answer: its tokens, their summed log-probability, its score.
type Found = (Vec<TokenId>, f64, f64);

#[derive(Clone)]
struct Asked {
    prompt: Vec<TokenId>,
    params: SamplingParams,
    beam: BeamSearch,
    n: u32,
}

fn submit(bench: &mut Bench, asked: &Asked) -> RequestId {
    let request = bench.request("", asked.params.clone());
    let prompt = Prompt::Tokens(asked.prompt.clone());
    bench.submit(Request { prompt, beam: Some(asked.beam), n: asked.n, ..request })
}

fn found(bench: &Bench, request: RequestId, n: u32) -> Vec<Found> {
    let one = |choice| {
        let seq = SeqId { request, choice };
        let score = bench.outcome(seq).beam?;
        let sum: f64 = bench.infos(seq).iter().map(|token| f64::from(token.logprob)).sum();
        assert!((sum - score.logprob).abs() < 1e-9, "the sum of its tokens");
        Some((bench.tokens(seq), score.logprob, score.score))
    };
    (0..n).filter_map(one).collect()
}

/// Beam search as one would write it down: every hypothesis is a list of tokens, and what may follow
/// is asked of an engine that knows nothing of beams, from the beginning each time.
fn plainly(bench: &mut Bench, asked: &Asked) -> Vec<Found> {
    let width = asked.beam.width as usize;
    let end = |token: TokenId| token == Scripted::END || asked.params.stop_token_ids.contains(&token);
    let score = |sum: f64, len: usize| sum / (len as f64).powf(f64::from(asked.beam.length_penalty));
    let most = asked.params.max_tokens.unwrap() as usize;
    let mut open: Vec<(Vec<TokenId>, f64)> = vec![(Vec::new(), 0.0)];
    let mut ended: Vec<Found> = Vec::new();
    for len in 1..=most {
        let mut all = Vec::new();
        for (tokens, sum) in &open {
            for (token, logprob) in next(bench, asked, tokens) {
                all.push(([&tokens[..], &[token]].concat(), sum + f64::from(logprob)));
            }
        }
        // Stable: ties stay in the order of their beams.
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        open.clear();
        for (place, (tokens, sum)) in all.into_iter().enumerate() {
            let ends = len == most || end(*tokens.last().unwrap());
            match ends {
                true if place < width => ended.push((tokens, sum, score(sum, len))),
                false if open.len() < width => open.push((tokens, sum)),
                _ => {}
            }
        }
        ended.sort_by(|a, b| b.2.total_cmp(&a.2));
        ended.truncate(width);
        if open.is_empty() {
            break;
        }
        let longest = match asked.beam.early_stopping {
            EarlyStopping::Never if asked.beam.length_penalty > 0.0 => most,
            _ => len,
        };
        let lost = |worst: &Found| score(open[0].1, longest) <= worst.2;
        let full = ended.get(width - 1);
        if full.is_some_and(|worst| asked.beam.early_stopping == EarlyStopping::True || lost(worst)) {
            break;
        }
    }
    ended.truncate(asked.n as usize);
    ended
}

/// The likeliest tokens after a prompt and what follows it.
fn next(bench: &mut Bench, asked: &Asked, tokens: &[TokenId]) -> Vec<(TokenId, f32)> {
    let params = SamplingParams { max_tokens: Some(1), logprobs: Some(60), ignore_eos: true, ..greedy() };
    let request = bench.request("", params);
    let id = bench.submit(Request { prompt: Prompt::Tokens([&asked.prompt, tokens].concat()), ..request });
    bench.run();
    let tokens = bench.infos(first(id))[0].top.iter().map(|top| (top.id, top.logprob)).collect();
    bench.events.clear();
    tokens
}

fn asked(width: u32, length_penalty: f32, early_stopping: EarlyStopping, max_tokens: u32) -> Asked {
    // Every ninth token ends an answer: some end early, some never.
    let stop_token_ids = (0..250).step_by(9).collect();
    Asked {
        prompt: (0..21).map(|i| (i * 37 + 11) % 250).collect(),
        params: SamplingParams { stop_token_ids, max_tokens: Some(max_tokens), ..greedy() },
        beam: BeamSearch { width, length_penalty, early_stopping },
        n: width,
    }
}

fn every_kind(max_tokens: u32) -> Vec<Asked> {
    let early = [EarlyStopping::False, EarlyStopping::True, EarlyStopping::Never];
    let penalties = [1.0, 0.0, 2.0, -0.5];
    (1..=16).map(|w| asked(w, penalties[w as usize % 4], early[w as usize % 3], max_tokens)).collect()
}

/// The checkpoints know more tokens than there are bytes.
fn whole_vocabulary(settings: EngineSettings, model: &str) -> Bench {
    let runner = real::runner(model, None);
    let size = runner.limits().vocab_size;
    let spec = VocabSpec {
        model: "llama".into(),
        tokens: (0..size).map(|id| format!("t{id}")).collect(),
        scores: vec![0.0; size],
        ..VocabSpec::default()
    };
    Bench::over(TextModel::new(spec).unwrap(), settings, runner, Clock::virtual_time())
}

#[test]
fn widths_1_to_16_find_what_a_plain_search_finds_on_tiny_checkpoints() {
    for model in real::MODELS {
        let mut plain = whole_vocabulary(settings().caching(false), model);
        let mut beams = whole_vocabulary(settings(), model);
        for asked in every_kind(7) {
            let right = plainly(&mut plain, &asked);
            let id = submit(&mut beams, &asked);
            beams.run();
            assert_eq!(found(&beams, id, asked.n), right, "{model}, {:?}", asked.beam);
            assert!(!right.is_empty());
        }
    }
}

/// On the scripted runner, which also sees to it that every beam attends to its own past.
fn alone() -> Vec<Vec<Found>> {
    every_kind(12)
        .iter()
        .map(|asked| {
            let mut bench = Bench::new(babbler());
            let id = submit(&mut bench, asked);
            bench.run();
            found(&bench, id, asked.n)
        })
        .collect()
}

fn together(settings: EngineSettings, blocks: usize) -> (Vec<Vec<Found>>, Counters) {
    let mut bench = Bench::with(settings, Scripted::babbling(Scripted::limits(blocks, 4)));
    let ids: Vec<_> = every_kind(12)
        .iter()
        .map(|asked| {
            bench.ask("somebody else's question", seeded(3, 9));
            (submit(&mut bench, asked), asked.n)
        })
        .collect();
    bench.run();
    let found = ids.iter().map(|(id, n)| found(&bench, *id, *n)).collect();
    (found, bench.engine.snapshot().counters)
}

#[test]
fn in_any_company_and_mode_the_same_answers() {
    let right = alone();
    let check = |what: &str, settings: EngineSettings, blocks: usize| {
        let (found, counters) = together(settings, blocks);
        assert_eq!(found, right, "{what}");
        counters
    };
    check("beside others", settings(), 512);
    check("in small steps", settings().budget(5), 512);
    check("in few places", settings().seqs(16), 512);
    check("uncached", settings().caching(false), 512);
    check("ahead of results", settings().tuned(|s| s.async_scheduling = true), 512);
    check("in rounds", settings().tuned(|s| s.num_scheduler_steps = 4), 512);
    for mode in [PreemptionMode::Recompute, PreemptionMode::Retract] {
        let counters = check("short of blocks", settings().tuned(|s| s.preemption_mode = mode), 40);
        assert!(counters.preemptions > 0, "{mode:?}: nothing was short");
    }
}

/// Fewer places than beams: those that have their candidates make room for the others.
#[test]
fn a_search_that_does_not_fit_at_once_comes_to_its_end() {
    let asked = asked(8, 1.0, EarlyStopping::False, 10);
    let mut bench = Bench::new(babbler());
    let id = submit(&mut bench, &asked);
    bench.run();
    let right = found(&bench, id, asked.n);
    for (seqs, blocks) in [(1, 512), (3, 512), (256, 12)] {
        let mut bench = Bench::with(settings().seqs(seqs), Scripted::babbling(Scripted::limits(blocks, 4)));
        let ids = [submit(&mut bench, &asked), submit(&mut bench, &asked)];
        bench.run();
        for id in ids {
            assert_eq!(found(&bench, id, asked.n), right, "{seqs} places, {blocks} blocks");
        }
    }
}

/// "I love cook" 0.084 and "I love read" 0.063: with two beams, the likelier first word leads to both.
#[test]
fn the_example_of_the_glossary() {
    const P: [(&str, &[(u8, f32)]); 4] = [
        ("I", &[(b'l', 0.42), (b'h', 0.33), (b'w', 0.25)]),
        (
            "Il",
            &[
                (b'c', 0.20),
                (b'r', 0.15),
                (b'e', 0.14),
                (b's', 0.13),
                (b'd', 0.13),
                (b't', 0.13),
                (b'f', 0.12),
            ],
        ),
        ("Ih", &[(b'c', 0.17), (b'r', 0.17), (b'e', 0.17), (b's', 0.17), (b'd', 0.16), (b't', 0.16)]),
        ("", &[(0, 1.0)]),
    ];
    let script = |row: &glassbox::sample::SampleRow, logits: &mut [f32]| {
        let text: Vec<u8> = row.tokens.iter().map(|id| *id as u8).collect();
        let (_, next) = P.iter().find(|(past, _)| past.as_bytes() == text || past.is_empty()).unwrap();
        logits.fill(f32::NEG_INFINITY);
        next.iter().for_each(|(token, p)| logits[*token as usize] = p.ln());
    };
    let mut bench = Bench::new(Scripted::with_logits(Scripted::limits(64, 4), script));
    bench.send(Command::Focus(None));
    let params = SamplingParams { max_tokens: Some(2), ..greedy() };
    let beam = BeamSearch { width: 2, length_penalty: 0.0, ..BeamSearch::default() };
    let request = bench.request("I", params);
    let id = bench.submit(Request { beam: Some(beam), n: 2, ..request });
    bench.step();
    let view = bench.engine.snapshot().beams.unwrap();
    let open: Vec<_> =
        view.open.iter().map(|row| (row.tokens[0].1.as_str(), (row.sum.exp() * 100.0).round())).collect();
    assert_eq!(open, [("l", 42.0), ("h", 33.0)]);
    assert_eq!(view.pruned[0].text, "w");
    assert!((view.pruned[0].behind - (0.33f64 / 0.25).ln()).abs() < 1e-6);
    bench.run();
    let answers: Vec<_> = (0..2)
        .map(|choice| {
            let seq = SeqId { request: id, choice };
            let p = bench.outcome(seq).beam.unwrap().logprob.exp();
            (bench.choice_text(seq), format!("{p:.3}"))
        })
        .collect();
    assert_eq!(answers, [("lc".into(), "0.084".into()), ("lr".into(), "0.063".into())]);
}

#[test]
fn beams_share_the_blocks_of_their_common_past() {
    let mut bench = Bench::new(babbler());
    bench.send(Command::Focus(None));
    let asked = Asked {
        params: SamplingParams { max_tokens: Some(30), ..greedy() },
        ..asked(4, 1.0, EarlyStopping::False, 30)
    };
    let id = submit(&mut bench, &asked);
    (0..6).for_each(|_| bench.step());
    let view = bench.engine.snapshot().beams.unwrap();
    assert_eq!((view.request, view.depth, view.open.len(), view.over), (id, 6, 4, false));
    // 21 + 5 computed tokens in blocks of 4: five full blocks of the prompt are everyone's.
    assert!(view.shared >= 5 && view.saved >= 15, "{view:?}");
    assert!(view.blocks < 4 * 7 - 14, "{view:?}");
    let owners = bench.kv().blocks.iter().filter(|block| block.references == 4).count();
    assert!(owners >= 5);
    let sums: Vec<f64> = view.open.iter().map(|row| row.sum).collect();
    assert!(sums.is_sorted_by(|a, b| a >= b));
    bench.run();
    assert!(bench.engine.snapshot().beams.unwrap().over);
}

#[test]
fn a_stop_string_ends_an_answer_of_a_search() {
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "one two three"));
    let params = SamplingParams { stop: vec![" tw".into()], max_tokens: Some(20), ..greedy() };
    let request = bench.request("count", params);
    let id =
        bench.submit(Request { beam: Some(BeamSearch { width: 2, ..BeamSearch::default() }), ..request });
    bench.run();
    assert_eq!(*bench.reason(id), FinishReason::StopString(" tw".into()));
    assert_eq!(bench.text(id), "one");
}

#[test]
fn what_cannot_be_searched_is_refused_and_a_bad_row_or_an_abort_ends_one_search_only() {
    let mut bench =
        Bench::new(babbler().poisoning(|row| row.tokens.len() == 9 && row.tokens[0] == u32::from(b'p')));
    let refused = [
        (0, 1, 1.0, "beam_width"),
        (65, 1, 1.0, "beam_width"),
        (2, 3, 1.0, "n must be"),
        (2, 1, f32::NAN, "length_penalty"),
    ];
    for (width, n, length_penalty, named) in refused {
        let request = bench.request("x", greedy());
        let beam = Some(BeamSearch { width, length_penalty, ..BeamSearch::default() });
        let id = bench.submit(Request { beam, n, ..request });
        assert!(bench.failure(id).message.contains(named), "{}", bench.failure(id).message);
    }
    let search = |bench: &mut Bench, prompt: &str| {
        let request = bench.request(prompt, SamplingParams { max_tokens: Some(12), ..greedy() });
        bench.submit(Request { beam: Some(BeamSearch::default()), n: 2, ..request })
    };
    let (poisoned, aborted, whole) =
        (search(&mut bench, "poison"), search(&mut bench, "abort"), search(&mut bench, "whole"));
    (0..3).for_each(|_| bench.step());
    bench.send(Command::Abort(aborted));
    bench.run();
    assert!(bench.failure(poisoned).message.contains("NaN"));
    assert_eq!(*bench.reason(aborted), FinishReason::Abort);
    let mut alone = Bench::new(babbler());
    let same = search(&mut alone, "whole");
    alone.run();
    assert_eq!(found(&bench, whole, 2), found(&alone, same, 2));
    assert_eq!(found(&bench, whole, 2).len(), 2);
}

/// Each beam has its own place in the grammar; where that ends, the answer does.
#[test]
fn a_search_in_a_grammar_finds_its_likeliest_texts_and_no_others() {
    let texts = ["cat", "car", "dog"];
    let ask = |n: u32, width: u32| {
        let mut bench = Bench::new(babbler());
        let request = bench.request("which?", greedy());
        let grammar = Grammar::Choice(texts.map(String::from).to_vec());
        let beam = Some(BeamSearch { width, length_penalty: 0.0, ..BeamSearch::default() });
        let guided = Some(Guided { grammar, in_reasoning: false });
        let id = bench.submit(Request { beam, n, guided, ..request });
        bench.run();
        (bench, id)
    };
    let (bench, id) = ask(4, 4);
    let said = |bench: &Bench, choice| bench.choice_text(SeqId { request: id, choice });
    let mut all: Vec<String> = (0..3).map(|choice| said(&bench, choice)).collect();
    assert_eq!(*bench.reason(id), FinishReason::Stop);
    let scores: Vec<f64> = found(&bench, id, 3).iter().map(|found| found.2).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b));
    let FinishReason::Error(none) = &bench.outcome(SeqId { request: id, choice: 3 }).reason else { panic!() };
    assert!(none.message.contains("found 3 answers"), "{}", none.message);
    let (narrow, id) = ask(1, 3);
    assert_eq!(narrow.text(id), all[0]);
    all.sort();
    assert_eq!(all, ["car", "cat", "dog"]);
}

/// A branch of an open beam is an answer like any other; the search does not wait for it.
#[test]
fn a_branch_of_an_open_beam_goes_its_own_way() {
    let mut bench = Bench::new(babbler());
    let asked = asked(3, 1.0, EarlyStopping::False, 12);
    let id = submit(&mut bench, &asked);
    (0..4).for_each(|_| bench.step());
    let (branch, parent) = (RequestId(900), first(id));
    let keep = asked.prompt.len() + 2;
    let fork = ForkRequest { id: branch, parent, keep, then: Vec::new(), params: seeded(5, 8) };
    bench.send(Command::Fork(Box::new(fork)));
    bench.run();
    assert_eq!(*bench.reason(branch), FinishReason::Length);
    let mut alone = Bench::new(babbler());
    let same = submit(&mut alone, &asked);
    alone.run();
    assert_eq!(found(&bench, id, 3), found(&alone, same, 3));
}
