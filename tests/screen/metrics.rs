//! The metrics panel: percentiles of few and many samples, outliers, rates of each sequence, definitions.

use super::*;

fn focus(desk: &mut Desk) {
    desk.app.focus = Focus::Panel(Panel::Metrics);
    if !desk.app.panels.open(desk.app.class()).contains(&Panel::Metrics) {
        desk.press(KeyCode::Char('6'));
    }
    desk.app.focus = Focus::Panel(Panel::Metrics);
}

fn says(desk: &Desk, texts: &[&str]) {
    let picture = desk.picture();
    for text in texts {
        assert!(picture.contains(text), "no {text:?} in\n{picture}");
    }
}

/// Gaps between tokens, in milliseconds, as the engine's steps would have made them.
fn gaps(desk: &mut Desk, ms: impl IntoIterator<Item = f64>) {
    desk.app.meter.gaps_ms.clear();
    ms.into_iter().for_each(|gap| desk.app.meter.gaps_ms.push(gap));
}

#[test]
fn without_a_sample_there_is_a_dash_and_no_number() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        focus(&mut desk);
        desk.press(KeyCode::Char('z'));
        says(&desk, &["TTFT              -       -       -     0", "ITL strip  -", "memory     -"]);
        snapshot("metrics_empty", &desk);
    }
}

#[test]
fn one_sample_is_its_own_percentiles() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why?");
        desk.steps(1);
        focus(&mut desk);
        says(&desk, &["TTFT         8.0 ms       -       -   now"]);
        desk.finish();
        says(&desk, &["TTFT         8.0 ms  8.0 ms  8.0 ms     1"]);
        gaps(&mut desk, [12.0]);
        says(&desk, &["ITL           12 ms   12 ms   12 ms     1"]);
        snapshot("metrics_one", &desk);
    }
}

#[test]
fn an_outlier_is_a_triangle_and_is_counted() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why?");
        desk.steps(40);
        focus(&mut desk);
        desk.press(KeyCode::Char('z'));
        gaps(&mut desk, (0..60).map(|i| if i == 40 { 90.0 } else { 8.0 + f64::from(i % 4) }));
        says(&desk, &["▲", "▲ 1 over 30 ms, longest 90 ms"]);
        // The others keep their height.
        let picture = desk.picture();
        let strip = picture.lines().find(|line| line.contains("ITL strip")).unwrap();
        assert!(strip.matches('▲').count() == 1 && strip.contains(['▃', '▂']), "{strip}");
        snapshot("metrics_outlier", &desk);
        gaps(&mut desk, [8.0, 90.0]);
        assert!(!desk.picture().contains('▲'), "two gaps have no usual one");
    }
}

#[test]
fn every_row_is_reached_and_says_what_it_means() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why?");
        desk.finish();
        focus(&mut desk);
        let first = desk.picture();
        assert!(first.contains("tokens drawn a second"), "{first}");
        let mut seen = Vec::new();
        for meaning in [
            "tokens drawn a second",
            "percentiles interpolate",
            "time to first token",
            "inter-token latency",
            "the newest gaps",
            "gaps of more than",
            "(E2EL - TTFT) / (tokens - 1)",
            "the mean of an answer",
            "end to end",
        ] {
            says(&desk, &[meaning]);
            seen.push(desk.app.panels.scroll);
            desk.press(KeyCode::Char('j'));
        }
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
        desk.press(KeyCode::Char('G'));
        says(&desk, &["bytes of the weights"]);
        desk.press(KeyCode::Char('k'));
        says(&desk, &["requests"]);
        desk.press(KeyCode::Char('g'));
        says(&desk, &["tokens drawn a second"]);
    }
}

#[test]
fn sequences_have_rates_of_their_own() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("/parallel 3 Why?");
        desk.steps(40);
        focus(&mut desk);
        if size != SIZES[1] {
            desk.press(KeyCode::Char('z'));
        }
        says(&desk, &["A 1  125"]);
        snapshot("metrics_parallel", &desk);
    }
}

