//! Every script at every width: wide characters, joined emoji, flags, combining marks, right-to-left.
//! No panic, no cell under a wide one, no border moved (BUGLOG X10, X13, X14, X15).

use super::*;
use ratatui::buffer::CellWidth;

/// What each is, and a few words of it.
const SCRIPTS: [(&str, &str); 14] = [
    ("Chinese and Japanese", "日本語のテキスト中文字符 漢字"),
    ("Korean", "한국어 문장 \u{1112}\u{1161}\u{11ab}"),
    ("full and half width", "ＡＢＣ ｶﾞﾊﾟ ﾊﾞﾅﾅ"),
    ("joined emoji", "👩🏽\u{200d}🔬👨\u{200d}👩\u{200d}👧\u{200d}👦 🏳\u{fe0f}\u{200d}🌈❤\u{fe0f}\u{200d}🔥"),
    ("flags", "🇩🇪🇯🇵🇺🇳 🇪"),
    ("skin tones", "👍🏿🤝🏻 ✋🏾"),
    ("keycaps and variants", "1\u{fe0f}\u{20e3}#\u{fe0f}\u{20e3} ❤\u{fe0e}❤\u{fe0f} ☎\u{fe0f}"),
    ("combining marks", "e\u{301}a\u{308}\u{323} Zu\u{308}rich"),
    ("Thai", "สวัสดีชาวโลก กำลัง น้ำ"),
    ("Devanagari", "नमस्ते क्षत्रिय हिन्दी"),
    ("Tamil and Bengali", "வணக்கம் কেমন আছেন"),
    ("Arabic", "مرحبا بالعالم لا إله gpt-5"),
    ("Hebrew", "שלום עולם \u{5e9}\u{5b8}\u{5dc}"),
    ("other", "①½… ﷽ 𒐫 ꧅"),
];

/// All scripts, this one first: once in words, once as one long word.
fn texts(first: usize) -> (String, String) {
    let order = (0..SCRIPTS.len()).map(|i| SCRIPTS[(first + i) % SCRIPTS.len()].1);
    let words: Vec<&str> = order.collect();
    (words.join(" "), words.concat().replace(' ', ""))
}

/// A screen where this text is in every place that takes foreign text.
fn everywhere(words: &str, long: &str) -> Desk {
    let mut desk = Desk::new(SIZES[2]);
    let mut models = catalogue(true);
    models[1].name = words.into();
    models[1].description = long.into();
    desk.tell(Message::Models(models));
    let name = long.to_owned();
    let info = ModelInfo { name, quantization: words.into(), device: long.into(), ..model_info() };
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(info))]));
    desk.look();
    desk.say(words);
    desk.steps(3);
    let seq = desk.app.snapshot.sequences[0].seq;
    let code = format!("\n\n```rust\n// {words}\n{long}\n```\n\n");
    let table = format!("| {words} | b |\n|---|---|\n| {long} | c |\n\n> {words}\n\n- {long}\n\n# {words}\n");
    let id = Some("call".into());
    let call = ToolCallDelta { id, name: Some(long.into()), arguments: words.into(), ..Default::default() };
    let parts = [
        Part::Reasoning(format!("{words}\n{long}")),
        Part::Text(format!("{words}\n\n{long}{code}{table}")),
        Part::ToolCall(call),
    ];
    desk.tell(Message::Engine(parts.map(|part| Event::Delta { seq, part }).into()));
    desk.tell(Message::Engine(vec![Event::Note(format!("{words}\n{long}"))]));
    let mut snapshot = desk.engine.snapshot();
    if let Some(trace) = snapshot.sampling.as_mut().map(Arc::make_mut) {
        trace.candidates.iter_mut().for_each(|c| c.text = long.into());
    }
    desk.tell(Message::Snapshot(Arc::new(snapshot)));
    desk.ctrl('o');
    desk.tell(Message::Paste(format!("{words}\n{long}")));
    desk
}

