//! Readings of the counts while a program is sampled, and the estimates from them.
//!
//! A burst lasts a fixed time, and counted code is slower. So in a burst, the program makes less progress than it would uncounted, and is
//! observed too little. The counts between two readings show by how much ([`super::slowdown`]).
//!
//! Each reading's counts are weighted by that factor, so that a burst represents the same time of the uncounted program: the usual
//! ratio of inclusion probabilities (Horvitz and Thompson, "A generalization of sampling without replacement from a finite universe",
//! 1952), where the probability is known by a model. Code outside counted functions is assumed to slow down by the same factor.
//!
//! Bursts lose some of their time ([`super::loss`]): a reading's counts represent the rest of it.
//!
//! Time is the program's processor time, so that waiting for a processor weighs nothing, or else wall time ([`SampledClock`]).
//!
//! Bursts are not of equal length: on a busy machine one may be many times longer than asked for, and what the program did just then
//! would be observed too much. So readings are joined to slices of the run, and each slice's counts represent its own time: they are
//! multiplied by its time over its switched-on time (post-stratification by time; Cochran, "Sampling Techniques", section 5A.9).
//!
//! Errors: the weighted counts of each slice are compared with those of a path of constant rate: the variance of a ratio estimator
//! (Cochran, "Sampling Techniques", section 6.4), with slices as the sample (batch means: neighbouring bursts are alike, slices less
//! so). The common errors of all counts (the loss, the model of the slowdown) are added.
//!
//! Invariant: memory is bounded; when there are too many readings, neighbours are joined.

use super::bursts::{BurstSampling, CounterEstimate, NINETY_FIVE, UnitEstimates, difference};
use super::busy::SampledClock;
use super::loss::{Loss, SeenReading};
use super::quantile::student;
use super::slowdown::{COST_ERROR, Cost, Work, costs};
use crate::model::Profile;
use crate::raw::RawProfile;
use crate::sum;
use std::collections::{BTreeMap, HashMap};
use trodden_unit::Identity;

/// The relative standard error of what no model has, in common to all counts: memory of counters that is touched for the first time, and
/// code that was not in caches (docs/benchmarks/constants.md).
const COLD_ERROR: f64 = 0.05;
/// More slices than this are joined, two at a time: from 32 on Student's quantile is within 5 % of the normal one.
const MOST_SLICES: usize = 64;
/// The least number of slices for an estimate of the variance: with three Student's quantile is 4.3.
const FEWEST_SLICES: usize = 4;
/// A slice has about so many bursts: of fewer, the time with the switch on is too uneven to divide by.
const BURSTS_PER_SLICE: u64 = 5;
/// By wall time, fewer bursts give none: on a busy machine a few may find the program waiting each time. Of two programs' runs with fewer
/// than 80 bursts, 0 to 99.97 % of the profile was that of a full build; with 320 and more, 92 to 99 % (docs/benchmarks/constants.md).
const FEWEST_BURSTS: u64 = 200;
/// More readings than this, or more counts in them, are joined, two at a time: bounds memory, to some 32 MB of counts.
const MOST_READINGS: usize = 8192;
const MOST_COUNTS: usize = 1 << 21;

/// A unit by its image and its place there.
type Key = (Identity, usize);
/// Counters by unit: index and count, ascending.
type UnitSums = BTreeMap<Key, Vec<(u64, u64)>>;

/// Time with the switch on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchedOn {
    /// Nanoseconds.
    pub ns: u64,
    /// Number of bursts.
    pub bursts: u64,
}

/// The observations of a part of the run.
#[derive(Clone, Debug, Default)]
struct Reading {
    /// Time with the switch on.
    on: SwitchedOn,
    /// All time, in nanoseconds.
    passed_ns: u64,
    counts: UnitSums,
}

/// Collects readings while a program runs.
#[derive(Debug)]
pub struct Readings {
    units: BTreeMap<Key, Identity>,
    before: UnitSums,
    readings: Vec<Reading>,
    stride: u32,
}

impl Default for Readings {
    fn default() -> Readings {
        Readings { units: BTreeMap::new(), before: UnitSums::new(), readings: Vec::new(), stride: 1 }
    }
}

/// A run that was sampled: its readings, and its times in nanoseconds.
#[derive(Debug)]
pub struct Sampled {
    /// The readings in order.
    pub readings: Readings,
    /// See [`BurstSampling::on_ns`].
    pub on_ns: u64,
    /// See [`BurstSampling::total_ns`].
    pub total_ns: u64,
    /// See [`BurstSampling::bursts`].
    pub bursts: u64,
    /// What the times are measured by.
    pub clock: SampledClock,
}

