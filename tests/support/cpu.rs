#![allow(dead_code)]

use glassbox::compute::cpu::{Cpu, Isa};

/// What the kernels are made for: what `GLASSBOX_INSTRUCTION_SET` says, as it does for the program, so
/// that a whole test run can be forced to it; else the best that there is.
pub fn isa() -> Isa {
    match std::env::var("GLASSBOX_INSTRUCTION_SET") {
        Ok(name) if name != "auto" => name.parse().unwrap_or_else(|refused| panic!("{refused}")),
        _ => Isa::detect(),
    }
}

pub fn cpu(threads: usize) -> Cpu {
    Cpu::with_isa(Some(threads), isa())
}
