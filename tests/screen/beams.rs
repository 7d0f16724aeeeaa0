//! Beam search: asking for it, and the tree of panel 4.

use super::*;

fn row(choice: u32, tokens: &[&str], logprob: f32, sum: f64) -> BeamRow {
    BeamRow {
        seq: SeqId { request: RequestId(1), choice },
        tokens: tokens.iter().map(|text| (text.bytes().map(u32::from).sum(), (*text).to_owned())).collect(),
        logprob,
        sum,
        score: sum / 5.0,
        blocks: 5,
        shared: 4,
    }
}

fn search() -> BeamView {
    BeamView {
        request: RequestId(1),
        params: BeamSearch::default(),
        depth: 5,
        stem: "I love".into(),
        stem_tokens: 2,
        open: vec![
            row(0, &[" cook", "ing", " and"], -0.31, -2.477),
            row(2, &[" read", "ing", "\n"], -0.52, -2.765),
            row(1, &[" cook", "ing", " with"], -0.9, -3.066),
            row(3, &[" cook", "ie", "s"], -0.11, -3.402),
        ],
        pruned: vec![PrunedView {
            before: "I love reading".into(),
            text: " the".into(),
            sum: -3.526,
            behind: 0.124,
        }],
        ended: vec![EndedView { text: "I love it.\u{1b}[31m".into(), tokens: 4, sum: -3.1, score: -0.775 }],
        over: false,
        blocks: 9,
        shared: 4,
        saved: 12,
    }
}

#[test]
fn the_panel_shows_the_tree_the_answers_and_what_was_let_go() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("/beam 4");
        assert_eq!(desk.app.beam, Some(BeamSearch::default()));
        desk.say("/panel 4");
        desk.say("go on");
        desk.steps(3);
        let snapshot_now = Snapshot { beams: Some(Arc::new(search())), ..desk.engine.snapshot() };
        desk.tell(Message::Snapshot(Arc::new(snapshot_now)));
        let picture = desk.picture();
        // The drawer is too low for the tree.
        let [first, second] = match size == SIZES[0] {
            true => ["\"I love cooking and\"", "\"I love cookies\""],
            false => ["├ \" cook\"", "│ ├ \"ing\""],
        };
        for seen in ["width 4", "9 blocks", first, second] {
            assert!(picture.contains(seen), "{seen} at {size:?}:\n{picture}");
        }
        assert!(!picture.contains('\u{1b}'));
        snapshot("beams", &desk);
    }
}

#[test]
fn beam_search_is_asked_for_changed_and_turned_off() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/beam 6 0.5 never");
    let wanted = BeamSearch { width: 6, length_penalty: 0.5, early_stopping: EarlyStopping::Never };
    assert_eq!(desk.app.beam, Some(wanted));
    for (typed, why) in [
        ("0", "beam_width must be"),
        ("3 x", "length_penalty must be"),
        ("3 1 soon", "early_stopping must be"),
    ] {
        desk.say(&format!("/beam {typed}"));
        assert!(desk.picture().contains(why), "{}", desk.picture());
        assert_eq!(desk.app.beam, Some(wanted), "it stays as it was");
    }
    desk.say("/beam off");
    assert_eq!(desk.app.beam, None);
}
