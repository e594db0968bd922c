//! The symbols that connect the runtime to linkers and instrumented code: `__trodden_bias`, `__trodden_enter`, `__trodden_count`, entries
//! in the arrays of constructors and destructors, and the `fork` handlers.
//!
//! Invariants: `__trodden_enter` changes only rax and r11, and needs up to 2.2 KiB of stack (about 1 KiB without an output file).
//! `__trodden_count` is entered by a jump with the return address in r11, and changes only r10, r11 and flags. Only the constructor and the
//! destructor call libc, and they do so without holding the lock or blocking signals.

use crate::image::{OwnImage, address_of};
use crate::life;
use crate::stub;
use crate::untested::{self, UNTESTED_PATH_ACTION};
use core::arch::global_asm;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

// The functions have LLVM's calling convention preserve_allcc: callers may keep values in any register except rax and r11.
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
    // Instrumented code jumps here with the counter's address in rdi and the return address in r11, so that it needs no stack frame. Only
    // r10, r11 and flags may change. The caller may use the red zone below rsp.
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
    // Calls `handle_count`, which is written in Rust. rdi: the counter's address in the image; r10: the address of the thread's copy of the
    // counter.
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
    // Makes `construct` the image's first constructor and `destruct` its last destructor, so that the fork handlers are registered before
    // the image's other constructors run.
    ".pushsection .init_array.00001, \"aw\", @init_array",
    ".balign 8",
    ".quad {construct}",
    ".popsection",
    ".pushsection .fini_array.00001, \"aw\", @fini_array",
    ".balign 8",
    ".quad {destruct}",
    ".popsection",
    // `__trodden_switch` and the bounds of `trodden_functions` are not declared hidden here, because gold would give undefined hidden
    // symbols a wrong address instead of 0. They are hidden where they are defined.
    ".hidden __start_trodden_units",
    ".hidden __stop_trodden_units",
    ".hidden __start_trodden_counters",
    ".hidden __stop_trodden_counters",
    construct = sym construct,
    destruct = sym destruct,
    acting = sym UNTESTED_PATH_ACTION,
    noted = sym untested::handle_count,
);

static ARE_FORK_HANDLERS_REGISTERED: AtomicBool = AtomicBool::new(false);
/// A variable whose address tells libc which executable or library registered a handler.
static FORK_HANDLER_OWNER: u8 = 0;

extern "C" fn construct() {
    if OwnImage::from_linker().is_empty() {
        return;
    }
    if life::start() && !ARE_FORK_HANDLERS_REGISTERED.swap(true, SeqCst) {
        register_fork_handlers();
    }
}

extern "C" fn destruct() {
    if ARE_FORK_HANDLERS_REGISTERED.swap(false, SeqCst) {
        unregister_fork_handlers();
    }
    life::finish();
}

type ForkHandler = extern "C" fn();

extern "C" fn after_fork_in_child() {
    life::restart_in_fork_child();
}

/// Registers the fork handlers with libc, if the program has it. glibc's own function is preferred, because it removes the handlers when
/// the library is unloaded.
fn register_fork_handlers() {
    let glibc = address_of!("__register_atfork");
    let posix = address_of!("pthread_atfork");
    if glibc != 0 {
        // SAFETY: glibc defines the function with this type.
        let register =
            unsafe { core::mem::transmute::<usize, extern "C" fn(ForkHandler, ForkHandler, ForkHandler, *const c_void) -> i32>(glibc) };
        register(life::before_fork, life::after_fork_in_parent, after_fork_in_child, (&raw const FORK_HANDLER_OWNER).cast());
    } else if posix != 0 {
        // SAFETY: POSIX defines the function with this type.
        let register = unsafe { core::mem::transmute::<usize, extern "C" fn(ForkHandler, ForkHandler, ForkHandler) -> i32>(posix) };
        register(life::before_fork, life::after_fork_in_parent, after_fork_in_child);
    }
}

/// Removes the fork handlers. glibc does this when it runs the destructors registered for the address of `FORK_HANDLER_OWNER`.
fn unregister_fork_handlers() {
    let finalize = address_of!("__cxa_finalize");
    if finalize != 0 && address_of!("__register_atfork") != 0 {
        // SAFETY: the C++ ABI defines the function with this type.
        let finalize = unsafe { core::mem::transmute::<usize, extern "C" fn(*const c_void)>(finalize) };
        finalize((&raw const FORK_HANDLER_OWNER).cast());
    }
}
