//! Builds `libcuda_emulator.so` from the emulator and every kernel, with the C++ compiler and nothing
//! of CUDA. Where there is no such compiler, says so; the tests then skip what needs it. Kernels that do not
//! compile end the build.
//!
//! Leaves `recipe.txt` beside it, from which `src/rebuild.rs` builds the library again with one kernel
//! changed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const RUNTIME: [&str; 4] = ["emulator.cpp", "fiber.cpp", "libcuda.cpp", "ptx.cpp"];
/// Mistakes made on purpose, for tests of how they are reported.
const BROKEN: &str = "broken.cu";
/// The kernels are built with these on top: what would be undefined behaviour stops the thread.
const CHECKS: [&str; 2] =
    ["-fsanitize=alignment,bounds,integer-divide-by-zero", "-fsanitize-undefined-trap-on-error"];

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    // The whole folder: a kernel that is new must be seen too.
    println!("cargo:rerun-if-changed=..");
    let kernels = kernels();
    let library = out.join("libcuda_emulator.so");
    let recipe = out.join("recipe.txt");
    let there = has_compiler();
    if !there {
        println!("cargo:warning=no C++ compiler: the CUDA kernels cannot be tried on the CPU");
    } else if let Err(why) = build(kernels, &library, &recipe) {
        panic!("the CUDA kernels cannot be tried on the CPU: {why}");
    }
    for (name, path) in [("CUDA_EMULATOR", library), ("CUDA_EMULATOR_RECIPE", recipe)] {
        let path = if there { path } else { PathBuf::new() };
        println!("cargo:rustc-env={name}={}", path.display());
    }
}

fn has_compiler() -> bool {
    let run = |tool: cc::Tool| Command::new(tool.path()).arg("--version").output();
    flags(2).try_get_compiler().is_ok_and(|tool| run(tool).is_ok_and(|output| output.status.success()))
}

fn kernels() -> Vec<PathBuf> {
    let files = fs::read_dir("..").expect("the emulator lies beside the kernels");
    let mut files: Vec<_> = files
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "cu"))
        .collect();
    files.sort();
    files
}

/// `cc` finds the compiler and compiles side by side; it makes no shared objects, so the last step is
/// ours.
fn build(mut kernels: Vec<PathBuf>, library: &Path, recipe: &Path) -> Result<(), String> {
    let runtime = flags(2).files(RUNTIME).try_compile_intermediates().map_err(|e| e.to_string())?;
    kernels.push(BROKEN.into());
    let compiled = checked(2).files(&kernels).try_compile_intermediates().map_err(|e| e.to_string())?;
    let compiler = flags(2).try_get_compiler().map_err(|e| e.to_string())?;
    let status = Command::new(compiler.path())
        .args(["-shared", "-Wl,-soname,libcuda.so", "-Wl,-z,defs", "-o"])
        .arg(library)
        .args(runtime.iter().chain(&compiled))
        .arg("-lpthread")
        .status()
        .map_err(|e| e.to_string())?;
    if !status.success() {
        return Err("linking failed".into());
    }
    let compiled = kernels.iter().zip(&compiled).map(|(source, object)| (Some(source.as_path()), object));
    let objects: Vec<_> = runtime.iter().map(|object| (None, object)).chain(compiled).collect();
    fs::write(recipe, text(&objects)?).map_err(|e| e.to_string())
}

/// A line `compiler PATH`, a line `flag FLAG` for each, a line `object PATH` or `kernel FILE PATH` for each
/// object file. Flags of less optimisation: what is rebuilt is run once.
fn text(objects: &[(Option<&Path>, &PathBuf)]) -> Result<String, String> {
    let compiler = checked(1).try_get_compiler().map_err(|e| e.to_string())?;
    let mut lines = vec![format!("compiler {}", compiler.path().display())];
    lines.extend(compiler.args().iter().map(|flag| format!("flag {}", flag.to_string_lossy())));
    lines.extend(objects.iter().map(|(source, object)| match source.and_then(|source| source.file_name()) {
        Some(name) => format!("kernel {} {}", name.to_string_lossy(), object.display()),
        None => format!("object {}", object.display()),
    }));
    Ok(lines.join("\n"))
}

fn flags(opt_level: u32) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(opt_level)
        .pic(true)
        .debug(false)
        .warnings(false)
        .define("CUDA_EMU", None)
        .flag("-fvisibility=hidden")
        .flag("-ffp-contract=off")
        .flag_if_supported("-fno-extern-tls-init");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        build.flag("-march=x86-64-v3").flag("-mtls-dialect=gnu2");
    }
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    build.flag(format!("-I{}", here.display())).flag(format!("-I{}", here.join("..").display()));
    build
}

fn checked(opt_level: u32) -> cc::Build {
    let mut build = flags(opt_level);
    build.flag("-xc++");
    CHECKS.iter().for_each(|flag| {
        build.flag(flag);
    });
    build
}
