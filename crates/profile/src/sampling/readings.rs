//! Readings of the counters while a program is sampled, and the estimates computed from them.
//!
//! Counting slows code down, so the program makes less progress in a burst than it would without counting. The slowdown is estimated from
//! the counts between two readings ([`super::slowdown`]), and these counts are multiplied by it (as with the inverse inclusion
//! probabilities of Horvitz and Thompson, "A generalization of sampling without replacement from a finite universe", 1952). Code outside
//! counted functions is assumed to slow down equally. Bursts also lose part of their time ([`super::loss`]).

use super::bursts::{BurstSampling, CounterEstimate, NORMAL_QUANTILE_95, UnitEstimates, count_difference};
use super::busy::SampledClock;
use super::loss::{BurstLoss, CounterReading};
use super::quantile::student_t_quantile_95;
use super::slowdown::{COUNTING_COST_ERROR_SHARE, PathCost, WorkBetweenReadings, compute_costs};
use crate::model::Profile;
use crate::raw::RawProfile;
use crate::sum;
use std::collections::{BTreeMap, HashMap};
use trodden_unit::Identity;

/// Relative standard error of all counts because of effects that the model ignores: first accesses to the counters' memory, and code that
/// is not in the cache yet (docs/benchmarks/constants.md).
const COLD_CACHE_ERROR_SHARE: f64 = 0.05;
/// Maximum number of slices into which a run is divided. With 32 or more, Student's quantile is within 5% of the normal one.
const MAX_RUN_SLICES: usize = 64;
/// Minimum number of slices for an estimate of the variance. With fewer, Student's quantile would be large (4.3 for three slices).
const MIN_RUN_SLICES: usize = 4;
/// Approximate number of bursts in a slice. With fewer bursts, the slice's time with the switch on varies too much to be used as a divisor.
const BURSTS_PER_SLICE: u64 = 5;
/// Minimum number of bursts for confidence intervals if times are wall time. On a busy machine, a few bursts may all find the program
/// waiting for a processor. In runs of two programs, profiles from fewer than 80 bursts overlapped with the full profile by 0 to 99.97%,
/// those from 320 or more by 92 to 99% (docs/benchmarks/constants.md).
const MIN_BURSTS_FOR_MARGINS: u64 = 200;
/// Maximum number of readings that are kept. When it is reached, neighbouring readings are joined in pairs.
const MAX_STORED_READINGS: usize = 8192;
/// Maximum number of counts in all readings together, about 32 MB. When it is reached, neighbouring readings are joined in pairs.
const MAX_COUNTS_IN_READINGS: usize = 1 << 21;

/// A unit of an image: the image's identity, and the unit's index in the image.
type ImageUnit = (Identity, usize);
/// Nonzero counts of each unit, as pairs of counter index and count, sorted by index.
type UnitSums = BTreeMap<ImageUnit, Vec<(u64, u64)>>;

/// Time with the switch on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchedOnTime {
    /// Time in nanoseconds.
    pub ns: u64,
    /// Number of bursts.
    pub bursts: u64,
}

/// Times, and increases of the counters, between two consecutive readings.
#[derive(Clone, Debug, Default)]
struct ReadingInterval {
    on: SwitchedOnTime,
    passed_ns: u64,
    counts: UnitSums,
}

/// Collects readings of the counters while a program runs. Joins neighbouring readings to limit their number.
#[derive(Debug)]
pub struct CounterReadings {
    units: BTreeMap<ImageUnit, Identity>,
    /// Counts at the previous reading.
    before: UnitSums,
    readings: Vec<ReadingInterval>,
    stride: u32,
}

impl Default for CounterReadings {
    fn default() -> CounterReadings {
        CounterReadings { units: BTreeMap::new(), before: UnitSums::new(), readings: Vec::new(), stride: 1 }
    }
}

/// A sampled run: its readings and times.
#[derive(Debug)]
pub struct SampledRun {
    /// The readings in order.
    pub readings: CounterReadings,
    /// See [`BurstSampling::on_ns`].
    pub on_ns: u64,
    /// See [`BurstSampling::total_ns`].
    pub total_ns: u64,
    /// See [`BurstSampling::bursts`].
    pub bursts: u64,
    /// The clock that measured the times.
    pub clock: SampledClock,
}

