//! The machine: entry, exit, and what happens on a panic.

use core::arch::{asm, global_asm};

// The kernel enters with the stack pointer aligned to 16 bytes and nothing below it; a function
// expects the state after a call (System V ABI for x86-64, section 3.4.1; AAPCS64, section 6.4).
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "and rsp, -16", "call {entry}", "ud2", entry = sym entry);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "bl {entry}", "brk #1", entry = sym entry);

extern "C" fn entry() -> ! {
    exit(crate::main())
}

/// Ends the program (exit_group(2)).
fn exit(status: i32) -> ! {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: exit_group takes one number and does not return (syscall 231 on x86-64).
    unsafe {
        asm!("syscall", in("rax") 231, in("rdi") status, options(noreturn, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: exit_group takes one number and does not return (syscall 94 on aarch64).
    unsafe {
        asm!("svc #0", "brk #1", in("x8") 94, in("x0") status, options(noreturn, nostack));
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(2)
}
