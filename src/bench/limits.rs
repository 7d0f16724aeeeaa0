use super::measure::{engine_gone, send};
use super::report::heading_of;
use crate::protocol::{Command, DeviceLimits, Event, Failure, FailureKind, Handle};
use serde::Serialize;
use std::io::{self, Write};

/// What the device can do at most, as measured on all of it that the engine has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// `2 threads`, `132 multiprocessors`.
    pub units: String,
    /// Read bandwidth of memory, by a buffer larger than every cache.
    pub memory_gb_per_s: f64,
    /// Bytes of that buffer, where it is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<usize>,
    /// Of a buffer as large as the model's weights, which a processor's cache may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRead>,
    /// Of the products that the weights are multiplied with, and what makes them; a multiplication and an
    /// addition are two operations.
    pub matrix_gops: f64,
    pub matrix_name: String,
    pub f32_gflops: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ModelRead {
    pub bytes: usize,
    pub gb_per_s: f64,
}

impl From<DeviceLimits> for Limits {
    fn from(found: DeviceLimits) -> Self {
        Self {
            units: found.units,
            memory_gb_per_s: found.memory_read / 1e9,
            memory_bytes: None,
            model: None,
            matrix_gops: found.matrix / 1e9,
            matrix_name: found.matrix_name,
            f32_gflops: found.f32 / 1e9,
        }
    }
}

/// Lets the engine measure its device, which takes some seconds.
///
/// # Errors
/// Why it cannot be measured.
pub fn measured_by_engine(handle: &mut Handle) -> Result<Limits, Failure> {
    send(handle, Command::MeasureLimits)?;
    loop {
        for event in handle.events.blocking_recv().ok_or_else(engine_gone)? {
            match event {
                Event::Limits(Ok(found)) => return Ok((*found).into()),
                Event::Limits(Err(why)) => return Err(Failure::new(FailureKind::Busy, why)),
                _ => {}
            }
        }
    }
}

impl Limits {
    /// Shares of the limits of memory and of products.
    pub(super) fn shares(&self, bytes_per_s: f64, flops_per_s: f64) -> Shares {
        let of = |x: f64, most: f64| if most > 0.0 { x / 1e9 / most } else { 0.0 };
        Shares { memory: of(bytes_per_s, self.memory_gb_per_s), mfu: of(flops_per_s, self.matrix_gops) }
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        let memory = self
            .memory_bytes
            .map_or("memory".to_owned(), |bytes| format!("{:.0} MiB, from memory", mib(bytes)));
        let mut rows = vec![(format!("read of {memory}"), self.memory_gb_per_s, "GB/s")];
        if let Some(ModelRead { bytes, gb_per_s }) = self.model {
            rows.push((format!("read of {:.0} MiB, as the weights", mib(bytes)), gb_per_s, "GB/s"));
        }
        rows.push((format!("products, {}", self.matrix_name), self.matrix_gops, "GOPS"));
        rows.push(("f32 multiply-add".to_owned(), self.f32_gflops, "GFLOP/s"));
        heading_of(out, &[&format!("limits of {}", self.units), "measured"], &[38, 17])?;
        for (name, value, unit) in rows {
            let value = format!("{value:.1} {unit}");
            writeln!(out, "| {name:<38} | {value:>17} |")?;
        }
        writeln!(out)
    }
}

/// Of what the device can read, and multiply (MFU: model FLOPs utilisation, Chowdhery et al. 2022), at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    pub memory: f64,
    pub mfu: f64,
}

impl Shares {
    /// Of the limit that is nearer.
    pub fn larger(self) -> f64 {
        self.memory.max(self.mfu)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn limits() -> Limits {
        Limits {
            units: "2 threads".into(),
            memory_gb_per_s: 12.5,
            memory_bytes: Some(1 << 30),
            model: Some(ModelRead { bytes: 94 << 20, gb_per_s: 50.0 }),
            matrix_gops: 1000.0,
            matrix_name: "int8 dot products, AVX-512 VNNI".into(),
            f32_gflops: 250.0,
        }
    }

    #[test]
    fn shares_are_of_what_was_measured() {
        let shares = limits().shares(10e9, 250e9);
        assert_eq!((shares, shares.larger()), (Shares { memory: 0.8, mfu: 0.25 }, 0.8));
        let nothing = Limits { memory_gb_per_s: 0.0, matrix_gops: 0.0, ..limits() };
        assert_eq!(nothing.shares(1.0, 1.0), Shares { memory: 0.0, mfu: 0.0 }, "not infinite");
    }
}
