//! Flags in, exit code out.

fn main() -> std::process::ExitCode {
    glassbox::launch::main()
}
