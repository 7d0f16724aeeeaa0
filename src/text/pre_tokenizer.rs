use super::VocabError;
use std::borrow::Cow;
use tokenizers::normalizers::NFC;
use tokenizers::utils::SysRegex;
use tokenizers::{NormalizedString, Normalizer};

/// How text is cut into words before BPE, by the name a GGUF gives it.
///
/// The published patterns end in `\s+(?!\S)|\s+`. Look-ahead needs a backtracking engine, whose stack
/// a long run of one character can exhaust, so they are written here without it, as plain regular
/// expressions that are matched in linear time, and the look-ahead is [`Tail`].
pub(super) struct PreTokenizer {
    stages: Vec<Stage>,
    nfc: bool,
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether vocabularies with this rule begin prompts with BOS when the file does not say.
    pub add_bos: bool,
}

struct Stage {
    pattern: SysRegex,
    tail: Tail,
}

/// What becomes of a run of white space with a word behind it.
#[derive(Clone, Copy, PartialEq)]
enum Tail {
    /// The pattern matches no such runs.
    Whole,
    /// Its last character goes with the word: `\s+(?!\S)|\s+`.
    GivesLast,
    /// The same, unless the run ends in a line break: `\s*[\r\n]+` comes before.
    GivesLastUnlessBreak,
}

const GPT2: (&str, Tail) =
    (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", Tail::GivesLast);
const LLAMA3: (&str, Tail) = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::GivesLastUnlessBreak,
);
const QWEN2: (&str, Tail) = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::GivesLastUnlessBreak,
);
const ONE_DIGIT: (&str, Tail) = (r"\p{N}", Tail::Whole);
const PUNCTUATION: (&str, Tail) = (r"[\p{P}\$\+<=>\^~\|]+", Tail::Whole);
const DIGITS: (&str, Tail) = (r"\p{N}+", Tail::Whole);
const THREE_DIGITS: (&str, Tail) = ("[0-9][0-9][0-9]", Tail::Whole);

struct Rule {
    /// The first is the usual one; the others share its rule.
    names: &'static [&'static str],
    stages: &'static [(&'static str, Tail)],
    nfc: bool,
    ignore_merges: bool,
    add_bos: bool,
}

const RULES: &[Rule] = &[
    Rule {
        names: &["gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "mellum", "gigachat"],
        stages: &[GPT2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Rule {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        stages: &[ONE_DIGIT, GPT2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Rule {
        names: &["qwen2", "deepseek-r1-qwen", "megrez"],
        stages: &[QWEN2],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3"],
        stages: &[LLAMA3],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    Rule {
        names: &["default"],
        stages: &[PUNCTUATION, GPT2, DIGITS, THREE_DIGITS],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
];

impl PreTokenizer {
    /// A file without a name gets `default`, as llama.cpp has it.
    pub fn named(name: Option<&str>) -> Result<Self, VocabError> {
        let name = name.unwrap_or("default");
        let rule = RULES.iter().find(|rule| rule.names.contains(&name)).ok_or_else(|| {
            let supported: Vec<&str> = RULES.iter().flat_map(|rule| rule.names).copied().collect();
            VocabError::UnknownPreTokenizer { name: name.into(), supported: supported.join(", ") }
        })?;
        let stages = rule.stages.iter().map(|&(pattern, tail)| Stage {
            pattern: SysRegex::new(pattern).expect("the patterns above are valid"),
            tail,
        });
        Ok(Self {
            stages: stages.collect(),
            nfc: rule.nfc,
            ignore_merges: rule.ignore_merges,
            add_bos: rule.add_bos,
        })
    }

    /// Calls `word` with one word after the other.
    pub fn split(&self, text: &str, mut word: impl FnMut(&str)) {
        let text = self.normalize(text);
        let mut words = vec![&*text];
        for stage in &self.stages {
            let mut finer = Vec::new();
            words.into_iter().for_each(|part| stage.split(part, &mut finer));
            words = finer;
        }
        words.into_iter().for_each(&mut word);
    }

    fn normalize<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.nfc || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut normalized = NormalizedString::from(text);
        NFC.normalize(&mut normalized).expect("NFC cannot fail");
        Cow::Owned(normalized.get().to_owned())
    }
}

impl Stage {
    /// Matches and what lies between them, in order.
    fn split<'t>(&self, text: &'t str, words: &mut Vec<&'t str>) {
        let mut done = 0;
        while let Some((start, end)) = self.pattern.find_iter(&text[done..]).next() {
            if start > 0 {
                words.push(&text[done..done + start]);
            }
            let end = self.word_end(text, done + start, done + end);
            words.push(&text[done + start..end]);
            done = end;
        }
        if done < text.len() {
            words.push(&text[done..]);
        }
    }

    /// Where the word ends that the pattern saw at `start..end`. Only runs of white space end in it,
    /// but for words ending in a line break where [`Tail::GivesLastUnlessBreak`] applies.
    fn word_end(&self, text: &str, start: usize, end: usize) -> usize {
        let Some(last) = text[start..end].chars().next_back() else { return end };
        let before_last = end - last.len_utf8();
        let is_break = last == '\n' || last == '\r';
        let whole = self.tail == Tail::Whole
            || (self.tail == Tail::GivesLastUnlessBreak && is_break)
            || !last.is_whitespace()
            || end == text.len()
            || before_last == start;
        if whole { end } else { before_last }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        PreTokenizer::named(Some(name)).unwrap().split(text, |word| words.push(word.to_owned()));
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
                pre.split(&text, |word| words.push_str(word));
                prop_assert_eq!(words, pre.normalize(&text));
            }
        }
    }
}
