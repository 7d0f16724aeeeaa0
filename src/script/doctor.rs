use super::counted::counted;
use super::json;
use crate::base::{self, visible};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

/// What this machine offers to glassbox, what it lacks, and why.
#[derive(Debug, Serialize)]
pub struct Doctor {
    pub version: &'static str,
    pub system: String,
    pub cpu: Cpu,
    pub memory: Memory,
    pub devices: Vec<DeviceRow>,
    /// Which of the CPU's kernels run here: `AVX2`.
    pub kernels: String,
    /// Worker threads that a run would use.
    pub threads: usize,
    pub config: PathBuf,
    pub model_dirs: Vec<ModelDir>,
    /// Where models would be fetched from first; nothing when offline. Not contacted for this report.
    pub hub: Option<String>,
    pub tools: Vec<Tool>,
}

#[derive(Debug, Serialize)]
pub struct Cpu {
    pub name: Option<String>,
    pub physical_cores: usize,
    pub logical_cores: usize,
    /// Instruction sets that the kernels may use.
    pub features: Vec<&'static str>,
}

#[derive(Debug, Default, Serialize)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
}

impl Memory {
    fn now() -> Self {
        let base::Memory { total, available } = base::Memory::now();
        Self { total_bytes: total, available_bytes: available }
    }
}

#[derive(Debug, Serialize)]
pub struct DeviceRow {
    /// As `--device` takes it; `cuda` where there is none.
    pub name: String,
    pub usable: bool,
    /// What it is, or why it cannot be used.
    pub reason: String,
    #[serde(flatten)]
    pub gpu: Option<GpuFacts>,
}

/// What the driver says of a GPU.
#[derive(Debug, Serialize)]
pub struct GpuFacts {
    pub model: String,
    /// `9.0`
    pub compute_capability: String,
    pub memory_free_bytes: u64,
    pub memory_total_bytes: u64,
    /// The newest CUDA that the driver knows: `12.4`.
    pub driver_cuda_version: String,
}

impl DeviceRow {
    fn cpu() -> Self {
        let reason = "for everything that no GPU does".into();
        Self { name: "cpu".into(), usable: true, reason, gpu: None }
    }

    pub fn gpu(ordinal: usize, gpu: GpuFacts) -> Self {
        let reason = format!(
            "{}, compute capability {}, {} of {} free, driver for CUDA {}",
            gpu.model,
            gpu.compute_capability,
            gib(Some(gpu.memory_free_bytes)),
            gib(Some(gpu.memory_total_bytes)),
            gpu.driver_cuda_version,
        );
        Self { name: format!("cuda:{ordinal}"), usable: true, reason, gpu: Some(gpu) }
    }

    /// There is none, or the one of this number is of no use.
    pub fn no_gpu(ordinal: Option<usize>, why: String) -> Self {
        let name = ordinal.map_or_else(|| "cuda".into(), |ordinal| format!("cuda:{ordinal}"));
        Self { name, usable: false, reason: why, gpu: None }
    }
}

fn gib(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unknown".into(), |b| format!("{:.1} GiB", b as f64 / (1u64 << 30) as f64))
}

#[derive(Debug, Serialize)]
pub struct ModelDir {
    pub path: PathBuf,
    pub exists: bool,
    pub models: usize,
}

/// Something outside of glassbox that fetching can use.
#[derive(Debug, Serialize)]
pub struct Tool {
    pub name: &'static str,
    /// What was found; nothing when it is missing.
    pub found: Option<String>,
    pub used_for: &'static str,
}

/// Looks at the machine; GPUs, folders and tools are known to the caller.
pub fn doctor(
    gpus: Vec<DeviceRow>,
    kernels: &str,
    threads: Option<usize>,
    config: PathBuf,
    model_dirs: Vec<ModelDir>,
    hub: Option<String>,
    tools: Vec<Tool>,
) -> Doctor {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let logical = std::thread::available_parallelism().map_or(1, usize::from);
    let physical = physical_cores();
    Doctor {
        version: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cpu: Cpu {
            name: field(&cpuinfo, "model name").map(str::to_owned),
            physical_cores: physical,
            logical_cores: logical,
            features: features(),
        },
        memory: Memory::now(),
        devices: std::iter::once(DeviceRow::cpu()).chain(gpus).collect(),
        kernels: kernels.to_owned(),
        threads: threads.unwrap_or(physical),
        config,
        model_dirs,
        hub,
        tools,
    }
}

