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
        assert_eq!(settings, [(0.2, 0.95), (1.0, 0.5), (0.0, 0.95)]);
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
