//! What all kinds of BPE have in common: of all neighbours that may be joined the best are, until none
//! are left. Kudo & Richardson 2018, section 3.1: a heap makes it O(n log n) in the length of the text.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A run of text; a link of the list of them. Places are `u32`: of a long text, half the memory is half the
/// way to it.
#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    /// In bytes; 0 once joined to its left neighbour.
    len: u32,
    previous: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

/// Of what is joined at once, in bytes; what is longer is cut, as nothing that a model takes is.
const LONGEST: usize = 1 << 31;

/// Two neighbours that may be joined, as they were when found.
struct Pair<P> {
    priority: P,
    left: Reverse<u32>,
    right: u32,
    len: u32,
}

/// Cuts `text` into characters and joins neighbours, the pair of the highest priority first, the
/// leftmost of equals. `priority(joined, at)` says whether `joined[..at]` and `joined[at..]` may be.
pub(super) fn join<P: Ord>(
    text: &str,
    mut priority: impl FnMut(&str, usize) -> Option<P>,
) -> impl Iterator<Item = &str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = rest.len().min(LONGEST);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, behind) = rest.split_at(end);
        let symbols = join_part(part, &mut priority).into_iter().filter(|symbol| symbol.len > 0);
        pieces.extend(symbols.map(|symbol| &part[symbol.start as usize..][..symbol.len as usize]));
        rest = behind;
    }
    pieces.into_iter()
}

fn join_part<P: Ord>(text: &str, mut priority: impl FnMut(&str, usize) -> Option<P>) -> Vec<Symbol> {
    let mut symbols = characters(text);
    let mut propose = |symbols: &[Symbol], left: u32, right: u32| {
        let Symbol { start, len: at, .. } = symbols[left as usize];
        let len = at + symbols[right as usize].len;
        let priority = priority(&text[start as usize..][..len as usize], at as usize)?;
        Some(Pair { priority, left: Reverse(left), right, len })
    };
    let pairs = (1..symbols.len() as u32).filter_map(|right| propose(&symbols, right - 1, right));
    // Made of all at once, a heap takes linear time.
    let mut queue = BinaryHeap::from(pairs.collect::<Vec<_>>());
    while let Some(Pair { left: Reverse(left), right, len, .. }) = queue.pop() {
        let [one, other] = [left, right].map(|place| symbols[place as usize]);
        let is_stale = one.len == 0 || other.len == 0 || one.next != right || one.len + other.len != len;
        if is_stale {
            continue;
        }
        symbols[left as usize].len = len;
        symbols[left as usize].next = other.next;
        symbols[right as usize].len = 0;
        if other.next != NONE {
            symbols[other.next as usize].previous = left;
            queue.extend(propose(&symbols, left, other.next));
        }
        if one.previous != NONE {
            queue.extend(propose(&symbols, one.previous, left));
        }
    }
    symbols
}

fn characters(text: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = text
        .char_indices()
        .enumerate()
        .map(|(at, (start, c))| Symbol {
            start: start as u32,
            len: c.len_utf8() as u32,
            previous: (at as u32).checked_sub(1).unwrap_or(NONE),
            next: at as u32 + 1,
        })
        .collect();
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}

impl<P: Ord> Ord for Pair<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority.cmp(&other.priority).then(self.left.cmp(&other.left))
    }
}

impl<P: Ord> PartialOrd for Pair<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Ord> PartialEq for Pair<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P: Ord> Eq for Pair<P> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_pair_is_joined_first_and_the_leftmost_of_equals() {
        let words = ["bc", "ab", "abc", "aa"];
        let priority = |joined: &str, _: usize| words.iter().position(|word| *word == joined).map(Reverse);
        let pieces = |text| join(text, priority).collect::<Vec<_>>();
        assert_eq!(pieces("abcab"), ["abc", "ab"]);
        assert_eq!(pieces("aaaé"), ["aa", "a", "é"]);
        assert_eq!(pieces(""), [""; 0]);
    }

    #[test]
    fn where_two_meet_counts() {
        let only = |joined: &str, at: usize| (joined.split_at(at) == ("a", "b")).then_some(0);
        assert_eq!(join("abab", only).collect::<Vec<_>>(), ["ab", "ab"]);
        assert_eq!(join("abb", only).collect::<Vec<_>>(), ["ab", "b"]);
    }
}
