// From a row of logits to a token, without a sort: the device's half of src/sample, to the same token.
//
// Rows are cut into parts of 4,096 logits, a block each; what the parts found is put together by
// whichever block of the row is last, so that one launch is a pass and its conclusion. Every cut keeps the
// front of one order (likelier first, ties to the lower id): all that has to be found is its last token,
// and that is searched for by halving the range of keys. Weights are whole numbers, 2^-39 each, so that
// their sums are the same in every order.
//
//   draw_survey  the row's softmax; bias, mask, penalties; the likeliest. Ends here: the likeliest wanted,
//                or a top-k of at most `few` (with top-p and min-p of what is left)
//   draw_bins    of the others with a top-k or a top-p: how many tokens, and what weight, in each 64th
//                below the largest logit
//   draw_cut     the last token of a top-k or a top-p: looked for in the bin that it is in
//   draw_walk    the token at which the summed weight, in order of id, passes the number drawn
//   draw_rank    its place in the raw row, and what is said of the row
#include "common.cuh"

#define THREADS 256
#define EACH 16                // logits of a thread
#define PART (THREADS * EACH)  // of a block
#define MOST_PARTS 128
#define MOST_FEW 64
#define MOST_TOP 32
#define BINS 2048
#define BIN_WIDTH_INVERSE 64.f
#define ONE (1ull << 39) // the likeliest token's weight: 2^39 * 2^19 tokens stay below 2^64
#define NONE 0xffffffffu
// Keys at and below that of -infinity are of what cannot be drawn.
#define MASKED 0x007fffffu

enum Kind { SCORE, BEST, FEW, WHOLE };
enum Problem { FINE, NOT_A_NUMBER, ALL_MASKED };

// What to do with a row, as src/compute/cuda/draw.rs wrote it. Offsets are in words from the start of the
// block that holds all rows, whose first 16 words are a header: the number of rows. 0 is none.
struct Row {
  uint32_t kind;
  uint32_t target;  // SCORE: the token asked for; NONE: the likeliest
  uint32_t top;     // so many of the raw row's likeliest are wanted
  uint32_t top_k;   // 0 is off
  float top_p;      // 1 is off
  float min_p;      // how far below the largest logit: ln(min_p) * temperature; -infinity is off
  float scale;      // log2(e) / temperature
  float repetition, frequency, presence;
  uint32_t seed[2], position[2]; // low word first
  uint32_t bias;    // offset of an Edits: tokens with what is added to them
  uint32_t counts;  // offset of an Edits: tokens with how often they occurred
  uint32_t mask;    // offset of u32 [ceil(vocab / 32)]: bits of what may be drawn
  uint32_t unused[3];
};
// Edits, by part, each token once: u32 [parts + 1] where each part's begin, then pairs (token, value).

// What is known of a row between the launches.
struct Part {
  uint64_t best_raw, best; // of the raw row and of the edited one: entries
  float sum, product;      // of 2^d and of d 2^d, d = (x - the part's largest) * log2(e)
  uint32_t bad;            // a logit is NaN or +infinity
  uint32_t unused;
};
struct Space {
  uint32_t arrived[8]; // blocks done, of each launch; back at 0 afterwards
  uint32_t token, problem;
  uint32_t key, id;    // the last token that is kept; 0, NONE keeps all
  float largest;       // of the edited row
  float max, sum, product; // of the raw row
  uint64_t before;     // weight, or number, of what is likelier than the bin searched
  uint64_t before_weight;
  uint64_t need;       // weight, or number, of what is kept
  uint32_t bin, in_bin, listed, unused;
  Part parts[MOST_PARTS];
  uint64_t part_weight[MOST_PARTS];
  uint32_t part_count[MOST_PARTS];
  uint64_t weights[BINS]; // 0 between steps, as `counts`
  uint32_t counts[BINS];
  uint64_t list[PART];    // entries of the bin searched
  uint64_t few[PART], few_raw[PART]; // entries: the likeliest of every part
};
static_assert(sizeof(Row) == 80 && sizeof(Space) == 128616, "src/compute/cuda/draw.rs has these");

// What goes back for a row; texts are the host's.
struct Result {
  uint32_t problem, token;
  float logit; // the token's, in the raw row
  uint32_t rank;
  float max, sum, product;
  uint32_t tops;
};

// ---- one order ----

