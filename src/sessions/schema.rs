//! The tables, and a file that has them.

use super::store::StoreError;
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// One step from each version of the file to the next. Version 0 is an empty file.
const MIGRATIONS: [&str; 1] = [FIRST];

/// `pieces` are what an answer has been given since it began; when it ends they are one text. What is
/// looked through follows the texts by triggers: the row of a turn is even, that of an answer odd.
const FIRST: &str = "
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    data TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX sessions_by_age ON sessions (updated_ms);
CREATE TABLE turns (
    row INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (session, number)
);
CREATE TABLE answers (
    row INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    place INTEGER NOT NULL,
    text TEXT NOT NULL,
    reasoning TEXT NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (session, turn, place),
    FOREIGN KEY (session, turn) REFERENCES turns (session, number) ON DELETE CASCADE
);
CREATE TABLE pieces (
    row INTEGER PRIMARY KEY,
    answer INTEGER NOT NULL REFERENCES answers ON DELETE CASCADE,
    text TEXT NOT NULL,
    reasoning TEXT NOT NULL
);
CREATE INDEX pieces_of_answer ON pieces (answer);
CREATE VIRTUAL TABLE words USING fts5 (text, session UNINDEXED, tokenize = 'unicode61 remove_diacritics 2');
CREATE TRIGGER turn_said AFTER INSERT ON turns WHEN new.text <> '' BEGIN
    INSERT INTO words (rowid, text, session) VALUES (2 * new.row, new.text, new.session);
END;
CREATE TRIGGER turn_changed AFTER UPDATE OF text ON turns WHEN old.text <> new.text BEGIN
    DELETE FROM words WHERE rowid = 2 * old.row;
    INSERT INTO words (rowid, text, session) VALUES (2 * new.row, new.text, new.session);
END;
CREATE TRIGGER turn_gone AFTER DELETE ON turns BEGIN
    DELETE FROM words WHERE rowid = 2 * old.row;
END;
CREATE TRIGGER answer_said AFTER INSERT ON answers WHEN new.text <> '' BEGIN
    INSERT INTO words (rowid, text, session) VALUES (2 * new.row + 1, new.text, new.session);
END;
CREATE TRIGGER answer_changed AFTER UPDATE OF text ON answers WHEN old.text <> new.text BEGIN
    DELETE FROM words WHERE rowid = 2 * old.row + 1;
    INSERT INTO words (rowid, text, session) VALUES (2 * new.row + 1, new.text, new.session);
END;
CREATE TRIGGER answer_gone AFTER DELETE ON answers BEGIN
    DELETE FROM words WHERE rowid = 2 * old.row + 1;
END;
";

/// Another program may be writing for so long.
const BUSY: Duration = Duration::from_secs(3);

/// Opens the file. One that is new appears whole or not at all: a full disk leaves no empty file.
pub fn open(path: &Path) -> Result<Connection, StoreError> {
    if !path.exists() {
        create(path)?;
    }
    let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    migrate(&mut connection)?;
    // Fails where another program is at this very moment: what is set then, is set.
    let _ = connection.pragma_update(None, "journal_mode", "wal");
    connection.pragma_update(None, "synchronous", "normal")?;
    Ok(connection)
}

fn create(path: &Path) -> Result<(), StoreError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let made = empty(&draft).and_then(|()| {
        let mut connection = Connection::open_with_flags(&draft, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        migrate(&mut connection)?;
        connection.close().map_err(|(_, why)| why)?;
        match fs::hard_link(&draft, path) {
            // Another program was quicker.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            // Not every file system knows links.
            Err(_) => Ok(fs::rename(&draft, path)?),
            Ok(()) => Ok(()),
        }
    });
    // After a rename it is not there any more.
    let _ = fs::remove_file(&draft);
    made
}

/// For nobody else to read.
fn empty(path: &Path) -> Result<(), StoreError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?;
    Ok(())
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let is_new = MIGRATIONS.len() as i64;
    let version = |c: &Connection| c.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    if version(connection)? == is_new {
        return Ok(());
    }
    let change = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Asked again: another program may just have done it.
    let found = version(&change)?;
    if found > is_new {
        return Err(StoreError::Newer { found, known: is_new });
    }
    for step in &MIGRATIONS[found as usize..] {
        change.execute_batch(step)?;
    }
    change.pragma_update(None, "user_version", is_new)?;
    Ok(change.commit()?)
}
