//! Sessions on the command line: which one the screen goes on with, and `glassbox sessions`. Part of the
//! wiring, as `launch` is.

use crate::config::{ExportArgs, ScreenArgs, SessionsCommand};
use crate::launch::{Context, sessions_file};
use crate::protocol::{SessionFormat, SessionId, StoredSession, WhichSession};
use crate::script::{self, Quit, Status, written};
use crate::sessions::{self, Store, StoreError, TransferError};
use crate::tui::SessionOptions;
use std::io;
use std::path::Path;

/// What the screen goes on with: a session, and the model that answered in it.
pub struct Resumed {
    pub options: SessionOptions,
    pub model: Option<String>,
}

/// A session that is asked for by name must be there; the newest may not.
pub fn resumed(args: &ScreenArgs, context: &Context) -> Result<Resumed, Quit> {
    let kept = context.settings.options.save_sessions;
    let file = context.paths().filter(|_| kept).map(sessions_file);
    let mut resumed =
        Resumed { options: SessionOptions { on: true, file: file.clone(), resume: None }, model: None };
    if !args.resume && args.session.is_none() {
        return Ok(resumed);
    }
    let Some(file) = file else {
        let why = "sessions are not kept: --no-save, or save_sessions = false";
        return Err(Quit::new(Status::Usage, why));
    };
    if let Some(wanted) = &args.session {
        let store = existing(&file)?;
        let id = store.named(wanted).map_err(quit)?;
        resumed.model = model_of(&store, id, context);
        resumed.options.resume = Some(WhichSession::Id(id));
    } else {
        // A file that cannot be read is the screen's to tell of: the chat goes on.
        resumed.options.resume = Some(WhichSession::Newest);
        let store = file.exists().then(|| Store::open(&file)).and_then(Result::ok);
        resumed.model = store.and_then(|store| {
            let newest = store.list().ok()?.into_iter().next()?;
            model_of(&store, newest.id, context)
        });
    }
    Ok(resumed)
}

/// Who answered in a session, if it is on this computer: by its name, else where its file was.
fn model_of(store: &Store, id: SessionId, context: &Context) -> Option<String> {
    let meta = store.meta(id).ok()?;
    let there = |model: &String| context.store.find(model).is_ok();
    [meta.model, meta.model_path].into_iter().find(|model| !model.is_empty() && there(model))
}

pub fn command(command: &SessionsCommand) -> Result<Status, Quit> {
    let context = Context::read(Vec::new())?;
    let paths =
        context.paths().cloned().ok_or_else(|| Quit::new(Status::Failed, "this user has no home folder"))?;
    let file = sessions_file(&paths);
    let mut out = io::stdout().lock();
    written(match command {
        SessionsCommand::Ls { json } => {
            let rows = if file.exists() { existing(&file)?.list().map_err(quit)? } else { Vec::new() };
            script::print_sessions(&mut out, &rows, *json)
        }
        SessionsCommand::Search { words, json } => {
            let words = words.join(" ");
            let rows =
                if file.exists() { existing(&file)?.search(&words).map_err(quit)? } else { Vec::new() };
            script::print_sessions(&mut out, &rows, *json)
        }
        SessionsCommand::Show { session, json } => {
            let (_, session) = load(&file, session)?;
            let format = if *json { SessionFormat::Json } else { SessionFormat::Markdown };
            script::print_session(&mut out, &sessions::text(&session, format), *json)
        }
        SessionsCommand::Export(args) => return export(&file, args, &mut out),
        SessionsCommand::Import { files, json } => {
            let read = files.iter().map(|file| sessions::import(file).map_err(transfer));
            let read = read.collect::<Result<Vec<_>, _>>()?;
            let mut store = Store::open(&file).map_err(quit)?;
            let ids = read.iter().map(|session| store.add(&fresh(session)));
            let ids = ids.collect::<Result<Vec<_>, _>>().map_err(quit)?;
            let rows: Vec<_> = ids.iter().filter_map(|id| store.row(*id).ok()).collect();
            script::print_sessions(&mut out, &rows, *json)
        }
        SessionsCommand::Rm { sessions, json } => {
            let mut store = existing(&file)?;
            let ids = sessions.iter().map(|wanted| store.named(wanted).map_err(quit));
            let ids = ids.collect::<Result<Vec<_>, _>>()?;
            let rows: Vec<_> = ids.iter().filter_map(|id| store.row(*id).ok()).collect();
            for id in &ids {
                if !sessions::is_free(&file, *id) {
                    let why = format!("session {} is open in another glassbox", id.0);
                    return Err(Quit::new(Status::Busy, why).advise("close it there first"));
                }
                store.delete(*id).map_err(quit)?;
            }
            script::print_removed(&mut out, &rows, *json)
        }
    })
}

/// What is imported is new, whenever it was said.
fn fresh(session: &StoredSession) -> StoredSession {
    StoredSession { updated_ms: 0, ..session.clone() }
}

fn export(file: &Path, args: &ExportArgs, out: &mut impl io::Write) -> Result<Status, Quit> {
    let (_, session) = load(file, &args.session)?;
    let by_end = args.output.as_ref().and_then(|path| path.extension()?.to_str());
    let by_end = by_end.and_then(|end| SessionFormat::parse(end).ok());
    let format = args.format.or(by_end).unwrap_or(SessionFormat::Markdown);
    if args.output.as_ref().is_some_and(|path| path == Path::new("-")) {
        return written(script::print_session(out, &sessions::text(&session, format), true));
    }
    let path = sessions::export(&session, format, args.output.as_deref(), args.force).map_err(transfer)?;
    written(script::print_exported(out, &path))
}

fn existing(file: &Path) -> Result<Store, Quit> {
    if !file.exists() {
        return Err(Quit::new(Status::NoInput, "there are no sessions yet"));
    }
    Store::open(file).map_err(|e| {
        let path = file.display();
        match e.is_damage() {
            true => Quit::new(Status::Data, format!("{path} is damaged: {e}"))
                .advise("the screen sets it aside and keeps what can be read: glassbox -c"),
            false => Quit::new(Status::Failed, format!("{path}: {e}")),
        }
    })
}

fn load(file: &Path, wanted: &str) -> Result<(SessionId, StoredSession), Quit> {
    let store = existing(file)?;
    let id = store.named(wanted).map_err(quit)?;
    Ok((id, store.load(id).map_err(quit)?))
}

fn quit(error: StoreError) -> Quit {
    let status = match &error {
        StoreError::NoSession(_) => Status::NoInput,
        StoreError::Several { .. } => Status::Usage,
        StoreError::Unreadable { .. } => Status::Data,
        error if error.is_damage() => Status::Data,
        _ => Status::Failed,
    };
    let quit = Quit::new(status, error.to_string());
    match error {
        StoreError::NoSession(_) => quit.advise("glassbox sessions ls lists them"),
        StoreError::Several { .. } => quit.advise("name it by its number"),
        _ => quit,
    }
}

fn transfer(error: TransferError) -> Quit {
    let status = match &error {
        TransferError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Status::NoInput,
        TransferError::Io { .. } => Status::Failed,
        TransferError::Wrong { .. } => Status::Data,
        TransferError::Exists { .. } => Status::Usage,
    };
    let quit = Quit::new(status, error.to_string());
    if matches!(error, TransferError::Exists { .. }) { quit.advise("--force replaces it") } else { quit }
}
