//! Profiles sampled in bursts: how much of a run was counted, and the errors of the estimates.
//!
//! A program built for sampling counts only while a switch in memory is on. The recorder turns the switch on for short bursts and measures
//! the time. The number of executions is estimated as `weighted count * run time / time with the switch on`, where the weights correct for
//! the slowdown of counted code ([`super::readings`]). The standard error is scaled by the same factor.

use crate::error::ProfileError;
use crate::raw::RawProfile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use trodden_unit::Identity;

/// The 97.5% quantile of the standard normal distribution: half-width of a 95% confidence interval, in standard deviations.
pub(super) const NORMAL_QUANTILE_95: f64 = 1.96;

/// Maximum share of its runnable time that a program may wait for a processor. If it waits longer, estimates based on wall time are
/// withheld. With 17 processes on two processors, programs waited three quarters of the time, and estimated totals were a third to three
/// quarters of the true totals.
const MAX_WAITING_SHARE: f32 = 0.5;

/// How much of a run was counted in bursts, and the weighted counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstSampling {
    /// Time during which the switch was on, in nanoseconds of the program's processor time, or of wall time if the system does not report
    /// processor time.
    pub on_ns: u64,
    /// Run time in nanoseconds, measured by the same clock.
    pub total_ns: u64,
    /// Number of times the switch was turned on.
    pub bursts: u64,
    /// Number of slices into which the run was divided to compute the errors; in a merged profile, the sum over the runs.
    pub slices: u64,
    /// Share of the program's runnable time in which it waited for a processor, if `on_ns` is wall time; otherwise 0.
    pub waited: f32,
    /// Weighted counts by unit.
    pub units: Vec<UnitEstimates>,
}

/// Weighted counts of a unit in one image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitEstimates {
    /// The image.
    pub image: Identity,
    /// The unit.
    pub unit: Identity,
    /// Counters of the unit that are not zero, sorted by index.
    pub counters: Vec<CounterEstimate>,
}

/// A weighted count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CounterEstimate {
    /// Index of the counter within the unit.
    pub index: u64,
    /// The observed count, corrected for the slowdown of counted code.
    pub weighted: f32,
    /// Standard error of `weighted`; `None` if the run was too short.
    pub error: Option<f32>,
    /// Effective number of samples: `(count / standard error)²`, without the errors that all counters have in common. `None` if the run was
    /// too short; infinite if the count was proportional to the time in all parts of the run.
    pub samples: Option<f32>,
}

/// An estimated number of executions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstEstimate {
    /// The estimate.
    pub executions: f64,
    /// Half-width of the 95 % confidence interval; `None` if the run was too short.
    pub margin: Option<f64>,
    /// Number of independent samples that would have the same sampling error, but at most the number of bursts. `None` if the run was too
    /// short.
    pub samples: Option<f64>,
}

impl BurstSampling {
    /// Returns the number of executions that one observed execution represents.
    pub fn scale(&self) -> f64 {
        if self.on_ns == 0 { 1.0 } else { self.total_ns as f64 / self.on_ns as f64 }
    }

    /// Returns whether estimates are withheld: the program spent most of its time waiting for a processor, so wall time says little about
    /// how much it executed.
    pub fn is_estimate_withheld(&self) -> bool {
        self.waited > MAX_WAITING_SHARE
    }

    /// Estimates the number of executions of a counter's path, of which `seen` were observed. `None` if estimates are withheld.
    pub fn estimate(&self, image: Identity, unit: Identity, index: u64, seen: u64) -> Option<BurstEstimate> {
        if self.is_estimate_withheld() {
            return None;
        }
        let (scale, counter) = (self.scale(), self.counter(image, unit, index));
        let weighted = counter.map_or(seen as f64, |c| f64::from(c.weighted));
        let margin = counter.and_then(|c| c.error).map(|e| NORMAL_QUANTILE_95 * f64::from(e) * scale);
        let samples = counter.and_then(|c| c.samples).map(|samples| f64::from(samples).min(self.bursts as f64));
        Some(BurstEstimate { executions: weighted * scale, margin, samples })
    }

