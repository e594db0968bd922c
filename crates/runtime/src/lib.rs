//! The runtime: the only code that is linked into subjects. It gives each thread a region of counters, in a file where asked.
//!
//! One relocatable object (made by `build_object.rs`) is linked into each executable and each shared library; all of its symbols are
//! hidden, so that every image has an instance of its own. It needs no libc: x86-64 Linux system calls only. Instrumented
//! code meets it in two names, [`wire::BIAS_SYMBOL`] and [`wire::ENTER_SYMBOL`]; layouts are in the crate `trodden-wire`.
//!
//! | file | what |
//! |---|---|
//! | `entry.rs` | what the linker and instrumented code see: the stub, constructor, destructor, fork handlers |
//! | `life.rs` | a thread enters, a child of `fork` starts afresh, the image starts and goes |
//! | `state.rs` | the image's state: where its regions come from, and which there are |
//! | `bias.rs`, `fork_page.rs` | how far a thread's region is; distinguishing a child of `fork` from its parent |
//! | `table.rs` | which region belongs to which thread |
//! | `output.rs` | `TRODDEN_OUTPUT`: finding and expanding it |
//! | `file.rs` | opening a raw file safely; its header |
//! | `kept.rs` | the raw file's descriptor, which stays open; knowing it again |
//! | `region.rs` | acquiring a region of a raw file; anonymous regions |
//! | `events.rs` | events of each path: a thread's counter, what reading it costs |
//! | `stream_calls.rs`, `chunks.rs`, `stream.rs` | streams of events: what their code calls; chunks, flight recorders; frames and bounds |
//! | `untested.rs` | of residual builds: when a path was first taken, what is done about it; paths that became known later |
//! | `clock.rs` | the time without system calls |
//! | `image.rs` | the unit records of the image |
//! | `stub.rs` | assembly that stubs share |
//! | `start.rs` | an object of its own: the entry of programs without libc's start-up |
//! | `lock.rs`, `system.rs`, `text.rs`, `memory.rs` | lock and signal mask, system calls, strings and messages, copying |
//!
//! # What is guaranteed
//!
//! - **Counts are exact.** No region is used by two threads or two processes at a time, so increments need no atomics. A region of a
//!   thread that has ended goes to a later thread; a region of a process that has ended, in whatever way, to a later process.
//! - **Counts survive** `_exit`, `abort`, fatal signals and SIGKILL: they are in the page cache as they are made. (They do not
//!   survive a crash of the machine.)
//! - **fork**: counts made before belong to the parent alone; the child counts in a region of its own (with `%p`, a file of its own).
//!   `vfork`, `posix_spawn`, `system` and `exec` need nothing.
//! - **The subject is never stopped, killed or made to fail.** Whatever goes wrong, one line on standard error names
//!   the file and the remedy, and counting goes on in memory that is thrown away. Without `TRODDEN_OUTPUT` no file is
//!   written at all, unless the image itself names one (residual variants) and its folder exists.
//! - **Sandboxes**: the file is opened when the image starts, and stays open (descriptor 200 or above, where the limit allows that). So
//!   threads that start after Landlock, a seccomp filter, `chroot` or a loss of privileges count in the file as all others do, without
//!   opening anything; so do children of `fork`, which try to open it and otherwise share their parent's description, with locks of
//!   their own. A program that closes descriptors it does not know has the file opened again.
//! - **Nothing else is overwritten.** A raw file must be a regular file with one name, owned by the effective user, of the same image;
//!   symbolic links are not followed in the file's name, nor in folders whose names come from a `%` sequence or follow one. Set-user-id,
//!   set-group-id and otherwise privileged programs (AT_SECURE) ignore the variable.
//! - Entering is safe in signal handlers, constructors and destructors, in malloc replacements, and before libc is initialised.
//!
//! # Limits
//!
//! - **Code that moves between threads in the middle of a function** (fibers or coroutines that are resumed by another thread while an
//!   instrumented function is on their stack) goes on counting in the first thread's region; increments may then be lost. LLVM coroutines
//!   are not concerned: their resumed part is a function of its own.
//! - **`fork` not by way of libc** (a raw `clone` or `fork` system call, glibc's `_Fork`, static musl programs that do not link
//!   `pthread_atfork`, programs without libc's start-up): threads that had counted before go on in the parent's region, and increments of
//!   the two may be lost. musl's `libc.a` has `pthread_atfork` in a member of its own, which a weak reference does not pull in: link
//!   static musl programs that fork with `-Wl,-u,pthread_atfork`.
//! - **Closed and shut in**: a program that closes the descriptor and cannot open the file any more says so when the next thread counts;
//!   the counts of threads and children from then on are lost. So are those of an image that is loaded in a sandbox.
//! - **A seccomp filter that kills on `open`** kills children of `fork` (not threads); one that kills on `fcntl`, `fstat`, `lseek`, `mmap`
//!   or `fallocate` kills threads as well.
//! - **Children that share their parent's description** count in its file, even with `%p`. When they close it, they are distinguished from
//!   dead processes by process id only, as on overlay file systems.
//! - **A full disk**: regions are reserved when they are made. A file system that cannot reserve (or copies on write),
//!   filled by others later on, ends the subject with SIGBUS. So does truncating a raw file in use.
//! - **Lost counts** are noted in the raw file (`wire::LostThreads`): in a region of the process, else in the header. A
//!   process that has neither, since it could not open the file, has only its standard error to say so.
//! - **Overlay file systems** (the root of a container) drop locks with the descriptor. A program that closes it is
//!   distinguished from a dead one by its process id, which says little to processes in another PID namespace.
//! - A raw file that is removed or replaced while programs run has their counts no more.
//! - File systems without open-file-description locks are refused with a message. `/proc` must be mounted, else nothing is written.
//! - **Streams**: a child made by a raw `clone` or `fork` goes on in its parent's stream, which both spoil. Stacks that a program
//!   switches by itself share the shadow stack: a flight recorder's frames are those of the last switch. Each image has 16 bytes
//!   of static TLS more.
//! - **Events by counters of the kernel** end in a child that was made by a raw `clone` or `fork`; it says so.
//! - A static program without libc has thread-local storage if it is entered at `__trodden_start` (`start.rs`, an
//!   object of its own, which the drivers link where no entry is named), else it must set that up itself; so must
//!   threads that it makes by raw `clone`. Each shared library takes 8 bytes of static TLS: a program that loads
//!   hundreds of instrumented ones by `dlopen` may need `GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096`.
#![no_std]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the runtime is written for x86-64 Linux; subjects on other platforms are not supported");

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

// By this name in modules that run under the checker of interleavings as well, with other atomics.
use core::sync::atomic;
use trodden_wire as wire;

/// There is no panic in this crate: the object would not link, for want of this symbol.
#[cfg(trodden_object)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn trodden_runtime_must_not_panic() -> !;
    }
    // SAFETY: never reached; the symbol exists nowhere, and the build checks that nothing refers to it.
    unsafe { trodden_runtime_must_not_panic() }
}
