//! What all kinds of BPE have in common: of all neighbours that may be joined the best are, until none
//! are left. Kudo & Richardson 2018, section 3.1: a heap makes it O(n log n) in the length of the text.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A run of text; a link of the list of them.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// In bytes; 0 once joined to its left neighbour.
    len: usize,
    previous: usize,
    next: usize,
}

const NONE: usize = usize::MAX;

/// Two neighbours that may be joined, as they were when found.
struct Pair<P> {
    priority: P,
    left: Reverse<usize>,
    right: usize,
    len: usize,
}

/// Cuts `text` into characters and joins neighbours, the pair of the highest priority first, the
/// leftmost of equals. `priority(joined, at)` says whether `joined[..at]` and `joined[at..]` may be.
pub(super) fn join<P: Ord>(
    text: &str,
    mut priority: impl FnMut(&str, usize) -> Option<P>,
) -> impl Iterator<Item = &str> {
    let mut symbols = characters(text);
    let mut queue = BinaryHeap::new();
    let mut propose = |symbols: &[Symbol], left: usize, right: usize, queue: &mut BinaryHeap<Pair<P>>| {
        let Symbol { start, len: at, .. } = symbols[left];
        let len = at + symbols[right].len;
        if let Some(priority) = priority(&text[start..start + len], at) {
            queue.push(Pair { priority, left: Reverse(left), right, len });
        }
    };
    for right in 1..symbols.len() {
        propose(&symbols, right - 1, right, &mut queue);
    }
    while let Some(Pair { left: Reverse(left), right, len, .. }) = queue.pop() {
        let is_stale = symbols[left].len == 0
            || symbols[right].len == 0
            || symbols[left].next != right
            || symbols[left].len + symbols[right].len != len;
        if is_stale {
            continue;
        }
        let after = symbols[right].next;
        symbols[left].len = len;
        symbols[left].next = after;
        symbols[right].len = 0;
        if after != NONE {
            symbols[after].previous = left;
            propose(&symbols, left, after, &mut queue);
        }
        let before = symbols[left].previous;
        if before != NONE {
            propose(&symbols, before, left, &mut queue);
        }
    }
    let whole = symbols.into_iter().filter(|symbol| symbol.len > 0);
    whole.map(|symbol| &text[symbol.start..symbol.start + symbol.len])
}

fn characters(text: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = text
        .char_indices()
        .enumerate()
        .map(|(at, (start, c))| Symbol {
            start,
            len: c.len_utf8(),
            previous: at.checked_sub(1).unwrap_or(NONE),
            next: at + 1,
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
