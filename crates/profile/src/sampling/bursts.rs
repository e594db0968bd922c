//! Profiles sampled in bursts: how much of a run was counted, and how sure the estimates are.
//!
//! A program of the sample tier counts while its switch is on. Whoever flips it notes for how long; the counts stay as they were seen, and an estimate is
//!
//! ```text
//! executions = seen * run time / time with the switch on
//! ```
//!
//! The run is cut into slices of equal length, and the seen counts of each are compared with what a path of constant rate would have had: the usual variance of a ratio
//! estimator (Cochran, "Sampling Techniques", section 6.4), with slices as the sample (batch means: neighbouring bursts are alike, slices less so). What a profile keeps is the standard
//! error of each seen count; that of the estimate is as much larger as the estimate is.
//!
//! Invariant: errors are ascending by index, and there is one for each counter that is not zero, if there were enough slices.

use crate::error::ProfileError;
use crate::model::Profile;
use crate::raw::RawProfile;
use crate::sum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use trodden_unit::{Identity, UnitMap};

/// Word in the scheme of units of the sample tier.
pub const SAMPLE_TIER: &str = "tier=sample";
/// More slices than this are joined, two at a time.
const MOST_SLICES: usize = 64;
/// Fewer say nothing about the spread.
const FEWEST_SLICES: usize = 4;
/// Two-sided 95 % of the normal distribution.
const NINETY_FIVE: f64 = 1.96;

/// How a profile was sampled in bursts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstSampling {
    /// Nanoseconds with the switch on: of the programs' processor time where that is known, else of wall time.
    pub on_ns: u64,
    /// Nanoseconds in all, of the same kind.
    pub total_ns: u64,
    /// Times the switch was flipped on.
    pub bursts: u64,
    /// Slices from which the errors were computed; of merged profiles the sum.
    pub slices: u64,
    /// Errors of the seen counts.
    pub errors: Vec<UnitErrors>,
}

/// The standard errors of a unit's seen counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitErrors {
    /// The image.
    pub image: Identity,
    /// The unit.
    pub unit: Identity,
    /// Index of a counter within the unit, and the standard error of what was seen of it.
    pub errors: Vec<(u64, f32)>,
}

/// An estimated number of executions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub executions: f64,
    /// Half the width of its 95 % confidence interval; `None` if the run was too short to tell.
    pub margin: Option<f64>,
}

impl BurstSampling {
    /// How many executions one seen stands for.
    pub fn scale(&self) -> f64 {
        if self.on_ns == 0 { 1.0 } else { self.total_ns as f64 / self.on_ns as f64 }
    }

    /// What a seen count stands for.
    pub fn estimate(&self, image: Identity, unit: Identity, index: u64, seen: u64) -> Estimate {
        let unit = self.errors.iter().find(|e| (e.image, e.unit) == (image, unit));
        let error = unit.and_then(|u| u.errors.binary_search_by_key(&index, |e| e.0).ok().map(|at| f64::from(u.errors[at].1)));
        let scale = self.scale();
        Estimate { executions: seen as f64 * scale, margin: error.map(|e| NINETY_FIVE * e * scale) }
    }

    /// Adds another sampling of the same programs: variances of independent runs add up.
    pub fn add(&mut self, other: BurstSampling) {
        self.on_ns = self.on_ns.saturating_add(other.on_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.bursts = self.bursts.saturating_add(other.bursts);
        self.slices = self.slices.saturating_add(other.slices);
        for unit in other.errors {
            match self.errors.iter_mut().find(|u| (u.image, u.unit) == (unit.image, unit.unit)) {
                None => self.errors.push(unit),
                Some(known) => {
                    let mut sums = BTreeMap::<u64, f64>::new();
                    for (index, error) in known.errors.iter().chain(&unit.errors) {
                        *sums.entry(*index).or_default() += f64::from(*error).powi(2);
                    }
                    known.errors = sums.into_iter().map(|(index, variance)| (index, variance.sqrt() as f32)).collect();
                }
            }
        }
    }
}

/// Whether a unit counts only while its image's switch is on.
pub fn is_sampled(map: &UnitMap) -> bool {
    map.scheme.split(' ').any(|word| word == SAMPLE_TIER)
}

impl Profile {
    /// Whether it has units that count only while a switch is on.
    pub fn has_sampled_units(&self) -> bool {
        self.images.iter().flat_map(|i| &i.units).any(|u| is_sampled(&u.map))
    }
}

/// The switch of an image, in its raw file.
#[derive(Debug)]
pub struct Switch {
    file: File,
    offset: u64,
    process: u64,
}

impl Switch {
    /// Opens a raw file; `None` if the image has no switch.
    ///
    /// # Errors
    /// It cannot be read or written, is no raw file, or is not complete yet ([`ProfileError::NotReady`]).
    pub fn open(path: &Path) -> Result<Option<Switch>, ProfileError> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(ProfileError::io(path, "open"))?;
        let (offset, process) = crate::raw::switch_and_process(path, &file)?;
        // Two recorders would each spoil what the other notes.
        file.try_lock().map_err(|e| ProfileError::io(path, "lock (another recorder has it)")(e.into()))?;
        Ok((offset != 0).then_some(Switch { file, offset, process }))
    }