// Grows with the logit; -0 is 0.
DEV uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits == 0x80000000u ? 0x80000000u : bits >> 31 ? ~bits : bits | 0x80000000u;
}
DEV float logit_of(uint32_t key) { return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key); }
// An entry: greater is likelier, then of the lower id.
DEV uint64_t entry_of(uint32_t key, uint32_t id) { return (uint64_t)key << 32 | (uint32_t)~id; }
DEV uint32_t entry_key(uint64_t entry) { return (uint32_t)(entry >> 32); }
DEV uint32_t entry_id(uint64_t entry) { return ~(uint32_t)entry; }

struct Cut {
  uint32_t key, id;
  DEV bool keeps(uint32_t k, uint32_t i) const { return k > MASKED && (k > key || (k == key && i <= id)); }
};

// 2^d as the CPU has it (src/sample/softmax.rs), to the bit, so that the same tokens are cut.
DEV float power_of_two(float d) {
  d = fmaxf(d, -125.5f);
  const float rounded = __fadd_rn(d, 12582912.f), f = __fsub_rn(d, __fsub_rn(rounded, 12582912.f));
  float p = 1.32647e-3f;
  p = __fadd_rn(__fmul_rn(p, f), 9.67151e-3f);
  p = __fadd_rn(__fmul_rn(p, f), 5.550734e-2f);
  p = __fadd_rn(__fmul_rn(p, f), 2.4022242e-1f);
  p = __fadd_rn(__fmul_rn(p, f), 0.69314718f);
  p = __fadd_rn(__fmul_rn(p, f), 1.f);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(rounded) << 23));
}
DEV uint64_t weight_of(uint32_t key, float largest, float scale) {
  if (key <= MASKED) return 0;
  const float w = power_of_two(__fmul_rn(__fsub_rn(logit_of(key), largest), scale));
  return __float2ull_rn(__fmul_rn(w, (float)ONE));
}

// ---- a block's sums ----
// Two places, in turn, so that a sum is one barrier: who writes the first again has seen all read it.
template <class T> DEV T block_total(T v, int& turn) {
  __shared__ T red[2][THREADS / 32];
#pragma unroll
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(FULL, v, o);
  turn ^= 1;
  if (threadIdx.x % 32 == 0) red[turn][threadIdx.x / 32] = v;
  __syncthreads();
  T all = red[turn][0];
#pragma unroll
  for (int w = 1; w < THREADS / 32; w++) all += red[turn][w];
  return all;
}
DEV uint64_t block_greatest(uint64_t v, int& turn) {
  __shared__ uint64_t red[2][THREADS / 32];
#pragma unroll
  for (int o = 16; o; o >>= 1) {
    const uint64_t other = __shfl_xor_sync(FULL, v, o);
    v = other > v ? other : v;
  }
  turn ^= 1;
  if (threadIdx.x % 32 == 0) red[turn][threadIdx.x / 32] = v;
  __syncthreads();
  uint64_t all = red[turn][0];
#pragma unroll
  for (int w = 1; w < THREADS / 32; w++) all = red[turn][w] > all ? red[turn][w] : all;
  return all;
}

// Whether this block is the last of its row's to come here: what the others wrote is there (read it with
// __ldcg: it was never in this block's cache, and must not be looked for there).
DEV bool is_last(uint32_t* arrived) {
  __shared__ uint32_t last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  __threadfence();
  return last;
}

// ---- a part of a row ----
DEV uint32_t id_of(int part, int j) { return part * PART + j * THREADS + threadIdx.x; }

DEV void load(float (&x)[EACH], const float* logits, int vocab, int part) {
#pragma unroll
  for (int j = 0; j < EACH; j++) x[j] = id_of(part, j) < vocab ? logits[id_of(part, j)] : -INFINITY;
}
DEV float* part_in_memory() {
  __shared__ float memory[PART];
  return memory;
}
// Bias, penalties and mask. The CPU masks before it penalises: a masked logit stays masked, so it is the same.
DEV void edit(float (&x)[EACH], const Row& row, const uint32_t* staged, int vocab, int part, int parts) {
  if (row.bias || row.counts) {
    float* buf = part_in_memory();
    __syncthreads(); // the part before is done with
#pragma unroll
    for (int j = 0; j < EACH; j++) buf[j * THREADS + threadIdx.x] = x[j];
    __syncthreads();
    if (row.bias) {
      const uint32_t *begins = staged + row.bias, *pairs = begins + parts + 1;
#pragma unroll 1
      for (uint32_t i = begins[part] + threadIdx.x; i < begins[part + 1]; i += THREADS) {
        float& logit = buf[pairs[2 * i] - part * PART];
        logit = __fadd_rn(logit, __uint_as_float(pairs[2 * i + 1]));
      }
      __syncthreads();
    }
    if (row.counts) {
      const uint32_t *begins = staged + row.counts, *pairs = begins + parts + 1;
#pragma unroll 1
      for (uint32_t i = begins[part] + threadIdx.x; i < begins[part + 1]; i += THREADS) {
        float& logit = buf[pairs[2 * i] - part * PART];
        const uint32_t times = pairs[2 * i + 1];
        float y = logit > 0.f ? __fdiv_rn(logit, row.repetition) : __fmul_rn(logit, row.repetition);
        y = __fsub_rn(y, __fmul_rn(row.frequency, (float)times));
        logit = times ? __fsub_rn(y, row.presence) : y;
      }
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) x[j] = buf[j * THREADS + threadIdx.x];
  }
  if (row.mask) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const uint32_t id = id_of(part, j);
      if (id < vocab && !(staged[row.mask + id / 32] >> id % 32 & 1)) x[j] = -INFINITY;
    }
  }
}

