//! Keys -> actions, as data: one row a binding, and the help is made of the same rows.
//!
//! Never bound: Ctrl+M, Ctrl+I, Ctrl+H, Ctrl+[ (the same bytes as Enter, Tab, Backspace and Esc)
//! and Alt+digit (taken by terminals for their tabs).

use super::app::{Focus, Panel};
use super::calls::Reply;
use crokey::{KeyCombination, key};
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
    ToggleThoughts,
    ChooseModel,
    Regenerate,
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
    SearchHistory,
    OpenEditor,
    TogglePanel(Panel),
    Zoom,
    Down,
    Up,
    First,
    Last,
    Decrease,
    Increase,
    EditValue,
    NextSequence,
    EditSettings,
    AddBreakpoint,
    BeginCommand,
    Answer(Reply),
}

/// Where a binding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Anywhere,
    Input,
    Panels,
    /// In panels, while a recording is played: before what is bound there.
    Replay,
    /// While a tool call is asked about: before everything else.
    Question,
}

pub struct Binding {
    pub place: Place,
    pub keys: &'static [KeyCombination],
    pub action: Action,
    /// Empty where another row of the help says it too.
    pub help: &'static str,
}

macro_rules! bind {
    ($place:ident, [$($key:expr),+], $action:expr, $help:expr) => {
        Binding { place: Place::$place, keys: &[$($key),+], action: $action, help: $help }
    };
}

/// In the order the help lists them.
pub const BINDINGS: &[Binding] = &[
    bind!(Input, [key!(enter)], Action::Submit, "send"),
    bind!(Input, [key!(ctrl - j), key!(alt - enter), key!(shift - enter)], Action::Newline, "new line"),
    bind!(Input, [key!(up)], Action::HistoryBack, "earlier input"),
    bind!(Input, [key!(down)], Action::HistoryForward, "later input"),
    bind!(Input, [key!(ctrl - r)], Action::SearchHistory, "search earlier inputs"),
    bind!(Input, [key!(ctrl - g)], Action::OpenEditor, "write in $VISUAL or $EDITOR"),
    bind!(Input, [key!(ctrl - u)], Action::ClearToLineStart, "clear to the line's start"),
    bind!(Anywhere, [key!(esc)], Action::Escape, "stop; twice: clear the input"),
    bind!(Anywhere, [key!(ctrl - c)], Action::Interrupt, "clear, stop, then quit"),
    bind!(Anywhere, [key!(ctrl - d)], Action::QuitIfEmpty, "quit (empty input)"),
    bind!(Anywhere, [key!(ctrl - o)], Action::ToggleThoughts, "show or fold thoughts"),
    bind!(Anywhere, [key!(pageup)], Action::PageUp, "scroll back"),
    bind!(Anywhere, [key!(pagedown)], Action::PageDown, "scroll forward"),
    bind!(Anywhere, [key!(ctrl - home)], Action::ScrollTop, "to the beginning"),
    bind!(Anywhere, [key!(ctrl - end)], Action::ScrollBottom, "to the end, and follow"),
    bind!(Anywhere, [key!(f1)], Action::Help, "this help"),
    bind!(Anywhere, [key!(f2)], Action::ChooseModel, "models"),
    bind!(Anywhere, [key!(f3)], Action::Regenerate, "answer again"),
    bind!(Anywhere, [key!(f4)], Action::NewChat, "new chat"),
    bind!(Anywhere, [key!(f5)], Action::TogglePause, "pause or resume the engine"),
    bind!(Anywhere, [key!(f6)], Action::Step, "one step of the engine"),
    bind!(Anywhere, [key!(ctrl - z)], Action::Suspend, "to the shell; fg comes back"),
    bind!(Anywhere, [key!(ctrl - l)], Action::Redraw, "draw anew"),
    bind!(Anywhere, [key!(tab)], Action::NextFocus, "next panel, then the input"),
    bind!(Anywhere, [key!(backtab), key!(shift - backtab), key!(shift - tab)], Action::PreviousFocus, ""),
    bind!(Panels, [key!('1')], Action::TogglePanel(Panel::Sampling), "sampling: why this token?"),
    bind!(Panels, [key!('2')], Action::TogglePanel(Panel::Kv), "KV blocks: where is the memory?"),
    bind!(Panels, [key!('3')], Action::TogglePanel(Panel::Batch), "batch: what did this step do?"),
    bind!(Panels, [key!('4')], Action::TogglePanel(Panel::Beams), "beams: which paths are alive?"),
    bind!(Panels, [key!('5')], Action::TogglePanel(Panel::Reasoning), "reasoning: what was decided?"),
    bind!(Panels, [key!('6')], Action::TogglePanel(Panel::Metrics), "metrics: is it fast?"),
    bind!(Panels, [key!(p), key!(space)], Action::TogglePause, "pause (r: resume)"),
    bind!(Panels, [key!(s), key!(n)], Action::Step, "step"),
    bind!(Panels, [key!(b)], Action::AddBreakpoint, "stop the engine when…"),
    bind!(Panels, [key!('/')], Action::BeginCommand, "a command"),
    bind!(Panels, [key!(e)], Action::EditSettings, "batch: step or settings"),
    bind!(Panels, [key!(z)], Action::Zoom, "zoom the panel"),
    bind!(Panels, [key!(j), key!(down)], Action::Down, "down, older (k: up, newer)"),
    bind!(Panels, [key!(k), key!(up)], Action::Up, ""),
    bind!(Panels, [key!(g), key!(home)], Action::First, "first (G: last)"),
    bind!(Panels, [key!(shift - g), key!(end)], Action::Last, ""),
    bind!(Panels, [key!(h), key!(left)], Action::Decrease, "less, left (l: more, right)"),
    bind!(Panels, [key!(l), key!(right)], Action::Increase, ""),
    bind!(Panels, [key!(enter)], Action::EditValue, "type a value"),
    bind!(Panels, [key!(f)], Action::NextSequence, "trace the next sequence"),
    bind!(Panels, [key!(r)], Action::Resume, ""),
    bind!(Panels, [key!('?')], Action::Help, ""),
    bind!(Replay, [key!(space)], Action::TogglePause, "play or pause"),
    bind!(Replay, [key!(n), key!(s)], Action::Step, "one step forward"),
    bind!(Replay, [key!(b), key!(p)], Action::StepBack, "one step back"),
    bind!(Replay, [key!('[')], Action::Slower, "half the speed"),
    bind!(Replay, [key!(']')], Action::Faster, "double the speed"),
    bind!(Question, [key!(y)], Action::Answer(Reply::Once), "run it once"),
    bind!(Question, [key!(n)], Action::Answer(Reply::Refuse), "refuse; the model is told"),
    bind!(Question, [key!(d)], Action::Answer(Reply::DryRun), "only say what would run"),
    bind!(Question, [key!(a)], Action::Answer(Reply::Always), "always, after a second yes"),
    bind!(Question, [key!(down)], Action::Answer(Reply::Down), "more of it"),
    bind!(Question, [key!(up)], Action::Answer(Reply::Up), ""),
];

