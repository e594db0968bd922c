//! The image's lock: at most one holder, no lost wake-ups, and takeover from a thread that has ended.

use crate::lock::{self, Guard};
use crate::model::{exclusive, explore, step, system};
use shuttle::thread;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Number of threads that believe they hold the lock.
static INSIDE: AtomicU32 = AtomicU32::new(0);

fn hold() {
    let guard = Guard::take(|| false).expect("no thread waits so long that it gives up");
    inside();
    // A signal handler between the fork handlers takes the lock again; dropping that guard releases nothing.
    drop(Guard::take(|| false));
    inside();
    drop(guard);
}

fn inside() {
    assert_eq!(INSIDE.fetch_add(1, SeqCst), 0, "two threads hold the lock");
    step();
    INSIDE.fetch_sub(1, SeqCst);
}

/// Three threads each acquire the lock twice; no wait times out.
fn contended() {
    let threads: Vec<_> = (0..2).map(|_| thread::spawn(|| (0..2).for_each(|_| hold()))).collect();
    (0..2).for_each(|_| hold());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The first holder ends without releasing the lock, while others may already wait.
fn orphaned() {
    let holder = thread::spawn(|| {
        let _ = lock::acquire(|| false);
        inside();
        system::die();
    });
    let threads: Vec<_> = (0..2).map(|_| thread::spawn(hold)).collect();
    holder.join().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    hold();
}

#[test]
fn lock_is_exclusive_and_loses_no_wake_up() {
    let _alone = exclusive();
    system::WAITS_TIME_OUT.store(false, SeqCst);
    explore(4000, contended);
}

#[test]
fn timeouts_do_not_break_mutual_exclusion() {
    let _alone = exclusive();
    system::WAITS_TIME_OUT.store(true, SeqCst);
    explore(4000, contended);
}

#[test]
fn the_lock_of_a_thread_that_ended_is_taken_over() {
    let _alone = exclusive();
    system::WAITS_TIME_OUT.store(true, SeqCst);
    explore(4000, orphaned);
}
