use super::join::join;
use super::parse::{MAGIC, PREAMBLE_BYTES, parse};
use super::split::Part;
use crate::weights::BlockFormat;
use crate::weights::bytes::Bytes;
use crate::weights::checkpoint::{
    Checkpoint, CheckpointError, Contents, Kind, Origin, Source, TensorInfo, UnsupportedTensor,
};
use std::path::Path;
use std::sync::Arc;

/// Reads the header of a file, and of the other parts where it is one of several; tensors stay where they are.
pub(in crate::weights) fn read(path: &Path, file: Bytes) -> Result<Checkpoint, CheckpointError> {
    join(read_part(path, file)?).map(Checkpoint::new)
}

/// One file, whether it is all of a model or a part.
pub(super) fn read_part(path: &Path, file: Bytes) -> Result<Contents, CheckpointError> {
    let read = version(path, &file).and_then(|version| read_version(path, file, version));
    match (read, Part::from_name(path).filter(Part::is_cut_by_bytes)) {
        // A part that was cut off by bytes looks damaged, and its name tells why.
        (Err(CheckpointError::NotGguf { .. } | CheckpointError::Damaged { .. }), Some(part)) => {
            Err(CheckpointError::Split { path: path.to_owned(), problem: part.explain(path) })
        }
        (read, _) => read,
    }
}

fn read_version(path: &Path, file: Bytes, version: u32) -> Result<Contents, CheckpointError> {
    let file = Arc::new(file);
    let header = parse(&file).map_err(|damage| damage.in_file(path))?;
    let mut tensors = Vec::with_capacity(header.tensors.len());
    let mut unsupported = Vec::new();
    for (described, offset) in header.tensors {
        let (name, dims, bytes) = (described.name, described.dims, described.bytes);
        match BlockFormat::from_ggml_type(described.kind.number) {
            Some(format) => {
                let source = Source::Plain { file: 0, offset, bytes };
                tensors.push((TensorInfo { name, dims, format, offset, bytes }, source));
            }
            None => unsupported.push(UnsupportedTensor { name, dims, format: described.kind.name, bytes }),
        }
    }
    Ok(Contents {
        path: path.to_owned(),
        kind: Kind::Gguf { version },
        files: vec![file],
        metadata: header.metadata,
        tensors,
        unsupported,
        origin: Origin::default(),
    })
}

/// Checks magic and byte order, and gives the version.
fn version(path: &Path, file: &[u8]) -> Result<u32, CheckpointError> {
    let not_gguf = |problem: String| CheckpointError::NotGguf { path: path.to_owned(), problem };
    if !file.starts_with(MAGIC) {
        return Err(not_gguf(match file {
            [] => "it is empty".to_owned(),
            file if file.starts_with(b"version https://git-lfs") => {
                "it is a Git LFS pointer, and the file it points to was not downloaded".to_owned()
            }
            file => format!("it starts with \"{}\"", file[..file.len().min(8)].escape_ascii()),
        }));
    }
    let Some(version) = file.get(MAGIC.len()..PREAMBLE_BYTES) else {
        return Err(not_gguf(format!("it ends after {} bytes", file.len())));
    };
    let version = u32::from_le_bytes(version.try_into().expect("four bytes"));
    match version {
        2 | 3 => Ok(version),
        swapped if swapped != 0 && swapped & 0xFFFF == 0 => {
            Err(CheckpointError::BigEndian { path: path.to_owned() })
        }
        version => Err(CheckpointError::Version { path: path.to_owned(), version }),
    }
}
