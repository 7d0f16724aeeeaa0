// A stand-in libcuda: the calls of the CUDA Driver API that glassbox makes through cudarc, for one kind of
// device, with kernels run on the CPU. Stricter than a driver where that shows a mistake:
//  - memory starts as NaN, and lies between pages that belong to nobody;
//  - when "lazy", work runs only once something waits for it: what is read too early is not there;
//  - a module whose PTX declares other parameters than the kernel's source has is refused;
//  - no allocation, no module and no pageable copy while a capture is under way.
// Nearly every call needs the context to be current on its thread, and a failed kernel spoils all that
// follow until the context is gone, as on a GPU.
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>

#include "driver.h"

#define API extern "C" __attribute__((visibility("default"))) int
#define LOCK std::lock_guard<std::recursive_mutex> lock(mutex)
// At the start of a call that needs the context.
#define ENTER                                                               \
  LOCK;                                                                     \
  if (!context || current() != context) return CUDA_ERROR_INVALID_CONTEXT; \
  if (context->fault) return context->fault
// The stream of a handle, which must be one.
#define STREAM(name, handle)           \
  Stream* name = stream_of(handle);    \
  if (!name) return CUDA_ERROR_INVALID_HANDLE
#define EVENT(name, handle)                                            \
  Event* name = (Event*)handle;                                        \
  if (!context->events.count(name)) return CUDA_ERROR_INVALID_HANDLE

