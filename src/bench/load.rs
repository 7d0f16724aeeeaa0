use super::plan::Needs;
use crate::base::SplitMix;
use crate::protocol::{ModelInfo, Prompt, Request, RequestId, SamplingParams, TokenId};
use std::ops::RangeInclusive;

/// Tokens of a mixed load's prompts and answers.
pub const PROMPTS: RangeInclusive<usize> = 16..=256;
pub const ANSWERS: RangeInclusive<usize> = 8..=128;

/// Requests of mixed lengths that arrive together, the same ones in every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Tokens of each prompt and of its answer.
    sizes: Vec<(usize, usize)>,
}

impl Load {
    pub fn mixed(requests: u32) -> Self {
        let mut random = SplitMix(1);
        let sizes = (0..requests)
            .map(|_| {
                (
                    random.between(*PROMPTS.start(), *PROMPTS.end()),
                    random.between(*ANSWERS.start(), *ANSWERS.end()),
                )
            })
            .collect();
        Self { sizes }
    }

    /// The first few of them.
    pub(super) fn first(&self, requests: usize) -> Self {
        Self { sizes: self.sizes.iter().take(requests).copied().collect() }
    }

    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Room for the longest `sequences` of them, so that nobody has to give way.
    pub fn needs(&self, sequences: usize) -> Needs {
        let mut lengths: Vec<usize> = self.sizes.iter().map(|(prompt, answer)| prompt + answer).collect();
        lengths.sort_by(|a, b| b.cmp(a));
        Needs {
            sequences: sequences.min(lengths.len()),
            length: lengths.first().copied().unwrap_or(0),
            cache_tokens: lengths.iter().take(sequences).sum(),
            prefix_cache: false,
        }
    }

    /// Prompts of tokens without structure that share nothing; every answer has its full length.
    pub(super) fn requests<'a>(&'a self, info: &ModelInfo) -> impl Iterator<Item = Request> + use<'a> {
        let vocabulary = info.vocab_size.max(1) as u64;
        self.sizes.iter().enumerate().map(move |(i, (prompt, answer))| {
            let mut random = SplitMix(2 + i as u64);
            let tokens = (0..*prompt).map(|_| (random.draw() % vocabulary) as TokenId).collect();
            let params = SamplingParams {
                temperature: 0.0,
                max_tokens: Some(*answer as u32),
                ignore_eos: true,
                ..SamplingParams::default()
            };
            Request::new(RequestId(i as u64), Prompt::Tokens(tokens), params)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_mixed_and_the_same_every_time() {
        let load = Load::mixed(32);
        assert_eq!(load, Load::mixed(32));
        assert!(load.sizes.iter().all(|(p, a)| PROMPTS.contains(p) && ANSWERS.contains(a)));
        let spread = |of: fn(&(usize, usize)) -> usize| {
            let sizes: std::collections::BTreeSet<_> = load.sizes.iter().map(of).collect();
            sizes.last().unwrap_or(&0) - sizes.first().unwrap_or(&0)
        };
        assert!(spread(|s| s.0) > 180 && spread(|s| s.1) > 90, "{:?}", load.sizes);
        let info = ModelInfo { vocab_size: 100, ..ModelInfo::default() };
        let prompts: std::collections::BTreeSet<String> =
            load.requests(&info).map(|request| format!("{:?}", request.prompt)).collect();
        assert_eq!(prompts.len(), 32);
    }

    #[test]
    fn room_is_made_for_the_longest() {
        let load = Load { sizes: vec![(10, 5), (40, 60), (20, 10)] };
        let needs = load.needs(2);
        assert_eq!((needs.sequences, needs.length, needs.cache_tokens), (2, 100, 130));
        assert_eq!(load.needs(8).cache_tokens, 145);
    }
}
