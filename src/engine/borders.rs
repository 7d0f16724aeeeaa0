use super::scheduler::Scheduler;
use super::sequence::Share;
use crate::model::Outputs;

impl Scheduler {
    pub fn with_border(mut self, border: Option<usize>) -> Self {
        self.border = border;
        self
    }

    /// A share that ends with a block, where states are cached and it reaches the end of one before its last
    /// token: later sequences can start there, and nowhere else. The rest comes in the next step.
    pub(super) fn to_border(&self, computed: usize, share: Share) -> Share {
        let Some(block) = self.border.filter(|_| self.settings.enable_chunked_prefill) else { return share };
        let end = match share.outputs {
            // Scored positions are not read from the cache anyway.
            Outputs::All => return share,
            Outputs::None => computed + share.tokens,
            // A prefix never takes all tokens of a sequence.
            Outputs::Last | Outputs::Draws(_) => computed + share.tokens - 1,
        };
        match end / block * block {
            border if border > computed => Share { tokens: border - computed, outputs: Outputs::None },
            _ => share,
        }
    }
}
