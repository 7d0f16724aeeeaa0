#pragma once
#include "cuda_emu.h"
#include <string>
namespace emu {
struct LaunchDesc { const Kernel* k; dim3 grid, block; unsigned smem; void** args; };
std::string launch(const LaunchDesc& L);
// How threads and blocks take turns: 0 forward, 1 reverse, 2 at random from a seed.
void set_order(int kind, uint64_t seed);
const Kernel* find(const char* n);
const Kernel* first();
uint64_t switches();
}
