#!/usr/bin/env python3
"""Makes kernels/ptx/*.ptx from kernels/*.cu: `kernels/ptx.py [NAME...]`; `--check` compares instead.

The compiler is NVRTC 12.0 out of a Python package, so that no CUDA needs to be installed: its PTX loads
from driver R525 on. A file that begins with `// target: sm_89` is compiled for that by NVRTC 12.4. The
output is the same bytes on every machine.
"""
import ctypes
import pathlib
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE.parent / "target" / "cuda-tools"
# compiler and headers for each target; both pinned.
PACKAGES = {
    "12.0": ["nvidia-cuda-nvrtc-cu12==12.0.140", "nvidia-cuda-runtime-cu12==12.0.146"],
    "12.4": ["nvidia-cuda-nvrtc-cu12==12.4.127", "nvidia-cuda-runtime-cu12==12.4.127"],
}


# The exit status where the packages are out of reach: nothing was found right or wrong.
NOT_FETCHED = 75


def fetched(name, packages):
    """The folder with what is in these packages, fetched once."""
    place = TOOLS / name
    if not (place / "done").exists():
        place.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64"]
        if subprocess.run([*command, "--dest", str(place), *packages]).returncode:
            print(f"could not be fetched: {' '.join(packages)}", file=sys.stderr)
            sys.exit(NOT_FETCHED)
        for wheel in place.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(place)
            wheel.unlink()
        (place / "done").touch()
    return place


class Compiler:
    def __init__(self, version):
        place = fetched(f"nvrtc-{version}", PACKAGES[version])
        lib = place / "nvidia" / "cuda_nvrtc" / "lib"
        for builtins in lib.glob("libnvrtc-builtins.so*"):  # opened by its bare name later
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(next(lib.glob("libnvrtc.so*"))))
        self.include = place / "nvidia" / "cuda_runtime" / "include"

    def ptx(self, source, target):
        program, n = ctypes.c_void_p(), ctypes.c_size_t()
        text = source.read_bytes()
        self.lib.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None)
        options = [f"--gpu-architecture=compute_{target}", "--std=c++17", "--use_fast_math", "-default-device"]
        options += [f"--include-path={HERE}", f"--include-path={self.include}"]
        options = [o.encode() for o in options]
        failed = self.lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if failed:
            self.lib.nvrtcGetProgramLogSize(program, ctypes.byref(n))
            log = ctypes.create_string_buffer(n.value)
            self.lib.nvrtcGetProgramLog(program, log)
            sys.exit(f"{source.name}:\n{log.value.decode()}")
        self.lib.nvrtcGetPTXSize(program, ctypes.byref(n))
        out = ctypes.create_string_buffer(n.value)
        self.lib.nvrtcGetPTX(program, out)
        self.lib.nvrtcDestroyProgram(ctypes.byref(program))
        return out.value  # without the 0 at its end


def target_of(source):
    first = source.read_text().splitlines()[0]
    return first.removeprefix("// target: sm_").split()[0] if first.startswith("// target: sm_") else "80"


def main():
    names = [a for a in sys.argv[1:] if a != "--check"]
    check = "--check" in sys.argv
    sources = [s for s in sorted(HERE.glob("*.cu")) if not names or s.stem in names]
    stale = []
    # One process has one NVRTC: the second version is a second run.
    versions = {s: "12.0" if target_of(s) == "80" else "12.4" for s in sources}
    for version in sorted(set(versions.values())):
        if len(set(versions.values())) > 1:
            mine = [s.stem for s in sources if versions[s] == version]
            run = subprocess.run([sys.executable, __file__, *(["--check"] if check else []), *mine])
            if run.returncode == NOT_FETCHED:
                sys.exit(NOT_FETCHED)
            stale += mine if run.returncode else []
            continue
        compiler = Compiler(version)
        for source in sources:
            ptx = compiler.ptx(source, target_of(source))
            place = HERE / "ptx" / f"{source.stem}.ptx"
            if check:
                same = place.exists() and place.read_bytes() == ptx
                print(f"{source.name}: {'as checked in' if same else 'DIFFERS from ptx/' + place.name}")
                stale += [] if same else [source.name]
            else:
                place.write_bytes(ptx)
                print(f"{source.name}: {len(ptx)} bytes for sm_{target_of(source)}")
    if stale:
        sys.exit("stale: run kernels/ptx.py and commit what it makes" if check else "failed")


if __name__ == "__main__":
    main()
