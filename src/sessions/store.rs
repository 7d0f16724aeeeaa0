//! Sessions in one SQLite file.

use super::schema;
use crate::protocol::{
    SessionChange, SessionId, SessionMeta, SessionRow, StoredAnswer, StoredSession, StoredTurn, TurnNumber,
    WhichSession,
};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, params};
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it was written by a later glassbox (version {found} of the file, this one knows {known})")]
    Newer { found: i64, known: i64 },
    #[error("session {session} holds what this version cannot read: {why}")]
    Unreadable { session: i64, why: String },
    #[error("there is no session {0}")]
    NoSession(String),
    #[error("{wanted:?} is in the titles of several sessions: {found}")]
    Several { wanted: String, found: String },
}

impl StoreError {
    /// The file itself is broken: trying again does not help.
    pub fn is_damage(&self) -> bool {
        let StoreError::Sqlite(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }
}

pub struct Store {
    path: PathBuf,
    connection: Connection,
}

/// Of the list and of what is found.
const MOST: i64 = 500;

impl Store {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// It cannot be made or written, it is broken, or a later version wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { path: path.to_owned(), connection: schema::open(path)? })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the file have so many pages: to see what happens when the disk is full.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn limit_pages(&self, pages: u32) -> Result<(), StoreError> {
        Ok(self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?)
    }

    /// All changes or none; the sessions that they make.
    ///
    /// # Errors
    /// The disk is full, the file is broken, another program writes for too long.
    pub fn save(
        &mut self,
        changes: &[(Option<SessionId>, &[SessionChange])],
    ) -> Result<Vec<SessionId>, StoreError> {
        let change = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let now = now_ms();
        let mut ids = Vec::new();
        for (id, changes) in changes {
            let id = match id {
                Some(id) => touch(&change, *id, now)?,
                None => insert(&change, now, now)?,
            };
            changes.iter().try_for_each(|one| apply(&change, id, one).or_else(of_nothing))?;
            ids.push(id);
        }
        change.commit()?;
        Ok(ids)
    }

