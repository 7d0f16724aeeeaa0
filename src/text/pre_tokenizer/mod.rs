//! How text is cut into words before BPE.

mod pattern;
mod rules;
mod stage;

pub use stage::Behaviour;

use super::VocabError;
use super::normalizer::{Normalizer, normalize};
use pattern::Pattern;
use rules::RULES;
use stage::{Finder, Stage};
use std::borrow::Cow;

/// One cut, as a tokenizer.json describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub at: CutAt,
    pub behaviour: Behaviour,
    /// What is found are the gaps, and what lies between them are the words.
    pub invert: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutAt {
    /// A regular expression.
    Pattern(String),
    /// This very text.
    Literal(String),
    /// Characters with a numeric value.
    Digits,
    Punctuation,
    WhiteSpace,
}

impl Cut {
    pub fn isolated(pattern: impl Into<String>) -> Self {
        Cut { at: CutAt::Pattern(pattern.into()), behaviour: Behaviour::Isolated, invert: false }
    }
}

/// GPT-2's own words, which other cuts may come before and behind.
pub(super) const GPT2: &str = rules::GPT2;

/// Cuts text into words: normalizers, then one cut after the other.
pub(super) struct PreTokenizer {
    normalizers: Vec<Normalizer>,
    stages: Vec<Stage>,
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether vocabularies with this rule begin prompts with BOS when the file does not say.
    pub add_bos: bool,
}

impl PreTokenizer {
    /// By the name a GGUF gives it. A file without a name gets `default`, as llama.cpp has it.
    pub fn named(name: Option<&str>) -> Result<Self, VocabError> {
        let name = name.unwrap_or("default");
        let rule = RULES.iter().find(|rule| rule.names.contains(&name)).ok_or_else(|| {
            let supported: Vec<&str> = RULES.iter().flat_map(|rule| rule.names).copied().collect();
            VocabError::UnknownPreTokenizer { name: name.into(), supported: supported.join(", ") }
        })?;
        let cuts: Vec<Cut> = rule.cuts.iter().map(|pattern| Cut::isolated(*pattern)).collect();
        let normalizers = if rule.nfc { vec![Normalizer::Nfc] } else { Vec::new() };
        let pre = Self::new(normalizers, &cuts)?;
        Ok(Self { ignore_merges: rule.ignore_merges, add_bos: rule.add_bos, ..pre })
    }

    pub fn new(normalizers: Vec<Normalizer>, cuts: &[Cut]) -> Result<Self, VocabError> {
        let stages = cuts.iter().map(stage).collect::<Result<_, _>>()?;
        Ok(Self { normalizers, stages, ignore_merges: false, add_bos: false })
    }

    /// `is_first`: nothing stands before `text`, not even a token.
    pub fn normalize<'t>(&self, text: &'t str, is_first: bool) -> Cow<'t, str> {
        normalize(&self.normalizers, text, is_first)
    }

    /// Calls `word` with one word of normalized text after the other.
    pub fn split<'t>(&self, text: &'t str, word: impl FnMut(&'t str)) {
        let mut words = vec![text];
        for stage in &self.stages {
            let mut finer = Vec::with_capacity(words.len());
            words.into_iter().for_each(|part| stage.split(part, &mut finer));
            words = finer;
        }
        words.into_iter().for_each(word);
    }
}

fn stage(cut: &Cut) -> Result<Stage, VocabError> {
    let finder = match &cut.at {
        CutAt::Pattern(source) => {
            let pattern = Pattern::new(source);
            Finder::Pattern(
                pattern.map_err(|reason| VocabError::Pattern { pattern: source.clone(), reason })?,
            )
        }
        CutAt::Literal(text) => Finder::Literal(text.clone()),
        CutAt::Digits => Finder::Character(char::is_numeric),
        CutAt::Punctuation => {
            let pattern = Pattern::new(r"[\p{P}\$\+<=>\^~\|`]").expect("a valid pattern");
            Finder::Pattern(pattern)
        }
        CutAt::WhiteSpace => Finder::Character(char::is_whitespace),
    };
    Ok(Stage { finder, behaviour: cut.behaviour, invert: cut.invert })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        let pre = PreTokenizer::named(Some(name)).unwrap();
        pre.split(&pre.normalize(text, true), |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn a_space_before_a_word_goes_with_it() {
        assert_eq!(words("gpt-2", "a  b\n\n c  "), ["a", " ", " b", "\n\n", " c", "  "]);
        assert_eq!(words("qwen2", "a  b\n\n c  "), ["a", " ", " b", "\n\n", " c", "  "]);
        assert_eq!(words("qwen2", "x \n  \n\ty\u{a0} z"), ["x", " \n  \n", "\ty", "\u{a0}", " z"]);
        assert_eq!(words("gpt-2", "x \n  y"), ["x", " \n ", " y"]);
    }

    #[test]
    fn digits_and_contractions_by_rule() {
        assert_eq!(words("gpt-2", "I'll pay 1234!!"), ["I", "'ll", " pay", " 1234", "!!"]);
        assert_eq!(words("smollm", "pay 12,3"), ["pay", " ", "1", "2", ",", "3"]);
        assert_eq!(words("llama-bpe", "I'LL 12345"), ["I", "'LL", " ", "123", "45"]);
        assert_eq!(words("qwen2", "a12 !\n\nb"), ["a", "1", "2", " !\n\n", "b"]);
        assert_eq!(words("default", "a 12345, b"), ["a", " ", "123", "45", ",", " b"]);
    }

    #[test]
    fn qwen_composes_characters_first() {
        assert_eq!(words("qwen2", "e\u{301}"), ["\u{e9}"]);
        assert_eq!(words("gpt-2", "e\u{301}"), ["e", "\u{301}"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_are_known() {
        let error = PreTokenizer::named(Some("klingon")).err().unwrap().to_string();
        assert!(
            error.contains("\"klingon\"") && error.contains("smollm") && error.contains("qwen2"),
            "{error}"
        );
    }

    // BUGLOG T15.
    #[test]
    fn a_million_of_one_character_overflow_nothing() {
        for rule in RULES {
            for c in ['^', ' ', 'a'] {
                let text = c.to_string().repeat(1_000_000);
                let total: usize = words(rule.names[0], &text).iter().map(String::len).sum();
                assert_eq!(total, text.len(), "{} {c:?}", rule.names[0]);
            }
        }
    }

    proptest! {
        #[test]
        fn words_add_up_to_the_text(text in r"[ \t\r\na-zé\u{a0}0-9'!\p{Han}]{0,40}") {
            static ALL: LazyLock<Vec<PreTokenizer>> = LazyLock::new(|| {
                RULES.iter().map(|rule| PreTokenizer::named(Some(rule.names[0])).unwrap()).collect()
            });
            for pre in ALL.iter() {
                let mut words = String::new();
                let text = pre.normalize(&text, true);
                pre.split(&text, |word| words.push_str(word));
                prop_assert_eq!(words, text);
            }
        }
    }
}
