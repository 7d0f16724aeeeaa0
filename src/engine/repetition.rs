use crate::protocol::{SamplingParams, TokenId};

/// Whether the answer ends with a pattern that stands `repetition_min_count` times in a row (vLLM:
/// `repetition_detection`, v1/core/sched/utils.py).
pub fn repeats_itself(answer: &[TokenId], params: &SamplingParams) -> bool {
    let count = params.repetition_min_count as usize;
    let sizes = params.repetition_min_pattern..=params.repetition_max_pattern;
    sizes.into_iter().map(|size| size as usize).any(|size| {
        let from = answer.len().checked_sub(size * count);
        // All of it is the same as itself moved by one pattern.
        from.is_some_and(|from| answer[from..answer.len() - size] == answer[from + size..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_must_stand_often_enough_at_the_very_end() {
        let params = |min, max, count| SamplingParams {
            repetition_min_pattern: min,
            repetition_max_pattern: max,
            repetition_min_count: count,
            ..Default::default()
        };
        let repeats = |answer: &[TokenId], min, max, count| repeats_itself(answer, &params(min, max, count));
        assert!(repeats(&[9, 1, 2, 1, 2, 1, 2], 1, 4, 3));
        assert!(!repeats(&[9, 1, 2, 1, 2, 1, 2], 3, 4, 2), "shorter patterns are not looked for");
        assert!(!repeats(&[1, 2, 1, 2, 1, 2, 9], 1, 4, 2), "the end breaks it");
        assert!(!repeats(&[1, 2, 1, 2], 1, 4, 3));
        assert!(repeats(&[5, 5], 1, 1, 2));
        assert!(!repeats(&[5, 5, 5], 1, 0, 2), "off");
    }
}
