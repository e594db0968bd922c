//! Chrome trace JSON (Trace Event Format): slices are code, flow events say who releases whom.
//!
//! A slice (`X`, or `B` and `E`) in which a flow ends (`f`) waits for the place where that flow starts (`s`): what a trace of a task
//! system, or one that this
//! program exported, has. Slices without flows are executed code; nested ones are a stack. Times are microseconds.

use super::super::replay::LocationName;
use super::{Imported, ImportedEvent, ImportedLocation, What, code};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use trodden_waits::call::{ObjectId, SleepKind};
use trodden_waits::{Call, CodeId, LocationState, ProcessId};

/// A slice of a thread.
#[derive(Clone, Debug)]
struct Slice {
    from_ns: u64,
    until_ns: u64,
    name: String,
    file: String,
    line: u32,
}

#[derive(Default)]
struct Thread {
    slices: Vec<Slice>,
    open: Vec<Slice>,
    /// Starts and ends of flows: time, number, whether it is an end.
    flows: Vec<(u64, u64, bool)>,
    name: Option<String>,
}

/// Reads the trace.
///
/// # Errors
/// It is no JSON, or an event lacks what it must have.
pub fn read(path: &Path, text: &str) -> Result<Imported> {
    let document: Value = serde_json::from_str(text).with_context(|| format!("{}: not JSON", path.display()))?;
    let events = document.get("traceEvents").unwrap_or(&document).as_array();
    let events = events.ok_or_else(|| anyhow!("{}: no list `traceEvents`", path.display()))?;
    let mut threads: BTreeMap<(i64, i64), Thread> = BTreeMap::new();
    let mut flows: HashMap<String, u64> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        take(event, &mut threads, &mut flows).map_err(|what| anyhow!("{}: event {index} of traceEvents: {what}", path.display()))?;
    }
    let mut imported = Imported::default();
    code(&mut imported.names, &["(start)"], None, "", 0);
    let mut processes: BTreeMap<i64, u32> = BTreeMap::new();
    for ((pid, tid), mut thread) in threads {
        thread.slices.append(&mut thread.open);
        if thread.slices.is_empty() {
            continue;
        }
        let next = processes.len() as u32;
        let process = *processes.entry(pid).or_insert(next);
        let label = Some(thread.name.clone().unwrap_or_else(|| format!("process {pid} thread {tid}")));
        let name = LocationName { process, thread: tid.try_into().unwrap_or(0), label, ..LocationName::default() };
        let location = location(&mut imported, name, thread);
        imported.locations.push(location);
    }
    if !imported.locations.iter().any(|l| l.events.iter().any(|e| matches!(e.what, What::Enter(Call::Sleep(..), _)))) {
        imported.notes.push("the trace has no flow events that end in a slice: it does not say who waits for whom".into());
    }
    Ok(imported)
}

fn take(event: &Value, threads: &mut BTreeMap<(i64, i64), Thread>, flows: &mut HashMap<String, u64>) -> Result<()> {
    let Some(phase) = event["ph"].as_str() else { bail!("no phase `ph`") };
    let number = |key: &str| event[key].as_i64().or_else(|| event[key].as_str().and_then(|text| text.parse().ok())).unwrap_or(0);
    let thread = threads.entry((number("pid"), number("tid"))).or_default();
    let time = |key: &str| match event[key].as_f64() {
        Some(us) if us.is_finite() && (0.0..9e15).contains(&us) => Ok((us * 1000.0).round() as u64),
        _ => Err(anyhow!("no time `{key}`")),
    };
    let slice = |from_ns: u64, until_ns: u64| Slice {
        from_ns,
        until_ns,
        name: event["args"]["function"].as_str().or(event["name"].as_str()).unwrap_or("?").to_owned(),
        file: event["args"]["file"].as_str().unwrap_or_default().to_owned(),
        line: event["args"]["line"].as_u64().unwrap_or(0) as u32,
    };
    match phase {
        "M" if event["name"] == "thread_name" => thread.name = event["args"]["name"].as_str().map(str::to_owned),
        "X" => {
            let from_ns = time("ts")?;
            thread.slices.push(slice(from_ns, from_ns.saturating_add(time("dur").unwrap_or(0))));
        }
        "B" => thread.open.push(slice(time("ts")?, u64::MAX)),
        "E" => {
            let until_ns = time("ts")?;
            let Some(open) = thread.open.pop() else { bail!("a slice ends that did not begin") };
            thread.slices.push(Slice { until_ns: until_ns.max(open.from_ns), ..open });
        }
        "s" | "f" => {
            let key = format!("{}/{}", event["id"], event["cat"]);
            let next = flows.len() as u64;
            let flow = *flows.entry(key).or_insert(next);
            thread.flows.push((time("ts")?, flow, phase == "f"));
        }
        _ => {}
    }
    Ok(())
}

