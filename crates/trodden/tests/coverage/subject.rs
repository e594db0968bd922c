//! A program with `match`, errors, caught panics, threads, closures, and a function that is never called.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static COUNT: AtomicU32 = AtomicU32::new(0);

fn grade(n: u64) -> &'static str {
    match n % 7 {
        0 => "zero",
        1 | 2 => "low",
        3 if n > 1000 => "high",
        _ => "rest",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    A(u32),
    B,
}

fn parse(s: &str) -> Result<u32, std::num::ParseIntError> {
    let n: u32 = s.parse()?;
    Ok(if n > 3 && n != 7 { n } else { 1 })
}

fn never() -> u32 {
    5
}

struct Counted(u32);

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0 > 2 {
            COUNT.fetch_add(1, Relaxed);
        }
    }
}

fn boom(n: u32) -> u32 {
    let _counted = Counted(n);
    if n == 4 {
        panic!("four")
    }
    n + 1
}

fn main() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for n in 0..5_000u64 {
        *counts.entry(grade(n)).or_default() += 1;
    }
    let work = |t: u64| move || (0..1000 * t).filter(|n| n % 3 == 0 || n % 5 == 1).count();
    let handles: Vec<_> = (0..4).map(|t| std::thread::spawn(work(t))).collect();
    let total: usize = handles.into_iter().map(|h| h.join().unwrap()).sum();
    let good = ["1", "7", "x", "12"].iter().filter_map(|s| parse(s).ok()).sum::<u32>();
    let mut s = 0;
    for n in 0..6 {
        s += std::panic::catch_unwind(|| boom(n)).unwrap_or(100);
    }
    let mut kinds = vec![Kind::B, Kind::A(3), Kind::A(1)];
    kinds.sort();
    if let Some(Kind::A(x)) = kinds.first() {
        s += x;
    }
    println!("{counts:?} {total} {good} {s} {kinds:?} {}", COUNT.load(Relaxed));
    if total > 1_000_000 {
        println!("{}", never());
    }
    std::process::exit(0)
}
