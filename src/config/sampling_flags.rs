use super::{Given, Origin};
use crate::protocol::{PARAMS, ParamKind, ParamSpec};
use clap::{Arg, ArgAction, ArgMatches, Args, Command};

/// How the next token is chosen: a flag for every row of [`PARAMS`], read and checked as in all other
/// sources, so that a wrong value is named with its flag.
#[derive(Clone, Debug, Default)]
pub struct SamplingFlags(Vec<(&'static ParamSpec, Vec<String>)>);

impl SamplingFlags {
    pub fn given(&self) -> Vec<Given> {
        let given = |(spec, typed): &(&'static ParamSpec, Vec<String>)| match spec.kind {
            ParamKind::List => Given::list(spec.name, typed.clone(), Origin::Flag),
            _ => Given::new(spec.name, typed.last().map_or("", String::as_str), Origin::Flag),
        };
        self.0.iter().map(|one| given(one).expect("clap checked the same text already")).collect()
    }
}

/// Flags that read better by another of their names, and the one with a letter of its own.
fn long(spec: &ParamSpec) -> &'static str {
    match spec.name {
        "temperature" => "temp",
        "repetition_penalty" => "repeat-penalty",
        name => dashed(name),
    }
}

/// The name as flags are written. Leaked once for each row: clap wants names that live for ever.
fn dashed(name: &'static str) -> &'static str {
    if name.contains('_') { name.replace('_', "-").leak() } else { name }
}

fn flag(spec: &'static ParamSpec) -> Arg {
    let long = long(spec);
    let names = std::iter::once(spec.name).chain(spec.aliases.iter().copied());
    let aliases = names.map(dashed).filter(|name| *name != long && name.len() > 1);
    let flag = Arg::new(spec.name)
        .long(long)
        .aliases(aliases.collect::<Vec<_>>())
        .help(capitalised(spec.help))
        .help_heading("Sampling")
        .action(ArgAction::Append)
        .value_parser(move |typed: &str| checked(spec, typed));
    let flag = if spec.name == "max_tokens" { flag.short('n') } else { flag };
    match spec.kind {
        ParamKind::Real | ParamKind::Whole => flag.value_name(unit(spec)).allow_negative_numbers(true),
        ParamKind::List => flag.value_name(item(spec.name)).allow_hyphen_values(true),
        ParamKind::Choice(names) if names.contains(&"on") => {
            flag.value_name("ON").num_args(0..=1).require_equals(true).default_missing_value("on")
        }
        ParamKind::Choice(_) => flag.value_name("NAME"),
    }
}

/// What its value is called in the help.
fn unit(spec: &ParamSpec) -> &'static str {
    match (spec.name, spec.kind) {
        ("temperature", _) => "T",
        ("top_k", _) => "K",
        ("max_tokens" | "min_tokens", _) => "TOKENS",
        (name, ParamKind::Real) if name.ends_with("_p") => "P",
        (_, ParamKind::Real) => "X",
        _ => "N",
    }
}

/// What one value of a list is. Such a flag may be repeated.
fn item(name: &str) -> &'static str {
    match name {
        "logit_bias" => "ID=BIAS",
        "sampler_order" => "STAGES",
        name if name.ends_with("_ids") => "IDS",
        _ => "TEXT",
    }
}

fn checked(spec: &'static ParamSpec, typed: &str) -> Result<String, String> {
    let given = match spec.kind {
        ParamKind::List => Given::list(spec.name, vec![typed.to_owned()], Origin::Flag),
        _ => Given::new(spec.name, typed, Origin::Flag),
    };
    given.map(|_| typed.to_owned())
}

fn capitalised(help: &str) -> String {
    let mut chars = help.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// `logprobs` is told in JSON only: it stands among the flags of `run`'s output.
fn rows() -> impl Iterator<Item = &'static ParamSpec> {
    PARAMS.iter().filter(|spec| spec.name != "logprobs")
}

impl Args for SamplingFlags {
    fn augment_args(command: Command) -> Command {
        rows().fold(command, |command, spec| command.arg(flag(spec)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SamplingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |spec: &'static ParamSpec| {
            let values = matches.get_many::<String>(spec.name)?;
            Some((spec, values.cloned().collect()))
        };
        Ok(Self(rows().filter_map(typed).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
