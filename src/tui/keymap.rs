//! Keys -> actions, as data: one row a binding, and the help is made of the same rows.
//!
//! Never bound: Ctrl+M, Ctrl+I, Ctrl+H, Ctrl+[ (the same bytes as Enter, Tab, Backspace and Esc)
//! and Alt+digit (taken by terminals for their tabs).

use super::app::Focus;
use super::calls::Reply;
use super::panels::Panel;
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

macro_rules! bind {
    (Transcript, $name:expr, [$($key:expr),+], $action:ident, $help:expr) => {
        Row {
            place: Place::Transcript,
            name: $name,
            keys: &[$($key),+],
            action: Action::Transcript(InTranscript::$action),
            help: $help,
        }
    };
    (Tokens, $name:expr, [$($key:expr),+], $action:ident, $help:expr) => {
        Row {
            place: Place::Tokens,
            name: $name,
            keys: &[$($key),+],
            action: Action::Token(InTokens::$action),
            help: $help,
        }
    };
    (In $panel:ident, $name:expr, [$($key:expr),+], $action:expr, $help:expr) => {
        Row { place: Place::In(Panel::$panel), name: $name, keys: &[$($key),+], action: $action, help: $help }
    };
    ($place:ident, $name:expr, [$($key:expr),+], $action:expr, $help:expr) => {
        Row { place: Place::$place, name: $name, keys: &[$($key),+], action: $action, help: $help }
    };
}

