//! Any bytes as a GGUF file: an error or a file, and everything of that file can be read.
#![no_main]

use glassbox::weights::{Checkpoint, Summary, Value};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Checkpoint::from_bytes(Path::new("fuzz.gguf"), bytes.to_vec()) else { return };
    let _ = Summary::of(&file);
    for (key, value) in file.metadata() {
        if let Value::Array(array) = value {
            assert_eq!(array.values().count(), array.len());
        }
        let _ = (file.texts(key), file.f32s(key), file.i32s(key), file.u32s(key), file.bools(key));
    }
    for info in file.tensors() {
        let tensor = file.tensor(&info.name).expect("every listed tensor is there");
        assert_eq!(tensor.to_f32().len(), info.elements());
        assert_eq!(tensor.row(info.rows() - 1).len(), info.row_bytes());
    }
});
