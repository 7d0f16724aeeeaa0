/// How a ggml type is laid out: all that is needed to check a tensor's place in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct GgmlType {
    pub number: u32,
    pub name: &'static str,
    /// Weights in one block.
    pub block_len: usize,
    pub block_bytes: usize,
}

impl GgmlType {
    /// `None` for numbers that were withdrawn (4, 5, 31..=33, 36..=38) or are newer than this table.
    pub fn from_number(number: u32) -> Option<&'static GgmlType> {
        GGML_TYPES.iter().find(|known| known.number == number)
    }
}

const fn ggml(number: u32, name: &'static str, block_len: usize, block_bytes: usize) -> GgmlType {
    GgmlType { number, name, block_len, block_bytes }
}

/// Every type of ggml in use, also those we cannot compute: `models show` must be able to name them.
pub const GGML_TYPES: &[GgmlType] = &[
    ggml(0, "F32", 1, 4),
    ggml(1, "F16", 1, 2),
    ggml(2, "Q4_0", 32, 18),
    ggml(3, "Q4_1", 32, 20),
    ggml(6, "Q5_0", 32, 22),
    ggml(7, "Q5_1", 32, 24),
    ggml(8, "Q8_0", 32, 34),
    ggml(9, "Q8_1", 32, 36),
    ggml(10, "Q2_K", 256, 84),
    ggml(11, "Q3_K", 256, 110),
    ggml(12, "Q4_K", 256, 144),
    ggml(13, "Q5_K", 256, 176),
    ggml(14, "Q6_K", 256, 210),
    ggml(15, "Q8_K", 256, 292),
    ggml(16, "IQ2_XXS", 256, 66),
    ggml(17, "IQ2_XS", 256, 74),
    ggml(18, "IQ3_XXS", 256, 98),
    ggml(19, "IQ1_S", 256, 50),
    ggml(20, "IQ4_NL", 32, 18),
    ggml(21, "IQ3_S", 256, 110),
    ggml(22, "IQ2_S", 256, 82),
    ggml(23, "IQ4_XS", 256, 136),
    ggml(24, "I8", 1, 1),
    ggml(25, "I16", 1, 2),
    ggml(26, "I32", 1, 4),
    ggml(27, "I64", 1, 8),
    ggml(28, "F64", 1, 8),
    ggml(29, "IQ1_M", 256, 56),
    ggml(30, "BF16", 1, 2),
    ggml(34, "TQ1_0", 256, 54),
    ggml(35, "TQ2_0", 256, 66),
    ggml(39, "MXFP4", 32, 17),
    ggml(40, "NVFP4", 64, 36),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::weights::BlockFormat;

    #[test]
    fn our_block_formats_have_the_same_layout_here() {
        for format in BlockFormat::ALL {
            let Some(number) = format.to_ggml_type() else { continue };
            let known = GgmlType::from_number(number).unwrap();
            assert_eq!(
                (known.name, known.block_len, known.block_bytes),
                (format.name(), format.block_len(), format.block_bytes())
            );
            assert_eq!(BlockFormat::from_ggml_type(known.number), Some(format));
        }
    }

    #[test]
    fn layouts_are_those_of_the_reference_encoder() {
        let index = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/quants/index.json");
        let index: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(index).unwrap()).unwrap();
        let mut compared = 0;
        for (name, entry) in index.as_object().unwrap() {
            let Some(number) = entry.get("ggml_type") else { continue };
            let known = GgmlType::from_number(number.as_u64().unwrap() as u32).unwrap();
            assert_eq!(known.name, name);
            assert_eq!(known.block_len as u64, entry["block"].as_u64().unwrap(), "{name}");
            assert_eq!(known.block_bytes as u64, entry["bytes"].as_u64().unwrap(), "{name}");
            compared += 1;
        }
        assert_eq!(compared, 24);
    }
}