impl SwitchedOn {
    /// The sum of both.
    pub fn add(&mut self, other: SwitchedOn) {
        self.ns += other.ns;
        self.bursts += other.bursts;
    }
}

impl Readings {
    /// The factor by which the next reading is later than at first: readings are joined when there are many.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// Notes the counts of now, with the nanoseconds that `passed` since the reading before, and the part of it with the switch `on`.
    pub fn read(&mut self, raws: &[RawProfile], on: SwitchedOn, passed_ns: u64) {
        let mut now = UnitSums::new();
        for raw in raws {
            for (place, unit) in raw.units.iter().enumerate() {
                self.units.insert((raw.image, place), unit.unit);
                let known = now.entry((raw.image, place)).or_default();
                *known = sum::merge(known, &unit.counts, u64::saturating_add);
            }
        }
        let mut reading = Reading { on, passed_ns, counts: UnitSums::new() };
        for (key, counts) in &now {
            let gained = difference(counts, self.before.get(key).map_or(&[][..], Vec::as_slice));
            if !gained.is_empty() {
                reading.counts.insert(*key, gained);
            }
        }
        self.before = now;
        self.readings.push(reading);
        if self.readings.len() >= MOST_READINGS || self.readings.iter().map(Reading::len).sum::<usize>() >= MOST_COUNTS {
            self.stride = self.stride.saturating_mul(2);
            self.readings = std::mem::take(&mut self.readings).chunks(2).map(|pair| join(pair[0].clone(), pair.get(1))).collect();
        }
    }

    /// The cost of each reading's code.
    fn works(&self, profile: &Profile) -> Vec<Work> {
        let costs: BTreeMap<Key, HashMap<u64, Cost>> = self.units.iter().map(|(key, unit)| (*key, costs(profile, key.0, *unit))).collect();
        let work = |reading: &Reading| {
            let mut work = Work::default();
            for (key, counts) in &reading.counts {
                let of_unit = &costs[key];
                for (cost, count) in counts.iter().filter_map(|(index, count)| Some((of_unit.get(index)?, *count as f64))) {
                    work.instructions += count * cost.instructions;
                    work.counting += count * cost.counting;
                }
            }
            work
        };
        self.readings.iter().map(work).collect()
    }
}

impl Reading {
    fn len(&self) -> usize {
        self.counts.values().map(Vec::len).sum()
    }
}

impl Sampled {
    /// The sampling data of the whole run, given the profile of its counts.
    pub fn finish(self, profile: &Profile) -> BurstSampling {
        let Sampled { readings, on_ns, total_ns, bursts, clock } = self;
        // If nearly all of the time was counted, counts need no weights.
        let stands_for_itself = on_ns > total_ns / 2;
        let (weights, common_error) = match stands_for_itself {
            true => (vec![1.0; readings.readings.len()], 0.0),
            false => readings.weights(profile, on_ns as f64 / total_ns.max(1) as f64, clock),
        };
        let common_error = common_error.hypot(clock.relative_error(on_ns));
        let mut slices = slices(&readings.readings, &weights, bursts);
        if !stands_for_itself {
            let share = on_ns as f64 / total_ns.max(1) as f64;
            slices.iter_mut().for_each(|slice| slice.stand_for_its_time(share));
        }
        let number = slices.len() as u64;
        let is_enough = stands_for_itself || clock == SampledClock::Processor || bursts >= FEWEST_BURSTS;
        let has_margins = slices.len() >= FEWEST_SLICES && is_enough;
        let units = readings.units.iter().map(|(key, unit)| UnitEstimates {
            image: key.0,
            unit: *unit,
            counters: estimates(&slices, *key, common_error, has_margins),
        });
        let units = units.filter(|u| !u.counters.is_empty()).collect();
        BurstSampling { on_ns, total_ns, bursts, slices: number, waited: clock.waited() as f32, units }
    }
}

