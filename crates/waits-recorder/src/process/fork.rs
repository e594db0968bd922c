//! Child processes. A forked child of a recorded process is recorded from start to end.

use crate::caller::is_program_code;
use crate::real::{Real, real};
use crate::thread::{self, begin, finish, recordable_thread};
use crate::{chunks, contention, limits, naming, process, schedule, walk};
use core::ffi::{c_int, c_long};
use libc::pid_t;
use trodden_wire::waits::{CallName, kind};

/// Ensures that each child abandons its parent's state, whichever function forks it (`daemon` does not call `fork`).
pub fn watch() {
    // SAFETY: the handler lives as long as the process.
    unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
}

unsafe extern "C" fn begin_child() {
    if process::is_sealed() {
        return;
    }
    if !process::is_recording() {
        return process::abandon_opening();
    }
    limits::begin_child();
    chunks::begin_child();
    schedule::begin_child();
    thread::begin_child();
    contention::begin_child();
    process::begin_child();
}

/// Forks the process.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    static REAL: Real = Real::new(c"fork");
    let call = || real!(REAL, fn() -> pid_t,);
    // A process that has created no thread and does not use MPI is recorded from its first fork on.
    if thread::current().is_none() && naming::has_folder() && process::is_user_program() && is_program_code(walk::walk(0).addresses[0]) {
        thread::register(0, 0);
    }
    let Some(thread) = recordable_thread() else {
        let child = call();
        if child == 0 {
            process::abandon_opening();
        }
        return child;
    };
    contention::share();
    // Resolve the real functions once here rather than in each child.
    EXIT.get();
    process::begin_fork();
    let open = begin(thread, kind::FORK, CallName::fork);
    let child = call();
    if child == 0 {
        // SAFETY: the child has no other thread. If the handler has already run, this does nothing.
        unsafe { begin_child() };
        thread::register(0, 0);
        return 0;
    }
    if let Some(mut open) = open {
        open.record().object = child as u64;
        finish(thread, open);
    }
    child
}

/// Forks the process without calling fork handlers.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    static REAL: Real = Real::new(c"_Fork");
    let child = real!(REAL, fn() -> pid_t,);
    if child == 0 {
        // SAFETY: the child has no other thread.
        unsafe { begin_child() };
    }
    child
}

/// Called after a direct system call. If the call forked the process, the child becomes a separate process of the recording.
pub fn after_system_call(number: c_long, first: usize, result: c_long) {
    let has_own_memory = |flags: usize| flags & libc::CLONE_VM as usize == 0;
    let is_fork = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        libc::SYS_clone => has_own_memory(first),
        // SAFETY: after a successful call, the argument is a structure that begins with the flags.
        libc::SYS_clone3 => result == 0 && has_own_memory(unsafe { core::ptr::with_exposed_provenance::<u64>(first).read() } as usize),
        _ => false,
    };
    if is_fork && result == 0 {
        // SAFETY: the child has no other thread.
        unsafe { begin_child() };
    }
}

/// Called when the calling thread ends the process. Records the thread's last block and its end, which the parent may wait for.
fn end_of_process() {
    // A child of `vfork` uses the memory of its parent, whose recording continues.
    // SAFETY: the system call has no pointer arguments.
    let own = || unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    if thread::current().is_some_and(|thread| thread.number == own()) {
        thread::unregister(CallName::process_exit);
    }
}

extern "C" fn on_exit() {
    end_of_process();
    process::end();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = on_exit;

macro_rules! exits {
    ($($name:ident $real:ident)*) => { $(
        static $real: Real = Real::new(crate::real::name!($name));
        /// Ends the process at once.
        ///
        /// # Safety
        /// The contract of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> ! {
            end_of_process();
            real!($real, fn(c_int) -> c_int, status);
            unreachable!("the process has ended")
        }
    )* };
}
exits! { _exit EXIT _Exit EXIT_OF_C }
