#![allow(clippy::unwrap_used)]
use super::format::HEADER_BYTES;
use super::*;
use std::fs::{self, File};
use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::time::SystemTime;
use tempfile::TempDir;

const BYTES: usize = 100;
/// The bound of three blocks.
const THREE: u64 = 3 * (HEADER_BYTES + BYTES) as u64;

fn key(n: u8) -> CacheKey {
    CacheKey::from_bytes([n; 36])
}

fn block(n: u8) -> Vec<u8> {
    (0..BYTES as u8).map(|i| i.wrapping_mul(7) ^ n).collect()
}

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn open(dir: &TempDir) -> DiskStore {
    let (store, notes) = DiskStore::open(dir.path(), "model A", BYTES, 1 << 20).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    store
}

/// Opened anew, with what was noted.
fn reopen(dir: &TempDir) -> (DiskStore, String) {
    let (store, notes) = DiskStore::open(dir.path(), "model A", BYTES, 1 << 20).unwrap();
    (store, notes.join("\n"))
}

fn stored(dir: &TempDir, blocks: &[u8]) -> PathBuf {
    let mut store = open(dir);
    blocks.iter().for_each(|n| store.write(key(*n), block(*n)));
    store.flush();
    assert!(store.take_notes().is_empty());
    store.path.clone()
}

fn file(folder: &Path, n: u8) -> PathBuf {
    folder.join(format!("{}.kvblock", format!("{n:02x}").repeat(36)))
}

fn files(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".kvblock")).count()
}

fn get(store: &mut DiskStore, n: u8) -> Option<Vec<u8>> {
    store.read(key(n));
    store.wait(Duration::from_secs(60));
    let [(found, payload)] = store.poll().try_into().unwrap();
    assert_eq!(found, key(n));
    payload
}

#[test]
fn what_is_stored_comes_back() {
    let dir = dir();
    let mut store = open(&dir);
    assert!(!store.contains(&key(1)));
    store.write(key(1), block(1));
    assert!(store.contains(&key(1)));
    store.flush();
    assert_eq!(get(&mut store, 1), Some(block(1)));
    assert_eq!(get(&mut store, 2), None);
    assert!(store.poll().is_empty() && store.take_notes().is_empty());
    let view = store.view();
    assert_eq!((view.medium, view.used, view.stored, view.evicted), (Medium::Disk, 1, 1, 0));
    assert_eq!((view.queries, view.hits), (2, 1));
}

#[test]
fn a_read_is_answered_as_often_as_it_was_asked() {
    let dir = dir();
    stored(&dir, &[1, 2]);
    let mut store = open(&dir);
    [1, 2, 1].into_iter().for_each(|n| store.read(key(n)));
    let mut answers = Vec::new();
    while answers.len() < 3 {
        store.wait(Duration::from_secs(60));
        answers.extend(store.poll());
    }
    answers.sort();
    assert_eq!(answers, [(key(1), Some(block(1))), (key(1), Some(block(1))), (key(2), Some(block(2)))]);
    store.wait(Duration::from_secs(60));
    assert!(store.poll().is_empty());
}

#[test]
fn blocks_outlive_the_program() {
    let dir = dir();
    let folder = stored(&dir, &[1, 2]);
    let mut store = open(&dir);
    assert_eq!(store.view().used, 2);
    assert_eq!(get(&mut store, 2), Some(block(2)));
    assert!(fs::read_to_string(folder.join("identity.txt")).unwrap().contains("identity: model A\n"));
}

#[test]
fn closing_waits_for_what_was_accepted() {
    let dir = dir();
    let mut store = open(&dir);
    (1..=20).for_each(|n| store.write(key(n), block(n)));
    drop(store);
    assert_eq!(open(&dir).view().used, 20);
}

#[test]
fn another_model_or_another_block_size_sees_nothing() {
    let dir = dir();
    let folder = stored(&dir, &[1]);
    let (other, _) = DiskStore::open(dir.path(), "model B", BYTES, 1 << 20).unwrap();
    let (smaller, _) = DiskStore::open(dir.path(), "model A", BYTES - 1, 1 << 20).unwrap();
    assert!(!other.contains(&key(1)) && !smaller.contains(&key(1)));
    assert_eq!(files(&folder), 1);
}

