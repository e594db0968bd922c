//! Wrappers of library calls that block for reasons outside the recording: sleeps, signals, pipes, sockets. The report counts their time
//! neither as computation nor as a wait that it can explain.
//!
//! Calls that programs make often, such as `read`, are recorded only if they take long.

use crate::real::{RealFunction, real};
use crate::signals::call_without_sampler_signal;
use crate::thread::{begin_record, finish_record, record_if_long, recordable_thread};
use core::ffi::{c_int, c_long, c_uint, c_void};
use libc::{clockid_t, fd_set, nfds_t, pid_t, pollfd, sigset_t, timespec, timeval};
use trodden_wire::waits::{CallName, kind};

macro_rules! blocking_calls {
    ($($name:ident $kind:ident ($($argument:ident: $type:ty),*) -> $result:ty;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            record_blocking_call(kind::$kind, CallName::$name, || real!(REAL_FUNCTION, fn($($type),*) -> $result, $($argument),*))
        }
    )* };
}

/// A return type of blocking calls, which can be stored in the 64-bit field of a record.
trait BlockingCallResult {
    fn into_word(self) -> u64;
}
macro_rules! impl_blocked_result {
    ($($type:ty)*) => { $(
        impl BlockingCallResult for $type {
            fn into_word(self) -> u64 {
                self as u64
            }
        }
    )* };
}
impl_blocked_result! { c_int c_uint isize }

#[inline]
fn record_blocking_call<R: Copy + BlockingCallResult>(kind: u16, function: CallName, call: impl FnOnce() -> R) -> R {
    let Some(thread) = recordable_thread() else { return call() };
    let Some(mut open) = begin_record(thread, kind, function) else { return call() };
    let result = call();
    // SAFETY: the pointer refers to the calling thread's errno. It is saved because writing the record may change it.
    let error = unsafe { *libc::__errno_location() };
    open.record().object = result.into_word();
    finish_record(thread, open);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    result
}

/// Defines wrappers of functions like `sigwait`, which wait until one of a set of signals arrives.
macro_rules! signal_waits {
    ($($name:ident ($($argument:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(signals: *const sigset_t, $($argument: $type),*) -> c_int {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            // SAFETY: the caller of the C function passes null or a valid set.
            let signals = unsafe { signals.as_ref() };
            call_without_sampler_signal(signals, |signals| {
                record_blocking_call(kind::BLOCKED, CallName::$name, || {
                    real!(REAL_FUNCTION, fn(*const sigset_t, $($type),*) -> c_int, signals, $($argument),*)
                })
            })
        }
    )* };
}

signal_waits! {
    sigwait(signal: *mut c_int);
    sigwaitinfo(information: *mut c_void);
    sigtimedwait(information: *mut c_void, timeout: *const timespec);
}

macro_rules! record_if_long {
    ($($name:ident ($($argument:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> isize {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            let call = || real!(REAL_FUNCTION, fn($($type),*) -> isize, $($argument),*);
            match recordable_thread() {
                Some(thread) => record_if_long(thread, kind::BLOCKED, CallName::$name, call),
                None => call(),
            }
        }
    )* };
}

record_if_long! {
    read(file: c_int, buffer: *mut c_void, size: usize);
    readv(file: c_int, parts: *const c_void, count: c_int);
    write(file: c_int, buffer: *const c_void, size: usize);
    writev(file: c_int, parts: *const c_void, count: c_int);
    send(socket: c_int, buffer: *const c_void, size: usize, flags: c_int);
    sendto(socket: c_int, buffer: *const c_void, size: usize, flags: c_int, address: *const c_void, length: c_uint);
    sendmsg(socket: c_int, message: *const c_void, flags: c_int);
}

blocking_calls! {
    sleep BLOCKED (seconds: c_uint) -> c_uint;
    usleep BLOCKED (microseconds: c_uint) -> c_int;
    nanosleep BLOCKED (time: *const timespec, rest: *mut timespec) -> c_int;
    clock_nanosleep BLOCKED (clock: clockid_t, flags: c_int, time: *const timespec, rest: *mut timespec) -> c_int;
    poll BLOCKED (files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll BLOCKED (files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select BLOCKED (count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect BLOCKED (count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t) -> c_int;
    epoll_wait BLOCKED (poll: c_int, events: *mut c_void, count: c_int, timeout: c_int) -> c_int;
    epoll_pwait BLOCKED (poll: c_int, events: *mut c_void, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    recv BLOCKED (socket: c_int, buffer: *mut c_void, size: usize, flags: c_int) -> isize;
    recvfrom BLOCKED (socket: c_int, buffer: *mut c_void, size: usize, flags: c_int, address: *mut c_void, length: *mut c_void) -> isize;
    recvmsg BLOCKED (socket: c_int, message: *mut c_void, flags: c_int) -> isize;
    accept BLOCKED (socket: c_int, address: *mut c_void, length: *mut c_void) -> c_int;
    accept4 BLOCKED (socket: c_int, address: *mut c_void, length: *mut c_void, flags: c_int) -> c_int;
    semop BLOCKED (set: c_int, operations: *mut c_void, count: usize) -> c_int;
    semtimedop BLOCKED (set: c_int, operations: *mut c_void, count: usize, timeout: *const timespec) -> c_int;
    mq_send BLOCKED (queue: c_int, buffer: *const c_void, size: usize, priority: c_uint) -> c_int;
    mq_timedsend BLOCKED (queue: c_int, buffer: *const c_void, size: usize, priority: c_uint, until: *const timespec) -> c_int;
    mq_receive BLOCKED (queue: c_int, buffer: *mut c_void, size: usize, priority: *mut c_uint) -> isize;
    mq_timedreceive BLOCKED (queue: c_int, buffer: *mut c_void, size: usize, priority: *mut c_uint, until: *const timespec) -> isize;
    msgsnd BLOCKED (queue: c_int, message: *const c_void, size: usize, flags: c_int) -> c_int;
    msgrcv BLOCKED (queue: c_int, message: *mut c_void, size: usize, kind: c_long, flags: c_int) -> isize;
    sigsuspend BLOCKED (mask: *const sigset_t) -> c_int;
    pause BLOCKED () -> c_int;
    flock BLOCKED (file: c_int, operation: c_int) -> c_int;
    lockf BLOCKED (file: c_int, operation: c_int, size: c_long) -> c_int;
    fsync BLOCKED (file: c_int) -> c_int;
    fdatasync BLOCKED (file: c_int) -> c_int;
    wait PROCESS_WAIT (status: *mut c_int) -> pid_t;
    waitpid PROCESS_WAIT (process: pid_t, status: *mut c_int, options: c_int) -> pid_t;
    wait3 PROCESS_WAIT (status: *mut c_int, options: c_int, usage: *mut c_void) -> pid_t;
    wait4 PROCESS_WAIT (process: pid_t, status: *mut c_int, options: c_int, usage: *mut c_void) -> pid_t;
}
