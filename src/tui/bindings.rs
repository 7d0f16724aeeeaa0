//! The keys as they come: one row a binding, and the help is made of the same rows.
//!
//! Never bound: Ctrl+M, Ctrl+I, Ctrl+H, Ctrl+[ (the same bytes as Enter, Tab, Backspace and Esc)
//! and Alt+digit (taken by terminals for their tabs).

use super::calls::Reply;
use super::keymap::{Action, InTokens, InTranscript, Place, Row};
use super::panels::Panel;
use crokey::key;

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
