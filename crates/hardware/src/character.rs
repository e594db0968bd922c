//! What the paths of a program look like: how few of them hold most of it, how long they are, what profiles of events
//! have in common with that of frequency, and whether the power models order paths alike.
//!
//! Source: K. Vaswani, *Efficient Online Path Profiling*, figures 5.2 and 5.3, sections 5.3 and 5.5.2.

use crate::processor::ProcessorEvent;
use crate::profile::{PathProfile, overlap};
use crate::profiler::{Metric, Profiler};
use crate::statistics::{cumulative, rank_correlation};
use serde::Serialize;

/// The character of a program's paths.
#[derive(Clone, Debug, Serialize)]
pub struct Character {
    /// Cumulative distributions over the hottest paths (figure 5.2).
    pub skew: Vec<Skew>,
    /// Instructions on paths of at most so many branches (figure 5.3).
    pub lengths: Vec<LengthPoint>,
    /// Profiles of events beside that of frequency (section 5.3).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventProfile>,
    /// The analytical power model beside the cycle-level one, where both were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_models: Option<Agreement>,
}

/// The cumulative distribution of a metric.
#[derive(Clone, Debug, Serialize)]
pub struct Skew {
    /// Its name; `instructions-executed` are counted in full, without the hardware's counter.
    pub metric: String,
    /// Ascending.
    pub points: Vec<SkewPoint>,
}

/// So many of the hottest paths have so much of the metric.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SkewPoint {
    /// Number of paths.
    pub paths: usize,
    /// Percent of the metric's total.
    pub percent: f64,
}

/// Paths of at most so many branches have so many of the instructions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LengthPoint {
    /// Number of branches.
    pub branches: usize,
    /// Percent of the instructions on paths.
    pub percent: f64,
}

/// A profile of an event.
#[derive(Clone, Debug, Serialize)]
pub struct EventProfile {
    /// The event.
    pub metric: String,
    /// Overlap percentage of its complete profile with the complete frequency profile.
    pub overlap_with_frequency: Option<f64>,
}

/// How alike two profiles are.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Agreement {
    /// Spearman's rank correlation, from -1 to 1.
    pub rank_correlation: Option<f64>,
    /// Overlap percentage.
    pub overlap: Option<f64>,
}

/// The character of the paths that a profiler saw, of these metrics.
pub fn character(profiler: &Profiler, metrics: &[Metric]) -> Character {
    let mut shown = vec![Metric::Instructions, Metric::Frequency];
    shown.extend(metrics.iter().filter(|m| **m != Metric::Frequency));
    let skew = |metric: &Metric| Some(Skew { metric: name(*metric), points: points(profiler.complete(*metric)?) });
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

fn points(profile: &PathProfile) -> Vec<SkewPoint> {
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
