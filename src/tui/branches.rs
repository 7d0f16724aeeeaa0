//! The conversation as a tree: its turns, where an answer was forked or several were asked for, and what
//! else was said in a turn's place.

use super::app::App;
use super::chat::{Answer, Chat, Entry, Turn};
use crate::protocol::SeqId;

/// A row of the tree.
pub struct Row<'a> {
    pub place: Place,
    pub turn: &'a Turn,
    /// One of the turn's several answers.
    pub answer: Option<&'a Answer>,
    /// Of each level from the outermost: nothing more follows on it.
    pub last: Vec<bool>,
    /// It is part of the conversation in view.
    pub in_view: bool,
    /// Turns that follow in this version.
    pub turns: usize,
}

/// Which turn of the chat in view, by its place among the entries; or which other version of it
/// (counted from 0 in the order they were made, the one in view too).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Turn { entry: usize },
    Version { entry: usize, version: usize },
}

/// Whether there is more than one path.
pub fn has_branches(chat: &Chat) -> bool {
    chat.turns().any(|turn| turn.answers.len() > 1 || versions(turn) > 1)
}

/// How many versions there are of a turn.
pub fn versions(turn: &Turn) -> usize {
    turn.versions.before.len() + 1 + turn.versions.after.len()
}

pub fn rows(chat: &Chat) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (entry, turn) in turns(&chat.entries) {
        let place = Place::Turn { entry };
        rows.push(Row { place, turn, answer: None, last: Vec::new(), in_view: true, turns: 0 });
        let others = versions(turn) - 1;
        answers(turn, place, (&[], others == 0, true), &mut rows);
        let (before, after) = (&turn.versions.before, &turn.versions.after);
        let before = before.iter().enumerate();
        let after =
            after.iter().enumerate().map(|(i, version)| (turn.versions.before.len() + 1 + i, version));
        for (nth, (version, entries)) in before.chain(after).enumerate() {
            let place = Place::Version { entry, version };
            other(entries, place, &[nth + 1 == others], &mut rows);
        }
    }
    rows
}

/// What was said in a turn's place, and what followed.
fn other<'a>(entries: &'a [Entry], place: Place, last: &[bool], rows: &mut Vec<Row<'a>>) {
    let all: Vec<&Turn> = turns(entries).map(|(_, turn)| turn).collect();
    for (i, turn) in all.iter().enumerate() {
        let level = if i == 0 { last.to_vec() } else { [last, &[i + 1 == all.len()]].concat() };
        let followed = if i == 0 { all.len() - 1 } else { 0 };
        rows.push(Row { place, turn, answer: None, last: level.clone(), in_view: false, turns: followed });
        answers(turn, place, (&level, true, false), rows);
        for entries in turn.versions.before.iter().chain(&turn.versions.after).filter(|_| i > 0) {
            other(entries, place, &[&level[..], &[false]].concat(), rows);
        }
    }
}

/// The answers of a turn that has several.
fn answers<'a>(turn: &'a Turn, place: Place, level: (&[bool], bool, bool), rows: &mut Vec<Row<'a>>) {
    let (level, ends, in_view) = level;
    if turn.answers.len() < 2 {
        return;
    }
    for (i, answer) in turn.answers.iter().enumerate() {
        let last = [level, &[ends && i + 1 == turn.answers.len()]].concat();
        rows.push(Row { place, turn, answer: Some(answer), last, in_view, turns: 0 });
    }
}

fn turns(entries: &[Entry]) -> impl Iterator<Item = (usize, &Turn)> {
    entries.iter().enumerate().filter_map(|(i, entry)| match entry {
        Entry::Turn(turn) => Some((i, turn)),
        Entry::Note(_) => None,
    })
}

/// How many of its blocks a sequence shares with another, from the first on, and how many it has: while
/// the engine has both.
pub fn shared_blocks(app: &App, seq: SeqId, other: SeqId) -> Option<(usize, usize)> {
    let table = |seq| app.snapshot.sequences.iter().find(|s| s.seq == seq).map(|s| &s.blocks);
    let (own, others) = (table(seq)?, table(other)?);
    let shared = own.iter().zip(others).take_while(|(a, b)| a == b).count();
    Some((shared, own.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(text: &str) -> Entry {
        Entry::Turn(Turn::new(text))
    }

    #[test]
    fn versions_stand_under_the_turn_in_whose_place_they_were_said() {
        let mut chat = Chat { entries: vec![turn("a"), turn("b2"), turn("c")], ..Chat::default() };
        assert!(!has_branches(&chat));
        let Entry::Turn(second) = &mut chat.entries[1] else { return };
        second.versions.before.push(vec![turn("b"), turn("x"), turn("y")]);
        second.versions.after.push(vec![turn("b3")]);
        assert!(has_branches(&chat));
        let shown: Vec<_> = rows(&chat)
            .iter()
            .map(|row| (row.turn.text.clone(), row.place, row.last.clone(), row.turns))
            .collect();
        let version = |version| Place::Version { entry: 1, version };
        let expected = [
            ("a", Place::Turn { entry: 0 }, vec![], 0),
            ("b2", Place::Turn { entry: 1 }, vec![], 0),
            ("b", version(0), vec![false], 2),
            ("x", version(0), vec![false, false], 0),
            ("y", version(0), vec![false, true], 0),
            ("b3", version(2), vec![true], 0),
            ("c", Place::Turn { entry: 2 }, vec![], 0),
        ];
        assert_eq!(shown, expected.map(|(text, place, last, turns)| (text.to_owned(), place, last, turns)));
    }
}
