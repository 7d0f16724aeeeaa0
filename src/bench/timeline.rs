use std::time::Duration;

/// When which sequence got a token, counted from the submission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// By sequence, in order.
    tokens: Vec<Vec<Duration>>,
}

impl Timeline {
    pub fn new(sequences: usize) -> Self {
        Self { tokens: vec![Vec::new(); sequences] }
    }

    pub fn push(&mut self, sequence: usize, at: Duration) {
        self.tokens[sequence].push(at);
    }

    /// When the last of the sequences got its first token: every prompt is computed.
    pub fn all_started(&self) -> Option<Duration> {
        self.tokens.iter().map(|times| times.first().copied()).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Every sequence has had `n` tokens while all of them were decoding.
    pub fn is_covered(&self, n: usize) -> bool {
        self.all_started().is_some_and(|start| self.tokens.iter().all(|times| after(times, start) >= n))
    }

    /// Tokens per second of all sequences together, over `n` tokens of each, all of them decoding.
    pub fn decode_rate(&self, n: usize) -> Option<f64> {
        let start = self.all_started()?;
        let nth = |times: &Vec<Duration>| times.get(times.len() - after(times, start) + n - 1).copied();
        let end = self.tokens.iter().map(nth).collect::<Option<Vec<_>>>()?.into_iter().max()?;
        let seconds = end.checked_sub(start)?.as_secs_f64();
        let counted: usize =
            self.tokens.iter().map(|times| times.iter().filter(|t| **t > start && **t <= end).count()).sum();
        (seconds > 0.0).then(|| counted as f64 / seconds)
    }
}

fn after(times: &[Duration], start: Duration) -> usize {
    times.iter().filter(|t| **t > start).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(sequences: &[&[u64]]) -> Timeline {
        let ms = |times: &&[u64]| times.iter().map(|t| Duration::from_millis(*t)).collect();
        Timeline { tokens: sequences.iter().map(ms).collect() }
    }

    #[test]
    fn one_sequence_counts_from_its_first_token() {
        let t = timeline(&[&[100, 110, 120, 130, 140]]);
        assert_eq!(t.all_started(), Some(Duration::from_millis(100)));
        assert_eq!(t.decode_rate(4), Some(100.0));
        assert_eq!(t.decode_rate(5), None, "only four came after the first");
    }

    #[test]
    fn several_count_only_while_all_decode() {
        // The first starts early and runs alone at twice the speed: that time is left out.
        let t = timeline(&[&[10, 20, 30, 40, 60, 80, 100], &[40, 60, 80, 100]]);
        assert!(t.is_covered(3) && !t.is_covered(4));
        assert_eq!(t.decode_rate(3), Some(100.0));
    }

    #[test]
    fn a_sequence_that_never_started_gives_no_rate() {
        let t = timeline(&[&[1, 2], &[]]);
        assert_eq!((t.all_started(), t.decode_rate(1), t.is_covered(0)), (None, None, false));
    }
}
