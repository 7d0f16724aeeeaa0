//! Operations on rows and columns against what their doc comments say, alone and in batches that several
//! threads share.
#![allow(clippy::unwrap_used)]

use super::norm;
use super::tests::{Random, file, random_blocks, rows_of};
use super::*;
use crate::compute::NormKind;

fn on_all(mut each: impl FnMut(Cpu)) {
    for isa in Isa::available() {
        for threads in [1, 3] {
            each(Cpu::with_isa(Some(threads), isa));
        }
    }
}

#[test]
fn rows_are_normalised_on_their_own_and_into_a_sum() {
    let (rows, cols, mut random) = (40, 300, Random(3));
    let (weight, bias) = (random.reals(cols), random.reals(cols));
    let (x, before) = (random.reals(rows * cols), random.reals(rows * cols));
    for (kind, bias) in [(NormKind::Rms, None), (NormKind::Layer, Some(&bias))] {
        let norm = Norm::<Cpu> { weight: &weight, bias, eps: 1e-5, kind };
        on_all(|mut cpu| {
            let mut expected = vec![0.0; rows * cols];
            for (out, x) in expected.chunks_exact_mut(cols).zip(x.chunks_exact(cols)) {
                norm::normalise(cpu.isa, out, x, norm.into());
            }
            let mut out = vec![7.0; (rows + 1) * cols];
            cpu.normalise(&mut out, &x, rows, norm).unwrap();
            assert_eq!(out[..rows * cols], expected, "{kind:?}");
            assert_eq!(out[rows * cols..], vec![7.0; cols], "only what was asked for");
            let mut sum = before.clone();
            cpu.add_norm(&mut sum, &x, rows, norm).unwrap();
            for (i, sum) in sum.iter().enumerate() {
                assert_eq!(*sum, before[i] + expected[i], "{kind:?} {i}");
            }
        });
    }
}

/// Many values are shared out among threads: each becomes what it becomes alone.
#[test]
fn values_do_not_depend_on_how_many_there_are() {
    let mut random = Random(5);
    let (long, short) = (40_001, 7);
    let (x, y): (Vec<f32>, Vec<f32>) = (random.reals(long), random.reals(long));
    on_all(|mut cpu| {
        let mut results = Vec::new();
        for len in [long, short] {
            let mut all = Vec::new();
            let mut run = |operation: &mut dyn FnMut(&mut Cpu, &mut Vec<f32>)| {
                let mut x = x.clone();
                operation(&mut cpu, &mut x);
                all.push(x);
            };
            run(&mut |cpu, x| cpu.add(x, &y, len, 0.25).unwrap());
            run(&mut |cpu, x| cpu.activate(x, len, Activation::Gelu).unwrap());
            run(&mut |cpu, x| cpu.activate(x, len, Activation::Silu).unwrap());
            run(&mut |cpu, x| cpu.scale(x, len, 1.5, None).unwrap());
            run(&mut |cpu, x| cpu.scale(x, len, 1.5, Some(0.5)).unwrap());
            results.push(all);
        }
        for (long, short) in results[0].iter().zip(&results[1]) {
            assert_eq!(long[..7], short[..7]);
            assert_eq!(short[7..], x[7..], "only what was asked for");
        }
        assert_eq!(results[0][0][33_000], x[33_000] + y[33_000] * 0.25);
        assert_eq!(results[0][3][33_000], x[33_000] * 1.5);
    });
}

#[test]
fn an_activation_of_two_sides_is_refused_with_one() {
    let refused = Cpu::new(Some(1)).activate(&mut vec![0.0; 4], 4, Activation::ClampedSwiglu).unwrap_err();
    assert!(refused.0.contains("gates"), "{refused}");
}

#[test]
fn columns_are_copied_and_multiplied_where_they_were_told() {
    let (rows, mut random) = (5, Random(9));
    let (x, gate) = (random.reals(rows * 50), random.reals(rows * 23));
    on_all(|mut cpu| {
        let to = Columns { first: 3, len: 20, stride: 31 };
        let from = Columns { first: 17, len: 20, stride: 50 };
        let mut out = vec![0.5; rows * 31];
        cpu.copy_columns((&mut out, to), (&x, from), rows).unwrap();
        for (i, out) in out.iter().enumerate() {
            let (row, column) = (i / 31, i % 31);
            let inside = (3..23).contains(&column);
            assert_eq!(*out, if inside { x[row * 50 + 17 + column - 3] } else { 0.5 }, "{row} {column}");
        }
        for (by, width) in [(By::Value, 20), (By::Sigmoid, 20), (By::Silu, 20), (By::Sigmoid, 1)] {
            let (mut out, gates) = (x.clone(), Columns { first: 2, len: width, stride: 23 });
            cpu.multiply_columns((&mut out, from), (&gate, gates), rows, by).unwrap();
            for (i, (out, x)) in out.iter().zip(&x).enumerate() {
                let (row, column) = (i / 50, i % 50);
                let Some(at) = (17..37).position(|c| c == column) else {
                    assert_eq!(out, x);
                    continue;
                };
                let g = f64::from(gate[row * 23 + 2 + at % width]);
                let factor = match by {
                    By::Value => g,
                    By::Sigmoid => 1.0 / (1.0 + (-g).exp()),
                    By::Silu => g / (1.0 + (-g).exp()),
                };
                let error = (f64::from(*out) - f64::from(*x) * factor).abs();
                assert!(error < 5e-7, "{by:?} {row} {column}: off by {error}");
            }
        }
    });
}

/// Rows of any format; each token's position is its place in its own sequence.
#[test]
fn learned_positions_are_added_by_the_spans() {
    let (positions, cols, mut random) = (9, 256, Random(11));
    let x = random.reals(5 * cols);
    for format in super::FORMATS {
        let blocks = random_blocks(format, positions * cols / format.block_len(), &mut random);
        let table = rows_of(format, &blocks, positions, cols);
        let file = file(format, positions, cols, blocks);
        on_all(|mut cpu| {
            let learned = cpu.table(&file, "w").unwrap();
            let span = |first, len, start| Span { first, len, start, table: &[] };
            let mut out = x.clone();
            cpu.add_positions(&mut out, &learned, &[span(0, 2, 7), span(2, 3, 0)]).unwrap();
            for (row, position) in [7, 8, 0, 1, 2].into_iter().enumerate() {
                for c in 0..cols {
                    assert_eq!(
                        out[row * cols + c],
                        x[row * cols + c] + table[position][c],
                        "{}",
                        format.name()
                    );
                }
            }
            let refused = cpu.add_positions(&mut out, &learned, &[span(0, 2, 8)]).unwrap_err();
            assert!(refused.0.contains("w has 9 rows"), "{refused}");
        });
    }
}
