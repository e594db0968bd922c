//! Text of `perf script` (or `perf sched script`): events of the scheduler.
//!
//! ```text
//!   comm  1234 [001]  100.123456: sched:sched_waking: comm=worker pid=1235 prio=120 target_cpu=000
//!   comm  1234 [001]  100.123456: sched:sched_switch: prev_comm=comm prev_pid=1234 prev_prio=120 prev_state=S ==> next_comm=x
//! next_pid=0 ...
//!   comm  1234 [001]  100.123456: sched:sched_switch: comm:1234 [120] S ==> x:1235 [120]     (with the plugins of libtraceevent)
//! ```

use super::Imported;
use super::scheduler::{Event, Scheduler, WakeUps, nanoseconds};
use anyhow::{Result, anyhow, bail};
use std::path::Path;

/// Whether a text is the header that `perf script --header` writes, and nothing else.
pub fn is_header_alone(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    lines.peek().is_some_and(|line| line.starts_with("# ===="))
        && text.contains("\n# captured on")
        && lines.all(|line| line.starts_with('#'))
}

/// Reads the text.
///
/// # Errors
/// A line is damaged, or times run back.
pub fn read(path: &Path, text: &str) -> Result<Imported> {
    let wake_ups = WakeUps::of(text);
    let mut scheduler = Scheduler::new(wake_ups);
    let mut last_ns = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let place = |what: &str| anyhow!("{}:{number}: {what}: write it by `perf script`", path.display());
        let Some((head, fields, event)) = wake_ups.event_of(line) else { continue };
        let time_ns = time(head).ok_or_else(|| place("no time before the event"))?;
        if time_ns < last_ns {
            bail!("{}:{number}: its time is before that of the line in front of it", path.display());
        }
        last_ns = time_ns;
        match event {
            Event::Wake => {
                let waker = pid_of_head(head).ok_or_else(|| place("no thread before the event"))?;
                let woken = woken(fields).ok_or_else(|| place("neither a field pid nor a thread as NAME:NUMBER"))?;
                scheduler.wake(waker, number_of(woken)?, time_ns);
            }
            Event::Switch => {
                let Some(Switch { from, name, state, to, next }) = switch(fields) else {
                    return Err(place("neither fields prev_comm, prev_pid, prev_state, next_comm and next_pid nor threads as NAME:NUMBER"));
                };
                scheduler.switch((number_of(from)?, name, state.starts_with('R')), (number_of(to)?, next), time_ns);
            }
        }
    }
    Ok(scheduler.finish())
}

/// `... 100.123456: ` or with nine digits, in ns.
fn time(head: &str) -> Option<u64> {
    let word = head.split_ascii_whitespace().rev().find_map(|word| {
        let word = word.strip_suffix(':')?;
        word.contains('.').then_some(word)
    })?;
    let (seconds, fraction) = word.split_once('.')?;
    nanoseconds(seconds.parse().ok()?, fraction)
}

/// The thread that an event interrupted: the number before `[cpu]`. Its name may have brackets.
fn pid_of_head(head: &str) -> Option<u32> {
    let before = head.rsplit_once('[')?.0;
    before.split_ascii_whitespace().last()?.rsplit('/').next()?.parse().ok()
}

/// The fields of a switch.
#[derive(Debug, PartialEq, Eq)]
struct Switch<'a> {
    from: &'a str,
    name: &'a str,
    state: &'a str,
    to: &'a str,
    next: &'a str,
}

/// The fields of a switch, of either form. Names of threads may have anything in them, so all is found from what follows a name.
fn switch(fields: &str) -> Option<Switch<'_>> {
    const ARROW: &str = " ==> ";
    let arrows = || fields.match_indices(ARROW).map(|(at, _)| (&fields[..at], &fields[at + ARROW.len()..]));
    let named = |(before, after)| {
        let (name, rest) = str::strip_prefix(before, "prev_comm=")?.rsplit_once(" prev_pid=")?;
        let (from, rest) = rest.split_once(' ')?;
        let state = rest.rsplit_once("prev_state=")?.1;
        let (next, rest) = str::strip_prefix(after, "next_comm=")?.rsplit_once(" next_pid=")?;
        Some(Switch { from, name, state: one_word(state)?, to: rest.split(' ').next()?, next })
    };
    let by_plugin = |(before, after)| {
        let (thread, state) = str::rsplit_once(before, ' ')?;
        let ((name, from), (next, to)) = (with_priority(thread)?, with_priority(after)?);
        Some(Switch { from, name, state, to, next })
    };
    arrows().find_map(named).or_else(|| arrows().find_map(by_plugin))
}

/// `NAME:NUMBER [PRIORITY]`.
fn with_priority(text: &str) -> Option<(&str, &str)> {
    let (thread, priority) = text.trim_end().strip_suffix(']')?.rsplit_once(" [")?;
    let (name, number) = thread.rsplit_once(':')?;
    (is_number(priority.trim_start_matches('-')) && is_number(number)).then_some((name, number))
}

/// The thread that is woken, of either form: `comm=NAME pid=NUMBER prio=...` or `NAME:NUMBER [PRIORITY] CPU:000`.
fn woken(fields: &str) -> Option<&str> {
    let named = fields.starts_with("comm=").then(|| fields.rsplit_once(" pid=")?.1.split(' ').next()).flatten();
    named.or_else(|| with_priority(&fields[..=fields.rfind(']')?]).map(|(_, number)| number))
}

fn one_word(text: &str) -> Option<&str> {
    (!text.contains(' ')).then_some(text)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn number_of(text: &str) -> Result<u32> {
    text.parse().map_err(|_| anyhow!("`{text}` is not the number of a thread"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_of_both_forms_whatever_the_names_are() {
        let names = ["a", "a ==> b", "next_pid=1", "my app (x)", "x ==> next_comm=y", "a:1 [120] S ==> b", "p prev_pid=3"];
        for (name, next) in names.iter().flat_map(|name| names.map(|next| (*name, next))) {
            let expected = Switch { from: "7", name, state: "S", to: "8", next };
            let named = format!("prev_comm={name} prev_pid=7 prev_prio=120 prev_state=S ==> next_comm={next} next_pid=8 next_prio=120");
            assert_eq!(switch(&named), Some(expected));
        }
        for (name, next) in [("a", "a ==> b"), ("next_pid=1", "my app (worker)"), ("a ==> b", "c d")] {
            let expected = Switch { from: "7", name, state: "R+", to: "8", next };
            assert_eq!(switch(&format!("{name}:7 [120] R+ ==> {next} [120]")), None);
            assert_eq!(switch(&format!("{name}:7 [120] R+ ==> {next}:8 [-1]")).unwrap(), expected);
            assert_eq!(switch(&format!("{name}:7 [120] R+ ==> {next}:8 [120]")).unwrap(), expected);
        }
        assert_eq!(woken("comm=a pid=1 pid=7 prio=120 target_cpu=001"), Some("7"));
        assert_eq!(woken("my app:7 [120] CPU:001"), Some("7"));
        assert_eq!(woken("my app:7 [120]<CANT FIND FIELD success> CPU:001"), Some("7"));
    }
}
