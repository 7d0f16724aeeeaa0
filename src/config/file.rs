use super::options::ALIASES;
use super::{Given, Origin, SETTINGS};
use crate::base::nearest;
use crate::protocol::{PARAMS, ParamKind, ParamSpec, SCHEDULING};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Where in the configuration something is wrong, and what.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ConfigError {
    /// `file:line`, or the variable's name.
    pub place: String,
    pub message: String,
}

/// What a config file says.
#[derive(Clone, Default)]
pub struct ConfigFile {
    pub given: Vec<Given>,
    /// In the order of the file.
    pub models: Vec<ModelTable>,
}

/// `[models."PATTERN"]`: what holds for models of a name.
#[derive(Clone)]
pub struct ModelTable {
    pub pattern: String,
    pub given: Vec<Given>,
}

/// The values of a config file; none when there is no such file. `variable` looks up `${NAME}`.
pub fn from_file(path: &Path, variable: Lookup) -> Result<ConfigFile, ConfigError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Reader { path, text: &text, variable }.config(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(ConfigFile::default()),
        Err(e) => Err(ConfigError { place: path.display().to_string(), message: e.to_string() }),
    }
}

/// The values of a preset: one table of what a chat starts with.
pub fn from_preset(path: &Path, name: &str, variable: Lookup) -> Result<Vec<Given>, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| ConfigError { place: path.display().to_string(), message: e.to_string() })?;
    let reader = Reader { path, text: &text, variable };
    reader.values(&reader.root()?, &chat_keys(), |_| Origin::Preset(name.to_owned()))
}

/// `GLASSBOX_TEMPERATURE=0.2`: every setting by its name in capitals. Empty means unset.
pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Vec<Given>, ConfigError> {
    let names = ALIASES
        .iter()
        .map(|(alias, _)| *alias)
        .chain(PARAMS.iter().map(|p| p.name))
        .chain(SETTINGS.iter().map(|s| s.name))
        .chain(SCHEDULING.iter().map(|s| s.name));
    let mut given = Vec::new();
    for name in names {
        let place = format!("GLASSBOX_{}", name.to_uppercase());
        let Some(text) = variable(&place).filter(|text| !text.is_empty()) else { continue };
        let origin = Origin::Environment(place.clone());
        given.push(Given::new(name, &text, origin).map_err(|message| ConfigError { place, message })?);
    }
    Ok(given)
}

/// Looks up a variable of the environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One file, for places in it.
#[derive(Clone, Copy)]
struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    variable: Lookup<'a>,
}

type Entry<'t> = (&'t Spanned<DeString<'t>>, &'t Spanned<DeValue<'t>>);

impl<'a> Reader<'a> {
    fn root(&self) -> Result<DeTable<'a>, ConfigError> {
        let root = DeTable::parse(self.text);
        root.map(Spanned::into_inner)
            .map_err(|e| self.wrong(e.span().map_or(0, |span| span.start), e.message().to_owned()))
    }

    fn config(self) -> Result<ConfigFile, ConfigError> {
        let mut config = ConfigFile::default();
        for (table, content) in &self.root()? {
            let (name, at) = (table.get_ref().as_ref(), table.span().start);
            let keys = keys_of(name);
            if keys.is_none() && name != MODELS {
                return Err(self.wrong(at, unknown("table", name, TABLES.iter().copied().chain([MODELS]))));
            }
            let content = self.table(name, at, content)?;
            match keys {
                Some(keys) => config.given.extend(
                    self.values(content, &keys, |line| Origin::File { path: self.path.to_owned(), line })?,
                ),
                None => config.models = self.models(content)?,
            }
        }
        Ok(config)
    }

    fn models(&self, tables: &DeTable) -> Result<Vec<ModelTable>, ConfigError> {
        // Of two that match, the later one wins.
        let mut tables: Vec<Entry> = tables.iter().collect();
        tables.sort_by_key(|(pattern, _)| pattern.span().start);
        let model = |(pattern, content): Entry| {
            let (pattern, at) = (pattern.get_ref().to_string(), pattern.span().start);
            let content = self.table(&format!("{MODELS}.{pattern:?}"), at, content)?;
            let given = self.values(content, &chat_keys(), |line| Origin::ModelTable {
                path: self.path.to_owned(),
                line,
            })?;
            Ok(ModelTable { pattern, given })
        };
        tables.into_iter().map(model).collect()
    }

    fn table<'t>(
        &self,
        name: &str,
        at: usize,
        content: &'t Spanned<DeValue<'t>>,
    ) -> Result<&'t DeTable<'t>, ConfigError> {
        match content.get_ref() {
            DeValue::Table(content) => Ok(content),
            _ => Err(self.wrong(at, format!("{name} must be a table: [{name}]"))),
        }
    }

    /// `origin` is told the line.
    fn values(
        &self,
        table: &DeTable,
        keys: &[&str],
        origin: impl Fn(usize) -> Origin,
    ) -> Result<Vec<Given>, ConfigError> {
        let value = |(key, value): Entry| {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            if !keys.contains(&name) {
                return Err(self.wrong(at, unknown("key", name, keys.iter().copied())));
            }
            let origin = origin(self.line(at));
            let given = match name {
                SYSTEM_FILE => self.system_file(value.get_ref(), origin),
                name => read(name, value.get_ref(), origin, self.variable),
            };
            given.map_err(|message| self.wrong(at, message))
        };
        table.iter().map(value).collect()
    }

    /// The system prompt, from a file beside this one.
    fn system_file(&self, value: &DeValue, origin: Origin) -> Result<Given, String> {
        let path = self.path.with_file_name(scalar(value, self.variable)?);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Given::new("system", text.trim_end(), origin)
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.text[..offset.min(self.text.len())].matches('\n').count()
    }

    fn wrong(&self, offset: usize, message: String) -> ConfigError {
        ConfigError { place: format!("{}:{}", self.path.display(), self.line(offset)), message }
    }
}

