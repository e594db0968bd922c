//! How a profile was sampled, and estimates of the true number of executions from sampled counts.

use crate::select::RankedPath;
use crate::view::ProfileView;
use crate::words;
use serde_json::{Map, Value, json};
use trodden_profile::{BranchSampling, BurstEstimate, Sampling, SamplingSource};

/// Estimates how often a path was executed. Returns `None` if the path's unit was not sampled, or if the samples do not permit an estimate.
pub fn estimate_executions(view: &ProfileView, ranked: &RankedPath) -> Option<BurstEstimate> {
    let (sampling, function) = (view.profile.sampling.as_ref()?.bursts()?, ranked.function);
    let index = function.map.first_counter + ranked.path.id;
    let is_sampled = function.unit.map.experiment.is_sampled();
    is_sampled.then(|| sampling.estimate(function.image.identity, function.unit.unit, index, ranked.path.count)).flatten()
}

pub fn describe_sampling(sampling: &Sampling) -> String {
    let sampling = match sampling {
        Sampling::Branches(branches) => return branches.summary(),
        Sampling::Bursts(bursts) => bursts,
    };
    if sampling.bursts == 0 {
        return "nothing was counted, because the program ended before the first burst".into();
    }
    let bursts = words::plural(sampling.bursts.into(), "burst", "bursts");
    if sampling.is_estimate_withheld() {
        return format!(
            "counted in {bursts}, but the program waited for a CPU {:.0}% of the time: counts are as observed, without estimates. \
                Record on a less busy machine, or where perf_event_open(2) is allowed",
            100.0 * sampling.waited
        );
    }
    format!(
        "counted for {:.2}% of the time, in {bursts}: counts are as observed; each represents about {:.1} executions",
        100.0 / sampling.scale(),
        sampling.scale()
    )
}

pub fn format_estimate(estimate: &BurstEstimate) -> String {
    let whole = |number: f64| words::count(number.round() as u128);
    let margin = match estimate.margin {
        Some(margin) => format!(" ± {} (95%)", whole(margin)),
        None => " (the run is too short for a margin)".into(),
    };
    format!("estimated {}{margin}", whole(estimate.executions))
}

/// Summarises the sampling as JSON; null if the profile is not sampled.
pub fn sampling_json(sampling: Option<&Sampling>) -> Value {
    let s = match sampling {
        None => return Value::Null,
        Some(Sampling::Branches(branches)) => return branches_json(branches),
        Some(Sampling::Bursts(bursts)) => bursts,
    };
    json!({
        "source": "bursts", "on_ns": s.on_ns, "total_ns": s.total_ns, "bursts": s.bursts, "slices": s.slices, "scale": s.scale(),
        "waited": s.waited,
    })
}

fn branches_json(sampling: &BranchSampling) -> Value {
    let source = match sampling.source {
        SamplingSource::BranchRecords => "branch records",
        SamplingSource::BranchTrace => "branch trace",
        SamplingSource::HotPaths => "hot paths",
    };
    let mut out = json!(sampling.losses);
    out["summary"] = json!(sampling.summary());
    out["source"] = json!(source);
    out["samples"] = json!(sampling.samples);
    out["windows"] = json!(sampling.windows);
    out["records"] = json!(sampling.records);
    out["whole_paths"] = json!(sampling.whole_paths);
    out
}

pub fn add_estimate_to_json(path: &mut Map<String, Value>, estimate: Option<BurstEstimate>) {
    if let Some(BurstEstimate { executions, margin, samples }) = estimate {
        path.insert("estimate".into(), json!({ "executions": executions, "margin_95": margin, "samples": samples }));
    }
}