impl Doctor {
    pub fn print(&self, out: &mut impl Write, as_json: bool) -> io::Result<()> {
        if as_json {
            return json::write_pretty(out, self);
        }
        let yes = |found: bool| if found { "ok" } else { "--" };
        writeln!(out, "glassbox {} on {}", self.version, self.system)?;
        writeln!(
            out,
            "cpu      {}, {}, {}",
            self.cpu.name.as_deref().unwrap_or("unknown"),
            counted(self.cpu.physical_cores, "core"),
            counted(self.cpu.logical_cores, "thread")
        )?;
        writeln!(out, "simd     {}", self.cpu.features.join(" "))?;
        let memory = &self.memory;
        writeln!(out, "memory   {} of {} available", gib(memory.available_bytes), gib(memory.total_bytes))?;
        writeln!(out, "kernels  {}, {}", visible(&self.kernels), counted(self.threads, "thread"))?;
        for device in &self.devices {
            writeln!(out, "device   {} {}: {}", yes(device.usable), device.name, visible(&device.reason))?;
        }
        let exists = self.config.exists();
        let config = visible(&self.config.to_string_lossy()).into_owned();
        writeln!(out, "config   {} {config}{}", yes(exists), if exists { "" } else { " (not written)" })?;
        for dir in &self.model_dirs {
            let path = dir.path.to_string_lossy();
            let models = counted(dir.models, "model");
            writeln!(out, "models   {} {} ({models})", yes(dir.exists), visible(&path))?;
        }
        match &self.hub {
            Some(hub) => writeln!(out, "hub      {} (not contacted now)", visible(hub))?,
            None => writeln!(out, "hub      not used: offline")?,
        }
        for tool in &self.tools {
            let found = tool.found.as_deref().unwrap_or("not found");
            writeln!(
                out,
                "tool     {} {}: {}, for {}",
                yes(tool.found.is_some()),
                tool.name,
                visible(found),
                tool.used_for
            )?;
        }
        Ok(())
    }
}

macro_rules! detected {
    ($check:ident: $($feature:tt)*) => {
        [$(($feature, std::arch::$check!($feature))),*]
            .into_iter()
            .filter(|(_, found)| *found)
            .map(|(name, _)| name)
            .collect()
    };
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    detected!(is_x86_feature_detected:
        "sse4.2" "avx" "f16c" "fma" "avx2" "avx512f" "avx512bw" "avx512vl" "avx512vnni" "avx512vbmi" "avx512bf16")
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    detected!(is_aarch64_feature_detected: "neon" "fp16" "dotprod" "i8mm" "bf16")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// What can really run at once: cores, without their twins, and no more than the process may use. The
/// standard library knows of affinity and of control groups' quotas.
pub fn physical_cores() -> usize {
    let logical = std::thread::available_parallelism().map_or(1, usize::from);
    base::Cores::now().map_or(logical, |cores| cores.physical).clamp(1, logical)
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(n, _)| n.trim() == name)
        .map(|(_, v)| v.trim())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_was_found_and_what_was_not() {
        let dir = |path: &str, models| ModelDir { path: path.into(), exists: models > 0, models };
        let dirs = vec![dir("/m", 0), dir("/one", 1)];
        let tools = vec![Tool { name: "pip", found: None, used_for: "fetching" }];
        let facts = GpuFacts {
            model: "NVIDIA H100".into(),
            compute_capability: "9.0".into(),
            memory_free_bytes: 79 << 30,
            memory_total_bytes: 80 << 30,
            driver_cuda_version: "12.4".into(),
        };
        let gpus = vec![DeviceRow::gpu(0, facts), DeviceRow::no_gpu(Some(1), "too old".into())];
        let found = doctor(gpus, "AVX2", Some(3), "/nonexistent/config.toml".into(), dirs, None, tools);
        let mut text = Vec::new();
        found.print(&mut text, false).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            "kernels  AVX2, 3 threads",
            "device   ok cuda:0: NVIDIA H100, compute capability 9.0, 79.0 GiB of 80.0 GiB free, driver for CUDA 12.4",
            "device   -- cuda:1: too old",
            "models   -- /m (0 models)",
            "models   ok /one (1 model)",
            "hub      not used: offline",
            "tool     -- pip: not found, for fetching",
            "(not written)",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
        let mut json = Vec::new();
        found.print(&mut json, true).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["threads"], 3);
        let [gpu, none] = [&json["devices"][1], &json["devices"][2]];
        assert_eq!((&gpu["usable"], &gpu["compute_capability"]), (&true.into(), &"9.0".into()));
        assert_eq!(
            (&gpu["model"], &gpu["memory_free_bytes"]),
            (&"NVIDIA H100".into(), &(79u64 << 30).into())
        );
        assert_eq!(
            (&none["usable"], &none["reason"], &none["model"]),
            (&false.into(), &"too old".into(), &().into())
        );
    }
}
