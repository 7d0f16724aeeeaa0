//! Whether the tests would notice: each mutation is one mistake in one kernel, and a test must fail for it.
//!
//! `cargo test --test cuda -- --ignored mutations` builds each changed kernel anew, links it with the other
//! objects of the emulator, and runs one test of this very program on that. A mutation that is no longer
//! to be made (the text changed) or that no test notices fails, by its name.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// In `file`, the one `find` becomes `replace`; of the tests whose names begin with `test`, one must fail.
/// A header is changed for the one kernel file that is `built` with it.
struct Mutation {
    file: &'static str,
    built: &'static str,
    find: &'static str,
    replace: &'static str,
    test: &'static str,
}

const fn of(file: &'static str, find: &'static str, replace: &'static str, test: &'static str) -> Mutation {
    Mutation { file, built: file, find, replace, test }
}

const fn within(
    file: &'static str,
    built: &'static str,
    find: &'static str,
    replace: &'static str,
    test: &'static str,
) -> Mutation {
    Mutation { file, built, find, replace, test }
}

/// What is wrong with each is plain from the two texts.
#[rustfmt::skip]
const MUTATIONS: &[Mutation] = &[
    // rows: sums, scales, norms, gathered rows
    within("norm.cuh", "rows.cu", "ss += (x[i] - row.mean) * (x[i] - row.mean);", "ss += x[i] - row.mean;", "rows::rows_are_normalised"),
    within("norm.cuh", "rows.cu", "/ n + eps", "/ blockDim.x + eps", "rows::rows_are_normalised"),
    within("norm.cuh", "rows.cu", "(x[i] - mean) * scale * w[i]", "(x[i] - mean) * w[i]", "rows::rows_are_normalised"),
    within("norm.cuh", "rows.cu", "row.mean = block_sum(sum, red) / n;", "", "rows::rows_are_normalised"),
    within("norm.cuh", "rows.cu", "return b ? v + b[i] : v;", "return v;", "rows::rows_are_normalised"),
    of("rows.cu", "out += (size_t)blockIdx.x * stride;", "out += (size_t)blockIdx.x * n;", "rows::columns_are"),
    of("rows.cu", "normed(y + (size_t)blockIdx.x * n,", "normed(x,", "rows::rows_are_added"),
    of("rows.cu", "rows ? rows[i] :", "rows ? i :", "rows::rows_are_gathered"),
    of("rows.cu", "d = most / 127.f", "d = most / 128.f", "rows::bytes_come_with_their_scale_and_sum"),
    of("rows.cu", "make_float2(sum == sum ? d : sum, d * sum)", "make_float2(d, d * sum)", "rows::what_is_no_number_stays_none"),
    of("rows.cu", "make_float2(sum == sum ? d : sum, d * sum)", "make_float2(sum == sum ? d : sum, sum)", "rows::bytes_come"),
    of("rows.cu", "scale[blockIdx.x] = 1.f / up", "scale[blockIdx.x] = up", "rows::halves_keep_their_range"),
    of("rows.cu", "most = block_max(most, red);", "most = warp_max(most);", "rows::halves_keep_their_range"),
    // what all kernels share
    within("common.cuh", "rows.cu", "v = warp_sum(v);\n  __syncthreads();\n  if (lane == 0) red[warp] = v;\n  __syncthreads();", "v = warp_sum(v);\n  __syncthreads();\n  if (lane == 0) red[warp] = v;", "rows::"),
    within("common.cuh", "rows.cu", "for (int o = 16; o; o >>= 1) v += ", "for (int o = 8; o; o >>= 1) v += ", "rows::"),
    within("common.cuh", "rows.cu", "v = fmaxf(v, __shfl_xor_sync(FULL, v, o))", "v = fmaxf(v, __shfl_xor_sync(FULL, v, 1))", "rows::"),
    // limits: every byte once
    of("limits.cu", "to[i + 3 * step] = d;", "to[i + 3 * step] = c;", "limits::every_byte"),
    of("limits.cu", "for (int w = 1; w < (int)blockDim.x / 32; w++)", "for (int w = 2; w < (int)blockDim.x / 32; w++)", "limits::every_byte"),
    // weights in planes: nibbles, fifth bits, minima, blocks as a file has them
    within("planes.cuh", "gemv.cu", "moved(four, (i < 4 ? 0 : -4) + up)", "moved(four, (i < 4 ? -4 : 0) + up)", "gemv::rows_are_multiplied"),
    within("planes.cuh", "gemv.cu", "if constexpr (up > 0) bytes ^= 0x80808080u;", "", "gemv::rows_are_multiplied"),
    within("planes.cuh", "gemv.cu", "-(d.y * small(s >> 8))", "d.y * small(s >> 8)", "gemv::rows_are_multiplied"),
    within("planes.cuh", "embed.cu", ">> (j < 16 ? 0 : 4) & 15", ">> (j < 16 ? 4 : 0) & 15", "embed::"),
    within("planes.cuh", "embed.cu", "(j < 16 ? s.x : s.y)", "(j < 16 ? s.y : s.x)", "embed::"),
    of("repack.cu", "nibbles(run, i + 4, high) << 4", "nibbles(run, i, high) << 4", "weights::planes_hold"),
    of("repack.cu", "pairs[j - 4] >> 6 << 4", "pairs[j - 4] >> 6 << 5", "weights::planes_hold"),
    of("repack.cu", "(8 * (j % 4) + j / 4)", "(8 * (j / 8) + j % 8)", "weights::planes_hold"),
    of("repack.cu", "if (i >= subs) return;", "if (i >= subs - 1) return;", "weights::planes_hold"),
    of("embed.cu", "if (t >= step->rows) return;", "if (t > step->rows) return;", "embed::"),
    of("embed.cu", "weight<F>(table, row * cols + k) * scale", "weight<F>(table, row * cols + k)", "embed::"),
    of("embed.cu", "ints(step, positions ? step->positions : step->tokens)", "ints(step, step->tokens)", "embed::positions"),
    of("embed.cu", "positions ? *to + w : w", "w", "embed::positions"),
    // values one by one, and what activations are
    of("elements.cu", "x[i] += y[i] * scale;", "x[i] += y[i];", "elements::values_are_added"),
    of("elements.cu", "__expf(2.f * v / cap)", "__expf(v / cap)", "elements::values_are_scaled"),
    of("elements.cu", "out[t * out_stride + to + i]", "out[t * out_stride + i]", "elements::columns_are_copied"),
    of("elements.cu", "gate_len == 1 ? 0 : i", "i", "elements::columns_are_multiplied"),
    of("elements.cu", "by == SIGMOID ? sigmoid : activated(g, SILU)", "sigmoid", "elements::columns_are_multiplied"),
    within("activation.cuh", "elements.cu", "return x < 0.f ? -y : y;", "return y;", "elements::values_are_activated"),
    within("activation.cuh", "gemv.cu", "(u + 1.f)", "u", "gemv::gates_of_two"),
    within("activation.cuh", "gemv.cu", "up < -7.f ? -7.f : up", "up", "gemv::gates_of_two"),
    // gemv: lanes, teams, gates, the last rows of a matrix
    of("gemv.cu", "for (int o = 8; o < min(team, 32); o *= 2)", "for (int o = 16; o < min(team, 32); o *= 2)", "gemv::rows_are_multiplied"),
    of("gemv.cu", "  __syncthreads();\n\n  auto total", "  auto total", "gemv::"),
    of("gemv.cu", "fmaf(w.scale.y, x.ds.y, sum)", "fmaf(w.scale.y, x.ds.x, sum)", "gemv::rows_are_multiplied"),
    of("gemv.cu", "fmaf(w.scale.x, first, w.scale.y * last)", "fmaf(w.scale.x, first, w.scale.x * last)", "gemv::rows_are_multiplied"),
    of("gemv.cu", "(is_gated ? r % (LOT / 2) : r), wide - 1)", "(is_gated ? r % (LOT / 2) : r), wide)", "gemv::"),
    of("gemv.cu", "*to = write == ADD ? *to + value : value;", "*to = value;", "gemv::"),
    of("gemv.cu", "gated(value, up, write - GATED)", "gated(value, up, write - ADD)", "gemv::gate_and_up"),
    of("gemv.cu", "if (i < len) gate[i]", "if (i <= len) gate[i]", "gemv::gates_of_two"),
    // gemm: rings, scales, sides, the rest of a matrix
    within("gemm_tile.cuh", "gemm.cu", "lo = q & 0x0f0f0f0fu;", "lo = q >> 4 & 0x0f0f0f0fu;", "gemm::"),
    within("gemm_tile.cuh", "gemm.cu", "twice(from_f<f16>(-min))", "twice(from_f<f16>(min))", "gemm::"),
    within("gemm_tile.cuh", "gemm.cu", "      __syncthreads();  // everyone's copies are there, and nobody is in the stage before\n", "", "gemm::"),
    within("gemm_tile.cuh", "gemm.cu", "ptx::cp_async_wait<AHEAD - 1>();", "ptx::cp_async_wait<AHEAD>();", "gemm::"),
    within("gemm_out.cuh", "gemm.cu", "if (bias) v[i] += bias[c];", "", "gemm::"),
    of("gemm_fp8.cu", "d > 0.f ? of / d : of", "of", "gemm::e4m3"),
    of("gemm_fp8.cu", "scale[blockIdx.x] = d;", "scale[blockIdx.x] = 1.f;", "gemm::e4m3"),
    of("gemm_fp8.cu", "const float of = row[2 * i + j];", "const float of = row[2 * i];", "gemm::e4m3"),
    // keys and values: rotation, places, scales
    of("kv.cu", "b[i] = u * s + v * c;", "b[i] = u * s - v * c;", "kv::heads_are"),
    of("kv.cu", "offset = position % block_size;", "offset = (position + 1) % block_size;", "kv::heads_are"),
    of("kv.cu", "if (row >= step->rows ||", "if (row > step->rows ||", "kv::"),
    of("kv.cu", "? 127.f : 448.f", "? 128.f : 448.f", "kv::"),
    of("kv.cu", "(is_value ? block_size : 0) + offset] = scale", "offset] = scale", "kv::"),
    of("kv.cu", "pairs[2 * blockIdx.x + 1]", "pairs[2 * blockIdx.x]", "kv::blocks_are_copied"),
    of("kv.cu", "norm.w + head * norm.each", "norm.w", "kv::heads_are"),
    of("kv.cu", "norm.b + head * norm.each", "norm.b", "kv::heads_are"),
    of("kv.cu", "key_norm, head - heads)", "key_norm, head)", "kv::heads_are"),
    of("kv.cu", "mean = warp_sum(mean) / d;", "mean = warp_sum(mean);", "kv::heads_are"),
    of("kv.cu", "rope < 0 ? 0 : step->half[rope]", "step->half[max(rope, 0)]", "kv::heads_are"),
    // elements of the cache, and where they lie
    within("cache.cuh", "kv.cu", "(size_t)block * s.block_bytes", "(size_t)block * s.kv_heads * kv_part_bytes(s)", "kv::heads_are"),
    within("cache.cuh", "kv.cu", "rintf(a * 512.f)", "rintf(a * 256.f)", "kv::bytes_are"),
    within("cache.cuh", "kv.cu", " + (bits >> 20 & 1)", "", "kv::bytes_are"),
    within("cache.cuh", "decode.cu", "x[0] = a.x, x[1] = a.y, x[2] = b.x", "x[0] = a.y, x[1] = a.x, x[2] = b.x", "decode::attention"),
    within("cache.cuh", "decode.cu", "UNIT = 256.f", "UNIT = 128.f", "decode::bytes_are"),
    // decode: copies, splits, windows, caps, sinks
    of("decode.cu", "ptx::cp_async_wait<1>();", "ptx::cp_async_wait<2>();", "decode::attention"),
    of("decode.cu", "ptx::cp_async_wait<1>();\n      __syncthreads();", "ptx::cp_async_wait<1>();", "decode::attention"),
    of("decode.cu", "c.first = window > 0 ? max(0, c.end - window) : 0;", "c.first = 0;", "decode::a_window"),
    of("decode.cu", "if (a.cap > 0.f) score", "if (false) score", "decode::"),
    of("decode.cu", "desk.sum[h] * fix + all", "desk.sum[h] + all", "decode::"),
    of("decode.cu", "sum[h][e] *= desk.fix[h];", "sum[h][e] *= 1.f;", "decode::"),
    of("decode.cu", "e * scales[SPLIT + t] : e", "e * scales[t] : e", "decode::"),
    of("decode.cu", "if (sinks) all += __expf(sink - most);", "", "decode::"),
    // prefill: the same, on tensor cores
    of("prefill.cu", "if (back < 0 || back >= j.window)", "if (back < 0 || back > j.window)", "prefill::windows"),
    of("prefill.cu", "if (back < 0 ||", "if (back < -1 ||", "prefill::every_group"),
    of("prefill.cu", "ptx::cp_async_wait<0>();", "ptx::cp_async_wait<1>();", "prefill::every_group"),
    of("prefill.cu", "sum[m][h] = sum[m][h] * fade + total;", "sum[m][h] = sum[m][h] + total;", "prefill::every_group"),
    of("prefill.cu", "total += __shfl_xor_sync(FULL, total, 2);", "", "prefill::every_group"),
    of("prefill.cu", "if (j.cap > 0.f) { // tanh", "if (false) { // tanh", "prefill::windows"),
    of("prefill.cu", "(e % 2 ? k_scale[n].y : k_scale[n].x)", "(e % 2 ? k_scale[n].x : k_scale[n].y)", "prefill::every_element"),
    of("prefill.cu", "end = position / size + 1;", "end = position / size;", "prefill::short_spans_are_split"),
    // draw: ties, ranks, the last block, penalties, what is left behind
    of("draw.cu", "(k == key && i <= id)", "(k == key && i < id)", "draw::"),
    of("draw.cu", "k0 += 0x9E3779B9u;", "k0 += 0x9E3779B8u;", "draw::tokens"),
    of("draw.cu", "key_of(x[j]) > MASKED && key_of(x[j]) >= key;", "key_of(x[j]) > MASKED && key_of(x[j]) > key;", "draw::"),
    of("draw.cu", "atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1", "atomicInc(arrived, gridDim.x - 1) == 0", "draw::rows_of_many_parts"),
    of("draw.cu", "if (threadIdx.x == 0) s.listed = 0;", "", "draw::"),
    of("draw.cu", "logit > 0.f ? __fdiv_rn", "logit < 0.f ? __fdiv_rn", "draw::bias"),
    // adapters
    of("lora.cu", "out[i] += ad.scale * v;", "out[i] += v;", "lora::adapters"),
    of("lora.cu", "for (int o = 4; o; o >>= 1)\n      if (o < lanes)", "for (int o = 2; o; o >>= 1)\n      if (o < lanes)", "lora::adapters"),
    of("lora.cu", " + part[3][row][r];", ";", "lora::adapters"),
    // experts
    of("moe.cu", "a.id < b.id", "a.id > b.id", "moe::"),
    of("moe.cu", "better < top_groups", "better <= top_groups", "moe::groups"),
    of("moe.cu", "n[warp][e] = lower + 1;", "n[warp][e] = lower;", "moe::pairs"),
    of("moe.cu", "mine.score / (all + 1e-20f)", "mine.score", "moe::rows_go"),
    of("moe.cu", "by_two && size > 1 ? best + second : best", "best", "moe::groups"),
    of("moe.cu", "if (bias || by_two) key[i]", "if (bias) key[i]", "moe::groups"),
    of("moe_gemv.cu", "of_x = pair / per_row", "of_x = pair", "moe::few_rows"),
    of("moe_gemv.cu", "if (expert < 0 || first >= n)", "if (first >= n)", "moe::few_rows"),
    of("moe_gemv.cu", "+ (bias ? bias[at] : 0.f)", "+ (bias ? bias[min(first + r, n - 1)] : 0.f)", "moe::few_rows"),
    of("moe_gemv.cu", "s.y * x.ds.y", "s.y * x.ds.x", "moe::few_rows"),
    of("moe_gemm.cu", "base = t[0] * columns, first = t[1];", "base = t[0] * columns, first = 0;", "moe::many_rows"),
    of("moe_gemm.cu", "(size_t)pairs[m] * columns", "(size_t)rows[m] * columns", "moe::many_rows"),
    of("moe_gemm.cu", "bias[min(n + i, base + columns - 1)]", "bias[min(n + i, columns - 1)]", "moe::many_rows"),
    // states: where they are, what is in them, what is added up
    of("recurrent.cu", "past[i] = past[i + 1];", "past[i] = past[i];", "recurrent::convolutions"),
    of("recurrent.cu", "i < MOST_WIDTH - 1 && start > 0 ?", "i < MOST_WIDTH - 1 ?", "recurrent::convolutions"),
    of("recurrent.cu", "table[p.group])[span + 1]", "table[0])[span + 1]", "recurrent::convolutions"),
    of("recurrent.cu", "(v - found * decay) * strength", "(v - found) * strength", "recurrent::delta"),
    of("recurrent.cu", "parts[warp][lane] = found;\n    __syncthreads();", "parts[warp][lane] = found;", "recurrent::delta"),
    of("recurrent.cu", "key_head = head / (value_heads / key_heads)", "key_head = head % key_heads", "recurrent::delta"),
    of("recurrent.cu", "fmaf(d[head], in[r], all)", "all", "recurrent::scans"),
    of("recurrent.cu", "head / (heads / groups) * size", "head % groups * size", "recurrent::scans"),
    of("recurrent.cu", "if (p0 + r < dim && n < size) state[(size_t)r * size + n] = h[r][e];", "", "recurrent::scans"),
];

