//! What the next answers must be: `/schema`, `/grammar`, `/regex`.

use super::*;
use glassbox::tui::Slash;

fn asked(desk: &Desk) -> Option<Guided> {
    let request = |c: &Command| if let Command::Submit(r) = c { Some(r.guided.clone()) } else { None };
    desk.sent().into_iter().rev().find_map(request).flatten()
}

#[test]
fn a_form_holds_for_the_next_answers_is_shown_and_can_be_switched_off() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/regex [0-9]+");
    assert!(desk.picture().contains("match [0-9]+"), "{}", desk.picture());
    desk.look();
    snapshot("guided", &desk);
    desk.say("How many?");
    let regex = Grammar::Regex("[0-9]+".into());
    assert_eq!(asked(&desk), Some(Guided { grammar: regex, in_reasoning: false }));
    desk.steps(200);
    desk.say("/schema {\"type\": \"null\"}");
    desk.say("/schema off");
    desk.say("Why?");
    assert_eq!(asked(&desk), None);
}

#[test]
fn grammars_and_schemas_are_read_from_files() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/grammar sum.gbnf");
    let wanted = Effect::ReadGrammar { command: Slash::Grammar, path: "sum.gbnf".into() };
    assert!(desk.effects.contains(&wanted), "{:?}", desk.effects);
    let content = Ok("root ::= [0-9]+".to_owned());
    desk.tell(Message::GrammarRead { command: Slash::Grammar, path: "sum.gbnf".into(), content });
    assert_eq!(desk.app.guided.as_ref().unwrap().grammar, Grammar::Ebnf("root ::= [0-9]+".into()));
    let content = Err("no such file".to_owned());
    desk.tell(Message::GrammarRead { command: Slash::Schema, path: "s.json".into(), content });
    assert!(desk.picture().contains("s.json: no such file"), "{}", desk.picture());
    assert!(desk.app.guided.is_some(), "what held still holds");
    desk.say("/schema object");
    assert_eq!(desk.app.guided.as_ref().unwrap().grammar, Grammar::Json);
}