namespace {
std::recursive_mutex mutex;
int64_t knobs[KNOBS];
std::string last_fault;
Context* context;  // the primary one, while somebody retains it
int retained;

// Which context a thread uses. Not a thread_local of ours: shared memory is, and those are poisoned.
pthread_key_t current_key;
void* current() { return pthread_getspecific(current_key); }

void default_knobs() {
  std::fill(knobs, knobs + KNOBS, 0);
  knobs[WORKERS] = 1;
  knobs[MEMORY] = int64_t(4) << 30;
  knobs[DEVICES] = 1;
  knobs[DRIVER] = 13000;
  knobs[CAPABILITY] = 90;
  knobs[PTX] = 90;
  knobs[MULTIPROCESSORS] = 4;
  emu::set_order(emu::Order::Forward, 0);
  emu::set_workers(1);
}

__attribute__((constructor)) void start() {
  pthread_key_create(&current_key, nullptr);
  default_knobs();
}

// Counts down to the n-th from now.
bool due(Knob knob) { return knobs[knob] > 0 && --knobs[knob] == 0; }

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void note(const std::string& what) {
  last_fault = what;
  fprintf(stderr, "CUDA emulator: %s\n", what.c_str());
}

// ---- work in streams ----

// Handles 0, 1 and 2 are the default stream.
Stream* stream_of(void* handle) {
  if ((uintptr_t)handle <= 2) return &context->default_stream;
  return context->streams.count((Stream*)handle) ? (Stream*)handle : nullptr;
}

void run(const Work& work) {
  if (context->fault) return;
  context->fault = work();
}
void run_first(Stream* stream) {
  const Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  run(work);
}
Result drain(Stream* stream) {
  while (!stream->queue.empty()) run_first(stream);
  return context->fault;
}
Result drain_all() {
  drain(&context->default_stream);
  for (Stream* stream : context->streams) drain(stream);
  return context->fault;
}
// Until the event has been reached as often as it was recorded by now.
Result drain_until(Event* event, uint64_t times) {
  while (event->reached < times && event->stream && !event->stream->queue.empty()) run_first(event->stream);
  return context->fault;
}

// What goes wrong shows at the next call, as on a GPU.
Result enqueue(Stream* stream, Work work) {
  if (stream->capture) {
    if (stream->capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->graph->work.push_back(std::move(work));
    return CUDA_SUCCESS;
  }
  if (stream == &context->default_stream) {
    for (Stream* other : context->streams) if (other->waits_for_default) drain(other);
  }
  if (knobs[LAZY]) stream->queue.push_back(std::move(work));
  else run(work);
  return CUDA_SUCCESS;
}

// What no capture may contain spoils the ones under way.
bool spoils_captures() {
  bool any = false;
  for (Stream* stream : context->streams) {
    if (!stream->capture || stream->capture->mode == 2) continue;
    stream->capture->spoilt = any = true;
  }
  return any;
}
bool spoils_capture(Stream* stream) {
  if (!stream->capture) return false;
  return stream->capture->spoilt = true;
}

// ---- memory ----

constexpr size_t PAGE = 4096;

// Ends, to 16 bytes, where the page begins that belongs to nobody.
Result allocate(Ptr* at, size_t bytes) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (due(NO_ALLOCATION) || context->used + bytes > (size_t)knobs[MEMORY]) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t body = (bytes + PAGE - 1) / PAGE * PAGE, whole = body + 2 * PAGE;
  char* map = (char*)mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  mprotect(map, PAGE, PROT_NONE);
  mprotect(map + PAGE + body, PAGE, PROT_NONE);
  memset(map + PAGE, 0xff, body);
  *at = (Ptr)(map + PAGE + body - (bytes + 15) / 16 * 16);
  context->memory[*at] = {bytes, map, whole};
  context->used += bytes;
  return CUDA_SUCCESS;
}

// Freed pages stay out of reach for a while: nobody else is given their addresses at once, so that who uses
// them still is caught.
void bury(char* map, size_t bytes) {
  static std::deque<std::pair<char*, size_t>> buried;
  mprotect(map, bytes, PROT_NONE);
  madvise(map, bytes, MADV_DONTNEED);
  buried.emplace_back(map, bytes);
  if (buried.size() <= 64) return;
  munmap(buried.front().first, buried.front().second);
  buried.pop_front();
}

Result release(Ptr at) {
  const auto found = context->memory.find(at);
  if (found == context->memory.end()) return CUDA_ERROR_INVALID_VALUE;
  bury(found->second.map, found->second.map_bytes);
  context->used -= found->second.bytes;
  context->memory.erase(found);
  return CUDA_SUCCESS;
}

size_t bytes_of(const Allocation& allocation) { return allocation.bytes; }
size_t bytes_of(size_t bytes) { return bytes; }

// Whether all of it lies in one of these allocations.
template <class Map> bool within(const Map& map, Ptr at, size_t bytes) {
  auto next = map.upper_bound(at);
  if (next == map.begin()) return false;
  --next;
  return at + bytes <= next->first + bytes_of(next->second);
}
bool on_device(Ptr at, size_t bytes) { return within(context->memory, at, bytes); }
bool is_pinned(const void* at, size_t bytes) { return within(context->pinned, (Ptr)at, bytes); }

Work copy(void* to, const void* from, size_t bytes) {
  return [=] {
    memmove(to, from, bytes);
    return CUDA_SUCCESS;
  };
}

// ---- the device ----

int most_shared(int capability) {
  switch (capability) {
    case 80: case 87: return 163 << 10;
    case 90: case 100: case 103: return 227 << 10;
    default: return 99 << 10;
  }
}

// Numbers of CUdevice_attribute. What nobody should build on is 0.
int attribute(int which) {
  const int capability = (int)knobs[CAPABILITY];
  switch (which) {
    case 1: return 1024;                     // threads of a block
    case 2: case 3: return 1024;             // and in x, in y,
    case 4: return 64;                       // in z
    case 5: return INT_MAX;                  // blocks of a grid in x,
    case 6: case 7: return 65535;            // in y, in z
    case 8: return 48 << 10;                 // shared memory of a block
    case 10: return 32;                      // lanes of a warp
    case 12: return 65536;                   // registers of a block
    case 13: return 1000000;                 // clock, kHz
    case 16: return (int)knobs[MULTIPROCESSORS];
    case 36: return 1000000;                 // clock of the memory, kHz
    case 37: return 256;                     // its width, bits
    case 38: return 4 << 20;                 // L2, bytes
    case 39: return 2048;                    // threads of a multiprocessor
    case 75: return capability / 10;
    case 76: return capability % 10;
    case 81: return most_shared(capability) + (1 << 10);  // of a multiprocessor
    case 97: return most_shared(capability);              // of a block that asks for it
    case 115: return 1;                                   // memory pools
    default: return 0;
  }
}

// ---- launches ----

// The arguments are copied, as cuLaunchKernel does.
struct Launch {
  const emu::Kernel* kernel;
  dim3 grid, block;
  unsigned shared;
  std::vector<std::vector<char>> arguments;

