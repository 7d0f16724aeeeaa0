// Runs a grid of one of our kernels on the CPU: one fiber for each thread of a block, block after block.
#pragma once
#include <string>

#include "cuda_emu.h"

namespace emu {
struct LaunchDesc {
  const Kernel* kernel;
  dim3 grid, block;
  unsigned shared;  // bytes of dynamic shared memory
  void** args;
};

// What stopped it, with block and thread; empty if nothing did.
std::string launch(const LaunchDesc& launch);

// How threads of a block and blocks of a grid take turns, from now on.
enum class Order { Forward, Reverse, Random };
void set_order(Order order, uint64_t seed);
// Operating-system threads that share the blocks of a grid, from now on.
void set_workers(unsigned workers);

// A kernel that was EXPORT_KERNELed.
const Kernel* find(const char* name);
}  // namespace emu
