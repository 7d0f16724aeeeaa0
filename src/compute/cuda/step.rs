//! One step's work as the kernels read it: `struct Step` in `kernels/common.cuh`.
//!
//! A block of 32-bit words, copied to one address of the device for every step. Launches never say how
//! much there is to do: a graph that was captured for a bucket of rows is replayed over any step that
//! fits, kernels find their sizes in the header, and blocks of threads with nothing to do return.
//!
//! ```text
//! | header | tokens | positions | span of each row | first | len | start of each span | wanted |
//! | for each group: offsets of the spans' tables, then the tables |
//! | for each rope: cosines, sines | span and first row of each tile |
//! ```
//! Every array begins at a multiple of 16 bytes.

use crate::compute::{DeviceError, Result, RopeTable, Span};

pub const MOST_GROUPS: usize = 16;
pub const MOST_ROPES: usize = 4;

/// Places of the header's words.
mod header {
    use super::{MOST_GROUPS, MOST_ROPES};

    pub const ROWS: usize = 0;
    pub const SPANS: usize = 1;
    pub const OUTPUTS: usize = 2;
    pub const TOKENS: usize = 3;
    pub const POSITIONS: usize = 4;
    pub const SPAN_OF: usize = 5;
    pub const FIRST: usize = 6;
    pub const LEN: usize = 7;
    pub const START: usize = 8;
    pub const WANTED: usize = 9;
    pub const TABLE: usize = 10;
    pub const COSINE: usize = TABLE + MOST_GROUPS;
    pub const SINE: usize = COSINE + MOST_ROPES;
    pub const HALF: usize = SINE + MOST_ROPES;
    pub const TILES: usize = HALF + MOST_ROPES;
    pub const TILE_SPAN: usize = TILES + 1;
    pub const TILE_ROW: usize = TILES + 2;
    pub const WORDS: usize = TILES + 3;
}

/// Arrays begin at multiples of this.
const ALIGN: usize = 4;

/// What a step is about.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub tokens: &'a [u32],
    /// The step's sequences, which cover the rows in order, once for each group of caches: the same
    /// rows, with that group's block tables.
    pub groups: &'a [&'a [Span<'a>]],
    /// Of every kind of layer.
    pub ropes: &'a [&'a RopeTable],
    /// Rows whose hidden state is wanted.
    pub wanted: &'a [usize],
    /// Spans of more than one row are cut into tiles of at most so many rows.
    pub tile_rows: usize,
}

impl Work<'_> {
    /// Of spans of more than one row.
    pub fn tiles(&self) -> usize {
        self.spans().iter().map(|span| tiles_of(span, self.tile_rows)).sum()
    }

    /// Words that [`StepWords::write`] takes.
    pub fn words(&self) -> usize {
        let array = |len: usize| len.next_multiple_of(ALIGN);
        let (rows, spans) = (self.tokens.len(), self.spans().len());
        let table =
            |spans: &&[Span]| array(spans.len() + 1) + array(spans.iter().map(|span| span.table.len()).sum());
        array(header::WORDS)
            + 3 * array(rows)
            + 3 * array(spans)
            + array(self.wanted.len())
            + self.groups.iter().map(table).sum::<usize>()
            + self.ropes.iter().map(|rope| 2 * array(rows * rope.half)).sum::<usize>()
            + 2 * array(self.tiles())
    }

    fn spans(&self) -> &[Span<'_>] {
        self.groups.first().copied().unwrap_or_default()
    }
}

/// Tiles of one span; a single row is decoded, not tiled.
fn tiles_of(span: &Span, tile_rows: usize) -> usize {
    if span.len > 1 { span.len.div_ceil(tile_rows) } else { 0 }
}

/// Where a step is written to.
pub struct StepWords<'a> {
    words: &'a mut [u32],
    used: usize,
}

impl<'a> StepWords<'a> {
    pub fn new(words: &'a mut [u32]) -> Self {
        Self { words, used: 0 }
    }

    /// Writes all of it, and says how many words that took. What lies behind them is left alone.
    pub fn write(mut self, work: &Work) -> Result<usize> {
        let spans = check(work)?;
        let rows = work.tokens.len();
        self.take(header::WORDS)?.fill(0);
        self.set(header::ROWS, rows);
        self.set(header::SPANS, spans.len());
        self.set(header::OUTPUTS, work.wanted.len());
        self.array(header::TOKENS, rows, work.tokens.iter().copied())?;
        self.array(header::POSITIONS, rows, each_row(spans, |_, span, i| span.start + i))?;
        self.array(header::SPAN_OF, rows, each_row(spans, |index, _, _| index))?;
        self.array(header::FIRST, spans.len(), spans.iter().map(|span| span.first as u32))?;
        self.array(header::LEN, spans.len(), spans.iter().map(|span| span.len as u32))?;
        self.array(header::START, spans.len(), spans.iter().map(|span| span.start as u32))?;
        self.array(header::WANTED, work.wanted.len(), work.wanted.iter().map(|row| *row as u32))?;
        for (group, spans) in work.groups.iter().enumerate() {
            self.tables(header::TABLE + group, spans)?;
        }
        for (i, rope) in work.ropes.iter().enumerate() {
            self.set(header::HALF + i, rope.half);
            let len = rows * rope.half;
            self.array(header::COSINE + i, len, rope.cos[..len].iter().map(|x| x.to_bits()))?;
            self.array(header::SINE + i, len, rope.sin[..len].iter().map(|x| x.to_bits()))?;
        }
        let tiles = spans.iter().map(|span| tiles_of(span, work.tile_rows)).sum();
        self.set(header::TILES, tiles);
        self.array(header::TILE_SPAN, tiles, each_tile(spans, work.tile_rows, |span, _| span))?;
        self.array(header::TILE_ROW, tiles, each_tile(spans, work.tile_rows, |_, row| row))?;
        Ok(self.used)
    }