// ---- what is searched ----
// Both call `f(key, id, measure)` for what this thread has; the measure is 1 or a weight, 0 of masked ones.
template <class M> struct Held {
  uint32_t key[EACH], id[EACH];
  M measure[EACH];
  template <class F> DEV void each(F f) const {
#pragma unroll
    for (int j = 0; j < EACH; j++) f(key[j], id[j], measure[j]);
  }
};
// A bin of the row, read again each time: where thousands of logits are as good as equal.
struct Bin {
  const float* logits;
  const Row& row;
  const uint32_t* staged;
  int vocab, parts;
  float largest;
  uint32_t bin;
  bool by_weight;
  template <class F> DEV void each(F f) const;
};
DEV uint64_t measure_of(uint32_t key, const Row& row, float largest, bool by_weight) {
  return by_weight ? weight_of(key, largest, row.scale) : key > MASKED;
}

// The last entry of the fewest, front ones that measure `need`; all where all measure less.
template <class M, class S> DEV Cut front(const S& some, M need, int vocab, int& turn) {
  uint32_t low = NONE, high = 0;
  M mine = 0;
  some.each([&](uint32_t key, uint32_t, M m) {
    if (m) low = min(low, key), high = max(high, key), mine += m;
  });
  high = (uint32_t)block_greatest(high, turn);
  low = ~(uint32_t)block_greatest((uint32_t)~low, turn);
  if (block_total(mine, turn) <= need) return {0, NONE};
  const uint32_t range = high - low;
  uint32_t above = 0; // `low + above` and more measure at least `need`
#pragma unroll 1
  for (uint32_t bit = range ? 0x80000000u >> __clz(range) : 0; bit; bit >>= 1) {
    if ((above | bit) > range) continue;
    const uint32_t bound = low + (above | bit);
    M sum = 0;
    some.each([&](uint32_t key, uint32_t, M m) { sum += key >= bound ? m : 0; });
    sum = block_total(sum, turn);
    if (sum >= need) above |= bit;
    if (sum == need) return {bound, NONE};
  }
  // Of several with the last one's logit the lower ids stay.
  const uint32_t last = low + above;
  M sum = 0, one = 0;
  some.each([&](uint32_t key, uint32_t, M m) {
    sum += key > last ? m : 0;
    one = key == last ? m : one;
  });
  sum = block_total(sum, turn);
  one = (M)block_greatest(one, turn);
  const uint32_t ties = (uint32_t)((need - sum + one - 1) / one);
  uint32_t id = 0; // fewer than `ties` are below it
#pragma unroll 1
  for (uint32_t bit = 0x80000000u >> __clz(vocab); bit; bit >>= 1) {
    uint32_t below = 0;
    some.each([&](uint32_t key, uint32_t i, M) { below += key == last && i < (id | bit); });
    if (block_total(below, turn) < ties) id |= bit;
  }
  return {last, id};
}