impl SwitchedOnTime {
    /// Adds time and bursts.
    pub fn add(&mut self, other: SwitchedOnTime) {
        self.ns += other.ns;
        self.bursts += other.bursts;
    }
}

impl CounterReadings {
    /// Returns the factor by which the caller should multiply the time between readings. It doubles whenever readings are joined.
    pub fn reading_interval_factor(&self) -> u32 {
        self.stride
    }

    /// Records a reading: the current counts, how long the switch has been on since the previous reading, and the nanoseconds that have
    /// passed since then.
    pub fn read(&mut self, raws: &[RawProfile], on: SwitchedOnTime, passed_ns: u64) {
        let mut now = UnitSums::new();
        for raw in raws {
            for (place, unit) in raw.units.iter().enumerate() {
                self.units.insert((raw.image, place), unit.unit);
                let known = now.entry((raw.image, place)).or_default();
                *known = sum::merge(known, &unit.counts, u64::saturating_add);
            }
        }
        let mut reading = ReadingInterval { on, passed_ns, counts: UnitSums::new() };
        for (key, counts) in &now {
            let gained = count_difference(counts, self.before.get(key).map_or(&[][..], Vec::as_slice));
            if !gained.is_empty() {
                reading.counts.insert(*key, gained);
            }
        }
        self.before = now;
        self.readings.push(reading);
        if self.readings.len() >= MAX_STORED_READINGS
            || self.readings.iter().map(ReadingInterval::len).sum::<usize>() >= MAX_COUNTS_IN_READINGS
        {
            self.stride = self.stride.saturating_mul(2);
            self.readings = std::mem::take(&mut self.readings).chunks(2).map(|pair| join_readings(pair[0].clone(), pair.get(1))).collect();
        }
    }

