//! The screen without a screen of its own: a few lines at the end of the terminal's, redrawn in
//! place, and above them, for good and in the terminal's scrollback, what is finished.

use super::app::App;
use super::view::inline::{self as view, Above};
use crossterm::cursor::{Hide, MoveTo, Show, position};
use crossterm::style::Print;
use crossterm::terminal::{Clear, ClearType};
use crossterm::{execute, queue};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::{Buffer, Cell, CellWidth};
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How often a terminal that is being resized is asked again where it stands.
const MOVES: usize = 8;

/// A terminal that says nothing for so long does not answer at all.
const SILENT: Duration = Duration::from_secs(1);

/// The lines at the end, and where on the terminal they are.
pub struct Inline {
    size: (u16, u16),
    /// Row of the first one; the way out needs it too.
    top: Arc<AtomicU16>,
    /// As last drawn; rows are counted from the first one.
    drawn: Buffer,
    /// Where the terminal's cursor was left.
    cursor: Position,
    above: Above,
    /// Answers of the terminal that came after their question was given up.
    late: usize,
}

impl Inline {
    /// Where the cursor is, `top` tells to those who give the terminal back.
    pub fn new(top: Arc<AtomicU16>) -> Self {
        let drawn = Buffer::empty(Rect::default());
        Self { size: (0, 0), top, drawn, cursor: Position::ORIGIN, above: Above::default(), late: 0 }
    }

    /// Column and row of the cursor, as the terminal answers. Whoever read keys until now was woken up
    /// to stop, which may end our waiting instead; that answer then comes to the next question.
    fn ask(&mut self) -> Option<(u16, u16)> {
        let (mut late, mut answer) = (self.late, None);
        for _ in 0..MOVES {
            let asked = Instant::now();
            match position() {
                Ok(place) if late == 0 => return Some(place),
                Ok(place) => (answer, late) = (Some(place), late - 1),
                Err(_) if asked.elapsed() > SILENT => return None,
                Err(_) => self.late += 1,
            }
        }
        answer
    }

    fn top(&self) -> u16 {
        self.top.load(Ordering::SeqCst)
    }

    /// Starts on the row of the cursor, or under what stands there. Nobody may be reading keys
    /// meanwhile: the terminal answers where the cursor is.
    pub fn begin<W: Write>(&mut self, out: &mut CrosstermBackend<W>) -> io::Result<()> {
        let size = out.size()?;
        self.size = (size.width, size.height);
        // A terminal that does not answer is taken to stand at its last row.
        let (column, row) = self.ask().unwrap_or((1, size.height.saturating_sub(1)));
        let mut top = row.min(size.height.saturating_sub(1));
        if column > 0 {
            execute!(out, Print("\r\n"))?;
            top = (top + 1).min(size.height.saturating_sub(1));
        }
        self.top.store(top, Ordering::SeqCst);
        self.forget();
        Ok(())
    }

    /// After the terminal took another size: its lines may be wrapped anew, and ours with them.
    /// Nobody may be reading keys meanwhile.
    pub fn find<W: Write>(&mut self, out: &mut CrosstermBackend<W>) -> io::Result<()> {
        let (mut size, mut row) = (out.size()?, None);
        for _ in 0..MOVES {
            row = self.ask().map(|(_, row)| row);
            let newest = out.size()?;
            if newest == size {
                break;
            }
            // It moved while it was asked.
            size = newest;
        }
        let last = size.height.saturating_sub(1);
        let row = row.unwrap_or(last).min(last);
        let above_cursor = match rewraps() {
            true => self.rows_to_cursor(size.width),
            false => self.cursor.y,
        };
        self.size = (size.width, size.height);
        self.top.store(row.saturating_sub(above_cursor), Ordering::SeqCst);
        self.erase(out)
    }

    /// The next frame draws every cell.
    pub fn erase<W: Write>(&mut self, out: &mut CrosstermBackend<W>) -> io::Result<()> {
        self.forget();
        execute!(out, MoveTo(0, self.top()), Clear(ClearType::FromCursorDown))
    }

