use super::Checkpoint;
use crate::weights::Digest;
use sha2::{Digest as _, Sha256};
use std::ops::Range;

/// The header lies at the beginning, and tokens and settings in it.
const ENDS: usize = 64 << 10;
const PAGE: usize = 4 << 10;
const PAGES: usize = 64;

impl Checkpoint {
    /// Tells two models apart without reading all of either: lengths, every tensor's name, shape, format
    /// and place, of every file the first and last 64 KiB, and 64 pages spread evenly between. Two trainings or two
    /// quantisations of one model differ nearly everywhere; a file changed in a few bytes on purpose
    /// may not be noticed.
    pub fn fingerprint(&self) -> Digest {
        let mut hash = Sha256::new();
        for file in self.files() {
            hash.update((file.len() as u64).to_le_bytes());
        }
        for tensor in self.tensors() {
            let (dims, format) = (&tensor.dims, tensor.format.name());
            hash.update(format!("{} {dims:?} {format} {}\n", tensor.name, tensor.offset));
        }
        for file in self.files() {
            sampled(file.len()).for_each(|range| hash.update(&file[range]));
        }
        Digest(hash.finalize().into())
    }
}

/// Both ends, and pages between them.
fn sampled(len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = ENDS.min(len);
    let page = move |i: usize| {
        let start = (len as u128 * i as u128 / PAGES as u128) as usize;
        start..(start + PAGE).min(len)
    };
    [0..end, len - end..len].into_iter().chain((0..PAGES).map(page))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::weights::GgufWriter;
    use std::path::Path;

    fn file(name: &str, weight: f32) -> Checkpoint {
        let mut weights = vec![0.5; 4096];
        weights[4095] = weight;
        let writer = GgufWriter::new("llama").tensor_f32(name, &[64, 64], &weights);
        Checkpoint::from_bytes(Path::new("a.gguf"), writer.to_bytes()).unwrap()
    }

    #[test]
    fn the_same_weights_are_the_same_and_others_are_not() {
        assert_eq!(file("w", 1.0).fingerprint(), file("w", 1.0).fingerprint());
        assert_ne!(file("w", 1.0).fingerprint(), file("w", 1.5).fingerprint());
        assert_ne!(file("w", 1.0).fingerprint(), file("v", 1.0).fingerprint());
    }

    #[test]
    fn pages_of_any_length_lie_inside_the_file() {
        for len in [0, 1, 4095, ENDS, ENDS + 1, 10 << 20, 5 << 30] {
            assert!(sampled(len).all(|range| range.start <= range.end && range.end <= len), "{len}");
            assert!(sampled(len).any(|range| range.end == len));
        }
    }
}