/// A wide cell hides the next one, so nothing may stand there, and none hangs over the edge.
fn misplaced(buffer: &Buffer) -> Option<String> {
    let area = buffer.area;
    for y in 0..area.height {
        for x in 0..area.width {
            let symbol = buffer[(x, y)].symbol();
            let wide = symbol.cell_width();
            let hidden = (x + 1..x + wide).find(|x| *x >= area.width || buffer[(*x, y)].symbol() != " ");
            if wide == 0 || hidden.is_some() {
                return Some(format!("{symbol:?}, {wide} cells, at {x},{y}"));
            }
        }
    }
    None
}

/// Cells that are borders in a screen of plain text are borders here.
fn moved(plain: &Buffer, buffer: &Buffer) -> Option<String> {
    let is_border = |symbol: &str| matches!(symbol, "│" | "├" | "┤" | "┼" | "┬" | "┴");
    let area = plain.area;
    let long = |x: &u16| {
        let rows = (0..area.height).filter(|y| is_border(plain[(*x, *y)].symbol())).count();
        rows > usize::from(area.height) / 2
    };
    (0..area.width).filter(long).find_map(|x| {
        let gone = |y: &u16| {
            let borders = [plain, buffer].map(|b| is_border(b[(x, *y)].symbol()));
            borders == [true, false]
        };
        // Rows where an input of other height begins are no rows of panels.
        let rows = area.height.saturating_sub(14);
        (1..rows).find(gone).map(|y| format!("no border at {x},{y}"))
    })
}

#[test]
fn every_script_keeps_its_columns_at_every_width() {
    let mut plain = everywhere("plain words only", "onelongword");
    let mut faults = Vec::new();
    for (first, (script, ..)) in SCRIPTS.iter().enumerate() {
        let (words, long) = texts(first);
        let mut desk = everywhere(&words, &long);
        let narrow = (1..=60).filter(|w| w % SCRIPTS.len() == first || w % 5 == first % 5);
        let all = narrow.map(|w| w as u16).chain([61, 80, 99, 100, 120, 159, 160, 200]);
        for size in all.flat_map(|w| [(w, 1), (w, 4), (w, 16), (w, 44)]) {
            for at in [&mut desk, &mut plain] {
                at.tell(Message::Resize(size.0, size.1));
            }
            let buffer = desk.buffer();
            let fault = misplaced(&buffer).or_else(|| moved(&plain.buffer(), &buffer));
            faults.extend(fault.map(|f| format!("{script} first, {size:?}: {f}")));
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn what_lies_over_the_screen_cuts_no_wide_character_in_half() {
    let (words, long) = texts(0);
    for shift in ["", "a"] {
        let mut desk = everywhere(&format!("{shift}{words}"), &format!("{shift}{long}"));
        for width in (12..=100).chain([120, 121, 200, 201]) {
            desk.tell(Message::Resize(width, 30));
            for c in ['p', 'l'] {
                desk.ctrl(c);
                assert_eq!(misplaced(&desk.buffer()), None, "{width} wide, Ctrl+{c}");
                desk.press(KeyCode::Esc);
            }
            desk.press(KeyCode::F(1));
            assert_eq!(misplaced(&desk.buffer()), None, "{width} wide, help");
            desk.press(KeyCode::F(1));
        }
    }
}

#[test]
fn no_size_from_one_cell_to_a_wall_panics() {
    // BUGLOG X15
    let (words, long) = texts(3);
    let mut desk = everywhere(&words, &long);
    let small = (1..=60).flat_map(|w| (1..=15).map(move |h| (w, h)));
    for (width, height) in small.chain([(500, 200), (1, 200), (500, 1)]) {
        desk.tell(Message::Resize(width, height));
        assert_eq!(misplaced(&desk.buffer()), None, "{width}x{height}");
    }
    desk.tell(Message::Resize(0, 0));
    desk.buffer();
}

#[test]
fn the_text_that_is_kept_and_copied_has_its_logical_order() {
    // BUGLOG X14: nothing is reordered for the terminal, so nothing can be reordered twice.
    let mut desk = Desk::ready((36, 20));
    desk.say("مرحبا");
    desk.steps(2);
    let seq = desk.app.snapshot.sequences[0].seq;
    let said = "مرحبا gpt-5 بالعالم שלום";
    desk.tell(Message::Engine(vec![Event::Delta { seq, part: Part::Text(said.into()) }]));
    assert!(desk.picture().replace("\n  ", " ").contains(said), "{}", desk.picture());
}
