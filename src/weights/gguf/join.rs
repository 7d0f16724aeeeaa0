//! The parts of a split model (`name-00001-of-00003.gguf`) as one: settings of the first, tensors of all.

use super::read::read_part;
use super::split::{Part, explain_unnamed};
use crate::weights::bytes::Bytes;
use crate::weights::checkpoint::{CheckpointError, Contents, Source};
use std::collections::HashSet;
use std::path::Path;

/// The whole model that a file is a part of; most are whole already.
pub(super) fn join(contents: Contents) -> Result<Contents, CheckpointError> {
    let (number, count) = place(&contents)?;
    if count <= 1 {
        return Ok(contents);
    }
    let path = contents.path.clone();
    let wrong = |problem: String| CheckpointError::Split { path: path.clone(), problem };
    let part = Part::from_name(&path).ok_or_else(|| wrong(explain_unnamed(number, count)))?;
    if (part.number as u64, part.count as u64) != (number, count) {
        let (named, of) = (part.number, part.count);
        return Err(wrong(format!(
            "its name says part {named} of {of}, and inside it is part {number} of {count}"
        )));
    }
    if let Some(missing) = part.missing(&path) {
        return Err(wrong(missing));
    }
    let this = part.number;
    let mut contents = Some(contents);
    let mut parts = (1..=part.count).map(|number| match contents.take_if(|_| number == this) {
        Some(contents) => Ok(contents),
        None => other(&part.path(&path, number), (number, part.count)),
    });
    let mut whole = parts.next().expect("at least two")?;
    parts.try_for_each(|part| add(&mut whole, part?))?;
    all_there(&whole).map_err(wrong)?;
    Ok(Contents { path, ..whole })
}

/// Which part, from 1, of how many a file says that it is.
fn place(contents: &Contents) -> Result<(u64, u64), CheckpointError> {
    let number = |key: &str, default: u64| match contents.metadata.get(key) {
        None => Ok(default),
        Some(value) => value.as_u64().ok_or_else(|| CheckpointError::WrongType {
            path: contents.path.clone(),
            key: key.to_owned(),
            wanted: "an integer from 0",
            found: value.describe(),
        }),
    };
    Ok((number("split.no", 0)?.saturating_add(1), number("split.count", 1)?))
}

fn other(path: &Path, (number, count): (usize, usize)) -> Result<Contents, CheckpointError> {
    let file = Bytes::map(path).map_err(|source| CheckpointError::Open { path: path.to_owned(), source })?;
    let contents = read_part(path, file)?;
    match place(&contents)? {
        (n, c) if (n, c) == (number as u64, count as u64) => Ok(contents),
        (n, c) => Err(CheckpointError::Split {
            path: path.to_owned(),
            problem: format!("its name says part {number} of {count}, and inside it is part {n} of {c}"),
        }),
    }
}

/// Its tensors lie in one more file.
fn add(whole: &mut Contents, part: Contents) -> Result<(), CheckpointError> {
    let first = whole.files.len();
    let twice = {
        let names: HashSet<&str> = whole.tensors.iter().map(|(info, _)| info.name.as_str()).collect();
        part.tensors
            .iter()
            .find(|(info, _)| names.contains(info.name.as_str()))
            .map(|(info, _)| info.name.clone())
    };
    if let Some(name) = twice {
        let problem = format!("tensor {name:?} is in an earlier part too");
        return Err(CheckpointError::Split { path: part.path, problem });
    }
    whole.tensors.extend(part.tensors.into_iter().map(|(info, source)| match source {
        Source::Plain { file, offset, bytes } => (info, Source::Plain { file: first + file, offset, bytes }),
        made => (info, made),
    }));
    whole.unsupported.extend(part.unsupported);
    whole.files.extend(part.files);
    Ok(())
}

/// As many tensors as the first part promises, where it does.
fn all_there(whole: &Contents) -> Result<(), String> {
    let found = (whole.tensors.len() + whole.unsupported.len()) as u64;
    match whole.metadata.get("split.tensors.count").and_then(|value| value.as_u64()) {
        Some(promised) if promised != found => {
            Err(format!("its parts have {found} tensors together, where the first promises {promised}"))
        }
        _ => Ok(()),
    }
}
