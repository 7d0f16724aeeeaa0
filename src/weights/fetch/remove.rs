use super::lock;
use crate::weights::catalogue::CatalogueModel;
use crate::weights::dirs::ModelDirs;
use std::fs;
use std::io;
use std::path::Path;

/// Deletes a fetched model and what an interrupted fetch left; gives the bytes that became free. Files of a hub
/// cache belong to other programs and stay.
pub fn remove(model: &CatalogueModel, dirs: &ModelDirs) -> io::Result<u64> {
    let folder = dirs.root.join(&model.name);
    fs::symlink_metadata(&folder)?; // looking for a lock would make the folder it is in
    if lock::is_held(&dirs.root, &model.name) {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another glassbox is fetching it"));
    }
    let bytes = folder_bytes(&folder);
    fs::remove_dir_all(folder)?;
    Ok(bytes)
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => folder_bytes(&entry.path()),
        Ok(_) => entry.metadata().map_or(0, |meta| meta.len()),
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}
