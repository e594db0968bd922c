//! Properties of x86-64 Linux system calls by which two runs are compared: names, path arguments and transferred data.

use crate::memory::Memory;
use xxhash_rust::xxh3::Xxh3;

/// Maximum number of bytes that are compared per buffer.
const MAX_COMPARED_BYTES: usize = 16 << 20;

pub fn call_name(number: u64) -> String {
    usize::try_from(number)
        .ok()
        .and_then(syscalls::Sysno::new)
        .map_or_else(|| format!("system call {number}"), |call| call.name().to_owned())
}

/// Returns true if the call's result is a process or thread id, which differs in every run.
pub fn has_process_id(number: u64) -> bool {
    let calls = [
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_wait4,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_getppid,
        libc::SYS_set_tid_address,
        libc::SYS_getpgrp,
        libc::SYS_getpgid,
        libc::SYS_getsid,
        libc::SYS_setsid,
    ];
    calls.contains(&(number as i64))
}

/// Hashes the input of a call: its first path, or the data to be written.
pub fn hash_call_input(number: u64, arguments: &[u64; 6], memory: &Memory, hash: &mut Xxh3) {
    match number as i64 {
        libc::SYS_openat | libc::SYS_newfstatat | libc::SYS_unlinkat | libc::SYS_statx | libc::SYS_faccessat2 | libc::SYS_readlinkat => {
            hash.update(&memory.string(arguments[1]));
        }
        libc::SYS_open
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_access
        | libc::SYS_execve
        | libc::SYS_unlink
        | libc::SYS_mkdir
        | libc::SYS_rename
        | libc::SYS_chdir
        | libc::SYS_readlink => hash.update(&memory.string(arguments[0])),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_sendto => hash_bytes(arguments[1], arguments[2], memory, hash),
        libc::SYS_writev | libc::SYS_pwritev => hash_vector(arguments[1], arguments[2], u64::MAX, memory, hash),
        _ => {}
    }
}

/// Hashes the output of a call: data that was read.
pub fn hash_call_output(number: u64, arguments: &[u64; 6], result: i64, memory: &Memory, hash: &mut Xxh3) {
    let Ok(length) = u64::try_from(result) else { return };
    match number as i64 {
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_recvfrom => hash_bytes(arguments[1], length, memory, hash),
        libc::SYS_readv | libc::SYS_preadv => hash_vector(arguments[1], arguments[2], length, memory, hash),
        _ => {}
    }
}

/// Returns the hash of a call that names a path and transfers no data.
pub fn hash_path(path: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(path);
    hash.digest()
}

fn hash_bytes(address: u64, length: u64, memory: &Memory, hash: &mut Xxh3) {
    hash.update(&memory.read_some(address, usize::try_from(length).unwrap_or(MAX_COMPARED_BYTES).min(MAX_COMPARED_BYTES)));
}

/// Hashes the data of a vector of buffers, up to a total length.
fn hash_vector(vector: u64, count: u64, mut limit: u64, memory: &Memory, hash: &mut Xxh3) {
    for index in 0..count.min(1024) {
        let (Ok(address), Ok(length)) = (memory.word(vector + 16 * index), memory.word(vector + 16 * index + 8)) else { return };
        let length = length.min(limit);
        hash_bytes(address, length, memory, hash);
        limit -= length;
    }
}
