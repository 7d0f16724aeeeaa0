/// Whether a sequence's length decides how fast its pairs turn. Keys that were turned otherwise are of no use to
/// it: those of all its tokens are made with the factors of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RopeLengths {
    /// All sequences' pairs turn alike.
    #[default]
    Same,
    /// Sequences of more tokens than this have other factors (LongRoPE, Ding et al. 2024).
    Border(usize),
    /// Beyond so many tokens, each length has its own (dynamic NTK).
    Each(usize),
}

impl RopeLengths {
    /// Equal for lengths with the same factors; 0 for those of short sequences.
    pub fn kind(self, len: usize) -> u64 {
        match self {
            RopeLengths::Border(border) if len > border => 1,
            RopeLengths::Each(trained) if len > trained => len as u64,
            _ => 0,
        }
    }

    /// A sequence with the factors of `len` tokens has to be computed anew, with others, before it has more
    /// tokens than this. Dynamic NTK has a little room, lest every token be a new beginning: a quarter more than
    /// the factors are made for, which together costs as much as computing the final sequence five times.
    pub fn reach(self, len: usize) -> usize {
        match self {
            RopeLengths::Border(border) if len <= border => border,
            RopeLengths::Each(trained) if len <= trained => trained,
            RopeLengths::Each(_) => len + len / 4,
            _ => usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RopeLengths::{Border, Each, Same};

    #[test]
    fn a_sequence_keeps_its_factors_as_far_as_they_reach() {
        assert_eq!((Same.kind(1 << 20), Same.reach(7)), (0, usize::MAX));
        let lengths = Border(4096);
        assert_eq!([1, 4096, 4097, 9000].map(|len| lengths.kind(len)), [0, 0, 1, 1]);
        assert_eq!([1, 4096, 4097].map(|len| lengths.reach(len)), [4096, 4096, usize::MAX]);
        let lengths = Each(32);
        assert_eq!([7, 32, 33, 72].map(|len| lengths.kind(len)), [0, 0, 33, 72]);
        assert_eq!([7, 32, 33, 72].map(|len| lengths.reach(len)), [32, 32, 41, 90]);
    }
}
