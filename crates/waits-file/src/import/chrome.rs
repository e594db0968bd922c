//! Importer for Chrome trace JSON (Trace Event Format), in which *slices* are executed code and *flows* connect slices of different
//! threads.
//!
//! If a flow ends (`f`) in a slice (`X`, or `B` and `E`), this slice waits for the slice in which the flow starts (`s`). Traces of task
//! systems, and traces that trodden exports, use flows in this way. Slices in which no flow ends are executed code, and nested slices are a
//! call stack. Times are in microseconds.

use super::{EventKind, ImportedEvent, ImportedLocation, ImportedTrace, intern_code};
use crate::replay::NamedLocation;
use anyhow::{Context, Result, anyhow, bail};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use trodden_text::words::plural;
use trodden_waits::call::{ObjectId, SleepKind};
use trodden_waits::{Call, CodeId, LocationState, ProcessId};

#[derive(Clone, Debug)]
struct ChromeSlice {
    from_ns: u64,
    until_ns: u64,
    name: String,
    file: String,
    line: u32,
}

#[derive(Default)]
struct ChromeThread {
    slices: Vec<ChromeSlice>,
    open: Vec<ChromeSlice>,
    /// Where flows start and end: time in ns, number of the flow, and whether this is its end.
    flows: Vec<(u64, u64, bool)>,
    name: Option<String>,
}

/// The name of the function that a waiting slice calls, for reports.
pub const WAITING_SLICE_CALL_NAME: &str = "slice";
/// Maximum depth of a call stack, which limits memory. Slices that are nested more deeply count as part of the slice at this depth.
const MAX_STACK_DEPTH: usize = 128;

#[derive(Default)]
struct ChromeEvents {
    threads: BTreeMap<(i64, i64), ChromeThread>,
    flows: HashMap<String, u64>,
    /// Number of slices that began before the trace, so that only their ends are in it.
    unmatched: u64,
}

pub fn read_chrome_trace(path: &Path, text: &str) -> Result<ImportedTrace> {
    let mut imported = ImportedTrace { is_recognised: true, ..ImportedTrace::default() };
    let mut events = ChromeEvents::default();
    let is_closed = for_each_event(text, |number, event| {
        events.add(event).map_err(|error| anyhow!("event {number} of traceEvents is malformed: {error}"))
    })
    .with_context(|| path.display().to_string())?;
    if !is_closed {
        imported.notes.push("the list of events is not closed by `]`, so the end of the trace may be missing".into());
    }
    if events.unmatched > 0 {
        let slices = plural(events.unmatched.into(), "slice that began before the trace is", "slices that began before the trace are");
        imported.notes.push(format!("{slices} left out"));
    }
    intern_code(&mut imported.names, &["(start)"], None, "", 0);
    let mut processes: BTreeMap<i64, u32> = BTreeMap::new();
    let mut is_deep = false;
    for ((pid, tid), mut thread) in events.threads {
        thread.slices.append(&mut thread.open);
        if thread.slices.is_empty() && thread.flows.is_empty() {
            continue;
        }
        let next = processes.len() as u32;
        let process = *processes.entry(pid).or_insert(next);
        let label = Some(thread.name.clone().unwrap_or_else(|| format!("process {pid} thread {tid}")));
        let name = NamedLocation { process, thread: tid.try_into().unwrap_or(0), label, ..NamedLocation::default() };
        let location = convert_thread(&mut imported, name, thread, &mut is_deep);
        imported.locations.push(location);
    }
    if is_deep {
        imported.notes.push(format!("slices nested deeper than {MAX_STACK_DEPTH} levels count as the slice at that level"));
    }
    let waits = |e: &ImportedEvent| matches!(e.kind, EventKind::Enter(Call::Sleep(..), _));
    if imported.locations.is_empty() {
        imported.notes.push("the trace has no slices and no flow events".into());
    } else if !imported.locations.iter().any(|l| l.events.iter().any(waits)) {
        imported.notes.push("no flow event ends in a slice, so the trace does not show which thread waits for which".into());
    }
    Ok(imported)
}