// ---- the number drawn ----
// Philox4x32-10 (Salmon et al. 2011, section 3), as src/sample/random.rs: 53 bits, on top of a word.
DEV uint64_t number_of(const Row& row) {
  uint32_t c0 = row.position[0], c1 = row.position[1], c2 = 0, c3 = 0, k0 = row.seed[0], k1 = row.seed[1];
#pragma unroll
  for (int i = 0; i < 10; i++) {
    const uint64_t left = (uint64_t)c0 * 0xD2511F53u, right = (uint64_t)c2 * 0xCD9E8D57u;
    c0 = (uint32_t)(right >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)right;
    c2 = (uint32_t)(left >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)left;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return ((uint64_t)c0 << 32 | c1) >> 11 << 11;
}
// The draw is the token at which the sum passes this.
DEV uint64_t share_of(const Row& row, uint64_t total) { return __umul64hi(number_of(row), total); }
// Sums of whole numbers reach p * total when they reach this.
DEV uint64_t mass_of(float p, uint64_t total) {
  const uint64_t need = (uint64_t)ceil((double)p * (double)total);
  return need ? need : 1;
}
DEV uint32_t min_p_key(const Row& row, float largest) {
  return key_of(fminf(__fadd_rn(largest, row.min_p), largest));
}

// A part's likeliest into `few` [parts, k]; 0 where there are fewer.
DEV void put_few(uint64_t* few, const float (&x)[EACH], int part, uint32_t k, int vocab, int& turn) {
  __shared__ uint32_t put;
  Held<uint32_t> held;
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    held.key[j] = key_of(x[j]);
    held.id[j] = id_of(part, j);
    held.measure[j] = held.key[j] > MASKED;
  }
  const Cut cut = front<uint32_t>(held, k, vocab, turn);
  few += part * k;
  __syncthreads(); // the list before is out of it
  if (threadIdx.x == 0) put = 0;
  __syncthreads();
  held.each([&](uint32_t key, uint32_t id, uint32_t) {
    if (cut.keeps(key, id)) few[atomicAdd(&put, 1u)] = entry_of(key, id);
  });
  __syncthreads();
#pragma unroll 1
  for (uint32_t i = put + threadIdx.x; i < k; i += THREADS) few[i] = 0;
}
// The row's likeliest out of its parts': into shared memory, in no order. Gives how many.
DEV uint32_t take_few(uint64_t (&out)[MOST_FEW], const uint64_t* few, int parts, uint32_t k, int vocab, int& turn) {
  __shared__ uint32_t put;
  Held<uint32_t> held;
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    const uint32_t i = j * THREADS + threadIdx.x;
    const uint64_t entry = i < parts * k ? __ldcg(few + i) : 0;
    held.key[j] = entry_key(entry);
    held.id[j] = entry_id(entry);
    held.measure[j] = held.key[j] > MASKED;
  }
  const Cut cut = front<uint32_t>(held, k, vocab, turn);
  __syncthreads();
  if (threadIdx.x == 0) put = 0;
  __syncthreads();
  held.each([&](uint32_t key, uint32_t id, uint32_t) {
    if (cut.keeps(key, id)) out[atomicAdd(&put, 1u)] = entry_of(key, id);
  });
  __syncthreads();
  return put;
}

// Top-p, min-p and the draw among a few; every thread of the block comes here.
DEV void draw_few(Space& s, const Row& row, const uint64_t (&few)[MOST_FEW], uint32_t n, float largest) {
  __shared__ uint64_t weight[MOST_FEW];
  const uint32_t i = threadIdx.x;
  if (i < n) weight[i] = weight_of(entry_key(few[i]), largest, row.scale);
  __syncthreads();
  uint64_t all = 0, likelier = 0;
  bool kept = false;
  if (i < n) {
#pragma unroll 1
    for (uint32_t j = 0; j < n; j++) all += weight[j], likelier += few[j] > few[i] ? weight[j] : 0;
    kept = (row.top_p >= 1.f || likelier < mass_of(row.top_p, all)) && entry_key(few[i]) >= min_p_key(row, largest);
  }
  __syncthreads();
  if (i < n && !kept) weight[i] = 0;
  __syncthreads();
  if (!kept) return;
  uint64_t total = 0, before = 0;
#pragma unroll 1
  for (uint32_t j = 0; j < n; j++) total += weight[j], before += entry_id(few[j]) < entry_id(few[i]) ? weight[j] : 0;
  const uint64_t target = share_of(row, total);
  if (before <= target && target < before + weight[i]) s.token = entry_id(few[i]);
}

