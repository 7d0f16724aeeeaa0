// A stand-in libcuda: the driver API subset that cudarc 0.19 uses, over the fiber emulator. Test-only.
// emu_set_lazy(1): stream work runs only when something waits for it (shows missing synchronisation).
#include "emulator.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#include <sys/mman.h>
#include <unistd.h>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>
#define API extern "C" __attribute__((visibility("default"))) int
enum { OK = 0, INVALID = 1, OOM = 2, NOT_INIT = 3, NO_DEVICE = 100, INVALID_IMAGE = 200, NO_BINARY = 209, BAD_PTX_VER = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL = 700, BAD_LAUNCH = 701, LAUNCH_FAILED = 719, CAP_UNSUP = 900, CAP_ISOLATION = 905, CAPTURED_EVENT = 907, NOT_SUPPORTED = 801 };
typedef uint64_t Ptr;
static std::recursive_mutex mu;
#define LOCK std::lock_guard<std::recursive_mutex> lk(mu)
static int env(const char* n, int d) { const char* e = getenv(n); return e ? atoi(e) : d; }
static bool lazy;                                   // work runs only when something waits for it
static int sticky;                                  // a failed kernel poisons the context, as on a GPU
static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
using Op = std::function<int()>;
struct Graph { std::vector<Op> ops; };
struct Stream { std::deque<Op> q; Graph* cap = nullptr; bool origin = false; int mode = 0; bool nonblocking = true; };
struct Event { uint64_t seq = 0, done = 0; double t = 0; Stream* s = nullptr; Graph* cap = nullptr; };
struct Entry { std::vector<uint32_t> sizes; unsigned maxntid = 1024; };
struct Module { bool all = false; std::map<std::string, Entry> names; };
struct Func { const emu::Kernel* k; int max_dyn = 49152; unsigned maxntid = 1024; };
struct Alloc { size_t n; char* map; size_t mapn; };
static std::map<Ptr, Alloc> dev; static std::map<Ptr, size_t> pinned; static size_t used;
static std::set<Stream*> streams; static Stream null_stream; static int ctx_dummy;
static size_t total_mem() { return (size_t)env("EMU_MEM_MB", 4096) << 20; }

static int run(Op& o) { if (sticky) return sticky; int r = o(); if (r) sticky = r; return r; }
static int step(Stream* s) { Op o = std::move(s->q.front()); s->q.pop_front(); return run(o); }
static int drain(Stream* s) { while (!s->q.empty()) step(s); return sticky; }
static int drain_all() { drain(&null_stream); for (auto* s : streams) drain(s); return sticky; }
static Stream* S(void* h) { return h && h != (void*)1 && h != (void*)2 ? (Stream*)h : &null_stream; }
static bool capturing() { for (auto* s : streams) if (s->cap && s->mode != 2) return true; return false; }
static int enqueue(Stream* s, Op o) {
  if (sticky) return sticky;
  if (s->cap) { s->cap->ops.push_back(std::move(o)); return OK; }
  if (s == &null_stream) { for (auto* t : streams) if (!t->nonblocking) drain(t); }
  if (lazy) { s->q.push_back(std::move(o)); return OK; }
  run(o); return OK;                                // errors show at the next synchronise, as on a GPU
}
static bool in_dev(Ptr p, size_t n) { auto i = dev.upper_bound(p); if (i == dev.begin()) return false; --i; return p + n <= i->first + i->second.n; }
static bool is_pinned(const void* p, size_t n) { auto i = pinned.upper_bound((Ptr)p); if (i == pinned.begin()) return false; --i; return (Ptr)p + n <= i->first + i->second; }

