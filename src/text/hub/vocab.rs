use crate::base::Texts;
use crate::protocol::TokenId;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Texts as they are read, one behind the other.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

impl Buffer {
    /// # Errors
    /// Beyond 4 GiB.
    pub fn push<E: Error>(&mut self, parts: &[&[u8]]) -> Result<(), E> {
        self.starts.push(u32::try_from(self.bytes.len()).map_err(|_| E::custom("more than 4 GiB of text"))?);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(())
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let end = self.starts.get(index + 1).map_or(self.bytes.len(), |end| *end as usize);
        &self.bytes[self.starts[index] as usize..end]
    }

    pub fn into_texts(mut self) -> Texts {
        self.starts.push(self.bytes.len() as u32);
        Texts::in_buffer(Arc::new(self.bytes), 0, self.starts, 0)
    }
}

/// `model.vocab`: `{"text": id, ...}`, in the file's order.
#[derive(Default)]
pub(super) struct Vocab {
    pub texts: Buffer,
    pub ids: Vec<TokenId>,
}

/// Stands between the two texts of a merge, where a space would do but for texts that have one. No
/// UTF-8 holds this byte.
pub(in crate::text) const BETWEEN: u8 = 0xFF;

/// `model.merges`: `["left right", ...]` or `[["left", "right"], ...]`.
#[derive(Default)]
pub(super) struct Merges(pub Buffer);

/// A string that stays in the JSON where it has no escapes.
#[derive(serde::Deserialize)]
struct Text<'j>(#[serde(borrow)] Cow<'j, str>);

impl<'j> DeserializeSeed<'j> for &mut Vocab {
    type Value = ();

    fn deserialize<D: Deserializer<'j>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'j> Visitor<'j> for &mut Vocab {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of token texts and ids")
    }

    fn visit_map<A: MapAccess<'j>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(text)) = map.next_key()? {
            let id: TokenId =
                map.next_value().map_err(|error| A::Error::custom(format!("the token {text:?}: {error}")))?;
            self.texts.push(&[text.as_bytes()])?;
            self.ids.push(id);
        }
        Ok(())
    }
}

impl<'j> DeserializeSeed<'j> for &mut Merges {
    type Value = ();

    fn deserialize<D: Deserializer<'j>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'j> Visitor<'j> for &mut Merges {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Merge(&mut self.0))?.is_some() {}
        Ok(())
    }
}

struct Merge<'b>(&'b mut Buffer);

impl<'j> DeserializeSeed<'j> for Merge<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'j>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'j> Visitor<'j> for Merge<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a merge: two tokens with a space between, or a list of two")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match text.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => {
                self.0.push(&[left.as_bytes(), &[BETWEEN], right.as_bytes()])
            }
            _ => Err(E::custom(format!("the merge {text:?} is not two tokens with a space between"))),
        }
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut seq: A) -> Result<(), A::Error> {
        let two = (seq.next_element::<Text>()?, seq.next_element::<Text>()?);
        match (two, seq.next_element::<Text>()?) {
            ((Some(left), Some(right)), None) => {
                self.0.push(&[left.0.as_bytes(), &[BETWEEN], right.0.as_bytes()])
            }
            _ => Err(A::Error::custom("a merge is not a list of two tokens")),
        }
    }
}