/// In the order the help lists them.
pub const BINDINGS: &[Row] = &[
    bind!(Input, "submit", [key!(enter)], Action::Submit, "send"),
    bind!(
        Input,
        "newline",
        [key!(ctrl - j), key!(alt - enter), key!(shift - enter)],
        Action::Newline,
        "new line"
    ),
    bind!(Input, "history_back", [key!(up)], Action::HistoryBack, "earlier input"),
    bind!(Input, "history_forward", [key!(down)], Action::HistoryForward, "later input"),
    bind!(Input, "search_history", [key!(ctrl - r)], Action::SearchHistory, "search earlier inputs"),
    bind!(Input, "open_editor", [key!(ctrl - g)], Action::OpenEditor, "write in $VISUAL or $EDITOR"),
    bind!(
        Input,
        "clear_to_line_start",
        [key!(ctrl - u)],
        Action::ClearToLineStart,
        "clear to the line's start"
    ),
    bind!(
        Input,
        "undo",
        [key!(ctrl - '_'), key!(ctrl - '7'), key!(alt - z)],
        Action::Undo,
        "undo (Alt+Y: redo)"
    ),
    bind!(Input, "redo", [key!(alt - y), key!(alt - '_')], Action::Redo, ""),
    bind!(Input, "expand_chip", [key!(ctrl - e)], Action::ExpandChip, "unfold a chip; line end"),
    bind!(Anywhere, "escape", [key!(esc)], Action::Escape, "stop; twice: clear the input"),
    bind!(Anywhere, "interrupt", [key!(ctrl - c)], Action::Interrupt, "clear, stop, then quit"),
    bind!(Anywhere, "quit_if_empty", [key!(ctrl - d)], Action::QuitIfEmpty, "quit (empty input)"),
    bind!(Anywhere, "toggle_thoughts", [key!(ctrl - o)], Action::ToggleThoughts, "show or fold thoughts"),
    bind!(Anywhere, "page_up", [key!(pageup)], Action::PageUp, "scroll back"),
    bind!(Anywhere, "page_down", [key!(pagedown)], Action::PageDown, "scroll forward"),
    bind!(Anywhere, "scroll_top", [key!(ctrl - home)], Action::ScrollTop, "to the beginning"),
    bind!(Anywhere, "scroll_bottom", [key!(ctrl - end)], Action::ScrollBottom, "to the end, and follow"),
    bind!(Anywhere, "find", [key!(ctrl - f)], Action::Find, "find in this chat"),
    bind!(Anywhere, "previous_message", [key!(alt - up)], Action::PreviousMessage, "the message before"),
    bind!(Anywhere, "next_message", [key!(alt - down)], Action::NextMessage, "the message after"),
    bind!(Anywhere, "palette", [key!(ctrl - p)], Action::Palette, "find an action or a command"),
    bind!(
        Anywhere,
        "next_tab",
        [key!(ctrl - right), key!(f8)],
        Action::NextTab,
        "next chat (^→: empty input)"
    ),
    bind!(Anywhere, "previous_tab", [key!(ctrl - left), key!(f7)], Action::PreviousTab, "the chat before"),
    bind!(Anywhere, "new_tab", [key!(ctrl - n)], Action::NewTab, "a new chat beside this one"),
    bind!(Anywhere, "close_tab", [key!(ctrl - w)], Action::CloseTab, "close the chat (empty input)"),
    bind!(Anywhere, "sessions", [key!(f9)], Action::Sessions, "earlier chats"),
    bind!(Anywhere, "help", [key!(f1)], Action::Help, "this help"),
    bind!(Anywhere, "choose_model", [key!(f2)], Action::ChooseModel, "models"),
    bind!(Anywhere, "regenerate", [key!(f3)], Action::Regenerate, "answer again"),
    bind!(Anywhere, "new_chat", [key!(f4)], Action::NewChat, "start anew in this tab"),
    bind!(
        Anywhere,
        "previous_version",
        [key!(alt - left)],
        Action::PreviousVersion,
        "version before (Alt+→: next)"
    ),
    bind!(Anywhere, "next_version", [key!(alt - right)], Action::NextVersion, ""),
    bind!(Anywhere, "toggle_pause", [key!(f5)], Action::TogglePause, "pause or resume the engine"),
    bind!(Anywhere, "step", [key!(f6)], Action::Step, "one step of the engine"),
    bind!(Anywhere, "suspend", [key!(ctrl - z)], Action::Suspend, "to the shell; fg comes back"),
    bind!(Anywhere, "redraw", [key!(ctrl - l)], Action::Redraw, "draw anew"),
    bind!(Anywhere, "next_focus", [key!(tab)], Action::NextFocus, "next panel, then the input"),
    bind!(
        Anywhere,
        "previous_focus",
        [key!(backtab), key!(shift - backtab), key!(shift - tab)],
        Action::PreviousFocus,
        ""
    ),
    bind!(Transcript, "select_next", [key!(j), key!(down)], Next, "next message (k: the one before)"),
    bind!(Transcript, "select_previous", [key!(k), key!(up)], Previous, ""),
    bind!(Transcript, "select_first", [key!(g), key!(home)], First, "first message (G: last)"),
    bind!(Transcript, "select_last", [key!(shift - g), key!(end)], Last, ""),
    bind!(Transcript, "half_page_down", [key!(d)], HalfDown, "half a page on (u: back)"),
    bind!(Transcript, "half_page_up", [key!(u)], HalfUp, ""),
    Row {
        place: Place::Transcript,
        name: "open_message",
        keys: &[key!(enter)],
        action: Action::OpenMessage,
        help: "tokens of the answer",
    },
    bind!(Transcript, "read_tokens", [key!(t)], Tokens, ""),
    bind!(Transcript, "fold_message", [key!(o)], Fold, "fold or show thoughts here"),
    bind!(Transcript, "copy_message", [key!(y)], Copy, "copy it (Y: its code)"),
    bind!(Transcript, "copy_block", [key!(shift - y)], CopyBlock, ""),
    bind!(Transcript, "compare_answers", [key!('=')], Compare, "compare with its parent"),
    bind!(Transcript, "edit_message", [key!(e)], Edit, "say it differently"),
    bind!(Transcript, "answer_again", [key!(r)], Again, "answer it again"),
    bind!(Transcript, "take_answer", [key!(c)], Take, "go on from this one of several"),
    bind!(Transcript, "next_match", [key!(n)], NextMatch, "next match (N: before)"),
    bind!(Transcript, "previous_match", [key!(shift - n)], PreviousMatch, ""),
    Row {
        place: Place::Transcript,
        name: "message_up",
        keys: &[key!('[')],
        action: Action::PreviousMessage,
        help: "",
    },
    Row {
        place: Place::Transcript,
        name: "message_down",
        keys: &[key!(']')],
        action: Action::NextMessage,
        help: "",
    },
    Row {
        place: Place::Transcript,
        name: "begin_command",
        keys: &[key!('/')],
        action: Action::BeginCommand,
        help: "",
    },
    Row { place: Place::Transcript, name: "help", keys: &[key!('?')], action: Action::Help, help: "" },
    bind!(Tokens, "token_left", [key!(left), key!(h)], Left, "token before (→: after)"),
    bind!(Tokens, "token_right", [key!(right), key!(l)], Right, ""),
    bind!(Tokens, "token_up", [key!(up)], Up, "line above (↓: under)"),
    bind!(Tokens, "token_down", [key!(down)], Down, ""),
    bind!(Tokens, "token_first", [key!(home), key!(g)], First, "first token (End: last)"),
    bind!(Tokens, "token_last", [key!(end), key!(shift - g)], Last, ""),
    bind!(Tokens, "token_doubtful", [key!(w)], Doubtful, "next token under 50%"),
    bind!(Tokens, "colour_tokens", [key!(c)], Colour, "colour by probability"),
    bind!(Tokens, "alternative_next", [key!(j)], NextChoice, "next alternative (k: before)"),
    bind!(Tokens, "alternative_previous", [key!(k)], PreviousChoice, ""),
    bind!(Tokens, "fork_here", [key!(enter)], Fork, "fork here with it"),
    bind!(
        Panels,
        "toggle_sampling",
        [key!('1')],
        Action::TogglePanel(Panel::Sampling),
        "sampling: why this token?"
    ),
    bind!(
        Panels,
        "toggle_kv",
        [key!('2')],
        Action::TogglePanel(Panel::Kv),
        "KV blocks: where is the memory?"
    ),
    bind!(
        Panels,
        "toggle_batch",
        [key!('3')],
        Action::TogglePanel(Panel::Batch),
        "batch: what did this step do?"
    ),
    bind!(
        Panels,
        "toggle_beams",
        [key!('4')],
        Action::TogglePanel(Panel::Beams),
        "beams: which paths are alive?"
    ),
    bind!(
        Panels,
        "toggle_reasoning",
        [key!('5')],
        Action::TogglePanel(Panel::Reasoning),
        "reasoning: what was decided?"
    ),
    bind!(Panels, "toggle_metrics", [key!('6')], Action::TogglePanel(Panel::Metrics), "metrics: is it fast?"),
    bind!(Panels, "toggle_pause", [key!(p), key!(space)], Action::TogglePause, "pause (r: resume)"),
    bind!(Panels, "step", [key!(s), key!(n)], Action::Step, "step"),
    bind!(Panels, "add_breakpoint", [key!(b)], Action::AddBreakpoint, "stop the engine when…"),
    bind!(Panels, "begin_command", [key!('/')], Action::BeginCommand, "a command"),
    bind!(Panels, "edit_settings", [key!(e)], Action::EditSettings, "batch: step or settings"),
    bind!(Panels, "zoom", [key!(z)], Action::Zoom, "zoom the panel"),
    bind!(Panels, "panel_up", [key!('{'), key!(shift - up)], Action::PanelUp, "move the panel up (}: down)"),
    bind!(Panels, "panel_down", [key!('}'), key!(shift - down)], Action::PanelDown, ""),
    bind!(Panels, "panel_left", [key!(shift - left)], Action::PanelLeft, "to the other column"),
    bind!(Panels, "panel_right", [key!(shift - right)], Action::PanelRight, ""),
    bind!(Panels, "narrower", [key!('<')], Action::Narrower, "column narrower (>: wider)"),
    bind!(Panels, "wider", [key!('>')], Action::Wider, ""),
    bind!(Panels, "shorter", [key!('(')], Action::Shorter, "panel shorter (): taller)"),
    bind!(Panels, "taller", [key!(')')], Action::Taller, ""),
    bind!(Panels, "down", [key!(j), key!(down)], Action::Down, "down, older (k: up, newer)"),
    bind!(Panels, "up", [key!(k), key!(up)], Action::Up, ""),
    bind!(Panels, "first", [key!(g), key!(home)], Action::First, "first (G: last)"),
    bind!(Panels, "last", [key!(shift - g), key!(end)], Action::Last, ""),
    bind!(Panels, "decrease", [key!(h), key!(left)], Action::Decrease, "less, left (l: more, right)"),
    bind!(Panels, "increase", [key!(l), key!(right)], Action::Increase, ""),
    bind!(Panels, "edit_value", [key!(enter)], Action::EditValue, "type a value"),
    bind!(Panels, "next_sequence", [key!(f)], Action::NextSequence, "trace the next sequence"),
    bind!(Panels, "resume", [key!(r)], Action::Resume, ""),
    bind!(Panels, "help", [key!('?')], Action::Help, ""),
    bind!(In Kv, "kv_colours", [key!(c)], Action::NextColours, "blocks by owner, shares, state, age, tier"),
    bind!(In Kv, "kv_tree", [key!(t)], Action::ToggleTree, "the prefix cache as a tree"),
    bind!(In Kv, "kv_fold", [key!(enter), key!(space)], Action::Fold, "tree: fold (Space pauses over the map)"),
    bind!(In Kv, "kv_dense", [key!(d)], Action::ToggleDense, "two blocks a cell"),
    bind!(In Batch, "next_row", [key!(shift - j), key!(shift - down)], Action::NextRow, "the next sequence (K: the one before)"),
    bind!(In Batch, "previous_row", [key!(shift - k), key!(shift - up)], Action::PreviousRow, ""),
    bind!(In Batch, "inspect", [key!(i), key!(enter)], Action::Inspect, "the chosen sequence in full"),
    bind!(In Batch, "cancel_request", [key!(x)], Action::CancelRequest, "twice: cancel its request"),
    bind!(In Batch, "raise_number", [key!('+'), key!('=')], Action::RaisePriority, "its priority (-: less; lower is first)"),
    bind!(In Batch, "lower_number", [key!('-')], Action::LowerPriority, ""),
    bind!(In Batch, "trace_row", [key!(f)], Action::TraceRow, "trace it"),
    bind!(In Beams, "go_to_branch", [key!(enter)], Action::GoToBranch, "go to the chosen branch"),
    bind!(
        In Sampling,
        "earlier_token",
        [key!(','), key!('[')],
        Action::EarlierToken,
        "sampling: the token before"
    ),
    bind!(
        In Sampling,
        "later_token",
        [key!('.'), key!(']')],
        Action::LaterToken,
        "the token after (End: the newest)"
    ),
    bind!(In Sampling, "newest_token", [key!(end)], Action::NewestToken, ""),
    bind!(In Sampling, "next_stage", [key!(t)], Action::NextStage, "look at a stage (T: the one before)"),
    bind!(In Sampling, "previous_stage", [key!(shift - t)], Action::PreviousStage, ""),
    bind!(In Sampling, "try", [key!(w)], Action::Try, "what if: try values on this token"),
    bind!(In Sampling, "apply_tried", [key!(a)], Action::ApplyTried, "use what was tried"),
    bind!(
        In Sampling,
        "undo_parameter",
        [key!(u)],
        Action::UndoParameter,
        "undo a parameter (U: redo)"
    ),
    bind!(In Sampling, "redo_parameter", [key!(shift - u)], Action::RedoParameter, ""),
    bind!(
        In Sampling,
        "reset_parameter",
        [key!(x), key!(backspace)],
        Action::ResetParameter,
        "back to where it came from"
    ),
    bind!(In Sampling, "find_parameter", [key!(o)], Action::FindParameter, "find a parameter by name"),
    bind!(
        In Sampling,
        "sampling_presets",
        [key!(shift - p)],
        Action::SamplingPresets,
        "greedy, balanced, creative, …"
    ),
    bind!(In Metrics, "measure_limits", [key!(m)], Action::MeasureLimits, "measure the device's limits"),
    bind!(Replay, "toggle_pause", [key!(space)], Action::TogglePause, "play or pause"),
    bind!(Replay, "step", [key!(n), key!(s)], Action::Step, "one step forward"),
    bind!(Replay, "step_back", [key!(b), key!(p)], Action::StepBack, "one step back"),
    bind!(Replay, "slower", [key!('[')], Action::Slower, "half the speed"),
    bind!(Replay, "faster", [key!(']')], Action::Faster, "double the speed"),
    bind!(Question, "answer_once", [key!(y)], Action::Answer(Reply::Once), "run it once"),
    bind!(Question, "answer_refuse", [key!(n)], Action::Answer(Reply::Refuse), "refuse; the model is told"),
    bind!(Question, "answer_dry_run", [key!(d)], Action::Answer(Reply::DryRun), "only say what would run"),
    bind!(Question, "answer_always", [key!(a)], Action::Answer(Reply::Always), "always, after a second yes"),
    bind!(Question, "answer_down", [key!(down)], Action::Answer(Reply::Down), "more of it"),
    bind!(Question, "answer_up", [key!(up)], Action::Answer(Reply::Up), ""),
];

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
