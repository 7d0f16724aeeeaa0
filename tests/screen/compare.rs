//! One prompt under several settings, and going on from the best answer.

use super::*;

fn requests(desk: &Desk) -> Vec<&Request> {
    desk.sent()
        .into_iter()
        .filter_map(|c| if let Command::Submit(r) = c { Some(&**r) } else { None })
        .collect()
}

fn last_told(desk: &Desk) -> Vec<String> {
    let Prompt::Chat(messages) = &requests(desk).last().unwrap().prompt else { panic!("no chat") };
    messages.iter().map(|m| m.content.clone()).collect()
}

#[test]
fn one_prompt_is_answered_under_several_settings_in_one_batch() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("/compare temp=0.2 | temp=1.0 top_p=0.5 | greedy : Why is the sky blue?");
        let sent = requests(&desk);
        let settings: Vec<_> = sent.iter().map(|r| (r.params.temperature, r.params.top_p)).collect();
        assert_eq!(settings, [(0.2, 0.95), (1.0, 0.5), (0.0, 1.0)]);
        assert!(sent.iter().all(|r| r.prompt == sent[0].prompt));
        desk.steps(40);
        assert_eq!(desk.engine.snapshot().sequences.len(), 3);
        snapshot("compare", &desk);
        // What is set meanwhile is for the chat, not for them.
        desk.say("/set temp 0.5");
        assert!(!desk.sent().iter().any(|c| matches!(c, Command::SetParams(..))));
    }
}

#[test]
fn the_chat_goes_on_from_the_answer_that_is_taken() {
    let mut desk = Desk::ready(SIZES[2]);
    desk.say("/compare temp=0.2 | greedy : Why?");
    desk.finish();
    desk.say("/take");
    assert!(desk.picture().contains("go on from"), "{}", desk.picture());
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Enter);
    snapshot("taken", &desk);
    desk.say("and then?");
    let told = last_told(&desk);
    assert_eq!((told.len(), told[0].as_str(), told[2].as_str()), (3, "Why?", "and then?"));
    desk.finish();
    desk.say("/version prev");
    assert!(desk.picture().contains("version 1 of 2"), "{}", desk.picture());
    assert!(!desk.picture().contains("› and then?"), "{}", desk.picture());
}

#[test]
fn without_a_prompt_the_last_message_is_answered_once_more() {
    let mut desk = Desk::ready(SIZES[2]);
    desk.say("one");
    desk.finish();
    desk.say("two");
    desk.finish();
    desk.say("/compare temp=0.1 | temp=1.5");
    let told = last_told(&desk);
    assert_eq!((told.len(), told[0].as_str(), told[2].as_str()), (3, "one", "two"));
    desk.finish();
    desk.say("/take 2");
    desk.say("three");
    let told = last_told(&desk);
    assert_eq!((told.len(), told[2].as_str(), told[4].as_str()), (5, "two", "three"));
}

#[test]
fn mistakes_name_their_part() {
    let mut desk = Desk::ready(SIZES[1]);
    for (line, why) in [
        ("/compare temp=0.2", "2 to 8 settings"),
        ("/compare temp=0.2 | top_q=1 : x", "part 2 (top_q=1): no parameter \"top_q\"; did you mean top_"),
        ("/compare temp=9000 | greedy : x", "part 1 (temp=9000): temperature must be"),
        ("/compare temp | greedy : x", "part 1 (temp): temp needs a value"),
        ("/compare temp=0.2 | greedy", "/compare needs a prompt"),
        ("/take 1", "no answers stand side by side"),
    ] {
        desk.say(line);
        assert!(desk.picture().contains(why), "{line}: {}", desk.picture());
    }
    assert!(requests(&desk).is_empty());
}

#[test]
fn one_of_several_prompts_is_taken_with_its_own_words() {
    let mut desk = Desk::ready(SIZES[2]);
    desk.say("/parallel one | two | three");
    desk.finish();
    desk.say("/take 2");
    desk.say("on");
    let told = last_told(&desk);
    assert_eq!((told.len(), told[0].as_str()), (3, "two"));
}