// The last block of a row's survey.
DEV void conclude(Space& s, const Row& row, Result& result, uint64_t* top, int parts, int vocab, int& turn) {
  __shared__ uint64_t few[MOST_FEW];
  const int t = threadIdx.x;
  Part mine = {0, 0, 0.f, 0.f, 0, 0};
  if (t < parts) {
    mine.best_raw = __ldcg(&s.parts[t].best_raw);
    mine.best = __ldcg(&s.parts[t].best);
    mine.sum = __ldcg(&s.parts[t].sum);
    mine.product = __ldcg(&s.parts[t].product);
    mine.bad = __ldcg(&s.parts[t].bad);
  }
  const bool bad = __syncthreads_or(mine.bad);
  const uint64_t best_raw = block_greatest(mine.best_raw, turn), best = block_greatest(mine.best, turn);
  const float max = logit_of(entry_key(best_raw)), largest = logit_of(entry_key(best));
  // Relative to the row's largest instead of the part's.
  float sum = 0.f, product = 0.f;
  if (entry_key(mine.best_raw) > MASKED) {
    const float drop = fmaxf((logit_of(entry_key(mine.best_raw)) - max) * 1.44269504f, -125.5f);
    const float shrink = power_of_two(drop);
    sum = mine.sum * shrink;
    product = (mine.product + drop * mine.sum) * shrink;
  }
  sum = block_total(sum, turn);
  product = block_total(product, turn);

  uint32_t problem = bad ? NOT_A_NUMBER : entry_key(best_raw) <= MASKED ? ALL_MASKED : FINE;
  if (problem == FINE && row.kind != SCORE)
    problem = entry_key(best) <= MASKED ? ALL_MASKED : largest == INFINITY ? NOT_A_NUMBER : FINE;
  if (t == 0) {
    s.problem = result.problem = problem;
    s.max = max;
    s.sum = sum;
    s.product = product;
    s.largest = largest;
    s.key = 0;
    s.id = NONE;
    s.listed = 0;
    s.bin = NONE;
    s.token = row.kind != SCORE ? entry_id(best) : row.target != NONE ? row.target : entry_id(best_raw);
    result.tops = 0;
  }
  if (problem != FINE) return;
  __syncthreads(); // the token above is not the last word
#pragma unroll 1
  for (int edited = 0; edited < 2; edited++) {
    const uint32_t k = !edited ? row.top : row.kind == FEW ? row.top_k : 0;
    if (!k) continue;
    const uint32_t n = take_few(few, edited ? s.few : s.few_raw, parts, k, vocab, turn);
    if (edited) {
      draw_few(s, row, few, n, largest);
    } else if (t < n) {
      uint32_t place = 0;
#pragma unroll 1
      for (uint32_t j = 0; j < n; j++) place += few[j] > few[t];
      top[place] = few[t];
      if (t == 0) result.tops = n;
    }
    __syncthreads();
  }
}

// The grid of all launches is (parts, rows of the bucket); rows that are not staged are left alone.
// space [rows]; staged: the block that `Draws::stage` wrote; logits f32 [rows, vocab];
// results [rows], tops u64 [rows, MOST_TOP]: entries of the raw row, likeliest first.
struct Place {
  const Row* row;
  Space* space;
  const float* logits;
};
DEV bool find(Place& place, Space* space, const uint32_t* staged, const float* logits, int vocab) {
  const uint32_t row = blockIdx.y;
  if (row >= staged[0]) return false;
  place.row = (const Row*)(staged + 16) + row;
  place.space = space + row;
  place.logits = logits + (size_t)row * vocab;
  return true;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    draw_survey(Space* space, const uint32_t* staged, const float* logits, Result* results, uint64_t* tops, int vocab) {
  Place at;
  if (!find(at, space, staged, logits, vocab)) return;
  const Row& row = *at.row;
  Space& s = *at.space;
  const int part = blockIdx.x, parts = gridDim.x;
  int turn = 0;
  float x[EACH];
  load(x, at.logits, vocab, part);

  uint64_t best_raw = 0;
  bool bad = false;
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    const uint64_t entry = entry_of(key_of(x[j]), id_of(part, j));
    best_raw = entry > best_raw ? entry : best_raw;
    const uint32_t bits = __float_as_uint(x[j]);
    bad |= (bits & 0x7fffffffu) >= 0x7f800000u && bits != 0xff800000u;
  }
  bad = __syncthreads_or(bad);
  best_raw = block_greatest(best_raw, turn);
  const float max = logit_of(entry_key(best_raw));
  float sum = 0.f, product = 0.f;
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    if (key_of(x[j]) <= MASKED) continue;
    const float d = (x[j] - max) * 1.44269504f, e = power_of_two(d);
    sum += e;
    product += fmaxf(d, -125.5f) * e;
  }
  sum = block_total(sum, turn);
  product = block_total(product, turn);
  uint64_t best = best_raw;