#[test]
fn forced_tokens_and_the_time_of_grammars_are_shares() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(40);
    let mut snapshot = desk.engine.snapshot();
    (snapshot.counters.forced_tokens, snapshot.counters.grammar_ms) = (10, 14.0);
    desk.tell(Message::Snapshot(Arc::new(snapshot)));
    focus(&mut desk);
    desk.press(KeyCode::Char('z'));
    says(&desk, &["forced     25.0% of 40 tok", "grammar    14 ms 4."]);
}

#[test]
fn steps_back_show_the_rates_of_then() {
    let mut desk = Desk::ready(SIZES[2]);
    desk.say("/parallel 3 Why?");
    desk.steps(40);
    desk.press(KeyCode::F(5));
    desk.app.focus = Focus::Panel(Panel::Batch);
    desk.press(KeyCode::Char('G'));
    desk.app.focus = Focus::Panel(Panel::Metrics);
    desk.press(KeyCode::Char('z'));
    says(&desk, &["tok/s      -"]);
    snapshot("metrics_back", &desk);
}

#[test]
fn shares_are_of_limits_that_were_measured_beside_an_idle_engine() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why?");
        desk.steps(40);
        focus(&mut desk);
        desk.press(KeyCode::Char('z'));
        says(&desk, &["13.4 GB/s · limit not measured"]);
        desk.press(KeyCode::Char('m'));
        assert!(!desk.sent().contains(&&Command::MeasureLimits), "not while an answer runs");
        desk.finish();
        desk.press(KeyCode::Char('m'));
        assert!(desk.sent().contains(&&Command::MeasureLimits));
        says(&desk, &["13.4 GB/s · 67.1% of the limit"]);
        (0..10).for_each(|_| desk.press(KeyCode::Char('j')));
        desk.press(KeyCode::Char('j'));
        says(&desk, &["at most 20.0 GB/s"]);
        snapshot("metrics_limits", &desk);
        let why = Err("this device cannot be measured".to_owned());
        desk.tell(Message::Engine(vec![Event::Limits(why)]));
        says(&desk, &["13.4 GB/s · this device cannot be"]);
    }
}

fn kernel(name: &'static str, calls: u32, us: f64, bytes: u64, flops: u64) -> OperationTime {
    OperationTime { name: name.into(), calls, us, bytes, flops }
}

#[test]
fn kernels_of_a_timed_step_stand_last_with_their_shares() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.engine.kernels = vec![
            kernel("rows_to_bytes", 120, 90.0, 0, 0),
            kernel("gemv_q4_k_1", 120, 4_000.0, 60_000_000, 240_000_000),
            kernel("decode_f16_4", 30, 500.0, 8_000_000, 16_000_000),
            kernel("draw_survey", 1, 10.0, 196_608, 0),
        ];
        desk.say("Why?");
        desk.steps(4);
        // What the newest step took was not looked at: the one before stays.
        desk.engine.kernels.clear();
        desk.steps(1);
        desk.finish();
        focus(&mut desk);
        desk.press(KeyCode::Char('z'));
        desk.press(KeyCode::Char('G'));
        says(&desk, &["kernels", "1 launch, ", "gemv_q4_k_1         4000.0  87.0%    15.0      -      -"]);
        desk.press(KeyCode::Char('m'));
        says(&desk, &["gemv_q4_k_1         4000.0  87.0%    15.0  75.0%  15.0%"]);
        says(&desk, &["rows_to_bytes         90.0   2.0%       -      -      -"]);
        let picture = desk.picture();
        let at = |name: &str| picture.find(name).unwrap();
        assert!(at("gemv_q4_k_1") < at("decode_f16_4") && at("decode_f16_4") < at("rows_to_bytes"));
        snapshot("metrics_kernels", &desk);
        (0..4).for_each(|_| desk.press(KeyCode::Char('k')));
        says(&desk, &["timed by its kernels: 4.6 ms in all"]);
    }
}

#[test]
fn operations_a_second_are_a_share_of_the_limit() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.finish();
    focus(&mut desk);
    desk.press(KeyCode::Char('z'));
    desk.press(KeyCode::Char('m'));
    says(&desk, &["% MFU"]);
}