API cuInit(unsigned) { return env("EMU_NO_DEVICE", 0) ? NO_DEVICE : OK; }
API cuDriverGetVersion(int* v) { *v = env("EMU_DRIVER", 13000); return OK; }
API cuGetErrorName(int e, const char** s) { static thread_local char b[40]; snprintf(b, sizeof b, "EMU_CUDA_ERROR_%d", e); *s = b; return OK; }
API cuGetErrorString(int e, const char** s) { return cuGetErrorName(e, s); }
API cuDeviceGet(int* d, int o) { if (o) return 101; *d = 0; return OK; }
API cuDeviceGetCount(int* n) { *n = 1; return OK; }
API cuDeviceGetName(char* b, int n, int) { snprintf(b, n, "CPU emulation"); return OK; }
API cuDeviceTotalMem_v2(size_t* n, int) { *n = total_mem(); return OK; }
API cuDeviceGetUuid(char* u, int) { memset(u, 7, 16); return OK; }
API cuDeviceGetUuid_v2(char* u, int) { memset(u, 7, 16); return OK; }
API cuDeviceGetAttribute(int* v, int a, int) {
  int cc = env("EMU_CC", 90);
  switch (a) {
    case 75: *v = cc / 10; break; case 76: *v = cc % 10; break;   // compute capability
    case 1: *v = 1024; break; case 2: case 3: *v = 1024; break; case 4: *v = 64; break;
    case 5: *v = 2147483647; break; case 6: case 7: *v = 65535; break;
    case 8: *v = 49152; break; case 97: *v = cc == 90 || cc == 100 ? 232448 : cc == 80 ? 166912 : 101376; break;
    case 81: *v = 166912; break; case 10: *v = 32; break; case 16: *v = env("EMU_SMS", 4); break; case 38: *v = 4 << 20; break;
    case 39: *v = 2048; break; case 115: *v = 1; break;           // memory pools
    default: *v = 0;
  }
  return OK;
}
API cuDevicePrimaryCtxRetain(void** c, int) { *c = &ctx_dummy; return OK; }
API cuDevicePrimaryCtxRelease_v2(int) { return OK; }
API cuCtxSetCurrent(void*) { return OK; }
API cuCtxGetCurrent(void** c) { *c = &ctx_dummy; return OK; }
API cuCtxSynchronize() { LOCK; if (capturing()) return CAP_UNSUP; return drain_all(); }
API cuCtxSetFlags(unsigned) { return OK; }
API cuMemGetInfo_v2(size_t* f, size_t* t) { LOCK; *t = total_mem(); *f = *t > used ? *t - used : 0; return OK; }

