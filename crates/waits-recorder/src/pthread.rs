//! POSIX threads: locks, condition variables, barriers, semaphores, and the start and end of threads.
//!
//! Each wrapper of a lock first tries to acquire the lock without waiting. A wait is recorded only if another thread holds the lock, and a
//! release only if another thread waits for the lock.

use crate::caller::is_program_code;
use crate::handles::HandleTable;
use crate::memory::{map_private, unmap_elements};
use crate::real::{RealFunction, real};
use crate::thread::{self, OpenRecord, Thread, begin_record, finish_record, recordable_thread, run_unrecorded};
use crate::{contention, process, walk};
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use libc::{EBUSY, clockid_t, pthread_attr_t, pthread_t, sem_t, timespec};
use trodden_wire::waits::{CallName, kind};

pub type ObjectAddress = *mut c_void;

/// Makes a call that may wait for `object`, and records it.
#[inline]
pub fn record_wait(kind: u16, function: CallName, object: ObjectAddress, other: u64, call: impl FnOnce() -> c_int) -> c_int {
    let Some(thread) = recordable_thread() else { return call() };
    contention::begin_wait(object as usize);
    let open = begin_record(thread, kind, function);
    let result = call();
    contention::end_wait(object as usize);
    fill_and_finish_record(thread, open, object, other, recorded_result(result));
    result
}

/// Converts a result to the form that is recorded: 0 or an error number.
fn recorded_result(result: c_int) -> u64 {
    // SAFETY: `__errno_location` points to the calling thread's errno.
    if result == -1 { unsafe { *libc::__errno_location() as u64 } } else { result as u64 }
}

#[inline]
pub fn fill_and_finish_record(thread: &mut Thread, open: Option<OpenRecord>, object: ObjectAddress, other: u64, amount: u64) {
    let Some(mut open) = open else { return };
    let record = open.record();
    record.object = object as u64;
    record.request = other;
    record.size_or_count = amount;
    finish_record(thread, open);
}

/// Makes a call that may let waiting threads continue, and records it. The record is completed before the call, because those threads may
/// continue at once.
#[inline]
pub fn record_wake(kind: u16, function: CallName, object: ObjectAddress, amount: u64, call: impl FnOnce() -> c_int) -> c_int {
    let Some(thread) = recordable_thread() else { return call() };
    let open = begin_record(thread, kind, function);
    fill_and_finish_record(thread, open, object, 0, amount);
    run_unrecorded(thread, call)
}

