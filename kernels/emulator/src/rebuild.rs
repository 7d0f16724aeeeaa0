//! The library once more, with one kernel from another folder.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What `build.rs` noted of how it built the library.
struct Recipe {
    compiler: String,
    flags: Vec<String>,
    /// The emulator's own.
    runtime: Vec<String>,
    /// Files of kernels and their objects.
    kernels: Vec<(String, String)>,
}

/// Compiles the `file` (as `rows.cu`) of that folder, with its headers, and links it with the other objects as
/// they are into the library `to`. Run a test with `CUDA_EMULATOR` set to that.
///
/// # Errors
/// What the compiler says, or that there is none.
pub fn rebuild(kernels: &Path, file: &str, to: &Path) -> Result<(), String> {
    let recipe = recipe().ok_or("there is no C++ compiler")?;
    let object = to.with_extension("o");
    let mut compile = Command::new(&recipe.compiler);
    compile.args(&recipe.flags).arg("-c").arg(kernels.join(file));
    output(compile.arg("-o").arg(&object))?;
    let others = recipe.kernels.iter().filter(|(name, _)| name != file).map(|(_, object)| object);
    let mut link = Command::new(&recipe.compiler);
    link.args(["-shared", "-Wl,-soname,libcuda.so", "-Wl,-z,defs", "-o"]).arg(to);
    // First, so that of functions that the linker finds twice it takes this one's.
    link.arg(&object).args(&recipe.runtime).args(others).arg("-lpthread");
    output(&mut link)
}

fn recipe() -> Option<Recipe> {
    let text = fs::read_to_string(env!("CUDA_EMULATOR_RECIPE")).ok()?;
    let mut recipe = Recipe { compiler: String::new(), flags: vec![], runtime: vec![], kernels: vec![] };
    for line in text.lines() {
        match line.split_once(' ')? {
            ("compiler", path) => recipe.compiler = path.to_owned(),
            ("flag", flag) => recipe.flags.push(flag.to_owned()),
            ("object", path) => recipe.runtime.push(path.to_owned()),
            ("kernel", rest) => {
                let (name, path) = rest.split_once(' ')?;
                recipe.kernels.push((name.to_owned(), path.to_owned()));
            }
            _ => return None,
        }
    }
    Some(recipe)
}

fn output(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
