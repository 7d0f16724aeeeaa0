use crate::harness::{Numbers, bytes_of, close, get, in_every_order, put, room};
use glassbox::compute::cuda::lora::{self, Adapter, Batch, Columns, Of};
use glassbox::compute::cuda::{Gpu, Memory};
use half::{bf16, f16};

/// Relative to the largest output of the case. By rows: f32 sums in another order than the twin's. By
/// tiles, x and what is between the steps are cut to 16 bits: 2^-16 of each product, to either side.
const SUMS: f32 = 2e-6;
const CUT: f32 = 1e-5;

/// An adapter on the host, as the twin reads it.
struct Twin {
    a: Vec<f32>, // [rank, k]
    b: Vec<f32>, // [n, rank]
    rank: usize,
    scale: f32,
}

/// Ranks of every kind: one mma wide, not a power of two, the largest; f16 and bf16 in turn. The third
/// leaves the matrix alone.
const RANKS: [usize; 6] = [8, 16, 0, 24, 64, 40];
const MOST: usize = 64;

struct Case {
    k: usize,
    columns: Columns,
    twins: Vec<Twin>,
    held: Vec<Memory>,
    table: Memory,
}

fn case(gpu: &Gpu, k: usize, columns: Columns) -> Case {
    let mut numbers = Numbers::new((k + columns.n) as u64);
    let (mut twins, mut held, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for (i, rank) in RANKS.into_iter().enumerate() {
        let half = i % 2 == 0;
        let mut matrix = |len: usize| -> (Vec<f32>, Vec<u16>) {
            let values = numbers.units(len).into_iter().map(|x| match half {
                true => (f16::from_f32(x).to_f32(), f16::from_f32(x).to_bits()),
                false => (bf16::from_f32(x).to_f32(), bf16::from_f32(x).to_bits()),
            });
            values.unzip()
        };
        let ((a, bits_a), (b, bits_b)) = (matrix(rank * k), matrix(columns.n * rank));
        let scale = 0.5 + i as f32;
        twins.push(Twin { a, b, rank, scale });
        let (bits_a, bits_b) = (put(gpu, &bits_a), put(gpu, &bits_b));
        entries.push((rank > 0).then(|| Adapter { a: bits_a.at(0), b: bits_b.at(0), rank, half, scale }));
        held.extend([bits_a, bits_b]);
    }
    Case { k, columns, twins, held, table: lora::table(gpu, &entries).unwrap() }
}

fn twin(case: &Case, x: &[f32], of: &[i32], out: &mut [f32]) {
    let Columns { first, n, width } = case.columns;
    for (t, adapter) in of.iter().enumerate() {
        let Ok(adapter) = usize::try_from(*adapter) else { continue };
        let Twin { a, b, rank, scale } = &case.twins[adapter];
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let x = &x[t * case.k..][..case.k];
        let down: Vec<f32> = (0..*rank).map(|r| dot(&a[r * case.k..][..case.k], x) as f32).collect();
        for i in 0..n {
            out[t * width + first + i] += scale * dot(&b[i * rank..][..*rank], &down) as f32;
        }
    }
}

fn run(gpu: &Gpu, case: &Case, x: &[f32], of: &[i32], by_tiles: bool, out: &[f32]) -> Vec<f32> {
    let rows = of.len();
    let (dx, dout) = (put(gpu, x), put(gpu, out));
    let words = if by_tiles { lora::tiles(of) } else { of.to_vec() };
    let words = put(gpu, &words);
    // More than there are, as in a captured graph.
    let of = if by_tiles { Of::Tiles(&words, lora::most_tiles(rows, RANKS.len())) } else { Of::Rows(&words) };
    let batch = Batch { of, adapters: &case.table, rows, rank: MOST };
    let tmp = room::<u8>(gpu, lora::tmp_bytes(rows, case.k, MOST));
    lora::shrink(gpu, &tmp, &dx, case.k, batch).unwrap();
    lora::expand(gpu, &dout, case.columns, &tmp, case.k, batch).unwrap();
    get(gpu, &dout, out.len())
}

#[track_caller]
fn near(got: &[f32], wanted: &[f32], tolerance: f32) {
    let most = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let relative = |values: &[f32]| values.iter().map(|x| x / most).collect::<Vec<_>>();
    close("lora", &relative(got), &relative(wanted), tolerance);
}

/// Rows of several adapters, of none, and of one that leaves the matrix alone, mixed.
fn mixed(rows: usize) -> Vec<i32> {
    (0..rows).map(|t| [0, 4, -1, 1, 3, 2, 4, 5, 4][t % 9]).collect()
}

/// k of one piece and of two with a short one; outputs within a stacked matrix, and more than a block has.
fn cases(gpu: &Gpu) -> [Case; 2] {
    [
        case(gpu, 1056, Columns { first: 6, n: 40, width: 52 }),
        case(gpu, 96, Columns { first: 0, n: 266, width: 266 }),
    ]
}

fn compare(by_tiles: bool, all_rows: &[usize]) {
    in_every_order(|gpu| {
        for case in &cases(gpu) {
            for rows in all_rows {
                let mut numbers = Numbers::new(*rows as u64);
                let of = mixed(*rows);
                let (x, out) = (numbers.units(rows * case.k), numbers.units(rows * case.columns.width));
                let mut wanted = out.clone();
                twin(case, &x, &of, &mut wanted);
                let got = run(gpu, case, &x, &of, by_tiles, &out);
                near(&got, &wanted, if by_tiles { CUT } else { SUMS });
                let again = run(gpu, case, &x, &of, by_tiles, &out);
                assert_eq!(bytes_of(&got), bytes_of(&again), "the same bits every time");
            }
        }
    });
}

#[test]
fn adapters_are_added_row_by_row() {
    compare(false, &[1, 9]);
}

#[test]
fn adapters_are_added_tile_by_tile() {
    compare(true, &[1, 9, 60]);
}

/// A row's result is its own: the same bits alone and in a batch.
#[test]
fn rows_do_not_see_each_other() {
    in_every_order(|gpu| {
        let case = case(gpu, 96, Columns { first: 0, n: 40, width: 40 });
        let x = Numbers::new(5).units(20 * case.k);
        let out = vec![0.25; 20 * 40];
        for by_tiles in [false, true] {
            let all = run(gpu, &case, &x, &[4; 20], by_tiles, &out);
            let one = run(gpu, &case, &x[17 * case.k..][..case.k], &[4], by_tiles, &out[..40]);
            assert_eq!(all[17 * 40..][..40], one[..]);
        }
    });
}

#[test]
fn numbers_keep_their_range_and_nan_stays() {
    in_every_order(|gpu| {
        let case = case(gpu, 96, Columns { first: 0, n: 40, width: 40 });
        let mut x = Numbers::new(5).units(3 * case.k);
        x[..96].iter_mut().for_each(|x| *x *= 1e30);
        x[96..192].iter_mut().for_each(|x| *x *= 1e-30);
        x[192 + 50] = f32::NAN;
        let of = [1, 0, 3];
        for by_tiles in [false, true] {
            let mut wanted = vec![0.0; 3 * 40];
            twin(&case, &x, &of, &mut wanted);
            let got = run(gpu, &case, &x, &of, by_tiles, &[0.0; 3 * 40]);
            for (row, size) in [(0, 1e30), (1, 1e-30)] {
                let scaled = |v: &[f32]| v[row * 40..][..40].iter().map(|x| x / size).collect::<Vec<_>>();
                near(&scaled(&got), &scaled(&wanted), if by_tiles { CUT } else { SUMS });
            }
            assert!(got[80..].iter().all(|x| x.is_nan()), "{:?}", &got[80..]);
        }
        drop(case.held);
    });
}

#[test]
fn tiles_hold_every_row_of_an_adapter_once() {
    let of = mixed(60);
    let words = lora::tiles(&of);
    assert!(words[0] as usize <= lora::most_tiles(60, RANKS.len()));
    let order = &words[words[1] as usize..];
    let mut seen: Vec<i32> = Vec::new();
    for tile in words[2..words[1] as usize].chunks(3) {
        let rows = &order[tile[1] as usize..][..tile[2] as usize];
        assert!(rows.len() <= 16 && rows.iter().all(|row| of[*row as usize] == tile[0]));
        seen.extend(rows);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..60).filter(|row| of[*row as usize] >= 0).collect::<Vec<_>>());
}