#pragma unroll 1 // half the code
  for (int edited = 0; edited <= (row.kind != SCORE); edited++) {
    if (edited) {
      edit(x, row, staged, vocab, part, parts);
      best = 0;
#pragma unroll
      for (int j = 0; j < EACH; j++) {
        const uint64_t entry = entry_of(key_of(x[j]), id_of(part, j));
        best = entry > best ? entry : best;
      }
      best = block_greatest(best, turn);
    }
    const uint32_t k = !edited ? row.top : row.kind == FEW ? row.top_k : 0;
    if (k) put_few(edited ? s.few : s.few_raw, x, part, k, vocab, turn);
  }
  if (threadIdx.x == 0) s.parts[part] = {best_raw, best, sum, product, bad, 0};
  if (is_last(&s.arrived[0])) conclude(s, row, results[blockIdx.y], tops + blockIdx.y * MOST_TOP, parts, vocab, turn);
}
EXPORT_KERNEL(draw_survey)

// ---- top-k and top-p of a whole row ----

// 64ths below the largest: falls as the logit grows, so that bins stand in the one order. The last has all
// that is 32 and more below: a weight of nothing, but a large top-k of a row that is as good as sure may end
// there.
DEV uint32_t bin_of(float x, float largest) {
  return (uint32_t)fminf(__fmul_rn(__fsub_rn(largest, x), BIN_WIDTH_INVERSE), (float)(BINS - 1));
}

// Rarely run: a function of its own, and not a copy wherever a bin is read.
#ifdef CUDA_EMU
__attribute__((noinline)) static void
#else
__device__ __noinline__ void
#endif
part_to_memory(const float* logits, const Row* row, const uint32_t* staged, int vocab, int part, int parts) {
  float x[EACH];
  load(x, logits, vocab, part);
  edit(x, *row, staged, vocab, part, parts);
  float* memory = part_in_memory(); // a thread's own numbers stay its own
#pragma unroll
  for (int j = 0; j < EACH; j++) memory[j * THREADS + threadIdx.x] = x[j];
}
template <class F> DEV void Bin::each(F f) const {
  const float* own = part_in_memory();
#pragma unroll 1
  for (int part = 0; part < parts; part++) {
    part_to_memory(logits, &row, staged, vocab, part, parts);
#pragma unroll 1
    for (int j = 0; j < EACH; j++) {
      const float logit = own[j * THREADS + threadIdx.x];
      uint32_t key = key_of(logit);
      key = key > MASKED && bin_of(logit, largest) == bin ? key : 0;
      f(key, id_of(part, j), measure_of(key, row, largest, by_weight));
    }
  }
}

// The bin in which the sum over `values` reaches `need`, and the sum before it; NONE where it never does.
template <class T> DEV void pick(uint32_t& bin, uint64_t& before, const T* values, uint64_t need) {
  constexpr int OWN = BINS / THREADS;
  __shared__ uint64_t warps[THREADS / 32], found_before;
  __shared__ uint32_t found;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t own[OWN], sum = 0;
#pragma unroll
  for (int i = 0; i < OWN; i++) own[i] = __ldcg(values + threadIdx.x * OWN + i), sum += own[i];
  uint64_t upto = sum;
#pragma unroll
  for (int o = 1; o < 32; o <<= 1) {
    const uint64_t other = __shfl_up_sync(FULL, upto, o);
    upto += lane >= o ? other : 0;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = upto;
  if (threadIdx.x == 0) found = NONE, found_before = 0;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < THREADS / 32; w++) upto += w < warp ? warps[w] : 0;
  uint64_t at = upto - sum;
  if (at < need && need <= upto) {
#pragma unroll
    for (int i = 0; i < OWN; i++) {
      if (at < need && need <= at + own[i]) found = threadIdx.x * OWN + i, found_before = at;
      at += own[i];
    }
  }
  __syncthreads();
  bin = found;
  before = found_before;
}
template <class T> DEV uint64_t bins_total(const T* values, uint32_t upto, int& turn) {
  uint64_t sum = 0;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < upto; i += THREADS) sum += __ldcg(values + i);
  return block_total(sum, turn);
}

