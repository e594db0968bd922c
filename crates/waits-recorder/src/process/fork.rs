//! Child processes: a forked child is a process of its own, recorded from its first moment to its end if its parent is.

use crate::caller::is_programs;
use crate::real::{Real, real};
use crate::thread::{self, begin, finish, outside};
use crate::{contention, process, stack};
use core::ffi::c_int;
use libc::pid_t;
use trodden_wire::waits::{CallName, kind};

/// Has every child give up what belongs to its parent, by whatever function it is made (`daemon` does not call `fork`).
pub fn watch() {
    // SAFETY: the handler lives as long as the process.
    unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
}

unsafe extern "C" fn begin_child() {
    thread::forget();
    contention::begin_child();
    process::begin_child();
}

/// Makes a child process.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    static REAL: Real = Real::new(c"fork");
    let call = || real!(REAL, fn() -> pid_t,);
    // A process that made no thread and uses no MPI is recorded from its first fork on.
    if thread::current().is_none() && process::is_users() && is_programs(stack::walk(0).addresses[0]) {
        thread::register(0);
    }
    let Some(thread) = outside() else { return call() };
    contention::share();
    process::begin_fork();
    let open = begin(thread, kind::FORK, CallName::fork);
    let child = call();
    if child == 0 {
        // SAFETY: a second time it finds nothing to do.
        unsafe { begin_child() };
        thread::register(0);
        return 0;
    }
    if let Some(mut open) = open {
        open.record().object = child as u64;
        finish(thread, open);
    }
    child
}

/// The process ends by the calling thread: with the thread's last block, and with what a parent waits for.
fn end_of_process() {
    // A child of `vfork` has the memory of its parent, whose recording goes on.
    // SAFETY: asks the kernel.
    let own = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    if thread::current().is_some_and(|thread| thread.number == own) {
        thread::unregister(CallName::process_exit);
    }
}

extern "C" fn end() {
    end_of_process();
    process::end();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

macro_rules! exits {
    ($($name:ident)*) => { $(
        /// Ends the process at once.
        ///
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> ! {
            static REAL: Real = Real::new(crate::real::name!($name));
            end_of_process();
            real!(REAL, fn(c_int) -> c_int, status);
            unreachable!("the process has ended")
        }
    )* };
}
exits! { _exit _Exit }