#[test]
fn a_block_copied_from_another_models_folder_is_never_returned() {
    let dir = dir();
    let folder = stored(&dir, &[1]);
    let (other, _) = DiskStore::open(dir.path(), "model B", BYTES, 1 << 20).unwrap();
    let foreign = other.path.clone();
    drop(other);
    fs::copy(file(&folder, 1), file(&foreign, 1)).unwrap();
    let (mut other, _) = DiskStore::open(dir.path(), "model B", BYTES, 1 << 20).unwrap();
    assert_eq!(get(&mut other, 1), None);
    assert_eq!(other.take_notes().len(), 1);
}

#[test]
fn a_file_of_the_wrong_size_is_removed_with_a_note() {
    let dir = dir();
    let folder = stored(&dir, &[1, 2, 3, 4]);
    File::options().write(true).open(file(&folder, 1)).unwrap().set_len(50).unwrap();
    File::options().write(true).open(file(&folder, 2)).unwrap().set_len(0).unwrap();
    File::options().append(true).open(file(&folder, 3)).unwrap().write_all(b"x").unwrap();
    let (mut store, notes) = reopen(&dir);
    assert!(notes.contains("3 damaged, removed") && notes.contains(&folder.display().to_string()), "{notes}");
    assert_eq!((store.view().used, files(&folder)), (1, 1));
    assert_eq!((get(&mut store, 1), get(&mut store, 4)), (None, Some(block(4))));
}

#[test]
fn one_flipped_bit_anywhere_is_found() {
    let dir = dir();
    let folder = stored(&dir, &[1]);
    let whole = fs::read(file(&folder, 1)).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(file(&folder, 1), &damaged).unwrap();
        let mut store = open(&dir);
        assert_eq!(get(&mut store, 1), None, "byte {at}");
        assert!(!store.contains(&key(1)) && !file(&folder, 1).exists());
        let notes = store.take_notes();
        assert!(notes.len() == 1 && notes[0].ends_with("damaged or missing: 1"), "{notes:?}");
        assert_eq!((store.view().queries, store.view().hits), (1, 0));
    }
}

#[test]
fn a_block_under_another_name_is_never_returned() {
    let dir = dir();
    let folder = stored(&dir, &[1]);
    fs::rename(file(&folder, 1), file(&folder, 2)).unwrap();
    let (mut store, _) = reopen(&dir);
    assert_eq!((get(&mut store, 1), get(&mut store, 2)), (None, None));
    assert_eq!((store.take_notes().len(), files(&folder)), (1, 0));
}

#[test]
fn a_damaged_block_can_be_stored_again() {
    let dir = dir();
    let folder = stored(&dir, &[1]);
    fs::write(file(&folder, 1), [0; HEADER_BYTES + BYTES]).unwrap();
    let mut store = open(&dir);
    assert_eq!(get(&mut store, 1), None);
    store.write(key(1), block(1));
    store.flush();
    assert_eq!(get(&mut store, 1), Some(block(1)));
}

#[test]
fn a_file_that_vanished_is_a_miss_with_a_note() {
    let dir = dir();
    let folder = stored(&dir, &[1, 2]);
    let mut store = open(&dir);
    [1, 2].into_iter().for_each(|n| fs::remove_file(file(&folder, n)).unwrap());
    assert_eq!((get(&mut store, 1), get(&mut store, 2)), (None, None));
    let notes = store.take_notes();
    assert!(notes.len() == 1 && notes[0].ends_with(": 2"), "{notes:?}");
    assert!(store.take_notes().is_empty());
}

#[test]
fn foreign_files_are_counted_and_left_alone() {
    let dir = dir();
    let folder = stored(&dir, &[1]);
    let strange = ["notes.md", "abc.kvblock", &format!("{}.kvblock", "ZZ".repeat(36)), "x.tmp"];
    for name in strange {
        fs::write(folder.join(name), "mine").unwrap();
    }
    fs::create_dir(folder.join("photos")).unwrap();
    let (mut store, notes) = reopen(&dir);
    assert!(notes.contains("5 not cached blocks, ignored"), "{notes}");
    assert_eq!((store.view().used, get(&mut store, 1)), (1, Some(block(1))));
    assert!(strange.iter().all(|name| fs::read(folder.join(name)).unwrap() == b"mine"));
}

