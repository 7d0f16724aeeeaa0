use super::hub::AddedFlags;
use super::normalizer::normalize;
use super::vocab::{Kind, VocabSpec};
use crate::protocol::TokenId;
use regex_automata::meta::Regex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What becomes of text that looks like a special token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// It is text: for everything a user wrote.
    Text,
    /// It is the token: for what a template wrote.
    Parse,
}

/// A stretch of text, or the token found between two of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Segment<'t> {
    Text(&'t str),
    Token(TokenId),
}

/// Finds the tokens that are written out in text rather than made by merging: control tokens and
/// user-defined ones, the longest at each place.
///
/// Not all of them are structure. Some vocabularies define runs of white space and HTML tags this
/// way, which belong to ordinary text ([`is_plain`]); everything else never comes out of text that
/// must stay text.
pub(super) struct SpecialTokens {
    by_text: HashMap<Vec<u8>, Special>,
    /// [256], by first byte: the lengths in bytes of the tokens that begin with it, longest first.
    lengths: Vec<Vec<usize>>,
}

#[derive(Clone, Copy)]
struct Special {
    id: TokenId,
    structural: bool,
    flags: AddedFlags,
    /// It is not found as it is written, but as it is normalized: [`SpecialTokens::of_normalized`].
    elsewhere: bool,
}

impl SpecialTokens {
    /// `spaces_as_bars`: the vocabulary writes a space as U+2581, and text with one cannot be told from
    /// text with the other.
    pub fn new(spec: &VocabSpec, kinds: &[Kind], spaces_as_bars: bool) -> Self {
        let mut found = Self { by_text: HashMap::new(), lengths: vec![Vec::new(); 256] };
        for (id, text, special) in all(spec, kinds) {
            found.add(if spaces_as_bars { &text.shown } else { &text.written }, id, special);
        }
        found.sorted()
    }

    /// Those tokens that are looked for in normalized text, and are something else there than what they
    /// are in text; none for most vocabularies.
    pub fn of_normalized(spec: &VocabSpec, kinds: &[Kind]) -> Option<Self> {
        let normalizers = &spec.recipe.as_ref()?.normalizers;
        let mut found = Self { by_text: HashMap::new(), lengths: vec![Vec::new(); 256] };
        for (id, text, special) in all(spec, kinds).filter(|(_, _, special)| special.elsewhere) {
            let normalized = normalize(normalizers, &text.written, true);
            found.add(&normalized, id, Special { elsewhere: false, ..special });
        }
        (!found.by_text.is_empty()).then(|| found.sorted())
    }

    fn sorted(mut self) -> Self {
        self.lengths.iter_mut().for_each(|lengths| {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
        });
        self
    }

    /// The token that is written like this.
    pub fn find(&self, text: &str) -> Option<TokenId> {
        self.by_text.get(text.as_bytes()).map(|special| special.id)
    }

    fn add(&mut self, text: &str, id: TokenId, special: Special) {
        // One character cannot be told from text, but where the file says that it can.
        let too_short = special.structural && text.chars().nth(1).is_none();
        if !text.is_empty() && !too_short {
            self.lengths[text.as_bytes()[0] as usize].push(text.len());
            self.by_text.entry(text.as_bytes().to_vec()).or_insert(Special { id, ..special });
        }
    }

    /// Cuts `text` at the tokens found in it.
    pub fn split<'t>(&self, text: &'t str, specials: Specials, mut segment: impl FnMut(Segment<'t>)) {
        let (mut at, mut done) = (0, 0);
        while at < text.len() {
            let Some((len, special)) = self.longest_at(text, at, specials) else {
                at += 1;
                continue;
            };
            let Some((start, end)) = special.flags.range(text, done, at, at + len) else {
                at += len;
                continue;
            };
            if start > done {
                segment(Segment::Text(&text[done..start]));
            }
            segment(Segment::Token(special.id));
            at = end;
            done = end;
        }
        if done < text.len() {
            segment(Segment::Text(&text[done..]));
        }
    }

    fn longest_at(&self, text: &str, at: usize, specials: Specials) -> Option<(usize, Special)> {
        let bytes = &text.as_bytes()[at..];
        let lengths = &self.lengths[bytes[0] as usize];
        lengths.iter().filter(|&&len| len <= bytes.len()).find_map(|&len| {
            let special = self.by_text.get(&bytes[..len])?;
            let is_found = !special.elsewhere && (!special.structural || specials == Specials::Parse);
            is_found.then_some((len, *special))
        })
    }

