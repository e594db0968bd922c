//! Characteristics of a program's paths: the share of execution on the hottest ones, their lengths, the overlap of event profiles with the
//! frequency profile, and whether the two power models rank paths alike (K. Vaswani, *Efficient Online Path Profiling*, figures 5.2 and
//! 5.3, sections 5.3 and 5.5.2).

use crate::processor::ProcessorEvent;
use crate::profile::{PathProfile, overlap};
use crate::profiler::{Metric, Profiler};
use crate::statistics::{cumulative, rank_correlation};
use serde::Serialize;

/// Characteristics of a program's paths.
#[derive(Clone, Debug, Serialize)]
pub struct Character {
    /// Cumulative distribution of each metric over the hottest paths (figure 5.2).
    pub skew: Vec<Skew>,
    /// Cumulative distribution of instructions over path lengths (figure 5.3).
    pub lengths: Vec<LengthPoint>,
    /// Comparison of each event's profile with the frequency profile (section 5.3).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventProfile>,
    /// Comparison of the analytical power model with the cycle-level one; `None` unless both were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_models: Option<Agreement>,
}

/// The cumulative distribution of a metric.
#[derive(Clone, Debug, Serialize)]
pub struct Skew {
    /// Name of the metric. `instructions-executed` is exact, without the limits of a hardware counter.
    pub metric: String,
    /// Points in ascending order.
    pub points: Vec<SkewPoint>,
}

/// A point of the distribution over the hottest paths.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SkewPoint {
    /// Number of hottest paths.
    pub paths: usize,
    /// Their percentage of the metric's total.
    pub percent: f64,
}

/// A point of the distribution over path lengths.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LengthPoint {
    /// Maximum path length in branches.
    pub branches: usize,
    /// Percentage of executed instructions that are on paths of at most this length.
    pub percent: f64,
}

/// Comparison of an event's profile with the frequency profile.
#[derive(Clone, Debug, Serialize)]
pub struct EventProfile {
    /// Name of the event.
    pub metric: String,
    /// Overlap percentage of the two complete profiles; `None` if one is empty.
    pub overlap_with_frequency: Option<f64>,
}

/// Agreement of two profiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Agreement {
    /// Spearman's rank correlation, from -1 to 1; `None` if undefined.
    pub rank_correlation: Option<f64>,
    /// Overlap percentage; `None` if one profile is empty.
    pub overlap: Option<f64>,
}

/// Computes the characteristics of the paths in a profiler's complete profiles. Metrics without a profile are omitted.
pub fn characterize(profiler: &Profiler, metrics: &[Metric]) -> Character {
    let mut shown = vec![Metric::Instructions, Metric::Frequency];
    shown.extend(metrics.iter().filter(|m| **m != Metric::Frequency));
    let skew = |metric: &Metric| Some(Skew { metric: name(*metric), points: skew_points(profiler.complete(*metric)?) });
    let frequency = profiler.complete(Metric::Frequency);
    let event = |metric: &Metric| EventProfile {
        metric: name(*metric),
        overlap_with_frequency: profiler.complete(*metric).zip(frequency).and_then(|(one, other)| overlap(one, other)),
    };
    let power = |event: ProcessorEvent| profiler.complete(Metric::Event(event as usize));
    let models = power(ProcessorEvent::AnalyticalPower).zip(power(ProcessorEvent::CyclePower));
    Character {
        skew: shown.iter().filter_map(skew).collect(),
        lengths: lengths(profiler.instructions_by_length()),
        events: metrics.iter().filter(|m| **m != Metric::Frequency).map(event).collect(),
        power_models: models.map(|(one, other)| Agreement { rank_correlation: rank_correlation(one, other), overlap: overlap(one, other) }),
    }
}

fn name(metric: Metric) -> String {
    match metric {
        Metric::Frequency => "frequency".into(),
        Metric::Instructions => "instructions-executed".into(),
        Metric::Event(at) => ProcessorEvent::ALL.get(at).map_or_else(|| at.to_string(), |e| e.name().into()),
    }
}

fn skew_points(profile: &PathProfile) -> Vec<SkewPoint> {
    cumulative(&profile.hottest()).into_iter().map(|(paths, percent)| SkewPoint { paths, percent }).collect()
}

fn lengths(instructions: &[u64]) -> Vec<LengthPoint> {
    let total: u64 = instructions.iter().sum();
    let mut sum = 0;
    let point = |(branches, instructions): (usize, &u64)| {
        sum += instructions;
        LengthPoint { branches, percent: 100.0 * sum as f64 / total.max(1) as f64 }
    };
    instructions.iter().enumerate().map(point).collect()
}
