//! Checks the image's lock: at most one holder, no lost wake-ups, and takeover from a thread that has ended.

use crate::lock::{self, Guard};
use crate::model::{explore, let_scheduler_switch, serialise_tests, system};
use shuttle::thread;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

static HOLDER_COUNT: AtomicU32 = AtomicU32::new(0);

fn hold_lock_reentrantly() {
    let guard = Guard::take_lock(|| false).expect("no thread waits so long that it gives up");
    assert_alone();
    // This is like a signal handler between the fork handlers. Dropping its guard must not release the lock.
    drop(Guard::take_lock(|| false));
    assert_alone();
    drop(guard);
}

fn assert_alone() {
    assert_eq!(HOLDER_COUNT.fetch_add(1, SeqCst), 0, "two threads hold the lock");
    let_scheduler_switch();
    HOLDER_COUNT.fetch_sub(1, SeqCst);
}

fn run_contended() {
    let threads: Vec<_> = (0..2).map(|_| thread::spawn(|| (0..2).for_each(|_| hold_lock_reentrantly()))).collect();
    (0..2).for_each(|_| hold_lock_reentrantly());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Lets the first holder end without releasing the lock, while other threads may already be waiting.
fn run_with_ended_holder() {
    let holder = thread::spawn(|| {
        let _ = lock::acquire_lock(|| false);
        assert_alone();
        system::end_thread();
    });
    let threads: Vec<_> = (0..2).map(|_| thread::spawn(hold_lock_reentrantly)).collect();
    holder.join().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    hold_lock_reentrantly();
}

#[test]
fn lock_is_exclusive_and_loses_no_wake_up() {
    let _alone = serialise_tests();
    system::WAITS_TIME_OUT.store(false, SeqCst);
    explore(4000, run_contended);
}

#[test]
fn timeouts_do_not_break_mutual_exclusion() {
    let _alone = serialise_tests();
    system::WAITS_TIME_OUT.store(true, SeqCst);
    explore(4000, run_contended);
}

#[test]
fn lock_is_taken_from_holder_that_ended() {
    let _alone = serialise_tests();
    system::WAITS_TIME_OUT.store(true, SeqCst);
    explore(4000, run_with_ended_holder);
}
