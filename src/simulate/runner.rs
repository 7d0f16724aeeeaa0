use crate::base::{Clock, mix};
use crate::kv::BlockId;
use crate::model::{Batch, DeviceError, Launched, ModelLimits, Row, Runner};
use crate::sample::{RowError, SampleRow, Sampled};
use std::time::Duration;

/// Draws a token from the request's seed and the position, so that a sequence says the same in any
/// company, and looks at nothing else: no logits, no penalties, no end token.
pub struct Simulated {
    limits: ModelLimits,
    costs: Costs,
    clock: Clock,
}

/// What a step takes: the sum over its rows, beside what every step takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Weights read once, kernels launched.
    pub step: Duration,
    /// Every token of the batch.
    pub token: Duration,
    /// Every token of the past that a row reads.
    pub context_token: Duration,
}

impl Simulated {
    /// `clock` is moved where it is a virtual one.
    pub fn new(limits: ModelLimits, costs: Costs, clock: Clock) -> Self {
        Self { limits, costs, clock }
    }

    fn cost(&self, batch: &Batch) -> Duration {
        let context: usize = batch.rows.iter().map(|row| row.start).sum();
        self.costs.step
            + self.costs.token * batch.tokens.len() as u32
            + self.costs.context_token.mul_f64(context as f64)
    }
}

impl Runner for Simulated {
    fn limits(&self) -> &ModelLimits {
        &self.limits
    }

    fn launch(&mut self, batch: &Batch) -> Result<Launched, DeviceError> {
        self.clock.advance(self.cost(batch));
        Ok(Launched { outputs: batch.rows.iter().map(Row::num_outputs).sum() })
    }

    fn sample(
        &mut self,
        _launched: Launched,
        rows: &[SampleRow],
    ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError> {
        let vocab = self.limits.vocab_size as u64;
        let token = |row: &SampleRow| (mix(row.seed, row.tokens.len() as u64) % vocab.min(256)) as u32;
        let drawn = |row: &SampleRow| Sampled {
            token: token(row),
            logprob: 0.0,
            rank: 1,
            entropy: 0.0,
            top: Vec::new(),
            state: row.state,
            trace: None,
        };
        Ok(rows.iter().map(|row| Ok(drawn(row))).collect())
    }

    /// There is no content to move.
    fn read_block(&mut self, _block: BlockId, _into: &mut [u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write_block(&mut self, _block: BlockId, _from: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }
}