/// The meaning of a key, if it is bound where the focus is.
pub fn action(key: KeyEvent, focus: Focus) -> Option<Action> {
    let here = if matches!(focus, Focus::Input) { Place::Input } else { Place::Panels };
    bound(key, &[Place::Anywhere, here])
}

/// The meaning that only a replay gives to a key in its panels.
pub fn replay_action(key: KeyEvent) -> Option<Action> {
    bound(key, &[Place::Replay])
}

/// The meaning of a key to a question about a tool call.
pub fn question_action(key: KeyEvent) -> Option<Action> {
    bound(key, &[Place::Question])
}

fn bound(mut key: KeyEvent, places: &[Place]) -> Option<Action> {
    if let KeyCode::Char(c) = key.code
        && !c.is_alphabetic()
    {
        // Which symbols need Shift depends on the keyboard, not on their meaning.
        key.modifiers -= KeyModifiers::SHIFT;
    }
    let pressed = KeyCombination::from(key).normalized();
    BINDINGS
        .iter()
        .filter(|b| places.contains(&b.place))
        .find(|b| b.keys.iter().any(|k| k.normalized() == pressed))
        .map(|b| b.action)
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
        for focus in [Focus::Input, Focus::Panel(Panel::Batch)] {
            for c in ['m', 'i', 'h', '['] {
                assert_eq!(action(press(KeyCode::Char(c), KeyModifiers::CONTROL), focus), None, "Ctrl+{c}");
            }
            for digit in '0'..='9' {
                assert_eq!(action(press(KeyCode::Char(digit), KeyModifiers::ALT), focus), None);
            }
        }
    }

    #[test]
    fn letters_are_typed_in_the_input_and_act_in_panels() {
        let z = press(KeyCode::Char('z'), KeyModifiers::NONE);
        assert_eq!(action(z, Focus::Input), None);
        assert_eq!(action(z, Focus::Panel(Panel::Kv)), Some(Action::Zoom));
        let capital = press(KeyCode::Char('G'), KeyModifiers::SHIFT);
        assert_eq!(action(capital, Focus::Panel(Panel::Kv)), Some(Action::Last));
        let back = press(KeyCode::BackTab, KeyModifiers::SHIFT);
        assert_eq!(action(back, Focus::Input), Some(Action::PreviousFocus));
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
