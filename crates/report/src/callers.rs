//! The callers of each function in a report, from a run's streams or counted segments.

use crate::names::DemangledName;
use crate::paint;
use crate::select::limit;
use crate::text::{PageLayout, TextOptions};
use crate::words::{count, percent, plural, reasons};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use trodden_analysis::segments::ObservedSegments;
use trodden_profile::segments::{counts_segments, function_map, unit_map};
use trodden_profile::stream::StreamLog;
use trodden_profile::{FunctionPaths, ImageProfile, PathStart, Profile};
use trodden_stored::place::streams_folder_of;
use trodden_stored::{Folders, streams};

/// A function's source file and linkage name.
type FunctionName = (String, String);

/// A function's short name, the number of its calls whose caller is known, and the number of calls by each caller.
type CallersOfFunction = (String, u64, Vec<(String, u64)>);

/// Maximum number of events in a run's streams. Searching longer streams for callers would take too long.
const MAX_SEARCHED_EVENTS: u64 = 20_000_000;
const MAX_CALLERS_PER_FUNCTION: usize = 4;

/// The number of times each function was called by each of its callers. Calls that did not complete their first path are not counted.
pub struct CallerCounts {
    calls: BTreeMap<(String, String), BTreeMap<(String, String), u64>>,
    is_counted: bool,
}

/// Finds the callers in a run. Returns `None` if the run has neither streams nor counted segments, and also, with a warning, if its streams
/// cannot be read or are too long.
pub fn find_callers(wanted: &str, profile: &Profile, folders: &Folders) -> Option<CallerCounts> {
    let observed = match streams::list_logs_of_run(wanted) {
        Some(logs) => match read_segments_from_streams(wanted, &logs, folders) {
            Ok(observed) => observed?,
            Err(error) => {
                log::warn!(
                    "cannot read the run's streams (the order of paths), so the report does not show callers: {}",
                    reasons(error.chain().map(ToString::to_string))
                );
                return None;
            }
        },
        None if profile.images.iter().any(counts_segments) => ObservedSegments::from_profile(profile.clone()),
        None => return None,
    };
    Some(CallerCounts::from_observed_segments(&observed)).filter(|callers| !callers.calls.is_empty())
}

fn read_segments_from_streams(wanted: &str, logs: &[PathBuf], folders: &Folders) -> Result<Option<ObservedSegments>> {
    if count_events(logs)? > MAX_SEARCHED_EVENTS {
        log::warn!(
            "the run's streams (the order of paths) are too long to show callers in the report. To show callers, run `trodden segments`"
        );
        return Ok(None);
    }
    let is_file = Path::new(wanted).exists();
    let wanted = if is_file { streams_folder_of(Path::new(wanted)).to_string_lossy().into_owned() } else { wanted.to_owned() };
    ObservedSegments::load_if_any(&wanted, 1, folders)
}

fn count_events(logs: &[PathBuf]) -> Result<u64> {
    let mut sum = 0;
    for log in logs {
        sum += StreamLog::open(log)?.threads().iter().map(|thread| thread.events).sum::<u64>();
    }
    Ok(sum)
}

impl CallerCounts {
    fn from_observed_segments(observed: &ObservedSegments) -> CallerCounts {
        let mut callers = CallerCounts { calls: BTreeMap::new(), is_counted: observed.is_counted };
        for (image, segment, times) in observed.segments_of_depth(1) {
            let [caller, callee] = segment[..] else { continue };
            // Only a path that starts at the entry represents a call. Later loop iterations, and prefixes counted up to a call, do not.
            let function = function_map(image, callee.function);
            let decoded = FunctionPaths::decode(function, [(callee.path, 1)]).ok();
            if decoded.and_then(|paths| Some(paths.complete.first()?.beginning)) == Some(PathStart::Entry) {
                let of_callee = callers.calls.entry(function_key(image, callee.function)).or_default();
                *of_callee.entry(function_key(image, caller.function)).or_default() += times;
            }
        }
        callers
    }

    /// Lists the callers of the `top` most called functions. `only` restricts the list to functions with this name.
    pub fn text(&self, only: Option<&str>, top: usize, options: &TextOptions) -> String {
        let page = PageLayout::new(options);
        let mut functions = self.most_called_functions(only);
        functions.truncate(limit(top));
        if functions.is_empty() {
            return String::new();
        }
        let source = if self.is_counted { "as far as the program counts segments" } else { "from the run's stream" };
        let mut out = format!("\n{} {source}; `trodden segments` shows their paths\n", page.paint(paint::TITLE, "Callers"));
        let widest = functions.iter().map(|(name, ..)| paint::width(name)).max().unwrap_or(0).min(page.width / 3);
        for (name, calls, callers) in functions {
            let shown = callers.iter().take(MAX_CALLERS_PER_FUNCTION);
            let share = |times: u64| percent(times as f64 / calls as f64);
            let mut words: Vec<String> = shown.map(|(by, times)| format!("{by} {} ({})", count((*times).into()), share(*times))).collect();
            if callers.len() > MAX_CALLERS_PER_FUNCTION {
                words.push(format!("{} more", callers.len() - MAX_CALLERS_PER_FUNCTION));
            }
            let name = page.paint(paint::NAME, &paint::align_left(&paint::truncate_function_name(&name, widest), widest));
            let calls = plural(calls.into(), "call", "calls");
            writeln!(out, "  {name}  {calls}: from {}", words.join(", ")).expect("writing to a string");
        }
        out + "\n"
    }

    /// Returns callers for a JSON report, either of all functions or only of those named `only`.
    pub fn json(&self, only: Option<&str>) -> Value {
        let caller = |(name, times): &(String, u64)| json!({ "function": name, "calls": times });
        let function = |(name, calls, callers): &CallersOfFunction| {
            let callers: Vec<Value> = callers.iter().map(caller).collect();
            json!({ "function": name, "calls": calls, "callers": callers })
        };
        Value::Array(self.most_called_functions(only).iter().map(function).collect())
    }

    /// Returns functions with their known calls and callers, most called functions first.
    fn most_called_functions(&self, only: Option<&str>) -> Vec<CallersOfFunction> {
        let name = |key: &(String, String)| DemangledName::from_linkage(&key.1);
        let wanted = self.calls.iter().filter(|(callee, _)| {
            let name = name(callee);
            only.is_none_or(|only| name.matches(only) || name.ends_with(only))
        });
        let row = |(callee, callers): (&FunctionName, &BTreeMap<FunctionName, u64>)| {
            let mut callers: Vec<(String, u64)> = callers.iter().map(|(caller, times)| (name(caller).short, *times)).collect();
            callers.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            (name(callee).short, callers.iter().map(|(_, times)| times).sum(), callers)
        };
        let mut rows: Vec<CallersOfFunction> = wanted.map(row).collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        rows
    }
}

fn function_key(image: &ImageProfile, function: trodden_profile::stream::FunctionIndex) -> (String, String) {
    (unit_map(image, function).source.clone(), function_map(image, function).plain_name().to_owned())
}
