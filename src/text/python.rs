use super::json::{JsonStyle, to_json};
use chrono::NaiveDateTime;
use minijinja::value::{
    Enumerator, Kwargs, Object, ObjectRepr, Rest, Tuple, ValueKind, ValueOrKwargs, from_args,
};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};
use minijinja_contrib::pycompat;
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

/// What templates expect of Python and of transformers, beyond what the engine has by itself.
pub(super) fn install(
    env: &mut Environment<'static>,
    now: impl Fn() -> NaiveDateTime + Send + Sync + 'static,
) {
    env.set_unknown_method_callback(method);
    env.add_filter("tojson", tojson);
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    env.add_test("none", is_none);
    env.add_test("iterable", |value: &Value| !is_none(value) && value.try_iter().is_ok());
    generators(env);
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    env.add_function("strftime_now", move |format: &str| strftime(now(), format));
}

/// Python's filters return generators: always true, without a length, not for JSON. A template that
/// leans on one of those must see the same here.
fn generators(env: &mut Environment<'static>) {
    type Args = Rest<ValueOrKwargs>;
    env.add_filter("map", |state: &mut State, value: Value, args: Args| {
        filters::map(state, or_empty(value), args).map(Generator::over)
    });
    env.add_filter("select", |state: &mut State, value: Value, test: Option<Cow<str>>, args: Args| {
        filters::select(state, or_empty(value), test, args).map(Generator::over)
    });
    env.add_filter("reject", |state: &mut State, value: Value, test: Option<Cow<str>>, args: Args| {
        filters::reject(state, or_empty(value), test, args).map(Generator::over)
    });
    env.add_filter(
        "selectattr",
        |state: &mut State, value: Value, name: Cow<str>, test: Option<Cow<str>>, args: Args| {
            filters::selectattr(state, or_empty(value), name, test, args).map(Generator::over)
        },
    );
    env.add_filter(
        "rejectattr",
        |state: &mut State, value: Value, name: Cow<str>, test: Option<Cow<str>>, args: Args| {
            filters::rejectattr(state, or_empty(value), name, test, args).map(Generator::over)
        },
    );
}

/// Those filters take nothing (none, undefined, an empty text) for an empty list.
fn or_empty(value: Value) -> Value {
    if value.is_true() { value } else { Value::from(Vec::<Value>::new()) }
}

#[derive(Debug)]
struct Generator(Vec<Value>);

impl Generator {
    fn over(items: Vec<Value>) -> Value {
        Value::from_object(Generator(items))
    }
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// None where a loop over it, or a look into it, must be an error, as it is in Python; the engine's
/// own none is an empty list to a loop.
#[derive(Debug)]
pub(super) struct Absent;

impl Object for Absent {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let refused = || Value::from(Error::new(ErrorKind::InvalidOperation, "none is not iterable"));
        Enumerator::Iter(Box::new(std::iter::once_with(refused)))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn is_true(self: &Arc<Self>) -> bool {
        false
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("None")
    }
}

pub(super) fn is_none(value: &Value) -> bool {
    value.is_none() || value.downcast_object_ref::<Absent>().is_some()
}

/// What a template said when it refused a conversation.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub String);

fn strftime(time: NaiveDateTime, format: &str) -> Result<String, Error> {
    let mut text = String::new();
    write!(text, "{}", time.format(format)).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not know the format {format:?}"))
    })?;
    Ok(text)
}

/// transformers' `tojson`: Python's `json.dumps`, with `ensure_ascii` off.
fn tojson(
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<Value>,
    separators: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let ensure_ascii = ensure_ascii.or(kwargs.get("ensure_ascii")?).unwrap_or(false);
    let indent = indent.or(kwargs.get("indent")?).filter(|indent| !indent.is_none());
    let separators = separators.or(kwargs.get("separators")?).filter(|pair| !pair.is_none());
    let sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let indent = indent.map(indent_text).transpose()?;
    let default = (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    let (item_separator, key_separator) = separators.map_or(Ok(default), separator_pair)?;
    to_json(value, &JsonStyle { ensure_ascii, indent, item_separator, key_separator, sort_keys })
}

fn indent_text(indent: Value) -> Result<String, Error> {
    match indent.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Ok(" ".repeat(usize::try_from(indent)?.min(64))),
    }
}

fn separator_pair(pair: Value) -> Result<(String, String), Error> {
    let texts: Vec<String> = pair.try_iter()?.map(|part| part.to_string()).collect();
    <[String; 2]>::try_from(texts)
        .map(|[item, key]| (item, key))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators must be a pair"))
}

/// Python's methods of strings, lists and dicts: those of minijinja-contrib, and some it lacks.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    let parts = |cut: Option<(&str, &str)>, separator: &str, whole: [&str; 3]| {
        let parts = cut.map_or(whole, |(before, after)| [before, separator, after]);
        Value::from(Tuple::from(parts.map(Value::from)))
    };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(parts(text.split_once(separator), separator, [text, "", ""]))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(parts(text.rsplit_once(separator), separator, ["", "", text]))
        }
        "rsplit" => {
            let (separator, most): (&str, Option<usize>) = from_args(args)?;
            let mut parts: Vec<&str> = text.rsplitn(most.map_or(usize::MAX, |n| n + 1), separator).collect();
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}
