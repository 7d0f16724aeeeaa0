use super::error::{SourceError, Stop};
use super::transfer::Transfer;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

const CHUNK_BYTES: usize = 1 << 20;

/// Copies a file of this computer, from where the transfer stands.
pub(super) fn copy(transfer: &mut Transfer<'_, '_>, path: &Path) -> Result<(), Stop> {
    let failed = |source: io::Error| SourceError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let got = file.metadata().map_err(failed)?.len();
    if got != transfer.expected_len() {
        return Err(SourceError::WrongSize { expected: transfer.expected_len(), got }.into());
    }
    file.seek(SeekFrom::Start(transfer.len())).map_err(failed)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk).map_err(failed)? {
            0 => return Ok(()),
            read => transfer.write(&chunk[..read])?,
        }
    }
}
