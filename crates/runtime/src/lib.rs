//! The runtime, which is linked into subjects (the instrumented programs). It gives each thread a region of counters, in a file if
//! requested.
//!
//! The runtime is one relocatable object (made by `build_object.rs`), linked into each executable and shared library, with hidden symbols
//! only, so that each image has its own instance. It needs no libc, only x86-64 Linux system calls. Instrumented code refers to few
//! symbols, mainly [`wire::BIAS_SYMBOL`] and [`wire::ENTER_SYMBOL`]; `trodden-wire` defines the layouts.
#![no_std]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the runtime is written for x86-64 Linux; subjects on other platforms are not supported");

// Guarantees:
//
// - Counts are exact. No two threads or processes use a region at the same time, so increments need not be atomic. When a thread or
//   process ends, in whatever way, its region is reused by a later one.
// - Counts survive `_exit`, `abort`, fatal signals and SIGKILL, because they are in the page cache immediately. They do not survive a
//   crash of the machine.
// - After `fork`, earlier counts belong to the parent only; the child counts in its own region (with `%p`, in its own file). `vfork`,
//   `posix_spawn`, `system` and `exec` need no special treatment.
// - The runtime never stops or kills the subject, or makes it fail. On any error, one line on standard error names the file and says what
//   to do, and counting continues in memory that is discarded. Without `TRODDEN_OUTPUT`, no file is written, unless the image itself
//   defines a file (residual variants) whose folder exists.
// - The file is opened when the image starts and stays open (descriptor 200 or above, if the limit permits). So threads and children of
//   `fork` can count after Landlock, a seccomp filter, `chroot` or a loss of privileges. If a program closes the descriptor, the file is
//   opened again.
// - No other file is overwritten. A raw file must be a regular file with one name, owned by the effective user, of the same image.
//   Symbolic links are not followed in the file's name, nor in folders whose names contain or follow a `%` sequence. Privileged programs
//   (AT_SECURE) ignore the variable.
// - Entering is safe in signal handlers, constructors, destructors and malloc replacements, and before libc is initialised.
//
// Limits:
//
// - Code that moves to a different thread in the middle of a function (fibers, but not LLVM coroutines) continues to count in the first
//   thread's region, and increments may be lost. Streams of programs that switch stacks share one shadow stack.
// - After a `fork` that bypasses libc's handlers (a raw system call, glibc's `_Fork`, programs without libc, static musl programs linked
//   without `-Wl,-u,pthread_atfork`), parent and child share regions and streams, and event counters end in the child, with a message.
// - If a program closes the descriptor and cannot open the file again, later threads and children report this and lose their counts. The
//   same applies to an image that is loaded in a sandbox. A seccomp filter that kills on `open` kills children of `fork`; a filter that
//   kills on `fcntl`, `fstat`, `lseek`, `mmap` or `fallocate` also kills threads.
// - Children that share their parent's open file description count in its file, even with `%p`. If they close it, only process ids
//   distinguish them from processes that have ended. The same holds on overlay file systems, which drop locks with the descriptor. Ids are
//   not unique across PID namespaces.
// - On a file system that cannot reserve space (or copies on write), the subject receives SIGBUS if the disk fills up later. Truncating a
//   raw file in use has the same effect. Counts after a raw file was removed or replaced are lost.
// - Lost counts are recorded in the raw file (`wire::LostThreads`), unless the process could not open it.
// - File systems without open-file-description locks are rejected with a message. Without `/proc`, nothing is written.
// - A static program without libc has thread-local storage only if its entry is `__trodden_start` (`start.rs`) or it sets up the storage
//   itself, as must threads created by raw `clone`. Each shared library takes 8 bytes of static TLS, with streams 24: programs that load
//   hundreds of them may need `GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096`.

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

// A common name for modules that also run under the model checker, which provides different atomics.
use core::sync::atomic;
use trodden_wire as wire;

/// Prevents panics in this crate: a call of this undefined symbol would make the link fail.
#[cfg(trodden_object)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn trodden_runtime_must_not_panic() -> !;
    }
    // SAFETY: never reached; the symbol is undefined, and the build checks that nothing refers to it.
    unsafe { trodden_runtime_must_not_panic() }
}
