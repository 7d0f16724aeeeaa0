//! Chat templates in public use, against what transformers makes of them: the same text, or an error
//! where it has one.

use glassbox::text::{ChatTemplate, TemplateError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CONVERSATIONS: &str = include_str!("fixtures/text/conversations.json");

/// Golden data that is not ours to copy; `GLASSBOX_GOLDEN` says where it lies.
fn golden(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("GLASSBOX_GOLDEN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"), PathBuf::from);
    let path = root.join(folder);
    if !path.is_dir() {
        eprintln!("skipped: no golden data at {}", path.display());
        return None;
    }
    Some(path)
}

/// The clock of the golden data: 2025-01-02 03:04:05.
fn template(source: &str) -> Result<ChatTemplate, TemplateError> {
    let date = chrono::NaiveDate::from_ymd_opt(2025, 1, 2).expect("a date");
    let now = date.and_hms_opt(3, 4, 5).expect("a time");
    ChatTemplate::with_clock(source, move || now)
}

fn render(golden: &Value, conversation: &Value) -> Result<String, TemplateError> {
    let mut input = conversation.clone();
    input["bos_token"] = golden["bos_token"].clone();
    input["eos_token"] = golden["eos_token"].clone();
    input["unk_token"] = json!("<unk>");
    input["pad_token"] = golden["eos_token"].clone();
    template(golden["template"].as_str().expect("a template"))?.render(&input)
}

/// Of `"text"|safe + value` Jinja makes HTML, and so one template's tools reach the model as `&#34;`.
/// Nobody trained a model on that: here text stays text, and that difference is the only one.
fn as_text(template: &str, expected: &str) -> String {
    if !template.contains("|safe + ") {
        return expected.to_owned();
    }
    [("&#34;", "\""), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")]
        .iter()
        .fold(expected.to_owned(), |text, (html, plain)| text.replace(html, plain))
}

#[test]
fn templates_render_as_in_transformers() {
    let Some(folder) = golden("templates") else { return };
    let conversations: Value = serde_json::from_str(CONVERSATIONS).expect("the fixture is JSON");
    let (mut total, mut wrong) = (0, Vec::new());
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "json")) {
        let golden: Value = serde_json::from_slice(&std::fs::read(file).expect("readable")).expect("JSON");
        let Some(results) = golden["results"].as_object() else { continue };
        for (name, expected) in results {
            total += 1;
            let source = golden["template"].as_str().expect("a template");
            let rendered = render(&golden, &conversations[name]);
            let agrees = match (&rendered, expected["text"].as_str()) {
                (Ok(text), Some(expected)) => *text == as_text(source, expected),
                (rendered, expected) => rendered.is_err() && expected.is_none(),
            };
            if !agrees {
                let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                wrong.push(format!("{stem} / {name}\n  expected {expected}\n  rendered {rendered:?}"));
            }
        }
    }
    println!("{} of {total} renderings agree", total - wrong.len());
    assert!(wrong.is_empty(), "{} of {total} renderings differ:\n{}", wrong.len(), wrong.join("\n"));
}
