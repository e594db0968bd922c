//! The part of QEMU's plugin interface, version 1, that this plugin uses. Source: QEMU's documentation of TCG plugins.

use std::ffi::{c_int, c_uint, c_void};

pub type PluginId = u64;

/// QEMU's information about itself; this plugin ignores it.
#[repr(C)]
pub struct QemuInfo {
    _private: [u8; 0],
}

#[repr(C)]
pub struct TranslationBlock {
    _private: [u8; 0],
}

#[repr(C)]
pub struct QemuInstruction {
    _private: [u8; 0],
}

/// Flag of a callback that does not access the program's registers (`QEMU_PLUGIN_CB_NO_REGS`).
pub const CALLBACK_NO_REGISTERS: c_int = 0;

/// Requests callbacks for both loads and stores (`QEMU_PLUGIN_MEM_RW`).
pub const MEMORY_READ_AND_WRITE: c_int = 3;

pub type ThreadCallback = extern "C" fn(PluginId, c_uint);
pub type TranslationCallback = extern "C" fn(PluginId, *mut TranslationBlock);
pub type ExecutionCallback = extern "C" fn(c_uint, *mut c_void);
/// Callback for a memory access. Its arguments are the thread, QEMU's information on the access, the address, and the data given at
/// registration.
pub type MemoryCallback = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Callback for a system call. Its arguments are the plugin, the thread, and the system call's number and arguments.
pub type SystemCallCallback = extern "C" fn(PluginId, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type EndCallback = extern "C" fn(PluginId, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: PluginId, callback: ThreadCallback);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: PluginId, callback: ThreadCallback);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: TranslationCallback);
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(block: *mut TranslationBlock, callback: ExecutionCallback, flags: c_int, data: *mut c_void);
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut QemuInstruction,
        callback: MemoryCallback,
        flags: c_int,
        kind: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, callback: SystemCallCallback);
    pub fn qemu_plugin_register_atexit_cb(id: PluginId, callback: EndCallback, data: *mut c_void);
    pub fn qemu_plugin_tb_n_insns(block: *const TranslationBlock) -> usize;
    pub fn qemu_plugin_tb_vaddr(block: *const TranslationBlock) -> u64;
    pub fn qemu_plugin_tb_get_insn(block: *const TranslationBlock, at: usize) -> *mut QemuInstruction;
    pub fn qemu_plugin_insn_data(instruction: *const QemuInstruction) -> *const c_void;
    pub fn qemu_plugin_insn_size(instruction: *const QemuInstruction) -> usize;
    pub fn qemu_plugin_insn_haddr(instruction: *const QemuInstruction) -> *mut c_void;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
    pub fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
}

/// Returns the bytes of an instruction.
///
/// # Safety
/// The instruction must belong to a block that QEMU is translating. The bytes are valid during the translation.
pub unsafe fn instruction_bytes<'a>(instruction: *const QemuInstruction) -> &'a [u8] {
    // SAFETY: QEMU returns the address and the size of bytes that stay valid during the translation.
    unsafe { std::slice::from_raw_parts(qemu_plugin_insn_data(instruction).cast(), qemu_plugin_insn_size(instruction)) }
}
