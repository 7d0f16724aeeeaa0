//! `glassbox sessions`: what there is, out and in.

use super::*;

const TALK: &str = r#"{"title": "Blue", "messages": [{"role": "user", "content": "Why is the sky blue?"},
    {"role": "assistant", "content": "Rayleigh scattering."}]}"#;

#[test]
fn a_conversation_goes_in_is_found_and_comes_out_again() {
    let home = Home::new();
    assert_eq!(home.run(&["sessions", "ls"]).good(), "no sessions\n");
    assert!(!home.path(".local/share/glassbox").exists(), "looking makes nothing");
    let file = home.write("talk.json", TALK);
    let imported = home.run(&["sessions", "import", &file, "--json"]).json();
    assert_eq!((&imported[0]["id"], &imported[0]["messages"]), (&1.into(), &2.into()));
    let found = home.run(&["sessions", "search", "scatt", "--json"]).json();
    assert_eq!(found[0]["snippet"], "Rayleigh scattering.");
    assert!(home.run(&["sessions", "ls"]).good().contains("  Blue\n"));
    let shown = home.run(&["sessions", "show", "blue"]).good();
    assert!(shown.contains("## User\n\nWhy is the sky blue?\n"), "{shown}");

    let output = home.path("out.md");
    let path = output.to_str().unwrap();
    let said = home.run(&["sessions", "export", "1", "-o", path]).good();
    assert!(said.trim_end().ends_with("out.md"), "{said}");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), shown);
    let refused = home.run(&["sessions", "export", "1", "-o", path]).refused(2);
    assert!(refused.contains("is there already") && refused.contains("--force"), "{refused}");
    home.run(&["sessions", "export", "1", "-o", path, "--force"]).good();
    let json = home.run(&["sessions", "export", "1", "-o", "-", "--format", "json"]).json();
    assert_eq!(json["messages"][1]["content"], "Rayleigh scattering.");

    home.run(&["sessions", "import", path]).good();
    let two = home.run(&["sessions", "ls", "--json"]).json();
    assert_eq!(two.as_array().unwrap().len(), 2);
    assert_eq!(home.run(&["sessions", "rm", "1", "2"]).good().lines().count(), 2);
    assert_eq!(home.run(&["sessions", "ls"]).good(), "no sessions\n");
}

#[test]
fn mistakes_have_their_status_and_a_way_out() {
    let home = Home::new();
    assert!(home.run(&["sessions", "show", "x"]).refused(66).contains("there are no sessions yet"));
    assert!(home.run(&["sessions", "import", "/nowhere.json"]).refused(66).contains("/nowhere.json"));
    let bad = home.write("bad.json", "{\"messages\": [{\"role\": 3}]}");
    assert!(home.run(&["sessions", "import", &bad]).refused(65).contains("/messages/0/role"));
    let file = home.write("talk.json", TALK);
    home.run(&["sessions", "import", &file, &file]).good();
    assert!(home.run(&["sessions", "rm", "moon"]).refused(66).contains("sessions ls"));
    assert!(home.run(&["sessions", "show", "lu"]).refused(2).contains("Blue (2), Blue (1)"));
    assert!(home.run(&["sessions", "export", "1", "--format", "doc"]).refused(2).contains("md or json"));
    home.write(".local/share/glassbox/sessions.db", "noise ".repeat(1000));
    let damaged = home.run(&["sessions", "ls"]).refused(65);
    assert!(damaged.contains("sessions.db is damaged"), "{damaged}");
    let paths = home.run(&["paths", "--json"]).json();
    assert_eq!(paths["sessions"], home.path(".local/share/glassbox/sessions.db").to_str().unwrap());
}
