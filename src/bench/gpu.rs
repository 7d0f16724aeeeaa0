//! Each kernel of a GPU alone, beside what the device can do at most: as a table and as JSON.

use super::report::{heading_of, line_of};
use crate::base::visible;
use serde::Serialize;
use std::io::{self, Write};

/// What was found on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuReport {
    pub device: String,
    pub multiprocessors: usize,
    pub ceilings: GpuCeilings,
    pub kernels: Vec<GpuKernel>,
}

/// Decimal prefixes; a multiplication and an addition are two operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuCeilings {
    pub read_gb_per_s: f64,
    /// Bytes read and bytes written.
    pub copy_gb_per_s: f64,
    pub f16_tflops: f64,
    pub bf16_tflops: f64,
    pub int8_tops: f64,
    pub f32_tflops: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuKernel {
    pub kernel: String,
    pub shape: String,
    #[serde(flatten)]
    pub measured: Measured,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Measured {
    Time {
        us: f64,
        gb_per_s: f64,
        tflop_per_s: f64,
        /// The time that the device needs at least, and of what.
        floor_us: f64,
        bound: Bound,
        /// The floor by the time: 1 is all there is.
        share_of_floor: f64,
    },
    Failed {
        error: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    Memory,
    Products,
}

/// What a kernel has to do at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub bytes: u64,
    pub flops: u64,
    /// Of the products that it is made of: operations a second at most.
    pub flops_per_s: f64,
    /// Bytes a second at most.
    pub bytes_per_s: f64,
}

impl Measured {
    pub fn new(us: f64, work: Work) -> Self {
        let least = |amount: u64, most: f64| if most > 0.0 { amount as f64 / most * 1e6 } else { 0.0 };
        let (read, computed) = (least(work.bytes, work.bytes_per_s), least(work.flops, work.flops_per_s));
        let bound = if read >= computed { Bound::Memory } else { Bound::Products };
        let (floor_us, us) = (read.max(computed), us.max(1e-6));
        Measured::Time {
            us,
            gb_per_s: work.bytes as f64 / us / 1e3,
            tflop_per_s: work.flops as f64 / us / 1e6,
            floor_us,
            bound,
            share_of_floor: floor_us / us,
        }
    }
}

const WIDTHS: [usize; 6] = [17, 21, 8, 7, 7, 5];

impl GpuReport {
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}, {} multiprocessors\n", visible(&self.device), self.multiprocessors)?;
        let c = &self.ceilings;
        let rows = [
            ("read", c.read_gb_per_s, "GB/s"),
            ("copy, read and written", c.copy_gb_per_s, "GB/s"),
            ("f16 products", c.f16_tflops, "TFLOP/s"),
            ("bf16 products", c.bf16_tflops, "TFLOP/s"),
            ("int8 products", c.int8_tops, "TOP/s"),
            ("f32 without tensor cores", c.f32_tflops, "TFLOP/s"),
        ];
        heading_of(out, &["ceiling", "measured"], &[25, 17])?;
        for (name, value, unit) in rows {
            line_of(out, &[name.to_owned(), format!("{value:.1} {unit}")], &[25, 17])?;
        }
        writeln!(out)?;
        heading_of(out, &["kernel alone", "shape", "us", "GB/s", "TFLOP/s", "floor"], &WIDTHS)?;
        self.kernels.iter().try_for_each(|kernel| kernel.print(out))
    }
}

impl GpuKernel {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match &self.measured {
            Measured::Time { us, gb_per_s, tflop_per_s, share_of_floor, .. } => {
                let products = if *tflop_per_s > 0.0 { format!("{tflop_per_s:.1}") } else { String::new() };
                let cells = [
                    self.kernel.clone(),
                    self.shape.clone(),
                    format!("{us:.1}"),
                    format!("{gb_per_s:.0}"),
                    products,
                    format!("{:.0} %", share_of_floor * 100.0),
                ];
                line_of(out, &cells, &WIDTHS)
            }
            Measured::Failed { error } => {
                line_of(out, &[self.kernel.clone(), self.shape.clone(), visible(error).into()], &WIDTHS[..3])
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ON: Work = Work { bytes: 0, flops: 0, flops_per_s: 800e12, bytes_per_s: 2e12 };

    fn time(us: f64, bytes: u64, flops: u64) -> Measured {
        Measured::new(us, Work { bytes, flops, ..ON })
    }

    #[test]
    fn the_floor_is_the_longer_of_reading_and_computing() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * b.max(1.0);
        // 10 MB take 5 us to read; 8 GFLOP take 10 us.
        for (bytes, flops, floor, right) in [
            (10_000_000, 0, 5.0, Bound::Memory),
            (10_000_000, 8_000_000_000, 10.0, Bound::Products),
            (40_000_000, 8_000_000_000, 20.0, Bound::Memory),
        ] {
            let Measured::Time { floor_us, bound, share_of_floor, gb_per_s, tflop_per_s, .. } =
                time(40.0, bytes, flops)
            else {
                panic!()
            };
            assert!(close(floor_us, floor) && bound == right, "{floor_us} {bound:?}");
            assert!(close(share_of_floor, floor / 40.0), "{share_of_floor}");
            assert!(close(gb_per_s, bytes as f64 / 40e3) && close(tflop_per_s, flops as f64 / 40e6));
        }
        let Measured::Time { floor_us, share_of_floor, .. } =
            Measured::new(1.0, Work { bytes: 1, flops: 1, flops_per_s: 0.0, bytes_per_s: 0.0 })
        else {
            panic!()
        };
        assert_eq!((floor_us, share_of_floor), (0.0, 0.0), "no ceiling, no floor");
    }

    #[test]
    fn a_kernel_that_failed_is_a_line_too() {
        let kernel = |kernel: &str, shape: &str, measured| GpuKernel {
            kernel: kernel.into(),
            shape: shape.into(),
            measured,
        };
        let report = GpuReport {
            device: "H200".into(),
            multiprocessors: 132,
            ceilings: GpuCeilings {
                read_gb_per_s: 2000.0,
                copy_gb_per_s: 1900.0,
                f16_tflops: 800.0,
                bf16_tflops: 800.0,
                int8_tops: 1600.0,
                f32_tflops: 60.0,
            },
            kernels: vec![
                kernel("gemv Q4_K", "128256 x 4096, 8 rows", time(6.25, 10_000_000, 100_000_000)),
                kernel("draw, greedy", "1 row", time(6.25, 10_000_000, 0)),
                kernel("gemm BF16", "4096 x 4096, 512 rows", Measured::Failed { error: "no memory".into() }),
            ],
        };
        let mut out = Vec::new();
        report.print(&mut out).unwrap();
        let table = String::from_utf8(out).unwrap();
        for line in [
            "| gemv Q4_K         | 128256 x 4096, 8 rows |      6.2 |    1600 |    16.0 |  80 % |",
            "| draw, greedy      |                 1 row |      6.2 |    1600 |         |  80 % |",
            "| gemm BF16         | 4096 x 4096, 512 rows | no memory |",
        ] {
            assert!(table.contains(line), "{table}");
        }
        assert!(table.lines().all(|line| line.chars().count() <= 84), "{table}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["kernels"][0]["bound"], "memory");
        assert_eq!(json["kernels"][2]["error"], "no memory");
    }
}
