use crate::weights::BlockFormat;

/// What a safetensors file says its numbers are: weights that we decode, or the raw material of a
/// quantised checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::weights) enum Dtype {
    Weights(BlockFormat),
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F64,
    C64,
    E4m3,
    E5m2,
    E8m0,
    E4m3Fnuz,
    E5m2Fnuz,
    F4,
    F6E2m3,
    F6E3m2,
}

/// Name in the file, and bits of one number.
const FILE: [(&str, Dtype, usize); 22] = [
    ("F32", Dtype::Weights(BlockFormat::F32), 32),
    ("F16", Dtype::Weights(BlockFormat::F16), 16),
    ("BF16", Dtype::Weights(BlockFormat::BF16), 16),
    ("BOOL", Dtype::Bool, 8),
    ("U8", Dtype::U8, 8),
    ("I8", Dtype::I8, 8),
    ("U16", Dtype::U16, 16),
    ("I16", Dtype::I16, 16),
    ("U32", Dtype::U32, 32),
    ("I32", Dtype::I32, 32),
    ("U64", Dtype::U64, 64),
    ("I64", Dtype::I64, 64),
    ("F64", Dtype::F64, 64),
    ("C64", Dtype::C64, 64),
    ("F8_E4M3", Dtype::E4m3, 8),
    ("F8_E5M2", Dtype::E5m2, 8),
    ("F8_E8M0", Dtype::E8m0, 8),
    ("F8_E4M3FNUZ", Dtype::E4m3Fnuz, 8),
    ("F8_E5M2FNUZ", Dtype::E5m2Fnuz, 8),
    ("F4", Dtype::F4, 4),
    ("F6_E2M3", Dtype::F6E2m3, 6),
    ("F6_E3M2", Dtype::F6E3m2, 6),
];

impl Dtype {
    pub fn from_name(name: &str) -> Option<Dtype> {
        FILE.iter().find(|(known, ..)| *known == name).map(|(_, dtype, _)| *dtype)
    }

    pub fn name(self) -> &'static str {
        match self {
            Dtype::Weights(format) => format.name(),
            raw => FILE.iter().find(|(_, dtype, _)| *dtype == raw).map_or("raw", |(name, ..)| name),
        }
    }

    /// Bytes of `elements` numbers of a file; `None` where they overflow or are no whole bytes.
    pub fn file_bytes(self, elements: usize) -> Option<usize> {
        let (.., bits) = FILE.iter().find(|(_, dtype, _)| *dtype == self)?;
        let bits = elements.checked_mul(*bits)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    pub fn format(self) -> Option<BlockFormat> {
        match self {
            Dtype::Weights(format) => Some(format),
            _ => None,
        }
    }

    /// Bytes of one row of so many numbers; `None` where that is no whole number of blocks.
    pub fn row_bytes(self, len: usize) -> Option<usize> {
        match self {
            Dtype::Weights(format) => len
                .is_multiple_of(format.block_len())
                .then(|| len / format.block_len() * format.block_bytes()),
            raw => raw.file_bytes(len),
        }
    }
}
