//! Keys -> actions: what actions there are, where a binding holds, and which key means what. The
//! bindings themselves are data, in [`bindings`](super::bindings).

use super::app::Focus;
use super::bindings::BINDINGS;
use super::calls::Reply;
use super::panels::Panel;
use crokey::KeyCombination;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key means where it was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Submit,
    Newline,
    /// Close what is open, or stop the answer, or (twice) clear the input.
    Escape,
    /// Clear the input, or stop the answer, or (twice) quit.
    Interrupt,
    QuitIfEmpty,
    Suspend,
    Redraw,
    Help,
    Palette,
    NewTab,
    CloseTab,
    Sessions,
    NextTab,
    PreviousTab,
    ToggleThoughts,
    ChooseModel,
    Regenerate,
    NextVersion,
    PreviousVersion,
    NewChat,
    TogglePause,
    Step,
    StepBack,
    Slower,
    Faster,
    Resume,
    NextFocus,
    PreviousFocus,
    PageUp,
    PageDown,
    ScrollTop,
    ScrollBottom,
    HistoryBack,
    HistoryForward,
    ClearToLineStart,
    Undo,
    Redo,
    ExpandChip,
    SearchHistory,
    OpenEditor,
    TogglePanel(Panel),
    Zoom,
    PanelUp,
    PanelDown,
    PanelLeft,
    PanelRight,
    Narrower,
    Wider,
    Shorter,
    Taller,
    Down,
    Up,
    First,
    Last,
    Decrease,
    Increase,
    EditValue,
    NextSequence,
    EditSettings,
    /// The token before the one that is looked at, in the order they were drawn.
    EarlierToken,
    LaterToken,
    NewestToken,
    NextStage,
    PreviousStage,
    Try,
    ApplyTried,
    UndoParameter,
    RedoParameter,
    ResetParameter,
    FindParameter,
    SamplingPresets,
    MeasureLimits,
    AddBreakpoint,
    BeginCommand,
    Answer(Reply),
    NextColours,
    ToggleDense,
    ToggleTree,
    Fold,
    NextRow,
    PreviousRow,
    Inspect,
    CancelRequest,
    LowerPriority,
    RaisePriority,
    TraceRow,
    GoToBranch,
    Find,
    /// The message above, or under, the top of the view.
    PreviousMessage,
    NextMessage,
    OpenMessage,
    Transcript(InTranscript),
    Token(InTokens),
}

/// What acts on the selected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTranscript {
    Next,
    Previous,
    First,
    Last,
    HalfUp,
    HalfDown,
    Tokens,
    Fold,
    Copy,
    CopyBlock,
    Compare,
    Edit,
    Again,
    Take,
    NextMatch,
    PreviousMatch,
}

/// What acts in token mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTokens {
    Left,
    Right,
    Up,
    Down,
    First,
    Last,
    Doubtful,
    Colour,
    NextChoice,
    PreviousChoice,
    Fork,
}

impl Action {
    /// Leads to a panel, or away from all: does so from the transcript too.
    fn is_for_any_panel(&self) -> bool {
        matches!(self, Action::TogglePanel(_) | Action::BeginCommand | Action::Help)
    }
}

/// Where a binding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Anywhere,
    Input,
    /// The transcript, while it has the focus.
    Transcript,
    /// While an answer is read token by token: before the transcript's.
    Tokens,
    Panels,
    /// In this panel: before what is bound in all.
    In(Panel),
    /// In panels, while a recording is played: before what is bound there.
    Replay,
    /// While a tool call is asked about: before everything else.
    Question,
}

/// A row of the table.
pub struct Row {
    pub place: Place,
    /// As a keymap file calls it.
    pub name: &'static str,
    pub keys: &'static [KeyCombination],
    pub action: Action,
    /// Empty where another row of the help says it too.
    pub help: &'static str,
}

/// What is in force: the table's row, with the keys that the person chose.
#[derive(Clone)]
pub struct Binding {
    pub place: Place,
    pub name: &'static str,
    pub keys: Vec<KeyCombination>,
    pub action: Action,
    pub help: &'static str,
}

/// Which key means what.
#[derive(Clone)]
pub struct Keymap {
    /// A row for each of `BINDINGS`, in its order.
    pub rows: Vec<Binding>,
    /// What was wrong in the person's file.
    pub problems: Vec<String>,
}

impl Default for Keymap {
    fn default() -> Self {
        let own = |row: &Row| Binding {
            place: row.place,
            name: row.name,
            keys: row.keys.to_vec(),
            action: row.action,
            help: row.help,
        };
        Self { rows: BINDINGS.iter().map(own).collect(), problems: Vec::new() }
    }
}

