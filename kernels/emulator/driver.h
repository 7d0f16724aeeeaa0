// What the stand-in driver knows: its context, what is queued, and the faults that a test asked for.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "emulator.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

// Name, number and text of CUresult (CUDA Driver API), those that are given here.
#define ERRORS(X)                                                                                  \
  X(SUCCESS, 0, "no error")                                                                        \
  X(ERROR_INVALID_VALUE, 1, "invalid argument")                                                    \
  X(ERROR_OUT_OF_MEMORY, 2, "out of memory")                                                       \
  X(ERROR_NOT_INITIALIZED, 3, "initialization error")                                              \
  X(ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                                    \
  X(ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                           \
  X(ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                                    \
  X(ERROR_INVALID_CONTEXT, 201, "invalid device context")                                          \
  X(ERROR_NO_BINARY_FOR_GPU, 209, "no kernel image is available for execution on the device")      \
  X(ERROR_INVALID_PTX, 218, "a PTX JIT compilation failed")                                        \
  X(ERROR_UNSUPPORTED_PTX_VERSION, 222, "the provided PTX was compiled with an unsupported toolchain.") \
  X(ERROR_OPERATING_SYSTEM, 304, "OS call failed or operation not supported on this OS")           \
  X(ERROR_INVALID_HANDLE, 400, "invalid resource handle")                                          \
  X(ERROR_NOT_FOUND, 500, "named symbol not found")                                                \
  X(ERROR_NOT_READY, 600, "device not ready")                                                      \
  X(ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                        \
  X(ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "too many resources requested for launch")                 \
  X(ERROR_MISALIGNED_ADDRESS, 716, "misaligned address")                                           \
  X(ERROR_LAUNCH_FAILED, 719, "unspecified launch failure")                                        \
  X(ERROR_NOT_PERMITTED, 800, "operation not permitted")                                           \
  X(ERROR_NOT_SUPPORTED, 801, "operation not supported")                                           \
  X(ERROR_SYSTEM_DRIVER_MISMATCH, 803, "system has unsupported display driver / cuda driver combination") \
  X(ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "operation not permitted when stream is capturing")     \
  X(ERROR_STREAM_CAPTURE_INVALIDATED, 901, "operation failed due to a previous error during capture") \
  X(ERROR_STREAM_CAPTURE_ISOLATION, 905, "dependency created on uncaptured work in another stream") \
  X(ERROR_CAPTURED_EVENT, 907, "operation not permitted on an event last recorded in a capturing stream")
#define ONE(name, number, text) CUDA_##name = number,
enum Result : int { ERRORS(ONE) };
#undef ONE

using Ptr = uint64_t;
using Work = std::function<Result()>;

struct Graph {
  std::vector<Work> work;  // in the order of capture
};

// Of the stream that began it and those that joined it by waiting for an event.
struct Capture {
  Graph* graph;
  bool ended = false, spoilt = false;
  int mode;  // CUstreamCaptureMode: 0 global, 1 of this thread, 2 relaxed
};

struct Stream {
  std::deque<Work> queue;
  bool waits_for_default = true;
  std::shared_ptr<Capture> capture;
  bool began_capture = false;
};

// Recorded so many times, of which so many have been reached.
struct Event {
  uint64_t recorded = 0, reached = 0;
  double at_s = 0;
  bool timed = true;
  Stream* stream = nullptr;
  std::shared_ptr<Capture> capture;
};

// A kernel as its PTX declares it.
struct Entry {
  std::vector<uint32_t> sizes;   // bytes of each parameter
  unsigned most_threads = 1024;  // .maxntid
};

// What a module's PTX says of itself.
struct Image {
  int version = 0;  // 8.0 is 80
  int target = 0;   // sm_80 is 80
  std::map<std::string, Entry> entries;
};
bool read_ptx(const std::string& text, Image& image);

struct Function {
  const emu::Kernel* kernel;
  unsigned most_threads;
  int most_shared = 48 << 10;
};

struct Module {
  Image image;
  std::deque<Function> functions;
};

// Mapped between two pages that belong to nobody.
struct Allocation {
  size_t bytes;
  char* map;
  size_t map_bytes;
};

// What ends with the primary context. Pinned memory is the host's: who still has it may still touch it.
struct Context {
  std::map<Ptr, Allocation> memory;
  std::map<Ptr, size_t> pinned;
  size_t used = 0;
  Stream default_stream;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::deque<Event> all_events;  // work that is queued may still name one that was destroyed
  std::set<Module*> modules;
  std::set<Graph*> graphs;
  Result fault = CUDA_SUCCESS;  // a kernel that failed spoils all that follows
  ~Context();
};

// What a test may set. Names and order are those of `Knob` in src/lib.rs.
enum Knob {
  ORDER, SEED, LAZY, WORKERS,
  NO_ALLOCATION, NO_LAUNCH, KERNEL_DIES, CAPTURE_FAILS,  // the n-th from now; 0 is never
  STALE, MEMORY, DEVICES, INIT, DRIVER, CAPABILITY, PTX, MULTIPROCESSORS,
  KNOBS
};