    /// `text` with `mark` inside every token that is structure, so that none is found in it any more,
    /// nor across its ends in whatever a template puts before and behind it. White space at the ends
    /// stays at the ends, so that templates can still trim it.
    pub fn defuse<'t>(&self, text: &'t str, mark: char) -> Cow<'t, str> {
        let mut places: Vec<usize> = self.structural_starts(text).map(|at| after_first(text, at)).collect();
        places.extend(self.begun_at_end(text).map(|at| after_first(text, at)));
        places.extend(self.ends_at_start(text));
        if places.is_empty() {
            return text.into();
        }
        places.sort_unstable();
        places.dedup();
        let mut defused = String::with_capacity(text.len() + places.len() * mark.len_utf8());
        let mut done = 0;
        for place in places {
            defused.push_str(&text[done..place]);
            defused.push(mark);
            done = place;
        }
        defused.push_str(&text[done..]);
        defused.into()
    }

    /// Where a token that is structure begins in `text`, overlapping ones included.
    fn structural_starts<'t>(&'t self, text: &'t str) -> impl Iterator<Item = usize> + 't {
        let bytes = text.as_bytes();
        let has_structure = move |at: usize| {
            self.lengths[bytes[at] as usize].iter().any(|&len| {
                let end = (at + len).min(bytes.len());
                self.by_text.get(&bytes[at..end]).is_some_and(|special| special.structural)
            })
        };
        (0..bytes.len()).filter(move |&at| has_structure(at))
    }

    /// Where the beginning of such a token reaches the end of `text`, trimmed.
    fn begun_at_end<'t>(&'t self, text: &'t str) -> impl Iterator<Item = usize> + 't {
        let bytes = text.trim_end().as_bytes();
        let longest = self.lengths.iter().flatten().max().copied().unwrap_or(0);
        let first = bytes.len().saturating_sub(longest);
        (first..bytes.len())
            .filter(|&at| !self.lengths[bytes[at] as usize].is_empty())
            .filter(move |&at| self.structures().any(|token| token.starts_with(&bytes[at..])))
    }

    /// The start of `text`, trimmed, if the end of such a token stands there.
    fn ends_at_start(&self, text: &str) -> Option<usize> {
        let trimmed = text.trim_start().as_bytes();
        let is_end = |end: &[u8]| trimmed.starts_with(end);
        let found = self.structures().any(|token| (1..token.len()).any(|at| is_end(&token[at..])));
        found.then_some(text.len() - trimmed.len())
    }

    fn structures(&self) -> impl Iterator<Item = &[u8]> {
        self.by_text.iter().filter(|(_, special)| special.structural).map(|(text, _)| text.as_slice())
    }
}

impl AddedFlags {
    /// What a token takes of `text` that is found at `at..end`, where all before `done` is taken; none
    /// where it is part of a word and must not be.
    fn range(self, text: &str, done: usize, at: usize, end: usize) -> Option<(usize, usize)> {
        let touches_word = || {
            let (before, behind) = (text[..at].chars().next_back(), text[end..].chars().next());
            before.is_some_and(is_word) || behind.is_some_and(is_word)
        };
        if self.single_word && touches_word() {
            return None;
        }
        // Only where it is asked for: looking over a long run from each of its tokens takes long.
        let start = if self.lstrip { done + text[done..at].trim_end().len() } else { at };
        let end = if self.rstrip { text.len() - text[end..].trim_start().len() } else { end };
        Some((start, end))
    }
}

/// As `\w` has it (UTS 18, annex C): letters, marks, decimal digits and connectors, but not `²`.
fn is_word(c: char) -> bool {
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\w").expect("a valid pattern"));
    WORD.is_match(&*c.encode_utf8(&mut [0; 4]))
}

/// A token's text as the file has it, and with spaces for its bars.
struct Written {
    written: String,
    shown: String,
}

/// All tokens that are found as they are written.
fn all<'s>(spec: &'s VocabSpec, kinds: &'s [Kind]) -> impl Iterator<Item = (TokenId, Written, Special)> + 's {
    let template = [&spec.chat_template, &spec.tool_template].map(|text| text.as_deref().unwrap_or_default());
    // A tokenizer.json lists what is found so; the unknown token is only if it is listed.
    let listed = spec.recipe.is_some();
    let is_found = move |kind: &Kind| match kind {
        Kind::Control | Kind::UserDefined => true,
        Kind::Unknown => !listed,
        _ => false,
    };
    kinds.iter().enumerate().filter(move |(_, kind)| is_found(kind)).map(move |(id, kind)| {
        let written = spec.tokens.text(id);
        let shown = written.replace('▁', " ");
        let in_template = || template.iter().any(|template| template.contains(&written));
        let structural =
            *kind != Kind::UserDefined || !is_plain(&shown) || (!is_blank(&shown) && in_template());
        let id = id as TokenId;
        let flags = spec.added_flags.get(&id).copied().unwrap_or_default();
        let normalizers = spec.recipe.as_ref().map_or(&[][..], |recipe| &recipe.normalizers);
        let elsewhere = flags.normalized && *normalize(normalizers, &written, true) != *written;
        (id, Written { written, shown }, Special { id, structural, flags, elsewhere })
    })
}

