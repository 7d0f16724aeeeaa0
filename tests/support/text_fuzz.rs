//! What any bytes as a tokenizer.json, and any text as a chat template, must not do: panic, hang, or let text
//! become a control token. Used by the fuzz targets, and by the runner of `tests/text_fuzz.rs`.

use glassbox::protocol::{Message, Prompt, Role};
use glassbox::text::{HubFiles, OutputOptions, Specials, TextModel, VocabSpec};
use serde_json::json;

/// Whether the bytes were a tokenizer after all.
pub fn tokenizer(bytes: &[u8], text: &str) -> bool {
    let files = HubFiles { tokenizer: bytes.to_vec(), ..HubFiles::default() };
    let Ok(spec) = VocabSpec::from_hub(&files) else { return false };
    let unknown = spec.unk;
    let Ok(model) = TextModel::new(spec) else { return false };
    for specials in [Specials::Text, Specials::Parse] {
        let ids = model.encode(text, specials);
        let mut output = model.output(OutputOptions::default());
        for id in ids {
            assert!((id as usize) < model.vocab_size(), "{id} of {}", model.vocab_size());
            let may_be_control = specials == Specials::Parse || Some(id) == unknown;
            assert!(may_be_control || !model.is_control(id), "{text:?} became the control token {id}");
            output.push(id);
        }
        output.finish();
    }
    true
}

/// Whether it was rendered.
pub fn template(source: &str, said: &str) -> bool {
    let Ok(model) = TextModel::bytes().with_chat_template(source) else { return false };
    let chat = [(Role::System, "s"), (Role::User, said), (Role::Assistant, "a"), (Role::User, said)];
    let chat = chat.map(|(role, text)| Message::new(role, text)).to_vec();
    let built = model.prompt(&Prompt::Chat(chat));
    let input = json!({ "messages": [{ "role": "user", "content": said }], "tools": [{ "name": said }] });
    let rendered = model.render(&input);
    built.is_ok() && rendered.is_ok()
}
