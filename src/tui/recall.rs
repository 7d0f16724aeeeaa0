//! Ctrl+R: earlier inputs by a part of their text, newest first.

/// A search under way.
#[derive(Debug)]
pub struct Recall {
    pub query: String,
    /// Of the entry found; as many as there are entries while nothing is.
    at: usize,
    pub found: bool,
    /// What was being written before.
    pub draft: String,
}

impl Recall {
    pub fn new(draft: String, entries: usize) -> Self {
        Self { query: String::new(), at: entries, found: true, draft }
    }

    /// The newest entry with what was typed so far.
    pub fn newest<'a>(&mut self, history: &'a [String]) -> Option<&'a str> {
        self.at = history.len();
        self.older(history)
    }

    /// The next one back; stays at the oldest.
    pub fn older<'a>(&mut self, history: &'a [String]) -> Option<&'a str> {
        let query = self.query.to_lowercase();
        let at = history[..self.at].iter().rposition(|entry| entry.to_lowercase().contains(&query));
        self.found = at.is_some();
        self.at = at?;
        history.get(self.at).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_goes_back_entry_by_entry_and_stays_at_the_oldest() {
        let history = ["Why is the sky blue?", "/set temp 1", "why not"].map(str::to_owned);
        let mut recall = Recall::new("draft".into(), history.len());
        recall.query = "why".into();
        assert_eq!(recall.newest(&history), Some("why not"));
        assert_eq!(recall.older(&history), Some("Why is the sky blue?"));
        assert_eq!((recall.older(&history), recall.found), (None, false));
        recall.query = "set".into();
        assert_eq!((recall.newest(&history), recall.found), (Some("/set temp 1"), true));
    }
}
