//! How many tokens the draft is, and what is left of the context: as the engine counted it, or
//! nothing. Never a guess.

use super::app::App;
use super::chat::Entry;
use super::slash;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// It is asked so long after the last key.
pub const PAUSE: Duration = Duration::from_millis(150);

#[derive(Default)]
pub struct Counting {
    /// Of what the newest question is, or will be, about.
    about: Option<u64>,
    /// When it is asked.
    pub due: Option<Duration>,
    /// Those asked and not answered: of the draft by itself, of the whole prompt, of files.
    pub draft: Option<u64>,
    pub prompt: Option<u64>,
    pub files: Vec<(u64, String)>,
    pub next_ticket: u64,
    pub known: Known,
}

/// What has been counted of the draft as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    pub draft: Option<usize>,
    /// The conversation, the draft and all that the template adds.
    pub prompt: Option<usize>,
}

impl Counting {
    /// Looks at what would be counted: another draft makes what is known void.
    pub fn look(&mut self, about: Option<u64>, now: Duration) {
        if about != self.about {
            self.about = about;
            self.due = about.map(|_| now + PAUSE);
            (self.draft, self.prompt, self.known) = (None, None, Known::default());
        }
    }

    pub fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

/// What the count depends on, as a number; none where nothing would be sent to the model.
pub fn fingerprint(app: &App) -> Option<u64> {
    let text = app.composer.text();
    let is_message = matches!(slash::read(&text), slash::Line::Message(_));
    if text.trim().is_empty() || !is_message || app.ready().is_none() || app.replay.is_some() {
        return None;
    }
    let mut hash = DefaultHasher::new();
    text.hash(&mut hash);
    app.ready().map(|info| &info.path).hash(&mut hash);
    let chat = &app.chat;
    chat.editing.as_ref().map(|editing| editing.message).hash(&mut hash);
    chat.system.hash(&mut hash);
    let is_answering = chat.is_answering();
    is_answering.hash(&mut hash);
    let turns = chat.entries.iter().filter(|e| matches!(e, Entry::Turn(_))).count();
    turns.hash(&mut hash);
    if !is_answering {
        chat.last_answer().map(|answer| (answer.seq, answer.tokens)).hash(&mut hash);
    }
    (app.tools.off, app.tools.list.tools.len()).hash(&mut hash);
    (app.thinking.enabled, &app.thinking.effort).hash(&mut hash);
    Some(hash.finish())
}