const TABLES: [&str; 6] = ["sampling", "engine", "scheduler", "chat", "ui", "tools"];
/// Its tables are named by whom they are for.
const MODELS: &str = "models";
const SYSTEM_FILE: &str = "system_file";

/// What a preset and a model's table may set.
fn chat_keys() -> Vec<&'static str> {
    let of_chat = ["system", SYSTEM_FILE, "think", "think_budget"];
    PARAMS.iter().map(|p| p.name).chain(of_chat).collect()
}

fn keys_of(table: &str) -> Option<Vec<&'static str>> {
    match table {
        "sampling" => Some(PARAMS.iter().map(|p| p.name).collect()),
        "scheduler" => Some(SCHEDULING.iter().map(|s| s.name).collect()),
        _ if TABLES.contains(&table) => {
            let own = SETTINGS.iter().filter(|s| s.table == table).map(|s| s.name);
            let aliases = ALIASES.iter().map(|a| a.0).filter(|_| table == "engine");
            Some(own.chain(aliases).chain((table == "chat").then_some(SYSTEM_FILE)).collect())
        }
        _ => None,
    }
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let hint = match nearest(name, known.clone()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
    };
    format!("unknown {what} {name:?}; {hint}")
}

fn read(name: &str, value: &DeValue, origin: Origin, variable: Lookup) -> Result<Given, String> {
    let is_list = ParamSpec::find(name).is_some_and(|spec| spec.kind == ParamKind::List);
    if !is_list {
        return Given::new(name, &scalar(value, variable)?, origin);
    }
    let items = match value {
        DeValue::Array(items) => {
            items.iter().map(|item| scalar(item.get_ref(), variable)).collect::<Result<_, _>>()?
        }
        // `logit_bias = { 5 = 1.5 }`
        DeValue::Table(pairs) => pairs
            .iter()
            .map(|(key, item)| Ok(format!("{}={}", key.get_ref(), scalar(item.get_ref(), variable)?)))
            .collect::<Result<_, String>>()?,
        one => vec![scalar(one, variable)?],
    };
    Given::list(name, items, origin)
}

fn scalar(value: &DeValue, variable: Lookup) -> Result<String, String> {
    match value {
        DeValue::String(text) => expand(text, variable),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
            .map(|x| x.to_string())
            .map_err(|e| format!("{number}: {e}")),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Ok(yes.to_string()),
        _ => Err("expected a text, a number, true or false".into()),
    }
}

