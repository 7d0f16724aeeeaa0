// How the threads of a block take turns, meet, and fail. Nothing here knows of a driver.
//
// A block runs on one operating-system thread. Each of its CUDA threads is a fiber, which runs until it
// must wait for others (a barrier, a warp's shuffle or vote, an mma), and then hands over to one that
// need not: so all interleavings are at those points, and the order in which the fibers are taken decides
// what a missing barrier shows.
#include "emulator.h"

#include <link.h>
#include <sys/mman.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "fiber.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

// Dynamic shared memory: as much as any device has for a block.
alignas(1024) thread_local unsigned char smem[232448];

namespace emu {
thread_local Thread* cur;

namespace {
constexpr unsigned MOST_THREADS = 1024, MOST_WARPS = MOST_THREADS / 32;

// What runs blocks on one operating-system thread. A bit of a mask is a lane.
struct Runner {
  // 64 KiB are enough for arrays in registers and a printf; the lowest page of each is a guard.
  static constexpr size_t STACK = 64 << 10;
  char* stacks;
  Thread threads[MOST_THREADS];
  void* main_sp;  // where the runner itself goes on
  Block block;

  unsigned warps, warp_now, done;
  uint32_t ready[MOST_WARPS], in_collective[MOST_WARPS], at_barrier[MOST_WARPS], exited[MOST_WARPS];

  unsigned arrived;  // at the barrier
  Barrier barrier_kind;
  int barrier_value;
  int* barrier_out[MOST_THREADS];

  bool reverse;
  uint64_t random;  // 0: not at random

  std::string error;
  sigjmp_buf after_signal;
  char signal_stack[64 << 10];
  bool running = false;

