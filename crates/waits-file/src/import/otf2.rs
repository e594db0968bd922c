//! Importer for OTF2 archives. It parses the output of `otf2-print`, which contains the definitions and events of all locations.
//!
//! The events between the `ENTER` and the `LEAVE` of a region determine what kind of call the region is. Ranks are relative to a
//! communicator, and each communicator refers to a group of locations. A self communicator's group is empty, because its only member is the
//! caller.

use super::{EventKind, ImportedEvent, ImportedLocation, ImportedTrace, intern_code};
use crate::convert::{MAX_BUFFERED_BYTES, is_binding_collective};
use crate::replay::NamedLocation;
use anyhow::{Context, Result, anyhow, bail};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use trodden_text::words::plural;
use trodden_waits::call::{Collective, CommunicatorId, CompletedRequest, Message, RequestId};
use trodden_waits::{Call, CollectiveWaitRule, LocationState, ProcessId};

#[derive(Default)]
struct ArchiveDefinitions {
    /// Whether the archive defines a clock. Valid archives do.
    has_clock: bool,
    ticks_per_second: u64,
    offset: u64,
    locations: BTreeMap<u64, String>,
    /// The locations in each group, in order of rank.
    groups: HashMap<u64, Vec<u64>>,
    /// All MPI locations, in order of world rank.
    world: Vec<u64>,
    communicators: HashMap<u64, u64>,
}

/// A region that a location has entered but not left yet.
struct OpenRegion {
    name: String,
    enter_ns: u64,
    /// The MPI events in the region: the kind of each event, and its attributes.
    calls: Vec<(String, String)>,
    is_mpi: bool,
}

#[derive(Default)]
struct Otf2Thread {
    regions: Vec<OpenRegion>,
    events: Vec<ImportedEvent>,
    begin_ns: Option<u64>,
    /// For each request of a nonblocking receive, the index of the event that started it. The message is filled in there when the receive
    /// completes.
    receives: HashMap<u64, usize>,
}

pub fn read_otf2_archive(path: &Path) -> Result<ImportedTrace> {
    let definitions = run_otf2_print(path, &["-G"], |text| parse_definitions(path, text))?;
    let imported = run_otf2_print(path, &[], |text| parse_events(path, &definitions, text))?;
    match imported.locations.is_empty() && definitions.has_clock {
        true => Ok(ImportedTrace::empty_trace("the archive has no events")),
        false => Ok(imported),
    }
}

/// Parses the output of `otf2-print` and analyses the trace. Called by the fuzzer.
pub fn check_otf2_text(definitions_text: &[u8], events_text: &[u8]) -> Result<()> {
    let path = Path::new("standard input");
    let imported = parse_events(path, &parse_definitions(path, definitions_text)?, events_text)?;
    super::analyse_imported_trace_once(&imported, trodden_waits::AnalysisOptions::default(), false);
    Ok(())
}

fn parse_events(path: &Path, definitions: &ArchiveDefinitions, text: impl BufRead) -> Result<ImportedTrace> {
    let mut imported = ImportedTrace::default();
    intern_code(&mut imported.names, &["(start)"], None, "", 0);
    let order: HashMap<u64, u32> = definitions.locations.keys().enumerate().map(|(index, id)| (*id, index as u32)).collect();
    let mut threads: BTreeMap<u64, Otf2Thread> = BTreeMap::new();
    let mut reader = Otf2Reader { definitions, order: &order, imported: &mut imported, unknown: BTreeMap::new() };
    for_each_line(path, text, |number, line| {
        let Some((kind, location, ticks, attributes)) = parse_event(line) else { return Ok(()) };
        let thread = threads.entry(location).or_default();
        let time_ns = reader.time_ns(ticks);
        thread.begin_ns.get_or_insert(time_ns);
        reader
            .add_event(thread, location, time_ns, kind, attributes)
            .map_err(|error| anyhow!("{}: line {number} of otf2-print: {error}", path.display()))
    })?;
    let unknown = std::mem::take(&mut reader.unknown);
    for (kind, count) in unknown {
        imported.notes.push(format!("ignored {} of the unknown kind {kind}", plural(count.into(), "event", "events")));
    }
    for (id, thread) in threads {
        let index =
            order.get(&id).copied().ok_or_else(|| anyhow!("{}: location (thread) {id} has events, but no definition", path.display()))?;
        let label = definitions.locations.get(&id).cloned();
        let name = NamedLocation { process: index, is_rank: true, label, ..NamedLocation::default() };
        let begin_ns = thread.begin_ns.unwrap_or(0);
        imported.locations.push(ImportedLocation { name, process: ProcessId(index), begin_ns, events: thread.events });
    }
    Ok(imported)
}

