//! The CUDA kernels against their slow twins, and whole models against the CPU: on the stand-in for
//! libcuda (`kernels/emulator`), or on a GPU with `TEST_ON_GPU=1`.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)]

mod blocks;
mod embed;
mod gemm;
mod gemv;
mod harness;
mod rows;
mod weights;
