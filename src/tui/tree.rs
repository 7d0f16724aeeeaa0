//! The conversation as a tree: every version of every turn, shown or not.
//!
//! What is shown is [`Chat::entries`]. A turn's [`Versions`] hold the other tails that begin in its
//! place; those may branch again. Answers stream into tails that are not shown as into any other.
//!
//! ```text
//! entries   A ── B ── C            shown
//!                └ after:  [B' ── D]     B' is the second version of B, D followed it
//! ```

use super::chat::{Answer, Chat, Entry, Turn, Versions};
use crate::protocol::{RequestId, SeqId};

/// A turn and where it stands in the tree.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub turn: &'a Turn,
    /// Of the turn before it, by its place in the walk; none before the first.
    pub parent: Option<usize>,
    /// It is part of the conversation as it is shown.
    pub is_shown: bool,
}

/// Depth first. The versions of a turn come in the order they were made, the shown one among them.
pub struct Walk<'a> {
    /// Tails still to be walked, the next one last: their entries, the turn before, whether shown, and
    /// whether the versions of the first turn are other tails of this list.
    left: Vec<Tail<'a>>,
    count: usize,
}

struct Tail<'a> {
    entries: &'a [Entry],
    parent: Option<usize>,
    is_shown: bool,
    /// The other versions of its first turn are walked by whoever made this.
    alone: bool,
}

impl<'a> Iterator for Walk<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        loop {
            let tail = self.left.pop()?;
            let Some((first, rest)) = tail.entries.split_first() else { continue };
            let Entry::Turn(turn) = first else {
                self.left.push(Tail { entries: rest, ..tail });
                continue;
            };
            if !tail.alone && turn.versions.is_several() {
                self.fork(&tail, &turn.versions);
                continue;
            }
            let Tail { parent, is_shown, .. } = tail;
            self.left.push(Tail { entries: rest, parent: Some(self.count), is_shown, alone: false });
            self.count += 1;
            return Some(Node { turn, parent, is_shown });
        }
    }
}

impl<'a> Walk<'a> {
    /// In place of a tail: it and its other versions, the first made on top.
    fn fork(&mut self, tail: &Tail<'a>, versions: &'a Versions) {
        let parent = tail.parent;
        let hidden = |entries: &'a Vec<Entry>| Tail { entries, parent, is_shown: false, alone: true };
        self.left.extend(versions.after.iter().rev().map(hidden));
        self.left.push(Tail { entries: tail.entries, parent, is_shown: tail.is_shown, alone: true });
        self.left.extend(versions.before.iter().rev().map(hidden));
    }
}

impl Versions {
    pub fn is_several(&self) -> bool {
        !(self.before.is_empty() && self.after.is_empty())
    }

    pub fn len(&self) -> usize {
        self.before.len() + 1 + self.after.len()
    }

    /// Of the one that is shown, from 0.
    pub fn shown(&self) -> usize {
        self.before.len()
    }
}

impl Chat {
    /// Every turn of every version.
    pub fn tree(&self) -> Walk<'_> {
        Walk {
            left: vec![Tail { entries: &self.entries, parent: None, is_shown: true, alone: false }],
            count: 0,
        }
    }

    /// Calls `visit` with every turn of every version.
    pub fn each_turn_mut(&mut self, visit: &mut impl FnMut(&mut Turn)) {
        each_mut(&mut self.entries, visit);
    }

    /// The turn that an answer belongs to; the newest are looked at first.
    pub fn turn_of_mut(&mut self, seq: SeqId) -> Option<&mut Turn> {
        find_mut(&mut self.entries, &|turn| turn.answers.iter().any(|a| a.seq == seq))
    }

    pub fn answer_mut(&mut self, seq: SeqId) -> Option<&mut Answer> {
        self.turn_of_mut(seq)?.answers.iter_mut().find(|answer| answer.seq == seq)
    }

    /// Every answer of every version.
    pub fn all_answers(&self) -> impl Iterator<Item = &Answer> {
        self.tree().flat_map(|node| &node.turn.answers)
    }

    /// One of its answers, shown or not, is of this request.
    pub fn has_request(&self, id: RequestId) -> bool {
        let is_it = |answer: &Answer| answer.seq.request == id;
        // Almost always it is one of the newest that are shown.
        self.answers().rev().any(is_it) || self.all_answers().any(is_it)
    }

    /// Requests with an answer still to come, in any version, oldest first.
    pub fn running(&self) -> Vec<RequestId> {
        let running = self.all_answers().filter(|a| a.outcome.is_none());
        let mut ids: Vec<_> = running.map(|a| a.seq.request).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    pub fn is_running(&self) -> bool {
        self.all_answers().any(|a| a.outcome.is_none())
    }

    /// Whether the next message waits for an answer: one that is shown.
    pub fn is_answering(&self) -> bool {
        self.answers().rev().any(|a| a.outcome.is_none())
    }

    /// Replaces the conversation from `at` (an entry that is a turn) on by `turn`; what was there is
    /// its version before. Messages that wait stay at the end.
    pub fn branch(&mut self, at: usize, mut turn: Turn) {
        let waiting = self.take_waiting(at + 1);
        let mut tail = self.entries.split_off(at);
        let Some(Entry::Turn(first)) = tail.first_mut() else { return };
        let Versions { mut before, mut after } = std::mem::take(&mut first.versions);
        // The new one is the last of all.
        before.push(tail);
        before.append(&mut after);
        turn.versions = Versions { before, after };
        self.entries.push(Entry::Turn(turn));
        self.entries.extend(waiting);
    }

    /// Shows another version of the turn at `at`, and what followed it. Messages that wait stay.
    pub fn show_version(&mut self, at: usize, version: usize) {
        let waiting = self.take_waiting(at + 1);
        let mut tail = self.entries.split_off(at);
        let Some(Entry::Turn(first)) = tail.first_mut() else { return self.entries.extend(tail) };
        let Versions { before, after } = std::mem::take(&mut first.versions);
        let mut all = before;
        all.push(tail);
        all.extend(after);
        let after = all.split_off((version + 1).min(all.len()));
        let mut shown = all.pop().unwrap_or_default();
        if let Some(Entry::Turn(first)) = shown.first_mut() {
            first.versions = Versions { before: all, after };
        }
        self.entries.extend(shown);
        self.entries.extend(waiting);
    }

    /// The entry of the turn with versions that is meant when none is named: the last.
    pub fn last_with_versions(&self) -> Option<usize> {
        self.entries.iter().rposition(|e| matches!(e, Entry::Turn(turn) if turn.versions.is_several()))
    }

    /// Messages at the end that wait to be sent, from entry `from` on.
    fn take_waiting(&mut self, from: usize) -> Vec<Entry> {
        let waits = |e: &Entry| matches!(e, Entry::Turn(turn) if turn.queued);
        let last = self.entries.iter().rposition(|e| !waits(e)).map_or(0, |last| last + 1);
        self.entries.split_off(last.max(from).min(self.entries.len()))
    }
}

