use super::error::FetchError;
use std::path::Path;

/// Left alone, so that a fetch never fills a disk to the last byte.
const SPARE_BYTES: u64 = 32 << 20;

/// Refuses to start what cannot end.
pub(super) fn require(folder: &Path, needed: u64, free: Option<u64>) -> Result<(), FetchError> {
    let needed = needed.saturating_add(SPARE_BYTES);
    match free {
        Some(free) if free < needed => Err(FetchError::DiskFull { folder: folder.to_owned(), needed, free }),
        _ => Ok(()), // unknown is not a reason to refuse
    }
}

/// What this user may still write to the disk of an existing folder.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
        let mut stats = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends in a zero byte, and there is room for the one struct that is written.
        let failed = unsafe { libc::statvfs(path.as_ptr(), stats.as_mut_ptr()) } != 0;
        if failed {
            return None;
        }
        // SAFETY: statvfs returned 0, so it wrote the struct.
        let stats = unsafe { stats.assume_init() };
        #[allow(clippy::unnecessary_cast)] // the fields' widths differ between systems
        (stats.f_bavail as u64).checked_mul(stats.f_frsize as u64)
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_asked_for_before_anything_is_written() {
        let folder = std::env::temp_dir();
        assert!(require(&folder, 1 << 20, None).is_ok());
        assert!(require(&folder, 1 << 20, Some(64 << 20)).is_ok());
        assert!(require(&folder, 1 << 20, Some(1 << 20)).is_err(), "the spare counts");
        #[cfg(unix)]
        assert!(require(&folder, u64::MAX, free_bytes(&folder)).is_err());
        assert_eq!(free_bytes(Path::new("/no/such/folder")), None);
    }
}