#[test]
fn what_a_kill_left_unfinished_is_cleaned_up() {
    let dir = dir();
    let folder = stored(&dir, &[1]);
    let unfinished = file(&folder, 2).with_extension("kvblock.tmp");
    fs::write(&unfinished, "half").unwrap();
    let (store, notes) = reopen(&dir);
    assert!(notes.contains("1 unfinished, removed"), "{notes}");
    assert_eq!((store.view().used, unfinished.exists()), (1, false));
}

#[test]
fn the_bound_holds_and_the_least_recently_used_goes() {
    let dir = dir();
    let (mut store, _) = DiskStore::open(dir.path(), "model A", BYTES, THREE + 50).unwrap();
    assert_eq!(store.view().blocks, 3);
    for n in 1..=3 {
        store.write(key(n), block(n));
    }
    store.flush();
    assert_eq!(get(&mut store, 1), Some(block(1)));
    store.write(key(4), block(4));
    store.flush();
    assert!(store.contains(&key(1)) && !store.contains(&key(2)));
    assert_eq!((files(&store.path), store.view().used, store.view().evicted), (3, 3, 1));
    assert_eq!((get(&mut store, 2), get(&mut store, 4)), (None, Some(block(4))));
}

#[test]
fn the_order_of_use_outlives_the_program() {
    let dir = dir();
    let folder = stored(&dir, &[1, 2, 3]);
    for (n, age) in [(1, 100), (2, 300), (3, 200)] {
        let then = SystemTime::now() - Duration::from_secs(age);
        File::options().write(true).open(file(&folder, n)).unwrap().set_modified(then).unwrap();
    }
    let mut store = open(&dir);
    assert_eq!(get(&mut store, 2), Some(block(2)));
    drop(store);
    let (store, _) = DiskStore::open(dir.path(), "model A", BYTES, THREE * 2 / 3).unwrap();
    assert!(store.contains(&key(1)) && store.contains(&key(2)) && !store.contains(&key(3)));
    drop(store);
    assert_eq!(files(&folder), 2);
}

#[test]
fn a_bound_below_one_block_stores_nothing() {
    let dir = dir();
    let (mut store, _) = DiskStore::open(dir.path(), "model A", BYTES, BYTES as u64).unwrap();
    store.write(key(1), block(1));
    store.flush();
    assert_eq!((store.contains(&key(1)), files(&store.path), store.view().blocks), (false, 0, 0));
}

#[test]
fn a_second_program_is_refused_by_name_and_does_not_wait() {
    let dir = dir();
    let first = open(&dir);
    let Err(error) = DiskStore::open(dir.path(), "model A", BYTES, 1 << 20) else { panic!("opened twice") };
    let said = error.to_string();
    assert!(said.contains(&first.path.display().to_string()), "{said}");
    #[cfg(unix)]
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    drop(first);
    open(&dir);
}

#[test]
fn a_place_that_cannot_hold_a_folder_is_refused_with_the_reason() {
    let dir = dir();
    let taken = dir.path().join("file");
    fs::write(&taken, "").unwrap();
    let Err(error) = DiskStore::open(&taken, "model A", BYTES, 1 << 20) else { panic!("opened in a file") };
    assert!(error.to_string().contains(&taken.display().to_string()), "{error}");
}

#[cfg(unix)]
#[test]
fn the_folder_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = dir();
    let folder = stored(&dir, &[1]);
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Takes some bytes, then has no room.
struct Full {
    file: File,
    room: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room);
        if taken == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= taken;
        self.file.write(&bytes[..taken])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open_on(dir: &TempDir, create: Create) -> DiskStore {
    DiskStore::open_with(dir.path(), "model A", BYTES, 1 << 20, create).unwrap().0
}

/// One note, then silence; what was stored before is still read.
fn degrades(create: Create, reason: &str) {
    let dir = dir();
    let folder = stored(&dir, &[1]);
    let mut store = open_on(&dir, create);
    (2..=5).for_each(|n| store.write(key(n), block(n)));
    store.flush();
    store.write(key(6), block(6));
    store.flush();
    let notes = store.take_notes();
    assert!(notes.len() == 1 && notes[0].contains(reason), "{notes:?}");
    assert!((2..=6).all(|n| !store.contains(&key(n))));
    assert_eq!((get(&mut store, 1), get(&mut store, 2)), (Some(block(1)), None));
    assert_eq!((files(&folder), store.view().stored, store.take_notes().len()), (1, 0, 0));
}

