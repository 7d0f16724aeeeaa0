//! The wiring: the only place that names devices, engine and front ends together.

use std::process::ExitCode;

pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
