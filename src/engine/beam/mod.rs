//! Beam search over forked sequences.
//!
//! | file | what stands there |
//! |---|---|
//! | here | [`Search`]: candidates in, who goes on, who ended, when it is over. No engine |
//! | `drive` | the engine's side: reports of a step, forks and ends, the answers |
//! | `view` | a search as the panel sees it |
//!
//! The rule is that of transformers' `generate`: of all continuations of all open beams the 2 x width
//! likeliest are looked at, best first. An end token among the first `width` of them makes an answer,
//! any other token an open beam, until there are `width`. An answer's score is its summed
//! log-probability / (its tokens ^ `length_penalty`), the end token counted.

mod drive;
mod view;

pub use drive::Beams;

use crate::protocol::{BeamSearch, EarlyStopping, TokenId};

/// A continuation of one open beam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub token: TokenId,
    pub logprob: f32,
    /// Among the continuations of its beam, from 1.
    pub rank: u32,
    /// Of the row it comes from, in nats.
    pub entropy: f32,
}

/// A token of the tree of all that was ever open or ended; its past are its ancestors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    pub parent: Option<u32>,
    pub drawn: Candidate,
    /// Of all log-probabilities from the first token to this one.
    pub sum: f64,
    pub depth: u32,
}

/// A continuation that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hypothesis {
    pub node: u32,
    pub score: f64,
}

/// Where the search stands after a step. Beams are named by their place among the open ones.
#[derive(Debug, Default, PartialEq)]
pub struct Advance {
    /// The new open beams, best first: the old beam each comes from, and its node.
    pub open: Vec<(usize, u32)>,
    pub over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pruned {
    /// The newest token of the beam it would have continued.
    pub parent: Option<u32>,
    pub drawn: Candidate,
    pub sum: f64,
    /// What the worst continuation kept has more.
    pub behind: f64,
}

/// One beam search.
#[derive(Debug)]
pub struct Search {
    pub params: BeamSearch,
    /// Answers wanted.
    pub n: usize,
    pub nodes: Vec<Node>,
    /// The newest node of each open beam, best first; none before the first token.
    pub open: Vec<Option<u32>>,
    /// At most `width`, best first.
    pub ended: Vec<Hypothesis>,
    /// The likeliest continuations that the newest step let go.
    pub pruned: Vec<Pruned>,
    pub depth: u32,
}

/// What becomes of a continuation of the beam at this place.
pub enum Verdict {
    GoesOn,
    Ends,
}

impl Search {
    pub fn new(params: BeamSearch, n: usize) -> Self {
        Self {
            params,
            n,
            nodes: Vec::new(),
            open: vec![None],
            ended: Vec::new(),
            pruned: Vec::new(),
            depth: 0,
        }
    }

    /// Continuations of one row to look at, where the model has so many end tokens.
    pub fn candidates(width: usize, end_tokens: usize) -> usize {
        (2 * width).max(width + end_tokens)
    }

    /// One token further. `reports`: the likeliest continuations of each open beam, best first.
    /// `left`: tokens that an answer may still get, this one included.
    pub fn advance(
        &mut self,
        reports: &[Vec<Candidate>],
        left: usize,
        verdict: impl Fn(usize, TokenId) -> Verdict,
    ) -> Advance {
        self.depth += 1;
        let width = self.params.width as usize;
        let all = self.ranked(reports);
        let (mut next, mut worst) = (Advance::default(), f64::INFINITY);
        self.pruned.clear();
        for (place, &(sum, beam, drawn)) in all.iter().enumerate() {
            let among_best = place < width;
            if !among_best && next.open.len() == width && self.pruned.len() == width {
                break;
            }
            let ends = left <= 1 || matches!(verdict(beam, drawn.token), Verdict::Ends);
            match ends {
                true if among_best => {
                    let node = self.grow(beam, drawn, sum);
                    self.end(node, sum);
                }
                false if next.open.len() < width => next.open.push((beam, self.grow(beam, drawn, sum))),
                _ => {
                    self.pruned.push(Pruned { parent: self.open[beam], drawn, sum, behind: 0.0 });
                    continue;
                }
            }
            worst = worst.min(sum);
        }
        self.pruned.iter_mut().for_each(|lost| lost.behind = (worst - lost.sum).max(0.0));
        self.open = next.open.iter().map(|(_, node)| Some(*node)).collect();
        next.over = self.is_over(left - 1);
        next
    }

    /// The best answers, the best first.
    pub fn best(&self) -> impl Iterator<Item = Hypothesis> + '_ {
        self.ended.iter().copied().take(self.n)
    }

    /// The tokens from the first one to this node.
    pub fn path(&self, node: u32) -> Vec<Node> {
        let mut path: Vec<Node> = std::iter::successors(Some(self.nodes[node as usize]), |node| {
            node.parent.map(|parent| self.nodes[parent as usize])
        })
        .collect();
        path.reverse();
        path
    }

    /// The score of an answer with this sum and so many tokens.
    pub fn score(&self, sum: f64, tokens: u32) -> f64 {
        sum / f64::from(tokens.max(1)).powf(f64::from(self.params.length_penalty))
    }

    pub fn sum(&self, beam: Option<u32>) -> f64 {
        beam.map_or(0.0, |node| self.nodes[node as usize].sum)
    }

