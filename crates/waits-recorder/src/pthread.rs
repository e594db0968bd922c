//! POSIX threads: locks that are contended, condition variables, barriers, semaphores, the beginning and end of threads.
//!
//! A lock is tried first. Only if another thread has it is the wait recorded, and only if a thread waits is the release.

use crate::caller::is_programs;
use crate::handles::Handles;
use crate::memory::{memory, release};
use crate::real::{Real, real};
use crate::thread::{self, OpenRecord, Thread, begin, finish, outside, unrecorded};
use crate::{contention, process, walk};
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use libc::{EBUSY, clockid_t, pthread_attr_t, pthread_t, sem_t, timespec};
use trodden_wire::waits::{CallName, kind};

pub type Object = *mut c_void;

/// A call that may wait for `object`.
#[inline]
pub fn waiting(kind: u16, function: CallName, object: Object, other: u64, call: impl FnOnce() -> c_int) -> c_int {
    let Some(thread) = outside() else { return call() };
    contention::begin(object as usize);
    let open = begin(thread, kind, function);
    let result = call();
    contention::end(object as usize);
    complete(thread, open, object, other, failure(result));
    result
}

/// What is kept of a result: 0, or the error's number.
fn failure(result: c_int) -> u64 {
    // SAFETY: reads the thread's own errno.
    if result == -1 { unsafe { *libc::__errno_location() as u64 } } else { result as u64 }
}

#[inline]
pub fn complete(thread: &mut Thread, open: Option<OpenRecord>, object: Object, other: u64, amount: u64) {
    let Some(mut open) = open else { return };
    let record = open.record();
    record.object = object as u64;
    record.request = other;
    record.amount = amount;
    finish(thread, open);
}

/// A call that lets others go on. Its record is complete before they do.
#[inline]
pub fn waking(kind: u16, function: CallName, object: Object, amount: u64, call: impl FnOnce() -> c_int) -> c_int {
    let Some(thread) = outside() else { return call() };
    let open = begin(thread, kind, function);
    complete(thread, open, object, 0, amount);
    unrecorded(thread, call)
}

/// Takers of locks: the name, that of the record, the function that only attempts it, and further arguments. `busy` is what that returns
/// when another thread has the lock.
macro_rules! locks {
    ($busy:ident; $($name:ident $function:ident $attempt:literal ($($argument:ident: $type:ty),*);)*) => { $(
        /// Takes a lock.
        ///
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: Object, $($argument: $type),*) -> c_int {
            static ATTEMPT: Real = Real::new($attempt);
            static REAL: Real = Real::new(crate::real::name!($name));
            let result = real!(ATTEMPT, fn(Object) -> c_int, lock);
            if result != $busy {
                return result;
            }
            waiting(kind::LOCK, CallName::$function, lock, 0, || real!(REAL, fn(Object, $($type),*) -> c_int, lock, $($argument),*))
        }
    )* };
}

macro_rules! unlocks {
    ($($name:ident)*) => { $(
        /// Releases a lock.
        ///
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: Object) -> c_int {
            static REAL: Real = Real::new(crate::real::name!($name));
            let call = || real!(REAL, fn(Object) -> c_int, lock);
            if contention::is_awaited(lock as usize) { waking(kind::UNLOCK, CallName::$name, lock, 1, call) } else { call() }
        }
    )* };
}
pub(crate) use {locks, unlocks};

locks! {
    EBUSY;
    pthread_mutex_lock pthread_mutex_lock c"pthread_mutex_trylock" ();
    pthread_mutex_timedlock pthread_mutex_timedlock c"pthread_mutex_trylock" (until: *const timespec);
    pthread_mutex_clocklock pthread_mutex_timedlock c"pthread_mutex_trylock" (clock: clockid_t, until: *const timespec);
    pthread_rwlock_rdlock pthread_rwlock_rdlock c"pthread_rwlock_tryrdlock" ();
    pthread_rwlock_wrlock pthread_rwlock_wrlock c"pthread_rwlock_trywrlock" ();
    pthread_rwlock_timedrdlock pthread_rwlock_timedrdlock c"pthread_rwlock_tryrdlock" (until: *const timespec);
    pthread_rwlock_timedwrlock pthread_rwlock_timedwrlock c"pthread_rwlock_trywrlock" (until: *const timespec);
    pthread_rwlock_clockrdlock pthread_rwlock_timedrdlock c"pthread_rwlock_tryrdlock" (clock: clockid_t, until: *const timespec);
    pthread_rwlock_clockwrlock pthread_rwlock_timedwrlock c"pthread_rwlock_trywrlock" (clock: clockid_t, until: *const timespec);
    pthread_spin_lock pthread_spin_lock c"pthread_spin_trylock" ();
}
unlocks! { pthread_mutex_unlock pthread_rwlock_unlock pthread_spin_unlock }

