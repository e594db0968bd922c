//! Phases of an execution: intervals that do similar work are found by clustering.
//!
//! After T. Sherwood, E. Perelman, G. Hamerly and B. Calder, "Automatically characterizing large scale program behavior" (ASPLOS 2002):
//! each interval is represented by a vector of how often its features (paths or blocks) were executed. Vectors are scaled to sum 1 and
//! projected randomly to 15 dimensions. k-means runs for each number of clusters; the smallest number whose Bayesian information criterion
//! (D. Pelleg and A. Moore, "X-means", ICML 2000) reaches 90% of its range is chosen. Vectors of paths find phases that vectors of blocks
//! cannot (K. Vaswani, *Efficient Online Path Profiling*, section 6.2.3).

use crate::SequenceError;
use crate::compress::hashing::mix_bits;
use std::collections::BTreeMap;

/// What was executed in an interval: features, such as paths, in ascending order, each with its number of executions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalVector(pub Vec<(u64, f64)>);

/// Parameters of the search for phases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseParameters {
    /// Maximum number of phases.
    pub max_phases: usize,
    /// Number of dimensions to which vectors are projected.
    pub dimensions: usize,
    /// Number of initial clusterings that are tried for each number of phases.
    pub seeds: u64,
    /// How much of the range of the Bayesian information criterion the chosen clustering must reach (0 to 1).
    pub enough: f64,
}

impl Default for PhaseParameters {
    /// Returns the values that Sherwood et al. used.
    fn default() -> Self {
        PhaseParameters { max_phases: 10, dimensions: 15, seeds: 5, enough: 0.9 }
    }
}

/// The phases of an execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Phases {
    /// For each interval, its phase. Phases are numbered in order of their first interval.
    pub phase_of_interval: Vec<usize>,
    /// The phases in the order of their numbers.
    pub phases: Vec<Phase>,
}

/// A set of intervals that do similar work.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Number of intervals in the phase.
    pub intervals: usize,
    /// The interval nearest to the centre of the phase's cluster.
    pub representative: usize,
    /// The phase's features, each with its mean share of an interval. The greatest share comes first.
    pub features: Vec<(u64, f64)>,
}

impl Phases {
    /// Returns the numbers of the intervals whose phase differs from that of the previous interval.
    pub fn phase_change_intervals(&self) -> Vec<usize> {
        (1..self.phase_of_interval.len()).filter(|at| self.phase_of_interval[*at] != self.phase_of_interval[at - 1]).collect()
    }
}

/// Splits a sequence into intervals of `length` symbols, the last of which may be shorter. `features` calls its callback with each feature
/// of a symbol and the feature's weight. `length` must not be zero.
pub fn split_into_intervals(
    symbols: impl Iterator<Item = u64>,
    length: u64,
    mut features: impl FnMut(u64, &mut dyn FnMut(u64, f64)),
) -> Result<Vec<IntervalVector>, SequenceError> {
    if length == 0 {
        return Err(SequenceError::invalid_parameter("symbols of an interval", length, "at least 1"));
    }
    let mut vectors = Vec::new();
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    let mut filled = 0;
    let mut close = |sums: &mut BTreeMap<u64, f64>| vectors.push(IntervalVector(std::mem::take(sums).into_iter().collect()));
    for symbol in symbols {
        features(symbol, &mut |feature, weight| *sums.entry(feature).or_default() += weight);
        filled += 1;
        if filled == length {
            close(&mut sums);
            filled = 0;
        }
    }
    if filled > 0 {
        close(&mut sums);
    }
    Ok(vectors)
}

/// Amount by which the criterion of several phases must exceed that of a single phase.
const MIN_CRITERION_GAIN: f64 = 5.0;

