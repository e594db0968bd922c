//! Text of `perf script` (or `perf sched script`): events of the scheduler.
//!
//! ```text
//!   comm  1234 [001]  100.123456: sched:sched_waking: comm=worker pid=1235 prio=120 target_cpu=000
//!   comm  1234 [001]  100.123456: sched:sched_switch: prev_comm=comm prev_pid=1234 prev_prio=120 prev_state=S ==> next_comm=x
//! next_pid=0 ...
//! ```

use super::Imported;
use super::scheduler::{Scheduler, event_of, nanoseconds};
use anyhow::{Result, anyhow, bail};
use std::path::Path;

/// Reads the text.
///
/// # Errors
/// A line is damaged, or times run back.
pub fn read(path: &Path, text: &str) -> Result<Imported> {
    let mut scheduler = Scheduler::new();
    let mut last_ns = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let place = |what: &str| anyhow!("{}:{number}: {what}: write it by `perf script`", path.display());
        let Some((head, fields, is_waking)) = event_of(line) else { continue };
        let time_ns = time(head).ok_or_else(|| place("no time before the event"))?;
        if time_ns < last_ns {
            bail!("{}:{number}: its time is before that of the line in front of it", path.display());
        }
        last_ns = time_ns;
        let field = |name: &str| field(fields, name).ok_or_else(|| place(&format!("no field {name}")));
        if is_waking {
            let waker = pid_of_head(head).ok_or_else(|| place("no thread before the event"))?;
            scheduler.wake(waker, number_of(&field("pid")?)?, time_ns);
        } else {
            let (from, to) = (number_of(&field("prev_pid")?)?, number_of(&field("next_pid")?)?);
            let is_ready = field("prev_state")?.starts_with('R');
            scheduler.switch((from, &field("prev_comm")?, is_ready), (to, &field("next_comm")?), time_ns);
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

/// The thread that an event interrupted: the number before `[cpu]`.
fn pid_of_head(head: &str) -> Option<u32> {
    let before = head.split_once('[')?.0;
    before.split_ascii_whitespace().last()?.rsplit('/').next()?.parse().ok()
}

/// The value of `name=`; names of threads may have blanks in them.
fn field(fields: &str, name: &str) -> Option<String> {
    let start = fields.match_indices(name).find(|(at, _)| {
        let is_begin = *at == 0 || fields.as_bytes()[at - 1] == b' ';
        is_begin && fields[at + name.len()..].starts_with('=')
    })?;
    let rest = &fields[start.0 + name.len() + 1..];
    let end = rest.match_indices(' ').map(|(at, _)| at).find(|at| {
        let next = rest[at + 1..].split(' ').next().unwrap_or("");
        next.contains('=') || next == "==>"
    });
    Some(rest[..end.unwrap_or(rest.len())].trim().to_owned())
}

fn number_of(text: &str) -> Result<u32> {
    text.parse().map_err(|_| anyhow!("`{text}` is not the number of a thread"))
}
