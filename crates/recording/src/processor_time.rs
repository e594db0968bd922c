//! Measures the exact processor time of sampled programs while they run.
//!
//! A process can read the CPU clock of another process only as of the last timer tick, and ticks are longer than bursts. The task clock, a
//! software event of perf_event_open(2), is updated whenever it is read. It needs no privileges if `kernel.perf_event_paranoid` is at most
//! 2.

use perf_event::events::Software;
use perf_event::{Builder, Counter};
use std::collections::BTreeSet;
use std::fs;

/// The task clocks of some processes. Each clock includes the process's threads and the child processes that it creates.
#[derive(Debug, Default)]
pub struct ProcessorTime {
    processes: BTreeSet<u64>,
    clocks: Vec<(u64, Counter)>,
    /// Total time of clocks that have been closed, in nanoseconds.
    ended_ns: u64,
}

/// If more clocks than this are open, those of ended processes are closed, because the default limit on file descriptors is 1,024.
const MAX_CLOCKS_BEFORE_CLEANUP: usize = 128;

impl ProcessorTime {
    /// Measures a process from now on, unless its own clock or that of an ancestor is already open. Does nothing if the system forbids it.
    pub fn add(&mut self, process: u64) {
        if self.processes.contains(&process) || self.includes_parent_of(process) {
            return;
        }
        self.processes.insert(process);
        if self.clocks.len() >= MAX_CLOCKS_BEFORE_CLEANUP {
            self.close_clocks_of_ended_processes();
        }
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let clock = Builder::new(Software::TASK_CLOCK).observe_pid(thread).any_cpu().inherit(true).enabled(true).build();
            self.clocks.extend(clock.ok().map(|clock| (process, clock)));
        }
    }

    fn close_clocks_of_ended_processes(&mut self) {
        let (running, ended) = std::mem::take(&mut self.clocks).into_iter().partition(|(process, _)| parent_of(*process).is_some());
        self.clocks = running;
        for (process, mut clock) in ended {
            self.ended_ns += clock.read().unwrap_or(0);
            self.processes.remove(&process);
        }
    }

    /// Returns true if an ancestor's clock includes the process.
    fn includes_parent_of(&self, process: u64) -> bool {
        std::iter::successors(parent_of(process), |process| parent_of(*process)).any(|parent| self.processes.contains(&parent))
    }

    /// Returns the processes' time since each was added, in nanoseconds; `None` if no process could be measured.
    pub fn total_ns(&mut self) -> Option<u64> {
        if self.clocks.is_empty() && self.ended_ns == 0 {
            return None;
        }
        let running: u64 = self.clocks.iter_mut().map(|(_, clock)| clock.read().unwrap_or(0)).sum();
        Some(self.ended_ns + running)
    }
}

/// Returns the parent of a process, or `None` if the process has ended or has no parent.
fn parent_of(process: u64) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok().filter(|parent| *parent > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_running_process_is_exact() {
        let mut time = ProcessorTime::default();
        assert_eq!(time.total_ns(), None);
        time.add(std::process::id().into());
        let Some(before) = time.total_ns() else {
            eprintln!("skipped: perf_event_open(2) is forbidden here");
            return;
        };
        let clock = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).map(std::time::Duration::from).unwrap();
        let began = clock();
        while (clock() - began).as_micros() < 3_000 {}
        let gained = time.total_ns().unwrap() - before;
        assert!(gained >= 3_000_000, "{gained}");
    }
}