impl Readings {
    /// The weight of each reading's counts for a run with a given counted share, and the relative standard error of all weights together.
    fn weights(&self, profile: &Profile, share: f64, clock: SampledClock) -> (Vec<f64>, f64) {
        let works = self.works(profile);
        let seen = |(reading, work): (&Reading, &Work)| SeenReading {
            on_ns: reading.on.ns as f64,
            bursts: reading.on.bursts as f64,
            work: work.instructions + work.counting,
        };
        let seen: Vec<SeenReading> = self.readings.iter().zip(&works).map(seen).collect();
        let loss = Loss::from_readings(&seen, clock);
        let sum = |of: &dyn Fn(&SeenReading, &Work) -> f64| seen.iter().zip(&works).map(|(s, w)| of(s, w)).sum::<f64>();
        let (on, bursts) = (sum(&|s, _| s.on_ns), sum(&|s, _| s.bursts));
        // The time of the run without counting, as part of its time as it was.
        let uncounted = |times: f64| sum(&|s, w| s.on_ns / w.slowdown(times));
        let faster = if on > 0.0 { 1.0 - share + share * uncounted(1.0) / on } else { 1.0 };
        let lost = |s: &SeenReading| if s.on_ns > 0.0 { s.on_ns / loss.effective_ns(s.on_ns, s.bursts) } else { 1.0 };
        let weights = seen.iter().zip(&works).map(|(s, w)| w.slowdown(1.0) * faster * lost(s)).collect();
        let slower = if on > 0.0 { uncounted(1.0) / uncounted(1.0 + COST_ERROR) - 1.0 } else { 0.0 };
        (weights, loss.relative_error(on, bursts).hypot(slower * (1.0 - share)).hypot(COLD_ERROR))
    }
}

/// Weighted counts of a part of the run.
#[derive(Debug, Default)]
struct Slice {
    readings: usize,
    /// Nanoseconds with the switch on.
    on_ns: f64,
    /// All nanoseconds.
    passed_ns: f64,
    counts: BTreeMap<Key, HashMap<u64, f64>>,
}

impl Slice {
    /// Weights the counts as if the slice had been counted for the same `share` of its time as the whole run.
    fn stand_for_its_time(&mut self, share: f64) {
        if self.on_ns > 0.0 && self.passed_ns > 0.0 {
            let factor = share * self.passed_ns.max(self.on_ns) / self.on_ns;
            self.counts.values_mut().flat_map(HashMap::values_mut).for_each(|count| *count *= factor);
            self.on_ns = self.passed_ns * share;
        }
    }
}

/// Slices of about equally many readings, for that number of bursts; none is without switched-on time, unless it is the only one.
fn slices(readings: &[Reading], weights: &[f64], bursts: u64) -> Vec<Slice> {
    let number = ((bursts / BURSTS_PER_SLICE) as usize).clamp(FEWEST_SLICES, MOST_SLICES);
    let together = readings.len().div_ceil(number).max(1);
    let mut slices: Vec<Slice> = Vec::new();
    for (reading, weight) in readings.iter().zip(weights) {
        if slices.last().is_none_or(|s| s.readings >= together && s.on_ns > 0.0 && reading.on.ns > 0) {
            slices.push(Slice::default());
        }
        let slice = slices.last_mut().expect("there is one");
        slice.readings += 1;
        slice.on_ns += reading.on.ns as f64;
        slice.passed_ns += reading.passed_ns as f64;
        for (key, counts) in &reading.counts {
            let sums = slice.counts.entry(*key).or_default();
            counts.iter().for_each(|(index, count)| *sums.entry(*index).or_default() += *count as f64 * weight);
        }
    }
    slices
}

/// The weighted counts of a unit's counters, with their standard errors if there are enough slices:
/// `sqrt(n / (n - 1) * sum((count - rate * time)^2))`, and what all counters have in common.
fn estimates(slices: &[Slice], key: Key, common_error: f64, has_margins: bool) -> Vec<CounterEstimate> {
    let mut counts = BTreeMap::<u64, Vec<(usize, f64)>>::new();
    for (number, slice) in slices.iter().enumerate() {
        for (index, count) in slice.counts.get(&key).into_iter().flatten() {
            counts.entry(*index).or_default().push((number, *count));
        }
    }
    let sum = |power: i32| slices.iter().map(|s| s.on_ns.powi(power)).sum::<f64>();
    let (number, time, squares, fourths) = (slices.len() as f64, sum(1), sum(2), sum(4));
    let estimate = |(index, counts): (u64, Vec<(usize, f64)>)| {
        let weighted: f64 = counts.iter().map(|(_, count)| count).sum();
        let rate = if time > 0.0 { weighted / time } else { 0.0 };
        // Slices without a count first.
        let (mut second, mut fourth) = (rate.powi(2) * squares, rate.powi(4) * fourths);
        for (slice, count) in counts {
            let expected = rate * slices[slice].on_ns;
            second += (count - expected).powi(2) - expected.powi(2);
            fourth += (count - expected).powi(4) - expected.powi(4);
        }
        let (second, fourth) = (second.max(0.0), fourth.max(0.0));
        let error = (number / (number - 1.0) * second).sqrt();
        // Where few slices make most of the variance, it is uncertain: Student's quantile, of the degrees of freedom that a sum of squares
        // of so different sizes has (Satterthwaite, "An approximate distribution of estimates of variance components", 1946).
        let freedom = if fourth > 0.0 { (second * second / fourth).min(number) - 1.0 } else { number - 1.0 };
        let error = (error * student(freedom) / NINETY_FIVE).hypot(weighted * common_error) as f32;
        CounterEstimate { index, weighted: weighted as f32, error: has_margins.then_some(error) }
    };
    counts.into_iter().map(estimate).collect()
}