    /// The process that made the file.
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Flips it, for all processes that count in this file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&self, on: bool) -> std::io::Result<()> {
        self.file.write_all_at(&[u8::from(on)], self.offset)
    }
}

/// Counters by image and place of the unit: index and count, ascending.
type Counts = BTreeMap<(Identity, usize), Vec<(u64, u64)>>;

/// What was seen in a part of the run.
#[derive(Clone, Debug, Default)]
struct Slice {
    on_ns: u64,
    counts: Counts,
}

/// Collects slices while a program runs.
#[derive(Debug)]
pub struct Slices {
    units: BTreeMap<(Identity, usize), Identity>,
    before: Counts,
    slices: Vec<Slice>,
    stride: u32,
}

impl Default for Slices {
    fn default() -> Slices {
        Slices { units: BTreeMap::new(), before: Counts::new(), slices: Vec::new(), stride: 1 }
    }
}

impl Slices {
    /// How much longer the next slice is to be than the first one was: slices are joined as they become many.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// Ends a slice with the counts of now, `on_ns` of switched-on time after the one before.
    pub fn read(&mut self, raws: &[RawProfile], on_ns: u64) {
        let mut now = Counts::new();
        for raw in raws {
            for (place, unit) in raw.units.iter().enumerate() {
                self.units.insert((raw.image, place), unit.unit);
                let known = now.entry((raw.image, place)).or_default();
                *known = sum::merge(known, &unit.counts);
            }
        }
        let mut slice = Slice { on_ns, counts: Counts::new() };
        for (key, counts) in &now {
            slice.counts.insert(*key, difference(counts, self.before.get(key).map_or(&[][..], Vec::as_slice)));
        }
        self.before = now;
        self.slices.push(slice);
        if self.slices.len() >= MOST_SLICES {
            self.stride = self.stride.saturating_mul(2);
            self.slices = std::mem::take(&mut self.slices).chunks(2).map(|pair| join(pair[0].clone(), pair.get(1))).collect();
        }
    }

    /// What is known of the whole run.
    pub fn finish(self, on_ns: u64, total_ns: u64, bursts: u64) -> BurstSampling {
        let slices = self.slices.len() as u64;
        let errors = if self.slices.len() < FEWEST_SLICES { Vec::new() } else { self.errors() };
        BurstSampling { on_ns, total_ns, bursts, slices, errors }
    }

    fn errors(&self) -> Vec<UnitErrors> {
        let spread = Spread::of(&self.slices);
        let errors = |key: &(Identity, usize)| -> Vec<(u64, f32)> {
            let mut sums = BTreeMap::<u64, (f64, f64, f64)>::new();
            for slice in &self.slices {
                for &(index, count) in slice.counts.get(key).map_or(&[][..], Vec::as_slice) {
                    let (count, sum) = (count as f64, sums.entry(index).or_default());
                    *sum = (sum.0 + count, sum.1 + count * count, sum.2 + count * slice.on_ns as f64);
                }
            }
            sums.into_iter().map(|(index, sum)| (index, spread.error(sum) as f32)).collect()
        };
        let unit = |(key, unit): (&(Identity, usize), &Identity)| UnitErrors { image: key.0, unit: *unit, errors: errors(key) };
        self.units.iter().map(unit).filter(|u| !u.errors.is_empty()).collect()
    }
}

/// The switched-on times of the slices.
struct Spread {
    number: f64,
    sum: f64,
    squares: f64,
}