/// Runs `otf2-print` and passes its output to `parse` while it is produced, because the text is much larger than the archive.
fn run_otf2_print<T>(path: &Path, options: &[&str], parse: impl FnOnce(BufReader<ChildStdout>) -> Result<T>) -> Result<T> {
    let mut command = Command::new("otf2-print");
    command.args(options).arg("--").arg(path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| {
        format!("cannot run otf2-print, which is needed to read {}. Install otf2-print (Debian package otf2-tools)", path.display())
    })?;
    let (text, mut errors) = (child.stdout.take(), child.stderr.take());
    // Standard error is read in another thread. Otherwise, otf2-print would block when that pipe is full.
    let stderr = std::thread::spawn(move || {
        let mut stderr = Vec::new();
        let _ = errors.as_mut().map(|errors| errors.read_to_end(&mut stderr));
        stderr
    });
    let taken = text.context("otf2-print printed nothing").and_then(|text| parse(BufReader::new(text)));
    let status = child.wait()?;
    let stderr = stderr.join().unwrap_or_default();
    let stderr = String::from_utf8_lossy(&stderr);
    // If `parse` failed, otf2-print fails without a message because its output pipe was closed. In that case only the error of `parse`
    // matters.
    if !status.success() && (taken.is_ok() || !stderr.trim().is_empty()) {
        bail!("otf2-print cannot read {}: {}", path.display(), stderr.trim());
    }
    taken
}

/// Passes each line of a text to `visit`, with its number.
fn for_each_line(path: &Path, mut text: impl BufRead, mut visit: impl FnMut(u64, &str) -> Result<()>) -> Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if text.read_until(b'\n', &mut line).with_context(|| format!("cannot read the output of otf2-print for {}", path.display()))? == 0 {
            break;
        }
        visit(number, String::from_utf8_lossy(&line).trim_end())?;
    }
    Ok(())
}

/// Splits the line of an event into the event's kind, location, time and attributes. Returns `None` if the line is not an event.
fn parse_event(line: &str) -> Option<(&str, u64, u64, &str)> {
    let (kind, rest) = line.split_once(' ')?;
    let (location, rest) = rest.trim_start().split_once(' ')?;
    let rest = rest.trim_start();
    let (ticks, attributes) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((kind, location.parse().ok()?, ticks.parse().ok()?, attributes.trim_start()))
}

/// Returns the value of an attribute in a text like `name: value, name: value`.
fn find_attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let follows_name = |(at, _): &(usize, &str)| attributes[..*at].ends_with(name);
    let (at, _) = attributes.match_indices(": ").find(follows_name)?;
    let rest = &attributes[at + 2..];
    // If the value is in quotes, commas inside it do not end it.
    let from = rest.strip_prefix('"').and_then(|name| name.find('"')).map_or(0, |at| at + 2);
    let end = rest[from..].find(", ").map(|at| from + at);
    Some(rest[..end.unwrap_or(rest.len())].trim())
}

/// Parses a reference like `"name" <number>`, or a plain number.
fn parse_reference(text: &str) -> Option<u64> {
    match text.rsplit_once('<') {
        Some((_, number)) => number.trim_end_matches('>').parse().ok(),
        None => text.split([' ', '(']).next()?.parse().ok(),
    }
}

fn strip_quotes(text: &str) -> &str {
    text.split('"').nth(1).unwrap_or(text)
}

