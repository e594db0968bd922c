//! Measures the time and memory needed to aggregate the reports of many users.
//!
//! `cargo run --release --package trodden-analysis --example field_reports -- [REPORTS [USERS [MIB [PATHS]]]]`:
//! generates REPORTS reports (default 1,000,000) of USERS users (10,000) in a temporary file, aggregates them with MIB (256) MiB of memory
//! for sorting, and prints the time, the peak memory and the number of paths. A report has PATHS (20) paths on average, drawn from a power
//! law over 200,000 paths in 400 units of 4 builds. The result is checked against sums computed during generation.

use std::collections::HashSet;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;
use trodden_analysis::field::aggregate::{AggregateLimits, FieldReportAggregator};
use trodden_analysis::field::{FieldReport, UnitReport, hash_user};
use trodden_unit::Identity;

const BUILDS: u64 = 4;
const UNITS: u64 = 100;
const PATHS: u64 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let mut next = |default| numbers.next().unwrap_or(Ok(default));
    let (reports, users, mib, mean) = (next(1_000_000)?, next(10_000)?, next(256)?, next(20)?);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("all.field");
    let clock = Instant::now();
    let expected = generate(&file, reports, users.max(1), mean.max(1))?;
    let bytes = fs::metadata(&file)?.len();
    println!("{reports} reports of {users} users: {:.0} MB, generated in {:.1} s", bytes as f64 / 1e6, clock.elapsed().as_secs_f64());
    reset_peak();
    let clock = Instant::now();
    let mut aggregator = FieldReportAggregator::new(AggregateLimits { memory: (mib as usize) << 20, paths: 10, users: 3 });
    aggregator.add_file(&file)?;
    let mut found = ReportSums::default();
    let sums = aggregator.finish_aggregation(&mut |row| {
        found.rows += row.reports;
        found.executions += row.count;
        Ok(())
    })?;
    println!("aggregated in {:.1} s, peak memory {} MB", clock.elapsed().as_secs_f64(), peak_kib() / 1024);
    println!("{} rows became {} paths; the first was seen by {} users", found.rows, sums.paths, sums.top.first().map_or(0, |p| p.users));
    let same = (sums.reports, found.rows, found.executions, sums.paths);
    assert_eq!(same, (reports, expected.rows, expected.executions, expected.paths.len() as u64), "sums are wrong");
    Ok(())
}

#[derive(Default)]
struct ReportSums {
    rows: u64,
    executions: u64,
    paths: HashSet<u64>,
}

fn generate(file: &Path, reports: u64, users: u64, mean: u64) -> std::io::Result<ReportSums> {
    let mut out = BufWriter::new(File::create(file)?);
    let (mut sums, mut state) = (ReportSums::default(), 1u64);
    let mut random = move || {
        // Pseudo-random generator: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    for _ in 0..reports {
        let user = hash_user(&(random() % users).to_string());
        let build = random() % BUILDS;
        let mut paths: Vec<u64> = (0..1 + random() % (2 * mean - 1))
            .map(|_| {
                // Log-uniform: half of the probability mass is on the first few hundred paths.
                let unit = (random() >> 11) as f64 / (1u64 << 53) as f64;
                ((UNITS * PATHS) as f64).powf(unit) as u64 - 1
            })
            .collect();
        paths.sort_unstable();
        paths.dedup();
        let mut units: Vec<UnitReport> = Vec::new();
        for path in paths {
            let identity = |kind: u64, number: u64| Identity((u128::from(kind) << 64 | u128::from(number)).to_le_bytes());
            let (image, unit) = (identity(1, build), identity(2 + build, path / PATHS));
            let count = 1 + (random() % 1000) * (random() % 1000) / 1000;
            if units.last().is_none_or(|u| u.unit != unit) {
                units.push(UnitReport { image, unit, counts: Vec::new() });
            }
            units.last_mut().expect("one was pushed").counts.push((path % PATHS, count));
            sums.rows += 1;
            sums.executions += count;
            sums.paths.insert(build * UNITS * PATHS + path);
        }
        FieldReport { user, units }.write_to(&mut out)?;
    }
    out.flush()?;
    Ok(sums)
}

/// Resets the peak resident set size (proc_pid_clear_refs(5)), if the kernel supports it.
fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