  Runner() {
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    stacks = (char*)mmap(nullptr, STACK * MOST_THREADS, PROT_READ | PROT_WRITE, kind, -1, 0);
    for (unsigned i = 0; i < MOST_THREADS; i++) mprotect(stacks + i * STACK, 4096, PROT_NONE);
  }
};
thread_local Runner* R;

std::string where(const Thread* t) {
  char text[120];
  const uint3 b = t->blk->bid, i = t->tid;
  snprintf(text, sizeof text, " at block (%u,%u,%u) thread (%u,%u,%u)", b.x, b.y, b.z, i.x, i.y, i.z);
  return text;
}

// ---- turns ----

unsigned pick(uint32_t lanes) {
  if (R->random) {
    R->random = R->random * 6364136223846793005ull + 1442695040888963407ull;
    for (unsigned skip = (R->random >> 33) % __builtin_popcount(lanes); skip; skip--) lanes &= lanes - 1;
    return __builtin_ctz(lanes);
  }
  return R->reverse ? 31 - __builtin_clz(lanes) : __builtin_ctz(lanes);
}

// The next thread that can run, of the same warp while it has one; null if all wait or are done.
Thread* next() {
  unsigned warp = R->warp_now;
  for (unsigned i = 0; i < R->warps; i++) {
    if (R->ready[warp]) {
      const unsigned lane = pick(R->ready[warp]);
      R->ready[warp] &= ~(1u << lane);
      R->warp_now = warp;
      return &R->threads[warp * 32 + lane];
    }
    if (++warp >= R->warps) warp = 0;
  }
  return nullptr;
}

void hand_over(void** save, Thread* to) {
  if (to) cur = to;
  emu_switch(save, to ? to->sp : R->main_sp);
}

void wait_here() {
  Thread *me = cur, *to = next();
  if (to != me) hand_over(&me->sp, to);
}

// ---- a warp's collectives ----

void check_same(const Thread* first, const Thread* other) {
  if (other->op == first->op && other->mask == first->mask) return;
  char text[200];
  snprintf(text, sizeof text, "divergent warp collective: lane %u in %s(mask %08x), lane %u in %s(mask %08x)",
           first->lane, first->what, first->mask, other->lane, other->what, other->mask);
  fail(text);
}

// Runs every collective of the warp for which all lanes that have not returned are there.
void run_collectives(unsigned warp) {
  for (uint32_t left = R->in_collective[warp]; left;) {
    const unsigned lane = __builtin_ctz(left);
    Thread* first = &R->threads[warp * 32 + lane];
    const uint32_t mask = first->mask;
    left &= ~(mask | 1u << lane);
    if (((R->in_collective[warp] | R->exited[warp]) & mask) != mask) continue;
    const uint32_t present = mask & R->in_collective[warp];
    void* args[32] = {};
    for (uint32_t m = present; m; m &= m - 1) {
      const unsigned i = __builtin_ctz(m);
      check_same(first, &R->threads[warp * 32 + i]);
      args[i] = R->threads[warp * 32 + i].arg;
    }
    first->op(args, mask, present);
    R->in_collective[warp] &= ~present;
    R->ready[warp] |= present;
  }
}

void open_barrier() {
  for (unsigned warp = 0; warp < R->warps; warp++) {
    for (uint32_t m = R->at_barrier[warp]; m; m &= m - 1) {
      int* out = R->barrier_out[warp * 32 + __builtin_ctz(m)];
      if (out) *out = R->barrier_value;
    }
    R->ready[warp] |= R->at_barrier[warp];
    R->at_barrier[warp] = 0;
  }
  R->arrived = 0;
}
}  // namespace

void collective(uint32_t mask, void* arg, void (*op)(void**, uint32_t, uint32_t), const char* what) {
  Thread* t = cur;
  const uint32_t bit = 1u << t->lane;
  if (!(mask & bit)) fail("warp collective: calling lane not in mask");
  t->mask = mask;
  t->arg = arg;
  t->op = op;
  t->what = what;
  R->in_collective[t->warp] |= bit;
  if (((R->in_collective[t->warp] | R->exited[t->warp]) & mask) == mask) {
    run_collectives(t->warp);
    if (R->ready[t->warp] & bit) {  // the last to come goes on
      R->ready[t->warp] &= ~bit;
      return;
    }
  }
  wait_here();
}

void barrier(Barrier kind, int value, int* out, const char* what) {
  Thread* t = cur;
  t->what = what;
  if (R->arrived == 0) {
    R->barrier_kind = kind;
    R->barrier_value = kind == Barrier::And;
  } else if (R->barrier_kind != kind) {
    fail("different kinds of __syncthreads met");
  }
  switch (kind) {
    case Barrier::Plain: break;
    case Barrier::Or: R->barrier_value |= value != 0; break;
    case Barrier::And: R->barrier_value &= value != 0; break;
    case Barrier::Count: R->barrier_value += value != 0; break;
  }
  R->barrier_out[t->lin] = out;
  R->at_barrier[t->warp] |= 1u << t->lane;
  if (++R->arrived + R->done == R->block.nthr) {
    open_barrier();
    R->ready[t->warp] &= ~(1u << t->lane);
    return;
  }
  wait_here();
}

void fail(const char* why) {
  R->error = why + where(cur);
  void* never;
  emu_switch(&never, R->main_sp);
  __builtin_unreachable();
}

namespace {
// What a fiber runs: the kernel, and then whoever waited for this thread or is next.
void thread_entry() {
  cur->blk->call(cur->blk->args);
  Thread* t = cur;
  R->exited[t->warp] |= 1u << t->lane;
  R->done++;
  if (R->in_collective[t->warp]) run_collectives(t->warp);
  if (R->arrived && R->arrived + R->done == R->block.nthr) open_barrier();
  void* never;
  hand_over(&never, next());
  __builtin_unreachable();
}

// ---- accesses outside of what was allocated ----

struct sigaction handlers_before[3];
constexpr int SIGNALS[3] = {SIGSEGV, SIGBUS, SIGILL};

// SIGILL is what -fsanitize-undefined-trap-on-error raises. The jump leaves the fiber for the runner.
void on_signal(int signal_number, siginfo_t* info, void* context) {
  if (R && R->running) {
    char text[80];
    if (signal_number == SIGILL) snprintf(text, sizeof text, "misaligned access, or index out of range");
    else snprintf(text, sizeof text, "illegal address %p", info->si_addr);
    R->error = text + where(cur);
    R->running = false;
    siglongjmp(R->after_signal, 1);
  }
  for (int i = 0; i < 3; i++) {
    if (SIGNALS[i] != signal_number) continue;
    const struct sigaction& before = handlers_before[i];
    if (before.sa_flags & SA_SIGINFO && before.sa_sigaction) return before.sa_sigaction(signal_number, info, context);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void catch_signals() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction ours = {};
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &ours, &handlers_before[i]);
  });
  // A handler cannot use the stack of a fiber that ran into its guard. Rust's threads have one for them.
  stack_t stack;
  if (sigaltstack(nullptr, &stack) || !(stack.ss_flags & SS_DISABLE)) return;
  stack = {};
  stack.ss_sp = R->signal_stack;
  stack.ss_size = sizeof R->signal_stack;
  sigaltstack(&stack, nullptr);
}

// ---- shared memory starts as NaN ----

// This library's thread-locals: static __shared__ variables are among them.
struct Tls {
  char* begin = nullptr;
  size_t bytes = 0;
};
int find_tls(dl_phdr_info* info, size_t, void* found) {
  char *begin = (char*)info->dlpi_tls_data, *ours = (char*)smem;
  for (int i = 0; begin && i < info->dlpi_phnum; i++) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_TLS || ours < begin || ours >= begin + part.p_memsz) continue;
    *(Tls*)found = {begin, part.p_memsz};
    return 1;
  }
  return 0;
}

// Everything thread-local of this library but `smem` (of which only a part is used) and our own three
// variables, which are kept over it.
void poison_static_shared() {
  static thread_local Tls tls;
  if (!tls.begin) dl_iterate_phdr(find_tls, &tls);
  const Tls kept = tls;
  Runner* runner = R;
  Thread* thread = cur;
  char *gap = (char*)smem, *gap_end = gap + sizeof smem;
  asm volatile("" ::"r"(&tls), "r"(&R), "r"(&cur) : "memory");  // the compiler cannot know that memset writes these
  memset(kept.begin, 0xff, gap - kept.begin);
  memset(gap_end, 0xff, kept.begin + kept.bytes - gap_end);
  asm volatile("" ::"r"(&tls), "r"(&R), "r"(&cur) : "memory");
  tls = kept;
  R = runner;
  cur = thread;
}

