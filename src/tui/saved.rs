//! What of a chat is saved: the chat is compared with it, and the difference is what there is to save.
//! So nobody who changes a chat has to think of saving.

use super::calls::Call;
use super::chat::{Answer, Entry, Turn};
use super::stored;
use crate::protocol::{SeqId, SessionChange, SessionId, SessionKey, StoredTurn, TurnNumber};
use std::collections::HashMap;

/// A chat as it was when it was last compared.
#[derive(Default)]
pub struct Saved {
    /// None: nothing of it was ever saved.
    pub key: Option<SessionKey>,
    /// Known when it is on disk.
    pub id: Option<SessionId>,
    turns: HashMap<TurnNumber, SavedTurn>,
    /// Turns have been numbered up to here.
    last: TurnNumber,
    title: String,
    system: Option<String>,
    /// Comparisons: a turn that was not met in the newest is gone.
    round: u64,
    /// In this one.
    met: usize,
}

struct SavedTurn {
    shape: Shape,
    answers: Vec<SavedAnswer>,
    round: u64,
}

/// What tells that a turn is another than before. A text is known by where it lies and its length: a
/// new one lies elsewhere.
#[derive(PartialEq)]
struct Shape {
    parent: Option<TurnNumber>,
    place: u32,
    in_view: bool,
    text: (usize, usize),
    queued: bool,
    side: bool,
    held: bool,
    calls: usize,
}

#[derive(PartialEq)]
struct SavedAnswer {
    seq: SeqId,
    text: usize,
    reasoning: usize,
    calls: usize,
    ended: bool,
}

/// Where in the tree a list of entries hangs.
#[derive(Clone, Copy)]
struct Branch {
    parent: Option<TurnNumber>,
    place: u32,
    in_view: bool,
}

impl Saved {
    /// What became different since the last comparison. `model` is who answers now.
    pub fn changes(&mut self, entries: &mut [Entry], model: &str) -> Vec<SessionChange> {
        let mut changes = Vec::new();
        (self.round, self.met) = (self.round + 1, 0);
        self.number(entries);
        self.list(entries, Branch { parent: None, place: 0, in_view: true }, model, &mut changes);
        if self.met < self.turns.len() {
            self.take_away(&mut changes);
        }
        changes
    }

    /// Turns that were there, and were not met.
    fn take_away(&mut self, changes: &mut Vec<SessionChange>) {
        let round = self.round;
        let gone = |saved: &SavedTurn| saved.round != round;
        let mut numbers: Vec<_> = self.turns.iter().filter(|(_, s)| gone(s)).map(|(n, _)| *n).collect();
        numbers.sort_unstable();
        self.turns.retain(|_, saved| !gone(saved));
        changes.extend(numbers.into_iter().map(SessionChange::TurnGone));
    }

    /// Whether the session as a whole was called and told otherwise before.
    pub fn renamed(&mut self, title: &str, system: Option<&str>) -> bool {
        if self.title == title && self.system.as_deref() == system {
            return false;
        }
        (self.title, self.system) = (title.to_owned(), system.map(str::to_owned));
        true
    }

    /// Nothing of it is on disk any more.
    pub fn forget(&mut self) {
        *self = Self { key: self.key, id: self.id, last: self.last, ..Self::default() };
    }

    /// Every turn has a number, for ever.
    fn number(&mut self, entries: &mut [Entry]) {
        for turn in entries.iter_mut().filter_map(turn_mut) {
            match turn.number {
                Some(number) => self.last = self.last.max(number),
                None => {
                    self.last += 1;
                    turn.number = Some(self.last);
                }
            }
            let Turn { versions, .. } = turn;
            for list in versions.before.iter_mut().chain(&mut versions.after) {
                self.number(list);
            }
        }
    }

    fn list(&mut self, entries: &[Entry], mut at: Branch, model: &str, changes: &mut Vec<SessionChange>) {
        for entry in entries {
            let Entry::Turn(turn) = entry else { continue };
            let before = turn.versions.before.len() as u32;
            for (place, list) in (0..).zip(&turn.versions.before) {
                self.list(list, Branch { place, in_view: false, ..at }, model, changes);
            }
            let here = Branch { place: at.place + before, ..at };
            self.turn(turn, here, model, changes);
            for (place, list) in (here.place + 1..).zip(&turn.versions.after) {
                self.list(list, Branch { place, in_view: false, ..at }, model, changes);
            }
            at = Branch { parent: turn.number, place: 0, in_view: true };
        }
    }

