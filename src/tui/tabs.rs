//! Several chats open at once: one in view, the others before and after it, in the order of their tabs.

use super::app::App;
use super::chat::Chat;

/// The chats that are not in view. That one is [`App::chat`]; together they are a list with a cursor.
#[derive(Default)]
pub struct Tabs {
    before: Vec<Chat>,
    /// The nearest last.
    after: Vec<Chat>,
}

impl Tabs {
    pub fn len(&self) -> usize {
        self.before.len() + 1 + self.after.len()
    }

    /// Of the one in view, from 0.
    pub fn active(&self) -> usize {
        self.before.len()
    }

    /// Every open chat, in the order of the tabs.
    pub fn all<'a>(&'a self, in_view: &'a Chat) -> impl Iterator<Item = &'a Chat> {
        self.before.iter().chain(std::iter::once(in_view)).chain(self.after.iter().rev())
    }

    pub fn all_mut<'a>(&'a mut self, in_view: &'a mut Chat) -> impl Iterator<Item = &'a mut Chat> {
        self.before.iter_mut().chain(std::iter::once(in_view)).chain(self.after.iter_mut().rev())
    }

    /// Brings the chat at `tab` into view; beyond the last is the last.
    pub fn go(&mut self, in_view: &mut Chat, tab: usize) {
        while tab < self.before.len() {
            let Some(chat) = self.before.pop() else { return };
            self.after.push(std::mem::replace(in_view, chat));
        }
        while tab > self.before.len() {
            let Some(chat) = self.after.pop() else { return };
            self.before.push(std::mem::replace(in_view, chat));
        }
    }

    /// Puts a chat after the last and brings it into view.
    pub fn open(&mut self, in_view: &mut Chat, chat: Chat) {
        self.go(in_view, usize::MAX);
        self.before.push(std::mem::replace(in_view, chat));
    }

    /// Takes the chat in view away and brings its neighbour into view; the only one stays.
    pub fn close(&mut self, in_view: &mut Chat) -> Option<Chat> {
        let next = self.after.pop().or_else(|| self.before.pop())?;
        Some(std::mem::replace(in_view, next))
    }
}

impl App {
    /// The tab of the chat that `is_it`.
    pub fn tab_of(&self, is_it: impl Fn(&Chat) -> bool) -> Option<usize> {
        self.tabs.all(&self.chat).position(is_it)
    }

    /// Lets something happen in the chat at `tab`, in view or not.
    pub fn in_tab<R>(&mut self, tab: usize, then: impl FnOnce(&mut App) -> R) -> R {
        let active = self.tabs.active();
        self.tabs.go(&mut self.chat, tab);
        let result = then(self);
        self.tabs.go(&mut self.chat, active);
        result
    }

    /// Brings another chat into view, with its own draft.
    pub fn switch_tab(&mut self, tab: usize) {
        if tab == self.tabs.active() || tab >= self.tabs.len() {
            return;
        }
        self.chat.draft = self.composer.whole_text();
        self.tabs.go(&mut self.chat, tab);
        self.came_into_view();
    }

    pub fn open_tab(&mut self, chat: Chat) {
        self.chat.draft = self.composer.whole_text();
        self.tabs.open(&mut self.chat, chat);
        self.came_into_view();
    }

    /// Takes the chat in view away; false where it is the only one.
    pub fn close_tab(&mut self) -> bool {
        let closed = self.tabs.close(&mut self.chat).is_some();
        if closed {
            self.came_into_view();
        }
        closed
    }

    fn came_into_view(&mut self) {
        self.chat.unread = false;
        self.token = None;
        let draft = std::mem::take(&mut self.chat.draft);
        self.composer.replace(&draft);
        self.completion = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titled(title: &str) -> Chat {
        Chat { title: Some(title.into()), ..Chat::default() }
    }

    #[test]
    fn tabs_keep_their_order_whichever_is_in_view() {
        let (mut tabs, mut chat) = (Tabs::default(), titled("a"));
        tabs.open(&mut chat, titled("b"));
        tabs.open(&mut chat, titled("c"));
        let titles = |tabs: &Tabs, chat: &Chat| {
            tabs.all(chat).map(|c| c.title.clone().unwrap_or_default()).collect::<String>()
        };
        for tab in [0, 2, 1, 9] {
            tabs.go(&mut chat, tab);
            assert_eq!((titles(&tabs, &chat), tabs.active()), ("abc".into(), tab.min(2)));
        }
        tabs.go(&mut chat, 1);
        assert_eq!(tabs.close(&mut chat).and_then(|c| c.title).as_deref(), Some("b"));
        assert_eq!((titles(&tabs, &chat), chat.title.as_deref()), ("ac".into(), Some("c")));
        tabs.close(&mut chat);
        assert!(tabs.close(&mut chat).is_none());
        assert_eq!(titles(&tabs, &chat), "a");
    }
}
