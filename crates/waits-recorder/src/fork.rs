//! Child processes: a forked child is a process of its own, recorded from its first moment if its parent is.

use crate::real::{Real, real};
use crate::thread::{self, begin, finish, outside};
use crate::{contention, process};
use libc::pid_t;
use trodden_wire::waits::{Function, kind};

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
    let Some(thread) = outside() else { return call() };
    let open = begin(thread, kind::FORK, Function::fork);
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
