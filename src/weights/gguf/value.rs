use super::cursor::Cursor;
use crate::base::Texts;
use crate::weights::bytes::Bytes;
use crate::weights::checkpoint::Damage;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A value of the metadata.
#[derive(Clone, Debug)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    /// Bytes that are no UTF-8 were replaced by U+FFFD.
    String(String),
    Array(Array),
}

/// Numbers as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

/// Elements stay in the file until they are read: a vocabulary of 262,144 strings costs nothing to open.
#[derive(Clone)]
pub struct Array {
    file: Arc<Bytes>,
    range: Range<usize>,
    element: ValueType,
    len: usize,
}

impl ValueType {
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    /// Bytes of one element in an array; of a string and of an array, the least it can take.
    fn least_bytes(self) -> usize {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String => 8,
            ValueType::Array => 12,
        }
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<ValueType, Damage> {
        let start = cursor.position();
        let number = cursor.u32()?;
        (ValueType::ALL.into_iter().find(|known| *known as u32 == number))
            .ok_or_else(|| Damage::at(start, format!("{number} is no type of a value")))
    }
}

impl Value {
    /// A type and a value of that type.
    pub(super) fn read(cursor: &mut Cursor<'_>, file: &Arc<Bytes>) -> Result<Value, Damage> {
        match ValueType::read(cursor)? {
            ValueType::Array => Array::read(cursor, file).map(Value::Array),
            simple => Value::read_simple(cursor, simple),
        }
    }

    fn read_simple(cursor: &mut Cursor<'_>, kind: ValueType) -> Result<Value, Damage> {
        let start = cursor.position();
        Ok(match kind {
            ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.array()?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array()?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array()?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array()?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(cursor.array()?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array()?)),
            ValueType::U64 => Value::U64(u64::from_le_bytes(cursor.array()?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array()?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array()?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array()?)),
            ValueType::Bool => match cursor.array()? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => return Err(Damage::at(start, format!("a bool is 0 or 1, not {other}"))),
            },
            ValueType::String => Value::String(String::from_utf8_lossy(cursor.string()?).into_owned()),
            ValueType::Array => return Err(Damage::at(start, "an array inside an array".to_owned())),
        })
    }

    /// A type and a value of that type, as [`Value::read`] takes them.
    pub(in crate::weights) fn write(&self, out: &mut Vec<u8>) {
        out.extend((self.value_type() as u32).to_le_bytes());
        match self {
            Value::U8(value) => out.push(*value),
            Value::I8(value) => out.extend(value.to_le_bytes()),
            Value::U16(value) => out.extend(value.to_le_bytes()),
            Value::I16(value) => out.extend(value.to_le_bytes()),
            Value::U32(value) => out.extend(value.to_le_bytes()),
            Value::I32(value) => out.extend(value.to_le_bytes()),
            Value::U64(value) => out.extend(value.to_le_bytes()),
            Value::I64(value) => out.extend(value.to_le_bytes()),
            Value::F32(value) => out.extend(value.to_le_bytes()),
            Value::F64(value) => out.extend(value.to_le_bytes()),
            Value::Bool(value) => out.push(u8::from(*value)),
            Value::String(text) => {
                out.extend((text.len() as u64).to_le_bytes());
                out.extend(text.as_bytes());
            }
            Value::Array(array) => {
                out.extend((array.element as u32).to_le_bytes());
                out.extend((array.len as u64).to_le_bytes());
                out.extend(array.bytes());
            }
        }
    }

    fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F32(_) => ValueType::F32,
            Value::F64(_) => ValueType::F64,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Any integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_i128().and_then(|value| value.try_into().ok())
    }

    /// Any integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_i128().and_then(|value| value.try_into().ok())
    }

    pub fn as_f32(&self) -> Option<f32> {
        match self {
            Value::F32(value) => Some(*value),
            Value::F64(value) => Some(*value as f32),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    fn as_i128(&self) -> Option<i128> {
        Some(match self {
            Value::U8(value) => i128::from(*value),
            Value::I8(value) => i128::from(*value),
            Value::U16(value) => i128::from(*value),
            Value::I16(value) => i128::from(*value),
            Value::U32(value) => i128::from(*value),
            Value::I32(value) => i128::from(*value),
            Value::U64(value) => i128::from(*value),
            Value::I64(value) => i128::from(*value),
            _ => return None,
        })
    }

    /// For errors: the type, and the value where it is short.
    pub(in crate::weights) fn describe(&self) -> String {
        match self {
            Value::F32(value) => format!("f32 {value}"),
            Value::F64(value) => format!("f64 {value}"),
            Value::Bool(value) => format!("bool {value}"),
            Value::String(_) => "a string".to_owned(),
            Value::Array(array) => format!("an array of {} {}", array.len, array.element.name()),
            integer => format!("{integer:?}").to_lowercase().replace(['(', ')'], " ").trim_end().to_owned(),
        }
    }
}

/// Bytes of a string's length, which stands before it.
const LENGTH: usize = 8;

impl Array {
    fn read(cursor: &mut Cursor<'_>, file: &Arc<Bytes>) -> Result<Array, Damage> {
        let start = cursor.position();
        let element = ValueType::read(cursor)?;
        let len = cursor.count(element.least_bytes())?;
        let first = cursor.position();
        match element {
            ValueType::Array => return Err(Damage::at(start, "an array inside an array".to_owned())),
            ValueType::String => {
                for index in 0..len {
                    cursor.string().map_err(|damage| Damage {
                        problem: format!("element {index} is {}", damage.problem),
                        ..damage
                    })?;
                }
            }
            // `count` made sure that the product fits.
            simple => {
                let bytes = cursor.take(len * simple.least_bytes())?;
                if let (ValueType::Bool, Some(at)) = (simple, bytes.iter().position(|byte| *byte > 1)) {
                    return Err(Damage::at(first + at, format!("a bool is 0 or 1, not {}", bytes[at])));
                }
            }
        }
        Ok(Array { file: Arc::clone(file), range: first..cursor.position(), element, len })
    }

    pub fn element(&self) -> ValueType {
        self.element
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All elements as they lie in the file.
    pub(in crate::weights) fn bytes(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }

    /// Every element, read from the file as the iterator goes.
    pub fn values(&self) -> impl Iterator<Item = Value> {
        let mut cursor = Cursor::new(&self.file[..self.range.end], self.range.start);
        (0..self.len)
            .map(move |_| Value::read_simple(&mut cursor, self.element).expect("checked when it was opened"))
    }

    /// The bytes of every string; nothing when the elements are something else.
    pub fn string_bytes(&self) -> impl Iterator<Item = &[u8]> {
        let len = if self.element == ValueType::String { self.len } else { 0 };
        let mut cursor = Cursor::new(&self.file[..self.range.end], self.range.start);
        (0..len).map(move |_| cursor.string().expect("checked when it was opened"))
    }

    /// Every string, left in the file; `None` where the elements are something else or no UTF-8.
    pub fn texts(&self) -> Option<Texts> {
        if self.element != ValueType::String {
            return None;
        }
        let mut starts = Vec::with_capacity(self.len + 1);
        let mut start = LENGTH;
        for text in self.string_bytes() {
            std::str::from_utf8(text).ok()?;
            starts.push(u32::try_from(start).ok()?);
            start += text.len() + LENGTH;
        }
        starts.push(u32::try_from(start).ok()?);
        Some(Texts::in_buffer(self.file.clone(), self.range.start, starts, LENGTH))
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} x {}]", self.len, self.element.name())
    }
}