static int alloc(Ptr* p, size_t n) {                // ends at a guard page (16-byte granularity), filled with NaN bytes
  if (!n) return INVALID;
  if (used + n > total_mem()) return OOM;
  size_t pg = 4096, body = (n + pg - 1) / pg * pg;
  char* m = (char*)mmap(nullptr, body + 2 * pg, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) return OOM;
  mprotect(m, pg, PROT_NONE); mprotect(m + pg + body, pg, PROT_NONE);
  size_t al = (n + 15) & ~15ull; char* q = m + pg + body - al;
  memset(m + pg, 0xff, body);
  *p = (Ptr)q; dev[*p] = {n, m, body + 2 * pg}; used += n; return OK;
}
static int release(Ptr p) { auto i = dev.find(p); if (i == dev.end()) return INVALID; munmap(i->second.map, i->second.mapn); used -= i->second.n; dev.erase(i); return OK; }
API cuMemAlloc_v2(Ptr* p, size_t n) { LOCK; if (capturing()) return CAP_UNSUP; return alloc(p, n); }
API cuMemFree_v2(Ptr p) { LOCK; if (capturing()) return CAP_UNSUP; drain_all(); return p ? release(p) : OK; }
API cuMemAllocAsync(Ptr* p, size_t n, void* s) { LOCK; if (S(s)->cap) return CAP_UNSUP; return alloc(p, n); }   // stricter than CUDA: no allocation in graphs
API cuMemFreeAsync(Ptr p, void* s) { LOCK; if (S(s)->cap) return CAP_UNSUP; return enqueue(S(s), [p] { return release(p); }); }
API cuMemHostAlloc(void** p, size_t n, unsigned) { LOCK; if (capturing()) return CAP_UNSUP; *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096 + 4096); memset(*p, 0xff, n); pinned[(Ptr)*p] = n; return OK; }
API cuMemFreeHost(void* p) { LOCK; drain_all(); pinned.erase((Ptr)p); free(p); return OK; }
API cuMemcpyHtoDAsync_v2(Ptr d, const void* h, size_t n, void* s) {
  LOCK; if (!in_dev(d, n)) return INVALID;
  if (is_pinned(h, n)) return enqueue(S(s), [=] { memcpy((void*)d, h, n); return 0; });   // read when it runs
  if (S(s)->cap) return CAP_UNSUP;                                                        // stricter: pageable copy in a graph
  auto st = std::make_shared<std::vector<char>>((const char*)h, (const char*)h + n);
  return enqueue(S(s), [=] { memcpy((void*)d, st->data(), n); return 0; });
}
API cuMemcpyDtoHAsync_v2(void* h, Ptr d, size_t n, void* s) {
  LOCK; if (!in_dev(d, n)) return INVALID;
  bool pin = is_pinned(h, n);
  if (!pin && S(s)->cap) return CAP_UNSUP;
  int r = enqueue(S(s), [=] { memcpy(h, (void*)d, n); return 0; });
  return !r && !pin ? drain(S(s)) : r;              // pageable: blocks
}
API cuMemcpyDtoDAsync_v2(Ptr d, Ptr a, size_t n, void* s) { LOCK; if (!in_dev(d, n) || !in_dev(a, n)) return INVALID; return enqueue(S(s), [=] { memmove((void*)d, (void*)a, n); return 0; }); }
API cuMemcpyHtoD_v2(Ptr d, const void* h, size_t n) { LOCK; if (capturing()) return CAP_UNSUP; drain_all(); if (!in_dev(d, n)) return INVALID; memcpy((void*)d, h, n); return OK; }
API cuMemcpyDtoH_v2(void* h, Ptr d, size_t n) { LOCK; if (capturing()) return CAP_UNSUP; drain_all(); if (!in_dev(d, n)) return INVALID; memcpy(h, (void*)d, n); return sticky; }
API cuMemsetD8Async(Ptr d, unsigned char v, size_t n, void* s) { LOCK; if (!in_dev(d, n)) return INVALID; return enqueue(S(s), [=] { memset((void*)d, v, n); return 0; }); }

