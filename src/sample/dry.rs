//! DRY, "don't repeat yourself": p-e-w, oobabooga/text-generation-webui#5677 (2024), as llama.cpp has it
//! (src/llama-sampler.cpp, `llama_sampler_dry_apply`).

use super::field::Field;
use super::{Phrases, SampleRow};
use crate::protocol::TokenId;

#[derive(Debug, Default)]
pub struct DryMemory {
    /// For each distance back from the end: how many tokens before it repeat the end.
    repeats: Vec<usize>,
    /// Tokens that would lengthen a repetition, with its length.
    longest: Vec<(TokenId, usize)>,
}

/// Penalises every token that followed an earlier occurrence of what the text ends with, by
/// multiplier * base ^ (length of that - allowed length).
pub fn dry(field: &mut Field, row: &SampleRow, memory: &mut DryMemory) {
    let p = row.params;
    memory.find(window(row), row.phrases, p.dry_allowed_length as usize);
    // A power that single precision cannot hold would make a logit infinite.
    let most = if p.dry_base > 1.000_001 { f32::MAX.ln() / p.dry_base.ln() } else { f32::MAX };
    for &(id, length) in &memory.longest {
        let exponent = ((length - p.dry_allowed_length as usize) as f32).min(most);
        let penalty = (p.dry_multiplier * p.dry_base.powf(exponent)).min(f32::MAX / 4.0);
        field.edit(id, |x| x - penalty);
    }
    field.settle();
}

fn window<'a>(row: &SampleRow<'a>) -> &'a [TokenId] {
    let most = row.params.dry_penalty_last_n.map_or(usize::MAX, |n| n as usize);
    &row.tokens[row.tokens.len().saturating_sub(most)..]
}

impl DryMemory {
    fn find(&mut self, tokens: &[TokenId], phrases: &Phrases, allowed: usize) {
        self.longest.clear();
        let limit = reach(tokens, phrases);
        if tokens.len() <= allowed || limit < allowed {
            return;
        }
        suffix_repeats(tokens, &mut self.repeats);
        for (back, repeat) in self.repeats.iter().enumerate().skip(1) {
            let length = (*repeat).min(limit);
            if length >= allowed {
                self.longest.push((tokens[tokens.len() - back], length));
            }
        }
        // Of one token, the longest repetition counts.
        self.longest.sort_unstable_by_key(|(id, length)| (*id, std::cmp::Reverse(*length)));
        self.longest.dedup_by_key(|(id, _)| *id);
    }
}

/// How many tokens stand after the last sequence breaker.
fn reach(tokens: &[TokenId], phrases: &Phrases) -> usize {
    let after = |at: usize| {
        let tails = phrases.breakers.get(&tokens[at])?;
        let rest = &tokens[at + 1..];
        let longest = tails.iter().filter(|tail| rest.starts_with(tail)).map(Vec::len).max()?;
        Some(rest.len() - longest)
    };
    (0..tokens.len()).rev().find_map(after).unwrap_or(tokens.len())
}

/// `repeats[k]`: how many of the last tokens are the same as those `k` before them. The Z-algorithm
/// on the reversed text: Gusfield, "Algorithms on Strings, Trees and Sequences" (1997), section 1.4.
fn suffix_repeats(tokens: &[TokenId], repeats: &mut Vec<usize>) {
    let n = tokens.len();
    let back = |i: usize| tokens[n - 1 - i];
    repeats.clear();
    repeats.resize(n, 0);
    let (mut left, mut right) = (0, 0);
    for k in 1..n {
        let mut length = if k < right { repeats[k - left].min(right - k) } else { 0 };
        while k + length < n && back(length) == back(k + length) {
            length += 1;
        }
        repeats[k] = length;
        if k + length > right {
            (left, right) = (k, k + length);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(
        tokens: &[TokenId],
        breakers: &[(TokenId, Vec<TokenId>)],
        allowed: usize,
    ) -> Vec<(TokenId, usize)> {
        let mut phrases = Phrases::default();
        for (head, tail) in breakers {
            phrases.breakers.entry(*head).or_default().push(tail.clone());
        }
        let mut memory = DryMemory::default();
        memory.find(tokens, &phrases, allowed);
        memory.longest
    }

    #[test]
    fn what_followed_the_same_end_is_found_with_the_length_of_that() {
        // 1 2 3 stood before, and 4 came after it.
        assert_eq!(found(&[1, 2, 3, 4, 9, 1, 2, 3], &[], 2), [(4, 3)]);
        assert_eq!(found(&[1, 2, 3, 4, 9, 1, 2, 3], &[], 4), []);
        // After 7 7 7 a 7 makes three into four.
        assert_eq!(found(&[7, 7, 7, 7], &[], 2), [(7, 3)]);
    }

    #[test]
    fn no_repetition_reaches_over_a_breaker() {
        let tokens = [1, 2, 3, 4, 9, 1, 2, 3];
        assert_eq!(found(&tokens, &[(1, vec![])], 2), [(4, 2)], "2 3 is what is left of it");
        assert_eq!(found(&tokens, &[(2, vec![])], 2), []);
        assert_eq!(found(&tokens, &[(1, vec![2])], 1), [(4, 1)], "a breaker of two tokens");
        assert_eq!(found(&tokens, &[(1, vec![5])], 2), [(4, 3)], "which does not stand there");
    }

    proptest! {
        #[test]
        fn repeats_are_those_of_plain_comparison(tokens in prop::collection::vec(0u32..3, 0..40)) {
            let mut repeats = Vec::new();
            suffix_repeats(&tokens, &mut repeats);
            for k in 1..tokens.len() {
                let earlier = tokens[..tokens.len() - k].iter().rev();
                let same = tokens.iter().rev().zip(earlier).take_while(|(a, b)| a == b).count();
                prop_assert_eq!(repeats[k], same);
            }
        }
    }
}
