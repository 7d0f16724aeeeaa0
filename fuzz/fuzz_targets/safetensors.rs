//! Any bytes as config.json and a safetensors file: an error or a checkpoint, and every tensor of that can be read.
#![no_main]

use glassbox::weights::Checkpoint;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|input: (&[u8], &[u8])| {
    let (config, file) = input;
    let Ok(checkpoint) = Checkpoint::from_hub_bytes(Path::new("fuzz"), config, file.to_vec()) else { return };
    for info in checkpoint.tensors() {
        if let Ok(tensor) = checkpoint.tensor(&info.name) {
            assert_eq!(tensor.data.len(), info.bytes);
        }
    }
    for (key, _) in checkpoint.metadata() {
        let _ = (checkpoint.u64(key), checkpoint.f32s(key), checkpoint.bools(key));
    }
});
