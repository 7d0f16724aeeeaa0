use super::report::heading_of;
use serde::Serialize;
use std::io::{self, Write};

/// What the device can do at most, as measured on the threads that the engine has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    pub n_threads: usize,
    /// Read bandwidth of memory, by a buffer larger than every cache.
    pub memory_bytes: usize,
    pub memory_gb_per_s: f64,
    /// Of a buffer as large as the model's weights, which a cache may hold.
    pub model_bytes: usize,
    pub model_gb_per_s: f64,
    /// Dot products of bytes, and the instruction that was fastest; a multiplication and an addition
    /// are two operations.
    pub int8_gops: f64,
    pub int8_instruction: String,
    pub f32_gflops: f64,
}

impl Limits {
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        let threads =
            if self.n_threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.n_threads) };
        let rows = [
            (format!("read of {:.0} MiB, from memory", mib(self.memory_bytes)), self.memory_gb_per_s, "GB/s"),
            (
                format!("read of {:.0} MiB, as the weights", mib(self.model_bytes)),
                self.model_gb_per_s,
                "GB/s",
            ),
            (format!("int8 dot products, {}", self.int8_instruction), self.int8_gops, "GOPS"),
            ("f32 multiply-add".to_owned(), self.f32_gflops, "GFLOP/s"),
        ];
        heading_of(out, &[&format!("limits of {threads}"), "measured"], &[38, 15])?;
        for (name, value, unit) in rows {
            let value = format!("{value:.1} {unit}");
            writeln!(out, "| {name:<38} | {value:>15} |")?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn limits() -> Limits {
        Limits {
            n_threads: 2,
            memory_bytes: 1 << 30,
            memory_gb_per_s: 12.5,
            model_bytes: 94 << 20,
            model_gb_per_s: 50.0,
            int8_gops: 1000.0,
            int8_instruction: "AVX-512 VNNI".into(),
            f32_gflops: 250.0,
        }
    }
}
