//! Event counts of paths, such as cycles, in reports.

use crate::error::ReportError;
use crate::measure::PathMeasure;
use crate::select::{RankedPath, share};
use crate::view::ProfileView;
use crate::words;
use serde_json::{Map, Value, json};
use trodden_profile::Profile;
use trodden_profile::events::PathEvents;
use trodden_unit::EventSource;
use trodden_unit::experiment::Spelling;

/// Returns the event that all units of a profile count. Returns `None` if there is none, or if units count different events, because their
/// sum would be meaningless.
pub fn counted_event(profile: &Profile) -> Option<EventSource> {
    let units = profile.images.iter().flat_map(|i| &i.units);
    let mut events = units.filter_map(|u| u.map.events());
    let first = events.next()?;
    events.all(|event| event == first).then_some(first)
}

/// Checks that a profile has the data that a measure needs. Fails if the measure is [`PathMeasure::Events`] and [`counted_event`] returns
/// `None`.
pub fn check_measure(profile: &Profile, measure: PathMeasure) -> Result<(), ReportError> {
    if measure == PathMeasure::Events && counted_event(profile).is_none() { Err(ReportError::NoEvents) } else { Ok(()) }
}

/// Returns the event that a path's unit counts, and the path's event counts; `None` if the unit counts no event.
fn path_events(ranked: &RankedPath) -> Option<(EventSource, PathEvents)> {
    let (unit, map) = (ranked.function.unit, ranked.function.map);
    unit.map.events().map(|event| (event, unit.events_of(map, ranked.path.id)))
}

/// Describes a path's events in one line: mean, deviation, total and share. Returns `None` if the path's unit counts no event.
pub fn describe_path(view: &ProfileView, ranked: &RankedPath) -> Option<String> {
    let (event, events) = path_events(ranked)?;
    let count = ranked.path.count;
    let of_all = share(events.sum.max(0) as u128, view.totals.events.max(0) as u128);
    Some(format!(
        "own {}: {} ± {} each, {} in total ({})",
        event.description(),
        format_decimal(events.mean(count)),
        format_decimal(events.deviation(count)),
        format_signed(events.sum),
        words::percent(of_all)
    ))
}

/// Summarises the events of all paths in one line.
pub fn summarise_events(view: &ProfileView) -> Option<String> {
    let event = counted_event(view.profile)?;
    Some(format!("{} {} of {}; each path's own, without its callees", format_signed(view.totals.events), event.description(), event.name()))
}

/// Adds a path's events to its JSON. Adds nothing if the path's unit counts no event.
pub fn add_to_json(path: &mut Map<String, Value>, view: &ProfileView, ranked: &RankedPath) {
    if let Some((event, events)) = path_events(ranked) {
        let count = ranked.path.count;
        let of_all = share(events.sum.max(0) as u128, view.totals.events.max(0) as u128);
        let value = json!({
            "source": event.name(),
            "sum": signed_number_json(events.sum),
            "mean": events.mean(count),
            "deviation": events.deviation(count),
            "share": of_all,
        });
        path.insert("events".into(), value);
    }
}

/// Returns the event and its sum over all paths as JSON; null if [`counted_event`] is `None`.
pub fn totals_json(view: &ProfileView) -> Value {
    counted_event(view.profile)
        .map_or(Value::Null, |event| json!({ "source": event.name(), "sum": signed_number_json(view.totals.events) }))
}

/// Converts a number like [`crate::schema::number`]. A sum of events may be slightly negative, because the cost of measuring is subtracted.
fn signed_number_json(value: i128) -> Value {
    match u128::try_from(value) {
        Ok(value) => crate::schema::number(value),
        Err(_) => i64::try_from(value).map_or_else(|_| json!(value.to_string()), |small| json!(small)),
    }
}

fn format_signed(value: i128) -> String {
    format!("{}{}", if value < 0 { "-" } else { "" }, words::count(value.unsigned_abs()))
}

/// Formats a number with two decimals below 10, one decimal below 1,000, and none above.
fn format_decimal(value: f64) -> String {
    match value.abs() {
        tiny if tiny < 10.0 => format!("{value:.2}"),
        small if small < 1000.0 => format!("{value:.1}"),
        _ => format_signed(value.round() as i128),
    }
}
