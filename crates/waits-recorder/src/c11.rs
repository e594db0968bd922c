//! C11 threads. The C library does not implement them with the exported POSIX functions, so they need wrappers of their own.

use crate::contention;
use crate::pthread::{
    ObjectAddress, create_thread, join_thread, locks, record_wait, record_wake, record_wake_if_awaited, start_thread, unlocks,
};
use crate::real::{RealFunction, real};
use core::ffi::{c_int, c_void};
use libc::{pthread_t, timespec};
use trodden_wire::waits::{CallName, kind};

/// The value of `thrd_busy`, which `mtx_trylock` returns if another thread holds the mutex.
const THRD_BUSY: c_int = 1;

locks! {
    THRD_BUSY;
    mtx_lock mtx_lock c"mtx_trylock" ();
    mtx_timedlock mtx_timedlock c"mtx_trylock" (until: *const timespec);
}
unlocks! { mtx_unlock }

macro_rules! condition_waits {
    ($($name:ident ($($argument:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(condition: ObjectAddress, mutex: ObjectAddress, $($argument: $type),*) -> c_int {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            record_wait(kind::CONDITION_WAIT, CallName::$name, condition, mutex as u64, || {
                contention::call_while_counted_as_waiting(mutex as usize, || {
                    real!(REAL_FUNCTION, fn(ObjectAddress, ObjectAddress, $($type),*) -> c_int, condition, mutex, $($argument),*)
                })
            })
        }
    )* };
}
condition_waits! {
    cnd_wait();
    cnd_timedwait(until: *const timespec);
}

macro_rules! wakes {
    ($($name:ident $amount:expr;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(condition: ObjectAddress) -> c_int {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            record_wake_if_awaited(condition, CallName::$name, $amount, || real!(REAL_FUNCTION, fn(ObjectAddress) -> c_int, condition))
        }
    )* };
}
wakes! {
    cnd_signal 1;
    cnd_broadcast u64::MAX;
}

type C11Routine = extern "C" fn(*mut c_void) -> c_int;

extern "C" fn run_c11_routine(start: *mut c_void) -> c_int {
    let (routine, argument) = start_thread::<C11Routine>(start);
    routine(argument)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(handle: *mut pthread_t, routine: C11Routine, argument: *mut c_void) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"thrd_create");
    let create = |routine: C11Routine, argument: *mut c_void| {
        real!(REAL_FUNCTION, fn(*mut pthread_t, C11Routine, *mut c_void) -> c_int, handle, routine, argument)
    };
    create_thread(CallName::thrd_create, handle, core::ptr::null(), (routine, run_c11_routine), argument, create)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_join(handle: pthread_t, result: *mut c_int) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"thrd_join");
    join_thread(CallName::thrd_join, handle, || real!(REAL_FUNCTION, fn(pthread_t, *mut c_int) -> c_int, handle, result))
}
