//! The row of open chats, where there are several: `▸1 Why is the sky…  2 Bread •`.

use super::paint;
use crate::tui::app::App;
use crate::tui::calls::CallState;
use crate::tui::chat::Chat;
use crate::tui::hits::Target;
use crate::tui::theme::Role;
use crate::tui::{format, sanitize, stored};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Fewer columns for a tab say nothing; more are not needed.
const LEAST: usize = 10;
const MOST: usize = 32;

/// 1 where there is something to choose from and room for it.
pub fn rows(app: &App) -> u16 {
    u16::from(app.tabs.len() > 1 && app.size.1 >= 8)
}

pub fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let (all, active) = (app.tabs.len(), app.tabs.active());
    let room = usize::from(area.width).saturating_sub(1);
    let fit = (room / LEAST).clamp(1, all);
    // Those around the one in view, where not all fit.
    let first = active.saturating_sub(fit / 2).min(all - fit);
    let beyond = if fit < all { 4 } else { 0 };
    let wide = (room.saturating_sub(2 * beyond) / fit).clamp(4, MOST);
    let mut x = area.x;
    if first > 0 {
        let left = Line::styled(format!("‹{first} "), app.theme.style(Role::Muted));
        paint::line(x, area.y, &left, area, buf);
        x += beyond as u16;
    }
    for (tab, chat) in app.tabs.all(&app.chat).enumerate().skip(first).take(fit) {
        let line = label(app, chat, tab, wide);
        let width = (line.width() as u16).min(area.right().saturating_sub(x));
        app.hits.note(Rect { x, y: area.y, width, height: 1 }, Target::Tab(tab));
        paint::line(x, area.y, &line, area, buf);
        x = x.saturating_add(width + 1);
    }
    if first + fit < all && x < area.right() {
        let right = Line::styled(format!("{}›", all - first - fit), app.theme.style(Role::Muted));
        paint::line(x, area.y, &right, area, buf);
    }
}

fn label(app: &App, chat: &Chat, tab: usize, wide: usize) -> Line<'static> {
    let is_active = tab == app.tabs.active();
    let number = format!("{}{} ", if is_active { "▸" } else { " " }, tab + 1);
    let (mark, role) = mark(chat, is_active);
    let room = wide.saturating_sub(1 + format::width(&number) + format::width(mark));
    let title = sanitize::one_line(&stored::title(chat));
    let title = if title.is_empty() { "new chat".to_owned() } else { title };
    let (key, text) = if is_active { (Role::Accent, Role::Heading) } else { (Role::Muted, Role::Muted) };
    Line::from(vec![
        Span::styled(number, app.theme.style(key)),
        Span::styled(format::fit(&title, room), app.theme.style(text)),
        Span::styled(mark, app.theme.style(role)),
    ])
}

/// What there is to know of a chat that is not looked at.
fn mark(chat: &Chat, is_active: bool) -> (&'static str, Role) {
    let waits = |chat: &Chat| {
        chat.pending().is_some_and(|turn| turn.calls.iter().any(|call| call.state == CallState::Planned))
    };
    match chat {
        chat if waits(chat) => (" !", Role::Warn),
        chat if chat.is_running() || chat.pending().is_some() => (" …", Role::Good),
        chat if chat.unread && !is_active => (" •", Role::Accent),
        _ => ("", Role::Text),
    }
}