fn parse_definitions(path: &Path, text: impl BufRead) -> Result<ArchiveDefinitions> {
    let mut found = ArchiveDefinitions { ticks_per_second: 1_000_000_000, ..ArchiveDefinitions::default() };
    for_each_line(path, text, |_, line| {
        let Some((kind, rest)) = line.split_once(' ') else { return Ok(()) };
        let rest = rest.trim_start();
        let id = || rest.split(' ').next().and_then(|id| id.parse::<u64>().ok());
        match kind {
            "CLOCK_PROPERTIES" => {
                found.has_clock = true;
                let number = |name| find_attribute(rest, name).and_then(|v| v.parse::<u64>().ok());
                found.ticks_per_second = number("Ticks per Seconds").filter(|rate| *rate > 0).unwrap_or(1_000_000_000);
                found.offset = number("Global Offset").unwrap_or(0);
            }
            "LOCATION" => {
                let (Some(id), Some(name)) = (id(), find_attribute(rest, "Name")) else {
                    bail!("{}: the definition of a location (thread) has no name", path.display())
                };
                let group = find_attribute(rest, "Group").map_or("", strip_quotes);
                found.locations.insert(id, if group.is_empty() { strip_quotes(name).to_owned() } else { group.to_owned() });
            }
            "GROUP" => {
                let Some(id) = id() else { return Ok(()) };
                let members = rest.split_once("Members: ").or_else(|| rest.split_once("Member: ")).map_or("", |(_, members)| members);
                // Each member is either a location, such as `"Initial Thread" <0>`, or a rank with its location, such as `1 ("Initial
                // Thread" <1>)`.
                let members: Vec<u64> = members.split('<').skip(1).filter_map(|part| part.split('>').next()?.parse().ok()).collect();
                if find_attribute(rest, "Type") == Some("COMM_LOCATIONS") {
                    found.world.clone_from(&members);
                }
                found.groups.insert(id, members);
            }
            "COMM" => {
                if let (Some(id), Some(group)) = (id(), find_attribute(rest, "Group").and_then(parse_reference)) {
                    found.communicators.insert(id, group);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(found)
}

struct Otf2Reader<'a> {
    definitions: &'a ArchiveDefinitions,
    order: &'a HashMap<u64, u32>,
    imported: &'a mut ImportedTrace,
    unknown: BTreeMap<String, u64>,
}

/// The events that may occur in a region. The importer interprets them or ignores them deliberately.
const CALL_EVENTS: &[&str] = &[
    "MPI_SEND",
    "MPI_RECV",
    "MPI_ISEND",
    "MPI_ISEND_COMPLETE",
    "MPI_IRECV_REQUEST",
    "MPI_IRECV",
    "MPI_COLLECTIVE_END",
    "MPI_COLLECTIVE_BEGIN",
    "MPI_REQUEST_TEST",
    "THREAD_ACQUIRE_LOCK",
    "THREAD_RELEASE_LOCK",
    "COMM_CREATE",
    "COMM_DESTROY",
    "PROGRAM_BEGIN",
    "PROGRAM_END",
];

impl Otf2Reader<'_> {
    fn time_ns(&self, ticks: u64) -> u64 {
        let ticks = ticks.saturating_sub(self.definitions.offset);
        (u128::from(ticks) * 1_000_000_000 / u128::from(self.definitions.ticks_per_second)) as u64
    }

    fn add_event(&mut self, thread: &mut Otf2Thread, location: u64, time_ns: u64, kind: &str, attributes: &str) -> Result<()> {
        match kind {
            "ENTER" => {
                self.add_execution(thread, time_ns);
                let name = strip_quotes(find_attribute(attributes, "Region").unwrap_or("?")).to_owned();
                let is_mpi = name.starts_with("MPI_");
                thread.regions.push(OpenRegion { name, enter_ns: time_ns, calls: Vec::new(), is_mpi });
            }
            "LEAVE" => {
                let Some(region) = thread.regions.pop() else { bail!("the location (thread) leaves a region that it has not entered") };
                if region.is_mpi {
                    self.add_call(thread, location, time_ns, region)?;
                } else {
                    thread.regions.push(region);
                    self.add_execution(thread, time_ns);
                    thread.regions.pop();
                }
            }
            _ if CALL_EVENTS.contains(&kind) => {
                if let Some(region) = thread.regions.last_mut() {
                    region.calls.push((kind.to_owned(), attributes.to_owned()));
                }
            }
            _ => *self.unknown.entry(kind.to_owned()).or_default() += 1,
        }
        Ok(())
    }

    /// Records that the thread executed the functions in its open regions until `time_ns`.
    fn add_execution(&mut self, thread: &mut Otf2Thread, time_ns: u64) {
        let path: Vec<&str> = thread.regions.iter().filter(|r| !r.is_mpi).map(|r| r.name.as_str()).collect();
        let path = if path.is_empty() { vec!["(program)"] } else { path };
        let own = intern_code(&mut self.imported.names, &path, None, "", 0);
        thread.events.push(ImportedEvent { time_ns, kind: EventKind::Run(own, LocationState::Computing) });
    }

    fn add_call(&mut self, thread: &mut Otf2Thread, location: u64, time_ns: u64, region: OpenRegion) -> Result<()> {
        let mut path: Vec<&str> = thread.regions.iter().map(|r| r.name.as_str()).collect();
        if path.is_empty() {
            path.push("(program)");
        }
        // Only MPI functions are calls, and the analysis needs static names for them.
        let name = trodden_wire::waits::FUNCTIONS.iter().copied().find(|known| *known == region.name).unwrap_or("MPI");
        let site = intern_code(&mut self.imported.names, &path, Some(name), "", 0);
        let call = self.convert_region(thread, location, &region)?;
        if let Call::Begin(_, true, request) = &call {
            thread.receives.insert(request.0, thread.events.len());
        }
        thread.events.push(ImportedEvent { time_ns: region.enter_ns, kind: EventKind::Enter(call.clone(), site) });
        thread.events.push(ImportedEvent { time_ns, kind: EventKind::Exit(call) });
        Ok(())
    }

    fn convert_region(&self, thread: &mut Otf2Thread, location: u64, region: &OpenRegion) -> Result<Call> {
        let (mut sent, mut received, mut completed) = (None, None, Vec::new());
        let is_synchronous = matches!(region.name.as_str(), "MPI_Ssend" | "MPI_Issend");
        for (kind, attributes) in &region.calls {
            let request = || {
                find_attribute(attributes, "Request")
                    .and_then(|r| r.parse().ok())
                    .map(RequestId)
                    .ok_or_else(|| anyhow!("event {kind} has no attribute `Request`"))
            };
            match kind.as_str() {
                "MPI_SEND" => sent = self.parse_message(location, attributes, "Receiver", is_synchronous),
                "MPI_RECV" => received = self.parse_message(location, attributes, "Sender", true),
                "MPI_ISEND" => {
                    return Ok(self
                        .parse_message(location, attributes, "Receiver", is_synchronous)
                        .map_or(Call::Other, |m| Call::Begin(m, false, request().unwrap_or(RequestId(0)))));
                }
                "MPI_IRECV_REQUEST" => {
                    // The message is known only when the receive completes.
                    let unmatched = Message { communicator: CommunicatorId(u64::MAX), peer: None, tag: None, is_buffered: false };
                    return Ok(Call::Begin(unmatched, true, request()?));
                }
                "MPI_ISEND_COMPLETE" => {
                    completed.push(CompletedRequest { request: request()?, peer: None, tag: None, is_cancelled: false })
                }
                "MPI_IRECV" => {
                    let request = request()?;
                    let message = self.parse_message(location, attributes, "Sender", true);
                    complete_receive(thread, request, message);
                    completed.push(CompletedRequest { request, peer: None, tag: None, is_cancelled: false });
                }
                "MPI_COLLECTIVE_END" => {
                    return Ok(self.parse_collective(location, attributes, &region.name).map_or(Call::Other, Call::Collective));
                }
                _ => {}
            }
        }
        Ok(match (sent, received) {
            (Some(sent), Some(received)) => Call::Exchange(sent, received),
            (Some(sent), None) => Call::Send(sent, is_synchronous),
            (None, Some(received)) => Call::Receive(received, None),
            (None, None) if !completed.is_empty() => Call::Wait(completed),
            _ => Call::Other,
        })
    }

    /// Returns the number of the communicator in the attributes, and its locations in order of rank.
    fn communicator_members(&self, location: u64, attributes: &str) -> Option<(u64, Vec<u64>)> {
        let id = parse_reference(find_attribute(attributes, "Communicator")?)?;
        let group = self.definitions.communicators.get(&id)?;
        let members = self.definitions.groups.get(group).filter(|members| !members.is_empty());
        Some((id, members.cloned().unwrap_or_else(|| vec![location])))
    }

    fn parse_message(&self, location: u64, attributes: &str, peer: &str, is_synchronous: bool) -> Option<Message> {
        let (id, members) = self.communicator_members(location, attributes)?;
        let rank = find_attribute(attributes, peer)?.split([' ', '(']).next()?.parse::<usize>().ok()?;
        let process = ProcessId(*self.order.get(members.get(rank)?)?);
        let tag = find_attribute(attributes, "Tag")?.parse().ok()?;
        let bytes = find_attribute(attributes, "Length").and_then(|length| length.parse::<u64>().ok());
        let is_buffered = bytes.is_some_and(|bytes| bytes <= MAX_BUFFERED_BYTES) && !is_synchronous;
        Some(Message { communicator: CommunicatorId(id), peer: Some(process), tag: Some(tag), is_buffered })
    }

    fn parse_collective(&self, location: u64, attributes: &str, region: &str) -> Option<Collective> {
        let (id, members) = self.communicator_members(location, attributes)?;
        let rule = match find_attribute(attributes, "Operation")? {
            "BCAST" | "SCATTER" | "SCATTERV" => CollectiveWaitRule::FromRoot,
            "REDUCE" | "GATHER" | "GATHERV" => CollectiveWaitRule::ToRoot,
            "SCAN" | "EXSCAN" => CollectiveWaitRule::Scan,
            _ => CollectiveWaitRule::All,
        };
        let rank = members.iter().position(|member| *member == location)?;
        let root = find_attribute(attributes, "Root").and_then(|root| root.split([' ', '(']).next()?.parse::<usize>().ok());
        let is_barrier = region.ends_with("barrier") || region.ends_with("Barrier");
        Some(Collective {
            communicator: CommunicatorId(id),
            rule,
            is_root: root == Some(rank),
            rank: rank as u32,
            size: members.len() as u32,
            is_barrier,
            is_binding: is_binding_collective(region),
        })
    }
}

/// Fills in the message of a nonblocking receive, which has completed.
fn complete_receive(thread: &mut Otf2Thread, request: RequestId, message: Option<Message>) {
    let Some(first) = thread.receives.remove(&request.0) else { return };
    let call = message.map_or(Call::Other, |message| Call::Begin(message, true, request));
    for event in thread.events.iter_mut().skip(first).take(2) {
        match &mut event.kind {
            EventKind::Enter(old, _) | EventKind::Exit(old) => *old = call.clone(),
            EventKind::Run(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE_DEFINITIONS: &str = r#"
CLOCK_PROPERTIES                          Ticks per Seconds: 500000000, Global Offset: 100, Length: 200, Date: x
LOCATION                               0  Name: "Initial Thread" <1>, Type: CPU_THREAD, # Events: 43, Group: "MPI Rank 0" <0>
LOCATION                               4  Name: "Initial Thread" <1>, Type: CPU_THREAD, # Events: 43, Group: "MPI Rank 1" <1>
GROUP  1  Name: "" <0>, Type: COMM_GROUP, Paradigm: MPI, Flags: NONE, 2 Members: 0 ("Initial Thread" <4>), 1 ("Initial Thread" <0>)
COMM                                   0  Name: "reversed, with a comma" <23>, Group: "" <1>, Parent: UNDEFINED, Flags: NONE
"#;
    const SAMPLE_EVENTS: &str = r#"
ENTER                                          0                  100  Region: "work" <0>
ENTER                                          4                  100  Region: "MPI_Recv" <1>
LEAVE                                          0                  150  Region: "work" <0>
ENTER                                          0                  150  Region: "MPI_Send" <2>
MPI_SEND  0  151  Receiver: 0 ("Initial Thread" <4>), Communicator: "reversed, with a comma" <0>, Tag: 7, Length: 8
LEAVE                                          0                  152  Region: "MPI_Send" <2>
MPI_RECV  4  155  Sender: 1 ("Initial Thread" <0>), Communicator: "reversed, with a comma" <0>, Tag: 7, Length: 8
LEAVE                                          4                  156  Region: "MPI_Recv" <1>
"#;

    fn from_text(definitions_text: &str, text: &str) -> Result<ImportedTrace> {
        let path = Path::new("x.otf2");
        parse_events(path, &parse_definitions(path, definitions_text.as_bytes())?, text.as_bytes())
    }

    #[test]
    fn ranks_are_relative_to_the_communicator() {
        let imported = from_text(SAMPLE_DEFINITIONS, SAMPLE_EVENTS).unwrap();
        assert_eq!(imported.locations.iter().map(|l| l.name.label.clone().unwrap()).collect::<Vec<_>>(), ["MPI Rank 0", "MPI Rank 1"]);
        let replayed = super::super::analyse_imported_trace_once(&imported, trodden_waits::AnalysisOptions::default(), false);
        assert_eq!((replayed.outcome.waits, replayed.outcome.wait_ns), (1, 100));
        assert_eq!(replayed.outcome.sites[0].site.kind, trodden_waits::WaitKind::LateSender);
        assert_eq!(replayed.outcome.diagnostics.iter().count(), 0);
    }

    #[test]
    fn leaving_a_region_that_was_not_entered_is_an_error() {
        let text =
            SAMPLE_EVENTS.replace("ENTER                                          4", "X                                              4");
        assert!(from_text(SAMPLE_DEFINITIONS, &text).is_err());
    }
}
