//! What makes the blocks of two runs interchangeable.

use super::groups::CacheLayout;
use crate::protocol::KvCacheDtype;
use crate::weights::Checkpoint;
use sha2::{Digest, Sha256};

/// Counts changes of the layout of a block, or of what is computed for it.
const VERSION: u32 = 1;

/// SHA-256 in hexadecimal of the weights, their architecture, and how blocks are cut and lie on the device.
/// The CPU's layout, which has no name, is the same on every instruction set, so a file of blocks may move
/// between machines.
pub(super) fn cache_identity(
    file: &Checkpoint,
    architecture: &str,
    dtype: KvCacheDtype,
    block_size: usize,
    layout: &CacheLayout,
    device: &str,
    state_bytes: usize,
) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("glassbox blocks {VERSION}\n{architecture}\n{}\n{dtype}\n", file.fingerprint()));
    hash.update(format!("{block_size} tokens\n{layout:?}{device}"));
    if state_bytes > 0 {
        hash.update(format!("\nstates of {state_bytes} bytes"));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
