//! What a plan costs: `schedule()` alone, with so many sequences running and as many waiting, every
//! one of them decoding a token a step. `cargo bench --bench scheduler`

#[path = "../tests/support/busy.rs"]
mod busy;

use busy::Busy;
use divan::{AllocProfiler, Bencher};
use std::cell::RefCell;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(args = [8, 32, 128, 512, 1024, 4096], sample_size = 1, sample_count = 300)]
fn running(bencher: Bencher, running: usize) {
    planned(bencher, running, 0);
}

#[divan::bench(args = [8, 32, 128, 512, 1024, 4096], sample_size = 1, sample_count = 300)]
fn running_and_as_many_waiting(bencher: Bencher, running: usize) {
    planned(bencher, running, running);
}

fn planned(bencher: Bencher, running: usize, waiting: usize) {
    let busy = RefCell::new(Busy::new(running, waiting));
    // Only the plan is timed, not what the tokens mean for the sequences.
    bencher.with_inputs(|| busy.borrow_mut().account()).bench_local_values(|()| busy.borrow_mut().schedule());
}