    fn turn(&mut self, turn: &Turn, at: Branch, model: &str, changes: &mut Vec<SessionChange>) {
        let Some(number) = turn.number else { return };
        let shape = Shape::of(turn, at);
        self.met += 1;
        if let Some(saved) = self.turns.get_mut(&number) {
            saved.round = self.round;
            if saved.shape == shape && saved.has(&turn.answers) {
                return;
            }
        }
        let before = self.turns.remove(&number);
        if before.as_ref().is_none_or(|saved| saved.shape != shape) {
            let whole = StoredTurn {
                number,
                parent: at.parent,
                place: at.place,
                in_view: at.in_view,
                ..stored::turn(turn)
            };
            changes.push(SessionChange::Turn(Box::new(whole)));
        }
        let before = before.map(|saved| saved.answers).unwrap_or_default();
        if before.len() > turn.answers.len() {
            changes.push(SessionChange::Answers { turn: number, count: turn.answers.len() });
        }
        let answers = turn.answers.iter().enumerate().map(|(index, answer)| {
            changes.extend(goes_on(number, index, before.get(index), answer, model));
            SavedAnswer::of(answer)
        });
        let answers = answers.collect();
        self.turns.insert(number, SavedTurn { shape, answers, round: self.round });
    }
}

fn turn_mut(entry: &mut Entry) -> Option<&mut Turn> {
    if let Entry::Turn(turn) = entry { Some(turn) } else { None }
}

/// What an answer was given since: a piece where it only grew, else all of it.
fn goes_on(
    turn: TurnNumber,
    index: usize,
    before: Option<&SavedAnswer>,
    answer: &Answer,
    model: &str,
) -> Vec<SessionChange> {
    let now = SavedAnswer::of(answer);
    let grew = |b: &&SavedAnswer| {
        let is_same = b.seq == now.seq && !b.ended && !now.ended;
        is_same && b.text <= now.text && b.reasoning <= now.reasoning
    };
    let Some(before) = before.filter(grew) else {
        if before == Some(&now) {
            return Vec::new();
        }
        return vec![SessionChange::Answer { turn, index, answer: Box::new(stored::answer(answer, model)) }];
    };
    let mut changes = Vec::new();
    if before.text < now.text || before.reasoning < now.reasoning {
        let text = answer.text.get(before.text..).unwrap_or_default().to_owned();
        let reasoning = answer.reasoning.get(before.reasoning..).unwrap_or_default().to_owned();
        changes.push(SessionChange::More { turn, index, text, reasoning });
    }
    if before.calls != now.calls {
        changes.push(SessionChange::ToolCalls { turn, index, calls: answer.tool_calls.clone() });
    }
    changes
}

impl SavedTurn {
    fn has(&self, answers: &[Answer]) -> bool {
        let same = |(saved, answer): (&SavedAnswer, &Answer)| *saved == SavedAnswer::of(answer);
        self.answers.len() == answers.len() && self.answers.iter().zip(answers).all(same)
    }
}

impl Shape {
    fn of(turn: &Turn, at: Branch) -> Self {
        Self {
            parent: at.parent,
            place: at.place,
            in_view: at.in_view,
            text: (turn.text.as_ptr() as usize, turn.text.len()),
            queued: turn.queued,
            side: turn.side,
            held: turn.held,
            calls: turn.calls.iter().map(|call| 1 + 2 * weight(call)).sum(),
        }
    }
}

/// A call is checked, planned, and done, in this order and once.
fn weight(call: &Call) -> usize {
    usize::from(call.plan.is_some()) + 2 * usize::from(call.is_done())
}

