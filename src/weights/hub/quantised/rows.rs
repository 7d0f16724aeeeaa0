use std::num::NonZero;
use std::ops::Range;

/// Fewer bytes are not worth a thread.
const LEAST_BYTES: usize = 1 << 20;

/// Makes a matrix's rows, each of `row_bytes`, on as many threads as there are. `make` gets some rows and their
/// bytes.
pub(super) fn in_parallel(
    rows: usize,
    row_bytes: usize,
    make: impl Fn(Range<usize>, &mut [u8]) + Sync,
) -> Vec<u8> {
    let mut out = vec![0; rows * row_bytes];
    let most = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = most.min(out.len() / LEAST_BYTES).max(1);
    let each = rows.div_ceil(threads).max(1);
    let chunks = out.chunks_mut((each * row_bytes).max(1)).enumerate();
    if threads == 1 {
        chunks.for_each(|(i, bytes)| make(i * each..rows.min((i + 1) * each), bytes));
        return out;
    }
    std::thread::scope(|scope| {
        for (i, bytes) in chunks {
            let make = &make;
            scope.spawn(move || make(i * each..rows.min((i + 1) * each), bytes));
        }
    });
    out
}