    /// As a new session, with its own times if it has any.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub fn add(&mut self, session: &StoredSession) -> Result<SessionId, StoreError> {
        let change = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let or_now = |ms| if ms == 0 { now_ms() } else { ms };
        let id = insert(&change, or_now(session.created_ms), or_now(session.updated_ms))?;
        fill(&change, id, session)?;
        change.commit()?;
        Ok(id)
    }

    /// Puts a session back under its own number.
    pub(super) fn put_back(&mut self, id: SessionId, session: &StoredSession) -> Result<(), StoreError> {
        let change = self.connection.transaction()?;
        let values = params![id.0, session.created_ms, session.updated_ms];
        change.execute("INSERT INTO sessions (id, created_ms, updated_ms) VALUES (?, ?, ?)", values)?;
        fill(&change, id, session)?;
        Ok(change.commit()?)
    }

    /// The newest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<SessionRow>, StoreError> {
        self.rows(MOST)
    }

    fn rows(&self, most: i64) -> Result<Vec<SessionRow>, StoreError> {
        let sql = format!("{ROW} ORDER BY s.updated_ms DESC, s.id DESC LIMIT ?");
        let mut all = self.connection.prepare_cached(&sql)?;
        let rows = all.query_map([most], row)?.collect::<Result<_, _>>()?;
        Ok(rows)
    }

    /// # Errors
    /// There is none, or the file cannot be read.
    pub fn row(&self, id: SessionId) -> Result<SessionRow, StoreError> {
        let found = self.connection.query_row(&format!("{ROW} WHERE s.id = ?"), [id.0], row).optional()?;
        found.ok_or_else(|| StoreError::NoSession(id.0.to_string()))
    }

    /// Sessions in which every word is found, or begins one, in one message or in the title.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn search(&self, words: &str) -> Result<Vec<SessionRow>, StoreError> {
        let Some(query) = query(words) else { return self.list() };
        let sql = format!(
            "WITH hits AS MATERIALIZED (SELECT CAST(session AS INTEGER) AS session, rank AS score,
                                  snippet(words, 0, '\u{2}', '\u{3}', '…', 16) AS snippet
                           FROM words WHERE words MATCH ?1),
                  best AS (SELECT session, min(score) AS score, snippet FROM hits GROUP BY session)
             {ROW_WITH_SNIPPET} LEFT JOIN best b ON b.session = s.id
             WHERE b.session IS NOT NULL OR instr(lower(s.title), lower(?2)) > 0
             ORDER BY b.score IS NOT NULL, b.score, s.updated_ms DESC LIMIT {MOST}"
        );
        let mut all = self.connection.prepare_cached(&sql)?;
        let found = |r: &rusqlite::Row<'_>| {
            let snippet: Option<String> = r.get(6)?;
            Ok(SessionRow { snippet: snippet.as_deref().map(around), ..row(r)? })
        };
        let rows = all.query_map(params![query, words.trim()], found)?.collect::<Result<_, _>>()?;
        Ok(rows)
    }

    /// # Errors
    /// There is none, or the file cannot be read.
    pub fn find(&self, which: &WhichSession) -> Result<SessionId, StoreError> {
        let newest = "SELECT id FROM sessions ORDER BY updated_ms DESC, id DESC LIMIT 1";
        let found = match which {
            WhichSession::Newest => self.connection.query_row(newest, [], |r| r.get(0)).optional()?,
            WhichSession::Id(id) => {
                let one = "SELECT id FROM sessions WHERE id = ?";
                self.connection.query_row(one, [id.0], |r| r.get(0)).optional()?
            }
        };
        found.map(SessionId).ok_or_else(|| match which {
            WhichSession::Newest => StoreError::NoSession("yet".into()),
            WhichSession::Id(id) => StoreError::NoSession(id.0.to_string()),
        })
    }

    /// By number, by title, or by a part of a title that only one session has.
    ///
    /// # Errors
    /// None, or several.
    pub fn named(&self, wanted: &str) -> Result<SessionId, StoreError> {
        let wanted = wanted.trim();
        let all = self.rows(i64::MAX)?;
        if let Some(row) = all.iter().find(|row| row.id.0.to_string() == wanted) {
            return Ok(row.id);
        }
        let folded = wanted.to_lowercase();
        if let Some(row) = all.iter().find(|row| row.title.to_lowercase() == folded) {
            return Ok(row.id);
        }
        let mut parts = all.iter().filter(|row| row.title.to_lowercase().contains(&folded));
        match (parts.next(), parts.next()) {
            (Some(row), None) => Ok(row.id),
            (Some(a), Some(b)) => {
                let names = [a, b].into_iter().chain(parts.take(3));
                let found = names.map(|row| format!("{} ({})", row.title, row.id.0)).collect::<Vec<_>>();
                Err(StoreError::Several { wanted: wanted.into(), found: found.join(", ") })
            }
            _ => Err(StoreError::NoSession(format!("{wanted:?}"))),
        }
    }

    /// What is true of the session as a whole, without its turns.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn meta(&self, id: SessionId) -> Result<SessionMeta, StoreError> {
        Ok(self.head(id)?.meta)
    }

    /// # Errors
    /// There is none, or it cannot be read.
    pub fn load(&self, id: SessionId) -> Result<StoredSession, StoreError> {
        let mut session = self.head(id)?;
        session.turns = self.turns(id)?;
        self.answers(id, &mut session)?;
        Ok(session)
    }

    /// The session, its turns not read yet.
    fn head(&self, id: SessionId) -> Result<StoredSession, StoreError> {
        let one = "SELECT created_ms, updated_ms, data FROM sessions WHERE id = ?";
        let found = self.connection.query_row(one, [id.0], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
        });
        let (created_ms, updated_ms, data) =
            found.optional()?.ok_or_else(|| StoreError::NoSession(id.0.to_string()))?;
        Ok(StoredSession { meta: read(id, &data)?, created_ms, updated_ms, turns: Vec::new() })
    }

    /// # Errors
    /// There is none, or the file cannot be written.
    pub fn delete(&mut self, id: SessionId) -> Result<(), StoreError> {
        match self.connection.execute("DELETE FROM sessions WHERE id = ?", [id.0])? {
            0 => Err(StoreError::NoSession(id.0.to_string())),
            _ => Ok(()),
        }
    }

    /// Of every session whose number can still be read.
    pub(super) fn numbers(&self) -> Vec<SessionId> {
        let Ok(mut all) = self.connection.prepare("SELECT id FROM sessions") else { return Vec::new() };
        let Ok(rows) = all.query_map([], |row| row.get(0)) else { return Vec::new() };
        rows.map_while(Result::ok).map(SessionId).collect()
    }

    /// Whether all of the file can be read.
    ///
    /// # Errors
    /// What is broken.
    pub fn check(&self) -> Result<(), StoreError> {
        let check = "PRAGMA quick_check(1)";
        let found: String = self.connection.query_row(check, [], |row| row.get(0))?;
        match found.as_str() {
            "ok" => Ok(()),
            _ => {
                let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
                Err(rusqlite::Error::SqliteFailure(code, Some(found)).into())
            }
        }
    }

    fn turns(&self, id: SessionId) -> Result<Vec<StoredTurn>, StoreError> {
        let sql = "SELECT text, data FROM turns WHERE session = ? ORDER BY number";
        let mut all = self.connection.prepare_cached(sql)?;
        let mut rows = all.query([id.0])?;
        let mut turns = Vec::new();
        while let Some(row) = rows.next()? {
            let turn: StoredTurn = read(id, &row.get::<_, String>(1)?)?;
            turns.push(StoredTurn { text: row.get(0)?, ..turn });
        }
        Ok(turns)
    }

    fn answers(&self, id: SessionId, session: &mut StoredSession) -> Result<(), StoreError> {
        let sql =
            "SELECT turn, text, reasoning, data, row FROM answers WHERE session = ? ORDER BY turn, place";
        let mut all = self.connection.prepare_cached(sql)?;
        let mut rows = all.query([id.0])?;
        while let Some(row) = rows.next()? {
            let number: TurnNumber = row.get(0)?;
            let mut answer: StoredAnswer = read(id, &row.get::<_, String>(3)?)?;
            (answer.text, answer.reasoning) = (row.get(1)?, row.get(2)?);
            self.add_pieces(row.get(4)?, &mut answer)?;
            if let Ok(at) = session.turns.binary_search_by_key(&number, |turn| turn.number) {
                session.turns[at].answers.push(answer);
            }
        }
        Ok(())
    }

    fn add_pieces(&self, row: i64, answer: &mut StoredAnswer) -> Result<(), StoreError> {
        let sql = "SELECT text, reasoning FROM pieces WHERE answer = ? ORDER BY row";
        let mut all = self.connection.prepare_cached(sql)?;
        let mut rows = all.query([row])?;
        while let Some(row) = rows.next()? {
            answer.text += row.get_ref(0)?.as_str().unwrap_or_default();
            answer.reasoning += row.get_ref(1)?.as_str().unwrap_or_default();
        }
        Ok(())
    }
}

