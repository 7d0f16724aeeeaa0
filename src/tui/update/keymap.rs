//! The person's own keys.

use crate::tui::app::App;
use crate::tui::chat::Level;
use crate::tui::sanitize;

/// Where they are read, and what is wrong with them.
pub fn tell(app: &mut App) {
    let Some(path) = app.options.keymap.as_ref() else {
        return app.say("there is no place for a keymap file");
    };
    let changed = app.keymap.changed();
    let state = match (app.keymap.problems.is_empty(), changed) {
        (true, 0) => "nothing in it differs from the keys that are built in".to_owned(),
        (_, n) => format!("{n} keys are the person's own"),
    };
    let mut text = format!(
        "keys are read at the start from {}: {state}\n[input] submit = \"ctrl-s\" is how a line of it \
         looks; docs/keys.md has all of them; F1 shows those in force",
        sanitize::one_line(&path.display().to_string())
    );
    for problem in &app.keymap.problems {
        text += &format!("\n! {problem}");
    }
    app.chat.note(Level::Info, text);
}
