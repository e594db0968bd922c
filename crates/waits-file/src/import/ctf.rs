//! Importer for scheduler events in the Common Trace Format, from LTTng or `perf data convert --to-ctf`. It parses the output of
//! `babeltrace2`.
//!
//! LTTng does not record which thread wakes another one. It is the thread that runs on the processor of the event.
//!
//! ```text
//! [100.000000001] (+0.000000001) host sched_switch: { cpu_id = 0 }, { prev_comm = "a", prev_tid = 7, prev_state = 1,
//!     next_comm = "b", next_tid = 8 }   (in one line)
//! [100.000000002] (+0.000000001) sched:sched_waking: { cpu_id = 0 }, { perf_tid = 7, comm = "b", pid = 8 }
//! ```

use super::ImportedTrace;
use super::scheduler::{SchedulerEvent, SchedulerTraceImporter, WakeUpEventNames, to_nanoseconds};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// The program that converts the Common Trace Format to text.
const CTF_READER_PROGRAM: &str = "babeltrace2";
const NO_EVENTS_MESSAGE: &str = "the trace has no events";

/// Returns true if a folder contains a CTF trace: if it or a subfolder has a file `metadata`, which describes a trace.
pub fn is_ctf_trace_folder(folder: &Path) -> bool {
    const MAX_FOLDER_DEPTH: usize = 4;
    fn has_metadata(folder: &Path, depth: usize) -> bool {
        folder.join("metadata").is_file()
            || depth > 0
                && std::fs::read_dir(folder).is_ok_and(|all| all.flatten().any(|e| e.path().is_dir() && has_metadata(&e.path(), depth - 1)))
    }
    has_metadata(folder, MAX_FOLDER_DEPTH)
}

pub(crate) fn read_trace(folder: &Path) -> Result<ImportedTrace> {
    if has_no_events(folder) {
        // A trace without events is not passed to babeltrace2, which rejects the description that `perf data convert` writes for it.
        return Ok(ImportedTrace::empty_trace(NO_EVENTS_MESSAGE));
    }
    let out = Command::new(CTF_READER_PROGRAM).arg("--clock-seconds").arg(folder).output();
    let out = out.with_context(|| {
        format!("cannot run {CTF_READER_PROGRAM}, which is needed to read {}. Run `apt-get install {CTF_READER_PROGRAM}`", folder.display())
    })?;
    let stderr = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{CTF_READER_PROGRAM} cannot read {}: {}", folder.display(), stderr.trim());
    match String::from_utf8_lossy(&out.stdout) {
        text if text.trim().is_empty() => Ok(ImportedTrace::empty_trace(NO_EVENTS_MESSAGE)),
        text => parse_babeltrace_text(folder, &text),
    }
}

/// Returns true if a trace has a description but no events in any stream.
fn has_no_events(folder: &Path) -> bool {
    const DESCRIPTION_MAGICS: [&[u8]; 3] = [b"/* CTF 1.", &0x75D1_1D57_u32.to_le_bytes(), &0x75D1_1D57_u32.to_be_bytes()];
    let is_description = |bytes: &[u8]| DESCRIPTION_MAGICS.iter().any(|magic| bytes.starts_with(magic));
    let files: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().collect();
    std::fs::read(folder.join("metadata")).is_ok_and(|bytes| is_description(&bytes))
        && files.iter().all(|file| file.file_name() == "metadata" || file.metadata().is_ok_and(|m| m.is_file() && m.len() == 0))
}

/// Returns true if a text is `babeltrace2`'s output of scheduler events.
pub fn is_babeltrace_text(text: &str) -> bool {
    text.lines().take(1000).any(|line| line.starts_with('[') && line.contains("sched_switch: {"))
}

