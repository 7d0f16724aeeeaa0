//! Another model without leaving, presets, and what a chat starts with.

use super::*;
use glassbox::tui::{MemoryNeed, PresetChoice, StartSettings};

const GB: u64 = 1_000_000_000;

fn need(bytes: u64, free: u64) -> Option<MemoryNeed> {
    Some(MemoryNeed { bytes, context: Some(2048), free: Some(free) })
}

/// A small model in use, two others on disk: one that fits, one that does not.
fn with_three(size: (u16, u16)) -> Desk {
    let mut desk = Desk::ready(size);
    let mut models = catalogue(true);
    models[0].need = need(GB / 5, 2 * GB);
    models[1].on_disk = true;
    models[1].need = need(GB, 2 * GB);
    let large = ModelChoice {
        name: "huge-7b".into(),
        bytes: 4 * GB,
        need: need(5 * GB, 2 * GB),
        ..models[1].clone()
    };
    models.push(large);
    desk.tell(Message::Models(models));
    desk.effects.clear();
    desk
}

fn opened(desk: &Desk) -> Vec<&Effect> {
    desk.effects.iter().filter(|e| matches!(e, Effect::Open(_) | Effect::Close)).collect()
}

fn other() -> ModelInfo {
    ModelInfo { name: "qwen2.5-coder-0.5b".into(), path: "/models/qwen.gguf".into(), ..model_info() }
}

#[test]
fn the_models_are_listed_with_what_fits_and_one_key_switches() {
    for size in SIZES {
        let mut desk = with_three(size);
        desk.press(KeyCode::F(2));
        snapshot("models", &desk);
        desk.type_text("qwen");
        desk.press(KeyCode::Enter);
        assert_eq!(opened(&desk), [&Effect::Open("qwen2.5-coder-0.5b".into())]);
        desk.wait(1_000);
        desk.tell(Message::Engine(vec![Event::Loading {
            stage: LoadStage::Reading,
            done: 200_000_000,
            total: 400_000_000,
        }]));
        let picture = desk.picture();
        assert!(picture.contains("loading 50% · 200 MB/s · 1 s left"), "{picture}");
        assert!(picture.contains("smollm2-135m stays if this fails"), "{picture}");
        snapshot("switching", &desk);
        desk.say("hello");
        desk.tell(Message::Engine(vec![Event::Ready(Box::new(other()))]));
        assert!(matches!(desk.sent().last(), Some(Command::Submit(_))));
    }
}

#[test]
fn a_model_that_fails_to_load_leaves_the_one_before() {
    let mut desk = with_three(SIZES[1]);
    desk.say("one");
    desk.finish();
    desk.say("/model qwen2.5-coder-0.5b");
    desk.say("two");
    desk.tell(Message::Engine(vec![Event::LoadFailed(Failure::new(FailureKind::Model, "12 bytes short"))]));
    let picture = desk.picture();
    assert!(picture.contains("did not load: 12 bytes short"), "{picture}");
    assert!(picture.contains("smollm2-135m is still in use"), "{picture}");
    let Some(Command::Submit(request)) = desk.sent().last().copied() else { panic!("nothing sent") };
    let Prompt::Chat(messages) = &request.prompt else { panic!("no chat") };
    assert_eq!(messages.last().unwrap().content, "two");
}

#[test]
fn what_does_not_fit_is_said_before_anything_is_closed() {
    let mut desk = with_three(SIZES[1]);
    desk.say("/model huge-7b");
    let picture = desk.picture();
    assert!(picture.contains("needs 5.0 GB, 2.0 GB free: does not fit"), "{picture}");
    assert!(opened(&desk).is_empty());
    snapshot("does_not_fit", &desk);
    desk.press(KeyCode::Esc);
    assert!(opened(&desk).is_empty() && desk.app.overlay.is_none());
    desk.say("/model huge-7b");
    desk.press(KeyCode::Enter);
    assert_eq!(opened(&desk), [&Effect::Close, &Effect::Open("huge-7b".into())]);
    desk.tell(Message::Engine(vec![Event::LoadFailed(Failure::new(FailureKind::Model, "no memory"))]));
    assert!(!desk.picture().contains("still in use"), "{}", desk.picture());
}

