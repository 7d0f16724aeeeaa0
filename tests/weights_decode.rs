//! Reference decoding against golden blocks, which two independent decoders agreed on.
#![allow(clippy::unwrap_used)]

use glassbox::weights::{BlockFormat, decode};
use half::f16;
use safetensors::SafeTensors;

fn compare(format: BlockFormat, file: &SafeTensors<'_>, raw: &str, expected: &str) {
    let blocks = file.tensor(raw).unwrap().data().to_vec();
    let expected: Vec<f32> = (file.tensor(expected).unwrap().data().chunks_exact(4))
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let mut decoded = vec![f32::NAN; expected.len()];
    decode(format, &blocks, &mut decoded);
    for (i, (got, want)) in decoded.iter().zip(&expected).enumerate() {
        // As values, so that the sign of a zero may differ and nothing else.
        assert!(got == want, "{} {raw}: weight {i} is {got}, golden {want}", format.name());
    }
}

#[test]
fn quantised_blocks_decode_to_the_golden_weights() {
    let golden = BlockFormat::ALL.into_iter().filter(|f| !matches!(f, BlockFormat::F32 | BlockFormat::F16));
    for format in golden {
        let path =
            format!("{}/tests/fixtures/quants/{}.safetensors", env!("CARGO_MANIFEST_DIR"), format.name());
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let file = SafeTensors::deserialize(&bytes).unwrap();
        compare(format, &file, "raw", "dequant");
        compare(format, &file, "random_raw", "random_dequant"); // reaches every code
    }
}

#[test]
fn every_half_and_some_floats_decode_to_themselves() {
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    let bytes: Vec<u8> = halves.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let mut decoded = vec![0.0; halves.len()];
    decode(BlockFormat::F16, &bytes, &mut decoded);
    for (bits, got) in halves.iter().zip(&decoded) {
        let want = f16::from_bits(*bits).to_f64();
        assert!(f64::from(*got) == want || (got.is_nan() && want.is_nan()), "{bits:#06x}: {got}, not {want}");
    }

    let floats = [0.0, -1.5, f32::MIN_POSITIVE, f32::MAX, f32::NEG_INFINITY, 1.0e-45];
    let bytes: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut decoded = [1.0; 6];
    decode(BlockFormat::F32, &bytes, &mut decoded);
    assert_eq!(decoded, floats);
}

#[test]
#[should_panic(expected = "whole blocks")]
fn half_a_block_is_refused() {
    decode(BlockFormat::Q4_0, &[0; 17], &mut [0.0; 32]);
}
