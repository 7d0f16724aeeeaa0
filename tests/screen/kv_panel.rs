//! Panel 2: the map from one block to 100,000, its colour modes, the selected block, and the tree.

use super::*;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

/// The KV panel in focus, over the whole screen.
fn zoomed(size: (u16, u16), blocks: usize) -> Desk {
    let mut desk = Desk::ready(size);
    desk.engine = FakeEngine::of_blocks(blocks);
    if size == SIZES[0] {
        desk.say("/panel 2");
        desk.press(KeyCode::Esc);
    }
    desk.look();
    desk
}

fn focus(desk: &mut Desk) {
    while desk.app.focus != Focus::Panel(Panel::Kv) {
        desk.press(KeyCode::Tab);
    }
}

fn keys(desk: &mut Desk, keys: &str) {
    keys.chars().for_each(|c| desk.press(KeyCode::Char(c)));
}

fn block(references: u16, cached: bool, owner: Option<u64>, used: u64) -> BlockView {
    let owner = owner.map(|request| SeqId { request: RequestId(request), choice: 0 });
    BlockView { references, cached, owner, used }
}

/// A pool in which twelve requests own a third of the blocks, share some, and left much in the cache.
fn crowd(blocks: usize) -> Vec<BlockView> {
    let run = (blocks / 48).max(1);
    let view = |i: usize| match (i / run % 4, (i / run / 4) as u64) {
        _ if i == 0 => block(1, false, None, 0),
        (0, nth) => block(1, i % 3 > 0, Some(1 + nth % 12), 900 + (i % 100) as u64),
        (1, nth) if nth % 3 == 0 => block(2 + (nth % 5) as u16, true, None, 990),
        (1, nth) => block(1, true, Some(1 + nth % 12), 600),
        (2, _) if i % 5 < 3 => block(0, true, None, 40 + (i % 400) as u64),
        _ => block(0, false, None, 0),
    };
    (0..blocks).map(view).collect()
}

/// Shows a picture of the engine with these blocks.
fn show(desk: &mut Desk, blocks: Vec<BlockView>) {
    let mut snapshot = desk.engine.snapshot();
    let count = |is: fn(&BlockView) -> bool| blocks.iter().filter(|b| is(b)).count();
    snapshot.kv.owned = count(|b| b.references > 0 && (b.owner.is_some() || b.references > 1));
    snapshot.kv.cached = count(|b| b.references == 0 && b.cached);
    snapshot.kv.free = count(|b| b.references == 0 && !b.cached);
    snapshot.kv.blocks = blocks;
    snapshot.step = 1_000;
    desk.tell(Message::Snapshot(Arc::new(snapshot)));
}

