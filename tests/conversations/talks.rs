//! Conversations as a generator makes them: the same number, the same conversation, on any machine.

use glassbox::base::SplitMix;
use glassbox::protocol::{SamplingParams, TokenId};

/// One conversation: a system prompt that others share, and what is asked, one question after another.
/// Each question comes after all that was said before it, answers as they were really given.
pub struct Talk {
    pub system: Vec<TokenId>,
    pub turns: Vec<Turn>,
    /// Breaks its last answer off after so many tokens.
    pub abort: Option<usize>,
    /// Its last answer is branched where it has so many tokens, once it has more.
    pub fork: Option<usize>,
    pub priority: i32,
}

pub struct Turn {
    pub question: Vec<TokenId>,
    pub params: SamplingParams,
    pub n: u32,
}

/// What fits a model, and the time there is.
#[derive(Clone, Copy)]
pub struct Shape {
    pub vocab: usize,
    /// Longest system prompt, usual question, shortest and longest answer, longest conversation, most questions.
    pub system: usize,
    pub question: usize,
    pub answer: (usize, usize),
    pub longest: usize,
    pub turns: usize,
}

const SYSTEMS: usize = 6;

pub fn talks(count: usize, shape: Shape) -> Vec<Talk> {
    (0..count as u64).map(|number| talk(number, shape)).collect()
}

fn talk(number: u64, shape: Shape) -> Talk {
    // System prompts begin alike and get longer: prefixes that part within blocks.
    let mut shared = SplitMix(1);
    let all: Vec<TokenId> = tokens(&mut shared, shape.system, shape.vocab);
    let mut random = SplitMix(number ^ (0xC0FFEE << 20));
    let system = all[..shape.system * random.below(SYSTEMS) / (SYSTEMS - 1)].to_vec();
    let mut room = shape.longest - system.len();
    let mut turns = Vec::new();
    for turn in 0..random.between(1, shape.turns) as u64 {
        let long = if random.one_in(12) { 8 * shape.question } else { shape.question };
        let max_tokens = random.between(shape.answer.0, shape.answer.1);
        let mut question = random.between(1, long);
        if question + max_tokens > room {
            if turn > 0 {
                break;
            }
            question = room - max_tokens;
        }
        room -= question + max_tokens;
        turns.push(Turn {
            question: tokens(&mut random, question, shape.vocab),
            params: params(&mut random, number * 100 + turn * 10, max_tokens),
            n: if random.one_in(5) { random.between(2, 3) as u32 } else { 1 },
        });
    }
    let cut = random.between(1, shape.answer.0);
    let abort = random.one_in(10).then_some(cut);
    let fork = (abort.is_none() && random.one_in(3)).then_some(cut);
    Talk { system, turns, abort, fork, priority: random.below(4) as i32 }
}

/// Greedy or drawn, narrow or wide, with and without penalties.
fn params(random: &mut SplitMix, seed: u64, max_tokens: usize) -> SamplingParams {
    let plain = SamplingParams {
        seed: Some(seed),
        max_tokens: Some(max_tokens as u32),
        ignore_eos: !random.one_in(4),
        ..SamplingParams::default()
    };
    match random.below(4) {
        0 | 1 => SamplingParams { temperature: 0.0, ..plain },
        2 => SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..plain },
        _ => SamplingParams { repetition_penalty: 1.2, frequency_penalty: 0.3, ..plain },
    }
}

fn tokens(random: &mut SplitMix, count: usize, vocab: usize) -> Vec<TokenId> {
    (0..count).map(|_| random.below(vocab) as TokenId).collect()
}
