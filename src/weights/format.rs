/// How a tensor's numbers are stored: blocks of `block_len` weights in `block_bytes` bytes.
/// Layouts are ggml's, as documented in the GGUF specification, but for [`BlockFormat::F8`].
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
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    NVFP4,
    TQ1_0,
    TQ2_0,
    /// 32 bytes of e4m3 (Micikevicius et al. 2022), then their scale as f32: what checkpoints with FP8
    /// weights become, whose own scales are for a tensor, a row or a square. No GGUF file has it.
    F8,
}

/// Name, weights of a block, its bytes, and the number that a GGUF file writes for it.
const fn of(format: BlockFormat) -> (&'static str, usize, usize, Option<u32>) {
    match format {
        BlockFormat::F32 => ("F32", 1, 4, Some(0)),
        BlockFormat::F16 => ("F16", 1, 2, Some(1)),
        BlockFormat::BF16 => ("BF16", 1, 2, Some(30)),
        BlockFormat::Q4_0 => ("Q4_0", 32, 18, Some(2)),
        BlockFormat::Q4_1 => ("Q4_1", 32, 20, Some(3)),
        BlockFormat::Q5_0 => ("Q5_0", 32, 22, Some(6)),
        BlockFormat::Q5_1 => ("Q5_1", 32, 24, Some(7)),
        BlockFormat::Q8_0 => ("Q8_0", 32, 34, Some(8)),
        BlockFormat::Q2_K => ("Q2_K", 256, 84, Some(10)),
        BlockFormat::Q3_K => ("Q3_K", 256, 110, Some(11)),
        BlockFormat::Q4_K => ("Q4_K", 256, 144, Some(12)),
        BlockFormat::Q5_K => ("Q5_K", 256, 176, Some(13)),
        BlockFormat::Q6_K => ("Q6_K", 256, 210, Some(14)),
        BlockFormat::Q8_K => ("Q8_K", 256, 292, Some(15)),
        BlockFormat::IQ1_S => ("IQ1_S", 256, 50, Some(19)),
        BlockFormat::IQ1_M => ("IQ1_M", 256, 56, Some(29)),
        BlockFormat::IQ2_XXS => ("IQ2_XXS", 256, 66, Some(16)),
        BlockFormat::IQ2_XS => ("IQ2_XS", 256, 74, Some(17)),
        BlockFormat::IQ2_S => ("IQ2_S", 256, 82, Some(22)),
        BlockFormat::IQ3_XXS => ("IQ3_XXS", 256, 98, Some(18)),
        BlockFormat::IQ3_S => ("IQ3_S", 256, 110, Some(21)),
        BlockFormat::IQ4_NL => ("IQ4_NL", 32, 18, Some(20)),
        BlockFormat::IQ4_XS => ("IQ4_XS", 256, 136, Some(23)),
        BlockFormat::MXFP4 => ("MXFP4", 32, 17, Some(39)),
        BlockFormat::NVFP4 => ("NVFP4", 64, 36, Some(40)),
        BlockFormat::TQ1_0 => ("TQ1_0", 256, 54, Some(34)),
        BlockFormat::TQ2_0 => ("TQ2_0", 256, 66, Some(35)),
        BlockFormat::F8 => ("F8", 32, 36, None),
    }
}

impl BlockFormat {
    pub const ALL: [BlockFormat; 28] = [
        BlockFormat::F32,
        BlockFormat::F16,
        BlockFormat::BF16,
        BlockFormat::Q4_0,
        BlockFormat::Q4_1,
        BlockFormat::Q5_0,
        BlockFormat::Q5_1,
        BlockFormat::Q8_0,
        BlockFormat::Q2_K,
        BlockFormat::Q3_K,
        BlockFormat::Q4_K,
        BlockFormat::Q5_K,
        BlockFormat::Q6_K,
        BlockFormat::Q8_K,
        BlockFormat::IQ1_S,
        BlockFormat::IQ1_M,
        BlockFormat::IQ2_XXS,
        BlockFormat::IQ2_XS,
        BlockFormat::IQ2_S,
        BlockFormat::IQ3_XXS,
        BlockFormat::IQ3_S,
        BlockFormat::IQ4_NL,
        BlockFormat::IQ4_XS,
        BlockFormat::MXFP4,
        BlockFormat::NVFP4,
        BlockFormat::TQ1_0,
        BlockFormat::TQ2_0,
        BlockFormat::F8,
    ];

    /// Weights in one block.
    pub const fn block_len(self) -> usize {
        of(self).1
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        of(self).2
    }

    pub const fn name(self) -> &'static str {
        of(self).0
    }

    /// The number that a GGUF file writes for this format.
    pub const fn to_ggml_type(self) -> Option<u32> {
        of(self).3
    }

    /// `None` for a number that is no format of ours.
    pub fn from_ggml_type(number: u32) -> Option<BlockFormat> {
        BlockFormat::ALL.into_iter().find(|format| format.to_ggml_type() == Some(number))
    }
}
