#!/usr/bin/env bash
# One run on a machine with a GPU, of at most eight minutes, with everything built before: whether the kernels
# are right, what the device can do and how near each kernel comes, then whole engines with models of random
# weights. A short table comes last; everything, with JSON, is in $OUT (./gpu-bench).
#
#   cargo build --release --bin glassbox --example synthetic_model
#   cargo test --release --test cuda --no-run
#   benches/gpu.sh
#
# BIN     where the binaries are (target/release)
# MODELS  where the models are written, 8 GB of them (a temporary folder, removed again); those that are there
#         are used
# DEVICE  cuda or cuda:N
# LIMIT   seconds in all (480)
# FLAGS   of every engine (--max-num-batched-tokens 2048: a prompt's share of a step)
# TINY=1  small shapes and a tiny model: to try this script, also on the stand-in for libcuda (LD_PRELOAD)
set -u
cd "$(dirname "$0")/.." || exit 1

out=${OUT:-gpu-bench} bin=${BIN:-${CARGO_TARGET_DIR:-target}/release} device=${DEVICE:-cuda} limit=${LIMIT:-480}
flags=${FLAGS---max-num-batched-tokens 2048}
glassbox=$bin/glassbox synthetic=$bin/examples/synthetic_model
tests=$(ls -t "$bin"/deps/cuda-* 2>/dev/null | while read -r f; do [ -f "$f" ] && [ -x "$f" ] && echo "$f" && break; done)
if [ ! -x "$glassbox" ] || [ ! -x "$synthetic" ] || [ -z "$tests" ]; then
  echo "not built, or not in BIN=$bin; build with" >&2
  sed -n 's/^#   \(cargo .*\)/  \1/p' "$0" >&2
  exit 2
fi
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
if [ -z "${MODELS:-}" ]; then
  MODELS=$(mktemp -d) || exit 1
  trap 'rm -rf "$MODELS"' EXIT
fi
mkdir -p "$MODELS"

# part NAME SECONDS COMMAND...: its output goes to files, and what became of it to the screen.
part() {
  local name=$1 most=$2 left=$((limit - SECONDS)) begun=$SECONDS said
  shift 2
  [ "$left" -lt "$most" ] && most=$left
  if [ "$most" -le 0 ]; then
    echo "$name: no time was left" | tee -a "$out/parts.txt"
    return 1
  fi
  timeout "$most" "$@" >"$out/$name.out" 2>"$out/$name.err"
  said=$?
  case $said in
    0) said=done ;;
    124) said="not done in $most s" ;;
    *) said="failed ($said): $(tail -n 1 "$out/$name.err" | cut -c -200)" ;;
  esac
  echo "$name: $said, $((SECONDS - begun)) s" | tee -a "$out/parts.txt"
  [ "$said" = done ]
}

# speed NAME SECONDS MODEL FLAGS...: rates of an engine, as JSON.
speed() {
  local name=speed-$1 most=$2 model=$3
  shift 3
  part "$name" "$most" "$glassbox" bench speed -m "$model" --device "$device" --limits --json "$@" $flags \
    && mv "$out/$name.out" "$out/$name.json"
}

# model FILE SHAPE FORMAT
model() {
  [ -s "$MODELS/$1" ] && return
  part "write-$2" 90 "$synthetic" "$MODELS/$1.part" --like "$2" --format "$3" && mv "$MODELS/$1.part" "$MODELS/$1"
}

: >"$out/parts.txt"
rm -f "$out"/*.json
if [ -n "${TINY:-}" ]; then
  TEST_ON_GPU=1 part correct 60 "$tests" rows::
  part gpu 60 "$glassbox" bench gpu --device "$device" --tiny --json "$out/gpu.json"
  model tiny.gguf tiny Q4_K \
    && speed tiny-decode 60 "$MODELS/tiny.gguf" -r 1 -p 0 -n 3 -b 1,2 \
    && speed tiny-prefill 60 "$MODELS/tiny.gguf" -r 1 -n 0 -p 8,24
else
  nvidia-smi >"$out/nvidia-smi.txt" 2>&1
  TEST_ON_GPU=1 part correct 120 "$tests" --test-threads 1
  part gpu 90 "$glassbox" bench gpu --device "$device" --seconds 75 --json "$out/gpu.json"
  if model 8b-Q4_K.gguf llama-8b Q4_K; then
    speed 8b-Q4_K-decode 60 "$MODELS/8b-Q4_K.gguf" -r 2 -p 0 -n 64 -b 1,8,32,128
    speed 8b-Q4_K-prefill 60 "$MODELS/8b-Q4_K.gguf" -r 2 -n 0 -p 512,4096,32768
  fi
  if model 1b-BF16.gguf llama-1b BF16; then
    speed 1b-BF16-decode 45 "$MODELS/1b-BF16.gguf" -r 2 -p 0 -n 64 -b 1,8,32,128
    speed 1b-BF16-prefill 45 "$MODELS/1b-BF16.gguf" -r 2 -n 0 -p 512,4096,32768
  fi
fi
echo
grep -h '^test result' "$out/correct.out" 2>/dev/null
"$glassbox" bench gpu --table "$out" | tee "$out/table.txt"
