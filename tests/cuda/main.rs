//! The CUDA kernels against their slow twins, and whole models against the CPU: on the stand-in for
//! libcuda (`kernels/emulator`), or on a GPU with `TEST_ON_GPU=1`.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)]

mod activations;
mod blocks;
mod decode;
mod draw;
mod elements;
mod embed;
mod engine;
mod faults;
mod gemm;
mod gemv;
mod harness;
mod kv;
mod limits;
mod lora;
mod models;
mod moe;
mod mutations;
mod paged;
mod prefill;
mod recurrent;
mod rows;
mod weights;

#[path = "../golden/case.rs"]
#[allow(dead_code)]
mod case;

#[path = "../support/mod.rs"]
mod support;

#[path = "../engine/harness.rs"]
#[allow(dead_code)]
mod bench;
