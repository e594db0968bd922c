//! Child processes. A forked child of a recorded process is also recorded, from the fork to its end.

use crate::caller::is_program_code;
use crate::real::{RealFunction, real};
use crate::thread::{self, begin_record, finish_record, recordable_thread};
use crate::{chunks, contention, limits, naming, process, schedule, walk};
use core::ffi::{c_int, c_long};
use libc::pid_t;
use trodden_wire::waits::{CallName, kind};

/// Registers [`reset_in_child`] as the C library's fork handler, so that it also runs after functions that do not call `fork`, such as
/// `daemon`.
pub fn register_fork_handler() {
    // SAFETY: the handler lives as long as the process.
    unsafe { libc::pthread_atfork(None, None, Some(reset_in_child)) };
}

unsafe extern "C" fn reset_in_child() {
    if process::is_recording_sealed() {
        return;
    }
    if !process::is_recording() {
        return process::reset_file_opening_in_child();
    }
    limits::reset_in_child();
    chunks::reset_in_child();
    schedule::reset_in_child();
    thread::reset_in_child();
    contention::reset_in_child();
    process::reset_in_child();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"fork");
    let call = || real!(REAL_FUNCTION, fn() -> pid_t,);
    // The first fork begins the recording of a program that has no threads and does not use MPI.
    if thread::current_thread().is_none()
        && naming::has_folder()
        && process::is_user_program()
        && is_program_code(walk::unwind_stack(0).addresses[0])
    {
        thread::register_current_thread(0, 0);
    }
    let Some(thread) = recordable_thread() else {
        let child = call();
        if child == 0 {
            process::reset_file_opening_in_child();
        }
        return child;
    };
    contention::create_shared_counts();
    // The function that ends a process is looked up here once, rather than in each child.
    EXIT.get();
    process::prepare_fork();
    let open = begin_record(thread, kind::FORK, CallName::fork);
    let child = call();
    if child == 0 {
        // SAFETY: the child has no other thread. If the fork handler has already run, the call has no effect.
        unsafe { reset_in_child() };
        thread::register_current_thread(0, 0);
        return 0;
    }
    if let Some(mut open) = open {
        open.record().object = child as u64;
        finish_record(thread, open);
    }
    child
}

/// Wraps `_Fork`, which forks without calling fork handlers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"_Fork");
    let child = real!(REAL_FUNCTION, fn() -> pid_t,);
    if child == 0 {
        // SAFETY: the child has no other thread.
        unsafe { reset_in_child() };
    }
    child
}

/// Called after a system call that the program made with `syscall`. If that call forked the process, the child becomes a separate process
/// of the recording.
pub fn handle_fork_by_system_call(number: c_long, first: usize, result: c_long) {
    let has_own_memory = |flags: usize| flags & libc::CLONE_VM as usize == 0;
    let is_fork = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        libc::SYS_clone => has_own_memory(first),
        // SAFETY: after a successful call, the argument is the address of a structure whose first field contains the flags.
        libc::SYS_clone3 => result == 0 && has_own_memory(unsafe { core::ptr::with_exposed_provenance::<u64>(first).read() } as usize),
        _ => false,
    };
    if is_fork && result == 0 {
        // SAFETY: the child has no other thread.
        unsafe { reset_in_child() };
    }
}

/// Called when the calling thread ends the process. Records the end, so that the report can explain the wait of a parent for this process.
fn record_process_end() {
    // A child of `vfork` runs in its parent's memory, so it must not end the parent's recording.
    // SAFETY: the system call has no pointer arguments.
    let own = || unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    if thread::current_thread().is_some_and(|thread| thread.thread_id == own()) {
        thread::unregister_current_thread(CallName::process_exit);
    }
}

extern "C" fn on_exit() {
    record_process_end();
    process::append_final_lines();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static EXIT_HANDLER: extern "C" fn() = on_exit;

macro_rules! exits {
    ($($name:ident $real:ident)*) => { $(
        static $real: RealFunction = RealFunction::new(crate::real::name!($name));
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> ! {
            record_process_end();
            real!($real, fn(c_int) -> c_int, status);
            unreachable!("the process has ended")
        }
    )* };
}
exits! { _exit EXIT _Exit EXIT_OF_C }
