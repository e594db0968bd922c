//! Converts the time stamps (ticks) of all processes to a common time, in ns since the first event of the recording.
//!
//! All processes on a host use the same time-stamp counter. Its rate and offset are derived from the earliest and the latest anchor (a pair
//! of simultaneous times in ticks and in ns) of any process on the host. The clocks of different hosts are related by their time of day,
//! and [`crate::sync`] then corrects the differences.

use crate::recording::{Process, WaitsRecording};
use std::collections::BTreeMap;
use trodden_waits::offset::OffsetCurve;

/// Maximum time in ns that is accepted, about three months. Time stamps in corrupt records may have any value, but sums over all locations
/// must not overflow.
const MAX_ACCEPTED_TIME_NS: i128 = 1 << 53;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessClock {
    /// The ticks and the monotonic time in ns of the earliest anchor.
    ticks: u64,
    ns: u64,
    /// The rate of the clock: `elapsed_ns` nanoseconds pass in `elapsed_ticks` ticks.
    elapsed_ns: u64,
    elapsed_ticks: u64,
    /// Difference in ns between the time of day and the monotonic clock; 0 if there is only one host.
    offset_ns: i128,
    origin_ns: i128,
    /// Correction that is derived from messages between hosts. It is subtracted from the time.
    pub correction: OffsetCurve,
}

#[derive(Debug)]
pub struct ProcessClocks {
    pub clocks: Vec<ProcessClock>,
    /// Notes for the user on the clocks' accuracy.
    pub notes: Vec<String>,
}

impl ProcessClock {
    /// Converts ticks to the time in ns since the recording's first event.
    pub fn time_ns(&self, ticks: u64) -> u64 {
        (self.absolute_time_ns(ticks) - self.origin_ns).clamp(0, MAX_ACCEPTED_TIME_NS) as u64
    }

    /// Converts ticks to the time in ns on the host's clock, and applies the correction.
    pub fn absolute_time_ns(&self, ticks: u64) -> i128 {
        let distance = i128::from(ticks) - i128::from(self.ticks);
        let ns = i128::from(self.ns) + distance * i128::from(self.elapsed_ns) / i128::from(self.elapsed_ticks.max(1)) + self.offset_ns;
        ns - self.correction.at(ns)
    }
}

/// Derives the clock of each process from the anchors of all processes on its host.
pub fn derive_clocks(recording: &WaitsRecording) -> ProcessClocks {
    let mut hosts: BTreeMap<(&str, &str, bool), Vec<[u64; 3]>> = BTreeMap::new();
    let key = |process: &'_ Process| (process.file.host.clone(), process.file.boot.clone(), process.file.uses_cycle_counter);
    for process in &recording.processes {
        let anchors = hosts.entry((&process.file.host, &process.file.boot, process.file.uses_cycle_counter)).or_default();
        anchors.extend(&process.file.anchors);
        for thread in &process.threads {
            anchors.push([thread.begin, thread.begin_ns, 0]);
            if thread.anchor.0 > thread.begin {
                anchors.push([thread.anchor.0, thread.anchor.1, 0]);
            }
        }
    }
    let mut notes = Vec::new();
    let has_several_hosts = hosts.keys().map(|(host, boot, _)| (host, boot)).collect::<std::collections::BTreeSet<_>>().len() > 1;
    let mut found = BTreeMap::new();
    for ((host, boot, uses_cycle_counter), anchors) in hosts {
        let clock = derive_host_clock(&anchors, has_several_hosts);
        if uses_cycle_counter && clock.elapsed_ticks < 1_000_000 {
            notes.push(format!(
                "the rate of the time-stamp counter of {host} is unknown, as its processes were killed too early: times are \
                in ticks"
            ));
        }
        found.insert((host.to_owned(), boot.to_owned(), uses_cycle_counter), clock);
    }
    let clocks: Vec<ProcessClock> = recording.processes.iter().map(|process| found[&key(process)].clone()).collect();
    let mut clocks = ProcessClocks { clocks, notes };
    clocks.set_time_origin(recording);
    clocks
}

impl ProcessClocks {
    /// Makes the start of the recording's first thread the origin of time.
    pub fn set_time_origin(&mut self, recording: &WaitsRecording) {
        let begins = recording.processes.iter().zip(&self.clocks).map(|(process, clock)| clock.absolute_time_ns(process.threads[0].begin));
        let origin_ns = begins.min().unwrap_or(0);
        self.clocks.iter_mut().for_each(|clock| clock.origin_ns = origin_ns);
    }
}

fn derive_host_clock(anchors: &[[u64; 3]], use_time_of_day: bool) -> ProcessClock {
    let first = anchors.iter().min_by_key(|a| a[0]).copied().unwrap_or([0; 3]);
    let last = anchors.iter().max_by_key(|a| a[0]).copied().unwrap_or([0; 3]);
    let (mut elapsed_ticks, mut elapsed_ns) = (last[0].saturating_sub(first[0]), last[1].saturating_sub(first[1]));
    if elapsed_ticks == 0 || elapsed_ns == 0 {
        (elapsed_ticks, elapsed_ns) = (1, 1);
    }
    let day = anchors.iter().filter(|a| a[2] != 0).max_by_key(|a| a[0]).filter(|_| use_time_of_day);
    let offset_ns = day.map_or(0, |anchor| i128::from(anchor[2]) - i128::from(anchor[1]));
    ProcessClock { ticks: first[0], ns: first[1], elapsed_ns, elapsed_ticks, offset_ns, origin_ns: 0, correction: OffsetCurve::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_converted_between_and_beyond_anchors() {
        let clock = ProcessClock { origin_ns: 1000, ..derive_host_clock(&[[300, 1100, 0], [0, 1000, 0], [150, 1049, 0]], false) };
        assert_eq!([0, 150, 300, 600].map(|t| clock.time_ns(t)), [0, 50, 100, 200]);
    }

    #[test]
    fn sums_of_corrupt_times_do_not_overflow() {
        let clock = ProcessClock { origin_ns: 1000, ..derive_host_clock(&[[0, 1000, 0], [2, 900_000_000, 0]], false) };
        assert!(clock.time_ns(u64::MAX).checked_mul(1000).is_some());
    }
}
