//! Tests that threads lose no counts and leak no regions.

use crate::laboratory::Laboratory;
use std::time::Duration;

#[test]
fn sixty_four_threads_on_one_counter_lose_nothing() {
    let lab = Laboratory::new("threads");
    let source = r#"
        #include "subject.h"
        #include <pthread.h>
        static void *work(void *unused) { for (int i = 0; i < 100000; i++) { ENTER; COUNT(2); } return unused; }
        int main(void) {
            pthread_t t[64];
            for (int i = 0; i < 64; i++) pthread_create(&t[i], 0, work, 0);
            for (int i = 0; i < 64; i++) pthread_join(t[i], 0);
            return 0;
        }
    "#;
    let program = lab.program("program", source, &[]);
    lab.run(&program, "out/%m.raw");
    lab.run(&program, "out/%m.raw");
    let raw = lab.raw_file("out");
    assert_eq!(raw.count(2), 2 * 64 * 100_000);
    assert!(raw.regions.len() <= 65, "{} regions", raw.regions.len());
    lab.run(&program, "");
}

#[test]
fn ten_thousand_short_threads_share_few_regions() {
    let lab = Laboratory::new("short-threads");
    let source = r#"
        #include "subject.h"
        #include <pthread.h>
        static void *work(void *unused) { ENTER; COUNT(0); return unused; }
        int main(void) {
            for (int i = 0; i < 10000; i++) { pthread_t t; if (pthread_create(&t, 0, work, 0)) return 1; pthread_join(t, 0); }
            return 0;
        }
    "#;
    let program = lab.program("program", source, &[]);
    lab.run(&program, "out/%m.raw");
    let raw = lab.raw_file("out");
    assert_eq!(raw.count(0), 10_000);
    println!("{} regions", raw.regions.len());
    assert!(raw.regions.len() <= 16, "{} regions", raw.regions.len());
}

#[test]
fn waves_of_threads_reuse_regions() {
    let lab = Laboratory::new("waves");
    let source = r#"
        #include "subject.h"
        #include <pthread.h>
        static pthread_barrier_t together;
        static void *work(void *unused) { { ENTER; COUNT(0); } pthread_barrier_wait(&together); { ENTER; COUNT(1); } return unused; }
        int main(void) {
            for (int wave = 0; wave < 5; wave++) {
                pthread_t t[300];
                pthread_barrier_init(&together, 0, 300);
                for (int i = 0; i < 300; i++) if (pthread_create(&t[i], 0, work, 0)) return 1;
                for (int i = 0; i < 300; i++) pthread_join(t[i], 0);
            }
            return 0;
        }
    "#;
    let program = lab.program("program", source, &["-Wl,-z,stack-size=65536"]);
    lab.run(&program, "out/%m.raw");
    let raw = lab.raw_file("out");
    assert_eq!((raw.count(0), raw.count(1)), (1500, 1500));
    assert!(raw.regions.len() <= 2 * 300 + 16, "{} regions", raw.regions.len());
}

#[test]
fn signal_handlers_may_enter_at_any_time() {
    let lab = Laboratory::new("signals");
    // A program that creates threads and forks under frequent signals, whose handler counts.
    let source = r#"
        #include "subject.h"
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <sys/time.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static long handled;
        static void handler(int s) { ENTER; COUNT(1); __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST); (void)s; }
        static sigset_t storm;
        static void *work(void *unused) {
            pthread_sigmask(SIG_UNBLOCK, &storm, 0); /* only threads that have yet to enter are hit */
            { ENTER; COUNT(0); }
            pthread_sigmask(SIG_BLOCK, &storm, 0);
            return unused;
        }
        int main(void) {
            sigemptyset(&storm);
            sigaddset(&storm, SIGALRM);
            pthread_sigmask(SIG_BLOCK, &storm, 0);
            struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
            sigaction(SIGALRM, &action, 0);
            struct itimerval often = { { 0, 20 }, { 0, 20 } }, never = { { 0, 0 }, { 0, 0 } };
            setitimer(ITIMER_REAL, &often, 0);
            for (int i = 0; i < 2000; i++) {
                pthread_t t;
                if (pthread_create(&t, 0, work, 0)) return 1;
                pthread_join(t, 0);
                if (i % 20 == 0) { pid_t child = fork(); if (!child) _exit(0); waitpid(child, 0, 0); }
            }
            setitimer(ITIMER_REAL, &never, 0);
            printf("%ld", handled);
            return 0;
        }
    "#;
    let program = lab.program("program", source, &[]);
    let child = lab.command(&program, "out/%m.raw").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let output = wait_with_limit(child, Duration::from_secs(30));
    let handled: u64 = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    let raw = lab.raw_file("out");
    println!("{handled} signals");
    assert!(output.status.success() && handled > 0);
    assert_eq!((raw.count(0), raw.count(1)), (2000, handled));
    assert!(raw.regions.len() <= 16, "{} regions", raw.regions.len());
}

fn wait_with_limit(mut child: std::process::Child, limit: Duration) -> std::process::Output {
    let start = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > limit {
            child.kill().unwrap();
            panic!("the subject hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}
