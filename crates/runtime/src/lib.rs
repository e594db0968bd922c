//! The runtime, which is linked into every instrumented program (the *subject*). It gives each thread a region, a copy of the image's
//! counters, in a file if the user requests one.
//!
//! The runtime is one relocatable object, built by `build_object.rs` and linked with hidden symbols into each executable and shared
//! library, so that each of these *images* has its own instance. It needs no libc, only x86-64 Linux system calls. Instrumented code refers
//! mainly to [`wire::BIAS_SYMBOL`] and [`wire::ENTER_SYMBOL`]. `trodden-wire` defines the file layouts.
#![no_std]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the runtime is written for x86-64 Linux; subjects on other platforms are not supported");

// Guarantees:
//
// - Counts are exact. No two threads or processes use a region at the same time, so increments need not be atomic. When a thread or
//   process ends, however it ends, a later thread reuses its region.
// - Counts survive `_exit`, `abort`, fatal signals and SIGKILL, because they are in the page cache immediately. They do not survive a
//   crash of the machine.
// - After `fork`, earlier counts belong to the parent only; the child counts in a separate region (with `%p`, in a separate file).
//   `vfork`, `posix_spawn`, `system` and `exec` need no special treatment.
// - The runtime never stops or kills the subject, or makes it fail. If an error occurs, one line on standard error names the file and
//   says what to do, and counting continues in memory that is discarded. Without `TRODDEN_OUTPUT`, the runtime writes a file only if the
//   image itself defines one (residual variants) and the file's folder exists.
// - The file is opened when the image starts and stays open (as descriptor 200 or above, if the limit permits). Threads and children of
//   `fork` can therefore count after Landlock, a seccomp filter, `chroot` or a loss of privileges. If a program closes the descriptor,
//   the runtime opens the file again.
// - The runtime overwrites no other file. A raw file must be a regular file of the same image, with one hard link and owned by the
//   effective user. Symbolic links are not followed in the file's name, nor in folders whose names contain or follow a `%` sequence.
//   Privileged programs (AT_SECURE) ignore the variable.
// - Entering is safe in signal handlers, constructors, destructors and malloc replacements, and before libc is initialised.
//
// Limits:
//
// - Code that moves to a different thread in the middle of a function (fibers, but not LLVM coroutines) continues to count in the first
//   thread's region, and increments may be lost. If a program switches stacks, all stacks of a thread share one shadow stack in its
//   stream.
// - After a `fork` that bypasses libc's handlers (a raw system call, glibc's `_Fork`, programs without libc, static musl programs linked
//   without `-Wl,-u,pthread_atfork`), parent and child share regions and streams. Event counters end in the child, with a message.
// - If a program closes the descriptor and cannot open the file again, later threads and children report this and lose their counts. The
//   same applies to an image that is loaded in a sandbox. A seccomp filter that kills on `open` kills children of `fork`; a filter that
//   kills on `fcntl`, `fstat`, `lseek`, `mmap` or `fallocate` also kills threads.
// - Children that share their parent's open file description count in its file, even with `%p`. If they close the description, only
//   process IDs distinguish them from processes that have ended. The same holds on overlay file systems, which drop locks with the
//   descriptor. Process IDs are not unique across PID namespaces.
// - On a file system that cannot reserve space (or copies on write), the subject receives SIGBUS if the disk fills up later. Truncating a
//   raw file in use has the same effect. Counts are lost after a raw file was removed or replaced.
// - The raw file records lost counts (`wire::LostThreads`), unless the process could not open it.
// - File systems without open-file-description locks are rejected with a message. Without `/proc`, nothing is written.
// - A static program without libc has thread-local storage only if its entry is `__trodden_start` (`start.rs`) or if it sets up the
//   storage itself; threads created by raw `clone` must do the same. Each shared library takes 8 bytes of static TLS, or 24 with streams.
//   Programs that load hundreds of libraries may need `GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096`.

mod bias;
mod chunks;
mod clock;
pub mod entry;
mod events;
mod file;
mod fork_page;
mod image;
mod kept;
mod life;
mod lock;
#[cfg(trodden_object)]
mod memory;
mod output;
mod region;
mod state;
mod stream;
mod stream_calls;
mod stub;
mod system;
mod table;
mod text;
mod untested;

use core::sync::atomic;
use trodden_wire as wire;

/// Calls an undefined symbol, so that a panic anywhere in this crate would make linking fail.
#[cfg(trodden_object)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn trodden_runtime_must_not_panic() -> !;
    }
    // SAFETY: never executed, because the symbol is undefined and the build checks that nothing refers to it.
    unsafe { trodden_runtime_must_not_panic() }
}