/// A point of a thread's time, in the order of what happens at one time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    End(usize),
    Release(u64),
    Begin(usize),
}

fn location(imported: &mut Imported, name: LocationName, mut thread: Thread) -> ImportedLocation {
    let last_ns = thread.slices.iter().filter(|s| s.until_ns != u64::MAX).map(|s| s.until_ns).max().unwrap_or(0);
    thread.slices.iter_mut().filter(|s| s.until_ns == u64::MAX).for_each(|s| s.until_ns = last_ns.max(s.from_ns));
    thread.slices.sort_by_key(|slice| (slice.from_ns, std::cmp::Reverse(slice.until_ns)));
    let waits: HashMap<usize, u64> = waits(&thread);
    let mut points: Vec<(u64, Point)> = Vec::new();
    for (index, slice) in thread.slices.iter().enumerate() {
        points.extend([(slice.from_ns, Point::Begin(index)), (slice.until_ns, Point::End(index))]);
    }
    points.extend(thread.flows.iter().filter(|(_, _, is_end)| !is_end).map(|(time, flow, _)| (*time, Point::Release(*flow))));
    points.sort();
    let mut events = Vec::new();
    let mut stack: Vec<usize> = Vec::new();
    let idle = code(&mut imported.names, &["(idle)"], None, "", 0);
    for (time_ns, point) in &points {
        let mut push = |what| events.push(ImportedEvent { time_ns: *time_ns, what });
        let is_waiting = stack.iter().any(|slice| waits.contains_key(slice));
        if !is_waiting {
            let own = current(imported, &thread, &stack).unwrap_or(idle);
            push(What::Run(own, if own == idle { LocationState::Blocked } else { LocationState::Computing }));
        }
        match point {
            Point::Begin(slice) => {
                stack.push(*slice);
                if let Some(flow) = waits.get(slice).filter(|_| !is_waiting) {
                    let site = site(imported, &thread, &stack);
                    push(What::Enter(Call::Sleep(ObjectId(*flow), SleepKind::Condition(None), true), site));
                }
            }
            Point::End(slice) => {
                stack.retain(|open| open != slice);
                let flow = waits.get(slice).filter(|_| !stack.iter().any(|open| waits.contains_key(open)));
                if let Some(flow) = flow {
                    push(What::Exit(Call::Sleep(ObjectId(*flow), SleepKind::Condition(None), true)));
                }
            }
            Point::Release(flow) if !is_waiting => {
                let site = site(imported, &thread, &stack);
                push(What::Enter(Call::Wake(ObjectId(*flow), 1), site));
                push(What::Exit(Call::Wake(ObjectId(*flow), 1)));
            }
            Point::Release(_) => {}
        }
    }
    let begin_ns = points.first().map_or(0, |(time, _)| *time);
    // Flows go between processes.
    ImportedLocation { name, process: ProcessId(0), begin_ns, events }
}

/// Slices in which flows end: the innermost at the end's time.
fn waits(thread: &Thread) -> HashMap<usize, u64> {
    let mut waits = HashMap::new();
    for (time, flow, _) in thread.flows.iter().filter(|(_, _, is_end)| *is_end) {
        let inside = |slice: &Slice| slice.from_ns < *time && *time <= slice.until_ns;
        if let Some(index) = thread.slices.iter().rposition(inside) {
            waits.insert(index, *flow);
        }
    }
    waits
}

fn path<'a>(thread: &'a Thread, stack: &[usize]) -> Vec<&'a str> {
    stack.iter().map(|slice| thread.slices[*slice].name.as_str()).collect()
}

fn current(imported: &mut Imported, thread: &Thread, stack: &[usize]) -> Option<CodeId> {
    let slice = &thread.slices[*stack.last()?];
    Some(code(&mut imported.names, &path(thread, stack), None, &slice.file, slice.line))
}

fn site(imported: &mut Imported, thread: &Thread, stack: &[usize]) -> CodeId {
    let slice = stack.last().map(|slice| &thread.slices[*slice]);
    let (file, line) = slice.map_or(("", 0), |slice| (slice.file.as_str(), slice.line));
    code(&mut imported.names, &path(thread, stack), Some("slice"), file, line)
}
