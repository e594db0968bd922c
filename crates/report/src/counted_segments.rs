//! Reports on programs that count interprocedural segments, which are chains of nested calls with a path in each function. The reports show
//! the number of counters, the calls that were inlined or redirected to copies of callees, and comparisons with recorded streams.

use crate::DemangledName;
use crate::words::plural;
use serde_json::{Value, json};
use trodden_analysis::segments::{ComparedSegments, NamedPath, ObservedSegments};
use trodden_profile::ImageProfile;
use trodden_profile::segments::{CountedSegments, SegmentCounterStatistics, function_map, unit_map};

const MAX_SHOWN_DIFFERENCES: usize = 10;

/// Returns each function's number of counters and of interesting segments as JSON. These are the columns of figure 3.20 in Vaswani's
/// thesis.
pub fn segment_counters_json(observed: &ObservedSegments) -> Value {
    let of_image = |(image, found): (&ImageProfile, &CountedSegments)| -> Vec<Value> {
        let function = |statistics: &SegmentCounterStatistics| {
            json!({
                "function": DemangledName::from_linkage(function_map(image, statistics.function).plain_name()).full,
                "file": unit_map(image, statistics.function).source,
                "counters": statistics.words,
                "interesting": statistics.interesting,
                "inlined": statistics.inlined,
                "duplicated": statistics.duplicated,
            })
        };
        found.counters.iter().map(function).collect()
    };
    Value::Array(observed.profile.images.iter().zip(&observed.images).flat_map(of_image).collect())
}

/// Summarises how many counters and interesting segments there are, and how many calls were inlined or redirected to copies.
pub fn summarise_counters(observed: &ObservedSegments) -> Vec<String> {
    let all = || observed.images.iter().flat_map(|f| &f.counters);
    let (words, interesting) = all().fold((0, 0), |sum, of| (sum.0 + of.words, sum.1 + of.interesting));
    let (inlined, duplicated) = all().fold((0u64, 0u64), |sum, of| (sum.0 + u64::from(of.inlined), sum.1 + u64::from(of.duplicated)));
    let others: u64 = observed.images.iter().map(|f| f.others).sum();
    let mut remarks = vec![format!(
        "{} for {}; paths of callees were counted {} in uninteresting contexts",
        plural(words.into(), "counter", "counters"),
        plural(interesting.into(), "interesting segment", "interesting segments"),
        plural(others.into(), "time", "times")
    )];
    if inlined + duplicated > 0 {
        let copies = plural(duplicated.into(), "call goes to a copy", "calls go to copies");
        remarks.push(format!("{} inlined, {copies}", plural(inlined.into(), "call is", "calls are")));
    }
    remarks
}

/// Describes the first [`MAX_SHOWN_DIFFERENCES`] segments whose count differs from their number of executions in the recorded stream.
pub fn describe_differences(compared: &ComparedSegments) -> impl Iterator<Item = String> + '_ {
    compared.differing.iter().take(MAX_SHOWN_DIFFERENCES).map(|(segment, found, expected)| {
        let words: Vec<String> =
            segment.iter().map(|(_, name, path): &NamedPath| format!("{}:{path}", DemangledName::from_linkage(name).short)).collect();
        let times = plural((*found).into(), "time", "times");
        format!("{} was counted {times}, but executed {}", words.join(" > "), plural((*expected).into(), "time", "times"))
    })
}

/// Describes the result of comparing segment counters with a stream in one line.
pub fn describe_comparison(compared: &ComparedSegments) -> String {
    format!(
        "{} of depth {} compared, executed {}: {} counted differently; {} left out because the caller's code does not make the call\n",
        plural(compared.compared as u128, "segment", "segments"),
        compared.depth,
        plural(compared.executions, "time", "times"),
        plural(compared.differing.len() as u128, "is", "are"),
        plural(compared.left_out as u128, "is", "are"),
    )
}
