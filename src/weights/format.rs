/// How a tensor's numbers are stored: blocks of `block_len` weights in `block_bytes` bytes.
/// Layouts are ggml's, as documented in the GGUF specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types)]
pub enum BlockFormat {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl BlockFormat {
    pub const ALL: [BlockFormat; 11] = [
        BlockFormat::F32,
        BlockFormat::F16,
        BlockFormat::BF16,
        BlockFormat::Q4_0,
        BlockFormat::Q4_1,
        BlockFormat::Q5_0,
        BlockFormat::Q5_1,
        BlockFormat::Q8_0,
        BlockFormat::Q4_K,
        BlockFormat::Q5_K,
        BlockFormat::Q6_K,
    ];

    /// Weights in one block.
    pub const fn block_len(self) -> usize {
        match self {
            BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16 => 1,
            BlockFormat::Q4_0
            | BlockFormat::Q4_1
            | BlockFormat::Q5_0
            | BlockFormat::Q5_1
            | BlockFormat::Q8_0 => 32,
            BlockFormat::Q4_K | BlockFormat::Q5_K | BlockFormat::Q6_K => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            BlockFormat::F32 => 4,
            BlockFormat::F16 | BlockFormat::BF16 => 2,
            BlockFormat::Q4_0 => 18,
            BlockFormat::Q4_1 => 20,
            BlockFormat::Q5_0 => 22,
            BlockFormat::Q5_1 => 24,
            BlockFormat::Q8_0 => 34,
            BlockFormat::Q4_K => 144,
            BlockFormat::Q5_K => 176,
            BlockFormat::Q6_K => 210,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            BlockFormat::F32 => "F32",
            BlockFormat::F16 => "F16",
            BlockFormat::BF16 => "BF16",
            BlockFormat::Q4_0 => "Q4_0",
            BlockFormat::Q4_1 => "Q4_1",
            BlockFormat::Q5_0 => "Q5_0",
            BlockFormat::Q5_1 => "Q5_1",
            BlockFormat::Q8_0 => "Q8_0",
            BlockFormat::Q4_K => "Q4_K",
            BlockFormat::Q5_K => "Q5_K",
            BlockFormat::Q6_K => "Q6_K",
        }
    }

    /// The number that a GGUF file writes for this format.
    pub const fn to_ggml_type(self) -> u32 {
        match self {
            BlockFormat::F32 => 0,
            BlockFormat::F16 => 1,
            BlockFormat::Q4_0 => 2,
            BlockFormat::Q4_1 => 3,
            BlockFormat::Q5_0 => 6,
            BlockFormat::Q5_1 => 7,
            BlockFormat::Q8_0 => 8,
            BlockFormat::Q4_K => 12,
            BlockFormat::Q5_K => 13,
            BlockFormat::Q6_K => 14,
            BlockFormat::BF16 => 30,
        }
    }

    /// `None` for a number that is no format of ours.
    pub fn from_ggml_type(number: u32) -> Option<BlockFormat> {
        BlockFormat::ALL.into_iter().find(|format| format.to_ggml_type() == number)
    }
}
