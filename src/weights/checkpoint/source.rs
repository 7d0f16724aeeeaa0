use super::super::bytes::Bytes;
use crate::weights::quantize::Losses;
use crate::weights::recode::{can_encode, recode};
use crate::weights::{BlockFormat, Loss};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The mapped files of a checkpoint.
pub(in crate::weights) type Files = [Arc<Bytes>];

/// Makes a tensor's blocks from what lies in the files.
///
/// # Errors
/// What is wrong with what lies there.
pub(in crate::weights) type Make = dyn Fn(&Files) -> Result<Vec<u8>, String> + Send + Sync;

/// Where a tensor's blocks come from.
#[derive(Clone)]
pub(in crate::weights) enum Source {
    /// As they lie in a file.
    Plain { file: usize, offset: usize, bytes: usize },
    /// One after the other, along the outermost dimension, all of one size: the experts of a layer.
    Stack(Vec<Source>),
    /// From other tensors, when they are asked for: a transposed matrix, four-bit groups, a square's scales.
    Made(Arc<Make>),
    /// In another format than `of` has.
    Encoded { of: Box<Source>, from: BlockFormat, to: BlockFormat },
    /// The same, told to `losses`: what the tensor of that name lost.
    Quantized { of: Box<Source>, from: BlockFormat, to: BlockFormat, losses: Arc<Losses>, name: Arc<str> },
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Plain { file, offset, bytes } => write!(f, "{bytes} bytes at {offset} of file {file}"),
            Source::Stack(parts) => f.debug_list().entries(parts).finish(),
            Source::Made(_) => f.write_str("made"),
            Source::Encoded { of, from, to } | Source::Quantized { of, from, to, .. } => {
                write!(f, "{of:?}, {} as {}", from.name(), to.name())
            }
        }
    }
}

impl Source {
    pub(in crate::weights) fn read<'a>(&self, files: &'a Files) -> Result<Cow<'a, [u8]>, String> {
        match self {
            Source::Plain { file, offset, bytes } => {
                Ok(Cow::Borrowed(&files[*file][*offset..*offset + *bytes]))
            }
            Source::Stack(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    all.extend_from_slice(&part.read(files)?);
                }
                Ok(Cow::Owned(all))
            }
            Source::Made(make) => make(files).map(Cow::Owned),
            Source::Encoded { of, from, to } => {
                can_encode(*to)?;
                recode(&of.read(files)?, *from, *to, None).map(Cow::Owned)
            }
            Source::Quantized { of, from, to, losses, name } => {
                can_encode(*to)?;
                let mut loss = Loss::default();
                let blocks = recode(&of.read(files)?, *from, *to, Some(&mut loss))?;
                losses.add(name, *from, *to, loss);
                Ok(Cow::Owned(blocks))
            }
        }
    }

    /// Part `index` of `count` equal ones, where that needs no reading of the others.
    pub(in crate::weights) fn part(&self, index: usize, count: usize) -> Option<Source> {
        match self {
            Source::Plain { file, offset, bytes } => {
                let bytes = bytes / count;
                Some(Source::Plain { file: *file, offset: offset + index * bytes, bytes })
            }
            Source::Stack(parts) if parts.len() == count => Some(parts[index].clone()),
            Source::Encoded { of, from, to } => {
                Some(Source::Encoded { of: Box::new(of.part(index, count)?), from: *from, to: *to })
            }
            Source::Quantized { of, from, to, losses, name } => Some(Source::Quantized {
                of: Box::new(of.part(index, count)?),
                from: *from,
                to: *to,
                losses: losses.clone(),
                name: name.clone(),
            }),
            Source::Stack(_) | Source::Made(_) => None,
        }
    }

    /// What is encoded, where that is all that is done to it.
    pub(in crate::weights) fn encoded(&self) -> Option<&Source> {
        match self {
            Source::Encoded { of, .. } | Source::Quantized { of, .. } => Some(of.encoded().unwrap_or(of)),
            _ => None,
        }
    }

    /// Its place, where it is one.
    pub(in crate::weights) fn place(&self) -> Option<(usize, Range<usize>)> {
        match self {
            Source::Plain { file, offset, bytes } => Some((*file, *offset..*offset + *bytes)),
            _ => None,
        }
    }
}