    /// Returns the weighted count of a counter. If there is none, returns `seen`, the observed count.
    pub fn weighted_count(&self, image: Identity, unit: Identity, index: u64, seen: u64) -> f64 {
        self.counter(image, unit, index).map_or(seen as f64, |c| f64::from(c.weighted))
    }

    fn counter(&self, image: Identity, unit: Identity, index: u64) -> Option<&CounterEstimate> {
        let counters = &self.units.iter().find(|u| (u.image, u.unit) == (image, unit))?.counters;
        counters.binary_search_by_key(&index, |c| c.index).ok().map(|at| &counters[at])
    }

    /// Adds the data of another run of the same programs. The variances are added, since the runs are independent.
    pub fn add(&mut self, other: BurstSampling) {
        self.on_ns = self.on_ns.saturating_add(other.on_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.bursts = self.bursts.saturating_add(other.bursts);
        self.slices = self.slices.saturating_add(other.slices);
        self.waited = self.waited.max(other.waited);
        for unit in other.units {
            match self.units.iter_mut().find(|u| (u.image, u.unit) == (unit.image, unit.unit)) {
                None => self.units.push(unit),
                Some(known) => known.add(&unit),
            }
        }
    }
}

impl UnitEstimates {
    fn add(&mut self, other: &UnitEstimates) {
        let mut sums = BTreeMap::<u64, CounterEstimate>::new();
        for counter in self.counters.iter().chain(&other.counters) {
            let add = |sum: &mut CounterEstimate| {
                sum.samples = sum.samples.zip(counter.samples).map(|(a, b)| {
                    let variance = sum.weighted.powi(2) / a + counter.weighted.powi(2) / b;
                    (sum.weighted + counter.weighted).powi(2) / variance
                });
                sum.weighted += counter.weighted;
                sum.error = sum.error.zip(counter.error).map(|(a, b)| a.hypot(b));
            };
            sums.entry(counter.index).and_modify(add).or_insert(*counter);
        }
        self.counters = sums.into_values().collect();
    }
}

/// The sampling switch of an image. It is a byte in the image's raw file, which the instrumented program maps into memory.
#[derive(Debug)]
pub struct SamplingSwitch {
    file: File,
    offset: u64,
    process: u64,
}

impl SamplingSwitch {
    /// Opens a raw file to use its switch, and locks it; `None` if the image has no switch. Fails if the file cannot be read or written, is
    /// not a raw file, has no header yet ([`ProfileError::NotReady`]), or is locked by a different recorder.
    pub fn open(path: &Path) -> Result<Option<SamplingSwitch>, ProfileError> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(ProfileError::io(path, "open"))?;
        let (offset, process) = crate::raw::read_switch_and_process(path, &file)?;
        // Two recorders would disturb each other's measurements, since both use the same switch.
        file.try_lock().map_err(|e| ProfileError::io(path, "lock (a different recorder uses it)")(e.into()))?;
        Ok((offset != 0).then_some(SamplingSwitch { file, offset, process }))
    }

    /// Returns the ID of the process that created the raw file.
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Turns counting on or off in all processes that count in this file.
    pub fn set_counting(&self, on: bool) -> std::io::Result<()> {
        self.file.write_all_at(&[u8::from(on)], self.offset)
    }
}

/// Subtracts the counts that the files already had before the recorder started.
pub fn subtract_earlier_counts(now: &mut [RawProfile], before: &[RawProfile]) {
    for raw in now {
        let Some(old) = before.iter().find(|b| b.file == raw.file && b.image == raw.image) else { continue };
        for (unit, old) in raw.units.iter_mut().zip(&old.units) {
            unit.counts = count_difference(&unit.counts, &old.counts);
        }
    }
}

/// Returns how much each counter has increased. If a counter is smaller than before, it is in a new file, in which it started at 0.
pub(super) fn count_difference(now: &[(u64, u64)], before: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut before = before.iter().peekable();
    let mut gained = Vec::new();
    for &(index, count) in now {
        while before.next_if(|b| b.0 < index).is_some() {}
        let old = before.next_if(|b| b.0 == index).map_or(0, |b| b.1);
        let new = count.checked_sub(old).unwrap_or(count);
        if new > 0 {
            gained.push((index, new));
        }
    }
    gained
}