/// Finds the phases of a sequence of intervals. The result is deterministic, since projections and initial centres come from hashes.
///
/// The method differs from the paper's, because a path vector may have few features, and an execution may have few intervals. The criterion
/// uses the effective number of dimensions. No cluster is assumed to be narrower than sampling noise, which is a variance of 1 / W for W
/// events. The number of phases is at most the square root of the number of intervals. Several phases are preferred to one only with "very
/// strong" evidence (R. E. Kass and A. E. Raftery, "Bayes factors", 1995). Parameters must not be zero, and `enough` must be from 0 to 1.
pub fn find_phases(intervals: &[IntervalVector], parameters: PhaseParameters) -> Result<Phases, SequenceError> {
    let PhaseParameters { max_phases, dimensions, seeds, enough } = parameters;
    if max_phases == 0 || dimensions == 0 || seeds == 0 {
        return Err(SequenceError::invalid_parameter("phases, dimensions or seeds", 0, "at least 1"));
    }
    if !(0.0..=1.0).contains(&enough) {
        return Err(SequenceError::invalid_parameter("enough", enough, "0 to 1"));
    }
    if intervals.is_empty() {
        return Ok(Phases { phase_of_interval: Vec::new(), phases: Vec::new() });
    }
    let points: Vec<Vec<f64>> = intervals.iter().map(|interval| project_vector(interval, dimensions)).collect();
    let most = max_phases.min(points.len().isqrt());
    let clusterings: Vec<Clustering> = (1..=most).map(|k| best_clustering(&points, k, seeds)).collect();
    let spread = effective_dimensions(&points);
    let events = intervals.iter().map(event_count).sum::<f64>() / intervals.len() as f64;
    // The factor is 1/3 because the square of a random coordinate between -1 and 1 has this mean.
    let min_variance = dimensions as f64 / 3.0 / (events.max(1.0) * spread);
    let score = |clustering: &Clustering| clustering.bayesian_information_criterion(points.len(), spread, min_variance);
    let scores: Vec<f64> = clusterings.iter().map(score).collect();
    let (least, greatest) = scores.iter().fold((f64::MAX, f64::MIN), |(a, b), score| (a.min(*score), b.max(*score)));
    let is_enough = |score: &f64| *score >= least + enough * (greatest - least);
    let chosen = if greatest - scores[0] < MIN_CRITERION_GAIN { 0 } else { scores.iter().position(is_enough).unwrap_or(0) };
    Ok(describe_phases(&clusterings[chosen], &points, intervals))
}

