//! Encoding: what is left of weights after they went into blocks and back.
#![allow(clippy::unwrap_used)]

use glassbox::weights::{BlockFormat, decode, encode};
use proptest::prelude::*;
use safetensors::SafeTensors;

fn back(format: BlockFormat, weights: &[f32]) -> Vec<f32> {
    let mut decoded = vec![f32::NAN; weights.len()];
    decode(format, &encode(format, weights), &mut decoded);
    decoded
}

fn rms(values: impl ExactSizeIterator<Item = f32>) -> f64 {
    let n = values.len() as f64;
    (values.map(|value| f64::from(value).powi(2)).sum::<f64>() / n).sqrt()
}

/// |W - Q(W)| / |W|
fn relative_error(weights: &[f32], decoded: &[f32]) -> f64 {
    rms(weights.iter().zip(decoded).map(|(weight, got)| weight - got)) / rms(weights.iter().copied())
}

fn encodable() -> impl Iterator<Item = BlockFormat> {
    BlockFormat::ALL.into_iter().filter(|format| format.can_encode())
}

#[test]
fn blocks_lose_no_more_than_those_of_the_reference_encoder() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/quants");
    let index = std::fs::read_to_string(format!("{fixtures}/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let mut compared = 0;
    for format in encodable() {
        let Some(reference) = index.get(format.name()) else { continue };
        let reference = reference["rel_rms_error"].as_f64().unwrap();
        let bytes = std::fs::read(format!("{fixtures}/{}.safetensors", format.name())).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let weights: Vec<f32> = (file.tensor("source").unwrap().data().chunks_exact(4))
            .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let ours = relative_error(&weights, &back(format, &weights));
        println!("{:7} ours {ours:.5}, reference {reference:.5}", format.name());
        // The reference is written with five digits.
        assert!(ours <= reference + 5e-6, "{}: {ours} is more than {reference}", format.name());
        compared += 1;
    }
    assert_eq!(compared, 11);
}

/// The most that the error of a block may be, root mean square, in parts of its largest weight.
fn bound(format: BlockFormat) -> f64 {
    match format {
        BlockFormat::F32 => 0.0,
        BlockFormat::F16 => 1.0 / 2048.0,
        BlockFormat::BF16 => 1.0 / 256.0,
        // Half a step, and a whole one where the largest weight has no code: 7 of 8.
        BlockFormat::Q4_0 => 1.0 / 8.0,
        BlockFormat::Q5_0 => 1.0 / 16.0,
        // Half a step of the range, which is at most twice the largest.
        BlockFormat::Q4_1 => 1.0 / 15.0,
        BlockFormat::Q5_1 => 1.0 / 31.0,
        BlockFormat::Q8_0 => 0.5 / 127.0,
        // The same, and what six bits lose of scales (times the codes) and minima.
        BlockFormat::Q4_K => 1.0 / 15.0 + 2.0 / 126.0 + 1.0 / 126.0,
        BlockFormat::Q5_K => 1.0 / 31.0 + 2.0 / 126.0 + 1.0 / 126.0,
        BlockFormat::Q6_K => 1.0 / 32.0 + 1.0 / 256.0,
        // Half the widest gap between levels.
        BlockFormat::IQ4_NL => 12.0 / 113.0,
        BlockFormat::MXFP4 => 1.0 / 4.0,
        BlockFormat::F8 => 1.0 / 16.0,
        _ => unreachable!("not encoded"),
    }
}

/// Scales and minima of 16 bits are off by so much, relative to them, and no number of 16 bits is nearer to zero.
const SCALE: f64 = 1.0 / 1024.0;
const SMALLEST: f64 = 1.0 / 16_777_216.0;

fn weights() -> impl Strategy<Value = Vec<f32>> {
    let ordinary = prop::collection::vec(-1f32..1.0, 256);
    let outliers =
        prop::collection::vec(prop_oneof![9 => -0.1f32..0.1, 1 => -8f32..8.0, 1 => Just(0.0)], 256);
    let one_sided = prop::collection::vec(3f32..4.0, 256);
    (prop_oneof![ordinary, outliers, one_sided], prop::sample::select(vec![1e-2f32, 1.0, 50.0])).prop_map(
        |(mut weights, size)| {
            weights.iter_mut().for_each(|weight| *weight *= size);
            weights
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_blocks_lose_is_bounded(weights in weights()) {
        for format in encodable() {
            let decoded = back(format, &weights);
            for (block, got) in weights.chunks(format.block_len()).zip(decoded.chunks(format.block_len())) {
                let most = block.iter().fold(0f32, |most, weight| most.max(weight.abs()));
                let error = rms(block.iter().zip(got).map(|(weight, got)| weight - got));
                let bound = f64::from(most) * (bound(format) + SCALE) + SMALLEST;
                prop_assert!(error <= bound, "{}: {error} is more than {bound}", format.name());
            }
        }
    }

    /// Whatever the bits are, what comes back is finite in formats that are made of codes.
    #[test]
    fn any_float_can_be_encoded(bits in prop::collection::vec(any::<u32>(), 256)) {
        let weights: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for format in encodable().filter(|format| format.block_len() > 1) {
            let decoded = back(format, &weights);
            prop_assert!(decoded.iter().all(|got| got.is_finite()), "{}", format.name());
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for format in encodable() {
        assert_eq!(back(format, &[0.0; 256]), [0.0; 256], "{}", format.name());
        // One sub-block has something.
        let mut weights = [0.0; 256];
        weights[40] = 1.0;
        let decoded = back(format, &weights);
        assert!(decoded[64..].iter().all(|weight| *weight == 0.0), "{}", format.name());
        assert!((decoded[40] - 1.0).abs() < 0.01, "{}: {}", format.name(), decoded[40]);
    }
}

/// A minimum of 16 bits cannot go as low as the scale reaches high, so that zero may have no code.
fn has_no_zero(format: BlockFormat) -> bool {
    matches!(format, BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4_K | BlockFormat::Q5_K)
}

#[test]
fn what_is_too_large_becomes_the_largest() {
    for format in encodable().filter(|format| format.block_len() > 1) {
        let mut weights = [0.0f32; 256];
        (weights[0], weights[1], weights[2], weights[3]) =
            (f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX);
        let decoded = back(format, &weights);
        let name = format.name();
        assert!(decoded.iter().all(|weight| weight.is_finite()), "{name}");
        assert!(
            decoded[0] > 6e4 && decoded[1] < -6e4 && decoded[3] == decoded[0],
            "{name}: {:?}",
            &decoded[..4]
        );
        assert!(
            decoded[2].abs() <= decoded[0] / 100.0 || has_no_zero(format),
            "{name}: a NaN counts as nothing"
        );
    }
    for (format, largest) in [(BlockFormat::F16, 65504.0), (BlockFormat::BF16, 3.3895314e38)] {
        let decoded = back(format, &[f32::MAX, f32::MIN, f32::INFINITY, f32::NAN]);
        assert_eq!(decoded[..3], [largest, -largest, f32::INFINITY], "finite stays finite");
        assert!(decoded[3].is_nan());
    }
}

/// A scale of 16 bits has no number below 2^-24: weights that small keep what they can.
#[test]
fn tiny_weights_keep_what_they_can() {
    for size in [1e-5f32, 1e-6, 1e-7, 1e-12, 1e-30, 1e-44] {
        let weights: Vec<f32> = (0..256).map(|i| size * ((i * 37 % 101) as f32 / 50.0 - 1.0)).collect();
        for format in encodable() {
            let decoded = back(format, &weights);
            let most = f64::from(size) * 1.02 + 2.0 * SMALLEST;
            for (weight, got) in weights.iter().zip(&decoded) {
                let error = f64::from((weight - got).abs());
                // Never more than the weights themselves and a step or two of the smallest scale.
                assert!(error <= most, "{} of {size}: {weight} became {got}", format.name());
            }
        }
    }
    let weights: Vec<f32> = (0..32).map(|i| 1e-5 * (i as f32 / 16.0 - 1.0)).collect();
    assert!(relative_error(&weights, &back(BlockFormat::Q8_0, &weights)) < 0.01);
    assert!(relative_error(&weights, &back(BlockFormat::F8, &weights)) < 0.04);
    assert!(relative_error(&weights, &back(BlockFormat::MXFP4, &weights)) < 0.2);
}

#[test]
#[should_panic(expected = "IQ1_S is only read")]
fn a_format_that_is_only_read_is_refused() {
    assert!(!BlockFormat::IQ1_S.can_encode());
    encode(BlockFormat::IQ1_S, &[0.0; 256]);
}

#[test]
#[should_panic(expected = "whole blocks")]
fn half_a_block_is_refused() {
    encode(BlockFormat::Q4_K, &[0.0; 128]);
}