impl SavedAnswer {
    fn of(answer: &Answer) -> Self {
        let calls = answer.tool_calls.iter().map(|c| 1 + c.id.len() + c.name.len() + c.arguments.len());
        Self {
            seq: answer.seq,
            text: answer.text.len(),
            reasoning: answer.reasoning.len(),
            calls: calls.sum(),
            ended: answer.outcome.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::SamplingParams;
    use std::time::Duration;

    fn said(text: &str) -> Turn {
        let mut turn = Turn::new(text);
        turn.answers.push(Answer::new(SeqId::default(), SamplingParams::default(), Duration::ZERO));
        turn
    }

    /// Number, parent, place, whether in view, text.
    type Row = (TurnNumber, Option<TurnNumber>, u32, bool, String);

    fn turns(changes: &[SessionChange]) -> Vec<Row> {
        let row = |change: &SessionChange| match change {
            SessionChange::Turn(t) => Some((t.number, t.parent, t.place, t.in_view, t.text.clone())),
            _ => None,
        };
        changes.iter().filter_map(row).collect()
    }

    #[test]
    fn versions_are_branches_of_one_tree_and_only_what_moved_is_told() {
        let mut saved = Saved::default();
        let mut entries = vec![Entry::Turn(said("a")), Entry::Turn(said("b"))];
        saved.changes(&mut entries, "m");
        assert!(saved.changes(&mut entries, "m").is_empty());
        // The first message is said differently: what was, and what followed, stands before it.
        let before = std::mem::take(&mut entries);
        let mut other = said("c");
        other.versions.before.push(before);
        entries.push(Entry::Turn(other));
        let moved = turns(&saved.changes(&mut entries, "m"));
        let expected = [(1, None, 0, false, "a".to_owned()), (3, None, 1, true, "c".to_owned())];
        assert_eq!(moved, expected, "the second still follows the first");
        assert!(saved.changes(&mut entries, "m").is_empty());
        // And the first comes back into view.
        let Some(Entry::Turn(mut now)) = entries.pop() else { return };
        entries = now.versions.before.remove(0);
        if let Some(Entry::Turn(first)) = entries.first_mut() {
            first.versions.after.push(vec![Entry::Turn(now)]);
        }
        let moved = turns(&saved.changes(&mut entries, "m"));
        let expected = [(1, None, 0, true, "a".to_owned()), (3, None, 1, false, "c".to_owned())];
        assert_eq!(moved, expected);
    }

    #[test]
    fn a_turn_that_is_put_between_others_moves_those_behind_it() {
        let mut saved = Saved::default();
        let mut entries = vec![Entry::Turn(said("a")), Entry::Turn(said("waits"))];
        saved.changes(&mut entries, "m");
        entries.insert(1, Entry::Turn(said("results")));
        let changes = saved.changes(&mut entries, "m");
        let parents: Vec<_> = turns(&changes).iter().map(|row| (row.0, row.1)).collect();
        assert_eq!(parents, [(3, Some(1)), (2, Some(3))]);
        entries.remove(1);
        let changes = saved.changes(&mut entries, "m");
        assert_eq!(changes.last(), Some(&SessionChange::TurnGone(3)));
    }

    #[test]
    fn an_answer_that_grows_is_told_in_pieces_and_another_one_as_a_whole() {
        let mut saved = Saved::default();
        let mut entries = vec![Entry::Turn(said("a"))];
        saved.changes(&mut entries, "m");
        let answer = |entries: &mut [Entry], act: fn(&mut Answer)| {
            if let Some(Entry::Turn(turn)) = entries.first_mut() {
                act(&mut turn.answers[0]);
            }
        };
        answer(&mut entries, |a| a.text += "one");
        answer(&mut entries, |a| a.reasoning += "hm");
        let more = |text: &str, reasoning: &str| SessionChange::More {
            turn: 1,
            index: 0,
            text: text.into(),
            reasoning: reasoning.into(),
        };
        assert_eq!(saved.changes(&mut entries, "m"), [more("one", "hm")]);
        answer(&mut entries, |a| a.text += " two");
        assert_eq!(saved.changes(&mut entries, "m"), [more(" two", "")]);
        answer(&mut entries, |a| a.seq.request.0 = 7);
        let whole = saved.changes(&mut entries, "m");
        assert!(matches!(&whole[..], [SessionChange::Answer { answer, .. }] if answer.text == "one two"));
        if let Some(Entry::Turn(turn)) = entries.first_mut() {
            turn.answers.clear();
        }
        assert_eq!(saved.changes(&mut entries, "m"), [SessionChange::Answers { turn: 1, count: 0 }]);
    }
}
