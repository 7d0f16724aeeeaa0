//! Seeded mutations of small folders of every kind: whatever comes of them is refused or read.

use super::small::{Folder, folders};
use super::{ONE, bounded};
use glassbox::base::SplitMix;
use glassbox::weights::Checkpoint;

const SEED: u64 = 0x17;

/// Pieces of JSON and of numbers that have broken readers.
const PIECES: [&str; 20] = [
    "0",
    "-1",
    "1e999",
    "18446744073709551615",
    "4294967296",
    "[",
    "]",
    "{",
    "}",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "[]",
    "{}",
    "\"F32\"",
    "\"I32\"",
    "\"F8_E4M3\"",
    "\\u0000",
];

fn mutate(bytes: &mut Vec<u8>, random: &mut SplitMix) {
    let at = random.below(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
    if bytes.is_empty() {
        return;
    }
    match random.below(7) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.draw() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.remove(at)),
        4 => {
            let piece = random.pick(&PIECES).as_bytes().to_vec();
            let end = (at + random.below(6)).min(bytes.len());
            drop(bytes.splice(at..end, piece));
        }
        5 => {
            let end = (at + random.below(64)).min(bytes.len());
            let copied = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            drop(bytes.splice(to..to, copied));
        }
        // A digit of the header: shapes, offsets, sizes.
        _ => {
            let digit = bytes[at..].iter().position(u8::is_ascii_digit);
            if let Some(digit) = digit {
                bytes[at + digit] = b'0' + random.below(10) as u8;
            }
        }
    }
}

/// The length before the header follows it, so that mutations get past the first check; mostly.
fn mutated_file(file: &Folder, random: &mut SplitMix) -> Vec<u8> {
    let (mut header, mut data) = (file.header.clone(), file.data.clone());
    match random.below(4) {
        0 => mutate(&mut data, random),
        _ => (0..=random.below(3)).for_each(|_| mutate(&mut header, random)),
    }
    let len = if random.one_in(50) { random.draw() >> random.below(64) } else { header.len() as u64 };
    [len.to_le_bytes().as_slice(), &header, &data].concat()
}

fn run(runs: usize) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folders = folders();
    let (mut opened, start) = (0, std::time::Instant::now());
    let mut random = SplitMix(SEED);
    for number in 0..runs {
        let folder = &folders[number % folders.len()];
        let mut config = folder.config.clone();
        let weights = match random.below(3) {
            0 => {
                (0..=random.below(3)).for_each(|_| mutate(&mut config, &mut random));
                folder.file()
            }
            _ => mutated_file(folder, &mut random),
        };
        let case = format!("{}, run {number} of seed {SEED}", folder.name);
        let result = bounded(&case, || Checkpoint::from_hub_bytes("m".as_ref(), &config, weights));
        opened += usize::from(result.is_ok());
    }
    println!("{runs} mutations, {opened} opened, in {:?}", start.elapsed());
    assert!(opened > 0 && opened < runs);
}

#[test]
fn mutations_are_refused_or_read() {
    run(4_000);
}

/// `cargo test --release --test weights_hub_hostile -- --ignored`
#[test]
#[ignore = "a million runs"]
fn a_million_mutations_are_refused_or_read() {
    run(1_000_000);
}