const ROW: &str = "SELECT s.id, s.title, s.model, s.created_ms, s.updated_ms,
    (SELECT count(*) FROM turns t WHERE t.session = s.id) +
    (SELECT count(*) FROM answers a WHERE a.session = s.id) FROM sessions s";
const ROW_WITH_SNIPPET: &str = "SELECT s.id, s.title, s.model, s.created_ms, s.updated_ms,
    (SELECT count(*) FROM turns t WHERE t.session = s.id) +
    (SELECT count(*) FROM answers a WHERE a.session = s.id), b.snippet FROM sessions s";

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: SessionId(row.get(0)?),
        title: row.get(1)?,
        model: row.get(2)?,
        created_ms: row.get(3)?,
        updated_ms: row.get(4)?,
        messages: row.get::<_, i64>(5)? as usize,
        snippet: None,
    })
}

/// A snippet that begins shortly before what was found, on one line.
fn around(snippet: &str) -> String {
    const BEFORE: usize = 16;
    let found = snippet.find('\u{2}').unwrap_or(0);
    let start = snippet[..found].char_indices().rev().nth(BEFORE).map_or(0, |(at, _)| at);
    // From a word on.
    let start =
        snippet[start..found].find(' ').filter(|_| start > 0).map_or(start, |space| start + space + 1);
    let cut = if start > 0 { "…" } else { "" };
    let text = snippet[start..].chars().filter(|c| !matches!(c, '\u{2}' | '\u{3}'));
    let line = text.map(|c| if c.is_whitespace() { ' ' } else { c });
    cut.chars().chain(line).collect()
}

/// Every word as FTS5 takes it: quoted, so that nothing in it is an operator, and as a beginning.
fn query(words: &str) -> Option<String> {
    let quoted: Vec<String> = words
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| format!("\"{word}\"*"))
        .collect();
    (!quoted.is_empty()).then(|| quoted.join(" "))
}

fn read<T: DeserializeOwned>(id: SessionId, data: &str) -> Result<T, StoreError> {
    serde_json::from_str(data).map_err(|e| StoreError::Unreadable { session: id.0, why: e.to_string() })
}

fn written<T: serde::Serialize>(data: &T) -> Result<String, StoreError> {
    serde_json::to_string(data).map_err(|e| io::Error::other(e).into())
}

fn insert(change: &Transaction<'_>, created_ms: i64, updated_ms: i64) -> Result<SessionId, StoreError> {
    let values = [created_ms, updated_ms];
    change.execute("INSERT INTO sessions (created_ms, updated_ms) VALUES (?, ?)", values)?;
    Ok(SessionId(change.last_insert_rowid()))
}