API cuStreamCreate(void** s, unsigned f) { LOCK; auto* t = new Stream; t->nonblocking = f & 1; streams.insert(t); *s = t; return OK; }
API cuStreamCreateWithPriority(void** s, unsigned f, int) { return cuStreamCreate(s, f); }
API cuStreamDestroy_v2(void* s) { LOCK; drain(S(s)); streams.erase(S(s)); delete S(s); return OK; }
API cuStreamSynchronize(void* s) { LOCK; if (S(s)->cap) return CAP_UNSUP; return drain(S(s)); }
API cuStreamQuery(void* s) { LOCK; if (S(s)->cap) return CAP_UNSUP; if (!S(s)->q.empty()) step(S(s)); return sticky ? sticky : S(s)->q.empty() ? OK : NOT_READY; }
API cuEventCreate(void** e, unsigned) { *e = new Event; return OK; }
API cuEventDestroy_v2(void* e) { LOCK; Event* v = (Event*)e; if (v->s && streams.count(v->s)) while (v->done < v->seq && !v->s->q.empty()) step(v->s); return OK; }   // leaked: ops may hold it
API cuEventRecord(void* e, void* s) {
  LOCK; Event* v = (Event*)e; Stream* t = S(s);
  v->cap = t->cap; if (t->cap) return OK;           // ordering inside a graph is the order of capture
  uint64_t n = ++v->seq; v->s = t; return enqueue(t, [=] { v->done = n; v->t = now(); return 0; });
}
static int finish(Event* v, uint64_t n) { while (v->done < n && v->s && !v->s->q.empty()) step(v->s); return sticky; }
API cuEventQuery(void* e) { LOCK; Event* v = (Event*)e; if (v->cap) return CAPTURED_EVENT; if (v->done < v->seq && v->s && !v->s->q.empty()) step(v->s); return sticky ? sticky : v->done < v->seq ? NOT_READY : OK; }
API cuEventSynchronize(void* e) { LOCK; Event* v = (Event*)e; if (v->cap) return CAPTURED_EVENT; return finish(v, v->seq); }
API cuEventElapsedTime(float* ms, void* a, void* b) { LOCK; Event *x = (Event*)a, *y = (Event*)b; if (x->done < x->seq || y->done < y->seq) return NOT_READY; if (!x->seq || !y->seq) return INVALID_HANDLE; *ms = (y->t - x->t) * 1e3; return OK; }
API cuEventElapsedTime_v2(float* ms, void* a, void* b) { return cuEventElapsedTime(ms, a, b); }
API cuStreamWaitEvent(void* s, void* e, unsigned) {
  LOCK; Event* v = (Event*)e; Stream* t = S(s);
  if (v->cap) { if (!t->cap) { t->cap = v->cap; t->origin = false; } return t->cap == v->cap ? OK : CAP_ISOLATION; }   // joins the capture
  if (t->cap) return v->seq ? CAP_ISOLATION : OK;   // waits on work outside the capture
  uint64_t n = v->seq; return enqueue(t, [=] { return finish(v, n); });
}
API cuStreamBeginCapture_v2(void* s, int mode) { LOCK; if (S(s) == &null_stream) return CAP_UNSUP; if (S(s)->cap) return INVALID; S(s)->cap = new Graph; S(s)->origin = true; S(s)->mode = mode; return OK; }
API cuStreamEndCapture(void* s, void** g) { LOCK; Graph* c = S(s)->cap; if (!c || !S(s)->origin) return INVALID; for (auto* t : streams) if (t->cap == c) { t->cap = nullptr; t->origin = false; } *g = c; return OK; }
API cuStreamIsCapturing(void* s, int* st) { LOCK; *st = S(s)->cap ? 1 : 0; return OK; }
API cuGraphInstantiateWithFlags(void** x, void* g, unsigned long long) { *x = new Graph(*(Graph*)g); return OK; }
API cuGraphUpload(void*, void*) { return OK; }
API cuGraphLaunch(void* x, void* s) { LOCK; for (auto& o : ((Graph*)x)->ops) enqueue(S(s), o); return sticky; }
API cuGraphExecDestroy(void* x) { LOCK; drain_all(); delete (Graph*)x; return OK; }
API cuGraphDestroy(void* g) { delete (Graph*)g; return OK; }