DEV void clear_bins(Space& s) {
#pragma unroll 1
  for (int i = threadIdx.x; i < BINS; i += THREADS) s.weights[i] = 0, s.counts[i] = 0;
}
// Where the top-p's last token is to be looked for.
DEV void look_for_mass(Space& s, uint64_t total, float p) {
  const uint64_t need = mass_of(p, total);
  uint32_t bin;
  uint64_t before;
  pick(bin, before, s.weights, need);
  if (threadIdx.x == 0) {
    s.need = need;
    s.before = before;
    s.bin = bin;
    s.in_bin = bin == NONE ? 0 : __ldcg(&s.counts[bin]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    draw_bins(Space* space, const uint32_t* staged, const float* logits, int vocab) {
  Place at;
  if (!find(at, space, staged, logits, vocab)) return;
  const Row& row = *at.row;
  Space& s = *at.space;
  if (row.kind != WHOLE || s.problem != FINE || (!row.top_k && row.top_p >= 1.f)) return;
  // A weight in two halves of 20 bits: 4,096 of them fit a word, and words are added at once.
  __shared__ uint32_t counts[BINS], lows[BINS], highs[BINS];
  const int part = blockIdx.x, parts = gridDim.x;
  int turn = 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < BINS; i += THREADS) counts[i] = lows[i] = highs[i] = 0;
  float x[EACH];
  load(x, at.logits, vocab, part);
  edit(x, row, staged, vocab, part, parts);
  __syncthreads();
  const float largest = s.largest;
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    const uint32_t key = key_of(x[j]);
    if (key <= MASKED) continue;
    const uint32_t bin = bin_of(x[j], largest);
    const uint64_t weight = weight_of(key, largest, row.scale);
    atomicAdd(&counts[bin], 1u);
    const uint32_t low = (uint32_t)weight & 0xfffff, high = (uint32_t)(weight >> 20);
    if (low) atomicAdd(&lows[bin], low);
    if (high) atomicAdd(&highs[bin], high);
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < BINS; i += THREADS) {
    if (!counts[i]) continue;
    atomicAdd(&s.counts[i], counts[i]);
    atomicAdd(&s.weights[i], ((uint64_t)highs[i] << 20) + lows[i]);
  }
  if (!is_last(&s.arrived[1])) return;
  if (!row.top_k) {
    look_for_mass(s, bins_total(s.weights, BINS, turn), row.top_p);
    return;
  }
  uint32_t bin;
  uint64_t before;
  pick(bin, before, s.counts, row.top_k);
  const uint64_t weight = bins_total(s.weights, bin == NONE ? BINS : bin, turn);
  if (threadIdx.x == 0) {
    s.need = row.top_k;
    s.before = before;
    s.before_weight = weight;
    s.bin = bin;
    s.in_bin = bin == NONE ? 0 : __ldcg(&s.counts[bin]);
  }
}
EXPORT_KERNEL(draw_bins)

// The last one kept of those in the bin, and the weight of those kept.
template <class S>
DEV uint64_t cut_bin(Space& s, const Row& row, const S& some, uint64_t need, int vocab, int& turn) {
  const Cut cut = front<uint64_t>(some, need, vocab, turn);
  const float largest = s.largest;
  uint64_t weight = 0;
  uint32_t low = NONE;
  some.each([&](uint32_t key, uint32_t id, uint64_t) {
    if (!cut.keeps(key, id)) return;
    weight += weight_of(key, largest, row.scale);
    low = min(low, key);
  });
  // Where all of the bin stays, what is below it does not.
  low = ~(uint32_t)block_greatest((uint32_t)~low, turn);
  if (threadIdx.x == 0) {
    s.key = max(cut.key, low);
    s.id = cut.id;
  }
  return block_total(weight, turn);
}
DEV uint64_t cut_row(const Place& at, const uint32_t* staged, int vocab, bool by_weight, int& turn) {
  const Row& row = *at.row;
  Space& s = *at.space;
  const uint32_t n = s.in_bin;
  const uint64_t need = s.need - s.before;
  if (n > PART) {
    const Bin bin = {at.logits, row, staged, vocab, (int)gridDim.x, s.largest, s.bin, by_weight};
    return cut_bin(s, row, bin, need, vocab, turn);
  }
  Held<uint64_t> held;
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    const uint32_t i = j * THREADS + threadIdx.x;
    const uint64_t entry = i < n ? __ldcg(s.list + i) : 0;
    held.key[j] = entry_key(entry);
    held.id[j] = entry_id(entry);
    held.measure[j] = measure_of(held.key[j], row, s.largest, by_weight);
  }
  return cut_bin(s, row, held, need, vocab, turn);
}