impl Spread {
    fn of(slices: &[Slice]) -> Spread {
        let times = slices.iter().map(|s| s.on_ns as f64);
        Spread { number: slices.len() as f64, sum: times.clone().sum(), squares: times.map(|t| t * t).sum() }
    }

    /// Standard error of a sum of counts, given the sums over slices of its counts, their squares, and their products with the times:
    /// `sqrt(n / (n - 1) * sum((count - rate * time)^2))`.
    fn error(&self, (counts, squares, products): (f64, f64, f64)) -> f64 {
        let rate = if self.sum > 0.0 { counts / self.sum } else { 0.0 };
        let residues = squares - 2.0 * rate * products + rate * rate * self.squares;
        (self.number / (self.number - 1.0) * residues.max(0.0)).sqrt()
    }
}

fn join(mut one: Slice, other: Option<&Slice>) -> Slice {
    if let Some(other) = other {
        one.on_ns += other.on_ns;
        for (key, counts) in &other.counts {
            let known = one.counts.entry(*key).or_default();
            *known = sum::merge(known, counts);
        }
    }
    one
}

/// What counters have gained. Counts do not shrink; where a file was replaced, they begin anew.
fn difference(now: &[(u64, u64)], before: &[(u64, u64)]) -> Vec<(u64, u64)> {
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

/// Takes away from raw counts what was counted before a recorder came.
pub fn subtract(now: &mut [RawProfile], before: &[RawProfile]) {
    for raw in now {
        let Some(old) = before.iter().find(|b| b.file == raw.file && b.image == raw.image) else { continue };
        for (unit, old) in raw.units.iter_mut().zip(&old.units) {
            unit.counts = difference(&unit.counts, &old.counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::RawUnitCounts;
    use std::path::PathBuf;

    fn raw(counts: &[(u64, u64)]) -> RawProfile {
        let unit = RawUnitCounts { unit: Identity([2; 16]), counters: 100, counts: counts.to_vec(), beyond: Vec::new() };
        RawProfile {
            file: PathBuf::from("a.raw"),
            image: Identity([1; 16]),
            image_path: PathBuf::new(),
            pid: 1,
            created_ns: 0,
            regions: 1,
            units: vec![unit],
            problems: vec![],
        }
    }

    /// The formula of the textbook, slice by slice.
    fn by_definition(counts: &[f64], times: &[f64]) -> f64 {
        let rate = counts.iter().sum::<f64>() / times.iter().sum::<f64>();
        let n = counts.len() as f64;
        let residues: f64 = counts.iter().zip(times).map(|(c, t)| (c - rate * t).powi(2)).sum();
        (n / (n - 1.0) * residues).sqrt()
    }

    #[test]
    fn errors_are_those_of_a_ratio_estimate_over_slices() {
        let (counts, times) = ([3.0, 5.0, 0.0, 9.0, 4.0], [10.0, 11.0, 9.0, 14.0, 10.0]);
        let mut slices = Slices::default();
        let mut sum = 0;
        for (count, time) in counts.iter().zip(times) {
            sum += *count as u64;
            slices.read(&[raw(&[(7, sum), (8, 1)])], time as u64);
        }
        let sampling = slices.finish(54, 5400, 5);
        assert_eq!(sampling.slices, 5);
        let estimate = sampling.estimate(Identity([1; 16]), Identity([2; 16]), 7, 21);
        assert!((estimate.executions - 2100.0).abs() < 1e-6);
        let expected = 1.96 * 100.0 * by_definition(&counts, &times);
        assert!((estimate.margin.unwrap() - expected).abs() < 1e-3 * expected, "{estimate:?} {expected}");
    }

    #[test]
    fn many_slices_are_joined_and_lose_nothing() {
        let mut slices = Slices::default();
        for reading in 1..=1000u64 {
            slices.read(&[raw(&[(3, reading * reading)])], 1);
        }
        assert!((FEWEST_SLICES..MOST_SLICES).contains(&slices.slices.len()));
        let all: u64 = slices.slices.iter().flat_map(|s| s.counts.values()).flatten().map(|c| c.1).sum();
        assert_eq!(all, 1_000_000);
    }

    #[test]
    fn short_runs_have_no_errors() {
        let mut slices = Slices::default();
        slices.read(&[raw(&[(3, 4)])], 5);
        assert_eq!(slices.finish(5, 50, 1).estimate(Identity([1; 16]), Identity([2; 16]), 3, 4).margin, None);
    }
}
