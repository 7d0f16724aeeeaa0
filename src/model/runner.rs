use super::{Batch, RopeLengths};
pub use crate::compute::DeviceError;
use crate::kv::{BlockId, CacheSpec};
use crate::protocol::{DeviceLimits, OperationTime};
use crate::sample::{RowError, SampleRow, Sampled};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What the engine needs of a model: one `launch` and one `sample` a step.
pub trait Runner: Send {
    fn limits(&self) -> &ModelLimits;

    /// Queues the forward pass: copies blocks, writes keys and values, leaves the hidden states of
    /// the wanted positions on the device. May return before the device is done.
    fn launch(&mut self, batch: &Batch) -> Result<Launched, DeviceError>;

    /// Logits of the launched outputs and a token from each. `rows[i]` belongs to the i-th output
    /// of the batch, counted over its rows in order. Waits for the device.
    fn sample(
        &mut self,
        launched: Launched,
        rows: &[SampleRow],
    ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError>;

    /// What was launched is to begin: its tokens are not asked for at once. A device may wait with a
    /// pass to queue it together with the logits.
    fn start(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The content of a block, `bytes_per_block` of it, as this runner writes it. Waits for what was
    /// launched before.
    fn read_block(&mut self, block: BlockId, into: &mut [u8]) -> Result<(), DeviceError> {
        let _ = into;
        Err(DeviceError(format!("block {block}: this runner does not move blocks")))
    }

    /// Puts back what `read_block` gave, from this or an earlier run of the same model.
    fn write_block(&mut self, block: BlockId, from: &[u8]) -> Result<(), DeviceError> {
        let _ = from;
        Err(DeviceError(format!("block {block}: this runner does not move blocks")))
    }

    /// What the device's operations took since this was last asked; empty unless it was opened to take
    /// times, and a pass was timed.
    fn take_profile(&mut self) -> Vec<OperationTime> {
        Vec::new()
    }

    /// To be run beside it, while it has nothing to do; `None` where nobody can measure the device.
    fn meter(&self) -> Option<Meter> {
        None
    }

    /// The device failed, and only opening it again helps: nothing it held can be read any more.
    fn is_lost(&self) -> bool {
        false
    }

    /// What the passes so far read and computed.
    fn usage(&self) -> Usage {
        Usage::default()
    }
}

/// Measures what the device can do, until that is done or it is told to stop.
pub type Meter = Box<dyn FnOnce(Arc<AtomicBool>) -> Result<DeviceLimits, DeviceError> + Send>;

/// Proof that a batch was launched; handed back to read its outputs.
#[derive(Debug)]
pub struct Launched {
    pub outputs: usize,
}

/// What a scheduler must respect.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLimits {
    pub vocab_size: usize,
    /// Longest sequence, prompt and answer together.
    pub max_model_len: usize,
    /// Most tokens of one batch.
    pub max_batched_tokens: usize,
    /// Most output rows of one batch.
    pub max_outputs: usize,
    pub block_size: usize,
    /// Blocks in the pool, the null block included.
    pub num_blocks: usize,
    pub bytes_per_block: usize,
    /// One entry for each cache group.
    pub groups: Vec<CacheSpec>,
    /// Which sequences' keys are turned alike.
    pub rope_lengths: RopeLengths,
    /// Names the content of blocks: runners of the same name may read each other's.
    pub cache_identity: String,
}

/// Of weights and KV, as the operations count them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub bytes_read: u64,
    pub flops: u64,
}