#[test]
fn answers_that_run_are_stopped_only_after_a_second_enter() {
    let mut desk = with_three(SIZES[1]);
    desk.say("one");
    desk.steps(3);
    desk.say("/model qwen2.5-coder-0.5b");
    assert!(desk.picture().contains("1 answer is stopped"), "{}", desk.picture());
    assert!(opened(&desk).is_empty());
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Enter);
    assert!(opened(&desk).is_empty());
    desk.say("/model qwen2.5-coder-0.5b");
    desk.press(KeyCode::Enter);
    assert_eq!(opened(&desk).len(), 1);
}

fn start(temperature: f32, origin: &str) -> StartSettings {
    StartSettings {
        params: SamplingParams { temperature, top_k: 7, ..SamplingParams::default() },
        system: Some("Rhyme.".into()),
        origins: [("temperature", origin.to_owned()), ("top_k", origin.to_owned())].into(),
        ..StartSettings::default()
    }
}

/// Its device failed, and the model goes on elsewhere: nothing that was said or set is lost.
#[test]
fn a_model_that_goes_on_on_another_device_says_so_and_answers() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/set top_k 3");
    desk.say("Why?");
    desk.steps(100);
    let turns = desk.app.chat.turns().count();
    let elsewhere = ModelInfo {
        device: "CPU (4 threads, AVX2)".into(),
        device_reason: "the GPU is gone".into(),
        context_length: 2048,
        ..model_info()
    };
    desk.tell(Message::Engine(vec![
        Event::Note("the device failed: fell off the bus; opened again in 1.2 s".into()),
        Event::Ready(Box::new(elsewhere)),
    ]));
    let picture = desk.picture();
    let said = "smollm2-135m goes on · CPU (4 threads, AVX2): the GPU is gone · context";
    assert!(picture.contains(said) && picture.contains("opened again in 1.2 s"), "{picture}");
    assert_eq!((desk.app.chat.turns().count(), desk.app.params.top_k), (turns, 3));
    desk.say("And now?");
    assert!(matches!(desk.sent().last(), Some(Command::Submit(_))));
}

#[test]
fn a_models_own_defaults_hold_from_when_it_is_ready_but_not_over_what_was_set() {
    let mut desk = with_three(SIZES[1]);
    desk.say("/set top_k 3");
    desk.say("/model qwen2.5-coder-0.5b");
    let asked = Effect::StartSettings { model: Some("qwen2.5-coder-0.5b".into()), preset: None };
    assert!(desk.effects.contains(&asked), "{:?}", desk.effects);
    let settings = Box::new(Ok(start(0.3, "model")));
    desk.tell(Message::StartSettings { preset: None, settings });
    assert_eq!(desk.app.params.temperature, 0.8);
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(other()))]));
    assert_eq!((desk.app.params.temperature, desk.app.params.top_k), (0.3, 3));
    let picture = desk.picture();
    assert!(picture.contains("for this model: temperature 0.3, a system prompt; as"), "{picture}");
    assert!(picture.contains("stays top_k"), "{picture}");
}

#[test]
fn a_preset_is_chosen_from_a_list_and_its_values_say_where_they_are_from() {
    for size in SIZES {
        let mut desk = with_three(size);
        desk.say("/preset");
        assert!(desk.effects.contains(&Effect::ListPresets));
        let poet = PresetChoice {
            name: "poet".into(),
            values: vec![("temperature".into(), "1.2".into()), ("top_k".into(), "7".into())],
            system: Some("Rhyme.".into()),
            ..PresetChoice::default()
        };
        let problem = Some("bad.toml:2: unknown key \"temprature\"".to_owned());
        let bad = PresetChoice { name: "bad".into(), problem, ..PresetChoice::default() };
        desk.tell(Message::Presets(vec![bad, poet]));
        snapshot("presets", &desk);
        desk.type_text("poet");
        desk.press(KeyCode::Enter);
        let asked = Effect::StartSettings { model: Some("smollm2-135m".into()), preset: Some("poet".into()) };
        assert!(desk.effects.contains(&asked), "{:?}", desk.effects);
        let settings = Box::new(Ok(start(1.2, "preset poet")));
        desk.tell(Message::StartSettings { preset: Some("poet".into()), settings });
        assert_eq!(desk.app.params.temperature, 1.2);
        let picture = desk.picture();
        assert!(picture.contains("preset poet: temperature 1.2, top_k 7, a system prompt"), "{picture}");
        desk.say("Why?");
        let Some(Command::Submit(request)) = desk.sent().last().copied() else { panic!("nothing sent") };
        let Prompt::Chat(messages) = &request.prompt else { panic!("no chat") };
        assert_eq!((messages[0].role, messages[0].content.as_str()), (Role::System, "Rhyme."));
    }
}

