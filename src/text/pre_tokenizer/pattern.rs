use regex_automata::meta::Regex;
use regex_automata::{Input, PatternID};

/// A published pattern of words, matched in linear time.
///
/// Nearly all of them end in `\s+(?!\S)|\s+`: of a run of white space with a word behind it, the last
/// character goes with the word. Look-ahead needs a backtracking engine, whose stack a long run of one
/// character can exhaust, so that end is taken off here, the rest is matched by automata (which know no
/// look-ahead), and the end is [`word_end`].
#[derive(Debug)]
pub(super) struct Pattern {
    /// The words, and where the pattern ended so, `\s+` as a second one for what they leave.
    regex: Regex,
}

/// How published patterns write it; the last character of a run is left for the word in all of them.
const TAILS: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s"];

/// Possessive repetitions that are followed by what they cannot match: giving back would not help them,
/// so that the ordinary kind is the same.
const POSSESSIVE: [(&str, &str); 3] = [
    (r"[^\r\n\p{L}\p{N}]?+\p{L}", r"[^\r\n\p{L}\p{N}]?\p{L}"),
    (r"[^\s\p{L}\p{N}]++[\r\n]", r"[^\s\p{L}\p{N}]+[\r\n]"),
    (r"\p{L}++|", r"\p{L}+|"),
];

/// Of one pattern's automaton, in bytes. The largest published one takes a tenth of it.
const SIZE: usize = 16 << 20;
/// Of a pattern, in bytes; the longest published one has 1,600.
const LONGEST: usize = 1 << 14;

impl Pattern {
    /// # Errors
    /// What is not regular, or too large.
    pub fn new(source: &str) -> Result<Self, String> {
        if source.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
        }
        let mut words = source.to_owned();
        for (possessive, plain) in POSSESSIVE {
            words = words.replace(possessive, plain);
        }
        let tail = TAILS.iter().find_map(|tail| words.strip_suffix(tail)).map(str::to_owned);
        let patterns = match &tail {
            Some(words) => vec![words.as_str(), r"\s+"],
            None => vec![words.as_str()],
        };
        check(patterns[0])?;
        let config = Regex::config().nfa_size_limit(Some(SIZE)).onepass_size_limit(Some(SIZE / 16));
        let regex = Regex::builder().configure(config).build_many(&patterns);
        Ok(Self { regex: regex.map_err(|error| reason(&error))? })
    }

    /// The first word from `at` on, as a range of bytes.
    pub fn find(&self, text: &str, at: usize) -> Option<(usize, usize)> {
        let found = self.regex.search(&Input::new(text).range(at..))?;
        let end = match found.pattern() {
            PatternID::ZERO => found.end(),
            _ => word_end(text, found.start(), found.end()),
        };
        Some((found.start(), end))
    }
}

/// Where a run of white space ends as a word of its own.
fn word_end(text: &str, start: usize, end: usize) -> usize {
    let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
    if end == text.len() || end - last == start { end } else { end - last }
}

/// Refuses what automata would read in another way than the engines these patterns were written for.
fn check(source: &str) -> Result<(), String> {
    // A stretch's end is the text's end in both, where no line break can stand in it.
    let source = source.strip_suffix(r"\s+$").unwrap_or(source);
    let (mut in_class, mut before) = (0_usize, ' ');
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        let mut item = c;
        match c {
            '\\' => {
                item = ' ';
                let named = matches!(chars.next(), Some('p' | 'P' | 'u' | 'x')) && chars.peek() == Some(&'{');
                while named && chars.next().is_some_and(|c| c != '}') {}
            }
            '[' => in_class += 1,
            ']' => in_class = in_class.saturating_sub(1),
            '+' if in_class == 0 && matches!(before, '?' | '*' | '+' | '}') => {
                return Err("possessive repetition is not supported".into());
            }
            '^' | '$' if in_class == 0 => return Err(format!("{c} is not supported")),
            _ => {}
        }
        before = item;
    }
    Ok(())
}

fn reason(error: &regex_automata::meta::BuildError) -> String {
    match (error.syntax_error(), error.size_limit()) {
        (Some(error), _) => {
            let text = error.to_string();
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
        (None, Some(_)) => "it is too large".into(),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_not_regular_is_refused_with_the_reason() {
        let reason = |source: &str| Pattern::new(source).unwrap_err();
        assert!(reason(r"a(?=b)").contains("look-around"), "{}", reason(r"a(?=b)"));
        assert!(reason(r"(a)\1").contains("backreferences"));
        assert!(reason(r"\p{L}?+x").contains("possessive"));
        assert!(reason(r"a$").contains("$ is not supported"));
        assert!(reason(r"((a{1000}){1000}){1000}").contains("too large"));
        assert!(reason(&"a".repeat(20_000)).contains("longer"));
        assert!(Pattern::new(r"[+$^]+|\$|a\++").is_ok());
    }

    #[test]
    fn the_end_of_a_published_pattern_means_the_same() {
        let words = Pattern::new(r"a|\s*[\r\n]+|\s+(?!\S)|\s+").unwrap();
        assert_eq!(words.find("  a", 0), Some((0, 1)));
        assert_eq!(words.find(" a", 0), Some((0, 1)));
        assert_eq!(words.find("  \n  a", 0), Some((0, 3)));
        assert_eq!(words.find("x  ", 0), Some((1, 3)));
        assert_eq!(words.find("x", 0), None);
    }
}