/// Waits for a condition variable, which releases the mutex: threads that wait for that are let go on.
macro_rules! condition_waits {
    ($($name:ident ($($argument:ident: $type:ty),*);)*) => { $(
        /// Waits for a condition variable.
        ///
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(condition: Object, mutex: Object, $($argument: $type),*) -> c_int {
            static REAL: Real = Real::versioned(crate::real::name!($name), c"GLIBC_2.3.2");
            waiting(kind::CONDITION_WAIT, CallName::$name, condition, mutex as u64, || {
                contention::during(mutex as usize, || {
                    real!(REAL, fn(Object, Object, $($type),*) -> c_int, condition, mutex, $($argument),*)
                })
            })
        }
    )* };
}
condition_waits! {
    pthread_cond_wait();
    pthread_cond_timedwait(until: *const timespec);
    pthread_cond_clockwait(clock: clockid_t, until: *const timespec);
}

/// Wakes one waiter.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(condition: Object) -> c_int {
    static REAL: Real = Real::versioned(c"pthread_cond_signal", c"GLIBC_2.3.2");
    wake(condition, CallName::pthread_cond_signal, 1, || real!(REAL, fn(Object) -> c_int, condition))
}

/// Wakes all waiters.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: Object) -> c_int {
    static REAL: Real = Real::versioned(c"pthread_cond_broadcast", c"GLIBC_2.3.2");
    wake(condition, CallName::pthread_cond_broadcast, u64::MAX, || real!(REAL, fn(Object) -> c_int, condition))
}

pub fn wake(condition: Object, function: CallName, amount: u64, call: impl FnOnce() -> c_int) -> c_int {
    if contention::is_awaited(condition as usize) { waking(kind::CONDITION_WAKE, function, condition, amount, call) } else { call() }
}

/// Threads that a barrier is for: the C library keeps it in the third word.
unsafe fn participants(barrier: Object) -> u64 {
    // SAFETY: glibc's `struct pthread_barrier`: in, current_round, count, shared, out.
    unsafe { u64::from(barrier.cast::<c_uint>().add(2).read()) }
}

/// Waits at a barrier.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: Object) -> c_int {
    static REAL: Real = Real::new(c"pthread_barrier_wait");
    let call = || real!(REAL, fn(Object) -> c_int, barrier);
    let Some(thread) = outside() else { return call() };
    // SAFETY: an initialised barrier, by the caller's contract.
    let count = unsafe { participants(barrier) };
    let open = begin(thread, kind::BARRIER, CallName::pthread_barrier_wait);
    let result = call();
    complete(thread, open, barrier, 0, count);
    result
}

macro_rules! semaphore_waits {
    ($($name:ident ($($argument:ident: $type:ty),*);)*) => { $(
        /// Takes a semaphore.
        ///
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(semaphore: *mut sem_t, $($argument: $type),*) -> c_int {
            static ATTEMPT: Real = Real::new(c"sem_trywait");
            static REAL: Real = Real::new(crate::real::name!($name));
            if real!(ATTEMPT, fn(*mut sem_t) -> c_int, semaphore) == 0 {
                return 0;
            }
            waiting(kind::SEMAPHORE_WAIT, CallName::$name, semaphore.cast(), 0, || {
                real!(REAL, fn(*mut sem_t, $($type),*) -> c_int, semaphore, $($argument),*)
            })
        }
    )* };
}
semaphore_waits! {
    sem_wait();
    sem_timedwait(until: *const timespec);
    sem_clockwait(clock: clockid_t, until: *const timespec);
}

/// Gives a semaphore.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_post(semaphore: *mut sem_t) -> c_int {
    static REAL: Real = Real::new(c"sem_post");
    waking(kind::SEMAPHORE_POST, CallName::sem_post, semaphore.cast(), 1, || real!(REAL, fn(*mut sem_t) -> c_int, semaphore))
}

type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

/// What a new thread needs to begin.
pub struct ThreadStart<R> {
    pub routine: R,
    pub argument: *mut c_void,
    pub token: u64,
    pub stack_size: usize,
}

const HANDLE_SLOTS: usize = 32_768;
/// Tokens of threads by their handles, for joins.
static HANDLES: Handles<HANDLE_SLOTS> = Handles::new(12);
static THREAD_TOKENS: [AtomicU64; HANDLE_SLOTS] = [const { AtomicU64::new(0) }; HANDLE_SLOTS];

pub extern "C" fn run(start: *mut c_void) -> *mut c_void {
    let (routine, argument) = begun::<Routine>(start);
    routine(argument)
}

/// Has the recording end when the thread does, however it does: by a key whose destructor runs then.
pub fn end_with_thread() {
    static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
    extern "C" fn ended(_: *mut c_void) {
        thread::unregister(CallName::pthread_exit);
    }
    if KEY.load(Ordering::Acquire) == u32::MAX {
        let mut key = 0;
        // SAFETY: makes a key.
        if unsafe {
            libc::pthread_key_create(
                &raw mut key,
                Some(core::mem::transmute::<extern "C" fn(*mut c_void), unsafe extern "C" fn(*mut c_void)>(ended)),
            )
        } == 0
        {
            // Another thread may have been first; its key serves as well.
            let _ = KEY.compare_exchange(u32::MAX, key, Ordering::AcqRel, Ordering::Acquire);
        }
    }
    // SAFETY: any value but null has the destructor run.
    unsafe { libc::pthread_setspecific(KEY.load(Ordering::Acquire), core::ptr::without_provenance(1)) };
}

