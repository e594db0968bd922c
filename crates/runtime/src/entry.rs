//! What linkers and instrumented code see of the runtime: `__trodden_bias`, `__trodden_enter`, `__trodden_count`, and
//! entries in the arrays of constructors and destructors; the handlers of `fork`.
//!
//! Invariants: `__trodden_enter` changes rax and r11 only, and needs nothing but a stack (of which it takes up to 2.2
//! KiB, some 1 KiB without an output file); `__trodden_count` is jumped to, with the place where it goes on in r11, and
//! changes r10, r11 and flags only; libc is called by constructor and destructor alone, with no lock held and no signal
//! blocked.

use crate::image::{Image, address_of};
use crate::life;
use crate::stub;
use crate::untested::{self, ACTING};
use core::arch::global_asm;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

// LLVM's preserve_allcc: the caller keeps values in any register but rax and r11.
macro_rules! stub {
    ($name:literal, $enter:path) => {
        global_asm!(
            stub::begin!($name),
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "pushfq",
            stub::save!(),
            "call {enter}",
            stub::restore!(64),
            "popfq",
            "pop rbp",
            ".cfi_def_cfa rsp, 8",
            "ret",
            stub::end!($name),
            enter = sym $enter,
        );
    };
}
stub!("__trodden_enter", life::enter);
stub!("__trodden_enter_shared", life::enter_shared);

global_asm!(
    // Code jumps here, with the counter's address in rdi, and the place where it goes on in r11: so it needs no frame.
    // r10 and flags are changed. The red zone below rsp is the code's.
    stub::begin!("__trodden_count"),
    ".cfi_def_cfa rsp, 0",
    ".cfi_register rip, r11",
    "mov r10, [rip + __trodden_bias@GOTTPOFF]",
    "mov r10, qword ptr fs:[r10]",
    "test r10, r10",
    "je 2f",
    "3:",
    "cmp byte ptr [rip + {acting}], 0",
    "jne 4f",
    "inc qword ptr [rdi + r10]",
    "cmp qword ptr [rdi + r10], 1",
    "je 4f",
    "notrack jmp r11",
    "4:",
    "lea rsp, [rsp - 128]",
    ".cfi_adjust_cfa_offset 128",
    "push r11",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rip, -136",
    "add r10, rdi",
    "call __trodden_noted",
    "pop r11",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_register rip, r11",
    "lea rsp, [rsp + 128]",
    ".cfi_adjust_cfa_offset -128",
    "notrack jmp r11",
    "2:",
    "lea rsp, [rsp - 128]",
    ".cfi_adjust_cfa_offset 128",
    "push r11",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rip, -136",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    "call __trodden_enter",
    "mov r10, rax",
    "pop rax",
    ".cfi_adjust_cfa_offset -8",
    "pop r11",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_register rip, r11",
    "lea rsp, [rsp + 128]",
    ".cfi_adjust_cfa_offset -128",
    "jmp 3b",
    stub::end!("__trodden_count"),
    // The rest of it, in Rust: the counter's address is in rdi, that of the thread's copy in r10.
    ".pushsection .text.__trodden_noted, \"ax\", @progbits",
    ".type __trodden_noted, @function",
    ".balign 16",
    "__trodden_noted:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rax",
    "pushfq",
    stub::save!(),
    "mov rsi, r10",
    "call {noted}",
    stub::restore!(72),
    "popfq",
    "pop rax",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    stub::end!("__trodden_noted"),
    ".pushsection .tbss.__trodden_bias, \"awT\", @nobits",
    ".globl __trodden_bias",
    ".hidden __trodden_bias",
    ".type __trodden_bias, @object",
    ".size __trodden_bias, 8",
    ".balign 8",
    "__trodden_bias: .zero 8",
    ".popsection",
    // First and last in the image, so that handlers of fork are in place before its own constructors run.
    ".pushsection .init_array.00001, \"aw\", @init_array",
    ".balign 8",
    ".quad {construct}",
    ".popsection",
    ".pushsection .fini_array.00001, \"aw\", @fini_array",
    ".balign 8",
    ".quad {destruct}",
    ".popsection",
    // `__trodden_switch` and the bounds of `trodden_functions` are not among them: where there is none, gold would give
    // its own address to a hidden one. Where there is one, it is hidden.
    ".hidden __start_trodden_units",
    ".hidden __stop_trodden_units",
    ".hidden __start_trodden_counters",
    ".hidden __stop_trodden_counters",
    construct = sym construct,
    destruct = sym destruct,
    acting = sym ACTING,
    noted = sym untested::noted,
);

/// Whether `fork` handlers are registered.
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// Its address stands for this image towards libc.
static IMAGE: u8 = 0;

extern "C" fn construct() {
    if Image::from_linker().is_empty() {
        return;
    }
    if life::start() && !REGISTERED.swap(true, SeqCst) {
        register_fork_handlers();
    }
}

extern "C" fn destruct() {
    if REGISTERED.swap(false, SeqCst) {
        unregister_fork_handlers();
    }
    life::finish();
}

type Handler = extern "C" fn();

extern "C" fn after_fork_in_child() {
    life::after_fork_in_child();
}

/// Asks libc, if there is one, for glibc's way first: glibc has no `pthread_atfork` that a shared library's end undoes by our own handle.
fn register_fork_handlers() {
    let glibc = address_of!("__register_atfork");
    let posix = address_of!("pthread_atfork");
    if glibc != 0 {
        // SAFETY: glibc's function of that name has this type.
        let register = unsafe { core::mem::transmute::<usize, extern "C" fn(Handler, Handler, Handler, *const c_void) -> i32>(glibc) };
        register(life::before_fork, life::after_fork_in_parent, after_fork_in_child, (&raw const IMAGE).cast());
    } else if posix != 0 {
        // SAFETY: POSIX's function of that name has this type.
        let register = unsafe { core::mem::transmute::<usize, extern "C" fn(Handler, Handler, Handler) -> i32>(posix) };
        register(life::before_fork, life::after_fork_in_parent, after_fork_in_child);
    }
}

/// glibc forgets the handlers of a handle when that handle's destructors run.
fn unregister_fork_handlers() {
    let finalize = address_of!("__cxa_finalize");
    if finalize != 0 && address_of!("__register_atfork") != 0 {
        // SAFETY: the C++ ABI's function of that name has this type.
        let finalize = unsafe { core::mem::transmute::<usize, extern "C" fn(*const c_void)>(finalize) };
        finalize((&raw const IMAGE).cast());
    }
}
