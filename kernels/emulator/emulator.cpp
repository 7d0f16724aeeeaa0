#include "emulator.h"
#include <link.h>
#include <sys/mman.h>
#include <atomic>
#include <mutex>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

alignas(1024) thread_local unsigned char smem[232448];

namespace emu {
thread_local Thread* cur;
static Kernel* kernels;
void reg(Kernel* k) { k->next = kernels; kernels = k; }
const Kernel* find(const char* n) { for (auto* k = kernels; k; k = k->next) if (!strcmp(k->name, n)) return k; return nullptr; }
const Kernel* first() { return kernels; }

extern "C" void emu_switch(void** save, void* to);
#if defined(__x86_64__)
asm(R"(.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch,.-emu_switch
)");
static void* prime(char* top, void (*entry)()) {
  auto* s = (uint64_t*)((uintptr_t)top & ~15ull);
  *--s = 0; *--s = (uint64_t)entry;                // entry sees rsp = 16n+8, as after a call
  for (int i = 0; i < 6; i++) *--s = 0;
  return s;
}
#elif defined(__aarch64__)
asm(R"(.text
.globl emu_switch
emu_switch:
  sub sp, sp, #176
  stp x19,x20,[sp,#0]
  stp x21,x22,[sp,#16]
  stp x23,x24,[sp,#32]
  stp x25,x26,[sp,#48]
  stp x27,x28,[sp,#64]
  stp x29,x30,[sp,#80]
  stp d8,d9,[sp,#96]
  stp d10,d11,[sp,#112]
  stp d12,d13,[sp,#128]
  stp d14,d15,[sp,#144]
  mov x9, sp
  str x9,[x0]
  mov sp, x1
  ldp x19,x20,[sp,#0]
  ldp x21,x22,[sp,#16]
  ldp x23,x24,[sp,#32]
  ldp x25,x26,[sp,#48]
  ldp x27,x28,[sp,#64]
  ldp x29,x30,[sp,#80]
  ldp d8,d9,[sp,#96]
  ldp d10,d11,[sp,#112]
  ldp d12,d13,[sp,#128]
  ldp d14,d15,[sp,#144]
  add sp, sp, #176
  ret
)");
static void* prime(char* top, void (*entry)()) {
  auto* s = (uint64_t*)((uintptr_t)top & ~15ull) - 22;
  memset(s, 0, 176); s[11] = (uint64_t)entry; return s;
}
#endif

// A runner executes blocks on one OS thread.
struct Runner {
  static constexpr size_t STACK = 64 << 10;
  char* stacks; Thread thr[1024]; void* main_sp; Block blk;
  uint32_t ready[32], waiting_w[32], exited[32]; unsigned nwarps, warp_now, done; bool reverse; uint64_t rng;
  uint32_t waiting_b[32]; unsigned nbar, bar_mode; int bar_acc; int* bar_out[1024];
  std::string err; sigjmp_buf jb; bool running = false; uint64_t switches = 0;
  Runner() {
    stacks = (char*)mmap(nullptr, STACK * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < 1024; i++) mprotect(stacks + i * STACK, 4096, PROT_NONE);   // overflow guard
  }
};
static thread_local Runner* R;
static std::atomic<uint64_t> nswitch;

// Static __shared__ variables are this module's thread-locals: find the TLS block, to poison all of it but our own.
struct Tls { char* b = nullptr; size_t n = 0; };
static Tls tls_block() {
  Tls t;
  dl_iterate_phdr([](dl_phdr_info* i, size_t, void* d) {
    auto* t = (Tls*)d; char* b = (char*)i->dlpi_tls_data;
    for (int k = 0; b && k < i->dlpi_phnum; k++)
      if (i->dlpi_phdr[k].p_type == PT_TLS && (char*)smem >= b && (char*)smem < b + i->dlpi_phdr[k].p_memsz) { t->b = b; t->n = i->dlpi_phdr[k].p_memsz; return 1; }
    return 0;
  }, &t);
  return t;
}
static void poison_static_shared() {
  static thread_local Tls t; if (!t.b) t = tls_block();
  Tls keep = t; auto* r = R; auto* c = cur; char* e = t.b + t.n;
  asm volatile("" ::"r"(&t), "r"(&R), "r"(&cur) : "memory");   // the memsets do reach these
  memset(keep.b, 0xff, (char*)smem - keep.b); memset((char*)smem + sizeof smem, 0xff, e - ((char*)smem + sizeof smem));
  asm volatile("" ::"r"(&t), "r"(&R), "r"(&cur) : "memory");
  t = keep; R = r; cur = c;
}

static inline unsigned pick(uint32_t m) {
  if (R->rng) { R->rng = R->rng * 6364136223846793005ull + 1442695040888963407ull; unsigned k = (R->rng >> 33) % __builtin_popcount(m); while (k--) m &= m - 1; return __builtin_ctz(m); }
  return R->reverse ? 31 - __builtin_clz(m) : __builtin_ctz(m);
}
// Next runnable thread: stay in this warp while it has one.
static inline Thread* next() {
  unsigned w = R->warp_now;
  for (unsigned i = 0; i < R->nwarps; i++) {
    if (R->ready[w]) { unsigned l = pick(R->ready[w]); R->ready[w] &= ~(1u << l); R->warp_now = w; return &R->thr[w * 32 + l]; }
    if (++w >= R->nwarps) w = 0;
  }
  return nullptr;
}
static inline void block_here() {
  Thread* me = cur; Thread* n = next();
  if (n == me) return;
  R->switches++;
  if (n) { cur = n; emu_switch(&me->sp, n->sp); } else emu_switch(&me->sp, R->main_sp);
}
static void check_collective(unsigned w) {
  for (uint32_t left = R->waiting_w[w]; left;) {
    unsigned l = __builtin_ctz(left); Thread* t = &R->thr[w * 32 + l]; uint32_t mask = t->mask;
    left &= ~(mask | 1u << l);
    if (((R->waiting_w[w] | R->exited[w]) & mask) != mask) continue;
    uint32_t present = mask & R->waiting_w[w]; void* args[32] = {};
    for (uint32_t m = present; m; m &= m - 1) {
      unsigned j = __builtin_ctz(m); Thread* o = &R->thr[w * 32 + j];
      if (o->op != t->op || o->mask != mask) { static thread_local char b[200]; snprintf(b, sizeof b, "divergent warp collective: lane %u in %s(mask %08x), lane %u in %s(mask %08x)", l, t->what, mask, j, o->what, o->mask); fail(b); }
      args[j] = o->arg;
    }
    t->op(args, mask, present);
    R->waiting_w[w] &= ~present; R->ready[w] |= present;
  }
}
void collective(uint32_t mask, void* arg, void (*op)(void**, uint32_t, uint32_t), const char* what) {
  Thread* t = cur; unsigned w = t->warp; uint32_t bit = 1u << t->lane;
  if (!(mask & bit)) fail("warp collective: calling lane not in mask");
  t->mask = mask; t->arg = arg; t->op = op; t->what = what;
  R->waiting_w[w] |= bit;
  if (((R->waiting_w[w] | R->exited[w]) & mask) == mask) {
    check_collective(w);
    if (R->ready[w] & bit) { R->ready[w] &= ~bit; return; }   // last arriver goes on
  }
  block_here();
}
static void release_barrier() {
  for (unsigned w = 0; w < R->nwarps; w++)
    for (uint32_t m = R->waiting_b[w]; m; m &= m - 1) { unsigned i = w * 32 + __builtin_ctz(m); if (R->bar_out[i]) *R->bar_out[i] = R->bar_acc; }
  for (unsigned w = 0; w < R->nwarps; w++) { R->ready[w] |= R->waiting_b[w]; R->waiting_b[w] = 0; }
  R->nbar = 0;
}
void barrier(int mode, int pred, int* out, const char* what) {
  Thread* t = cur; t->what = what;
  if (R->nbar == 0) { R->bar_mode = mode; R->bar_acc = mode == 2; }
  else if ((int)R->bar_mode != mode) fail("different kinds of __syncthreads met");
  if (mode == 1) R->bar_acc |= pred != 0; else if (mode == 2) R->bar_acc &= pred != 0; else if (mode == 3) R->bar_acc += pred != 0;
  R->bar_out[t->lin] = out; R->waiting_b[t->warp] |= 1u << t->lane; R->nbar++;
  if (R->nbar + R->done == R->blk.nthr) { release_barrier(); R->ready[t->warp] &= ~(1u << t->lane); return; }
  block_here();
}
void fail(const char* msg) {
  char b[400]; auto* t = cur;
  snprintf(b, sizeof b, "%s at block (%u,%u,%u) thread (%u,%u,%u)", msg, t->blk->bid.x, t->blk->bid.y, t->blk->bid.z, t->tid.x, t->tid.y, t->tid.z);
  R->err = b; void* dummy; emu_switch(&dummy, R->main_sp); __builtin_unreachable();
}
static void thread_entry() {
  cur->blk->call(cur->blk->args);
  Thread* t = cur; unsigned w = t->warp;
  R->exited[w] |= 1u << t->lane; R->done++;
  if (R->waiting_w[w]) check_collective(w);
  if (R->nbar && R->nbar + R->done == R->blk.nthr) release_barrier();
  Thread* n = next(); void* dummy;
  if (n) { cur = n; emu_switch(&dummy, n->sp); } else emu_switch(&dummy, R->main_sp);
  __builtin_unreachable();
}
static struct sigaction old_segv;
static void on_segv(int sig, siginfo_t* si, void* uc) {
  if (R && R->running) {
    char b[300]; Thread* t = cur;
    if (sig == SIGILL) snprintf(b, sizeof b, "misaligned access or index out of range (ubsan trap) at block (%u,%u,%u) thread (%u,%u,%u)", t->blk->bid.x, t->blk->bid.y, t->blk->bid.z, t->tid.x, t->tid.y, t->tid.z);
    else snprintf(b, sizeof b, "illegal address %p at block (%u,%u,%u) thread (%u,%u,%u)", si->si_addr, t->blk->bid.x, t->blk->bid.y, t->blk->bid.z, t->tid.x, t->tid.y, t->tid.z);
    R->err = b; R->running = false; siglongjmp(R->jb, 1);
  }
  if (old_segv.sa_flags & SA_SIGINFO && old_segv.sa_sigaction) old_segv.sa_sigaction(sig, si, uc);   // Rust's own handler
  else { signal(sig, SIG_DFL); raise(sig); }
}
static void install_segv() {
  static bool once = [] { struct sigaction a = {}; a.sa_sigaction = on_segv; a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER; sigaction(SIGSEGV, &a, &old_segv); sigaction(SIGBUS, &a, nullptr); sigaction(SIGILL, &a, nullptr); return true; }(); (void)once;
  stack_t st; if (!sigaltstack(nullptr, &st) && (st.ss_flags & SS_DISABLE)) { st.ss_sp = malloc(65536); st.ss_size = 65536; st.ss_flags = 0; sigaltstack(&st, nullptr); }
}
static bool run_block(const LaunchDesc& L, uint3 bid) {
  Runner* r = R; unsigned nt = L.block.x * L.block.y * L.block.z;
  r->blk = Block{bid, L.block, L.grid, L.args, L.k->call, nt};
  r->nwarps = (nt + 31) / 32; r->warp_now = r->reverse ? r->nwarps - 1 : 0; r->done = 0; r->nbar = 0; r->err.clear();
  for (unsigned w = 0; w < r->nwarps; w++) {
    uint32_t live = nt - w * 32 >= 32 ? ~0u : (1u << (nt - w * 32)) - 1;
    r->ready[w] = live; r->exited[w] = ~live; r->waiting_w[w] = r->waiting_b[w] = 0;
  }
  poison_static_shared(); r = R;
  if (L.smem) memset(smem, 0xff, L.smem);          // NaN poison
  for (unsigned i = 0; i < nt; i++) {
    Thread& t = r->thr[i];
    t.tid = {i % L.block.x, i / L.block.x % L.block.y, i / (L.block.x * L.block.y)};
    t.lin = i; t.lane = i % 32; t.warp = i / 32; t.blk = &r->blk; t.ncp = t.ngrp = 0;
    t.sp = prime(r->stacks + (i + 1) * Runner::STACK - (i % 61) * 64, thread_entry);  // colour the stacks: no set conflicts
  }
  if (sigsetjmp(r->jb, 1)) return false;
  r->running = true; cur = next(); emu_switch(&r->main_sp, cur->sp); r->running = false;
  if (!r->err.empty()) return false;
  if (r->done != nt) {
    char b[300];
    for (unsigned i = 0; i < nt; i++) { Thread& t = r->thr[i]; if (!(r->exited[t.warp] >> t.lane & 1)) {
      snprintf(b, sizeof b, "deadlock at block (%u,%u,%u): %u of %u threads done, thread (%u,%u,%u) waits in %s", bid.x, bid.y, bid.z, r->done, nt, t.tid.x, t.tid.y, t.tid.z, t.what); break; } }
    r->err = b; return false;
  }
  return true;
}
static int order_kind; static uint64_t order_seed;
void set_order(int kind, uint64_t seed) { order_kind = kind; order_seed = seed; }
static std::string run_range(const LaunchDesc& L, std::atomic<uint64_t>& nextb, uint64_t total, std::atomic<bool>& bad) {
  static std::mutex pm; static std::vector<Runner*> pool;      // stacks are reused across OS threads
  struct Lease {
    Lease() { std::lock_guard<std::mutex> g(pm); if (pool.empty()) R = new Runner; else { R = pool.back(); pool.pop_back(); } }
    ~Lease() { nswitch += R->switches; R->switches = 0; std::lock_guard<std::mutex> g(pm); pool.push_back(R); R = nullptr; }
  } lease;
  install_segv();
  R->reverse = order_kind == 1; R->rng = order_kind == 2 ? order_seed * 2 + 1 : 0;
  for (;;) {
    uint64_t i = nextb.fetch_add(1); if (i >= total || bad) break;
    if (R->reverse) i = total - 1 - i;
    uint3 bid = {(unsigned)(i % L.grid.x), (unsigned)(i / L.grid.x % L.grid.y), (unsigned)(i / ((uint64_t)L.grid.x * L.grid.y))};
    if (!run_block(L, bid)) { bad = true; return std::string(L.k->name) + ": " + R->err; }
  }
  return "";
}
std::string launch(const LaunchDesc& L) {
  uint64_t total = (uint64_t)L.grid.x * L.grid.y * L.grid.z; unsigned nt = L.block.x * L.block.y * L.block.z;
  if (!total || !nt || nt > 1024) return "bad launch dimensions";
  if (L.smem > sizeof smem) return "too much dynamic shared memory";
  static int nthreads = getenv("EMU_THREADS") ? atoi(getenv("EMU_THREADS")) : 1;
  std::atomic<uint64_t> nextb{0}; std::atomic<bool> bad{false};
  if (nthreads <= 1 || total < 4) return run_range(L, nextb, total, bad);
  std::vector<std::thread> th; std::vector<std::string> e(nthreads);
  for (int i = 0; i < nthreads; i++) th.emplace_back([&, i] { e[i] = run_range(L, nextb, total, bad); });
  for (auto& t : th) t.join();
  for (auto& s : e) if (!s.empty()) return s;
  return "";
}
uint64_t switches() { return nswitch; }
}  // namespace emu

extern "C" int emu_launch(const char* name, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem_bytes, void** args, char* err, size_t errlen) {
  auto* k = emu::find(name); std::string e;
  if (!k) e = std::string("no kernel ") + name;
  else { emu::LaunchDesc L{k, {gx, gy, gz}, {bx, by, bz}, smem_bytes, args}; e = emu::launch(L); }
  if (err && errlen) snprintf(err, errlen, "%s", e.c_str());
  return !e.empty();
}