/// Makes a thread.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    static REAL: Real = Real::new(c"pthread_create");
    let create = |routine: Routine, argument: *mut c_void| {
        real!(REAL, fn(*mut pthread_t, *const pthread_attr_t, Routine, *mut c_void) -> c_int, handle, attributes, routine, argument)
    };
    if !is_programs(walk::walk(0).addresses[0]) {
        return create(routine, argument);
    }
    made(CallName::pthread_create, handle, attributes, (routine, run), argument, create)
}

/// The call that makes a thread: it begins with `run`, which registers it, and continues with its routine.
pub fn made<R>(
    function: CallName,
    handle: *const pthread_t,
    attributes: *const pthread_attr_t,
    (routine, run): (R, R),
    argument: *mut c_void,
    create: impl FnOnce(R, *mut c_void) -> c_int,
) -> c_int {
    thread::register(0, 0);
    let Some(thread) = outside() else { return create(routine, argument) };
    let token = thread::token();
    let Some(start) = memory::<ThreadStart<R>>(1) else { return create(routine, argument) };
    // SAFETY: fresh memory of this size.
    unsafe { start.write(ThreadStart { routine, argument, token, stack_size: stack_size(attributes) }) };
    let open = begin(thread, kind::THREAD_CREATE, function);
    let result = create(run, start.cast());
    complete(thread, open, core::ptr::without_provenance_mut(token as usize), 0, result as u64);
    if result == 0 {
        // SAFETY: the call was successful, so the handle is there.
        if let Some(slot) = HANDLES.find_or_add(unsafe { *handle } as usize) {
            // The C library gives handles again, and the newest token counts.
            THREAD_TOKENS[slot].store(token, Ordering::Release);
        }
    } else {
        release(start, 1);
    }
    result
}

/// The size of the stack that these attributes give to a thread; null: the default ones.
fn stack_size(attributes: *const pthread_attr_t) -> usize {
    // SAFETY: plain data.
    let mut default: pthread_attr_t = unsafe { core::mem::zeroed() };
    let mut size = 0;
    // SAFETY: attributes of this function or of the caller of `pthread_create`.
    unsafe {
        if attributes.is_null() {
            libc::pthread_attr_init(&raw mut default);
        }
        libc::pthread_attr_getstacksize(if attributes.is_null() { &raw const default } else { attributes }, &raw mut size);
        if attributes.is_null() {
            libc::pthread_attr_destroy(&raw mut default);
        }
    }
    size
}

/// What a thread was given, when it begins: from now on it is recorded.
pub fn begun<R>(start: *mut c_void) -> (R, *mut c_void) {
    let place = start.cast::<ThreadStart<R>>();
    // SAFETY: `made` wrote it for this thread alone.
    let ThreadStart { routine, argument, token, stack_size } = unsafe { place.read() };
    if !process::is_sealed() {
        release(place, 1);
    }
    thread::register(token, stack_size);
    end_with_thread();
    (routine, argument)
}

/// The call that waits for a thread's end.
pub fn joined(function: CallName, handle: pthread_t, call: impl FnOnce() -> c_int) -> c_int {
    let Some(thread) = outside() else { return call() };
    // 0: unknown.
    let token = HANDLES.find(handle as usize).map_or(0, |slot| THREAD_TOKENS[slot].load(Ordering::Acquire));
    let mut open = begin(thread, kind::JOIN, function);
    let status = call();
    if let Some(open) = open.as_mut().filter(|_| status != 0) {
        // The thread goes on: nothing ended the wait but its time.
        open.record().kind = kind::BLOCKED;
    }
    complete(thread, open, core::ptr::without_provenance_mut(token as usize), 0, status as u64);
    status
}

/// Waits for a thread's end.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(handle: pthread_t, result: *mut *mut c_void) -> c_int {
    static REAL: Real = Real::new(c"pthread_join");
    joined(CallName::pthread_join, handle, || real!(REAL, fn(pthread_t, *mut *mut c_void) -> c_int, handle, result))
}

/// Waits for a thread's end, until a time.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_timedjoin_np(handle: pthread_t, result: *mut *mut c_void, until: *const timespec) -> c_int {
    static REAL: Real = Real::new(c"pthread_timedjoin_np");
    let call = || real!(REAL, fn(pthread_t, *mut *mut c_void, *const timespec) -> c_int, handle, result, until);
    joined(CallName::pthread_timedjoin_np, handle, call)
}

/// The same by a clock of the caller's choice.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_clockjoin_np(
    handle: pthread_t,
    result: *mut *mut c_void,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    static REAL: Real = Real::new(c"pthread_clockjoin_np");
    let call = || real!(REAL, fn(pthread_t, *mut *mut c_void, clockid_t, *const timespec) -> c_int, handle, result, clock, until);
    joined(CallName::pthread_clockjoin_np, handle, call)
}
