//! A plugin for QEMU's user mode. It reports which translated blocks of an unmodified program are executed, thread by thread.
//!
//! The stream (layout: [`trodden_wire::blocks`]) is written to the file named by the argument `out=`, usually a pipe. Its reader
//! disassembles the blocks to determine their control flow. Each thread's buffer is written in one piece under a global lock. A block is
//! described under the same lock when it is translated, and thus before it is executed. Forked processes write nothing. The memory accesses
//! of calls and returns are always sent; all other accesses are sent on request. Source: QEMU's documentation of TCG plugins, API version 1
//! (QEMU 7.2).

mod qemu;
mod stream;

use qemu::{PluginId, QemuInfo, TranslationBlock};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use stream::ProcessStream;

/// The version of QEMU's plugin interface that this plugin uses.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 1;

/// Called by QEMU when it loads the plugin. Arguments: `out=FILE`, and `memory=on` to send memory accesses.
///
/// # Safety
/// `arguments` points to `count` C strings, as QEMU's documentation promises.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(id: PluginId, _info: *const QemuInfo, count: c_int, arguments: *const *const c_char) -> c_int {
    let mut output = None;
    let mut memory = false;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: QEMU passes `count` C strings.
        let argument = unsafe { CStr::from_ptr(*arguments.add(at)) }.to_string_lossy().into_owned();
        match argument.split_once('=') {
            Some(("out", file)) => output = Some(file.to_owned()),
            Some(("memory", value)) => memory = value == "on",
            _ => eprintln!("trodden's QEMU plugin: ignoring unknown argument `{argument}`. The plugin accepts out=FILE and memory=on"),
        }
    }
    let Some(output) = output else {
        eprintln!("trodden's QEMU plugin: the argument out=FILE is missing");
        return -1;
    };
    if let Err(error) = ProcessStream::open(&output, memory) {
        eprintln!("trodden's QEMU plugin: cannot write {output}: {error}");
        return -1;
    }
    // SAFETY: the callbacks have the types that QEMU expects and live as long as the process.
    unsafe {
        qemu::qemu_plugin_register_vcpu_init_cb(id, on_thread_begin);
        qemu::qemu_plugin_register_vcpu_exit_cb(id, on_thread_end);
        qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
        qemu::qemu_plugin_register_vcpu_syscall_cb(id, on_system_call);
        qemu::qemu_plugin_register_atexit_cb(id, on_program_end, std::ptr::null_mut());
    }
    0
}

extern "C" fn on_thread_begin(_: PluginId, thread: c_uint) {
    ProcessStream::get().begin_thread(thread);
}

extern "C" fn on_thread_end(_: PluginId, thread: c_uint) {
    ProcessStream::get().end_thread(thread);
}

/// Handles the system calls that affect the stream: those that end the program, install signal handlers, or create processes.
extern "C" fn on_system_call(_: PluginId, thread: c_uint, number: i64, one: u64, two: u64, _: u64, _: u64, _: u64, _: u64, _: u64, _: u64) {
    const SYS_RT_SIGACTION: i64 = 13;
    const SYS_RT_SIGRETURN: i64 = 15;
    const SYS_CLONE: i64 = 56;
    const SYS_FORK: i64 = 57;
    const SYS_VFORK: i64 = 58;
    const SYS_EXECVE: i64 = 59;
    const SYS_KILL: i64 = 62;
    const SYS_TKILL: i64 = 200;
    const SYS_EXIT_GROUP: i64 = 231;
    const SYS_TGKILL: i64 = 234;
    const SYS_EXECVEAT: i64 = 322;
    const SYS_CLONE3: i64 = 435;
    let stream = ProcessStream::get();
    match number {
        SYS_RT_SIGACTION => stream.send_signal_handler(two),
        SYS_RT_SIGRETURN => stream.push(thread, trodden_wire::blocks::SIGNAL_HANDLER_RETURN_WORD),
        SYS_CLONE => stream.send_fork(one),
        SYS_CLONE3 => stream.send_fork_of_clone3(one),
        SYS_FORK | SYS_VFORK => stream.send_fork(0),
        SYS_EXECVE | SYS_EXECVEAT => stream.prepare_for_exec(thread),
        // The system call may end the process by a signal before QEMU's exit callback runs.
        SYS_KILL | SYS_TKILL | SYS_TGKILL | SYS_EXIT_GROUP => stream.flush(thread),
        _ => {}
    }
}

