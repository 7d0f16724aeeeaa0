use super::pattern::Pattern;
use std::ops::Range;

/// One way to cut text, all over it.
#[derive(Debug)]
pub(super) struct Stage {
    pub finder: Finder,
    pub behaviour: Behaviour,
    /// What is found are the gaps, and what lies between them are the words.
    pub invert: bool,
}

#[derive(Debug)]
pub(super) enum Finder {
    Pattern(Pattern),
    Literal(String),
    Character(fn(char) -> bool),
}

/// What becomes of what was found, and of what lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Each is a word.
    Isolated,
    /// What was found is dropped.
    Removed,
    MergedWithPrevious,
    MergedWithNext,
    /// Finds that touch are one word.
    Contiguous,
}

impl Stage {
    /// Appends the words of `text`, in order; together they are the text, but for what is removed.
    pub fn split<'t>(&self, text: &'t str, words: &mut Vec<&'t str>) {
        let mut last: Option<(Range<usize>, bool)> = None;
        self.parts(text, |range, is_match| {
            let joins = last.as_ref().is_some_and(|(_, before)| match self.behaviour {
                Behaviour::Isolated | Behaviour::Removed => false,
                Behaviour::MergedWithPrevious => is_match && !before,
                Behaviour::MergedWithNext => !is_match && *before,
                Behaviour::Contiguous => is_match == *before,
            });
            match &mut last {
                Some((word, kind)) if joins => {
                    word.end = range.end;
                    // A word that has taken its match takes no second one.
                    *kind = is_match;
                }
                _ => {
                    self.emit(text, last.take(), words);
                    last = Some((range, is_match));
                }
            }
        });
        self.emit(text, last, words);
    }

    fn emit<'t>(&self, text: &'t str, part: Option<(Range<usize>, bool)>, words: &mut Vec<&'t str>) {
        if let Some((range, is_match)) = part
            && !(is_match && self.behaviour == Behaviour::Removed)
            && !range.is_empty()
        {
            words.push(&text[range]);
        }
    }

    /// What is found and what lies between, in order.
    fn parts(&self, text: &str, mut part: impl FnMut(Range<usize>, bool)) {
        let (mut done, mut at) = (0, 0);
        while let Some((start, end)) = self.finder.find(text, at) {
            if start > done {
                part(done..start, self.invert);
            }
            part(start..end, !self.invert);
            done = end;
            // An empty find cuts, and the search goes on behind the next character.
            at = if end > start { end } else { end + text[end..].chars().next().map_or(1, char::len_utf8) };
            if at > text.len() {
                break;
            }
        }
        if done < text.len() {
            part(done..text.len(), self.invert);
        }
    }
}

impl Finder {
    fn find(&self, text: &str, at: usize) -> Option<(usize, usize)> {
        match self {
            Finder::Pattern(pattern) => pattern.find(text, at),
            Finder::Literal(literal) => {
                let start = at + text[at..].find(literal.as_str())?;
                Some((start, start + literal.len()))
            }
            Finder::Character(is) => {
                let (start, c) = text[at..].char_indices().find(|(_, c)| is(*c))?;
                Some((at + start, at + start + c.len_utf8()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    const BEHAVIOURS: [(Behaviour, SplitDelimiterBehavior); 5] = [
        (Behaviour::Isolated, SplitDelimiterBehavior::Isolated),
        (Behaviour::Removed, SplitDelimiterBehavior::Removed),
        (Behaviour::MergedWithPrevious, SplitDelimiterBehavior::MergedWithPrevious),
        (Behaviour::MergedWithNext, SplitDelimiterBehavior::MergedWithNext),
        (Behaviour::Contiguous, SplitDelimiterBehavior::Contiguous),
    ];

    proptest! {
        #[test]
        fn every_behaviour_cuts_as_the_tokenizers_library_does(
            text in "[ab é]{0,12}", which in 0..5_usize, invert: bool, pattern in 0..4_usize,
        ) {
            let (behaviour, library) = BEHAVIOURS[which];
            let pattern = ["a", "a+", "[ b]", "é|ab"][pattern];
            let finder = Finder::Pattern(Pattern::new(pattern).unwrap());
            let mut words = Vec::new();
            Stage { finder, behaviour, invert }.split(&text, &mut words);
            let split = Split::new(SplitPattern::Regex(pattern.into()), library, invert).unwrap();
            let mut expected = PreTokenizedString::from(text.as_str());
            split.pre_tokenize(&mut expected).unwrap();
            let expected = expected.get_splits(OffsetReferential::Original, OffsetType::Byte);
            let expected: Vec<&str> = expected.iter().map(|(word, ..)| *word).filter(|word| !word.is_empty()).collect();
            prop_assert_eq!(words, expected);
        }
    }
}