    /// The likeliest continuations of all beams, best first; ties to the better beam, then to its
    /// better continuation.
    fn ranked(&self, reports: &[Vec<Candidate>]) -> Vec<(f64, usize, Candidate)> {
        let of = |beam: usize| {
            let before = self.sum(self.open[beam]);
            reports[beam].iter().map(move |drawn| (before + f64::from(drawn.logprob), beam, *drawn))
        };
        let mut all: Vec<_> = (0..self.open.len()).flat_map(of).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.rank.cmp(&b.2.rank)));
        all
    }

    fn grow(&mut self, beam: usize, drawn: Candidate, sum: f64) -> u32 {
        self.nodes.push(Node { parent: self.open[beam], drawn, sum, depth: self.depth });
        self.nodes.len() as u32 - 1
    }

    fn end(&mut self, node: u32, sum: f64) {
        let score = self.score(sum, self.depth);
        let at = self.ended.partition_point(|other| other.score >= score);
        self.ended.insert(at, Hypothesis { node, score });
        self.ended.truncate(self.params.width as usize);
    }

    /// `left`: tokens that an open beam may still get.
    fn is_over(&self, left: usize) -> bool {
        let Some(Some(best)) = self.open.first() else { return true };
        let Some(worst) = self.ended.get(self.params.width as usize - 1) else { return false };
        let best = self.nodes[*best as usize].sum;
        let longest = match (self.params.early_stopping, self.params.length_penalty > 0.0) {
            (EarlyStopping::True, _) => return true,
            (EarlyStopping::Never, true) => self.depth.saturating_add(left as u32),
            _ => self.depth,
        };
        self.score(best, longest) <= worst.score
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: TokenId = 9;

    fn candidates(probabilities: &[(TokenId, f32)]) -> Vec<Candidate> {
        let mut sorted = probabilities.to_vec();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let candidate = |(rank, (token, p)): (u32, (TokenId, f32))| Candidate {
            token,
            logprob: p.ln(),
            rank,
            entropy: 0.0,
        };
        (1..).zip(sorted).map(candidate).collect()
    }

    fn ends(_: usize, token: TokenId) -> Verdict {
        if token == END { Verdict::Ends } else { Verdict::GoesOn }
    }

    fn search(width: u32, length_penalty: f32, early_stopping: EarlyStopping) -> Search {
        Search::new(BeamSearch { width, length_penalty, early_stopping }, width as usize)
    }

    #[test]
    fn the_best_of_all_beams_go_on_and_the_rest_say_by_how_much_they_lost() {
        let mut search = search(2, 1.0, EarlyStopping::False);
        let first = search.advance(&[candidates(&[(1, 0.6), (2, 0.3), (3, 0.1)])], 10, ends);
        assert_eq!(first.open, [(0, 0), (0, 1)]);
        assert!((search.pruned[0].behind - f64::from(0.3f32.ln() - 0.1f32.ln())).abs() < 1e-6);
        // 0.6 * 0.4 and 0.6 * 0.35 are more than 0.3 * 0.5.
        let reports = [candidates(&[(1, 0.4), (2, 0.35), (3, 0.25)]), candidates(&[(1, 0.5), (2, 0.5)])];
        let second = search.advance(&reports, 9, ends);
        assert_eq!(second.open.iter().map(|(beam, _)| *beam).collect::<Vec<_>>(), [0, 0]);
        let lost: Vec<_> = search.pruned.iter().map(|p| (p.parent, p.drawn.token)).collect();
        assert_eq!(lost, [(Some(0), 3), (Some(1), 1)], "ties go to the better beam");
        let path = search.path(second.open[1].1);
        assert_eq!(path.iter().map(|node| node.drawn.token).collect::<Vec<_>>(), [1, 2]);
        assert!((path[1].sum - (0.6f64 * 0.35).ln()).abs() < 1e-6);
    }

    #[test]
    fn an_end_among_the_first_is_an_answer_and_one_behind_them_is_not() {
        let mut search = search(2, 0.0, EarlyStopping::False);
        let first = search.advance(&[candidates(&[(END, 0.5), (1, 0.3), (2, 0.2)])], 10, ends);
        assert_eq!((first.open.len(), search.ended.len(), first.over), (2, 1, false));
        let reports = [candidates(&[(1, 0.6), (2, 0.3), (END, 0.1)]), candidates(&[(1, 0.9), (END, 0.1)])];
        search.advance(&reports, 9, ends);
        assert_eq!(search.ended.len(), 1, "neither end is among the two likeliest");
    }

    /// Two answers are there, the better open beam may still win with a longer answer.
    #[test]
    fn when_it_is_over_depends_on_early_stopping() {
        let over = |penalty: f32, early: EarlyStopping| {
            let mut search = search(1, penalty, early);
            search.advance(&[candidates(&[(1, 0.9), (END, 0.1)])], 10, ends);
            search.end(0, 0.5f64.ln());
            search.is_over(8)
        };
        assert!(over(0.0, EarlyStopping::True));
        assert!(!over(0.0, EarlyStopping::False), "0.9 > 0.5");
        let late = |early| {
            let mut search = search(1, 1.0, early);
            search.advance(&[candidates(&[(1, 0.3), (END, 0.1)])], 10, ends);
            search.end(0, 0.4f64.ln());
            search.is_over(8)
        };
        assert!(late(EarlyStopping::False), "ln 0.3 is below ln 0.4");
        assert!(!late(EarlyStopping::Never), "ln 0.3 / 9 is above ln 0.4");
    }

    #[test]
    fn the_last_token_ends_the_first_of_all_continuations() {
        let mut search = search(2, 1.0, EarlyStopping::False);
        let last = search.advance(&[candidates(&[(1, 0.5), (END, 0.3), (2, 0.2)])], 1, ends);
        assert!(last.over && last.open.is_empty());
        assert_eq!(search.best().map(|h| search.path(h.node)[0].drawn.token).collect::<Vec<_>>(), [1, END]);
    }
}
