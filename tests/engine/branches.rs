//! Branches of running and finished sequences: full blocks shared, the partial one copied when written.

use crate::harness::*;
use glassbox::model::Scripted;
use glassbox::protocol::*;

fn fork(
    bench: &mut Bench,
    parent: SeqId,
    keep: usize,
    then: &[TokenId],
    params: SamplingParams,
) -> RequestId {
    let id = RequestId(1000 + bench.events.len() as u64);
    let then = then.to_vec();
    bench.send(Command::Fork(Box::new(ForkRequest { id, parent, keep, then, params })));
    id
}

/// The whole text of a fork: what it took over, then what it drew.
fn drawn_after(prompt: &[TokenId], params: &SamplingParams) -> Vec<TokenId> {
    let mut bench = Bench::new(babbler());
    let request = bench.request("", params.clone());
    let id = bench.submit(Request { prompt: Prompt::Tokens(prompt.to_vec()), ..request });
    bench.run();
    bench.tokens(first(id))
}

#[test]
fn a_branch_at_any_token_shares_full_blocks_and_copies_the_partial_one_when_written() {
    for said in 1..9 {
        let mut bench = Bench::new(babbler());
        let parent = first(bench.ask("ten tokens", seeded(1, 20)));
        (0..9).for_each(|_| bench.step());
        let keep = 10 + said;
        let before = bench.kv().owned;
        let branch = fork(&mut bench, parent, keep, &[], seeded(9, 16));
        assert_eq!(bench.kv().owned, before, "nothing is copied before it is written");
        let shared = bench.kv().blocks.iter().filter(|block| block.references == 2).count();
        assert_eq!(shared, (keep - 1).div_ceil(4), "at {keep}");
        bench.step();
        // The last kept token runs again, and with it starts the branch's own block.
        assert_eq!(bench.record().blocks_copied, usize::from((keep - 1) % 4 != 0), "at {keep}");
        bench.run();
        let tokens = bench.tokens(parent);
        assert_eq!(tokens, solo(babbler, "ten tokens", &seeded(1, 20)), "the parent is untouched");
        let mut prompt: Vec<TokenId> = "ten tokens".bytes().map(u32::from).collect();
        prompt.extend(&tokens[..said]);
        // The branch counts what it took over against its limit.
        let right = drawn_after(&prompt, &seeded(9, 16 - said as u32));
        assert_eq!(bench.tokens(first(branch)), right, "at {keep}");
    }
}

#[test]
fn a_branch_with_its_parents_seed_says_what_the_parent_says() {
    let mut bench = Bench::new(babbler());
    let parent = first(bench.ask("hello", seeded(4, 20)));
    (0..8).for_each(|_| bench.step());
    let branch = fork(&mut bench, parent, 5 + 6, &[], seeded(4, 20));
    bench.run();
    assert_eq!(bench.tokens(first(branch)), bench.tokens(parent)[6..]);
    assert_eq!(bench.choice_text(first(branch)), bench.choice_text(parent), "text taken over is told again");
    let usage = bench.outcome(first(branch)).usage;
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (5, 20));
}

#[test]
fn a_branch_may_be_made_to_begin_otherwise() {
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "abcdefgh"));
    let parent = first(bench.ask("x", greedy()));
    (0..5).for_each(|_| bench.step());
    let branch = fork(&mut bench, parent, 1 + 3, &Scripted::encode("ZZ"), greedy());
    bench.run();
    assert_eq!(bench.choice_text(parent), "abcdefgh");
    assert_eq!(bench.choice_text(first(branch)), "abcZZfgh");
}

#[test]
fn a_finished_sequence_can_be_branched_from_its_cached_blocks() {
    let mut bench = Bench::new(babbler());
    let parent = first(bench.ask("ten tokens", seeded(1, 20)));
    bench.run();
    let branch = fork(&mut bench, parent, 10 + 15, &[], seeded(1, 20));
    bench.run();
    assert_eq!(bench.tokens(first(branch)), bench.tokens(parent)[15..]);
    assert_eq!(bench.outcome(first(branch)).usage.cached_tokens, 24);
}

#[test]
fn branches_of_branches_and_forks_inside_the_prompt() {
    let mut bench = Bench::new(babbler());
    let parent = first(bench.ask("ten tokens", seeded(1, 30)));
    (0..6).for_each(|_| bench.step());
    let inside = fork(&mut bench, parent, 6, &[u32::from(b'!')], seeded(2, 8));
    let one = fork(&mut bench, parent, 13, &[], seeded(3, 20));
    (0..3).for_each(|_| bench.step());
    let two = fork(&mut bench, first(one), 14, &[], seeded(4, 20));
    bench.run();
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<TokenId>>();
    assert_eq!(bench.tokens(first(inside)), drawn_after(&bytes("ten to!"), &seeded(2, 8)));
    let mut prompt = [bytes("ten tokens"), bench.tokens(parent)[..3].to_vec()].concat();
    assert_eq!(bench.tokens(first(one)), drawn_after(&prompt, &seeded(3, 17)));
    prompt.push(bench.tokens(first(one))[0]);
    assert_eq!(bench.tokens(first(two)), drawn_after(&prompt, &seeded(4, 16)));
    assert_eq!(bench.kv().owned, 0);
}

#[test]
fn a_branch_of_nobody_or_of_too_much_is_refused_with_the_numbers() {
    let mut bench = Bench::new(babbler());
    let parent = first(bench.ask("hello", seeded(1, 4)));
    bench.step();
    let lost = fork(&mut bench, first(RequestId(77)), 3, &[], seeded(1, 4));
    assert!(bench.failure(lost).message.contains("sequence 77 is not known"));
    let far = fork(&mut bench, parent, 99, &[], seeded(1, 4));
    assert!(bench.failure(far).message.contains("keeps 99 tokens; sequence 1 has 6"));
    let wrong = fork(&mut bench, parent, 3, &[9999], seeded(1, 4));
    assert!(bench.failure(wrong).message.contains("token 9999"));
    bench.run();
    assert_eq!(bench.tokens(parent).len(), 4);
}

/// Two branches between two steps: the second one sees the first.
#[test]
fn branches_made_between_two_steps_share_the_places_that_are_left() {
    let mut bench = Bench::with(settings().seqs(2), babbler());
    let parent = first(bench.ask("ten tokens", seeded(1, 30)));
    (0..6).for_each(|_| bench.step());
    let branches = [7, 8].map(|seed| fork(&mut bench, parent, 13, &[], seeded(seed, 20)));
    let running = |bench: &Bench| {
        let sequences = bench.engine.snapshot().sequences;
        sequences.iter().filter(|seq| seq.state == SequenceState::Running).count()
    };
    assert_eq!(running(&bench), 2);
    bench.step();
    assert_eq!(running(&bench), 2);
    bench.run();
    assert!(branches.iter().all(|id| bench.reason(*id) == &FinishReason::Length));
}