// The last token of a top-k (by_weight 0) or of a top-p (1).
extern "C" __global__ void __launch_bounds__(THREADS)
    draw_cut(Space* space, const uint32_t* staged, const float* logits, int vocab, int by_weight) {
  Place at;
  if (!find(at, space, staged, logits, vocab)) return;
  const Row& row = *at.row;
  Space& s = *at.space;
  if (row.kind != WHOLE || s.problem != FINE || !(by_weight ? row.top_p < 1.f : row.top_k > 0)) return;
  const int part = blockIdx.x, parts = gridDim.x;
  int turn = 0;
  const uint32_t bin = s.bin;
  if (bin != NONE && s.in_bin <= PART) {
    const float largest = s.largest;
    float x[EACH];
    load(x, at.logits, vocab, part);
    edit(x, row, staged, vocab, part, parts);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const uint32_t key = key_of(x[j]);
      if (key > MASKED && bin_of(x[j], largest) == bin) s.list[atomicAdd(&s.listed, 1u)] = entry_of(key, id_of(part, j));
    }
  }
  if (!is_last(&s.arrived[2 + by_weight])) return;
  const uint64_t weight = bin == NONE ? 0 : cut_row(at, staged, vocab, by_weight, turn);
  __syncthreads();
  if (threadIdx.x == 0) s.listed = 0;
  if (!by_weight && row.top_p < 1.f) {
    look_for_mass(s, s.before_weight + weight, row.top_p);
  } else {
    clear_bins(s);
  }
}
EXPORT_KERNEL(draw_cut)

extern "C" __global__ void __launch_bounds__(THREADS)
    draw_walk(Space* space, const uint32_t* staged, const float* logits, int vocab) {
  Place at;
  if (!find(at, space, staged, logits, vocab)) return;
  const Row& row = *at.row;
  Space& s = *at.space;
  if (row.kind != WHOLE || s.problem != FINE) return;
  const int parts = gridDim.x;
  int turn = 0, part = blockIdx.x;
  const float largest = s.largest;
  const Cut cut = {s.key, s.id};
  const uint32_t least = min_p_key(row, largest);
  float x[EACH];
  uint64_t weight[EACH];
  auto weigh = [&] {
    load(x, at.logits, vocab, part);
    edit(x, row, staged, vocab, part, parts);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const uint32_t key = key_of(x[j]);
      weight[j] = cut.keeps(key, id_of(part, j)) && key >= least ? weight_of(key, largest, row.scale) : 0;
    }
  };
  weigh();
  uint64_t sum = 0;
#pragma unroll
  for (int j = 0; j < EACH; j++) sum += weight[j];
  sum = block_total(sum, turn);
  if (threadIdx.x == 0) s.part_weight[part] = sum;
  if (!is_last(&s.arrived[4])) return;

  // The part in which the sum passes the target, then the token.
  __shared__ uint64_t weights[MOST_PARTS], before;
  __shared__ int drawn;
  const int t = threadIdx.x;
  const uint64_t own = t < parts ? __ldcg(s.part_weight + t) : 0;
  if (t < parts) weights[t] = own;
  const uint64_t target = share_of(row, block_total(own, turn));
  uint64_t upto = 0;
#pragma unroll 1
  for (int i = 0; i < t && i < parts; i++) upto += weights[i];
  if (t < parts && upto <= target && target < upto + own) drawn = t, before = upto;
  __syncthreads();
  part = drawn;
  weigh();
  uint32_t at_most = 0; // what stands before it in the part does not pass the target
#pragma unroll 1
  for (uint32_t bit = PART / 2; bit; bit >>= 1) {
    sum = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) sum += j * THREADS + t < (at_most | bit) ? weight[j] : 0;
    if (before + block_total(sum, turn) <= target) at_most |= bit;
  }
  if (t == 0) s.token = part * PART + at_most;
}
EXPORT_KERNEL(draw_walk)

extern "C" __global__ void __launch_bounds__(THREADS)
    draw_rank(Space* space, const uint32_t* staged, const float* logits, Result* results, int vocab) {
  Place at;
  if (!find(at, space, staged, logits, vocab)) return;
  Space& s = *at.space;
  if (s.problem != FINE) return;
  const int part = blockIdx.x, parts = gridDim.x;
  int turn = 0;
  const uint32_t token = s.token, key = key_of(at.logits[token]);
  float x[EACH];
  load(x, at.logits, vocab, part);
  uint32_t count = 0;
#pragma unroll
  for (int j = 0; j < EACH; j++) count += key_of(x[j]) > MASKED && key_of(x[j]) >= key;
  count = block_total(count, turn);
  if (threadIdx.x == 0) s.part_count[part] = count;
  if (!is_last(&s.arrived[5])) return;
  count = block_total(threadIdx.x < parts ? __ldcg(s.part_count + threadIdx.x) : 0u, turn);
  if (threadIdx.x) return;
  Result& result = results[blockIdx.y];
  result.token = token;
  result.logit = at.logits[token];
  result.rank = count;
  result.max = s.max;
  result.sum = s.sum;
  result.product = s.product;
}
EXPORT_KERNEL(draw_rank)