#[test]
fn a_full_disk_is_a_note() {
    let full = |path: &Path| Ok(Box::new(Full { file: File::create(path)?, room: 120 }) as Box<dyn Write>);
    degrades(Box::new(full), &io::Error::from(io::ErrorKind::StorageFull).to_string());
}

#[test]
fn a_folder_that_can_only_be_read_is_a_note() {
    let refused = |_: &Path| Err(io::ErrorKind::PermissionDenied.into());
    degrades(Box::new(refused), &io::Error::from(io::ErrorKind::PermissionDenied).to_string());
}

/// A disk that writes a block only when told to.
fn slow_disk() -> (Sender<()>, Create) {
    let (go, gate) = channel();
    let create = move |path: &Path| {
        gate.recv().unwrap();
        Ok(Box::new(File::create(path)?) as Box<dyn Write>)
    };
    (go, Box::new(create))
}

#[test]
fn what_still_waits_to_be_written_is_read_from_memory() {
    let dir = dir();
    let (go, create) = slow_disk();
    let mut store = open_on(&dir, create);
    store.write(key(1), block(1));
    store.read(key(1));
    assert_eq!(store.poll(), [(key(1), Some(block(1)))]);
    assert_eq!(store.view().stored, 0);
    go.send(()).unwrap();
    store.flush();
    assert_eq!((get(&mut store, 1), store.view().stored), (Some(block(1)), 1));
}

#[test]
fn a_read_passes_the_writes_that_wait() {
    let dir = dir();
    stored(&dir, &[1]);
    let (go, create) = slow_disk();
    let mut store = open_on(&dir, create);
    (2..=4).for_each(|n| store.write(key(n), block(n)));
    store.read(key(1));
    go.send(()).unwrap();
    store.wait(Duration::from_secs(60));
    assert_eq!(store.poll(), [(key(1), Some(block(1)))]);
    assert!(store.view().stored <= 1);
    (0..2).for_each(|_| go.send(()).unwrap());
    store.flush();
    assert_eq!(store.view().stored, 3);
}

#[test]
fn more_than_may_wait_is_dropped_and_counted() {
    let dir = dir();
    let (go, create) = slow_disk();
    let mut store = open_on(&dir, create);
    store.most_waiting = 2;
    (1..=5).for_each(|n| store.write(key(n), block(n)));
    assert_eq!((store.dropped(), store.view().used), (3, 2));
    (0..3).for_each(|_| go.send(()).unwrap());
    store.flush();
    store.write(key(5), block(5));
    store.flush();
    assert!(store.contains(&key(1)) && !store.contains(&key(3)) && store.contains(&key(5)));
    assert_eq!((store.dropped(), store.view().stored), (3, 3));
}

#[test]
fn a_bound_smaller_than_what_waits_drops_the_new_block() {
    let dir = dir();
    let (go, create) = slow_disk();
    let (mut store, _) = DiskStore::open_with(dir.path(), "model A", BYTES, THREE, create).unwrap();
    (1..=4).for_each(|n| store.write(key(n), block(n)));
    assert_eq!((store.dropped(), store.view().used, store.view().evicted), (1, 3, 0));
    (0..4).for_each(|_| go.send(()).unwrap());
    store.flush();
    store.write(key(4), block(4));
    store.flush();
    assert_eq!((files(&store.path), store.contains(&key(1)), store.contains(&key(4))), (3, false, true));
}

#[test]
fn a_disk_thread_that_died_leaves_nobody_waiting() {
    let dir = dir();
    stored(&dir, &[1]);
    let mut store = open_on(&dir, Box::new(|_: &Path| panic!("the thread of this test dies")));
    store.write(key(2), block(2));
    store.flush();
    store.read(key(1));
    store.wait(Duration::from_secs(60));
    assert_eq!(store.poll(), [(key(1), None)]);
    assert_eq!(store.take_notes().len(), 1);
    store.write(key(3), block(3));
    store.flush();
    assert!(!store.contains(&key(3)));
}