/// Passes each event of the trace to `visit`, with its index. Returns false if the list of events has no closing bracket. The format allows
/// that if the list is the entire document, so that tools can append events.
fn for_each_event(text: &str, mut visit: impl FnMut(usize, &Value) -> Result<()>) -> Result<bool> {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    if !rest.starts_with('[') {
        let mut failure = None;
        let mut reader = serde_json::Deserializer::from_str(rest);
        let read = reader
            .deserialize_map(ChromeDocument { visit: &mut visit, failure: &mut failure })
            .and_then(|found| reader.end().map(|()| found));
        return match (failure, read) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => Err(anyhow!("cannot parse the trace: {error}")),
            (None, Ok(false)) => bail!("the trace does not contain the list `traceEvents`"),
            (None, Ok(true)) => Ok(true),
        };
    }
    for number in 0.. {
        // Skips the opening bracket before the first event, and the comma before each other event.
        rest = rest[1..].trim_start();
        if rest.is_empty() {
            return Ok(false);
        }
        if rest.starts_with(']') {
            break;
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let Some(event) = values.next() else { return Ok(false) };
        let event = event.map_err(|error| anyhow!("event {number} of the trace is not valid JSON: {error}"))?;
        visit(number, &event)?;
        rest = rest[values.byte_offset()..].trim_start();
        match rest.chars().next() {
            Some(',') => {}
            Some(']') => break,
            None => return Ok(false),
            Some(_) => bail!("event {number} of the trace is not followed by `,` or `]`"),
        }
    }
    match rest[1..].trim() {
        "" => Ok(true),
        _ => bail!("cannot parse the trace: unexpected text after the list of events"),
    }
}

/// Reads a trace that is a JSON object, with a single event in memory at a time.
struct ChromeDocument<'a, F> {
    visit: &'a mut F,
    failure: &'a mut Option<anyhow::Error>,
}

impl<'de, F: FnMut(usize, &Value) -> Result<()>> Visitor<'de> for ChromeDocument<'_, F> {
    type Value = bool;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object with the list `traceEvents`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                found = true;
                map.next_value_seed(EventList { visit: self.visit, failure: self.failure })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Reads the list of events in such an object.
struct EventList<'a, F> {
    visit: &'a mut F,
    failure: &'a mut Option<anyhow::Error>,
}

impl<'de, F: FnMut(usize, &Value) -> Result<()>> DeserializeSeed<'de> for EventList<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(usize, &Value) -> Result<()>> Visitor<'de> for EventList<'_, F> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut number = 0;
        while let Some(event) = list.next_element::<Value>()? {
            if let Err(error) = (self.visit)(number, &event) {
                *self.failure = Some(error);
                return Err(A::Error::custom("an event cannot be interpreted"));
            }
            number += 1;
        }
        Ok(())
    }
}