    fn set(&mut self, word: usize, value: usize) {
        self.words[word] = value as u32;
    }

    /// The next `len` words.
    fn take(&mut self, len: usize) -> Result<&mut [u32]> {
        let (start, room) = (self.used, self.words.len());
        let end = start + len.next_multiple_of(ALIGN);
        if end > room {
            return Err(DeviceError(format!("CUDA: a step needs more than the {room} words kept for it")));
        }
        self.used = end;
        Ok(&mut self.words[start..start + len])
    }

    /// An array of `len` words, which begins where the header's `word` says.
    fn array(&mut self, word: usize, len: usize, values: impl Iterator<Item = u32>) -> Result<()> {
        self.set(word, self.used);
        for (to, value) in self.take(len)?.iter_mut().zip(values) {
            *to = value;
        }
        Ok(())
    }

    fn tables(&mut self, word: usize, spans: &[Span]) -> Result<()> {
        let first = self.used + (spans.len() + 1).next_multiple_of(ALIGN);
        let mut end = first;
        let ends = spans.iter().map(|span| {
            end += span.table.len();
            end as u32
        });
        self.array(word, spans.len() + 1, std::iter::once(first as u32).chain(ends))?;
        let blocks = self.take(spans.iter().map(|span| span.table.len()).sum())?;
        for (to, block) in blocks.iter_mut().zip(spans.iter().flat_map(|span| span.table)) {
            *to = *block;
        }
        Ok(())
    }
}

fn each_row<'a>(
    spans: &'a [Span],
    value: impl Fn(usize, &Span, usize) -> usize + Copy + 'a,
) -> impl Iterator<Item = u32> + 'a {
    let rows =
        move |(index, span): (usize, &'a Span<'a>)| (0..span.len).map(move |i| value(index, span, i) as u32);
    spans.iter().enumerate().flat_map(rows)
}

/// `value` of a tile's span and of its first row.
fn each_tile<'a>(
    spans: &'a [Span],
    tile_rows: usize,
    value: impl Fn(usize, usize) -> usize + Copy + 'a,
) -> impl Iterator<Item = u32> + 'a {
    let tiles = move |(index, span): (usize, &Span)| {
        (0..tiles_of(span, tile_rows)).map(move |tile| value(index, tile * tile_rows) as u32)
    };
    spans.iter().enumerate().flat_map(tiles)
}

