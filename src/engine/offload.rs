//! Where blocks go that the KV cache has no room for: the bytes of the host tier, and a folder that
//! outlives the program. Which block goes where is the block manager's.

use super::scheduler::Scheduler;
use super::sequence::Sequence;
use super::sequences::Key;
use crate::config::EngineSettings;
use crate::kv::{BlockManager, CacheKey, DiskStore, HostSlot, Moves};
use crate::model::{DeviceError, ModelLimits, Runner};
use crate::protocol::{Event, TierView};
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Default)]
pub struct Offload {
    bytes_per_block: usize,
    /// One block a slot; made when first written.
    host: Vec<Vec<u8>>,
    disk: Option<Disk>,
    /// What a person should know.
    notes: Vec<String>,
}

struct Disk {
    store: DiskStore,
    /// Blocks on their way, and where they go.
    reading: HashMap<CacheKey, HostSlot>,
    /// Sequences that wait for blocks, and for which.
    waits: Vec<(Key, Vec<CacheKey>)>,
}

/// Nothing else to do than to wait for the disk: not longer than this before looking for commands.
const DISK_WAIT: Duration = Duration::from_millis(5);

impl Offload {
    pub fn new(settings: &EngineSettings, limits: &ModelLimits) -> Self {
        let bytes_per_block = limits.bytes_per_block;
        let (mut notes, mut disk) = (Vec::new(), None);
        if let Some(folder) = &settings.kv_cache_dir {
            let most = settings.kv_cache_dir_bytes as u64;
            match DiskStore::open(folder, &limits.cache_identity, bytes_per_block, most) {
                Ok((store, said)) => {
                    notes.extend(said);
                    disk = Some(Disk { store, reading: HashMap::new(), waits: Vec::new() });
                }
                Err(why) => notes.push(format!("cached blocks are not kept on disk: {why}")),
            }
        }
        let mut slots = settings.host_kv_bytes / bytes_per_block.max(1);
        if disk.is_some() && slots == 0 {
            // What comes from disk comes by way of host memory: room for one whole sequence.
            let blocks = limits.max_model_len.div_ceil(limits.block_size) * limits.groups.len();
            slots = blocks.min(limits.num_blocks);
        }
        Self { bytes_per_block, host: vec![Vec::new(); slots], disk, notes }
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

    /// Asks for the blocks of a new sequence that only disk has; it is admitted when they are here.
    pub fn begin(&mut self, key: Key, scheduler: &mut Scheduler, kv: &mut BlockManager) {
        let Some(disk) = &mut self.disk else { return };
        let seq = &mut scheduler.sequences[key];
        // A branch of a running sequence has all it needs.
        if !seq.reads_cache() || !seq.table.is_empty() {
            return;
        }
        let (store, misses) = (&disk.store, Cell::new(0));
        let contains = |key: &CacheKey| {
            let is_there = store.contains(key);
            misses.set(misses.get() + u64::from(!is_there));
            is_there
        };
        let mut wanted = kv.disk_wanted(seq.prefix(), seq.tokens.len(), &contains);
        disk.store.count_misses(misses.get());
        wanted.retain(|key| {
            if !disk.reading.contains_key(key) {
                let Some(slot) = kv.host_slot_for(*key) else { return false };
                disk.reading.insert(*key, slot);
                disk.store.read(*key);
            }
            true
        });
        if !wanted.is_empty() {
            seq.load(wanted.len());
            disk.waits.push((key, wanted));
        }
    }

    /// Takes what has come from disk since the last step.
    pub fn poll(&mut self, kv: &mut BlockManager, scheduler: &mut Scheduler, events: &mut Vec<Event>) {
        if let Some(disk) = &mut self.disk {
            for (key, content) in disk.store.poll() {
                let Some(slot) = disk.reading.remove(&key) else { continue };
                match content {
                    Some(bytes) => {
                        self.host[slot as usize] = bytes;
                        kv.host_arrived(slot);
                    }
                    None => kv.host_failed(slot),
                }
                for (_, wanted) in &mut disk.waits {
                    wanted.retain(|other| *other != key);
                }
            }
            disk.waits.retain(|(key, wanted)| {
                let Some(seq) = scheduler.sequences.get_mut(*key) else { return false };
                seq.load(wanted.len());
                !wanted.is_empty()
            });
            self.notes.extend(disk.store.take_notes());
        }
        events.extend(self.notes.drain(..).map(Event::Note));
    }

    /// There is nothing to compute before something has come.
    pub fn wait(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.store.wait(DISK_WAIT);
        }
    }

    /// Writes the blocks of a sequence that has ended to disk, as far as it does not have them.
    pub fn keep(
        &mut self,
        seq: &Sequence,
        kv: &BlockManager,
        runner: &mut dyn Runner,
    ) -> Result<(), DeviceError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let dropped = disk.store.dropped();
        for (key, block) in kv.keys_of(&seq.table, seq.prefix(), 0) {
            if !disk.store.contains(&key) {
                let mut bytes = vec![0; self.bytes_per_block];
                runner.read_block(block, &mut bytes)?;
                disk.store.write(key, bytes);
            }
        }
        match disk.store.dropped() - dropped {
            0 => {}
            n => self
                .notes
                .push(format!("{n} cached blocks are not kept on disk: too many wait to be written")),
        }
        Ok(())
    }

    /// Waits until what was written is on disk.
    pub fn flush(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.store.flush();
        }
    }

    /// All sequences are gone. What is on its way from disk still comes, and has its slot.
    pub fn reset(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.waits.clear();
        }
    }

    pub fn tiers(&self, kv: &BlockManager) -> Vec<TierView> {
        let disk = self.disk.as_ref().map(|disk| disk.store.view());
        kv.tiers().into_iter().chain(disk).collect()
    }
}