fn pointed(desk: &mut Desk, column: u16, row: u16) {
    let kind = MouseEventKind::Down(MouseButton::Left);
    desk.tell(Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
}

/// Where the first of these words is.
fn place(desk: &Desk, text: &str) -> (u16, u16) {
    let picture = desk.picture();
    let (y, line) = picture.lines().enumerate().find(|(_, line)| line.contains(text)).unwrap();
    let x = line[..line.find(text).unwrap()].chars().count();
    (x as u16, y as u16)
}

#[test]
fn the_map_scales_from_one_block_to_a_hundred_thousand() {
    for size in SIZES {
        for blocks in [1, 16, 2_048, 100_000] {
            let mut desk = zoomed(size, blocks);
            show(&mut desk, crowd(blocks));
            focus(&mut desk);
            keys(&mut desk, "z");
            let picture = desk.picture();
            assert!(!picture.contains("no blocks yet"), "{picture}");
            if blocks == 100_000 {
                assert!(picture.contains("a cell"), "{picture}");
            }
            snapshot(&format!("kv_map_{blocks}"), &desk);
        }
    }
}

#[test]
fn a_colour_mode_has_its_own_shapes_and_its_own_legend() {
    for size in SIZES {
        let mut desk = zoomed(size, 512);
        show(&mut desk, crowd(512));
        focus(&mut desk);
        keys(&mut desk, "z");
        for (mode, words) in [
            ("by share count", vec!["of one", "of 2", "of 3", "of more"]),
            ("by state", vec!["owned, cached", "evictable"]),
            ("by age", vec!["to 64", "to 512", "older", "never"]),
            ("by tier", vec!["device", "nothing"]),
        ] {
            keys(&mut desk, "c");
            let picture = desk.picture();
            for word in std::iter::once(mode).chain(words) {
                assert!(picture.contains(word), "{mode}: {word}\n{picture}");
            }
            snapshot(&format!("kv_{}", mode.replace(' ', "_")), &desk);
        }
        keys(&mut desk, "c");
        assert!(desk.picture().contains("shared"), "{}", desk.picture());
    }
}

#[test]
fn a_tier_beside_the_device_is_part_of_the_map_of_tiers() {
    let mut desk = zoomed(SIZES[1], 64);
    desk.engine.tiers = vec![TierView { medium: Medium::Host, blocks: 128, used: 40, ..TierView::default() }];
    show(&mut desk, crowd(64));
    focus(&mut desk);
    keys(&mut desk, "zcccc");
    assert!(desk.picture().contains("▓ 40 host"), "{}", desk.picture());
    snapshot("kv_by_tier_with_host", &desk);
}

#[test]
fn two_blocks_a_cell_need_colours() {
    let mut desk = zoomed(SIZES[1], 2_048);
    show(&mut desk, crowd(2_048));
    focus(&mut desk);
    keys(&mut desk, "zd");
    assert!(desk.picture().contains('▀'), "{}", desk.picture());
    snapshot("kv_dense", &desk);
    desk.app.theme = Theme::load("dark", None, Depth::None).unwrap();
    assert!(!desk.picture().contains('▀'), "{}", desk.picture());
    keys(&mut desk, "d");
    assert!(desk.picture().contains("told apart by colour"), "{}", desk.picture());
}

#[test]
fn without_colours_owners_are_told_apart_by_letters() {
    let mut desk = zoomed(SIZES[1], 64);
    desk.app.theme = Theme::load("dark", None, Depth::None).unwrap();
    desk.app.options.ascii = true;
    show(&mut desk, crowd(64));
    focus(&mut desk);
    keys(&mut desk, "z");
    let picture = desk.picture();
    assert!(picture.contains("A#") || picture.contains("AB") || picture.contains('A'), "{picture}");
    let foreign: String = picture.chars().filter(|c| !c.is_ascii()).collect();
    assert_eq!(foreign, "", "{picture}");
}

#[test]
fn what_the_step_changed_is_marked_for_one_look() {
    let mut desk = zoomed(SIZES[1], 64);
    desk.say("Why?");
    desk.steps(1);
    assert!(desk.picture().contains("◆"), "{}", desk.picture());
    let picture = desk.engine.snapshot();
    desk.tell(Message::Snapshot(Arc::new(picture)));
    let map = desk.picture().replace("◆ step", "");
    assert!(!map.contains('◆'), "{map}");
}

#[test]
fn arrows_pages_and_the_mouse_choose_a_block() {
    let mut desk = zoomed(SIZES[1], 512);
    show(&mut desk, crowd(512));
    focus(&mut desk);
    desk.picture();
    let row = desk.app.kv_row.get();
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Right);
    assert_eq!(desk.app.panels.kv.block, row + 1);
    desk.picture();
    let page = row * desk.app.kv_rows.get();
    desk.press(KeyCode::PageDown);
    assert_eq!(desk.app.panels.kv.block, (row + 1 + page).min(511));
    desk.press(KeyCode::PageUp);
    keys(&mut desk, "G");
    assert_eq!(desk.app.panels.kv.block, 511);
    keys(&mut desk, "g");
    assert_eq!(desk.app.panels.kv.block, 0);
    desk.press(KeyCode::Esc);
    let (x, y) = place(&desk, "2 kv blocks");
    let row = desk.app.kv_row.get();
    pointed(&mut desk, x + 7, y + 2);
    let per_cell = row / 41;
    assert_eq!((desk.app.focus, desk.app.panels.kv.block), (Focus::Panel(Panel::Kv), row + 8 * per_cell));
}

#[test]
fn the_engine_tells_what_the_chosen_block_holds() {
    for size in SIZES {
        let mut desk = zoomed(size, 512);
        desk.say("/parallel 3 Why?");
        desk.steps(60);
        focus(&mut desk);
        keys(&mut desk, "z");
        desk.press(KeyCode::Right);
        let asked = |desk: &Desk| desk.sent().iter().filter(|c| matches!(c, Command::Inspect(_))).count();
        assert!(desk.sent().contains(&&Command::Inspect(Inspect::Block(1))), "{:?}", desk.sent());
        let picture = desk.picture();
        assert!(picture.contains("│ is│ the│ sky"), "{picture}");
        assert!(picture.contains("chain "), "{picture}");
        assert!(!picture.contains('\u{1b}'), "{picture}");
        snapshot("kv_block", &desk);
        // Not asked again before the step changes, nor more than a few times a second.
        let before = asked(&desk);
        desk.look();
        desk.press(KeyCode::Null);
        assert_eq!(asked(&desk), before);
        desk.steps(10);
        assert_eq!(asked(&desk), before, "80 ms have passed");
        desk.wait(1_000);
        desk.steps(2);
        assert_eq!(asked(&desk), before + 1);
        // Nobody asks while the panel is not in focus.
        desk.press(KeyCode::Esc);
        desk.wait(1_000);
        desk.steps(2);
        assert_eq!(asked(&desk), before + 1);
    }
}