impl ChromeEvents {
    fn add(&mut self, event: &Value) -> Result<()> {
        let Some(phase) = event["ph"].as_str() else { bail!("it has no phase (field `ph`)") };
        let number = |key: &str| event[key].as_i64().or_else(|| event[key].as_str().and_then(|text| text.parse().ok())).unwrap_or(0);
        let thread = self.threads.entry((number("pid"), number("tid"))).or_default();
        let micros = |key: &str| match event[key].as_f64() {
            Some(us) if us.is_finite() && (0.0..9e15).contains(&us) => Ok(us),
            _ => Err(anyhow!("it has no time (field `{key}`)")),
        };
        let nanos = |us: f64| (us * 1000.0).round() as u64;
        let time = |key: &str| micros(key).map(nanos);
        let slice = |from_ns: u64, until_ns: u64| ChromeSlice {
            from_ns,
            until_ns,
            name: event["args"]["function"].as_str().or(event["name"].as_str()).unwrap_or("?").to_owned(),
            file: event["args"]["file"].as_str().unwrap_or_default().to_owned(),
            line: event["args"]["line"].as_u64().and_then(|line| line.try_into().ok()).unwrap_or(0),
        };
        match phase {
            "M" if event["name"] == "thread_name" => thread.name = event["args"]["name"].as_str().map(str::to_owned),
            "X" => {
                let from = micros("ts")?;
                // The sum is rounded rather than the duration, so that the end coincides with events that have the same time stamp.
                thread.slices.push(slice(nanos(from), nanos(from + micros("dur").unwrap_or(0.0))));
            }
            "B" => thread.open.push(slice(time("ts")?, u64::MAX)),
            "E" => {
                let until_ns = time("ts")?;
                match thread.open.pop() {
                    Some(open) => thread.slices.push(ChromeSlice { until_ns: until_ns.max(open.from_ns), ..open }),
                    None => self.unmatched += 1,
                }
            }
            "s" | "f" => {
                let key = format!("{}/{}", event["id"], event["cat"]);
                let next = self.flows.len() as u64;
                let flow = *self.flows.entry(key).or_insert(next);
                thread.flows.push((time("ts")?, flow, phase == "f"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// A point on a thread's timeline. The derived order determines the order of points at the same time: slices end before others begin, inner
/// slices first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimelinePoint {
    End(Reverse<usize>),
    Release(u64),
    Begin(usize),
}

/// Returns the points on a thread's timeline in chronological order. Sorts the thread's slices, because points contain their indices.
fn sorted_points(thread: &mut ChromeThread) -> Vec<(u64, TimelinePoint)> {
    // A slice without an end is closed at the last time that the thread is known to have reached.
    let times = thread.slices.iter().map(|s| if s.until_ns == u64::MAX { s.from_ns } else { s.until_ns });
    let last_ns = times.chain(thread.flows.iter().map(|(time, ..)| *time)).max().unwrap_or(0);
    thread.slices.iter_mut().filter(|s| s.until_ns == u64::MAX).for_each(|s| s.until_ns = last_ns);
    // A slice without duration neither waits nor executes.
    thread.slices.retain(|slice| slice.from_ns < slice.until_ns);
    thread.slices.sort_by_key(|slice| (slice.from_ns, Reverse(slice.until_ns)));
    let mut points: Vec<(u64, TimelinePoint)> = Vec::new();
    for (index, slice) in thread.slices.iter().enumerate() {
        points.extend([(slice.from_ns, TimelinePoint::Begin(index)), (slice.until_ns, TimelinePoint::End(Reverse(index)))]);
    }
    points.extend(thread.flows.iter().filter(|(_, _, is_end)| !is_end).map(|(time, flow, _)| (*time, TimelinePoint::Release(*flow))));
    points.sort();
    points
}

fn convert_thread(imported: &mut ImportedTrace, name: NamedLocation, mut thread: ChromeThread, is_deep: &mut bool) -> ImportedLocation {
    let points = sorted_points(&mut thread);
    let waits: HashMap<usize, u64> = match_flow_ends(&thread);
    let mut events = Vec::new();
    // Indices of the open slices. Slices are sorted by start time, so the last one is the innermost.
    let mut stack: BTreeSet<usize> = BTreeSet::new();
    let mut open_waits = 0;
    let idle = intern_code(&mut imported.names, &["(idle)"], None, "", 0);
    for (time_ns, point) in &points {
        let mut push = |kind| events.push(ImportedEvent { time_ns: *time_ns, kind });
        let is_waiting = open_waits > 0;
        if !is_waiting {
            let own = current_code(imported, &thread, &stack).unwrap_or(idle);
            push(EventKind::Run(own, if own == idle { LocationState::Blocked } else { LocationState::Computing }));
        }
        match point {
            TimelinePoint::Begin(slice) => {
                stack.insert(*slice);
                *is_deep |= stack.len() > MAX_STACK_DEPTH;
                if let Some(flow) = waits.get(slice) {
                    open_waits += 1;
                    if !is_waiting {
                        let site = call_site(imported, &thread, &stack);
                        push(EventKind::Enter(Call::Sleep(ObjectId(*flow), SleepKind::Condition(None), true), site));
                    }
                }
            }
            TimelinePoint::End(Reverse(slice)) => {
                stack.remove(slice);
                if let Some(flow) = waits.get(slice) {
                    open_waits -= 1;
                    if open_waits == 0 {
                        push(EventKind::Exit(Call::Sleep(ObjectId(*flow), SleepKind::Condition(None), true)));
                    }
                }
            }
            TimelinePoint::Release(flow) if !is_waiting => {
                let site = call_site(imported, &thread, &stack);
                push(EventKind::Enter(Call::Wake(ObjectId(*flow), 1), site));
                push(EventKind::Exit(Call::Wake(ObjectId(*flow), 1)));
            }
            TimelinePoint::Release(_) => {}
        }
    }
    // A thread that has only ends of flows has no points. Its timeline begins with the first of them.
    let first_flow_ns = thread.flows.iter().map(|(time, ..)| *time).min();
    let begin_ns = points.first().map(|(time, _)| *time).or(first_flow_ns).unwrap_or(0);
    // A flow may connect threads of different processes. As objects are only unique within a process, all locations get the same process.
    ImportedLocation { name, process: ProcessId(0), begin_ns, events }
}

/// Returns the flow that ends in each slice, by the slice's index. The end of a flow belongs to the innermost slice that is open at that
/// time.
fn match_flow_ends(thread: &ChromeThread) -> HashMap<usize, u64> {
    let mut ends: Vec<(u64, u64)> = thread.flows.iter().filter(|(_, _, is_end)| *is_end).map(|(time, flow, _)| (*time, *flow)).collect();
    ends.sort_by_key(|(time, _)| *time);
    let mut begins = thread.slices.iter().enumerate().peekable();
    // The slices that are open at the time, with their ends. An outer slice that does not end after an inner one is removed.
    let mut open: Vec<(usize, u64)> = Vec::new();
    let mut waits = HashMap::new();
    for (time, flow) in ends {
        while let Some((index, slice)) = begins.next_if(|(_, slice)| slice.from_ns < time) {
            while open.pop_if(|(_, until_ns)| *until_ns <= slice.until_ns).is_some() {}
            open.push((index, slice.until_ns));
        }
        while open.pop_if(|(_, until_ns)| *until_ns < time).is_some() {}
        waits.extend(open.last().map(|(index, _)| (*index, flow)));
    }
    waits
}

fn open_slice_names<'a>(thread: &'a ChromeThread, stack: &BTreeSet<usize>) -> Vec<&'a str> {
    stack.iter().take(MAX_STACK_DEPTH).map(|slice| thread.slices[*slice].name.as_str()).collect()
}

fn innermost_open_slice<'a>(thread: &'a ChromeThread, stack: &BTreeSet<usize>) -> Option<&'a ChromeSlice> {
    let slice = if stack.len() > MAX_STACK_DEPTH { stack.iter().nth(MAX_STACK_DEPTH - 1) } else { stack.last() };
    slice.map(|slice| &thread.slices[*slice])
}

fn current_code(imported: &mut ImportedTrace, thread: &ChromeThread, stack: &BTreeSet<usize>) -> Option<CodeId> {
    let slice = innermost_open_slice(thread, stack)?;
    Some(intern_code(&mut imported.names, &open_slice_names(thread, stack), None, &slice.file, slice.line))
}

fn call_site(imported: &mut ImportedTrace, thread: &ChromeThread, stack: &BTreeSet<usize>) -> CodeId {
    let (file, line) = innermost_open_slice(thread, stack).map_or(("", 0), |slice| (slice.file.as_str(), slice.line));
    intern_code(&mut imported.names, &open_slice_names(thread, stack), Some(WAITING_SLICE_CALL_NAME), file, line)
}