/// Defines wrappers of functions that acquire a lock. A row contains the function's name, its name in the record, the corresponding `try`
/// function, and the arguments after the lock. The `try` function returns `$busy` if another thread holds the lock.
macro_rules! locks {
    ($busy:ident; $($name:ident $function:ident $attempt:literal ($($argument:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: ObjectAddress, $($argument: $type),*) -> c_int {
            static ATTEMPT: RealFunction = RealFunction::new($attempt);
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            let result = real!(ATTEMPT, fn(ObjectAddress) -> c_int, lock);
            if result != $busy {
                return result;
            }
            let call = || real!(REAL_FUNCTION, fn(ObjectAddress, $($type),*) -> c_int, lock, $($argument),*);
            record_wait(kind::LOCK, CallName::$function, lock, 0, call)
        }
    )* };
}

macro_rules! unlocks {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: ObjectAddress) -> c_int {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            let call = || real!(REAL_FUNCTION, fn(ObjectAddress) -> c_int, lock);
            if contention::is_awaited(lock as usize) { record_wake(kind::UNLOCK, CallName::$name, lock, 1, call) } else { call() }
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

/// Defines wrappers of waits for a condition variable. Such a wait also releases a mutex, so it may let threads that wait for the mutex
/// continue.
macro_rules! condition_waits {
    ($($name:ident ($($argument:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(condition: ObjectAddress, mutex: ObjectAddress, $($argument: $type),*) -> c_int {
            static REAL_FUNCTION: RealFunction = RealFunction::versioned(crate::real::name!($name), c"GLIBC_2.3.2");
            record_wait(kind::CONDITION_WAIT, CallName::$name, condition, mutex as u64, || {
                contention::call_while_counted_as_waiting(mutex as usize, || {
                    real!(REAL_FUNCTION, fn(ObjectAddress, ObjectAddress, $($type),*) -> c_int, condition, mutex, $($argument),*)
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(condition: ObjectAddress) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::versioned(c"pthread_cond_signal", c"GLIBC_2.3.2");
    record_wake_if_awaited(condition, CallName::pthread_cond_signal, 1, || real!(REAL_FUNCTION, fn(ObjectAddress) -> c_int, condition))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: ObjectAddress) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::versioned(c"pthread_cond_broadcast", c"GLIBC_2.3.2");
    record_wake_if_awaited(condition, CallName::pthread_cond_broadcast, u64::MAX, || {
        real!(REAL_FUNCTION, fn(ObjectAddress) -> c_int, condition)
    })
}

pub fn record_wake_if_awaited(condition: ObjectAddress, function: CallName, amount: u64, call: impl FnOnce() -> c_int) -> c_int {
    if contention::is_awaited(condition as usize) { record_wake(kind::CONDITION_WAKE, function, condition, amount, call) } else { call() }
}

/// Returns the number of threads that must arrive at a barrier.
unsafe fn barrier_participants(barrier: ObjectAddress) -> u64 {
    // SAFETY: by the caller's contract, `barrier` points to glibc's `struct pthread_barrier`, whose fields are `in`, `current_round`,
    // `count`, `shared` and `out`.
    unsafe { u64::from(barrier.cast::<c_uint>().add(2).read()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: ObjectAddress) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"pthread_barrier_wait");
    let call = || real!(REAL_FUNCTION, fn(ObjectAddress) -> c_int, barrier);
    let Some(thread) = recordable_thread() else { return call() };
    // SAFETY: by the caller's contract, the barrier is initialised.
    let count = unsafe { barrier_participants(barrier) };
    let open = begin_record(thread, kind::BARRIER, CallName::pthread_barrier_wait);
    let result = call();
    fill_and_finish_record(thread, open, barrier, 0, count);
    result
}

macro_rules! semaphore_waits {
    ($($name:ident ($($argument:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(semaphore: *mut sem_t, $($argument: $type),*) -> c_int {
            static ATTEMPT: RealFunction = RealFunction::new(c"sem_trywait");
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            if real!(ATTEMPT, fn(*mut sem_t) -> c_int, semaphore) == 0 {
                return 0;
            }
            record_wait(kind::SEMAPHORE_WAIT, CallName::$name, semaphore.cast(), 0, || {
                real!(REAL_FUNCTION, fn(*mut sem_t, $($type),*) -> c_int, semaphore, $($argument),*)
            })
        }
    )* };
}
semaphore_waits! {
    sem_wait();
    sem_timedwait(until: *const timespec);
    sem_clockwait(clock: clockid_t, until: *const timespec);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_post(semaphore: *mut sem_t) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"sem_post");
    record_wake(kind::SEMAPHORE_POST, CallName::sem_post, semaphore.cast(), 1, || real!(REAL_FUNCTION, fn(*mut sem_t) -> c_int, semaphore))
}

type PthreadRoutine = extern "C" fn(*mut c_void) -> *mut c_void;

/// Passed from the creator of a thread to the new thread.
pub struct ThreadStart<R> {
    pub routine: R,
    pub argument: *mut c_void,
    pub token: u64,
    pub stack_size: usize,
}

const THREAD_HANDLE_SLOTS: usize = 32_768;
/// Maps handles of threads to slots of [`THREAD_TOKENS`]. A join finds the token of the thread that it waits for there.
static THREAD_HANDLES: HandleTable<THREAD_HANDLE_SLOTS> = HandleTable::new(12);
static THREAD_TOKENS: [AtomicU64; THREAD_HANDLE_SLOTS] = [const { AtomicU64::new(0) }; THREAD_HANDLE_SLOTS];

pub extern "C" fn run_pthread_routine(start: *mut c_void) -> *mut c_void {
    let (routine, argument) = start_thread::<PthreadRoutine>(start);
    routine(argument)
}

/// Arranges that the recording of the calling thread ends when the thread ends. This uses the destructor of a thread-specific key.
pub fn unregister_at_thread_end() {
    static THREAD_END_KEY: AtomicU32 = AtomicU32::new(u32::MAX);
    extern "C" fn ended(_: *mut c_void) {
        thread::unregister_current_thread(CallName::pthread_exit);
    }
    if THREAD_END_KEY.load(Ordering::Acquire) == u32::MAX {
        let mut key = 0;
        // SAFETY: the pointer refers to a local variable, and the destructor has the required signature.
        if unsafe {
            libc::pthread_key_create(
                &raw mut key,
                Some(core::mem::transmute::<extern "C" fn(*mut c_void), unsafe extern "C" fn(*mut c_void)>(ended)),
            )
        } == 0
        {
            // If another thread has created a key first, that key is used.
            let _ = THREAD_END_KEY.compare_exchange(u32::MAX, key, Ordering::AcqRel, Ordering::Acquire);
        }
    }
    // SAFETY: the value is never dereferenced. It only has to be non-null, because the destructor does not run for a null value.
    unsafe { libc::pthread_setspecific(THREAD_END_KEY.load(Ordering::Acquire), core::ptr::without_provenance(1)) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: PthreadRoutine,
    argument: *mut c_void,
) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"pthread_create");
    let create = |routine: PthreadRoutine, argument: *mut c_void| {
        real!(
            REAL_FUNCTION,
            fn(*mut pthread_t, *const pthread_attr_t, PthreadRoutine, *mut c_void) -> c_int,
            handle,
            attributes,
            routine,
            argument
        )
    };
    if !is_program_code(walk::unwind_stack(0).addresses[0]) {
        return create(routine, argument);
    }
    create_thread(CallName::pthread_create, handle, attributes, (routine, run_pthread_routine), argument, create)
}

/// Makes a call that creates a thread, and records it. The new thread starts in the function `run`, which registers the thread and then
/// calls the program's `routine`.
pub fn create_thread<R>(
    function: CallName,
    handle: *const pthread_t,
    attributes: *const pthread_attr_t,
    (routine, run): (R, R),
    argument: *mut c_void,
    create: impl FnOnce(R, *mut c_void) -> c_int,
) -> c_int {
    thread::register_current_thread(0, 0);
    let Some(thread) = recordable_thread() else { return create(routine, argument) };
    let token = thread::create_thread_token();
    let Some(start) = map_private::<ThreadStart<R>>(1) else { return create(routine, argument) };
    // SAFETY: the memory was mapped for one value of this type, and nothing else refers to it yet.
    unsafe { start.write(ThreadStart { routine, argument, token, stack_size: stack_size(attributes) }) };
    let open = begin_record(thread, kind::THREAD_CREATE, function);
    let result = create(run, start.cast());
    fill_and_finish_record(thread, open, core::ptr::without_provenance_mut(token as usize), 0, result as u64);
    if result == 0 {
        // SAFETY: the call was successful, so it has stored the handle.
        if let Some(slot) = THREAD_HANDLES.find_or_add(unsafe { *handle } as usize) {
            // The C library reuses the handles of ended threads, so the newest token replaces an older one.
            THREAD_TOKENS[slot].store(token, Ordering::Release);
        }
    } else {
        unmap_elements(start, 1);
    }
    result
}

/// Returns the stack size in bytes of a thread that is created with the given attributes, or with the default attributes if they are null.
fn stack_size(attributes: *const pthread_attr_t) -> usize {
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut default: pthread_attr_t = unsafe { core::mem::zeroed() };
    let mut size = 0;
    // SAFETY: the attributes were initialised here, or by the program that calls `pthread_create`.
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

/// Starts the recording of the calling thread, which is new. Returns the program's routine and argument that [`create_thread`] passed.
pub fn start_thread<R>(start: *mut c_void) -> (R, *mut c_void) {
    let place = start.cast::<ThreadStart<R>>();
    // SAFETY: `create_thread` wrote the structure for this thread, and nothing else uses it.
    let ThreadStart { routine, argument, token, stack_size } = unsafe { place.read() };
    if !process::is_recording_sealed() {
        unmap_elements(place, 1);
    }
    thread::register_current_thread(token, stack_size);
    unregister_at_thread_end();
    (routine, argument)
}

/// Makes a call that waits until a thread ends, and records it.
pub fn join_thread(function: CallName, handle: pthread_t, call: impl FnOnce() -> c_int) -> c_int {
    let Some(thread) = recordable_thread() else { return call() };
    // 0 is recorded if the thread was created without this library's knowledge.
    let token = THREAD_HANDLES.find(handle as usize).map_or(0, |slot| THREAD_TOKENS[slot].load(Ordering::Acquire));
    let mut open = begin_record(thread, kind::JOIN, function);
    let status = call();
    if let Some(open) = open.as_mut().filter(|_| status != 0) {
        // The call failed or timed out, so the thread has not ended.
        open.record().kind = kind::BLOCKED;
    }
    fill_and_finish_record(thread, open, core::ptr::without_provenance_mut(token as usize), 0, status as u64);
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(handle: pthread_t, result: *mut *mut c_void) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"pthread_join");
    join_thread(CallName::pthread_join, handle, || real!(REAL_FUNCTION, fn(pthread_t, *mut *mut c_void) -> c_int, handle, result))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_timedjoin_np(handle: pthread_t, result: *mut *mut c_void, until: *const timespec) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"pthread_timedjoin_np");
    let call = || real!(REAL_FUNCTION, fn(pthread_t, *mut *mut c_void, *const timespec) -> c_int, handle, result, until);
    join_thread(CallName::pthread_timedjoin_np, handle, call)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_clockjoin_np(
    handle: pthread_t,
    result: *mut *mut c_void,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"pthread_clockjoin_np");
    let call = || real!(REAL_FUNCTION, fn(pthread_t, *mut *mut c_void, clockid_t, *const timespec) -> c_int, handle, result, clock, until);
    join_thread(CallName::pthread_clockjoin_np, handle, call)
}
