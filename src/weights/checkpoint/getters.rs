use super::Checkpoint;
use super::error::CheckpointError;
use crate::base::Texts;
use crate::weights::gguf::{Value, ValueType};

/// Typed access to the metadata. A missing key is `None`; a key of another type is an error.
/// Integers are accepted in any width that holds the value.
impl Checkpoint {
    pub fn architecture(&self) -> Result<&str, CheckpointError> {
        self.require_str("general.architecture")
    }

    pub fn str(&self, key: &str) -> Result<Option<&str>, CheckpointError> {
        self.get(key, "a string", Value::as_str)
    }

    pub fn u64(&self, key: &str) -> Result<Option<u64>, CheckpointError> {
        self.get(key, "an integer from 0", Value::as_u64)
    }

    pub fn f32(&self, key: &str) -> Result<Option<f32>, CheckpointError> {
        self.get(key, "a float", Value::as_f32)
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        self.get(key, "a bool", Value::as_bool)
    }

    /// Strings that stay in the file.
    pub fn texts(&self, key: &str) -> Result<Option<Texts>, CheckpointError> {
        self.get(key, "an array of strings in UTF-8", |value| value.as_array()?.texts())
    }

    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, CheckpointError> {
        self.get(key, "an array of floats", |value| {
            words(value, ValueType::F32, f32::from_le_bytes).or_else(|| elements(value, |v| v.as_f32()))
        })
    }

    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, CheckpointError> {
        self.get(key, "an array of integers of 32 bits", |value| {
            words(value, ValueType::I32, i32::from_le_bytes)
                .or_else(|| elements(value, |v| v.as_i64()?.try_into().ok()))
        })
    }

    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, CheckpointError> {
        self.get(key, "an array of integers from 0 to 2^32 - 1", |value| {
            elements(value, |v| v.as_u64()?.try_into().ok())
        })
    }

    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, CheckpointError> {
        self.get(key, "an array of bools", |value| elements(value, |v| v.as_bool()))
    }

    /// One integer for each of `layers` layers, which files write as an array or once for all.
    pub fn per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<u32>>, CheckpointError> {
        self.get(key, "an integer, or an array with one for each layer", |value| match value {
            Value::Array(array) if array.len() == layers => elements(value, |v| v.as_u64()?.try_into().ok()),
            Value::Array(_) => None,
            // Of a claimed number of layers nothing is allocated: a real one has a tensor in the file.
            _ if layers > self.tensors().len() + self.unsupported().len() => None,
            one => Some(vec![one.as_u64()?.try_into().ok()?; layers]),
        })
    }

    pub fn require_str(&self, key: &str) -> Result<&str, CheckpointError> {
        self.require(key, self.str(key)?)
    }

    pub fn require_u64(&self, key: &str) -> Result<u64, CheckpointError> {
        self.require(key, self.u64(key)?)
    }

    pub fn require_f32(&self, key: &str) -> Result<f32, CheckpointError> {
        self.require(key, self.f32(key)?)
    }

    pub fn require_texts(&self, key: &str) -> Result<Texts, CheckpointError> {
        self.require(key, self.texts(key)?)
    }

    fn require<T>(&self, key: &str, value: Option<T>) -> Result<T, CheckpointError> {
        value.ok_or_else(|| CheckpointError::MissingKey { path: self.path().to_owned(), key: key.to_owned() })
    }

    fn get<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(CheckpointError::WrongType {
                path: self.path().to_owned(),
                key: key.to_owned(),
                wanted,
                found: value.describe(),
            }),
        }
    }
}

/// The short way for large arrays: of elements of exactly that type, four bytes each.
fn words<T>(value: &Value, element: ValueType, read: impl Fn([u8; 4]) -> T) -> Option<Vec<T>> {
    let array = value.as_array().filter(|array| array.element() == element)?;
    Some(array.bytes().as_chunks().0.iter().map(|word| read(*word)).collect())
}

fn elements<T>(value: &Value, convert: impl Fn(Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.values().map(convert).collect()
}