  Result run() const {
    std::vector<void*> pointers;
    for (const auto& argument : arguments) pointers.push_back((void*)argument.data());
    std::string error = emu::launch({kernel, grid, block, shared, pointers.data()});
    if (due(KERNEL_DIES)) error = std::string(kernel->name) + ": illegal address, as a test wished";
    if (error.empty()) return CUDA_SUCCESS;
    note(error);
    if (error.find("illegal address") != std::string::npos) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (error.find("misaligned") != std::string::npos) return CUDA_ERROR_MISALIGNED_ADDRESS;
    return CUDA_ERROR_LAUNCH_FAILED;
  }
};

bool fits(const Function& function, dim3 grid, dim3 block, unsigned shared) {
  const uint64_t threads = (uint64_t)block.x * block.y * block.z;
  return grid.x && grid.y && grid.z && grid.y <= 65535 && grid.z <= 65535 && block.z <= 64 && threads &&
         threads <= function.most_threads && (int64_t)shared <= function.most_shared;
}

Result load(void** module, const char* text) {
  Image image;
  if (!read_ptx(text, image)) return CUDA_ERROR_INVALID_PTX;
  if (image.version > knobs[PTX]) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  if (image.target > knobs[CAPABILITY]) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  auto* loaded = new Module{std::move(image), {}};
  context->modules.insert(loaded);
  *module = loaded;
  return CUDA_SUCCESS;
}

// Whether the PTX was made from the kernel as it is now, as far as its parameters tell.
bool same_signature(const Entry& entry, const emu::Kernel& kernel) {
  return !knobs[STALE] && std::equal(entry.sizes.begin(), entry.sizes.end(), kernel.sizes, kernel.sizes + kernel.nargs);
}
}  // namespace

Context::~Context() {
  for (auto& [at, allocation] : memory) munmap(allocation.map, allocation.map_bytes);
  for (Stream* stream : streams) delete stream;
  for (Module* module : modules) delete module;
  for (Graph* graph : graphs) delete graph;
}

// ---- the driver and the device ----

