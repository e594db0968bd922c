//! Characteristics of a program's paths (K. Vaswani, *Efficient Online Path Profiling*, figures 5.2 and 5.3, sections 5.3 and 5.5.2): the
//! share of execution on the hottest paths, the lengths of the paths, how far event profiles overlap with the frequency profile, and
//! whether the two power models rank paths alike.

use crate::processor::ProcessorEvent;
use crate::profile::{PathProfile, compute_overlap};
use crate::profiler::{Metric, Profiler};
use crate::statistics::{compute_cumulative_shares, rank_correlation};
use serde::Serialize;

/// Characteristics of a program's paths.
#[derive(Clone, Debug, Serialize)]
pub struct PathCharacteristics {
    /// For each metric, the share of its total that the hottest paths account for (figure 5.2).
    pub skew: Vec<MetricSkew>,
    /// Cumulative distribution of executed instructions over path lengths (figure 5.3).
    pub lengths: Vec<LengthPoint>,
    /// For each event, how far its profile overlaps with the frequency profile (section 5.3).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventProfileAgreement>,
    /// How far the analytical and the cycle-level power model agree; `None` unless both were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_models: Option<ProfileAgreement>,
}

/// The cumulative distribution of a metric over the hottest paths.
#[derive(Clone, Debug, Serialize)]
pub struct MetricSkew {
    /// Name of the metric. `instructions-executed` is exact: unlike the others, no hardware counter limits it.
    pub metric: String,
    /// Points in ascending order of their number of paths.
    pub points: Vec<SkewPoint>,
}

/// A point of a metric's distribution over the hottest paths.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SkewPoint {
    /// Number of paths, counted from the hottest.
    pub paths: usize,
    /// Percentage of the metric's total that these paths account for.
    pub percent: f64,
}

/// A point of the distribution of instructions over path lengths.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LengthPoint {
    /// Path length in branches. The point covers all paths of at most this length.
    pub branches: usize,
    /// Percentage of the executed instructions that are on these paths.
    pub percent: f64,
}

/// How far the profile of one event overlaps with the frequency profile.
#[derive(Clone, Debug, Serialize)]
pub struct EventProfileAgreement {
    /// Name of the event.
    pub metric: String,
    /// Overlap of the two complete profiles, in percent; `None` if one of them is empty or missing.
    pub overlap_with_frequency: Option<f64>,
}

/// How far two profiles agree.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ProfileAgreement {
    /// Spearman's rank correlation, from -1 to 1; `None` if it is undefined.
    pub rank_correlation: Option<f64>,
    /// Overlap of the two profiles, in percent; `None` if one of them is empty.
    pub overlap: Option<f64>,
}

/// Computes the characteristics of the paths in a profiler's complete profiles. Metrics that the profiler does not profile are omitted from
/// `skew`, and have no overlap in `events`.
pub fn characterize_paths(profiler: &Profiler, metrics: &[Metric]) -> PathCharacteristics {
    let mut shown = vec![Metric::Instructions, Metric::Frequency];
    shown.extend(metrics.iter().filter(|m| **m != Metric::Frequency));
    let skew =
        |metric: &Metric| Some(MetricSkew { metric: metric_name(*metric), points: skew_points(profiler.complete_path_profile(*metric)?) });
    let frequency = profiler.complete_path_profile(Metric::Frequency);
    let event = |metric: &Metric| EventProfileAgreement {
        metric: metric_name(*metric),
        overlap_with_frequency: profiler.complete_path_profile(*metric).zip(frequency).and_then(|(one, other)| compute_overlap(one, other)),
    };
    let power = |event: ProcessorEvent| profiler.complete_path_profile(Metric::Event(event as usize));
    let models = power(ProcessorEvent::AnalyticalPower).zip(power(ProcessorEvent::CyclePower));
    PathCharacteristics {
        skew: shown.iter().filter_map(skew).collect(),
        lengths: length_points(profiler.instructions_by_length()),
        events: metrics.iter().filter(|m| **m != Metric::Frequency).map(event).collect(),
        power_models: models
            .map(|(one, other)| ProfileAgreement { rank_correlation: rank_correlation(one, other), overlap: compute_overlap(one, other) }),
    }
}

fn metric_name(metric: Metric) -> String {
    match metric {
        Metric::Frequency => "frequency".into(),
        Metric::Instructions => "instructions-executed".into(),
        Metric::Event(at) => ProcessorEvent::ALL.get(at).map_or_else(|| at.to_string(), |e| e.name().into()),
    }
}

fn skew_points(profile: &PathProfile) -> Vec<SkewPoint> {
    compute_cumulative_shares(&profile.hottest_paths()).into_iter().map(|(paths, percent)| SkewPoint { paths, percent }).collect()
}

fn length_points(instructions: &[u64]) -> Vec<LengthPoint> {
    let total: u64 = instructions.iter().sum();
    let mut sum = 0;
    let point = |(branches, instructions): (usize, &u64)| {
        sum += instructions;
        LengthPoint { branches, percent: 100.0 * sum as f64 / total.max(1) as f64 }
    };
    instructions.iter().enumerate().map(point).collect()
}
