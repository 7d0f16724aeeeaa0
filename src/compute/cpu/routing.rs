//! Which experts a row goes to.

use super::Cpu;
use crate::compute::{DeviceError, ExpertGroups, Result, Routing, Score};

/// An expert of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Choice {
    pub(super) expert: usize,
    pub(super) weight: f32,
}

/// A thread's own memory.
#[derive(Clone, Default)]
pub(super) struct Scores {
    scores: Vec<f32>,
    /// What the choice goes by.
    ranks: Vec<f32>,
    groups: Vec<f32>,
    allowed: Vec<bool>,
}

/// Fails where the router's numbers contradict each other.
pub(super) fn check(routing: &Routing<Cpu>, count: usize) -> Result<()> {
    let Routing { experts, top, groups, .. } = routing;
    let fits = match groups {
        Some(ExpertGroups { all, chosen, .. }) => {
            *all > 0 && experts.is_multiple_of(*all) && chosen <= all && *top <= experts / all * chosen
        }
        None => top <= experts,
    };
    if fits && *experts == count && *top > 0 {
        return Ok(());
    }
    Err(DeviceError(format!("{top} of {experts} experts, in {groups:?}, cannot be chosen from {count}")))
}

/// The best experts of a row, the best first; of equal ones that with the lower number.
pub(super) fn route(logits: &[f32], routing: &Routing<Cpu>, desk: &mut Scores, out: &mut [Choice]) {
    let Scores { scores, ranks, groups, allowed } = desk;
    score(logits, routing.score, scores);
    ranks.clone_from(scores);
    if let Some(bias) = routing.bias {
        ranks.iter_mut().zip(bias).for_each(|(rank, bias)| *rank += bias);
    }
    allowed.clear();
    allowed.resize(ranks.len(), true);
    if let Some(limit) = routing.groups {
        keep_groups(ranks, limit, groups, allowed);
    }
    for choice in out.iter_mut() {
        let expert = best(ranks, allowed).expect("checked: there are as many");
        allowed[expert] = false;
        *choice = Choice { expert, weight: scores[expert] };
    }
    let sum: f32 = out.iter().map(|choice| choice.weight).sum();
    let factor = if routing.renormalise && sum != 0.0 { routing.scale / sum } else { routing.scale };
    out.iter_mut().for_each(|choice| choice.weight *= factor);
}

fn score(logits: &[f32], how: Score, scores: &mut Vec<f32>) {
    scores.clear();
    match how {
        Score::Sigmoid => scores.extend(logits.iter().map(|x| 1.0 / (1.0 + (-x).exp()))),
        Score::Softmax => {
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores.extend(logits.iter().map(|x| (x - largest).exp()));
            let sum: f32 = scores.iter().sum();
            scores.iter_mut().for_each(|score| *score /= sum);
        }
    }
}

/// Only the experts of the best groups stay allowed.
fn keep_groups(ranks: &[f32], limit: ExpertGroups, groups: &mut Vec<f32>, allowed: &mut [bool]) {
    let size = ranks.len() / limit.all;
    groups.clear();
    groups.extend(ranks.chunks_exact(size).map(|ranks| {
        let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        for rank in ranks {
            (first, second) = if *rank > first { (*rank, first) } else { (first, second.max(*rank)) };
        }
        if limit.by_two && size > 1 { first + second } else { first }
    }));
    allowed.fill(false);
    for _ in 0..limit.chosen {
        let free: Option<usize> = groups
            .iter()
            .enumerate()
            .filter(|(group, _)| !allowed[group * size])
            .fold(None, |best, (group, rank)| better(best, group, groups, *rank));
        if let Some(group) = free {
            allowed[group * size..][..size].fill(true);
        }
    }
}

/// The allowed one with the highest rank.
fn best(ranks: &[f32], allowed: &[bool]) -> Option<usize> {
    let candidates = ranks.iter().enumerate().filter(|(i, _)| allowed[*i]);
    candidates.fold(None, |best, (i, rank)| better(best, i, ranks, *rank))
}

