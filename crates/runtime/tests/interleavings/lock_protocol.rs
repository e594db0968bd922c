//! The image's lock: one holder at a time, no wake-up is lost, and the lock of a thread that has ended is taken over.

use crate::lock::{self, Guard};
use crate::model::{alone, explore, step, system};
use shuttle::thread;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Threads that believe to hold the lock.
static INSIDE: AtomicU32 = AtomicU32::new(0);

fn hold() {
    let guard = Guard::take(|| false).expect("no thread waits that long");
    inside();
    // A signal handler between the fork handlers takes it again, which gives nothing back.
    drop(Guard::take(|| false));
    inside();
    drop(guard);
}

fn inside() {
    assert_eq!(INSIDE.fetch_add(1, SeqCst), 0, "two threads hold the lock");
    step();
    INSIDE.fetch_sub(1, SeqCst);
}

/// Three threads, each twice; no wait ends for want of time.
fn contended() {
    let threads: Vec<_> = (0..2).map(|_| thread::spawn(|| (0..2).for_each(|_| hold()))).collect();
    (0..2).for_each(|_| hold());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The first holder ends without giving the lock back, while others may wait already.
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
fn one_thread_holds_the_lock_and_no_wake_up_is_lost() {
    let _alone = alone();
    system::ARE_WAITS_LIMITED.store(false, SeqCst);
    explore(4000, contended);
}

#[test]
fn waits_that_end_for_want_of_time_change_nothing() {
    let _alone = alone();
    system::ARE_WAITS_LIMITED.store(true, SeqCst);
    explore(4000, contended);
}

#[test]
fn the_lock_of_a_thread_that_ended_is_taken_over() {
    let _alone = alone();
    system::ARE_WAITS_LIMITED.store(true, SeqCst);
    explore(4000, orphaned);
}