    /// Computes the work between readings from the cost of the executed paths. `profile` has the maps of these paths.
    fn compute_work_between_readings(&self, profile: &Profile) -> Vec<WorkBetweenReadings> {
        let costs: BTreeMap<ImageUnit, HashMap<u64, PathCost>> =
            self.units.iter().map(|(key, unit)| (*key, compute_costs(profile, key.0, *unit))).collect();
        let work = |reading: &ReadingInterval| {
            let mut work = WorkBetweenReadings::default();
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

impl ReadingInterval {
    fn len(&self) -> usize {
        self.counts.values().map(Vec::len).sum()
    }
}

impl SampledRun {
    /// Computes the estimates for the whole run, whose counts are in `profile`.
    ///
    /// Bursts differ in length: on a busy machine, one may last many times longer than intended, and the paths executed in it would be
    /// overrepresented. Therefore readings are joined to slices of the run, and each slice's counts are multiplied by its total time
    /// divided by its time with the switch on (post-stratification by time; Cochran, "Sampling Techniques", section 5A.9).
    pub fn estimate_counts(self, profile: &Profile) -> BurstSampling {
        let SampledRun { readings, on_ns, total_ns, bursts, clock } = self;
        // Counts are not weighted if the switch was on for more than half of the time.
        let is_mostly_counted = on_ns > total_ns / 2;
        let (weights, common_error) = match is_mostly_counted {
            true => (vec![1.0; readings.readings.len()], 0.0),
            false => readings.reading_weights(profile, on_ns as f64 / total_ns.max(1) as f64, clock),
        };
        let common_error = common_error.hypot(clock.relative_error(on_ns));
        let mut slices = join_readings_to_slices(&readings.readings, &weights, bursts);
        if !is_mostly_counted {
            let share = on_ns as f64 / total_ns.max(1) as f64;
            slices.iter_mut().for_each(|slice| slice.scale_to_share(share));
        }
        let number = slices.len() as u64;
        let is_enough = is_mostly_counted || clock == SampledClock::Processor || bursts >= MIN_BURSTS_FOR_MARGINS;
        let has_margins = slices.len() >= MIN_RUN_SLICES && is_enough;
        let units = readings.units.iter().map(|(key, unit)| UnitEstimates {
            image: key.0,
            unit: *unit,
            counters: estimate_counters(&slices, *key, common_error, has_margins),
        });
        let units = units.filter(|u| !u.counters.is_empty()).collect();
        BurstSampling { on_ns, total_ns, bursts, slices: number, waited: clock.waiting_time_share() as f32, units }
    }
}

impl CounterReadings {
    /// Returns the weight of each reading's counts, and the relative standard error that all weights have in common. `share` is the share
    /// of the run time with the switch on.
    fn reading_weights(&self, profile: &Profile, share: f64, clock: SampledClock) -> (Vec<f64>, f64) {
        let works = self.compute_work_between_readings(profile);
        let seen = |(reading, work): (&ReadingInterval, &WorkBetweenReadings)| CounterReading {
            on_ns: reading.on.ns as f64,
            bursts: reading.on.bursts as f64,
            work: work.instructions + work.counting,
        };
        let seen: Vec<CounterReading> = self.readings.iter().zip(&works).map(seen).collect();
        let loss = BurstLoss::from_readings(&seen, clock);
        let sum = |of: &dyn Fn(&CounterReading, &WorkBetweenReadings) -> f64| seen.iter().zip(&works).map(|(s, w)| of(s, w)).sum::<f64>();
        let (on, bursts) = (sum(&|s, _| s.on_ns), sum(&|s, _| s.bursts));
        // The time, with the switch on, in which the same work would be done without the cost of counting.
        let uncounted = |times: f64| sum(&|s, w| s.on_ns / w.slowdown(times));
        let faster = if on > 0.0 { 1.0 - share + share * uncounted(1.0) / on } else { 1.0 };
        let lost = |s: &CounterReading| if s.on_ns > 0.0 { s.on_ns / loss.effective_burst_ns(s.on_ns, s.bursts) } else { 1.0 };
        let weights = seen.iter().zip(&works).map(|(s, w)| w.slowdown(1.0) * faster * lost(s)).collect();
        let slower = if on > 0.0 { uncounted(1.0) / uncounted(1.0 + COUNTING_COST_ERROR_SHARE) - 1.0 } else { 0.0 };
        (weights, loss.relative_error(on, bursts).hypot(slower * (1.0 - share)).hypot(COLD_CACHE_ERROR_SHARE))
    }
}

/// A slice of the run with its weighted counts.
#[derive(Debug, Default)]
struct RunSlice {
    readings: usize,
    on_ns: f64,
    passed_ns: f64,
    counts: BTreeMap<ImageUnit, HashMap<u64, f64>>,
}

impl RunSlice {
    /// Scales the counts as if the switch had been on for the same share of the slice as of the whole run. That share is `share`.
    fn scale_to_share(&mut self, share: f64) {
        if self.on_ns > 0.0 && self.passed_ns > 0.0 {
            let factor = share * self.passed_ns.max(self.on_ns) / self.on_ns;
            self.counts.values_mut().flat_map(HashMap::values_mut).for_each(|count| *count *= factor);
            self.on_ns = self.passed_ns * share;
        }
    }
}

/// Joins readings to slices with about the same number of readings. If there are several slices, the switch was on for some time in each.
fn join_readings_to_slices(readings: &[ReadingInterval], weights: &[f64], bursts: u64) -> Vec<RunSlice> {
    let number = ((bursts / BURSTS_PER_SLICE) as usize).clamp(MIN_RUN_SLICES, MAX_RUN_SLICES);
    let readings_per_slice = readings.len().div_ceil(number).max(1);
    let mut slices: Vec<RunSlice> = Vec::new();
    for (reading, weight) in readings.iter().zip(weights) {
        if slices.last().is_none_or(|s| s.readings >= readings_per_slice && s.on_ns > 0.0 && reading.on.ns > 0) {
            slices.push(RunSlice::default());
        }
        let slice = slices.last_mut().expect("a slice was just added");
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

/// Estimates the weighted counts of a unit's counters and, if `has_margins`, their standard errors. The error of a counter is that of a
/// ratio estimator with slices as the sample (Cochran, "Sampling Techniques", section 6.4), `sqrt(n / (n - 1) * sum((count - rate *
/// time)^2))`, combined with the error that all counters have in common. Slices serve as batch means: they are less correlated than
/// neighbouring bursts.
fn estimate_counters(slices: &[RunSlice], key: ImageUnit, common_error: f64, has_margins: bool) -> Vec<CounterEstimate> {
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
        // Sums for a counter that is 0 in all slices. The loop corrects them for the slices in which it is not 0.
        let (mut second, mut fourth) = (rate.powi(2) * squares, rate.powi(4) * fourths);
        for (slice, count) in counts {
            let expected = rate * slices[slice].on_ns;
            second += (count - expected).powi(2) - expected.powi(2);
            fourth += (count - expected).powi(4) - expected.powi(4);
        }
        let (second, fourth) = (second.max(0.0), fourth.max(0.0));
        let variance = number / (number - 1.0) * second;
        let samples = (weighted * weighted / variance) as f32;
        // If a few slices make up most of the variance, the variance itself is uncertain. Hence the use of Student's quantile, with the
        // effective degrees of freedom of a sum of unequal squares (Satterthwaite, "An approximate distribution of estimates of variance
        // components", 1946).
        let freedom = if fourth > 0.0 { (second * second / fourth).min(number) - 1.0 } else { number - 1.0 };
        let error = (variance.sqrt() * student_t_quantile_95(freedom) / NORMAL_QUANTILE_95).hypot(weighted * common_error) as f32;
        CounterEstimate { index, weighted: weighted as f32, error: has_margins.then_some(error), samples: has_margins.then_some(samples) }
    };
    counts.into_iter().map(estimate).collect()
}

fn join_readings(mut one: ReadingInterval, other: Option<&ReadingInterval>) -> ReadingInterval {
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
    use crate::paths::{FunctionPaths, PathEnd, PathStart};
    use crate::raw::RawUnitCounts;
    use std::path::PathBuf;
    use std::sync::Arc;
    use trodden_testkit::{Random, functions};

    fn create_raw_profile(counts: &[(u64, u64)]) -> RawProfile {
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

    /// Adds a reading of a run that is counted for 1% of the time. `on` is the time with the switch on, in nanoseconds.
    fn add_reading(readings: &mut CounterReadings, raw: RawProfile, on: u64) {
        readings.read(&[raw], SwitchedOnTime { ns: on, bursts: 0 }, 100 * on);
    }

    fn finish(readings: CounterReadings, on_ns: u64, total_ns: u64) -> BurstSampling {
        SampledRun { readings, on_ns, total_ns, bursts: MIN_BURSTS_FOR_MARGINS, clock: SampledClock::Processor }.estimate_counts(&Profile {
            run: Run::default(),
            images: Vec::new(),
            sampling: None,
        })
    }

    fn ratio_estimator_error(counts: &[f64], times: &[f64]) -> f64 {
        let rate = counts.iter().sum::<f64>() / times.iter().sum::<f64>();
        let n = counts.len() as f64;
        let residues: f64 = counts.iter().zip(times).map(|(c, t)| (c - rate * t).powi(2)).sum();
        (n / (n - 1.0) * residues).sqrt()
    }

    #[test]
    fn margins_match_a_ratio_estimator_over_slices() {
        let (counts, times): ([f64; 5], [f64; 5]) = ([3.0, 5.0, 0.0, 9.0, 4.0], [10.0, 11.0, 9.0, 14.0, 10.0]);
        let mut readings = CounterReadings::default();
        let mut sum = 0;
        for (count, time) in counts.iter().zip(times) {
            sum += *count as u64;
            add_reading(&mut readings, create_raw_profile(&[(7, sum), (8, 1)]), time as u64);
        }
        let sampling = finish(readings, 54, 5400);
        assert_eq!(sampling.slices, 5);
        let estimate = sampling.estimate(Identity([1; 16]), Identity([2; 16]), 7, 21).unwrap();
        assert!((estimate.executions - 2100.0).abs() < 1e-6);
        let residues = |power: i32| counts.iter().zip(times).map(|(c, t)| (c - 21.0 / 54.0 * t).powi(power)).sum::<f64>();
        let effective = residues(2).powi(2) / residues(4);
        let sampled = student_t_quantile_95(effective - 1.0) * ratio_estimator_error(&counts, &times);
        let expected = 100.0 * sampled.hypot(NORMAL_QUANTILE_95 * COLD_CACHE_ERROR_SHARE * 21.0);
        assert!((estimate.margin.unwrap() - expected).abs() < 1e-3 * expected, "{estimate:?} {expected}");
        // `samples` independent samples have a relative sampling error of `1 / sqrt(samples)`, here 21 / sqrt(samples).
        let samples = (21.0 / ratio_estimator_error(&counts, &times)).powi(2);
        assert!((estimate.samples.unwrap() - samples).abs() < 1e-3 * samples, "{estimate:?} {samples}");
        // A second, independent run with the same counts halves the relative variance, so the number of samples doubles.
        let mut both = sampling.clone();
        both.add(sampling);
        let merged = both.estimate(Identity([1; 16]), Identity([2; 16]), 7, 42).unwrap();
        assert!((merged.samples.unwrap() - 2.0 * samples).abs() < 1e-3 * samples, "{merged:?} {samples}");
    }

    #[test]
    fn long_burst_is_not_overrepresented() {
        // Paths are executed three times per nanosecond in all bursts. Counter 2 counts the third burst, which is ten times as long as the
        // others, and counter 1 counts the other bursts.
        let (ons, passed) = ([10, 10, 100, 10, 10], 1000);
        let mut readings = CounterReadings::default();
        let (mut early, mut late) = (0, 0);
        for (slice, on) in ons.into_iter().enumerate() {
            *(if slice == 2 { &mut late } else { &mut early }) += 3 * on;
            readings.read(&[create_raw_profile(&[(1, early), (2, late)])], SwitchedOnTime { ns: on, bursts: 0 }, passed);
        }
        let sampling = finish(readings, 140, 5 * passed);
        let executions = |index, seen| sampling.estimate(Identity([1; 16]), Identity([2; 16]), index, seen).unwrap().executions;
        assert!((executions(1, early) - 12_000.0).abs() < 1.0, "{}", executions(1, early));
        assert!((executions(2, late) - 3_000.0).abs() < 1.0, "{}", executions(2, late));
    }

    #[test]
    fn iterations_counted_by_trip_count_cost_nothing() {
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
            let costs = compute_costs(&Profile { run: Run::default(), images, sampling: None }, image, identity);
            for function in &map.functions {
                let counts = (0..function.counters).map(|path| (path, 1));
                for path in FunctionPaths::decode(function, counts).unwrap().complete {
                    let is_iteration = matches!((path.beginning, path.end), (PathStart::After(_), PathEnd::Cut(_)));
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
    fn joining_many_readings_keeps_all_counts() {
        let mut readings = CounterReadings::default();
        let number = 2 * MAX_STORED_READINGS as u64 + 1;
        for reading in 1..=number {
            add_reading(&mut readings, create_raw_profile(&[(3, reading * 1000)]), 1);
        }
        assert!(readings.readings.len() < MAX_STORED_READINGS && readings.reading_interval_factor() > 1);
        let sampling = finish(readings, number, 100 * number);
        assert!(sampling.slices as usize <= MAX_RUN_SLICES);
        let estimate = sampling.estimate(Identity([1; 16]), Identity([2; 16]), 3, number * 1000).unwrap();
        assert!((estimate.executions / (1e5 * number as f64) - 1.0).abs() < 1e-6, "{estimate:?}");
    }

    #[test]
    fn short_runs_have_no_margins() {
        let mut readings = CounterReadings::default();
        add_reading(&mut readings, create_raw_profile(&[(3, 4)]), 5);
        assert_eq!(finish(readings, 5, 50).estimate(Identity([1; 16]), Identity([2; 16]), 3, 4).unwrap().margin, None);
        // With wall time, a run with few bursts has no margins, however many slices it has. Margins are wider if the program waited for a
        // processor.
        let margin = |bursts, waited| {
            let mut readings = CounterReadings::default();
            (1..=20).for_each(|at| add_reading(&mut readings, create_raw_profile(&[(3, 4 * at)]), 5));
            let clock = SampledClock::Wall { intended_ns: 100, waited };
            let sampled = SampledRun { readings, on_ns: 100, total_ns: 10_000, bursts, clock };
            let sampling = sampled.estimate_counts(&Profile { run: Run::default(), images: Vec::new(), sampling: None });
            sampling.estimate(Identity([1; 16]), Identity([2; 16]), 3, 80).map(|estimate| estimate.margin)
        };
        assert_eq!(margin(MIN_BURSTS_FOR_MARGINS - 1, 0.0), Some(None));
        assert!(margin(MIN_BURSTS_FOR_MARGINS, 0.45).flatten() > margin(MIN_BURSTS_FOR_MARGINS, 0.0).flatten().map(|m| 1.2 * m));
        // A program that waited most of the time has no estimates at all.
        assert_eq!(margin(MIN_BURSTS_FOR_MARGINS, 0.9), None);
    }
}
