/// A number in [0, 1) that depends on nothing but `seed` and `position`: a token drawn with it is
/// the same in any batch, on any thread, in any order.
pub fn uniform(seed: u64, position: u64) -> f64 {
    uniforms(seed, position)[0]
}

/// Two such numbers.
pub fn uniforms(seed: u64, position: u64) -> [f64; 2] {
    let [a, b, c, d] =
        philox([position as u32, (position >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32]);
    [(a, b), (c, d)].map(|(high, low)| {
        let bits = (u64::from(high) << 32) | u64::from(low);
        (bits >> 11) as f64 / (1u64 << 53) as f64
    })
}

/// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), section 3.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let left = u64::from(counter[0]) * 0xD251_1F53;
        let right = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (right >> 32) as u32 ^ counter[1] ^ key[0],
            right as u32,
            (left >> 32) as u32 ^ counter[3] ^ key[1],
            left as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with the paper's code.
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox([!0; 4], [!0; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn neighbouring_seeds_and_positions_are_unrelated_and_evenly_spread() {
        let mut bins = [0u32; 16];
        for seed in 0..64 {
            for position in 0..256 {
                let u = uniform(seed, position);
                assert!((0.0..1.0).contains(&u));
                bins[(u * 16.0) as usize] += 1;
            }
        }
        // 15 degrees of freedom: chi-square passes 37.7 once in a thousand.
        let expected = f64::from(64 * 256 / 16);
        let chi: f64 = bins.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        assert!(chi < 37.7, "{chi}");
    }
}
