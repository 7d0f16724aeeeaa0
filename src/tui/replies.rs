//! Keeps a terminal's late answers out of the input (BUGLOG X27).
//!
//! A reply to a query (a colour, a device name) may come seconds later, or unasked. The key reader
//! knows the short ones; an operating system command or device control string reaches us as Alt+]
//! or Alt+P and then its text as if typed. Such a string is taken out up to its end.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

/// Nobody types this fast after Alt+]; a reply comes in one burst.
const BURST: Duration = Duration::from_millis(50);

/// Watches the keys go by.
#[derive(Default)]
pub struct ReplyFilter {
    /// Inside a reply; when its last piece came.
    inside: Option<Duration>,
    /// An escape key alone may be the first byte of a reply cut in two.
    escape_at: Option<Duration>,
}

impl ReplyFilter {
    /// False for a key that is part of a reply.
    pub fn is_typed(&mut self, key: &KeyEvent, now: Duration) -> bool {
        let recent = |at: Option<Duration>| at.is_some_and(|at| now.saturating_sub(at) < BURST);
        if recent(self.inside) {
            self.inside = (!ends(key)).then_some(now);
            return false;
        }
        let after_escape = recent(self.escape_at.take());
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let starts = matches!(key.code, KeyCode::Char(']' | 'P' | '_' | '^' | 'X'));
        self.inside = ((alt || after_escape) && starts).then_some(now);
        self.escape_at = (key.code == KeyCode::Esc).then_some(now);
        self.inside.is_none()
    }
}

/// BEL (read as Ctrl+G) or ESC \ (read as Alt+\).
fn ends(key: &KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('g') => key.modifiers.contains(KeyModifiers::CONTROL),
        KeyCode::Char('\\') => key.modifiers.contains(KeyModifiers::ALT),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(filter: &mut ReplyFilter, text: &str, modifiers: KeyModifiers, at: u64) -> String {
        let typed = |c: &char| {
            filter.is_typed(&KeyEvent::new(KeyCode::Char(*c), modifiers), Duration::from_millis(at))
        };
        text.chars().filter(typed).collect()
    }

    #[test]
    fn a_late_reply_is_not_typed_and_what_follows_is() {
        let mut filter = ReplyFilter::default();
        assert_eq!(keys(&mut filter, "hi", KeyModifiers::NONE, 0), "hi");
        // ESC ] 11;rgb:1212/1212/1212 BEL
        assert_eq!(keys(&mut filter, "]", KeyModifiers::ALT, 2000), "");
        assert_eq!(keys(&mut filter, "11;rgb:1212/1212/1212", KeyModifiers::NONE, 2001), "");
        assert_eq!(keys(&mut filter, "g", KeyModifiers::CONTROL, 2001), "");
        assert_eq!(keys(&mut filter, "more", KeyModifiers::NONE, 2002), "more");
        // ESC P ... ESC \
        assert_eq!(keys(&mut filter, "P", KeyModifiers::ALT | KeyModifiers::SHIFT, 3000), "");
        assert_eq!(keys(&mut filter, "1+r544e", KeyModifiers::NONE, 3000), "");
        assert_eq!(keys(&mut filter, "\\", KeyModifiers::ALT, 3000), "");
        assert_eq!(keys(&mut filter, "ok", KeyModifiers::NONE, 3000), "ok");
    }

    #[test]
    fn a_reply_without_an_end_does_not_swallow_what_is_typed_later() {
        let mut filter = ReplyFilter::default();
        assert_eq!(keys(&mut filter, "]", KeyModifiers::ALT, 0), "");
        assert_eq!(keys(&mut filter, "11;rgb", KeyModifiers::NONE, 1), "");
        assert_eq!(keys(&mut filter, "hello", KeyModifiers::NONE, 500), "hello");
    }
}
