#![allow(clippy::unwrap_used)]
use super::*;
use crate::protocol::{Command, ReplayCommand};
use crate::trace::read::read;

const FILE: &str = concat!(
    r#"{"glassbox_trace":1,"glassbox":"0.1.0","model":{"name":"m"},"blocks":4,"block_size":2,"bytes_per_block":64}"#,
    "\n",
    r#"{"t":0,"command":{"Submit":{"id":1,"prompt":{"Text":"hi"},"params":{"temperature":0.5},"n":1,"parse_reasoning":true,"prompt_logprobs":null}}}"#,
    "\n",
    r#"{"t":1000,"e":[{"Accepted":{"id":1,"prompt_tokens":2,"rendered":"hi"}},{"Started":{"seq":{"request":1,"choice":0},"cached_tokens":0}},["T",1,7,"a",-0.5,1,0.25]]}"#,
    "\n",
    r#"{"t":11000,"e":[["T",1,8,"b",-0.5,1,0.25]]}"#,
    "\n",
    r#"{"s":1,"a":500,"p":[0,400,0,0],"r":[[1,0,2,0,7]],"m":16,"f":2,"b":[[1,1,0,1]]}"#,
    "\n",
    r#"{"s":2,"a":10500,"p":[0,400,0,0],"r":[[1,1,1,2,8]],"f":1,"b":[[1,1,1,1,1],[2,1,0,1]]}"#,
    "\n",
    r#"{"t":11500,"v":2,"q":[[1,"running",2,0,2,3,0,0,[1,2]]]}"#,
    "\n",
    r#"{"t":21000,"e":[["t",1,2,"</s>",-0.1,1,0.5],{"Finished":{"seq":{"request":1,"choice":0},"outcome":{"reason":"Stop","usage":{"prompt_tokens":2,"cached_tokens":0,"completion_tokens":3,"reasoning_tokens":0},"timings":{"queue_ms":0.0,"ttft_ms":1.0,"itl_ms_mean":10.0,"tpot_ms":10.0,"e2el_ms":21.0,"tokens_per_second":100.0,"prompt_tokens_per_second":2000.0,"preemptions":0},"seed":1,"params":{}}}}]}"#,
    "\n",
    r#"{"s":3,"a":20500,"p":[0,400,0,0],"r":[[1,1,1,3,2]],"f":4,"b":[[1,0,1,null],[2,0,0,null]]}"#,
    "\n",
    r#"{"t":21500,"v":3,"g":[1]}"#,
    "\n",
);