extern "C" fn on_program_end(_: PluginId, _: *mut c_void) {
    ProcessStream::get().end();
}

/// Describes a translated block, and requests callbacks for its executions.
extern "C" fn on_translation(_: PluginId, block: *mut TranslationBlock) {
    let stream = ProcessStream::get();
    // SAFETY: QEMU passes a block that is valid during this call, and so are its instructions.
    let number = unsafe { stream.send_description(block) };
    // SAFETY: the block is valid, as above. QEMU only passes the number back and does not use it as a pointer.
    unsafe {
        qemu::qemu_plugin_register_vcpu_tb_exec_cb(
            block,
            on_execution,
            qemu::CALLBACK_NO_REGISTERS,
            std::ptr::without_provenance_mut(number),
        );
    }
    // SAFETY: as above, the block, its instructions and their bytes are valid during this call.
    unsafe {
        let count = qemu::qemu_plugin_tb_n_insns(block);
        for at in 0..count {
            let instruction = qemu::qemu_plugin_tb_get_insn(block, at);
            if stream.records_memory() || (at + 1 == count && is_call_or_return(qemu::instruction_bytes(instruction))) {
                let flags = qemu::CALLBACK_NO_REGISTERS;
                let number = std::ptr::without_provenance_mut(at);
                qemu::qemu_plugin_register_vcpu_mem_cb(instruction, on_access, flags, qemu::MEMORY_READ_AND_WRITE, number);
            }
        }
    }
}

/// Returns true if an x86-64 instruction is a near call or return. The stack accesses of these instructions show which frame executes.
fn is_call_or_return(code: &[u8]) -> bool {
    const PREFIXES: [u8; 9] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0xf2, 0xf3];
    let prefixes = code.iter().take_while(|byte| PREFIXES.contains(byte) || (0x40..0x50).contains(*byte)).count();
    match code[prefixes..] {
        [0xe8 | 0xc2 | 0xc3, ..] => true,
        [0xff, mode, ..] => mode >> 3 & 7 == 2,
        _ => false,
    }
}

extern "C" fn on_execution(thread: c_uint, number: *mut c_void) {
    ProcessStream::get().push(thread, number.addr() as u64);
}

extern "C" fn on_access(thread: c_uint, info: u32, address: u64, instruction: *mut c_void) {
    // SAFETY: QEMU passed `info` to this callback.
    let (is_store, size_shift) = unsafe { (qemu::qemu_plugin_mem_is_store(info), qemu::qemu_plugin_mem_size_shift(info)) };
    ProcessStream::get().push(thread, trodden_wire::blocks::encode_memory_access(instruction.addr() as u64, address, size_shift, is_store));
}

#[cfg(test)]
mod tests {
    use super::is_call_or_return;

    #[test]
    fn calls_and_returns_are_recognised() {
        // Machine code of: call, call *%rax, call *%r8, call *8(%rax), notrack call *%rax, ret, rep ret, ret $8.
        let calls_and_returns: [&[u8]; 8] = [
            &[0xe8, 1, 2, 3, 4],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd0],
            &[0xff, 0x50, 8],
            &[0x3e, 0xff, 0xd0],
            &[0xc3],
            &[0xf3, 0xc3],
            &[0xc2, 8, 0],
        ];
        assert!(calls_and_returns.iter().all(|code| is_call_or_return(code)));
        // Machine code of: inc %eax, jmp *%rax, push (%rax), jmp, a prefix alone, and the first byte of an instruction that is truncated at
        // the end of its page.
        let others: [&[u8]; 6] = [&[0xff, 0xc0], &[0xff, 0xe0], &[0xff, 0x30], &[0xe9, 0, 0, 0, 0], &[0x66], &[0xff]];
        assert!(!others.iter().any(|code| is_call_or_return(code)));
    }
}