/// Replaces `${NAME}` by the variable's value; `$${` is a literal `${`.
fn expand(text: &str, variable: Lookup) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        let (name, after) =
            rest[at + 2..].split_once('}').ok_or_else(|| format!("no }} after ${{ in {text:?}"))?;
        out.push_str(&rest[..at]);
        out.push_str(&variable(name).ok_or_else(|| format!("the variable {name} is not set"))?);
        rest = after;
    }
    Ok(out + rest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn settings(text: &str) -> Result<Settings, String> {
        let home = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
        let reader = Reader { path: Path::new("config.toml"), text, variable: &home };
        reader.config().map(|file| Settings::resolve(file.given)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_file_sets_what_it_names() {
        let s = settings(
            "[sampling]\ntemperature = 0.2\ntop_k = 1_0\nseed = \"none\"\nstop = [\"END\", \"\\n\\n\"]\n\
             [engine]\nthreads = 2\nkv_memory = \"256MiB\"\nprefix_cache = \"off\"\n\
             models = \"${HOME}/models\"\n[ui]\nascii = true\n",
        )
        .unwrap();
        assert_eq!((s.sampling.temperature, s.sampling.top_k, s.sampling.seed), (0.2, 10, None));
        assert_eq!(s.sampling.stop, ["END", "\n\n"]);
        let lists = settings(
            "[sampling]\nlogit_bias = { 5 = 1.5, 7 = -2 }\nbanned_token_ids = [1, 2]\nsampler_order = 'hf'\n",
        );
        let lists = lists.unwrap().sampling;
        assert_eq!((lists.logit_bias, lists.banned_token_ids), ([(5, 1.5), (7, -2.0)].into(), vec![1, 2]));
        assert_eq!(lists.sampler_order.names(), ["hf"]);
        assert_eq!(s.options.engine.kv_cache_bytes, Some(256 << 20));
        assert_eq!(s.options.models.as_deref(), Some(Path::new("/home/ada/models")));
        assert!(s.options.ascii && s.options.engine.prefix_cache == crate::protocol::PrefixCache::Off);
        assert_eq!(s.origin("top_k").to_string(), "config.toml:3");
    }

    #[test]
    fn the_scheduler_has_a_table_and_its_old_keys_stay_where_they_were() {
        let s = settings(
            "[scheduler]\nschedule_policy = \"round-robin\"\ntime_slice_ms = 2.5\nasync_scheduling = true\n\
             [engine]\nmax_seqs = 4\nmax_batched_tokens = 64\nblock_size = 32\n",
        )
        .unwrap();
        let scheduler = &s.options.engine.scheduler;
        assert_eq!((scheduler.max_num_seqs, scheduler.max_num_batched_tokens), (4, 64));
        assert_eq!((scheduler.time_slice_ms, scheduler.async_scheduling), (2.5, true));
        assert_eq!(
            (s.options.engine.block_size, scheduler.schedule_policy.name()),
            (Some(32), "round-robin")
        );
        assert_eq!(s.origin("max_num_seqs").to_string(), "config.toml:6");
        assert_eq!(
            settings("[scheduler]\nbatchin = 'static'").unwrap_err(),
            "config.toml:2: unknown key \"batchin\"; did you mean \"batching\"?"
        );
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_its_neighbour() {
        assert_eq!(
            settings("[sampling]\n\ntemprature = 1\n").unwrap_err(),
            "config.toml:3: unknown key \"temprature\"; did you mean \"temperature\"?"
        );
        assert_eq!(
            settings("\n[samplin]\n").unwrap_err(),
            "config.toml:2: unknown table \"samplin\"; did you mean \"sampling\"?"
        );
        assert!(settings("[ui]\nlaser = 1").unwrap_err().contains("known are "));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line() {
        for (text, wanted) in [
            ("[sampling]\ntop_p = 2", "config.toml:2: top_p must be a number from 0 to 1, not 2"),
            ("[engine]\nthreads = [1]", "config.toml:2: expected a text"),
            ("[engine]\nmodels = '${NOWHERE}/x'", "config.toml:2: the variable NOWHERE is not set"),
            ("sampling = 3", "config.toml:1: sampling must be a table"),
            ("[engine]\nthreads = = 1", "config.toml:2: "),
            ("[sampling]\nstop = ''", "config.toml:2: stop must be a non-empty text"),
        ] {
            let said = settings(text).unwrap_err();
            assert!(said.starts_with(wanted), "{text}: {said}");
        }
    }

    #[test]
    fn variables_expand_and_can_be_written_literally() {
        let one = |name: &str| (name == "A").then(|| "1".to_owned());
        assert_eq!(expand("x${A}y${A}", &one).unwrap(), "x1y1");
        assert_eq!(expand("$${A} costs $5", &one).unwrap(), "${A} costs $5");
        assert!(expand("${A", &one).is_err());
    }

    #[test]
    fn the_environment_names_every_setting_in_capitals() {
        let env = |name: &str| match name {
            "GLASSBOX_TOP_K" => Some("5".to_owned()),
            "GLASSBOX_BATCHING" => Some("static".to_owned()),
            "GLASSBOX_MAX_SEQS" => Some("3".to_owned()),
            "GLASSBOX_THREADS" => Some(String::new()),
            _ => None,
        };
        let s = Settings::resolve(from_environment(env).unwrap());
        assert_eq!((s.sampling.top_k, s.options.engine.threads), (5, None));
        assert_eq!(s.origin("batching").to_string(), "GLASSBOX_BATCHING");
        assert_eq!(s.options.engine.scheduler.max_num_seqs, 3);
        let bad = from_environment(|name| (name == "GLASSBOX_SEED").then(|| "x".to_owned()));
        assert!(bad.err().unwrap().to_string().starts_with("GLASSBOX_SEED: seed must be"));
    }

    #[test]
    fn no_file_is_no_values() {
        let file = from_file(Path::new("/nonexistent/config.toml"), &|_| None).unwrap();
        assert!(file.given.is_empty() && file.models.is_empty());
    }
}
