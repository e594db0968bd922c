//! Converts the ticks of all processes to a common time, in ns since the recording's first event.
//!
//! All processes on a host share a time-stamp counter. Its rate and offset follow from the earliest and the latest anchor of any process.
//! The clocks of different hosts are first related by the time of day; [`crate::sync`] then corrects them.

use crate::recording::{Process, WaitsRecording};
use std::collections::BTreeMap;
use trodden_waits::offset::OffsetCurve;

/// Maximum time in ns, about three months. Corrupt ticks may have any value, and sums over all locations must not overflow.
const MAX_TIME_NS: i128 = 1 << 53;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Ticks of the earliest anchor. The monotonic clock read `ns` at that time.
    ticks: u64,
    ns: u64,
    /// The clock's rate is `rise_ns` nanoseconds per `run_ticks` ticks.
    rise_ns: u64,
    run_ticks: u64,
    /// Time of day minus the monotonic clock; 0 if there is only one host.
    offset_ns: i128,
    origin_ns: i128,
    /// Correction derived from messages, which is subtracted from the time.
    pub correction: OffsetCurve,
}

#[derive(Debug)]
pub struct Clocks {
    pub clocks: Vec<Clock>,
    /// Notes for the user on the clocks' accuracy.
    pub notes: Vec<String>,
}

impl Clock {
    /// Returns the time in ns since the recording's first event.
    pub fn time_ns(&self, ticks: u64) -> u64 {
        (self.absolute_ns(ticks) - self.origin_ns).clamp(0, MAX_TIME_NS) as u64
    }

    /// Returns the corrected time in ns on the host's clock.
    pub fn absolute_ns(&self, ticks: u64) -> i128 {
        let distance = i128::from(ticks) - i128::from(self.ticks);
        let ns = i128::from(self.ns) + distance * i128::from(self.rise_ns) / i128::from(self.run_ticks.max(1)) + self.offset_ns;
        ns - self.correction.at(ns)
    }
}

/// Derives the clock of each process from the recording's anchors.
pub fn derive_clocks(recording: &WaitsRecording) -> Clocks {
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
        if uses_cycle_counter && clock.run_ticks < 1_000_000 {
            notes.push(format!(
                "the rate of the time-stamp counter of {host} is unknown, as its processes were killed too early: times are \
                in ticks"
            ));
        }
        found.insert((host.to_owned(), boot.to_owned(), uses_cycle_counter), clock);
    }
    let clocks: Vec<Clock> = recording.processes.iter().map(|process| found[&key(process)].clone()).collect();
    let mut clocks = Clocks { clocks, notes };
    clocks.set_origin(recording);
    clocks
}

impl Clocks {
    /// Sets the origin of time to the start of the first thread in the recording.
    pub fn set_origin(&mut self, recording: &WaitsRecording) {
        let begins = recording.processes.iter().zip(&self.clocks).map(|(process, clock)| clock.absolute_ns(process.threads[0].begin));
        let origin_ns = begins.min().unwrap_or(0);
        self.clocks.iter_mut().for_each(|clock| clock.origin_ns = origin_ns);
    }
}

fn derive_host_clock(anchors: &[[u64; 3]], use_time_of_day: bool) -> Clock {
    let first = anchors.iter().min_by_key(|a| a[0]).copied().unwrap_or([0; 3]);
    let last = anchors.iter().max_by_key(|a| a[0]).copied().unwrap_or([0; 3]);
    let (mut run_ticks, mut rise_ns) = (last[0].saturating_sub(first[0]), last[1].saturating_sub(first[1]));
    if run_ticks == 0 || rise_ns == 0 {
        (run_ticks, rise_ns) = (1, 1);
    }
    let day = anchors.iter().filter(|a| a[2] != 0).max_by_key(|a| a[0]).filter(|_| use_time_of_day);
    let offset_ns = day.map_or(0, |anchor| i128::from(anchor[2]) - i128::from(anchor[1]));
    Clock { ticks: first[0], ns: first[1], rise_ns, run_ticks, offset_ns, origin_ns: 0, correction: OffsetCurve::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_converted_between_and_beyond_anchors() {
        let clock = Clock { origin_ns: 1000, ..derive_host_clock(&[[300, 1100, 0], [0, 1000, 0], [150, 1049, 0]], false) };
        assert_eq!([0, 150, 300, 600].map(|t| clock.time_ns(t)), [0, 50, 100, 200]);
    }

    #[test]
    fn sums_of_corrupt_times_do_not_overflow() {
        let clock = Clock { origin_ns: 1000, ..derive_host_clock(&[[0, 1000, 0], [2, 900_000_000, 0]], false) };
        assert!(clock.time_ns(u64::MAX).checked_mul(1000).is_some());
    }
}