#[test]
fn a_fork_is_taken_and_what_followed_stays_with_its_answer() {
    let mut desk = Desk::ready(SIZES[2]);
    desk.say("one");
    desk.steps(40);
    desk.say("/fork @30");
    desk.finish();
    desk.say("/take 2");
    desk.finish();
    desk.say("further");
    assert_eq!(last_told(&desk).len(), 3);
    desk.finish();
    desk.say("/version 1");
    assert!(!desk.picture().contains("› further"), "{}", desk.picture());
}

#[test]
fn a_preset_is_a_setting_whether_it_is_a_file_or_built_in() {
    let mut desk = Desk::ready(SIZES[2]);
    let poet = glassbox::tui::PresetChoice {
        name: "poet".into(),
        values: vec![("temperature".into(), "1.1".into()), ("think".into(), "off".into())],
        system: Some("Rhyme.".into()),
        ..Default::default()
    };
    let problem = Some("bad.toml:2: unknown key".to_owned());
    let bad = glassbox::tui::PresetChoice { name: "bad".into(), problem, ..Default::default() };
    desk.tell(Message::Presets(vec![bad, poet]));
    desk.say("/compare poet top_k=7 | creative | precise : Why?");
    let sent = requests(&desk);
    let settings: Vec<_> = sent.iter().map(|r| (r.params.temperature, r.params.top_k)).collect();
    assert_eq!(settings, [(1.1, 7), (1.2, 0), (0.3, 40)]);
    assert_eq!(sent[0].thinking.enabled, Some(false));
    let Prompt::Chat(messages) = &sent[0].prompt else { panic!("no chat") };
    assert_eq!((messages[0].role, messages[0].content.as_str()), (Role::System, "Rhyme."));
    let Prompt::Chat(messages) = &sent[1].prompt else { panic!("no chat") };
    assert_eq!(messages[0].role, Role::User);
    let picture = desk.picture();
    assert!(picture.contains("poet, top_k 7") && picture.contains("creative"), "{picture}");
    desk.finish();
    for (line, why) in [
        ("/compare bad | greedy : x", "part 1 (bad): bad.toml:2: unknown key"),
        ("/compare creativ | greedy : x", "no parameter or preset \"creativ\"; did you mean creative?"),
    ] {
        desk.say(line);
        assert!(desk.picture().contains(why), "{line}: {}", desk.picture());
    }
}

#[test]
fn the_arguments_of_take_and_edit_are_offered() {
    let mut desk = Desk::ready(SIZES[2]);
    (0..11).for_each(|n| {
        desk.say(&format!("message {n}"));
        desk.finish();
    });
    desk.type_text("/edit ");
    assert!(desk.picture().contains("message 10"), "{}", desk.picture());
    desk.say("1");
    assert_eq!(desk.app.composer_text(), "message 0");
    desk.press(KeyCode::Esc);
    desk.say("/compare temp=0.2 | greedy : Why?");
    desk.finish();
    desk.type_text("/take ");
    let picture = desk.picture();
    assert!(picture.contains("temperature 0.2"), "{picture}");
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Enter);
    assert!(desk.picture().contains("the chat goes on from answer 2"), "{}", desk.picture());
}

#[test]
fn the_sampling_panel_lists_presets_in_files_too() {
    let mut desk = Desk::ready(SIZES[1]);
    let poet = glassbox::tui::PresetChoice { name: "poet".into(), ..Default::default() };
    desk.tell(Message::Presets(vec![poet]));
    while desk.app.focus != Focus::Panel(Panel::Sampling) {
        desk.press(KeyCode::Tab);
    }
    desk.press(KeyCode::Char('P'));
    desk.type_text("poet");
    desk.press(KeyCode::Enter);
    let asked = |effect: &Effect| matches!(effect, Effect::StartSettings { preset: Some(name), .. } if name == "poet");
    assert!(desk.effects.iter().any(asked), "{:?}", desk.effects);
}
