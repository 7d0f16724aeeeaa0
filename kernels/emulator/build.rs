//! Builds `libcuda_emulator.so` from the emulator and every kernel, with the C++ compiler and nothing
//! of CUDA. Where there is no such compiler, says so; the tests then skip what needs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The kernels are built with these on top: what would be undefined behaviour stops the thread.
const CHECKS: [&str; 2] =
    ["-fsanitize=alignment,bounds,integer-divide-by-zero", "-fsanitize-undefined-trap-on-error"];

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    // The whole folder: a kernel that is new must be seen too.
    println!("cargo:rerun-if-changed=..");
    let kernels = kernels();
    let library = out.join("libcuda_emulator.so");
    match build(&kernels, &library) {
        Ok(()) => println!("cargo:rustc-env=CUDA_EMULATOR={}", library.display()),
        Err(why) => {
            println!("cargo:warning=the CUDA kernels cannot be tried on the CPU: {why}");
            println!("cargo:rustc-env=CUDA_EMULATOR=");
        }
    }
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
fn build(kernels: &[PathBuf], library: &Path) -> Result<(), String> {
    let here = Path::new(".");
    let mut runtime = cc::Build::new();
    common(&mut runtime);
    let sources = [here.join("emulator.cpp"), here.join("libcuda.cpp")];
    let mut objects = runtime.files(sources).try_compile_intermediates().map_err(|e| e.to_string())?;
    let mut checked = cc::Build::new();
    common(&mut checked);
    checked.flag("-xc++").files(kernels);
    CHECKS.iter().for_each(|flag| {
        checked.flag(flag);
    });
    objects.extend(checked.try_compile_intermediates().map_err(|e| e.to_string())?);
    let compiler = runtime.try_get_compiler().map_err(|e| e.to_string())?;
    let status = Command::new(compiler.path())
        .args(["-shared", "-Wl,-soname,libcuda.so", "-Wl,-z,defs", "-o"])
        .arg(library)
        .args(&objects)
        .arg("-lpthread")
        .status()
        .map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err("linking failed".into()) }
}

fn common(build: &mut cc::Build) {
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .pic(true)
        .debug(false)
        .warnings(false)
        .include(".")
        .include("..")
        .define("CUDA_EMU", None)
        .flag("-fvisibility=hidden")
        .flag("-ffp-contract=off")
        .flag_if_supported("-fno-extern-tls-init");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        build.flag("-march=x86-64-v3").flag("-mtls-dialect=gnu2");
    }
}