/// Parses the text that `babeltrace2` prints.
pub(crate) fn parse_babeltrace_text(path: &Path, text: &str) -> Result<ImportedTrace> {
    let wake_ups = WakeUpEventNames::detect(text);
    let mut scheduler = SchedulerTraceImporter::new(wake_ups);
    let advice = match path.is_dir() {
        true => "Only scheduler events of LTTng and of `perf data convert --to-ctf` are supported".to_owned(),
        false => format!("Write the text with `{CTF_READER_PROGRAM} --clock-seconds`"),
    };
    let mut running: HashMap<u32, u32> = HashMap::new();
    let (mut last_ns, mut events) = (0, 0);
    for (number, line) in (1..).zip(text.lines()) {
        let place = |what: &str| anyhow!("{}:{number}: {what}. {advice}", path.display());
        let Some((head, fields, event)) = wake_ups.parse_event(line) else { continue };
        let time_ns = parse_time(head).ok_or_else(|| place("no time at the start of the line"))?;
        if time_ns < last_ns {
            bail!("{}:{number}: the time of this event is earlier than that of the previous event", path.display());
        }
        last_ns = time_ns;
        events += 1;
        let any = |names: [&str; 2]| names.iter().find_map(|name| field_value(fields, name));
        let thread = |names: [&str; 2]| {
            any(names).and_then(|text| text.parse().ok()).ok_or_else(|| place(&format!("no field {} with a thread ID", names[0])))
        };
        let text = |name: &str| field_value(fields, name).ok_or_else(|| place(&format!("no field {name}")));
        // perf records in which thread each event occurred, so the processor need not be known.
        let own = field_value(fields, "perf_tid").and_then(|text| text.parse().ok());
        let processor = any(["cpu_id", "perf_cpu"]).and_then(|text| text.parse().ok());
        if processor.or(own).is_none() {
            return Err(place("no field cpu_id"));
        }
        match event {
            SchedulerEvent::Wake => {
                let running = processor.and_then(|processor: u32| running.get(&processor).copied());
                scheduler.add_wake_up(own.or(running).unwrap_or(0), thread(["tid", "pid"])?, time_ns);
            }
            SchedulerEvent::Switch => {
                let (from, to) = (thread(["prev_tid", "prev_pid"])?, thread(["next_tid", "next_pid"])?);
                running.extend(processor.map(|processor| (processor, to)));
                scheduler.add_switch((from, &text("prev_comm")?, is_ready(&text("prev_state")?)), (to, &text("next_comm")?), time_ns);
            }
        }
    }
    ensure!(
        events > 0,
        "{}: the trace has no sched_switch or sched_waking events. Record them with `perf record -e \
         'sched:sched_switch,sched:sched_waking'` or `lttng enable-event --kernel 'sched_*'`",
        path.display()
    );
    Ok(scheduler.finish())
}

/// Returns true if a thread that left the processor is still ready to run. Its state is then 0, or at least 256 if it was preempted.
fn is_ready(state: &str) -> bool {
    state.contains("RUNNING") || state.parse::<u64>().is_ok_and(|s| s == 0 || s >= 256)
}

/// Parses `[100.123456789]` or `[10:01:02.123456789]` to ns.
fn parse_time(head: &str) -> Option<u64> {
    let (text, _) = head.trim_start().strip_prefix('[')?.split_once(']')?;
    let (whole, fraction) = text.split_once('.')?;
    let seconds = whole.split(':').try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))?;
    to_nanoseconds(seconds, fraction)
}

/// Returns the value of a field: a number, a string without its quotes, or the label and number of an enumeration.
fn field_value(fields: &str, name: &str) -> Option<String> {
    let start = fields.match_indices(name).find_map(|(at, _)| {
        let is_begin = at >= 2 && matches!(&fields[at - 2..at], "{ " | ", ");
        fields[at + name.len()..].strip_prefix(" = ").filter(|_| is_begin)
    })?;
    if let Some(rest) = start.strip_prefix('"') {
        let mut text = String::new();
        let mut characters = rest.chars();
        while let Some(character) = characters.next() {
            match character {
                '"' => return Some(text),
                '\\' => text.extend(characters.next()),
                other => text.push(other),
            }
        }
        return None;
    }
    // An enumeration is printed as `( "LABEL" : container = 1 )`.
    let end = if start.starts_with('(') { start.find(')')? } else { start.find([',', ' ', '}']).unwrap_or(start.len()) };
    Some(start[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_full_field_name() {
        let fields = concat!(
            r#"{ cpu_id = 3 }, { prev_comm = "my \"app\", tid = 9", prev_tid = 7, "#,
            r#"prev_state = ( "TASK_RUNNING" : container = 0 ), tid = 8 }"#
        );
        assert_eq!(field_value(fields, "cpu_id").as_deref(), Some("3"));
        assert_eq!(field_value(fields, "prev_comm").as_deref(), Some(r#"my "app", tid = 9"#));
        assert_eq!(field_value(fields, "prev_tid").as_deref(), Some("7"));
        assert!(is_ready(&field_value(fields, "prev_state").unwrap()) && !is_ready("1") && is_ready("256"));
        assert_eq!((field_value(fields, "none"), field_value("{ a = \"open", "a")), (None, None));
    }

    #[test]
    fn times_are_in_seconds_or_hours_minutes_and_seconds() {
        assert_eq!(parse_time("[100.000000001] (+0.1)"), Some(100_000_000_001));
        assert_eq!(parse_time("[01:00:02.5] x"), Some(3_602_500_000_000));
        assert_eq!((parse_time("[1.2"), parse_time("x")), (None, None));
    }
}
