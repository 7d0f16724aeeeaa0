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
    // These have no golden file, and tests of their own below.
    let plain = [BlockFormat::F32, BlockFormat::F16, BlockFormat::Q8_K, BlockFormat::F8];
    for format in BlockFormat::ALL.into_iter().filter(|format| !plain.contains(format)) {
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
fn eight_bits_with_one_scale_are_their_product() {
    let mut block = 0.25f32.to_le_bytes().to_vec();
    block.extend((0..256).map(|q| q as u8));
    block.extend([0x55; 32]); // sums, which decoding has no use for
    let mut decoded = [0.0; 256];
    decode(BlockFormat::Q8_K, &block, &mut decoded);
    for (q, got) in decoded.iter().enumerate() {
        assert_eq!(*got, 0.25 * f32::from(q as u8 as i8));
    }
}

/// By the definition: sign, exponent with bias 7, three bits of fraction.
fn e4m3(code: u8) -> f32 {
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match exponent {
        15 if code & 7 == 7 => f32::NAN,
        0 => fraction / 8.0 * 2f32.powi(-6),
        _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7),
    };
    if code & 0x80 == 0 { size } else { -size }
}

#[test]
fn every_e4m3_decodes_to_what_it_is_defined_as() {
    for start in (0..=255u8).step_by(32) {
        let mut block: Vec<u8> = (0..32).map(|i| start + i).collect();
        block.extend(0.75f32.to_le_bytes());
        let mut decoded = [0.0; 32];
        decode(BlockFormat::F8, &block, &mut decoded);
        for (code, got) in (start..=start + 31).zip(decoded) {
            let want = e4m3(code) * 0.75;
            assert!(got == want || (got.is_nan() && want.is_nan()), "{code:#04x}: {got}, not {want}");
        }
    }
}

/// Any file may hold any bits.
#[test]
fn no_bits_make_decoding_panic() {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    for format in BlockFormat::ALL {
        let mut weights = vec![0.0; format.block_len()];
        for fill in [0, 0x7F, 0x80, 0xFF] {
            decode(format, &vec![fill; format.block_bytes()], &mut weights);
        }
        for _ in 0..200 {
            let block: Vec<u8> = (0..format.block_bytes()).map(|_| byte()).collect();
            decode(format, &block, &mut weights);
        }
    }
}

#[test]
#[should_panic(expected = "whole blocks")]
fn half_a_block_is_refused() {
    decode(BlockFormat::Q4_0, &[0; 17], &mut [0.0; 32]);
}
