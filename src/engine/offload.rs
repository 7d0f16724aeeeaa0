//! Where blocks go that the KV cache has no room for: the bytes of the host tier. Which block goes
//! where is the block manager's.

use super::scheduler::Scheduler;
use crate::config::EngineSettings;
use crate::kv::{BlockManager, Moves};
use crate::model::{DeviceError, ModelLimits, Runner};
use crate::protocol::Event;

pub struct Offload {
    bytes_per_block: usize,
    /// One block a slot; made when first written.
    host: Vec<Vec<u8>>,
}

impl Offload {
    pub fn new(settings: &EngineSettings, limits: &ModelLimits) -> Self {
        let blocks = settings.host_kv_bytes / limits.bytes_per_block.max(1);
        Self { bytes_per_block: limits.bytes_per_block, host: vec![Vec::new(); blocks] }
    }

    pub fn host_blocks(&self) -> usize {
        self.host.len()
    }

    /// Saves, then loads. Copies within the device are the batch's.
    pub fn transfer(&mut self, moves: &Moves, runner: &mut dyn Runner) -> Result<(), DeviceError> {
        for (block, slot) in &moves.saves {
            let place = &mut self.host[*slot as usize];
            place.resize(self.bytes_per_block, 0);
            runner.read_block(*block, place)?;
        }
        for (slot, block) in &moves.loads {
            runner.write_block(*block, &self.host[*slot as usize])?;
        }
        Ok(())
    }

    /// Takes what has come from disk since the last step.
    pub fn poll(&mut self, _kv: &mut BlockManager, _scheduler: &mut Scheduler, _events: &mut Vec<Event>) {}
}