// ---- a block, a grid ----

void reset_warps(unsigned threads) {
  R->warps = (threads + 31) / 32;
  R->warp_now = R->reverse ? R->warps - 1 : 0;
  R->done = R->arrived = 0;
  for (unsigned warp = 0; warp < R->warps; warp++) {
    const unsigned lanes = std::min(32u, threads - warp * 32);
    R->ready[warp] = lanes == 32 ? ~0u : (1u << lanes) - 1;
    R->exited[warp] = ~R->ready[warp];
    R->in_collective[warp] = R->at_barrier[warp] = 0;
  }
}

void reset_threads(const dim3& size, unsigned threads) {
  for (unsigned i = 0; i < threads; i++) {
    Thread& t = R->threads[i];
    t.tid = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    t.lin = i;
    t.lane = i % 32;
    t.warp = i / 32;
    t.blk = &R->block;
    t.ncp = t.ngrp = 0;
    // Stacks begin at different places of their pages, or all would share a few sets of the cache.
    t.sp = fresh_fiber(R->stacks + (i + 1) * Runner::STACK - (i % 61) * 64, thread_entry);
  }
}

std::string deadlock() {
  for (unsigned i = 0; i < R->block.nthr; i++) {
    const Thread& t = R->threads[i];
    if (R->exited[t.warp] >> t.lane & 1) continue;
    char text[120];
    snprintf(text, sizeof text, "deadlock: %u of %u threads are done, and one waits in %s", R->done, R->block.nthr, t.what);
    return text + where(&t);
  }
  return "deadlock";
}

bool run_block(const LaunchDesc& launch, uint3 index) {
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  R->block = Block{index, launch.block, launch.grid, launch.args, launch.kernel->call, threads};
  R->error.clear();
  reset_warps(threads);
  poison_static_shared();
  if (launch.shared) memset(smem, 0xff, launch.shared);
  reset_threads(launch.block, threads);
  if (sigsetjmp(R->after_signal, 1)) return false;
  R->running = true;
  cur = next();
  emu_switch(&R->main_sp, cur->sp);
  R->running = false;
  if (R->error.empty() && R->done != threads) R->error = deadlock();
  return R->error.empty();
}

Order order = Order::Forward;
uint64_t order_seed = 0;
unsigned workers = 1;

// A runner for this thread while it lives. They are kept: their stacks are 64 MiB of address space.
class Lease {
 public:
  Lease() {
    std::lock_guard<std::mutex> guard(mutex);
    if (idle.empty()) idle.push_back(new Runner);
    R = idle.back();
    idle.pop_back();
  }
  ~Lease() {
    std::lock_guard<std::mutex> guard(mutex);
    idle.push_back(R);
    R = nullptr;
  }

 private:
  static inline std::mutex mutex;
  static inline std::vector<Runner*> idle;
};

// The blocks of a grid that nobody has taken yet.
struct Blocks {
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  uint64_t total;
};

std::string run_blocks(const LaunchDesc& launch, Blocks& blocks) {
  Lease lease;
  catch_signals();
  R->reverse = order == Order::Reverse;
  R->random = order == Order::Random ? order_seed * 2 + 1 : 0;
  for (;;) {
    uint64_t i = blocks.next.fetch_add(1);
    if (i >= blocks.total || blocks.stop) return "";
    if (R->reverse) i = blocks.total - 1 - i;
    const uint64_t x = launch.grid.x, y = launch.grid.y;
    if (run_block(launch, {(unsigned)(i % x), (unsigned)(i / x % y), (unsigned)(i / (x * y))})) continue;
    blocks.stop = true;
    return std::string(launch.kernel->name) + ": " + R->error;
  }
}

Kernel* kernels;
}  // namespace

std::string launch(const LaunchDesc& launch) {
  Blocks blocks;
  blocks.total = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
  if (launch.shared > sizeof smem) return "too much dynamic shared memory";
  if (workers <= 1 || blocks.total < 4) return run_blocks(launch, blocks);
  std::vector<std::thread> threads;
  std::vector<std::string> errors(workers);
  for (std::string& error : errors) threads.emplace_back([&] { error = run_blocks(launch, blocks); });
  for (std::thread& thread : threads) thread.join();
  for (std::string& error : errors) if (!error.empty()) return error;
  return "";
}

void set_order(Order kind, uint64_t seed) {
  order = kind;
  order_seed = seed;
}
void set_workers(unsigned count) { workers = count; }

void reg(Kernel* kernel) {
  kernel->next = kernels;
  kernels = kernel;
}
const Kernel* find(const char* name) {
  for (Kernel* kernel = kernels; kernel; kernel = kernel->next) if (!strcmp(kernel->name, name)) return kernel;
  return nullptr;
}
}  // namespace emu
