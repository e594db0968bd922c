//! Importer for scheduler events in the output of `perf script` or `perf sched script`.
//!
//! ```text
//!   comm  1234 [001]  100.123456: sched:sched_waking: comm=worker pid=1235 prio=120 target_cpu=000
//!   comm  1234 [001]  100.123456: sched:sched_switch: prev_comm=comm prev_pid=1234 prev_prio=120 prev_state=S ==> next_comm=x next_pid=0
//!   comm  1234 [001]  100.123456: sched:sched_switch: comm:1234 [120] S ==> x:1235 [120]     (with the plugins of libtraceevent)
//! ```

use super::ImportedTrace;
use super::scheduler::{SchedulerEvent, SchedulerTraceImporter, WakeUpEventNames, to_nanoseconds};
use anyhow::{Result, anyhow, bail};
use std::path::Path;

/// Returns true if a text contains the header that `perf script --header` writes, but no events.
pub fn is_only_header(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    lines.peek().is_some_and(|line| line.starts_with("# ===="))
        && text.contains("\n# captured on")
        && lines.all(|line| line.starts_with('#'))
}

pub fn read_perf_scheduler_text(path: &Path, text: &str) -> Result<ImportedTrace> {
    let wake_ups = WakeUpEventNames::detect(text);
    let mut scheduler = SchedulerTraceImporter::new(wake_ups);
    let mut last_ns = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let place = |what: &str| anyhow!("{}:{number}: {what}. Write the text with `perf script`", path.display());
        let Some((head, fields, event)) = wake_ups.parse_event(line) else { continue };
        let time_ns = parse_time(head).ok_or_else(|| place("no time before the event"))?;
        if time_ns < last_ns {
            bail!("{}:{number}: the time of this event is earlier than that of the previous event", path.display());
        }
        last_ns = time_ns;
        match event {
            SchedulerEvent::Wake => {
                let waker = parse_pid(head).ok_or_else(|| place("no thread before the event"))?;
                let woken = parse_woken(fields).ok_or_else(|| place("expected a field pid or a thread as NAME:NUMBER"))?;
                scheduler.add_wake_up(waker, parse_thread_id(woken)?, time_ns);
            }
            SchedulerEvent::Switch => {
                let Some(ThreadSwitch { prev_pid, prev_comm, prev_state, next_pid, next_comm }) = parse_switch(fields) else {
                    return Err(place("expected prev_comm, prev_pid, prev_state, next_comm and next_pid, or threads as NAME:NUMBER"));
                };
                let prev = (parse_thread_id(prev_pid)?, prev_comm, prev_state.starts_with('R'));
                scheduler.add_switch(prev, (parse_thread_id(next_pid)?, next_comm), time_ns);
            }
        }
    }
    Ok(scheduler.finish())
}

/// Parses the time in text like `... 100.123456: `, with six or nine digits after the point, to ns.
fn parse_time(head: &str) -> Option<u64> {
    let word = head.split_ascii_whitespace().rev().find_map(|word| {
        let word = word.strip_suffix(':')?;
        word.contains('.').then_some(word)
    })?;
    let (seconds, fraction) = word.split_once('.')?;
    to_nanoseconds(seconds.parse().ok()?, fraction)
}

/// Parses the ID of the thread in which an event occurred. It precedes the processor number in brackets, and is parsed from the end because
/// the thread's name may contain brackets.
fn parse_pid(head: &str) -> Option<u32> {
    let before = head.rsplit_once('[')?.0;
    before.split_ascii_whitespace().last()?.rsplit('/').next()?.parse().ok()
}

#[derive(Debug, PartialEq, Eq)]
struct ThreadSwitch<'a> {
    prev_pid: &'a str,
    prev_comm: &'a str,
    prev_state: &'a str,
    next_pid: &'a str,
    next_comm: &'a str,
}