fn each_mut(entries: &mut [Entry], visit: &mut impl FnMut(&mut Turn)) {
    for entry in entries {
        let Entry::Turn(turn) = entry else { continue };
        visit(turn);
        let Versions { before, after } = &mut turn.versions;
        before.iter_mut().chain(after).for_each(|tail| each_mut(tail, visit));
    }
}

fn find_mut<'a>(entries: &'a mut [Entry], is_it: &impl Fn(&Turn) -> bool) -> Option<&'a mut Turn> {
    for entry in entries.iter_mut().rev() {
        let Entry::Turn(turn) = entry else { continue };
        if is_it(turn) {
            return Some(turn);
        }
        let Versions { before, after } = &mut turn.versions;
        let hidden = before.iter_mut().chain(after).rev();
        if let Some(found) = hidden.filter_map(|tail| find_mut(tail, is_it)).next() {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::SamplingParams;
    use std::time::Duration;

    fn turn(text: &str, request: u64) -> Turn {
        let mut turn = Turn::new(text);
        let seq = SeqId { request: RequestId(request), choice: 0 };
        turn.answers.push(Answer::new(seq, SamplingParams::default(), Duration::ZERO));
        turn
    }

    /// `a b c`, then b changed twice, with a d after the second b.
    fn chat() -> Chat {
        let entries = ["a", "b", "c"].iter().zip(1..).map(|(t, n)| Entry::Turn(turn(t, n))).collect();
        let mut chat = Chat { entries, ..Chat::default() };
        chat.branch(1, turn("b2", 4));
        chat.entries.push(Entry::Turn(turn("d", 5)));
        chat.branch(1, turn("b3", 6));
        chat
    }

    fn shown(chat: &Chat) -> Vec<&str> {
        chat.turns().map(|t| t.text.as_str()).collect()
    }

    fn walked(chat: &Chat) -> Vec<(&str, Option<usize>, bool)> {
        chat.tree().map(|n| (n.turn.text.as_str(), n.parent, n.is_shown)).collect()
    }

    #[test]
    fn every_version_is_walked_once_in_the_order_it_was_made() {
        let mut chat = chat();
        let all = |b: [bool; 3]| {
            [
                ("a", None, true),
                ("b", Some(0), b[0]),
                ("c", Some(1), b[0]),
                ("b2", Some(0), b[1]),
                ("d", Some(3), b[1]),
                ("b3", Some(0), b[2]),
            ]
        };
        assert_eq!(walked(&chat), all([false, false, true]));
        chat.show_version(1, 1);
        assert_eq!(walked(&chat), all([false, true, false]));
        chat.show_version(1, 0);
        assert_eq!((walked(&chat), shown(&chat)), (all([true, false, false]).to_vec(), vec!["a", "b", "c"]));
        chat.show_version(1, 9);
        assert_eq!(shown(&chat), ["a", "b3"]);
    }

    #[test]
    fn a_version_may_branch_again_and_its_answers_are_found_wherever_they_are() {
        let mut chat = chat();
        chat.show_version(1, 1);
        chat.branch(2, turn("d2", 7));
        chat.show_version(1, 2);
        chat.branch(0, turn("a2", 8));
        assert_eq!((shown(&chat), chat.tree().count()), (vec!["a2"], 8));
        for request in 1..=8 {
            let seq = SeqId { request: RequestId(request), choice: 0 };
            assert_eq!(chat.answer_mut(seq).map(|a| a.seq), Some(seq));
            assert!(chat.has_request(RequestId(request)));
        }
        assert!(chat.answer_mut(SeqId { request: RequestId(9), choice: 0 }).is_none());
        assert_eq!(chat.running(), (1..=8).map(RequestId).collect::<Vec<_>>());
        let mut count = 0;
        chat.each_turn_mut(&mut |_| count += 1);
        assert_eq!(count, 8);
        chat.show_version(0, 0);
        chat.show_version(1, 1);
        assert_eq!(shown(&chat), ["a", "b2", "d2"]);
    }

    #[test]
    fn messages_that_wait_stay_at_the_end_of_what_is_shown() {
        let mut chat = chat();
        let mut waits = Turn::new("later");
        waits.queued = true;
        chat.entries.push(Entry::Turn(waits));
        chat.show_version(1, 0);
        assert_eq!(shown(&chat), ["a", "b", "c", "later"]);
        chat.branch(2, turn("c2", 9));
        assert_eq!(shown(&chat), ["a", "b", "c2", "later"]);
    }
}