/// A session that another program has deleted meanwhile is there again.
fn touch(change: &Transaction<'_>, id: SessionId, now: i64) -> Result<SessionId, StoreError> {
    let sql = "INSERT INTO sessions (id, created_ms, updated_ms) VALUES (?1, ?2, ?2)
               ON CONFLICT (id) DO UPDATE SET updated_ms = ?2";
    change.prepare_cached(sql)?.execute([id.0, now])?;
    Ok(id)
}

fn fill(change: &Transaction<'_>, id: SessionId, session: &StoredSession) -> Result<(), StoreError> {
    set_meta(change, id, &session.meta)?;
    for turn in &session.turns {
        set_turn(change, id, turn)?;
        for (index, answer) in turn.answers.iter().enumerate() {
            set_answer(change, id, turn.number, index, answer)?;
        }
    }
    Ok(())
}

fn apply(change: &Transaction<'_>, id: SessionId, one: &SessionChange) -> Result<(), StoreError> {
    match one {
        SessionChange::Meta(meta) => set_meta(change, id, meta),
        SessionChange::Turn(turn) => set_turn(change, id, turn),
        SessionChange::TurnGone(number) => {
            let sql = "DELETE FROM turns WHERE session = ? AND number = ?";
            change.prepare_cached(sql)?.execute(params![id.0, number])?;
            Ok(())
        }
        SessionChange::Answer { turn, index, answer } => set_answer(change, id, *turn, *index, answer),
        SessionChange::Answers { turn, count } => {
            let sql = "DELETE FROM answers WHERE session = ? AND turn = ? AND place >= ?";
            change.prepare_cached(sql)?.execute(params![id.0, turn, *count as i64])?;
            Ok(())
        }
        SessionChange::More { turn, index, text, reasoning } => {
            let sql = "INSERT INTO pieces (answer, text, reasoning)
                       SELECT row, ?4, ?5 FROM answers WHERE session = ?1 AND turn = ?2 AND place = ?3";
            let values = params![id.0, turn, *index as i64, text, reasoning];
            change.prepare_cached(sql)?.execute(values)?;
            Ok(())
        }
        SessionChange::ToolCalls { turn, index, calls } => {
            let sql = "UPDATE answers SET data = json_set(data, '$.tool_calls', json(?4))
                       WHERE session = ?1 AND turn = ?2 AND place = ?3";
            let values = params![id.0, turn, *index as i64, written(calls)?];
            change.prepare_cached(sql)?.execute(values)?;
            Ok(())
        }
    }
}

/// An answer to a turn that is gone is gone too.
fn of_nothing(why: StoreError) -> Result<(), StoreError> {
    match &why {
        StoreError::Sqlite(e) if e.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => Ok(()),
        _ => Err(why),
    }
}

fn set_meta(change: &Transaction<'_>, id: SessionId, meta: &SessionMeta) -> Result<(), StoreError> {
    let sql = "UPDATE sessions SET title = ?2, model = ?3, data = ?4 WHERE id = ?1";
    let values = params![id.0, meta.title, meta.model, written(meta)?];
    change.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// Its text has a column of its own, and its answers rows.
fn set_turn(change: &Transaction<'_>, id: SessionId, turn: &StoredTurn) -> Result<(), StoreError> {
    let sql = "INSERT INTO turns (session, number, text, data) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (session, number) DO UPDATE SET text = ?3, data = ?4";
    let rest = StoredTurn { text: String::new(), answers: Vec::new(), ..turn.clone() };
    let values = params![id.0, turn.number, turn.text, written(&rest)?];
    change.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// With its whole text: what it was given in pieces is in that.
fn set_answer(
    change: &Transaction<'_>,
    id: SessionId,
    turn: TurnNumber,
    index: usize,
    answer: &StoredAnswer,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO answers (session, turn, place, text, reasoning, data)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (session, turn, place)
               DO UPDATE SET text = ?4, reasoning = ?5, data = ?6";
    let rest = StoredAnswer { text: String::new(), reasoning: String::new(), ..answer.clone() };
    let (index, data) = (index as i64, written(&rest)?);
    let values = params![id.0, turn, index, answer.text, answer.reasoning, data];
    change.prepare_cached(sql)?.execute(values)?;
    let sql = "DELETE FROM pieces WHERE answer =
               (SELECT row FROM answers WHERE session = ? AND turn = ? AND place = ?)";
    change.prepare_cached(sql)?.execute(params![id.0, turn, index])?;
    Ok(())
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