/// What is not a number is behind all that is one.
fn better(best: Option<usize>, i: usize, ranks: &[f32], rank: f32) -> Option<usize> {
    match best {
        Some(old) if !(rank > ranks[old] || ranks[old].is_nan() && !rank.is_nan()) => Some(old),
        _ => Some(i),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Random;
    use super::*;

    fn routing(experts: usize, top: usize) -> Routing<'static, Cpu> {
        let (score, bias, groups) = (Score::Softmax, None, None);
        Routing { experts, top, score, bias, groups, renormalise: false, scale: 1.0 }
    }

    fn chosen(logits: &[f32], routing: &Routing<Cpu>) -> Vec<Choice> {
        let mut out = vec![Choice::default(); routing.top];
        // A desk that another row has used.
        let mut desk = Scores { ranks: vec![f32::NAN; 3], allowed: vec![false; 9], ..Scores::default() };
        route(logits, routing, &mut desk, &mut out);
        out
    }

    fn experts(logits: &[f32], routing: &Routing<Cpu>) -> Vec<usize> {
        chosen(logits, routing).iter().map(|choice| choice.expert).collect()
    }

    /// The paper's formulas in f64, by sorting.
    fn twin(logits: &[f32], routing: &Routing<Cpu>) -> Vec<(usize, f64)> {
        let x: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
        let sum: f64 = x.iter().map(|x| x.exp()).sum();
        let score = |x: &f64| match routing.score {
            Score::Softmax => x.exp() / sum,
            Score::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        };
        let scores: Vec<f64> = x.iter().map(score).collect();
        let rank = |e: usize| scores[e] + routing.bias.map_or(0.0, |bias| f64::from(bias[e]));
        let mut order: Vec<usize> = (0..x.len()).collect();
        if let Some(ExpertGroups { all, chosen, by_two }) = routing.groups {
            let size = x.len() / all;
            let worth = |group: &usize| {
                let mut ranks: Vec<f64> = (group * size..(group + 1) * size).map(rank).collect();
                ranks.sort_by(|a, b| b.total_cmp(a));
                ranks[..if by_two { 2 } else { 1 }].iter().sum::<f64>()
            };
            let mut groups: Vec<usize> = (0..all).collect();
            groups.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
            order.retain(|e| groups[..chosen].contains(&(e / size)));
        }
        order.sort_by(|a, b| rank(*b).total_cmp(&rank(*a)));
        let sum: f64 = order[..routing.top].iter().map(|e| scores[*e]).sum();
        let factor = f64::from(routing.scale) / if routing.renormalise { sum } else { 1.0 };
        order[..routing.top].iter().map(|e| (*e, scores[*e] * factor)).collect()
    }

    #[test]
    fn experts_and_weights_are_those_of_the_formulas() {
        let mut random = Random(3);
        let bias = random.reals(64);
        for i in 0..600usize {
            let groups = [None, Some((8, 3, false)), Some((8, 3, true)), Some((4, 1, true))][i % 4];
            let routing = Routing {
                score: if i / 4 % 2 == 0 { Score::Softmax } else { Score::Sigmoid },
                bias: (i / 8 % 2 == 0).then_some(&bias),
                groups: groups.map(|(all, chosen, by_two)| ExpertGroups { all, chosen, by_two }),
                renormalise: i / 16 % 2 == 0,
                scale: 2.5,
                ..routing(64, 1 + i % 8)
            };
            let logits: Vec<f32> = random.reals(64).iter().map(|x| 3.0 * x).collect();
            for (ours, (expert, weight)) in chosen(&logits, &routing).iter().zip(twin(&logits, &routing)) {
                assert_eq!(ours.expert, expert, "{i}");
                assert!((f64::from(ours.weight) - weight).abs() < 1e-6 * weight, "{i}");
            }
        }
    }

    #[test]
    fn of_equal_experts_the_first_is_taken() {
        assert_eq!(experts(&[1.0, 2.0, 2.0, 1.0, 2.0, 1.0], &routing(6, 4)), [1, 2, 4, 0]);
        let groups = Some(ExpertGroups { all: 3, chosen: 2, by_two: true });
        assert_eq!(experts(&[1.0; 6], &Routing { groups, ..routing(6, 4) }), [0, 1, 2, 3]);
    }

    /// A bias moves the choice and not the weight; groups by their best two or by their best.
    #[test]
    fn biases_and_groups_decide_who_is_chosen() {
        let bias = vec![0.0, 0.0, 0.0, 9.0];
        let biased = Routing { bias: Some(&bias), score: Score::Sigmoid, ..routing(4, 1) };
        assert_eq!(chosen(&[3.0, 0.0, 0.0, 0.0], &biased), [Choice { expert: 3, weight: 0.5 }]);
        let logits = [5.0, 0.0, 4.0, 4.0];
        for (by_two, expected) in [(false, [0, 1]), (true, [2, 3])] {
            let groups = Some(ExpertGroups { all: 2, chosen: 1, by_two });
            let routing = Routing { groups, score: Score::Sigmoid, bias: None, ..routing(4, 2) };
            assert_eq!(experts(&logits, &routing), expected);
        }
    }

    #[test]
    fn what_is_not_a_number_chooses_somebody_and_says_so() {
        let weights = |choices: Vec<Choice>| choices.iter().map(|c| c.weight).collect::<Vec<_>>();
        for score in [Score::Softmax, Score::Sigmoid] {
            let groups = Some(ExpertGroups { all: 2, chosen: 1, by_two: true });
            for groups in [None, groups] {
                let routing = Routing { score, groups, renormalise: true, ..routing(4, 2) };
                assert_eq!(experts(&[f32::NAN; 4], &routing), [0, 1]);
                assert!(weights(chosen(&[f32::NAN; 4], &routing)).iter().all(|w| w.is_nan()));
                let infinite = experts(&[f32::NEG_INFINITY; 4], &routing);
                assert_eq!(infinite, [0, 1]);
            }
        }
        let some = Routing { score: Score::Sigmoid, ..routing(3, 2) };
        assert_eq!(experts(&[f32::NAN, 0.0, 1.0], &some), [2, 1]);
    }

    #[test]
    fn impossible_choices_are_refused() {
        let groups = Some(ExpertGroups { all: 4, chosen: 1, by_two: false });
        assert!(check(&routing(8, 8), 8).is_ok());
        assert!(check(&routing(8, 9), 8).is_err());
        assert!(check(&routing(8, 0), 8).is_err());
        assert!(check(&routing(8, 2), 16).is_err());
        assert!(check(&Routing { groups, ..routing(8, 2) }, 8).is_ok());
        assert!(check(&Routing { groups, ..routing(8, 3) }, 8).is_err());
        assert!(check(&Routing { groups, ..routing(9, 1) }, 9).is_err());
    }
}
