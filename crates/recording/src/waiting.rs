//! Measures how long processes wait for a processor.

use std::collections::BTreeMap;
use std::path::Path;

/// Scheduler statistics for the threads of some processes.
#[derive(Debug, Default)]
pub struct SchedulerWaitingTime {
    /// For each thread, by ID, its times when it was first seen and when it was last seen.
    threads: BTreeMap<u64, (SchedulerTimes, SchedulerTimes)>,
}

/// Time that a thread has executed, and time that it has waited for a processor, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SchedulerTimes {
    executed: u64,
    waited: u64,
}

impl SchedulerWaitingTime {
    /// Updates the times of a process's threads. Does nothing if the process has ended or the system has no `schedstat` files.
    pub fn update(&mut self, process: u64) {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return };
        for thread in threads.flatten() {
            let id = thread.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some((id, times)) = id.zip(read_times(&thread.path())) {
                self.threads.entry(id).or_insert((times, times)).1 = times;
            }
        }
    }

    /// Returns the time that threads waited for a processor as a fraction of the time that they were runnable; 0 if unknown.
    pub fn waiting_share(&self) -> f64 {
        let gained = |of: fn(&SchedulerTimes) -> u64| {
            self.threads.values().map(|(first, last)| of(last).saturating_sub(of(first))).sum::<u64>() as f64
        };
        let (executed, waited) = (gained(|t| t.executed), gained(|t| t.waited));
        if executed + waited > 0.0 { waited / (executed + waited) } else { 0.0 }
    }
}

/// Parses `/proc/PID/task/TID/schedstat`: time executed, time waited, and number of time slices.
fn read_times(thread: &Path) -> Option<SchedulerTimes> {
    let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    let mut numbers = text.split_ascii_whitespace().map_while(|n| n.parse().ok());
    Some(SchedulerTimes { executed: numbers.next()?, waited: numbers.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_computed_from_differences() {
        let mut waiting = SchedulerWaitingTime::default();
        waiting.threads.insert(1, (SchedulerTimes { executed: 100, waited: 50 }, SchedulerTimes { executed: 300, waited: 150 }));
        waiting.threads.insert(2, (SchedulerTimes { executed: 0, waited: 0 }, SchedulerTimes { executed: 100, waited: 0 }));
        assert_eq!(waiting.waiting_share(), 0.25);
        assert_eq!(SchedulerWaitingTime::default().waiting_share(), 0.0);
    }

    #[test]
    fn own_process_has_times() {
        let mut waiting = SchedulerWaitingTime::default();
        waiting.update(std::process::id().into());
        assert!(!waiting.threads.is_empty());
        waiting.update(u64::MAX);
    }
}