fn event_count(interval: &IntervalVector) -> f64 {
    interval.0.iter().map(|(_, weight)| weight).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// Scales an interval's vector to sum 1 and projects it. Each feature has a random direction, with coordinates between -1 and 1.
fn project_vector(interval: &IntervalVector, dimensions: usize) -> Vec<f64> {
    let total = event_count(interval);
    let mut point = vec![0.0; dimensions];
    for (feature, weight) in &interval.0 {
        for (dimension, coordinate) in (1_u64..).zip(&mut point) {
            let random = mix_bits(mix_bits(*feature ^ 0x5bf0_3635) ^ dimension.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            *coordinate += weight / total * (random as f64 / u64::MAX as f64 * 2.0 - 1.0);
        }
    }
    point
}

/// Returns the effective number of dimensions of the points. It is at least 1, and is less than the nominal number if the points are spread
/// mainly in few directions.
fn effective_dimensions(points: &[Vec<f64>]) -> f64 {
    let (count, dimensions) = (points.len() as f64, points[0].len());
    let means: Vec<f64> = (0..dimensions).map(|d| points.iter().map(|point| point[d]).sum::<f64>() / count).collect();
    let covariance = |a: usize, b: usize| points.iter().map(|point| (point[a] - means[a]) * (point[b] - means[b])).sum::<f64>() / count;
    let trace: f64 = (0..dimensions).map(|d| covariance(d, d)).sum();
    let squares: f64 = (0..dimensions).flat_map(|a| (0..dimensions).map(move |b| (a, b))).map(|(a, b)| covariance(a, b).powi(2)).sum();
    if squares > 0.0 { (trace * trace / squares).clamp(1.0, dimensions as f64) } else { 1.0 }
}

struct Clustering {
    centres: Vec<Vec<f64>>,
    of_point: Vec<usize>,
    /// Sum of squared distances.
    distortion: f64,
}

fn best_clustering(points: &[Vec<f64>], k: usize, seeds: u64) -> Clustering {
    let clusterings = (0..seeds).map(|seed| run_kmeans(points, k, seed));
    let best = clusterings.min_by(|a, b| a.distortion.total_cmp(&b.distortion));
    best.unwrap_or_else(|| run_kmeans(points, k, 0))
}

/// Maximum number of k-means iterations, which is that of the paper.
const MAX_KMEANS_ITERATIONS: usize = 100;

fn run_kmeans(points: &[Vec<f64>], k: usize, seed: u64) -> Clustering {
    let mut centres = choose_first_centres(points, k, seed);
    let mut of_point = vec![usize::MAX; points.len()];
    for _ in 0..MAX_KMEANS_ITERATIONS {
        let nearest: Vec<usize> = points.iter().map(|point| nearest_centre(point, &centres).0).collect();
        if nearest == of_point {
            break;
        }
        of_point = nearest;
        for (number, centre) in centres.iter_mut().enumerate() {
            let members: Vec<&Vec<f64>> = points.iter().zip(&of_point).filter(|(_, of)| **of == number).map(|(point, _)| point).collect();
            // A centre without points does not move.
            if !members.is_empty() {
                for (dimension, coordinate) in centre.iter_mut().enumerate() {
                    *coordinate = members.iter().map(|point| point[dimension]).sum::<f64>() / members.len() as f64;
                }
            }
        }
    }
    let distortion = points.iter().zip(&of_point).map(|(point, of)| squared_distance(point, &centres[*of])).sum();
    Clustering { centres, of_point, distortion }
}

/// Chooses the initial centres: first a point that the seed determines, then repeatedly the point that is farthest from all centres.
fn choose_first_centres(points: &[Vec<f64>], k: usize, seed: u64) -> Vec<Vec<f64>> {
    let first = (mix_bits(seed + 1) % points.len() as u64) as usize;
    let mut centres = vec![points[first].clone()];
    while centres.len() < k {
        let far = points.iter().max_by(|a, b| nearest_centre(a, &centres).1.total_cmp(&nearest_centre(b, &centres).1));
        centres.extend(far.cloned());
    }
    centres
}

fn nearest_centre(point: &[f64], centres: &[Vec<f64>]) -> (usize, f64) {
    let distances = centres.iter().map(|centre| squared_distance(point, centre)).enumerate();
    distances.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
}

fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

impl Clustering {
    /// Returns the Bayesian information criterion: the log-likelihood of the points, assuming spherical normal distributions of equal
    /// variance around the centres, minus a penalty for the number of centres.
    fn bayesian_information_criterion(&self, points: usize, dimensions: f64, min_variance: f64) -> f64 {
        let (count, k) = (points as f64, self.centres.len() as f64);
        let freedom = (count - k).max(1.0) * dimensions;
        let variance = (self.distortion / freedom).max(min_variance);
        let mut likelihood = -count * dimensions / 2.0 * (std::f64::consts::TAU * variance).ln() - self.distortion / (2.0 * variance);
        for number in 0..self.centres.len() {
            let members = self.of_point.iter().filter(|of| **of == number).count() as f64;
            if members > 0.0 {
                likelihood += members * (members / count).ln();
            }
        }
        likelihood - k * (dimensions + 1.0) / 2.0 * count.ln()
    }
}

fn describe_phases(clustering: &Clustering, points: &[Vec<f64>], intervals: &[IntervalVector]) -> Phases {
    let mut order: Vec<usize> = Vec::new();
    for cluster in &clustering.of_point {
        if !order.contains(cluster) {
            order.push(*cluster);
        }
    }
    let number = |cluster: usize| order.iter().position(|c| *c == cluster).unwrap_or(0);
    let phase_of_interval: Vec<usize> = clustering.of_point.iter().map(|cluster| number(*cluster)).collect();
    let phase = |cluster: &usize| {
        let members: Vec<usize> = (0..points.len()).filter(|point| clustering.of_point[*point] == *cluster).collect();
        let distance = |point: usize| squared_distance(&points[point], &clustering.centres[*cluster]);
        let representative = members.iter().copied().min_by(|a, b| distance(*a).total_cmp(&distance(*b)));
        Phase {
            intervals: members.len(),
            representative: representative.unwrap_or(0),
            features: mean_shares(members.iter().map(|member| &intervals[*member])),
        }
    };
    Phases { phases: order.iter().map(phase).collect(), phase_of_interval }
}

fn mean_shares<'a>(members: impl ExactSizeIterator<Item = &'a IntervalVector>) -> Vec<(u64, f64)> {
    let count = members.len() as f64;
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for interval in members {
        let total = event_count(interval);
        for (feature, weight) in &interval.0 {
            *sums.entry(*feature).or_default() += weight / total / count;
        }
    }
    let mut features: Vec<(u64, f64)> = sums.into_iter().collect();
    features.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    features
}