/// Whether a user-defined token is ordinary text that may come out of merging too.
pub(super) fn is_plain_token(spec: &VocabSpec, id: usize) -> bool {
    is_plain(&spec.tokens.text(id).replace('▁', " "))
}

fn after_first(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

/// White space, or an HTML tag: ordinary text for which a vocabulary happens to have a token.
fn is_plain(text: &str) -> bool {
    let tag = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    let name = tag.map(|inner| inner.strip_prefix('/').unwrap_or(inner));
    is_blank(text) || name.is_some_and(|name| HTML.contains(&name))
}

const HTML: &[&str] = &[
    "a",
    "b",
    "blockquote",
    "body",
    "br",
    "caption",
    "code",
    "div",
    "em",
    "footer",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "i",
    "iframe",
    "img",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "span",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "u",
    "ul",
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn specials(tokens: &[(&str, i32)], template: &str) -> SpecialTokens {
        let spec = VocabSpec {
            model: "gpt2".into(),
            tokens: tokens.iter().map(|(text, _)| *text).collect(),
            types: tokens.iter().map(|(_, kind)| *kind).collect(),
            chat_template: Some(template.into()),
            ..VocabSpec::default()
        };
        SpecialTokens::new(&spec, &spec.kinds().unwrap(), false)
    }

    fn split<'t>(found: &SpecialTokens, text: &'t str, specials: Specials) -> Vec<Segment<'t>> {
        let mut segments = Vec::new();
        found.split(text, specials, |segment| segments.push(segment));
        segments
    }

    #[test]
    fn the_longest_token_at_each_place_is_taken() {
        let found = specials(&[("<|a|>", 3), ("<|a|><|b|>", 3), ("x", 1)], "");
        let text = "x<|a|>é<|a|><|b|><|a|";
        use Segment::{Text, Token};
        assert_eq!(
            split(&found, text, Specials::Parse),
            [Text("x"), Token(0), Text("é"), Token(1), Text("<|a|")]
        );
        assert_eq!(split(&found, text, Specials::Text), [Text(text)]);
    }

    // BUGLOG T16.
    #[test]
    fn a_long_run_of_tokens_is_looked_over_once() {
        let found = specials(&[("\n\n", 4)], "");
        let (text, mut tokens) = ("\n".repeat(400_000), 0);
        let start = std::time::Instant::now();
        found.split(&text, Specials::Text, |_| tokens += 1);
        assert_eq!(tokens, text.len() / 2);
        // A few milliseconds; looking over the rest at each token takes a minute.
        assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
    }

    #[test]
    fn white_space_and_html_are_text_unless_the_template_writes_them() {
        use Segment::{Text, Token};
        let tokens = [("\n\n", 4), ("<h1>", 4), ("<think>", 4), ("<tool_call>", 4)];
        let found = specials(&tokens, "");
        let text = "<h1>\n\n<think><tool_call>";
        assert_eq!(split(&found, text, Specials::Text), [Token(1), Token(0), Text("<think><tool_call>")]);
        let found = specials(&tokens, "{{ '<h1>\n\n' }}");
        assert_eq!(split(&found, "<h1>\n\n", Specials::Text), [Text("<h1>"), Token(0)]);
    }

    #[test]
    fn defused_text_holds_no_structure_and_keeps_its_ends() {
        let found = specials(&[("<|a|>", 3), ("|><", 3), ("<s>", 3)], "");
        let text = " <|a|><s><|b|>|><|a|>é<s> ";
        let defused = found.defuse(text, '\u{E000}');
        assert_eq!(split(&found, &defused, Specials::Parse), [Segment::Text(&defused)]);
        assert_eq!(defused.replace('\u{E000}', ""), text);
        assert!(defused.starts_with(" \u{E000}<") && defused.ends_with("> "));
        assert!(matches!(found.defuse("plain < text", '\u{E000}'), Cow::Borrowed(_)));
    }

    #[test]
    fn no_structure_is_found_across_the_ends_of_defused_text() {
        let found = specials(&[("<|a|>", 3), ("|><|", 3)], "");
        for (before, text, behind) in
            [("", "b|>", "<|a|>"), ("<|", "a|> b", ""), ("x|", "> y", ""), ("", "b <", "|a|>")]
        {
            let whole = [before, &found.defuse(text, '\u{E000}'), behind].concat();
            let tokens = split(&found, &whole, Specials::Parse);
            let own = if behind == "<|a|>" { vec![Segment::Token(0)] } else { vec![] };
            let is_token = |segment: &&Segment| matches!(segment, Segment::Token(_));
            assert_eq!(tokens.iter().filter(is_token).copied().collect::<Vec<_>>(), own, "{text}");
        }
        assert_eq!(found.defuse("> quoted\n", 'M'), "M> quoted\n");
        assert_eq!(found.defuse(" a < ", 'M'), " a <M ");
    }
}
