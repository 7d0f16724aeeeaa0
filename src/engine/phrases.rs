use crate::protocol::{SamplingParams, TokenId};
use crate::sample::Phrases;
use crate::text::{Specials, TextModel};

/// A request's texts as tokens. Looking through a vocabulary for breakers takes milliseconds: this is
/// intake's work.
pub fn phrases(text: &TextModel, params: &SamplingParams) -> Phrases {
    let mut phrases = Phrases::default();
    for word in &params.bad_words {
        phrases.bad_words.extend(spellings(text, word));
    }
    if params.dry_multiplier > 0.0 {
        let breakers = params.dry_sequence_breakers.iter().filter(|breaker| !breaker.is_empty());
        breakers.for_each(|breaker| add_breaker(text, breaker, &mut phrases));
    }
    phrases
}

/// A word is other tokens at the start of a text than after a space: both are meant, the second where
/// its space is part of a token (vLLM: `SamplingParams.update_from_tokenizer`).
fn spellings(text: &TextModel, word: &str) -> Vec<Vec<TokenId>> {
    let word = word.trim_start();
    let encode = |word: &str| text.encode(word, Specials::Text);
    let (bare, spaced) = (encode(word), encode(&format!(" {word}")));
    let both = spaced.first() != bare.first() && spaced.len() == bare.len();
    let all = if both { vec![bare, spaced] } else { vec![bare] };
    all.into_iter().filter(|ids| !ids.is_empty()).collect()
}

/// Every way in which tokens can hold a breaker: a token with all of it, or one that ends with its
/// beginning, and the tokens of the rest (llama.cpp: `get_overlapping_token_sequences`).
fn add_breaker(text: &TextModel, breaker: &str, phrases: &mut Phrases) {
    let wanted = breaker.as_bytes();
    for id in 0..text.vocab_size() as TokenId {
        let piece = text.piece(id);
        let mut tails = Vec::new();
        if piece.windows(wanted.len()).any(|part| part == wanted) {
            tails.push(Vec::new());
        } else {
            let begun =
                (1..wanted.len()).filter(|n| breaker.is_char_boundary(*n) && piece.ends_with(&wanted[..*n]));
            tails.extend(begun.map(|n| text.encode(&breaker[n..], Specials::Text)));
        }
        if !tails.is_empty() {
            phrases.breakers.entry(id).or_default().extend(tails);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vocabulary has a token for each byte.
    #[test]
    fn bad_words_and_breakers_become_tokens() {
        let params = SamplingParams {
            bad_words: vec!["ab".into(), " c".into()],
            dry_multiplier: 0.8,
            dry_sequence_breakers: vec!["\n".into(), "xy".into()],
            ..Default::default()
        };
        let found = phrases(&TextModel::bytes(), &params);
        assert_eq!(found.bad_words, [vec![97, 98], vec![99]]);
        assert_eq!(found.breakers.get(&10), Some(&vec![vec![]]));
        assert_eq!(found.breakers.get(&u32::from(b'x')), Some(&vec![vec![u32::from(b'y')]]));
        assert_eq!(found.breakers.len(), 2);
        let idle = SamplingParams { dry_multiplier: 0.0, ..params };
        assert!(phrases(&TextModel::bytes(), &idle).breakers.is_empty());
    }
}
