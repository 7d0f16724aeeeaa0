// A fiber: a stack of its own, and a switch from one to another that costs a few nanoseconds.
#pragma once
#include <cstddef>

// Keeps what a callee must keep on the stack that is left, notes in `*save` where, and goes on from `to`.
extern "C" void emu_switch(void** save, void* to);

namespace emu {
// The `to` of a stack's first switch: `entry` then runs on it, and must never return.
void* fresh_fiber(char* stack_end, void (*entry)());
}  // namespace emu