#[test]
fn the_prefix_cache_is_a_tree_that_folds_and_marks_its_blocks_in_the_map() {
    for size in SIZES {
        let mut desk = zoomed(size, 512);
        desk.say("/parallel 3 Why?");
        desk.steps(70);
        focus(&mut desk);
        keys(&mut desk, "zt");
        let picture = desk.picture();
        for seen in ["hash", "▾ \"Why is the sky", "├ ", "└ ", "\\x1b[31m"] {
            assert!(picture.contains(seen), "{seen}\n{picture}");
        }
        assert!(!picture.contains('\u{1b}'));
        snapshot("kv_tree", &desk);
        desk.press(KeyCode::Enter);
        assert!(desk.picture().contains("▸ "), "{}", desk.picture());
        keys(&mut desk, " ");
        assert!(desk.picture().contains("▾ ") && !desk.app.paused, "{}", desk.picture());
        keys(&mut desk, "jt");
        assert!(!desk.app.panels.kv.tree);
        assert!(desk.picture().contains("◈"), "{}", desk.picture());
        assert!(desk.picture().contains("marked"), "{}", desk.picture());
        snapshot("kv_marked", &desk);
        keys(&mut desk, " ");
        assert!(desk.app.paused, "over the map, space still pauses");
    }
}

#[test]
fn a_deep_tree_says_how_deep_and_what_is_left_out() {
    for size in SIZES {
        let mut desk = zoomed(size, 512);
        let node = |i: usize| CacheNode {
            parent: i.checked_sub(if i % 4 == 3 { 2 } else { 1 }),
            text: format!("level {i} \u{202e} of \"it\""),
            tokens: 16 * (1 + i % 3),
            blocks: (0..1 + i % 3).map(|b| (i * 3 + b) as u32).collect(),
            references: usize::from(i < 9),
            used: i as u64,
        };
        let nodes = (0..90).map(node).collect();
        desk.engine.tree = Some(CacheTree { index: "radix".into(), nodes, left_out: 1_234 });
        desk.look();
        focus(&mut desk);
        keys(&mut desk, "ztG");
        let picture = desk.picture();
        assert!(picture.contains("1,234 more left out"), "{picture}");
        assert!(picture.contains('…'), "{picture}");
        snapshot("kv_tree_deep", &desk);
        desk.engine.tree = Some(CacheTree { index: "radix".into(), ..CacheTree::default() });
        desk.press(KeyCode::Esc);
        desk.say("x");
        desk.wait(1_000);
        desk.steps(1);
        focus(&mut desk);
        assert!(desk.picture().contains("nothing is cached"), "{}", desk.picture());
    }
}

#[test]
fn everything_shared_and_nothing_left() {
    for size in SIZES {
        let mut desk = zoomed(size, 256);
        show(&mut desk, (0..256).map(|i| block(2 + i % 3, true, None, 999)).collect());
        focus(&mut desk);
        assert!(desk.picture().contains("256 shared"), "{}", desk.picture());
        snapshot("kv_all_shared", &desk);
    }
}

#[test]
fn a_panel_with_nothing_to_show_says_so() {
    for size in SIZES {
        let mut desk = Desk::new(size);
        desk.tell(Message::Models(catalogue(true)));
        desk.say("/panel 2");
        if !desk.picture().contains("no blocks yet") {
            desk.say("/panel 2");
        }
        assert!(desk.picture().contains("no blocks yet"), "{}", desk.picture());
    }
}

#[test]
fn no_size_is_too_small_for_the_map_and_the_tree() {
    let mut desk = zoomed(SIZES[2], 100_000);
    show(&mut desk, crowd(100_000));
    focus(&mut desk);
    keys(&mut desk, "z");
    for keys_of in ["", "t", "td", "c"] {
        keys(&mut desk, keys_of);
        for (width, height) in [(1, 1), (12, 4), (60, 15), (61, 16), (80, 15), (100, 24), (160, 24)] {
            desk.app.size = (width, height);
            desk.picture();
        }
    }
}
