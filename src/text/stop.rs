/// Finds stop strings in a growing text and holds back whatever may still become one.
///
/// The match that ends first counts, and of those the longest: a rule that gives the same result
/// however the text is cut into pieces.
#[derive(Clone, Debug)]
pub(super) struct StopMatcher {
    stops: Vec<String>,
    include: bool,
    held: String,
}

/// What of the text is free to be shown, and the stop string that ended it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Released {
    pub text: String,
    pub stop: Option<String>,
}

impl StopMatcher {
    /// `include`: show the stop string too.
    pub fn new(stops: Vec<String>, include: bool) -> Self {
        Self {
            stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(),
            include,
            held: String::new(),
        }
    }

    pub fn push(&mut self, text: &str) -> Released {
        self.held.push_str(text);
        if let Some((start, end, stop)) = self.first_match() {
            let mut text = std::mem::take(&mut self.held);
            text.truncate(if self.include { end } else { start });
            return Released { text, stop: Some(stop) };
        }
        let kept = self.possible_start();
        let held = self.held.split_off(self.held.len() - kept);
        Released { text: std::mem::replace(&mut self.held, held), stop: None }
    }

    /// No more text will come: what was held back is no stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    pub fn held(&self) -> &str {
        &self.held
    }

    fn first_match(&self) -> Option<(usize, usize, String)> {
        let matches = self.stops.iter().filter_map(|stop| {
            let start = self.held.find(stop.as_str())?;
            Some((start, start + stop.len(), stop))
        });
        let first = matches.min_by_key(|&(start, end, _)| (end, start));
        first.map(|(start, end, stop)| (start, end, stop.clone()))
    }

    /// Length of the longest end of the text that begins a stop string.
    fn possible_start(&self) -> usize {
        self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0)
    }
}

/// Length of the longest end of `text` that is a beginning of `pattern`, but not all of it.
pub(super) fn overlap(text: &str, pattern: &str) -> usize {
    let longest = text.len().min(pattern.len().saturating_sub(1));
    let is_overlap =
        |&len: &usize| pattern.is_char_boundary(len) && text.as_bytes().ends_with(&pattern.as_bytes()[..len]);
    (1..=longest).rev().find(is_overlap).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], include: bool, pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let mut matcher = StopMatcher::new(stops.iter().map(|stop| (*stop).into()).collect(), include);
        let mut shown = Vec::new();
        for piece in pieces {
            let released = matcher.push(piece);
            shown.push(released.text);
            if released.stop.is_some() {
                return (shown, released.stop);
            }
        }
        shown.push(matcher.finish());
        (shown, None)
    }

    // BUGLOG S01.
    #[test]
    fn nothing_of_a_stop_string_is_shown_before_it_is_complete() {
        let (shown, stop) = run(&["DEFGHIJ"], false, &["ABC", "DEF", "G", "HI", "J", "K"]);
        assert_eq!((shown.concat().as_str(), stop.as_deref()), ("ABC", Some("DEFGHIJ")));
        assert_eq!(shown, ["ABC", "", "", "", ""]);
    }

    // BUGLOG S02.
    #[test]
    fn a_stop_string_inside_a_token_cuts_it() {
        assert_eq!(
            run(&["Pari"], false, &["in ", "Paris"]),
            (vec!["in ".into(), "".into()], Some("Pari".into()))
        );
        assert_eq!(run(&["Pari"], true, &["Paris!"]), (vec!["Pari".into()], Some("Pari".into())));
    }

    // BUGLOG S03.
    #[test]
    fn a_stop_string_over_two_pieces_does_not_leak() {
        for pieces in [["hi\nUser", ":"], ["hi", "\nUser:"]] {
            assert_eq!(run(&["\nUser:"], false, &pieces).0.concat(), "hi");
        }
        assert_eq!(run(&["<|im_end|>"], false, &["ok<", "|im_end|>"]).0.concat(), "ok");
    }

    #[test]
    fn what_did_not_become_a_stop_string_is_shown_after_all() {
        let (shown, stop) = run(&["abcd", "bx"], false, &["ab", "c", "e", "ab"]);
        assert_eq!((shown, stop), (vec!["".into(), "".into(), "abce".into(), "".into(), "ab".into()], None));
    }

    proptest! {
        #[test]
        fn the_cut_does_not_depend_on_the_pieces(
            text in "[abé]{0,24}", stops in prop::collection::vec("[abé]{1,4}", 0..4), size in 1usize..5, include: bool,
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let whole = run(&stops, include, &[&text]);
            let pieces: Vec<String> = text.chars().collect::<Vec<_>>().chunks(size).map(|c| c.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let streamed = run(&stops, include, &pieces);
            prop_assert_eq!(streamed.0.concat(), whole.0.concat());
            prop_assert_eq!(&streamed.1, &whole.1);
            let ends = stops.iter().filter_map(|stop| text.find(stop).map(|at| at + stop.len()));
            prop_assert_eq!(ends.min().is_some(), whole.1.is_some());
            if !include && whole.1.is_some() {
                prop_assert!(stops.iter().all(|stop| !whole.0.concat().contains(stop)));
            }
        }
    }
}
