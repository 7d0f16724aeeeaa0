use super::{Batch, DeviceError, Launched, ModelLimits, Runner};
use crate::sample::{RowError, SampleRow, Sampled};

/// Stands where a runner was, and says why it is there no more.
pub struct Closed {
    limits: ModelLimits,
    why: DeviceError,
}

impl Closed {
    pub fn new(limits: ModelLimits, why: DeviceError) -> Self {
        Self { limits, why }
    }
}

impl Runner for Closed {
    fn limits(&self) -> &ModelLimits {
        &self.limits
    }

    fn launch(&mut self, _: &Batch) -> Result<Launched, DeviceError> {
        Err(self.why.clone())
    }

    fn sample(
        &mut self,
        _: Launched,
        _: &[SampleRow],
    ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError> {
        Err(self.why.clone())
    }
}