/// Parses a context switch, which perf prints in two forms. Thread names may contain any text, so a field is found by the text after the
/// name.
fn parse_switch(fields: &str) -> Option<ThreadSwitch<'_>> {
    const ARROW: &str = " ==> ";
    let arrows = || fields.match_indices(ARROW).map(|(at, _)| (&fields[..at], &fields[at + ARROW.len()..]));
    let named = |(before, after)| {
        let (prev_comm, rest) = str::strip_prefix(before, "prev_comm=")?.rsplit_once(" prev_pid=")?;
        let (prev_pid, rest) = rest.split_once(' ')?;
        let prev_state = as_single_word(rest.rsplit_once("prev_state=")?.1)?;
        let (next_comm, rest) = str::strip_prefix(after, "next_comm=")?.rsplit_once(" next_pid=")?;
        Some(ThreadSwitch { prev_pid, prev_comm, prev_state, next_pid: rest.split(' ').next()?, next_comm })
    };
    let by_plugin = |(before, after)| {
        let (thread, prev_state) = str::rsplit_once(before, ' ')?;
        let ((prev_comm, prev_pid), (next_comm, next_pid)) = (parse_thread_with_priority(thread)?, parse_thread_with_priority(after)?);
        Some(ThreadSwitch { prev_pid, prev_comm, prev_state, next_pid, next_comm })
    };
    arrows().find_map(named).or_else(|| arrows().find_map(by_plugin))
}

/// Parses `NAME:NUMBER [PRIORITY]` to the name and the number.
fn parse_thread_with_priority(text: &str) -> Option<(&str, &str)> {
    let (thread, priority) = text.trim_end().strip_suffix(']')?.rsplit_once(" [")?;
    let (name, number) = thread.rsplit_once(':')?;
    (is_decimal_number(priority.trim_start_matches('-')) && is_decimal_number(number)).then_some((name, number))
}

/// Returns the ID of the woken thread from the fields of a wake-up, which are `comm=NAME pid=NUMBER prio=...` or `NAME:NUMBER [PRIORITY]
/// CPU:000`.
fn parse_woken(fields: &str) -> Option<&str> {
    let named = fields.starts_with("comm=").then(|| fields.rsplit_once(" pid=")?.1.split(' ').next()).flatten();
    named.or_else(|| parse_thread_with_priority(&fields[..=fields.rfind(']')?]).map(|(_, number)| number))
}

fn as_single_word(text: &str) -> Option<&str> {
    (!text.contains(' ')).then_some(text)
}

fn is_decimal_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse_thread_id(text: &str) -> Result<u32> {
    text.parse().map_err(|_| anyhow!("invalid thread ID `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_parsed_in_both_forms_with_any_thread_names() {
        let names = ["a", "a ==> b", "next_pid=1", "my app (x)", "x ==> next_comm=y", "a:1 [120] S ==> b", "p prev_pid=3"];
        for (name, next) in names.iter().flat_map(|name| names.map(|next| (*name, next))) {
            let expected = ThreadSwitch { prev_pid: "7", prev_comm: name, prev_state: "S", next_pid: "8", next_comm: next };
            let named = format!("prev_comm={name} prev_pid=7 prev_prio=120 prev_state=S ==> next_comm={next} next_pid=8 next_prio=120");
            assert_eq!(parse_switch(&named), Some(expected));
        }
        for (name, next) in [("a", "a ==> b"), ("next_pid=1", "my app (worker)"), ("a ==> b", "c d")] {
            let expected = ThreadSwitch { prev_pid: "7", prev_comm: name, prev_state: "R+", next_pid: "8", next_comm: next };
            assert_eq!(parse_switch(&format!("{name}:7 [120] R+ ==> {next} [120]")), None);
            assert_eq!(parse_switch(&format!("{name}:7 [120] R+ ==> {next}:8 [-1]")).unwrap(), expected);
            assert_eq!(parse_switch(&format!("{name}:7 [120] R+ ==> {next}:8 [120]")).unwrap(), expected);
        }
        assert_eq!(parse_woken("comm=a pid=1 pid=7 prio=120 target_cpu=001"), Some("7"));
        assert_eq!(parse_woken("my app:7 [120] CPU:001"), Some("7"));
        assert_eq!(parse_woken("my app:7 [120]<CANT FIND FIELD success> CPU:001"), Some("7"));
    }
}
