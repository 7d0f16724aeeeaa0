#!/usr/bin/env python3
"""Looks at the kernels as a device would run them, without one.

1. Every PTX that is checked in is what kernels/ptx.py makes of its source.
2. The assembler takes it for every generation we name. No kernel spills registers, and none keeps arrays in
   local memory but those of EXPLAINED.
3. Matrix kernels use tensor cores, and bring their operands in 16 bytes at a time.

Prints registers and shared memory of each kernel, and leaves the table in target/kernels.md. The assembler
and the disassembler come out of Python packages: no CUDA needs to be installed.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

# A file beside the kernels would have the emulator built again.
sys.dont_write_bytecode = True

import ptx  # noqa: E402

PACKAGES = ["nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-nvdisasm==13.2.86"]
GENERATIONS = [80, 89, 90, 120]
TABLE_OF = 90
OUT = ptx.HERE.parent / "target"

# Kernels with a stack frame, and why it costs nothing there.
EXPLAINED = {}
# Files whose kernels multiply matrices, but for these.
MATRIX_FILES = ["gemm", "gemm_fp8", "moe_gemm", "prefill"]
NO_MATRIX = {"gemm_f32", "gemm_shared", "gemm_sum", "prefill_merge", "rows_to_e4m3"}
# What the disassembler calls an instruction of the tensor cores, and a copy of 16 bytes to shared memory.
TENSOR = re.compile(r"\b(HMMA|IMMA|QMMA)\.")
WIDE_COPY = re.compile(r"\bLDGSTS\.\S*128")


def tool(name):
    path = next(ptx.fetched("assembler", PACKAGES).rglob(f"bin/{name}"))
    path.chmod(0o755)  # packages unpack without it
    return path


def assembled(source, generation):
    """A cubin, and for each kernel what the assembler says of it."""
    cubin = OUT / "cubin" / f"{source.stem}.{generation}.cubin"
    command = [tool("ptxas"), "-v", f"-arch=sm_{generation}", source, "-o", cubin]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{source.name} for sm_{generation}: {run.stderr}")
    return cubin, dict(kernels_in(run.stderr))


def kernels_in(said):
    for part in said.split("Compiling entry function '")[1:]:
        number = lambda pattern: int((re.search(pattern, part) or [0, 0])[1])
        yield part.split("'")[0], {
            "stack": number(r"(\d+) bytes stack frame"),
            "spilt": number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
            "registers": number(r"Used (\d+) registers"),
            "shared": number(r"(\d+) bytes smem"),
        }


def instructions(cubin):
    """The text of each kernel in it."""
    run = subprocess.run([tool("nvdisasm"), "-c", cubin], capture_output=True, text=True, check=True)
    parts = re.split(r"^\.text\.(\w+):$", run.stdout, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def wrong_with_matrices(cubin):
    for kernel, text in instructions(cubin).items():
        if kernel in NO_MATRIX:
            continue
        if not TENSOR.search(text):
            yield f"{kernel} uses no tensor core"
        if not WIDE_COPY.search(text):
            yield f"{kernel} copies no 16 bytes at a time"


def look_at(source, generation):
    """What is wrong with the kernels of this PTX there, and its rows of the table."""
    cubin, kernels = assembled(source, generation)
    wrong, rows = [], []
    for kernel, its in kernels.items():
        if its["spilt"]:
            wrong.append(f"{kernel} spills {its['spilt']} bytes")
        if its["stack"] and kernel not in EXPLAINED:
            wrong.append(f"{kernel} has {its['stack']} bytes of local memory")
        rows.append(f"| {source.stem} | {kernel} | {its['registers']} | {its['shared']} | {its['stack']} |")
    if source.stem in MATRIX_FILES:
        wrong += wrong_with_matrices(cubin)
    return [f"sm_{generation}: {what}" for what in wrong], rows


def main():
    made = subprocess.run([sys.executable, ptx.HERE / "ptx.py", "--check"])
    if made.returncode:
        sys.exit(made.returncode)
    (OUT / "cubin").mkdir(parents=True, exist_ok=True)
    tool("ptxas"), tool("nvdisasm")  # fetched once, before they are used side by side
    sources = sorted((ptx.HERE / "ptx").glob("*.ptx"))
    jobs = [(s, g) for s in sources for g in GENERATIONS if g >= int(ptx.target_of(ptx.HERE / f"{s.stem}.cu"))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        looks = list(pool.map(lambda job: look_at(*job), jobs))
    table = ["| file | kernel | registers | shared bytes | stack bytes |", "|---|---|---|---|---|"]
    table += [row for (_, g), (_, rows) in zip(jobs, looks) if g == TABLE_OF for row in rows]
    text = f"Kernels on sm_{TABLE_OF}; dynamic shared memory is not counted.\n\n" + "\n".join(table) + "\n"
    (OUT / "kernels.md").write_text(text)
    print(text)
    wrong = [what for wrongs, _ in looks for what in wrongs]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(sources)} files for {', '.join(f'sm_{g}' for g in GENERATIONS)}: nothing spills")


main()