impl Keymap {
    /// In the order the help lists them.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.rows.iter()
    }

    /// The keys in force for what `shown` is the built-in key of, where the focus is: as footers write
    /// them. None where that was taken away, `shown` itself where it is no key.
    pub fn in_force(&self, shown: &str, focus: Focus) -> Option<String> {
        let places = match focus {
            Focus::Input => vec![Place::Input, Place::Anywhere],
            Focus::Transcript => vec![Place::Tokens, Place::Transcript, Place::Anywhere],
            Focus::Panel(panel) => vec![Place::Replay, Place::In(panel), Place::Panels, Place::Anywhere],
        };
        let is_it = |key: &KeyCombination| short_name(*key) == shown;
        let row = |place: &Place| BINDINGS.iter().position(|r| r.place == *place && r.keys.iter().any(is_it));
        let Some(at) = places.iter().find_map(row) else { return Some(shown.to_owned()) };
        let keys = &self.rows[at].keys;
        let key = keys.iter().find(|key| is_it(key)).or_else(|| keys.first())?;
        Some(short_name(*key))
    }

    /// `Ctrl+O folds`, with the key in force for a row of the table; none where that was taken away.
    pub fn hint(&self, place: Place, row: &str, does: &str) -> Option<String> {
        self.key_of(place, row).map(|key| format!("{key} {does}"))
    }

    /// The first key in force for a row of the table, written in full.
    pub fn key_of(&self, place: Place, row: &str) -> Option<String> {
        let binding = self.rows.iter().find(|binding| binding.place == place && binding.name == row);
        debug_assert!(binding.is_some(), "no row {row}");
        binding?.keys.first().map(|key| name(*key))
    }

    /// The meaning of a key, if it is bound where the focus is.
    pub fn action(&self, key: KeyEvent, focus: Focus) -> Option<Action> {
        match focus {
            Focus::Input => self.bound(key, &[Place::Anywhere, Place::Input]),
            Focus::Transcript => self
                .bound(key, &[Place::Anywhere, Place::Transcript])
                .or_else(|| self.bound(key, &[Place::Panels]).filter(Action::is_for_any_panel)),
            Focus::Panel(panel) => self
                .bound(key, &[Place::In(panel)])
                .or_else(|| self.bound(key, &[Place::Anywhere, Place::Panels])),
        }
    }

    /// The meaning of a key to an answer that is read token by token.
    pub fn token_action(&self, key: KeyEvent) -> Option<InTokens> {
        match self.bound(key, &[Place::Tokens]) {
            Some(Action::Token(action)) => Some(action),
            _ => None,
        }
    }

    /// The meaning that only a replay gives to a key in its panels.
    pub fn replay_action(&self, key: KeyEvent) -> Option<Action> {
        self.bound(key, &[Place::Replay])
    }

    /// The meaning of a key to a question about a tool call.
    pub fn question_action(&self, key: KeyEvent) -> Option<Action> {
        self.bound(key, &[Place::Question])
    }

    fn bound(&self, mut key: KeyEvent, places: &[Place]) -> Option<Action> {
        if let KeyCode::Char(c) = key.code
            && !c.is_alphabetic()
        {
            // Which symbols need Shift depends on the keyboard, not on their meaning.
            key.modifiers -= KeyModifiers::SHIFT;
        }
        let pressed = KeyCombination::from(key).normalized();
        self.rows
            .iter()
            .filter(|b| places.contains(&b.place))
            .find(|b| b.keys.iter().any(|k| k.normalized() == pressed))
            .map(|b| b.action)
    }
}

/// `^O`, where there is little room.
pub fn short_name(key: KeyCombination) -> String {
    let name = name(key);
    match name.strip_prefix("Ctrl+") {
        Some(letter) if letter.chars().count() == 1 => format!("^{letter}"),
        _ => name,
    }
}

/// `Ctrl+O`, as footers and help write it.
pub fn name(key: KeyCombination) -> String {
    let shift = if key.modifiers.contains(KeyModifiers::SHIFT) { "Shift+" } else { "" };
    let control = if key.modifiers.contains(KeyModifiers::CONTROL) { "Ctrl+" } else { "" };
    let alt = if key.modifiers.contains(KeyModifiers::ALT) { "Alt+" } else { "" };
    let code: KeyCode = *key.codes.first();
    let plain = match code {
        KeyCode::Char(' ') => "Space".into(),
        KeyCode::Char(c) if control.is_empty() && alt.is_empty() => return c.to_string(),
        KeyCode::Char(c) => c.to_uppercase().to_string(),
        KeyCode::F(n) => format!("F{n}"),
        KeyCode::PageUp => "PgUp".into(),
        KeyCode::PageDown => "PgDn".into(),
        KeyCode::Up => "↑".into(),
        KeyCode::Down => "↓".into(),
        KeyCode::Left => "←".into(),
        KeyCode::Right => "→".into(),
        KeyCode::BackTab => "Shift+Tab".into(),
        other => format!("{other:?}"),
    };
    format!("{control}{alt}{shift}{plain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn ambiguous_keys_are_never_bound() {
        let keymap = Keymap::default();
        for focus in [Focus::Input, Focus::Panel(Panel::Batch)] {
            for c in ['m', 'i', 'h', '['] {
                assert_eq!(
                    keymap.action(press(KeyCode::Char(c), KeyModifiers::CONTROL), focus),
                    None,
                    "Ctrl+{c}"
                );
            }
            for digit in '0'..='9' {
                assert_eq!(keymap.action(press(KeyCode::Char(digit), KeyModifiers::ALT), focus), None);
            }
        }
    }

    #[test]
    fn letters_are_typed_in_the_input_and_act_in_panels() {
        let keymap = Keymap::default();
        let z = press(KeyCode::Char('z'), KeyModifiers::NONE);
        assert_eq!(keymap.action(z, Focus::Input), None);
        assert_eq!(keymap.action(z, Focus::Panel(Panel::Kv)), Some(Action::Zoom));
        let capital = press(KeyCode::Char('G'), KeyModifiers::SHIFT);
        assert_eq!(keymap.action(capital, Focus::Panel(Panel::Kv)), Some(Action::Last));
        let back = press(KeyCode::BackTab, KeyModifiers::SHIFT);
        assert_eq!(keymap.action(back, Focus::Input), Some(Action::PreviousFocus));
    }

    #[test]
    fn no_key_means_two_things_in_one_place() {
        for (i, a) in BINDINGS.iter().enumerate() {
            for b in &BINDINGS[i + 1..] {
                let meet = a.place == b.place || a.place == Place::Anywhere || b.place == Place::Anywhere;
                let same = a.keys.iter().any(|k| b.keys.iter().any(|l| k.normalized() == l.normalized()));
                assert!(!(meet && same), "{:?} and {:?}", a.action, b.action);
            }
        }
    }
}
