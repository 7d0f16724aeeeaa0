use super::{BlockFormat, Value};
use std::io;
use std::path::Path;

/// Writes small GGUF files: models for tests, made in code. Lays tensors out in the order they were
/// added, as the format asks.
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    alignment: Option<u32>,
    version: Option<u32>,
    metadata: Vec<(String, MetaValue)>,
    tensors: Vec<(String, Vec<usize>, BlockFormat, Vec<u8>)>,
}

/// Values a writer can put; made by `into()`.
#[derive(Clone, Debug)]
pub enum MetaValue {
    U16(u16),
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    Bool(bool),
    String(String),
    Strings(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
    U32s(Vec<u32>),
    Bools(Vec<bool>),
    /// As another file has it.
    Copied(Value),
}

const DEFAULT_ALIGNMENT: u32 = 32;

impl GgufWriter {
    pub fn new(architecture: &str) -> Self {
        Self::default().put("general.architecture", architecture)
    }

    pub fn version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }

    /// Also writes the key.
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = Some(alignment);
        self.put("general.alignment", alignment)
    }

    pub fn put(mut self, key: &str, value: impl Into<MetaValue>) -> Self {
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    /// `blocks` are written as they are; `dims` in ggml's order, row length first.
    pub fn tensor(mut self, name: &str, dims: &[usize], format: BlockFormat, blocks: Vec<u8>) -> Self {
        self.tensors.push((name.to_owned(), dims.to_vec(), format, blocks));
        self
    }

    pub fn tensor_f32(self, name: &str, dims: &[usize], weights: &[f32]) -> Self {
        self.tensor(name, dims, BlockFormat::F32, weights.iter().flat_map(|w| w.to_le_bytes()).collect())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let sizes = self
            .tensors
            .iter()
            .map(|(name, dims, format, blocks)| (name.as_str(), dims.as_slice(), *format, blocks.len()));
        let mut out = self.head(sizes);
        for (_, _, _, blocks) in &self.tensors {
            self.pad(&mut out);
            out.extend(blocks);
        }
        out
    }

    /// All that comes before the blocks of these tensors: name, dims, format, bytes. For files too large to be
    /// made in memory; before each tensor's blocks goes what [`padding`](Self::padding) says.
    pub fn head<'a>(
        &self,
        tensors: impl ExactSizeIterator<Item = (&'a str, &'a [usize], BlockFormat, usize)>,
    ) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.unwrap_or(3).to_le_bytes());
        out.extend((tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut out, key);
            value.write(&mut out);
        }
        let mut offset = 0usize;
        for (name, dims, format, bytes) in tensors {
            put_string(&mut out, name);
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| out.extend((*dim as u64).to_le_bytes()));
            out.extend(format.to_ggml_type().expect("a format that GGUF has").to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset += bytes;
            offset += self.padding(offset);
        }
        out
    }

    /// Zeros between a file of so many bytes and the next tensor.
    pub fn padding(&self, written: usize) -> usize {
        let alignment = self.alignment.unwrap_or(DEFAULT_ALIGNMENT).max(1) as usize;
        written.next_multiple_of(alignment) - written
    }

    fn pad(&self, out: &mut Vec<u8>) {
        out.resize(out.len() + self.padding(out.len()), 0);
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.to_bytes())
    }
}

impl MetaValue {
    fn write(&self, out: &mut Vec<u8>) {
        let mut kind = |number: u32| out.extend(number.to_le_bytes());
        match self {
            MetaValue::U16(value) => {
                kind(2);
                out.extend(value.to_le_bytes());
            }
            MetaValue::U32(value) => {
                kind(4);
                out.extend(value.to_le_bytes());
            }
            MetaValue::I32(value) => {
                kind(5);
                out.extend(value.to_le_bytes());
            }
            MetaValue::F32(value) => {
                kind(6);
                out.extend(value.to_le_bytes());
            }
            MetaValue::Bool(value) => {
                kind(7);
                out.push(u8::from(*value));
            }
            MetaValue::String(text) => {
                kind(8);
                put_string(out, text);
            }
            MetaValue::U64(value) => {
                kind(10);
                out.extend(value.to_le_bytes());
            }
            MetaValue::Strings(texts) => {
                put_array(out, 8, texts, |out, text| put_string(out, text));
            }
            MetaValue::F32s(values) => put_array(out, 6, values, |out, v| out.extend(v.to_le_bytes())),
            MetaValue::I32s(values) => put_array(out, 5, values, |out, v| out.extend(v.to_le_bytes())),
            MetaValue::U32s(values) => put_array(out, 4, values, |out, v| out.extend(v.to_le_bytes())),
            MetaValue::Bools(values) => put_array(out, 7, values, |out, v| out.push(u8::from(*v))),
            MetaValue::Copied(value) => value.write(out),
        }
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_array<T>(out: &mut Vec<u8>, element: u32, values: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    out.extend(9u32.to_le_bytes());
    out.extend(element.to_le_bytes());
    out.extend((values.len() as u64).to_le_bytes());
    values.iter().for_each(|value| put(out, value));
}

macro_rules! from {
    ($($kind:ty => $variant:ident),* $(,)?) => {$(
        impl From<$kind> for MetaValue {
            fn from(value: $kind) -> Self {
                MetaValue::$variant(value)
            }
        }
    )*};
}

from! {
    u16 => U16, u32 => U32, i32 => I32, u64 => U64, f32 => F32, bool => Bool, String => String,
    Vec<String> => Strings, Vec<f32> => F32s, Vec<i32> => I32s, Vec<u32> => U32s, Vec<bool> => Bools,
}

impl From<&str> for MetaValue {
    fn from(text: &str) -> Self {
        MetaValue::String(text.to_owned())
    }
}

impl From<&[&str]> for MetaValue {
    fn from(texts: &[&str]) -> Self {
        MetaValue::Strings(texts.iter().map(|text| (*text).to_owned()).collect())
    }
}