fn join(mut one: Reading, other: Option<&Reading>) -> Reading {
    if let Some(other) = other {
        one.on.add(other.on);
        one.passed_ns += other.passed_ns;
        for (key, counts) in &other.counts {
            let known = one.counts.entry(*key).or_default();
            *known = sum::merge(known, counts, u64::saturating_add);
        }
    }
    one
}

#[cfg(test)]
mod tests {
    use super::super::slowdown::counting_cost;
    use super::*;
    use crate::model::{ImageProfile, Run, UnitProfile};
    use crate::paths::{Beginning, FunctionPaths, PathEnd};
    use crate::raw::RawUnitCounts;
    use std::path::PathBuf;
    use std::sync::Arc;
    use trodden_testkit::{Random, functions};

    fn raw(counts: &[(u64, u64)]) -> RawProfile {
        let unit = RawUnitCounts { unit: Identity([2; 16]), counters: 100, counts: counts.to_vec(), overflow: Vec::new() };
        RawProfile {
            file: PathBuf::from("a.raw"),
            image: Identity([1; 16]),
            image_path: PathBuf::new(),
            pid: 1,
            created_ns: 0,
            regions: 1,
            lost: 0,
            units: vec![unit],
            problems: vec![],
        }
    }

    /// A reading after bursts of `on` in a time a hundred times longer.
    fn read(readings: &mut Readings, raw: RawProfile, on: u64) {
        readings.read(&[raw], SwitchedOn { ns: on, bursts: 0 }, 100 * on);
    }

    fn finish(readings: Readings, on_ns: u64, total_ns: u64) -> BurstSampling {
        Sampled { readings, on_ns, total_ns, bursts: FEWEST_BURSTS, clock: SampledClock::Processor }.finish(&Profile {
            run: Run::default(),
            images: Vec::new(),
            sampling: None,
        })
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
        let (counts, times): ([f64; 5], [f64; 5]) = ([3.0, 5.0, 0.0, 9.0, 4.0], [10.0, 11.0, 9.0, 14.0, 10.0]);
        let mut readings = Readings::default();
        let mut sum = 0;
        for (count, time) in counts.iter().zip(times) {
            sum += *count as u64;
            read(&mut readings, raw(&[(7, sum), (8, 1)]), time as u64);
        }
        let sampling = finish(readings, 54, 5400);
        assert_eq!(sampling.slices, 5);
        let estimate = sampling.estimate(Identity([1; 16]), Identity([2; 16]), 7, 21).unwrap();
        assert!((estimate.executions - 2100.0).abs() < 1e-6);
        let residues = |power: i32| counts.iter().zip(times).map(|(c, t)| (c - 21.0 / 54.0 * t).powi(power)).sum::<f64>();
        let effective = residues(2).powi(2) / residues(4);
        let sampled = student(effective - 1.0) * by_definition(&counts, &times);
        let expected = 100.0 * sampled.hypot(NINETY_FIVE * COLD_ERROR * 21.0);
        assert!((estimate.margin.unwrap() - expected).abs() < 1e-3 * expected, "{estimate:?} {expected}");
    }