API cuInit(unsigned) {
  LOCK;
  return knobs[INIT] ? (int)knobs[INIT] : knobs[DEVICES] ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API cuDriverGetVersion(int* version) {
  LOCK;
  *version = (int)knobs[DRIVER];
  return CUDA_SUCCESS;
}
API cuGetErrorName(int error, const char** name) {
  switch (error) {
#define ONE(which, number, text) \
  case number: *name = "CUDA_" #which; return CUDA_SUCCESS;
    ERRORS(ONE)
#undef ONE
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}
API cuGetErrorString(int error, const char** string) {
  switch (error) {
#define ONE(which, number, text) \
  case number: *string = text; return CUDA_SUCCESS;
    ERRORS(ONE)
#undef ONE
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}
API cuDeviceGetCount(int* count) {
  LOCK;
  *count = (int)knobs[DEVICES];
  return CUDA_SUCCESS;
}
API cuDeviceGet(int* device, int ordinal) {
  LOCK;
  if (ordinal < 0 || ordinal >= knobs[DEVICES]) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
API cuDeviceGetName(char* name, int room, int) {
  snprintf(name, room, "CPU emulation");
  return CUDA_SUCCESS;
}
API cuDeviceTotalMem_v2(size_t* bytes, int) {
  LOCK;
  *bytes = (size_t)knobs[MEMORY];
  return CUDA_SUCCESS;
}
API cuDeviceGetUuid_v2(char* uuid, int) {
  memset(uuid, 7, 16);
  return CUDA_SUCCESS;
}
API cuDeviceGetUuid(char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
API cuDeviceGetPCIBusId(char* id, int room, int device) {
  snprintf(id, room, "0000:%02x:00.0", device);
  return CUDA_SUCCESS;
}
API cuDeviceGetAttribute(int* value, int which, int) {
  LOCK;
  *value = attribute(which);
  return CUDA_SUCCESS;
}

// ---- the context ----

API cuDevicePrimaryCtxRetain(void** handle, int) {
  LOCK;
  if (!context) context = new Context;
  retained++;
  *handle = context;
  return CUDA_SUCCESS;
}
// With the last reference everything of it goes: the next one is fresh, and knows of no failed kernel.
API cuDevicePrimaryCtxRelease_v2(int) {
  LOCK;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (--retained) return CUDA_SUCCESS;
  drain_all();
  delete context;
  context = nullptr;
  return CUDA_SUCCESS;
}
API cuCtxSetCurrent(void* handle) {
  LOCK;
  if (handle && handle != context) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_setspecific(current_key, handle);
  return CUDA_SUCCESS;
}
API cuCtxGetCurrent(void** handle) {
  *handle = current();
  return CUDA_SUCCESS;
}
API cuCtxSynchronize() {
  ENTER;
  return spoils_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : drain_all();
}
API cuCtxSetFlags(unsigned) { return CUDA_SUCCESS; }
API cuCtxGetStreamPriorityRange(int* least, int* most) {
  *least = 0;
  *most = -1;
  return CUDA_SUCCESS;
}

// ---- memory ----

API cuMemGetInfo_v2(size_t* free_bytes, size_t* all) {
  ENTER;
  *all = (size_t)knobs[MEMORY];
  *free_bytes = *all > context->used ? *all - context->used : 0;
  return CUDA_SUCCESS;
}
API cuMemAlloc_v2(Ptr* at, size_t bytes) {
  ENTER;
  return spoils_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : allocate(at, bytes);
}
API cuMemFree_v2(Ptr at) {
  ENTER;
  if (spoils_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  drain_all();
  return at ? release(at) : CUDA_SUCCESS;
}
// A driver makes nodes of these while capturing. We have no use for that, and would miss a mistake.
API cuMemAllocAsync(Ptr* at, size_t bytes, void* handle) {
  ENTER;
  STREAM(stream, handle);
  return spoils_capture(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : allocate(at, bytes);
}
API cuMemFreeAsync(Ptr at, void* handle) {
  ENTER;
  STREAM(stream, handle);
  if (spoils_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return enqueue(stream, [at] { return release(at); });
}
API cuMemHostAlloc(void** at, size_t bytes, unsigned) {
  ENTER;
  if (spoils_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (due(NO_ALLOCATION)) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
  memset(*at, 0xff, bytes);
  context->pinned[(Ptr)*at] = bytes;
  return CUDA_SUCCESS;
}
API cuMemFreeHost(void* at) {
  LOCK;
  if (!context || !context->pinned.erase((Ptr)at)) return CUDA_ERROR_INVALID_VALUE;
  drain_all();
  free(at);
  return CUDA_SUCCESS;
}

// Pinned memory is read when the copy runs; any other when it is queued.
API cuMemcpyHtoDAsync_v2(Ptr to, const void* from, size_t bytes, void* handle) {
  ENTER;
  STREAM(stream, handle);
  if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (is_pinned(from, bytes)) return enqueue(stream, copy((void*)to, from, bytes));
  if (spoils_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto staged = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + bytes);
  return enqueue(stream, [=] { return copy((void*)to, staged->data(), bytes)(); });
}
// To memory that is not pinned: waits.
API cuMemcpyDtoHAsync_v2(void* to, Ptr from, size_t bytes, void* handle) {
  ENTER;
  STREAM(stream, handle);
  if (!on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool pinned = is_pinned(to, bytes);
  if (!pinned && spoils_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const Result queued = enqueue(stream, copy(to, (const void*)from, bytes));
  return queued || pinned ? queued : drain(stream);
}
API cuMemcpyDtoDAsync_v2(Ptr to, Ptr from, size_t bytes, void* handle) {
  ENTER;
  STREAM(stream, handle);
  if (!on_device(to, bytes) || !on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, copy((void*)to, (const void*)from, bytes));
}
API cuMemcpyHtoD_v2(Ptr to, const void* from, size_t bytes) {
  ENTER;
  if (spoils_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!drain_all()) memcpy((void*)to, from, bytes);
  return context->fault;
}
API cuMemcpyDtoH_v2(void* to, Ptr from, size_t bytes) {
  ENTER;
  if (spoils_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!drain_all()) memcpy(to, (void*)from, bytes);
  return context->fault;
}
API cuMemcpyDtoD_v2(Ptr to, Ptr from, size_t bytes) { return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr); }
API cuMemsetD8Async(Ptr at, unsigned char value, size_t bytes, void* handle) {
  ENTER;
  STREAM(stream, handle);
  if (!on_device(at, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] {
    memset((void*)at, value, bytes);
    return CUDA_SUCCESS;
  });
}
API cuMemsetD8_v2(Ptr at, unsigned char value, size_t bytes) { return cuMemsetD8Async(at, value, bytes, nullptr); }
API cuMemsetD32Async(Ptr at, unsigned value, size_t words, void* handle) {
  ENTER;
  STREAM(stream, handle);
  if (!on_device(at, words * 4) || at % 4) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] {
    std::fill_n((unsigned*)at, words, value);
    return CUDA_SUCCESS;
  });
}

// ---- streams ----

// Flag 1: does not wait for the default stream.
API cuStreamCreate(void** handle, unsigned flags) {
  ENTER;
  auto* stream = new Stream;
  stream->waits_for_default = !(flags & 1);
  context->streams.insert(stream);
  *handle = stream;
  return CUDA_SUCCESS;
}
API cuStreamCreateWithPriority(void** handle, unsigned flags, int) { return cuStreamCreate(handle, flags); }
API cuStreamDestroy_v2(void* handle) {
  LOCK;
  if (!context || !context->streams.count((Stream*)handle)) return CUDA_ERROR_INVALID_HANDLE;
  auto* stream = (Stream*)handle;
  drain(stream);
  for (Event& event : context->all_events) if (event.stream == stream) event.stream = nullptr;
  context->streams.erase(stream);
  delete stream;
  return CUDA_SUCCESS;
}
API cuStreamSynchronize(void* handle) {
  ENTER;
  STREAM(stream, handle);
  return spoils_capture(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : drain(stream);
}
// Each question lets one piece of work run, so that who asks again and again comes to an end.
API cuStreamQuery(void* handle) {
  ENTER;
  STREAM(stream, handle);
  if (spoils_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!stream->queue.empty()) run_first(stream);
  return context->fault ? context->fault : stream->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  ENTER;
  STREAM(stream, handle);
  return enqueue(stream, [=] {
    function(argument);
    return CUDA_SUCCESS;
  });
}

// ---- events ----

// Flag 2: without a time.
API cuEventCreate(void** handle, unsigned flags) {
  ENTER;
  context->all_events.emplace_back();
  Event* event = &context->all_events.back();
  event->timed = !(flags & 2);
  context->events.insert(event);
  *handle = event;
  return CUDA_SUCCESS;
}
API cuEventDestroy_v2(void* handle) {
  LOCK;
  return context && context->events.erase((Event*)handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
// In a capture the order of work is the order of capture: nothing is to be done for an event.
API cuEventRecord(void* handle, void* in) {
  ENTER;
  EVENT(event, handle);
  STREAM(stream, in);
  event->capture = stream->capture;
  if (stream->capture) return CUDA_SUCCESS;
  event->stream = stream;
  const uint64_t times = ++event->recorded;
  return enqueue(stream, [=] {
    event->reached = times;
    event->at_s = now_s();
    return CUDA_SUCCESS;
  });
}
API cuEventQuery(void* handle) {
  ENTER;
  EVENT(event, handle);
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (event->reached < event->recorded && event->stream && !event->stream->queue.empty()) run_first(event->stream);
  if (context->fault) return context->fault;
  return event->reached < event->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
API cuEventSynchronize(void* handle) {
  ENTER;
  EVENT(event, handle);
  return event->capture ? CUDA_ERROR_CAPTURED_EVENT : drain_until(event, event->recorded);
}
API cuEventElapsedTime(float* ms, void* from, void* to) {
  ENTER;
  EVENT(first, from);
  EVENT(last, to);
  for (const Event* event : {first, last}) {
    if (!event->timed || !event->recorded) return CUDA_ERROR_INVALID_HANDLE;
    if (event->reached < event->recorded) return CUDA_ERROR_NOT_READY;
  }
  *ms = (float)((last->at_s - first->at_s) * 1e3);
  return CUDA_SUCCESS;
}
// Drivers before 12.8 lack it, and to call it there ends the process.
API cuEventElapsedTime_v2(float* ms, void* from, void* to) {
  if (knobs[DRIVER] >= 12080) return cuEventElapsedTime(ms, from, to);
  fprintf(stderr, "CUDA emulator: a driver of %lld has no cuEventElapsedTime_v2\n", (long long)knobs[DRIVER]);
  abort();
}
API cuStreamWaitEvent(void* handle, void* for_event, unsigned) {
  ENTER;
  STREAM(stream, handle);
  EVENT(event, for_event);
  if (event->capture) {  // the stream joins the capture, if it is in none
    if (event->capture->ended) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (!stream->capture) stream->capture = event->capture;
    return stream->capture == event->capture ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (stream->capture) {  // work outside of the capture
    if (!event->recorded) return CUDA_SUCCESS;
    stream->capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  const uint64_t times = event->recorded;
  return enqueue(stream, [=] { return drain_until(event, times); });
}

// ---- graphs ----

API cuStreamBeginCapture_v2(void* handle, int mode) {
  ENTER;
  STREAM(stream, handle);
  if (stream == &context->default_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_INVALID_VALUE;
  auto* graph = new Graph;
  context->graphs.insert(graph);
  stream->capture = std::make_shared<Capture>(Capture{graph, false, false, mode});
  stream->began_capture = true;
  return CUDA_SUCCESS;
}
API cuStreamEndCapture(void* handle, void** graph) {
  ENTER;
  STREAM(stream, handle);
  *graph = nullptr;
  const auto capture = stream->capture;
  if (!capture || !stream->began_capture) return CUDA_ERROR_INVALID_VALUE;
  capture->ended = true;
  stream->began_capture = false;
  for (Stream* each : context->streams) if (each->capture == capture) each->capture = nullptr;
  if (due(CAPTURE_FAILS) || capture->spoilt) {
    context->graphs.erase(capture->graph);
    delete capture->graph;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = capture->graph;
  return CUDA_SUCCESS;
}
// 0 not, 1 yes, 2 yes and in vain.
API cuStreamIsCapturing(void* handle, int* status) {
  ENTER;
  STREAM(stream, handle);
  *status = !stream->capture ? 0 : stream->capture->spoilt ? 2 : 1;
  return CUDA_SUCCESS;
}
API cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  ENTER;
  if (!context->graphs.count((Graph*)graph)) return CUDA_ERROR_INVALID_HANDLE;
  auto* copy = new Graph(*(Graph*)graph);
  context->graphs.insert(copy);
  *exec = copy;
  return CUDA_SUCCESS;
}
API cuGraphUpload(void*, void*) { return CUDA_SUCCESS; }
API cuGraphLaunch(void* exec, void* handle) {
  ENTER;
  STREAM(stream, handle);
  if (!context->graphs.count((Graph*)exec)) return CUDA_ERROR_INVALID_HANDLE;
  if (due(NO_LAUNCH)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  for (const Work& work : ((Graph*)exec)->work) enqueue(stream, work);
  return CUDA_SUCCESS;
}
API cuGraphDestroy(void* graph) {
  LOCK;
  if (!context || !context->graphs.erase((Graph*)graph)) return CUDA_ERROR_INVALID_HANDLE;
  delete (Graph*)graph;
  return CUDA_SUCCESS;
}
API cuGraphExecDestroy(void* exec) {
  LOCK;
  if (context) drain_all();
  return cuGraphDestroy(exec);
}

// ---- modules and kernels ----

API cuModuleLoadData(void** module, const void* text) {
  ENTER;
  if (spoils_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const Result loaded = load(module, (const char*)text);
  if (loaded) note("a module was refused: error " + std::to_string(loaded));
  return loaded;
}
API cuModuleLoadDataEx(void** module, const void* text, unsigned, int*, void**) { return cuModuleLoadData(module, text); }
API cuModuleUnload(void* module) {
  LOCK;
  if (!context || !context->modules.erase((Module*)module)) return CUDA_ERROR_INVALID_HANDLE;
  drain_all();
  delete (Module*)module;
  return CUDA_SUCCESS;
}
API cuModuleGetFunction(void** function, void* from, const char* name) {
  ENTER;
  auto* module = (Module*)from;
  const auto entry = module->image.entries.find(name);
  if (entry == module->image.entries.end()) return CUDA_ERROR_NOT_FOUND;
  const emu::Kernel* kernel = emu::find(name);
  if (!kernel) {
    note(std::string(name) + " is in the PTX, but no source EXPORT_KERNELs it");
    return CUDA_ERROR_NOT_FOUND;
  }
  if (!same_signature(entry->second, *kernel)) {
    note(std::string(name) + ": the PTX has other parameters than the source: make it again (kernels/ptx.py)");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  module->functions.push_back({kernel, entry->second.most_threads});
  *function = &module->functions.back();
  return CUDA_SUCCESS;
}
API cuModuleGetGlobal_v2(Ptr*, size_t*, void*, const char*) { return CUDA_ERROR_NOT_FOUND; }
// Attribute 8: the most dynamic shared memory.
API cuFuncSetAttribute(void* function, int which, int value) {
  ENTER;
  if (which != 8) return CUDA_SUCCESS;
  if (value > most_shared((int)knobs[CAPABILITY])) return CUDA_ERROR_INVALID_VALUE;
  ((Function*)function)->most_shared = value;
  return CUDA_SUCCESS;
}
API cuFuncGetAttribute(int* value, int which, void* of) {
  const auto* function = (Function*)of;
  *value = which == 0 ? (int)function->most_threads : which == 8 ? function->most_shared : which == 4 ? 64 : 0;
  return CUDA_SUCCESS;
}
API cuFuncSetCacheConfig(void*, int) { return CUDA_SUCCESS; }
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t) {
  *blocks = std::max(1, 2048 / std::max(threads, 1));
  return CUDA_SUCCESS;
}
API cuLaunchKernel(void* what, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void* handle, void** params, void** extra) {
  ENTER;
  STREAM(stream, handle);
  const auto* function = (Function*)what;
  Launch launch{function->kernel, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, {}};
  if (extra || !fits(*function, launch.grid, launch.block, shared)) return CUDA_ERROR_INVALID_VALUE;
  if (due(NO_LAUNCH)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  for (unsigned i = 0; i < launch.kernel->nargs; i++) {
    const char* argument = (char*)params[i];
    launch.arguments.emplace_back(argument, argument + launch.kernel->sizes[i]);
  }
  return enqueue(stream, [launch] { return launch.run(); });
}
API cuLaunchCooperativeKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- for tests: what no driver offers (src/lib.rs) ----

API emu_set(int knob, int64_t value) {
  LOCK;
  if (knob < 0 || knob >= KNOBS) return CUDA_ERROR_INVALID_VALUE;
  if (context) drain_all();
  knobs[knob] = value;
  emu::set_order((emu::Order)knobs[ORDER], (uint64_t)knobs[SEED]);
  emu::set_workers((unsigned)knobs[WORKERS]);
  return CUDA_SUCCESS;
}
API emu_get(int knob, int64_t* value) {
  LOCK;
  if (knob < 0 || knob >= KNOBS) return CUDA_ERROR_INVALID_VALUE;
  *value = knobs[knob];
  return CUDA_SUCCESS;
}
API emu_reset() {
  LOCK;
  delete context;
  context = nullptr;
  retained = 0;
  last_fault.clear();
  default_knobs();
  return CUDA_SUCCESS;
}
API emu_last_fault(char* text, int room) {
  LOCK;
  snprintf(text, room, "%s", last_fault.c_str());
  return CUDA_SUCCESS;
}
