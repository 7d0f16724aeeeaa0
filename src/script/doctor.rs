use super::counted::counted;
use super::json;
use crate::base::{self, visible};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    pub name: &'static str,
    pub usable: bool,
    pub reason: String,
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

/// Looks at the machine; the folders and tools are known to the caller.
pub fn doctor(
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
        devices: vec![cpu_device(), cuda_device(Path::new("/proc/driver/nvidia/version"))],
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
        let gib = |bytes: Option<u64>| {
            bytes.map_or_else(|| "unknown".into(), |b| format!("{:.1} GiB", b as f64 / (1u64 << 30) as f64))
        };
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
            writeln!(out, "device   {} {}: {}", yes(device.usable), device.name, device.reason)?;
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

fn cpu_device() -> DeviceRow {
    DeviceRow { name: "cpu", usable: true, reason: "where this version runs".into() }
}

fn cuda_device(driver: &Path) -> DeviceRow {
    let reason = match driver.exists() {
        true => "not used by this version, though an NVIDIA driver is here".into(),
        false => format!("not used by this version; no NVIDIA driver here ({} is missing)", driver.display()),
    };
    DeviceRow { name: "cuda", usable: false, reason }
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
    fn a_missing_gpu_has_a_reason() {
        let none = cuda_device(Path::new("/nonexistent/version"));
        assert!(!none.usable && none.reason.contains("no NVIDIA driver here"));
        let here = cuda_device(Path::new("/"));
        assert!(!here.usable && here.reason.contains("not used by this version"));
    }

    #[test]
    fn the_report_names_what_was_found_and_what_was_not() {
        let dir = |path: &str, models| ModelDir { path: path.into(), exists: models > 0, models };
        let dirs = vec![dir("/m", 0), dir("/one", 1)];
        let tools = vec![Tool { name: "pip", found: None, used_for: "fetching" }];
        let found = doctor("AVX2", Some(3), "/nonexistent/config.toml".into(), dirs, None, tools);
        let mut text = Vec::new();
        found.print(&mut text, false).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            "kernels  AVX2, 3 threads",
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
        assert_eq!(json["devices"][1]["usable"], false);
    }
}
