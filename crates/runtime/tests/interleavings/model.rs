//! Replacements for those parts of the runtime that the lock and the chunks use.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets the scheduler choose which thread goes on.
pub fn let_scheduler_switch() {
    shuttle::sync::atomic::AtomicBool::new(false).load(shuttle::sync::atomic::Ordering::SeqCst);
}

/// Lets only one test run at a time, because the tested sources have static variables.
pub fn serialise_tests() -> MutexGuard<'static, ()> {
    static TEST_LOCK: Mutex<()> = Mutex::new(());
    TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a scenario in `schedules` random schedules, and in as many with few preemptions.
pub fn explore(schedules: usize, scenario: fn()) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = shuttle::MaxSteps::FailAfter(10_000_000);
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(scenario);
    Runner::new(PctScheduler::new(3, schedules), config).run(scenario);
}

/// Atomics that let the scheduler switch threads before each operation.
pub mod atomic {
    use super::let_scheduler_switch;
    pub use core::sync::atomic::Ordering;

    macro_rules! atomics {
        ($($name:ident of $number:ty),+) => {$(
            #[repr(transparent)]
            pub struct $name(pub core::sync::atomic::$name);

            #[allow(dead_code, reason = "each has what the other needs")]
            impl $name {
                pub const fn new(value: $number) -> $name {
                    $name(core::sync::atomic::$name::new(value))
                }

                /// # Safety
                /// The requirements of the function of that name in `core` apply.
                pub unsafe fn from_ptr<'a>(place: *mut $number) -> &'a $name {
                    // SAFETY: the caller guarantees what `core` requires, and both types have the same layout.
                    unsafe { &*place.cast::<$name>() }
                }

                pub fn as_ptr(&self) -> *mut $number {
                    self.0.as_ptr()
                }

                pub fn load(&self, order: Ordering) -> $number {
                    let_scheduler_switch();
                    self.0.load(order)
                }

                pub fn store(&self, value: $number, order: Ordering) {
                    let_scheduler_switch();
                    self.0.store(value, order);
                }

                pub fn swap(&self, value: $number, order: Ordering) -> $number {
                    let_scheduler_switch();
                    self.0.swap(value, order)
                }

                pub fn compare_exchange(&self, from: $number, to: $number, yes: Ordering, no: Ordering) -> Result<$number, $number> {
                    let_scheduler_switch();
                    self.0.compare_exchange(from, to, yes, no)
                }
            }
        )+};
    }

    atomics!(AtomicU32 of u32, AtomicBool of bool);
}

pub mod system {
    use shuttle::sync::{Condvar, Mutex};
    use shuttle::thread::yield_now;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Errno(i32);
    pub const ETIMEDOUT: Errno = Errno(110);
    const EAGAIN: Errno = Errno(11);

    /// Whether waits time out. If not, a lost wake-up is a deadlock, which shuttle reports.
    pub static WAITS_TIME_OUT: AtomicBool = AtomicBool::new(false);

    shuttle::lazy_static! {
        static ref FUTEX: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
        static ref ENDED_THREADS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    }

    pub fn futex_wait(word: *const u32, value: u32, _: i64) -> Result<(), Errno> {
        let guard = FUTEX.0.lock().unwrap();
        // SAFETY: the word is a static of the tested source.
        if unsafe { word.read_volatile() } != value {
            return Err(EAGAIN);
        }
        if WAITS_TIME_OUT.load(SeqCst) {
            drop(guard);
            yield_now();
            return Err(ETIMEDOUT);
        }
        drop(FUTEX.1.wait(guard).unwrap());
        Ok(())
    }

    pub fn futex_wake(_: *const u32) {
        let _guard = FUTEX.0.lock().unwrap();
        FUTEX.1.notify_one();
    }

    pub fn thread_id() -> u32 {
        usize::from(shuttle::current::me()) as u32 + 1
    }

    pub fn task_is_gone(thread: u32) -> bool {
        ENDED_THREADS.lock().unwrap().contains(&thread)
    }

    /// Ends the calling thread without releasing the locks that it holds.
    pub fn end_thread() {
        ENDED_THREADS.lock().unwrap().push(thread_id());
    }

    pub fn set_signal_mask(_: u64) -> u64 {
        0
    }

    pub fn process_id() -> u32 {
        1
    }

    pub fn parent_id() -> u32 {
        0
    }

    pub fn now_ns() -> u64 {
        1
    }

    pub fn sleep_ms(_: i64) {
        yield_now();
    }
}

/// The image, with an arbitrary address of its counters.
pub mod image {
    pub struct OwnImage {
        pub template: usize,
    }

    impl OwnImage {
        pub fn from_linker() -> OwnImage {
            OwnImage { template: 0x1000 }
        }
    }
}

pub mod state {
    use std::sync::Mutex;

    /// Regions that [`add_region`] can still provide.
    pub static SPARE_REGIONS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

    pub fn add_region() -> Option<usize> {
        SPARE_REGIONS.lock().unwrap().pop()
    }
}

/// The stream state of the only thread that writes.
pub mod stream {
    use super::atomic::AtomicU32;
    use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
    use trodden_wire::stream::{STREAM_HEADER_BYTES, ThreadStream};

    pub const HEADER_SIZE: usize = STREAM_HEADER_BYTES as usize;
    pub const WORD_SIZE: usize = 4;
    pub static FLIGHT_RECORDER_SLOT_COUNT: AtomicU32 = AtomicU32::new(0);
    pub static MAX_STREAM_REGIONS: AtomicU32 = AtomicU32::new(1);
    pub static MAX_RECORDER_WAIT_MS: AtomicU32 = AtomicU32::new(1);
    pub static STREAM: AtomicPtr<ThreadStream> = AtomicPtr::new(std::ptr::null_mut());

    pub fn thread_stream() -> Option<&'static mut ThreadStream> {
        // SAFETY: the address is that of the scenario's own stream, and only the writing thread uses the stream.
        unsafe { STREAM.load(SeqCst).as_mut() }
    }

    pub struct ShadowFrames;

    impl ShadowFrames {
        pub fn slots(&self) -> &[u32] {
            &[]
        }

        pub fn release(self) {}
    }
}