    #[test]
    fn a_burst_that_is_late_stands_for_its_own_time_only() {
        // 3 executions in each unit of time, all along; the third burst lasts ten times as long as the others.
        let (ons, passed) = ([10, 10, 100, 10, 10], 1000);
        let mut readings = Readings::default();
        let (mut early, mut late) = (0, 0);
        for (slice, on) in ons.into_iter().enumerate() {
            *(if slice == 2 { &mut late } else { &mut early }) += 3 * on;
            readings.read(&[raw(&[(1, early), (2, late)])], SwitchedOn { ns: on, bursts: 0 }, passed);
        }
        let sampling = finish(readings, 140, 5 * passed);
        let executions = |index, seen| sampling.estimate(Identity([1; 16]), Identity([2; 16]), index, seen).unwrap().executions;
        assert!((executions(1, early) - 12_000.0).abs() < 1.0, "{}", executions(1, early));
        assert!((executions(2, late) - 3_000.0).abs() < 1.0, "{}", executions(2, late));
    }

    #[test]
    fn iterations_that_are_counted_when_their_loop_is_left_cost_nothing() {
        let (image, identity) = (Identity([1; 16]), Identity([2; 16]));
        let (mut free, mut others) = (0, 0);
        for seed in 0..40 {
            let (mut map, _) = functions::unit(&mut Random::new(seed), "a.c", 3, 8);
            for function in &mut map.functions {
                function.by_trip_count = function.cuts.iter().map(|(edge, _)| *edge).collect();
            }
            let counts = (0..map.counters).map(|counter| (counter, 1)).collect();
            let map = Arc::new(map);
            let unit = UnitProfile { unit: identity, map: map.clone(), counts: crate::Counts::from_executions(counts) };
            let units = vec![unit];
            let images = vec![ImageProfile { identity: image, path: "a".into(), build_id: None, units }];
            let costs = costs(&Profile { run: Run::default(), images, sampling: None }, image, identity);
            for function in &map.functions {
                let counts = (0..function.counters).map(|path| (path, 1));
                for path in FunctionPaths::decode(function, counts).unwrap().complete {
                    let is_iteration = matches!((path.beginning, path.end), (Beginning::After(_), PathEnd::Cut(_)));
                    let cost = costs[&(function.first_counter + path.id)];
                    let expected = if is_iteration { 0.0 } else { counting_cost(cost.instructions) };
                    assert_eq!(cost.counting, expected, "{seed} {}", function.name);
                    *(if is_iteration { &mut free } else { &mut others }) += 1;
                }
            }
        }
        assert!(free > 100 && others > 100, "{free} {others}");
    }

    #[test]
    fn many_readings_are_joined_and_lose_nothing() {
        let mut readings = Readings::default();
        let number = 2 * MOST_READINGS as u64 + 1;
        for reading in 1..=number {
            read(&mut readings, raw(&[(3, reading * 1000)]), 1);
        }
        assert!(readings.readings.len() < MOST_READINGS && readings.stride() > 1);
        let sampling = finish(readings, number, 100 * number);
        assert!(sampling.slices as usize <= MOST_SLICES);
        let estimate = sampling.estimate(Identity([1; 16]), Identity([2; 16]), 3, number * 1000).unwrap();
        assert!((estimate.executions / (1e5 * number as f64) - 1.0).abs() < 1e-6, "{estimate:?}");
    }

    #[test]
    fn short_runs_have_no_errors() {
        let mut readings = Readings::default();
        read(&mut readings, raw(&[(3, 4)]), 5);
        assert_eq!(finish(readings, 5, 50).estimate(Identity([1; 16]), Identity([2; 16]), 3, 4).unwrap().margin, None);
        // Nor have runs of few bursts, however many slices they make. Where the program waited, margins are wider.
        let margin = |bursts, waited| {
            let mut readings = Readings::default();
            (1..=20).for_each(|at| read(&mut readings, raw(&[(3, 4 * at)]), 5));
            let clock = SampledClock::Wall { asked_ns: 100, waited };
            let sampled = Sampled { readings, on_ns: 100, total_ns: 10_000, bursts, clock };
            let sampling = sampled.finish(&Profile { run: Run::default(), images: Vec::new(), sampling: None });
            sampling.estimate(Identity([1; 16]), Identity([2; 16]), 3, 80).map(|estimate| estimate.margin)
        };
        assert_eq!(margin(FEWEST_BURSTS - 1, 0.0), Some(None));
        assert!(margin(FEWEST_BURSTS, 0.45).flatten() > margin(FEWEST_BURSTS, 0.0).flatten().map(|m| 1.2 * m));
        // Where it mostly waited there is no estimate.
        assert_eq!(margin(FEWEST_BURSTS, 0.9), None);
    }
}
