#include "fiber.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
// Callee-saved by the System V ABI: rbx, rbp, r12 to r15. The kernels do not touch the control words of
// the floating-point units.
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

namespace emu {
void* fresh_fiber(char* stack_end, void (*entry)()) {
  auto* sp = (uint64_t*)((uintptr_t)stack_end & ~15ull);
  *--sp = 0;  // where a return address would be: `entry` finds rsp = 16 n + 8, as after a call
  *--sp = (uint64_t)entry;
  for (int i = 0; i < 6; i++) *--sp = 0;
  return sp;
}
}  // namespace emu

#elif defined(__aarch64__)
// Callee-saved by AAPCS64: x19 to x30 and the low halves of v8 to v15.
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

namespace emu {
void* fresh_fiber(char* stack_end, void (*entry)()) {
  auto* sp = (uint64_t*)((uintptr_t)stack_end & ~15ull) - 22;
  memset(sp, 0, 176);
  sp[11] = (uint64_t)entry;  // x30
  return sp;
}
}  // namespace emu
#else
#error "the emulator switches fibers on x86-64 and aarch64 only"
#endif