/// So long a test may take; one that hangs has noticed.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
#[ignore = "two minutes: run by .ci/run"]
fn mutations_are_noticed() {
    if env::var_os("TEST_ON_GPU").is_some() || !cuda_emulator::install() {
        return eprintln!("skipped: mutations are of the kernels on the emulator");
    }
    let only = env::var("MUTATIONS_OF").unwrap_or_default();
    let chosen: Vec<_> = MUTATIONS.iter().filter(|mutation| mutation.built.starts_with(&only)).collect();
    untouched_kernels_pass(&chosen);
    let (left, survived) = (Mutex::new(chosen.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let Some(mutation) = left.lock().unwrap().next() else { return };
            if let Err(why) = is_noticed(mutation) {
                survived.lock().unwrap().push(why);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let survived = survived.into_inner().unwrap();
    assert!(survived.is_empty(), "{} of {} mutations: {survived:#?}", survived.len(), chosen.len());
}

/// Else every mutation would seem to be noticed.
fn untouched_kernels_pass(mutations: &[&Mutation]) {
    let Some(first) = mutations.first() else { return };
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("untouched.so");
    cuda_emulator::rebuild(&kernels(), first.built, &library).unwrap();
    let (passed, said) = run(first.test, &library);
    assert!(passed, "an unchanged kernel fails: {said}");
}

fn is_noticed(mutation: &Mutation) -> Result<(), String> {
    let begun = Instant::now();
    let name =
        format!("{}: {:?} -> {:?} ({})", mutation.file, mutation.find, mutation.replace, mutation.test);
    let folder = tempfile::tempdir().unwrap();
    change(mutation, folder.path()).map_err(|why| format!("{name}: {why}"))?;
    let library = folder.path().join("changed.so");
    cuda_emulator::rebuild(folder.path(), mutation.built, &library)
        .map_err(|why| format!("{name}: it does not compile: {why}"))?;
    let compiled = begun.elapsed();
    let (passed, said) = run(mutation.test, &library);
    if passed {
        return Err(format!("{name}: no test noticed"));
    }
    if !said.contains("test result: FAILED") && !said.contains("hangs") {
        return Err(format!("{name}: the test did not run: {said}"));
    }
    println!("noticed in {:.0?} + {:.0?}: {name}", compiled, begun.elapsed() - compiled);
    Ok(())
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

/// The kernels' sources in `folder`, one of them changed.
fn change(mutation: &Mutation, folder: &Path) -> Result<(), String> {
    let is_source = |path: &Path| path.extension().is_some_and(|end| end == "cu" || end == "cuh");
    for path in fs::read_dir(kernels()).unwrap().map(|entry| entry.unwrap().path()).filter(|p| is_source(p)) {
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    let file = folder.join(mutation.file);
    let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
    match text.matches(mutation.find).count() {
        1 => {
            fs::write(file, text.replace(mutation.find, mutation.replace)).map_err(|error| error.to_string())
        }
        n => Err(format!("the text is there {n} times, not once")),
    }
}

/// Whether the tests of that name pass on that emulator, and what they said.
fn run(test: &str, library: &Path) -> (bool, String) {
    let log = library.with_extension("log");
    let out = fs::File::create(&log).unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args([test, "--test-threads=1"])
        .env("CUDA_EMULATOR", library)
        .stdout(out.try_clone().unwrap())
        .stderr(Stdio::from(out))
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if begun.elapsed() > PATIENCE => break None,
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let said = fs::read_to_string(&log).unwrap();
    match status {
        Some(status) => (status.success(), said),
        None => (false, format!("hangs\n{said}")),
    }
}
