//! Thoughts that have used up their budget are closed by force, with what the model's family writes
//! there. (vLLM: `thinking_token_budget`.)

use super::output::Output;
use super::sequence::Sequence;
use super::stats::Stats;
use crate::protocol::{Event, TokenId};
use crate::sample::Sampled;

/// The sequence grows by the tokens that close its thoughts, if its budget is used up. Gives back whether
/// one of them was its last.
///
/// The next step computes them in one pass with the token before them. A step that is under way has a
/// row for the first of them: its result is dropped ([`Sequence::is_past`]).
pub(super) fn close_thoughts(
    output: &mut Output,
    stats: &mut Stats,
    seq: &mut Sequence,
    events: &mut Vec<Event>,
) -> bool {
    let forced = output.closing(seq.id);
    if !forced.is_empty() {
        seq.in_flight = 0;
    }
    forced.iter().any(|&token| {
        seq.push(token);
        stats.generated();
        output.token(seq, certain(token), events)
    })
}

/// Nobody drew it.
fn certain(token: TokenId) -> Sampled {
    Sampled { token, logprob: 0.0, rank: 1, entropy: 0.0, top: Vec::new(), trace: None }
}