/// The spans, once everything is known to belong together.
fn check<'a>(work: &Work<'a>) -> Result<&'a [Span<'a>]> {
    let refuse = |what: String| Err(DeviceError(format!("CUDA: a step {what}")));
    let rows = work.tokens.len();
    if !(1..=MOST_GROUPS).contains(&work.groups.len()) {
        return refuse(format!("of {} groups of caches; 1 to {MOST_GROUPS} are known", work.groups.len()));
    }
    if work.ropes.len() > MOST_ROPES {
        return refuse(format!("of {} ropes; at most {MOST_ROPES} are known", work.ropes.len()));
    }
    let mut next = 0;
    let in_order = work.groups[0].iter().all(|span| {
        let begins = span.first == next;
        next += span.len;
        begins
    });
    if !in_order || next != rows {
        return refuse(format!("whose spans do not cover its {rows} rows in order"));
    }
    let place = |span: &Span| (span.first, span.len, span.start);
    if work.groups.iter().any(|spans| !spans.iter().map(place).eq(work.groups[0].iter().map(place))) {
        return refuse("whose groups of caches have different spans".into());
    }
    if work.ropes.iter().any(|rope| rope.cos.len().min(rope.sin.len()) < rows * rope.half) {
        return refuse(format!("whose angles are fewer than its {rows} rows"));
    }
    if work.wanted.iter().any(|row| *row >= rows) {
        return refuse(format!("that wants a row beyond its {rows}"));
    }
    if work.tile_rows == 0 {
        return refuse("with tiles of no rows".into());
    }
    Ok(work.groups[0])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::compute::RopeStyle;

    fn rope(positions: &[usize], half: usize) -> RopeTable {
        let mut rope = RopeTable::new(RopeStyle::Halves);
        rope.fill(positions.iter().copied(), &vec![0.5; half], 1.0);
        rope
    }

    /// A prompt of five rows after 3 others, between two sequences that decode.
    const SPANS: [Span; 3] = [
        Span { first: 0, len: 1, start: 7, table: &[4, 2] },
        Span { first: 1, len: 5, start: 3, table: &[9, 8, 7] },
        Span { first: 6, len: 1, start: 0, table: &[1] },
    ];
    const POSITIONS: [usize; 7] = [7, 3, 4, 5, 6, 7, 0];

    const FAR: [Span; 3] = [
        Span { table: &[6, 5], ..SPANS[0] },
        Span { table: &[6, 5], ..SPANS[1] },
        Span { table: &[6, 5], ..SPANS[2] },
    ];

    fn ropes() -> [RopeTable; 2] {
        [rope(&POSITIONS, 2), rope(&POSITIONS, 3)]
    }

    fn work<'a>(ropes: &'a [&'a RopeTable]) -> Work<'a> {
        Work {
            tokens: &[10, 11, 12, 13, 14, 15, 16],
            groups: &[&SPANS, &FAR],
            ropes,
            wanted: &[0, 5, 6],
            tile_rows: 2,
        }
    }

    #[test]
    fn everything_is_where_the_header_says() {
        let [one, two] = ropes();
        let mut words = vec![u32::MAX; work(&[&one, &two]).words()];
        let used = StepWords::new(&mut words).write(&work(&[&one, &two])).unwrap();
        assert!(used <= words.len());
        let array = |word: usize, len: usize| {
            assert_eq!(words[word] as usize % ALIGN, 0);
            &words[words[word] as usize..][..len]
        };
        assert_eq!(words[..3], [7, 3, 3]);
        assert_eq!(array(header::TOKENS, 7), [10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(array(header::POSITIONS, 7), POSITIONS.map(|p| p as u32));
        assert_eq!(array(header::SPAN_OF, 7), [0, 1, 1, 1, 1, 1, 2]);
        assert_eq!(array(header::FIRST, 3), [0, 1, 6]);
        assert_eq!(array(header::LEN, 3), [1, 5, 1]);
        assert_eq!(array(header::START, 3), [7, 3, 0]);
        assert_eq!(array(header::WANTED, 3), [0, 5, 6]);
        let table = |group: usize, span: usize| {
            let ends = array(header::TABLE + group, 4);
            &words[ends[span] as usize..ends[span + 1] as usize]
        };
        for (i, span) in SPANS.iter().enumerate() {
            assert_eq!(table(0, i), span.table);
            assert_eq!(table(1, i), [6, 5]);
        }
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(words[header::HALF..][..4], [2, 3, 0, 0]);
        assert_eq!(array(header::COSINE + 1, 21), bits(&two.cos));
        assert_eq!(array(header::SINE + 1, 21), bits(&two.sin));
        assert_eq!(words[header::TILES], 3);
        assert_eq!(array(header::TILE_SPAN, 3), [1, 1, 1]);
        assert_eq!(array(header::TILE_ROW, 3), [0, 2, 4]);
    }

    #[test]
    fn a_step_fits_into_its_words_and_no_fewer() {
        let [one, two] = ropes();
        let ropes = [&one, &two];
        let mut words = vec![0; work(&ropes).words()];
        let used = StepWords::new(&mut words).write(&work(&ropes)).unwrap();
        assert_eq!(used, words.len());
        for len in 0..used {
            let said = StepWords::new(&mut words[..len]).write(&work(&ropes)).unwrap_err();
            assert!(said.0.contains("words kept for it"), "{said}");
        }
        // Single rows, tiles of two, odd lengths: no more and no fewer words than were counted.
        for lens in [[1, 1, 5], [3, 3, 1], [2, 2, 3], [7, 0, 0], [3, 2, 2]] {
            let mut first = 0;
            let spans = lens.map(|len| {
                first += len;
                Span { first: first - len, len, ..SPANS[0] }
            });
            let work = Work { groups: &[&spans], ..work(&ropes) };
            let mut words = vec![0; work.words()];
            assert_eq!(StepWords::new(&mut words).write(&work).unwrap(), words.len(), "{lens:?}");
        }
    }

    fn refused(work: Work) -> String {
        StepWords::new(&mut [0; 1000]).write(&work).unwrap_err().0
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let later = SPANS.map(|span| Span { start: span.start + 1, ..span });
        let swapped = [SPANS[1], SPANS[0], SPANS[2]];
        let few = rope(&POSITIONS[..6], 2);
        let work = work(&[]);
        assert!(refused(Work { groups: &[], ..work }).contains("0 groups"));
        assert!(refused(Work { groups: &[&SPANS[..2]], ..work }).contains("cover its 7 rows"));
        assert!(refused(Work { groups: &[&swapped], ..work }).contains("cover its 7 rows"));
        assert!(refused(Work { groups: &[&SPANS, &later], ..work }).contains("different spans"));
        assert!(refused(Work { wanted: &[7], ..work }).contains("beyond its 7"));
        assert!(refused(Work { tile_rows: 0, ..work }).contains("tiles of no rows"));
        assert!(refused(Work { ropes: &[&few], ..work }).contains("angles"));
    }
}