#[test]
fn a_preset_that_is_not_there_or_built_in_or_saved() {
    let mut desk = with_three(SIZES[1]);
    let answer = |desk: &mut Desk, name: &str, why: &str| {
        let settings = Box::new(Err(why.to_owned()));
        desk.tell(Message::StartSettings { preset: Some(name.into()), settings });
    };
    desk.say("/preset poe");
    answer(&mut desk, "poe", "no preset \"poe\"; did you mean \"poet\"?");
    assert!(desk.picture().contains("did you mean \"poet\"?"), "{}", desk.picture());
    desk.say("/preset greedy");
    answer(&mut desk, "greedy", "no preset \"greedy\"");
    assert_eq!(desk.app.params.temperature, 0.0);
    desk.say("/preset save mine");
    let saved = desk.effects.iter().rev().find_map(|e| match e {
        Effect::SavePreset { name, text, overwrite } => Some((name.clone(), text.clone(), *overwrite)),
        _ => None,
    });
    let (name, text, overwrite) = saved.unwrap();
    assert_eq!((name.as_str(), overwrite), ("mine", false));
    assert!(text.contains("temperature = 0\n"), "{text}");
    desk.tell(Message::PresetSaved { name, result: Err("there is mine.toml already".into()) });
    assert!(desk.picture().contains("preset mine is not saved: there is mine.toml"), "{}", desk.picture());
    desk.say("/preset save ../x");
    assert!(desk.picture().contains("make a name"), "{}", desk.picture());
}

#[test]
fn the_system_prompt_is_edited_in_place_and_in_an_editor() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/system Be brief.");
    desk.say("/system");
    assert_eq!(desk.app.composer_text(), "/system Be brief.");
    desk.say(" Always.");
    assert!(desk.picture().contains("Be brief. Always."), "{}", desk.picture());
    desk.say("/system edit");
    assert!(desk.effects.contains(&Effect::EditSystem("Be brief. Always.".into())));
    desk.tell(Message::SystemEdited(Ok("Two\nlines\n".into())));
    desk.say("Why?");
    let Some(Command::Submit(request)) = desk.sent().last().copied() else { panic!("nothing sent") };
    let Prompt::Chat(messages) = &request.prompt else { panic!("no chat") };
    assert_eq!(messages[0].content, "Two\nlines");
}

#[test]
fn the_first_minute_needs_three_keys_and_no_reading() {
    let mut desk = Desk::new(SIZES[0]);
    desk.tell(Message::Models(catalogue(false)));
    assert!(desk.picture().contains("Enter fetches it and starts"), "{}", desk.picture());
    desk.press(KeyCode::Enter);
    assert_eq!(desk.effects.last(), Some(&Effect::Fetch("smollm2-135m".into())));
    desk.say("hello there");
    desk.tell(Message::Fetch(FetchEvent::Done { path: "/models".into() }));
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
    assert_eq!(desk.sent().len(), 1);
    desk.finish();
    let hint = |desk: &Desk| desk.picture().contains("/set temp 0.2 acts on the next token");
    assert!(hint(&desk));
    desk.say("/clear");
    assert!(desk.picture().contains("Enter alone asks"), "{}", desk.picture());
    desk.press(KeyCode::Enter);
    desk.finish();
    assert!(!hint(&desk), "once is enough: {}", desk.picture());
}