    pub fn draw<W: Write>(&mut self, out: &mut CrosstermBackend<W>, app: &App) -> io::Result<()> {
        let (width, height) = self.size;
        let now = out.size()?;
        if app.size != self.size || (now.width, now.height) != self.size || width == 0 || height == 0 {
            // The terminal has another size than we know of: where we are is not known either.
            return Ok(());
        }
        let finished = view::finished(app, &mut self.above, self.size);
        let rows = view::rows(app, &self.above, self.size);
        if !finished.is_empty() || rows != self.drawn.area.height {
            queue!(out, Hide, MoveTo(0, self.top()), Clear(ClearType::FromCursorDown))?;
            self.print(out, app, &finished)?;
            self.make_room(out, rows)?;
            self.drawn = Buffer::empty(Rect::new(0, 0, width, rows));
        }
        let mut picture = Buffer::empty(self.drawn.area);
        let cursor = view::draw(app, &self.above, &mut picture);
        let top = self.top();
        out.draw(self.drawn.diff(&picture).into_iter().map(|(x, y, cell)| (x, top + y, cell)))?;
        self.drawn = picture;
        self.cursor = cursor.unwrap_or(Position::new(0, rows.saturating_sub(1)));
        queue!(out, MoveTo(self.cursor.x, top + self.cursor.y))?;
        if cursor.is_some() { queue!(out, Show) } else { queue!(out, Hide) }
    }

    /// What is not finished goes above as it is; the prompt comes back right under it.
    pub fn end<W: Write>(&mut self, out: &mut CrosstermBackend<W>, app: &App) -> io::Result<()> {
        self.erase(out)?;
        let rest = view::rest(app, &mut self.above, self.size);
        self.print(out, app, &rest)?;
        Backend::flush(out)
    }

    fn forget(&mut self) {
        self.drawn = Buffer::empty(Rect::default());
        self.cursor = Position::ORIGIN;
    }

    /// Writes lines from `top` on as a program without a screen would: they scroll as they must.
    fn print<W: Write>(
        &mut self,
        out: &mut CrosstermBackend<W>,
        app: &App,
        lines: &[Line<'static>],
    ) -> io::Result<()> {
        let last = self.size.1.saturating_sub(1);
        let mut row = self.top();
        for lines in lines.chunks(100) {
            let page = view::page(app, lines, self.size.0);
            for line in page.content.chunks(usize::from(page.area.width).max(1)) {
                out.draw(cells(line).map(|(x, cell)| (x, row, cell)))?;
                queue!(out, Print("\r\n"))?;
                row = (row + 1).min(last);
            }
        }
        self.top.store(row, Ordering::SeqCst);
        Ok(())
    }

    /// Lets what is above scroll until `rows` fit under it.
    fn make_room<W: Write>(&mut self, out: &mut CrosstermBackend<W>, rows: u16) -> io::Result<()> {
        let (top, height) = (self.top(), self.size.1);
        let missing = (top + rows).saturating_sub(height);
        if missing > 0 {
            queue!(out, MoveTo(0, height - 1))?;
            out.write_all("\n".repeat(missing.into()).as_bytes())?;
            self.top.store(top.saturating_sub(missing), Ordering::SeqCst);
        }
        Ok(())
    }

    /// Rows from our first to the cursor's, once lines longer than `width` are broken.
    fn rows_to_cursor(&self, width: u16) -> u16 {
        let wide = usize::from(self.drawn.area.width).max(1);
        let lines = self.drawn.content.chunks(wide).take(self.cursor.y.into());
        let broken = |line: &[Cell]| {
            let used = cells(line).last().map_or(0, |(x, cell)| x + cell.cell_width());
            used.div_ceil(width.max(1)).max(1)
        };
        lines.map(broken).sum::<u16>() + self.cursor.x / width.max(1)
    }
}

/// A row's cells up to its last letter, without those under wide ones.
fn cells(line: &[Cell]) -> impl Iterator<Item = (u16, &Cell)> {
    let is_blank = |cell: &Cell| *cell == Cell::default();
    let used = line.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
    let mut next = 0;
    line[..used].iter().enumerate().filter_map(move |(x, cell)| {
        if x < next {
            return None;
        }
        next = x + usize::from(cell.cell_width().max(1));
        Some((x as u16, cell))
    })
}

/// Whether this terminal wraps its lines anew when it gets narrower. Most do.
fn rewraps() -> bool {
    let term = std::env::var("TERM").unwrap_or_default();
    std::env::var_os("XTERM_VERSION").is_none() && !term.starts_with("linux") && !term.starts_with("vt")
}