// Parameter sizes and .maxntid of one PTX entry.
static Entry entry(const std::string& t, size_t i) {
  Entry E; size_t body = t.find('{', i), par = t.find(')', i); std::string h = t.substr(i, std::min(body, t.size()) - i);
  size_t m = h.find(".maxntid"); if (m != std::string::npos) { unsigned x = 1, y = 1, z = 1; sscanf(h.c_str() + m + 8, " %u, %u, %u", &x, &y, &z); E.maxntid = x * y * z; }
  for (size_t p = i; (p = t.find(".param", p)) < par; p += 6) {
    std::string l = t.substr(p, t.find_first_of(",)", p) - p); size_t b = l.find('[');
    if (b != std::string::npos) E.sizes.push_back(atoi(l.c_str() + b + 1));           // .b8 name[N]: struct by value
    else { size_t d = l.find_first_of("0123456789", l.find(".", 6)); E.sizes.push_back(atoi(l.c_str() + d) / 8); }
  }
  return E;
}
API cuModuleLoadData(void** m, const void* image) {
  auto* M = new Module; const char* p = (const char*)image;
  if (!memcmp(p, "\x7f" "ELF", 4) || *(const uint32_t*)p == 0xba55ed50) M->all = true;      // cubin / fatbin: names not read
  else {
    std::string t(p); size_t v = t.find(".version");
    if (v == std::string::npos) { delete M; return INVALID_IMAGE; }
    int a = 0, b = 0, sm = 0; sscanf(t.c_str() + v, ".version %d.%d", &a, &b);
    if (a * 10 + b > env("EMU_PTX_MAX", 90)) { fprintf(stderr, "emu: PTX %d.%d is newer than the driver\n", a, b); delete M; return BAD_PTX_VER; }
    size_t g = t.find(".target sm_"); if (g != std::string::npos) sm = atoi(t.c_str() + g + 11);
    if (sm > env("EMU_CC", 90)) { fprintf(stderr, "emu: PTX targets sm_%d\n", sm); delete M; return NO_BINARY; }
    for (size_t i = 0; (i = t.find(".entry ", i)) != std::string::npos; i += 7) { size_t e = t.find_first_of("( \n", i + 7); M->names[t.substr(i + 7, e - i - 7)] = entry(t, e); }
  }
  *m = M; return OK;
}
API cuModuleUnload(void* m) { LOCK; drain_all(); delete (Module*)m; return OK; }
API cuModuleGetFunction(void** f, void* m, const char* name) {
  auto* M = (Module*)m; if (!M->all && !M->names.count(name)) return NOT_FOUND;
  auto* k = emu::find(name); if (!k) { fprintf(stderr, "emu: %s is in the module but not EXPORT_KERNELed\n", name); return NOT_FOUND; }
  auto* F = new Func{k};
  if (!M->all) {                                     // a stale PTX or a changed signature shows here
    auto& E = M->names[name]; F->maxntid = E.maxntid;
    bool same = E.sizes.size() == k->nargs; for (unsigned i = 0; same && i < k->nargs; i++) same = E.sizes[i] == k->sizes[i];
    if (!same) { fprintf(stderr, "emu: %s: PTX has %zu parameters, source has %u, or their sizes differ: regenerate the PTX\n", name, E.sizes.size(), k->nargs); return INVALID_IMAGE; }
  }
  *f = F; return OK;
}
API cuModuleGetGlobal_v2(Ptr*, size_t*, void*, const char*) { return NOT_FOUND; }
API cuFuncSetAttribute(void* f, int a, int v) { if (a == 8) { int lim; cuDeviceGetAttribute(&lim, 97, 0); if (v > lim) return INVALID; ((Func*)f)->max_dyn = v; } return OK; }
API cuFuncGetAttribute(int* v, int a, void* f) { *v = a == 0 ? 1024 : a == 8 ? ((Func*)f)->max_dyn : a == 4 ? 64 : 0; return OK; }
API cuFuncSetCacheConfig(void*, int) { return OK; }
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void*, int bs, size_t) { *n = std::max(1, 2048 / std::max(bs, 1)); return OK; }
API cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sm, void* s, void** params, void** extra) {
  LOCK; auto* F = (Func*)f;
  if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bz > 64 || (uint64_t)bx * by * bz > F->maxntid || !(bx * by * bz) || (int)sm > F->max_dyn || extra) return INVALID;
  auto buf = std::make_shared<std::vector<std::vector<char>>>();
  for (unsigned i = 0; i < F->k->nargs; i++) buf->emplace_back((char*)params[i], (char*)params[i] + F->k->sizes[i]);
  const emu::Kernel* k = F->k;
  return enqueue(S(s), [=] {
    std::vector<void*> a; for (auto& b : *buf) a.push_back(b.data());
    emu::LaunchDesc L{k, {gx, gy, gz}, {bx, by, bz}, sm, a.data()};
    std::string e = emu::launch(L);
    if (!e.empty()) { fprintf(stderr, "emu: %s\n", e.c_str()); return e.find("illegal address") != std::string::npos ? (int)ILLEGAL : (int)LAUNCH_FAILED; }
    return 0;
  });
}
API cuLaunchCooperativeKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**) { return NOT_SUPPORTED; }
// ---- for tests: what no driver offers ----
API emu_set_order(int kind, uint64_t seed) { LOCK; emu::set_order(kind, seed); return OK; }
API emu_set_lazy(int on) { LOCK; drain_all(); lazy = on; return OK; }
API emu_kernel_name(int i, const char** n, unsigned* nargs, const uint32_t** sizes) { auto* k = emu::first(); while (i-- && k) k = k->next; if (!k) return NOT_FOUND; *n = k->name; *nargs = k->nargs; *sizes = k->sizes; return OK; }