fn playback(speed: f32, paused: bool) -> Playback {
    Playback::new(Timeline::of(read(FILE.as_bytes(), "t.jsonl").unwrap()), speed, paused)
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn texts(events: &[Event]) -> Vec<&str> {
    let texts = events.iter().filter_map(|event| match event {
        Event::Token { token, .. } => Some(token.text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn tell(playback: &mut Playback, command: Command) -> Vec<Event> {
    let mut events = Vec::new();
    playback.command(command, at(0), &mut events);
    events
}

#[test]
fn things_happen_when_they_happened_times_the_speed() {
    for (speed, tenth) in [(1.0, 11), (2.0, 5), (0.5, 22)] {
        let mut playback = playback(speed, false);
        let mut events = Vec::new();
        playback.tick(at(tenth), &mut events);
        assert_eq!(texts(&events), if speed == 2.0 { vec!["a"] } else { vec!["a", "b"] }, "{speed}");
        playback.tick(at(6).max(at(tenth)), &mut events);
        assert_eq!(texts(&events), ["a", "b"], "{speed}");
        let wait = playback.wait(at(tenth)).unwrap();
        assert!(wait <= at(10).mul_f32(1.0 / speed) + at(1), "{wait:?}");
    }
}

#[test]
fn a_new_speed_holds_from_where_the_replay_is() {
    let mut playback = playback(1.0, false);
    let mut events = Vec::new();
    playback.tick(at(6), &mut events);
    playback.command(Command::Replay(ReplayCommand::Speed(10.0)), at(6), &mut events);
    assert!(matches!(events.last(), Some(Event::Replaying { first: 1, last: 3, speed: 10.0 })));
    playback.tick(Duration::from_micros(6_400), &mut events);
    assert_eq!(texts(&events), ["a"]);
    playback.tick(Duration::from_micros(6_600), &mut events);
    assert_eq!(texts(&events), ["a", "b"]);
    let refused = tell(&mut playback, Command::Replay(ReplayCommand::Speed(0.0)));
    assert!(matches!(&refused[..], [Event::Note(_)]));
}

#[test]
fn a_pause_holds_it_and_costs_no_time() {
    let mut playback = playback(1.0, false);
    let mut events = Vec::new();
    playback.tick(at(6), &mut events);
    playback.command(Command::Pause, at(6), &mut events);
    playback.tick(at(1_000), &mut events);
    assert_eq!((texts(&events), playback.wait(at(1_000))), (vec!["a"], None));
    playback.command(Command::Resume, at(1_000), &mut events);
    playback.tick(at(1_004), &mut events);
    assert_eq!(texts(&events), ["a"]);
    playback.tick(at(1_006), &mut events);
    assert_eq!(texts(&events), ["a", "b"]);
}

#[test]
fn a_step_takes_its_own_events_and_blocks_with_it() {
    let mut playback = playback(1.0, true);
    assert_eq!(playback.snapshot().step, 0);
    let events = tell(&mut playback, Command::Step(1));
    assert!(matches!(&events[0], Event::Sent(_)));
    assert_eq!((texts(&events), playback.snapshot().step), (vec!["a"], 1));
    assert_eq!(playback.snapshot().kv.blocks[1].references, 1);
    let events = tell(&mut playback, Command::Step(1));
    let snapshot = playback.snapshot();
    assert_eq!((texts(&events), snapshot.step, snapshot.kv.owned), (vec!["b"], 2, 2));
    assert_eq!(
        (snapshot.sequences[0].blocks.as_slice(), snapshot.sequences[0].computed_tokens),
        (&[1, 2][..], 3)
    );
    assert_eq!(snapshot.sequences[0].params.temperature, 0.5);
    let record = snapshot.steps.last().unwrap();
    assert_eq!((record.token_budget, record.tokens, record.blocks_free), (16, 1, 1));
    assert_eq!((record.blocks[0].before.used, record.blocks[0].after.used), (1, 1));
    let events = tell(&mut playback, Command::Step(5));
    assert_eq!((texts(&events), playback.snapshot().sequences.len()), (vec!["</s>"], 0));
    assert!(playback.is_over());
}

#[test]
fn going_back_says_everything_again_up_to_there() {
    let beginning = playback(1.0, true).snapshot();
    let mut playback = playback(1.0, true);
    let once = tell(&mut playback, Command::Step(2));
    let two = playback.snapshot();
    tell(&mut playback, Command::Step(1));
    let events = tell(&mut playback, Command::Replay(ReplayCommand::Back(1)));
    assert_eq!(events[0], Event::Rewound);
    assert!(events.ends_with(&once), "{events:?}");
    assert_eq!(playback.snapshot(), two);
    tell(&mut playback, Command::Replay(ReplayCommand::Back(9)));
    assert_eq!(playback.snapshot(), beginning);
    tell(&mut playback, Command::Replay(ReplayCommand::Seek(2)));
    assert_eq!(playback.snapshot(), two);
}

#[test]
fn at_the_end_it_pauses_and_resuming_begins_anew() {
    let mut playback = playback(f32::INFINITY, false);
    let mut events = Vec::new();
    playback.tick(at(0), &mut events);
    assert_eq!(events.last(), Some(&Event::Paused(true)));
    let events = tell(&mut playback, Command::Resume);
    assert_eq!((&events[0], events.last()), (&Event::Rewound, Some(&Event::Paused(false))));
    assert!(!playback.is_over());
}

#[test]
fn it_answers_nothing_and_says_why() {
    let mut playback = playback(1.0, true);
    let request = crate::protocol::Request {
        n: 2,
        ..crate::protocol::Request::new(
            RequestId(9),
            crate::protocol::Prompt::Text("hi".into()),
            SamplingParams::default(),
        )
    };
    let events = tell(&mut playback, Command::Submit(Box::new(request)));
    assert_eq!(events.len(), 2);
    for event in events {
        let Event::Finished { outcome, .. } = event else { panic!("{event:?}") };
        let FinishReason::Error(failure) = outcome.reason else { panic!("{outcome:?}") };
        assert!(failure.message.contains("replay"));
    }
    assert!(matches!(&tell(&mut playback, Command::Abort(RequestId(1)))[..], [Event::Note(_)]));
}

#[test]
fn a_wait_in_which_nothing_ran_is_cut_short() {
    let later = FILE.to_owned() + "{\"t\":600021500,\"e\":[{\"Note\":\"ten minutes later\"}]}\n";
    let timeline = Timeline::of(read(later.as_bytes(), "t.jsonl").unwrap());
    assert!(timeline.moments.last().unwrap().at < 3_000_000);
    let slow = FILE.replace(r#"{"t":11000,"#, r#"{"t":9011000,"#).replace("21000", "19021000");
    let timeline = Timeline::of(read(slow.as_bytes(), "t.jsonl").unwrap());
    assert!(timeline.moments.last().unwrap().at > 19_000_000, "somebody waited for an answer");
}

#[test]
fn what_a_crash_cut_off_and_what_is_newer_is_left_out_with_a_note() {
    let cut = &FILE[..FILE.len() - 8];
    let lines = read(cut.as_bytes(), "t.jsonl").unwrap();
    assert_eq!(lines.notes, ["the last line of t.jsonl was cut off and is left out"]);
    assert_eq!(Timeline::of(lines).steps.len(), 3);

    let newer = FILE
        .replace(r#""glassbox_trace":1"#, r#""glassbox_trace":2,"colour":"red""#)
        .replace(r#""m":16"#, r#""m":16,"zz":1"#)
        + "{\"beams\":[]}\n{\"t\":1,\"e\":[{\"Danced\":{}}]}\n";
    let notes = Timeline::of(read(newer.as_bytes(), "t.jsonl").unwrap()).notes.join("\n");
    for said in
        ["version 2", "does not know: zz", "1 line of t.jsonl is of a kind", "1 event that this version"]
    {
        assert!(notes.contains(said), "{said}: {notes}");
    }
}

#[test]
fn what_is_no_trace_is_refused_with_file_and_line() {
    let why = |text: &str| read(text.as_bytes(), "t.jsonl").err().unwrap().to_string();
    assert_eq!(why(""), "t.jsonl is no trace: it is empty");
    assert_eq!(why("hello\n"), "t.jsonl is no trace: its first line is not JSON");
    assert!(why("{\"a\":1}\n").contains("glassbox_trace"));
    let garbage = FILE.replacen("{\"s\":2", "\u{1}{\"s\":2", 1);
    assert!(why(&garbage).starts_with("t.jsonl, line 6: "), "{}", why(&garbage));
    let wrong = FILE.replacen("\"s\":2", "\"s\":\"two\"", 1);
    assert!(why(&wrong).starts_with("t.jsonl, line 6: "), "{}", why(&wrong));
    assert!(why(&(FILE.to_owned() + "[1]\n")).contains("line 11"));
}
