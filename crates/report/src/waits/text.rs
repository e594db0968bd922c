//! The waiting time report as text.

use crate::escape;
use crate::words::plural;
use anyhow::Result;
use std::io::{self, Write};
use std::path::Path;
use trodden_waits::{LocationState, Step};
use trodden_waits_file::causes::CodeCause;
use trodden_waits_file::summary::{ClassSummary, SiteSummary, WaitSummary};

const MAX_STEPS_PER_PATH: usize = 4;
const MAX_CALLERS_PER_CAUSE: usize = 3;
const MAX_CLASSES_PER_SITE: usize = 3;

/// Writes the report, with at most `top` causes and at most `top` wait sites.
pub fn write(out: &mut impl Write, summary: &WaitSummary, top: usize) -> Result<()> {
    write_headline(out, summary)?;
    write_all_causes(out, summary, top)?;
    for site in summary.sites.iter().take(top) {
        write_site(out, summary, site)?;
    }
    if summary.sites.len() > top {
        writeln!(out, "\n{} (--top)", plural((summary.sites.len() - top) as u128, "more wait site", "more wait sites"))?;
    }
    let classes: usize = summary.sites.iter().map(|site| site.classes.len()).sum();
    let others = summary.replayed.outcome.other_classes.iter().map(|(threshold, count)| format!("{count} at {threshold}"));
    let classes = plural(classes as u128, "class", "classes");
    writeln!(out, "\n{classes} at threshold {} ({})", summary.threshold, others.collect::<Vec<_>>().join(", "))?;
    write_overview(out, summary, top)?;
    write_notes(out, summary)?;
    Ok(())
}

fn write_headline(out: &mut impl Write, summary: &WaitSummary) -> io::Result<()> {
    let outcome = &summary.replayed.outcome;
    let locations = summary.replayed.locations.len();
    let all_ns = outcome.run_ns.saturating_mul(locations as u64).max(1);
    writeln!(
        out,
        "{} on {}, {}; {} totalling {} ({:.1} % of all locations' time)",
        format_time(outcome.run_ns),
        plural(locations as u128, "location", "locations"),
        plural(summary.replayed.calls.into(), "call", "calls"),
        plural(outcome.waits.into(), "wait", "waits"),
        format_time(outcome.wait_ns),
        percent(outcome.wait_ns, all_ns)
    )?;
    for (name, family, occurrences, ns) in &summary.kinds {
        let times = plural((*occurrences).into(), "time", "times");
        writeln!(out, "  {:>10}  {:5.1} %  {name} ({family}), {times}", format_time(*ns), percent(*ns, outcome.wait_ns))?;
    }
    Ok(())
}

fn write_all_causes(out: &mut impl Write, summary: &WaitSummary, top: usize) -> io::Result<()> {
    if summary.sites.is_empty() {
        return writeln!(out, "\nNo location waits.");
    }
    if !summary.causes.is_empty() {
        writeln!(out, "\nCauses: the code that others wait for, summed over all waits")?;
        write_causes(out, summary, &summary.causes, top)?;
    }
    if !summary.other_causes.is_empty() {
        writeln!(out, "\nNot caused by code: slow calls, code without a processor, start-up")?;
        write_causes(out, summary, &summary.other_causes, top.min(4))?;
    }
    Ok(())
}

fn write_causes(out: &mut impl Write, summary: &WaitSummary, causes: &[CodeCause], top: usize) -> io::Result<()> {
    for cause in causes.iter().take(top) {
        let place = format_place(&cause.file, cause.line);
        let state = if cause.state == LocationState::Computing { String::new() } else { format!(", {}", cause.state.name()) };
        let caller = format_callers(cause);
        writeln!(
            out,
            "  {:>10}  {:5.1} %  {}{place}{caller} on {}{state}",
            format_time(cause.ns),
            percent(cause.ns, summary.replayed.outcome.wait_ns),
            cause.function,
            summary.location_name(cause.location)
        )?;
    }
    Ok(())
}

/// Formats the callers of a cause. If there are several, each is followed by its share of the waiting time.
fn format_callers(cause: &CodeCause) -> String {
    let share = |(caller, ns): &(String, u64)| format!("{caller} ({:.0} %)", percent(*ns, cause.ns));
    match cause.callers.as_slice() {
        [] => String::new(),
        [(caller, _)] => format!(" in {caller}"),
        callers => {
            let shown: Vec<String> = callers.iter().take(MAX_CALLERS_PER_CAUSE).map(share).collect();
            let more = callers.len().saturating_sub(MAX_CALLERS_PER_CAUSE);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(" in {}{more}", shown.join(", "))
        }
    }
}

fn write_site(out: &mut impl Write, summary: &WaitSummary, site: &SiteSummary) -> io::Result<()> {
    let code = summary.code(site.code);
    writeln!(
        out,
        "\n{} in {}{}: {}, {}, {}",
        code.call.unwrap_or("wait"),
        code.function(),
        format_place(&code.file, summary.line(site.code)),
        site.kind,
        plural(site.occurrences.into(), "time", "times"),
        format_time(site.total_ns)
    )?;
    for class in site.classes.iter().take(MAX_CLASSES_PER_SITE) {
        write_class(out, summary, class)?;
    }
    if site.classes.len() > MAX_CLASSES_PER_SITE {
        let more = plural((site.classes.len() - MAX_CLASSES_PER_SITE) as u128, "more class", "more classes");
        writeln!(out, "  {more} at threshold {}", summary.threshold)?;
    }
    Ok(())
}

fn write_class(out: &mut impl Write, summary: &WaitSummary, class: &ClassSummary) -> io::Result<()> {
    let mut who: Vec<String> = class.waits.locations.iter().take(4).map(|l| summary.location_name(*l)).collect();
    if class.waits.locations.len() > 4 {
        who.push(format!("{} more", class.waits.locations.len() - 4));
    }
    writeln!(
        out,
        "  {}, {} ({} to {}): {} {}, because",
        plural(class.waits.occurrences.into(), "time", "times"),
        format_time(class.waits.total_ns),
        format_time(class.waits.min_ns),
        format_time(class.waits.max_ns),
        who.join(", "),
        if class.waits.locations.len() == 1 { "waits" } else { "wait" }
    )?;
    write_path(out, summary, "executed", &class.plus, class)?;
    write_path(out, summary, "instead of", &class.minus, class)?;
    let (plus, minus) = class.removed_ns;
    if plus + minus > 0 {
        writeln!(out, "      (not shown: code that both executed, {} and {})", format_time(plus), format_time(minus))?;
    }
    Ok(())
}

fn write_path(out: &mut impl Write, summary: &WaitSummary, what: &str, path: &[(Step, u64)], class: &ClassSummary) -> io::Result<()> {
    for (index, (step, ns)) in path.iter().take(MAX_STEPS_PER_PATH).enumerate() {
        writeln!(
            out,
            "    {:10} {:>10}  {:5.1} %  {} on {}",
            if index == 0 { what } else { "" },
            format_time(*ns),
            percent(*ns, class.waits.total_ns),
            step_name(summary, step),
            summary.location_name(step.location)
        )?;
    }
    if path.len() > MAX_STEPS_PER_PATH {
        let rest: u64 = path.iter().skip(MAX_STEPS_PER_PATH).map(|(_, ns)| ns).sum();
        writeln!(
            out,
            "    {:10} {:>10}  {:5.1} %  {}",
            "",
            format_time(rest),
            percent(rest, class.waits.total_ns),
            plural((path.len() - MAX_STEPS_PER_PATH) as u128, "more step", "more steps")
        )?;
    }
    Ok(())
}

fn step_name(summary: &WaitSummary, step: &Step) -> String {
    let code = summary.code(step.code);
    let at = format_place(&code.file, summary.line(step.code));
    let taken = match &code.taken_path {
        Some(taken) if taken.function == code.function() => format!(", path {}", taken.lines),
        Some(taken) => format!(", path of {} {}", taken.function, taken.lines),
        None => String::new(),
    };
    match (step.state, code.call) {
        (LocationState::Computing, _) => match code.path.iter().rev().nth(1) {
            Some(caller) => format!("{}{at} in {caller}{taken}", code.function()),
            None => format!("{}{at}{taken}", code.function()),
        },
        (state, Some(call)) => format!("{call} in {}{at}, {}", code.function(), state.name()),
        (state, None) => format!("{}{at}, {}", code.function(), state.name()),
    }
}

fn write_overview(out: &mut impl Write, summary: &WaitSummary, top: usize) -> io::Result<()> {
    let run_ns = summary.replayed.outcome.run_ns;
    writeln!(out, "\nCritical path, which determines the run time")?;
    for (name, ns) in summary.critical_path.iter().take(top.min(5)) {
        writeln!(out, "  {:>10}  {:5.1} %  {name}", format_time(*ns), percent(*ns, run_ns))?;
    }
    if summary.replayed.locations.len() > 1 {
        writeln!(out, "\nImbalance: the longest time of a location compared with the mean")?;
        for found in summary.imbalance.iter().filter(|i| i.max_ns > i.mean_ns).take(top.min(5)) {
            let location = summary.location_name(found.location);
            writeln!(
                out,
                "  {:>10}  {} on {location}: {}, mean of all {}",
                format_time(found.max_ns - found.mean_ns),
                found.function,
                format_time(found.max_ns),
                format_time(found.mean_ns)
            )?;
        }
    }
    for (function, percent_less, ns) in &summary.replayed.predictions {
        writeln!(
            out,
            "\nIf {function} took {percent_less} % less, the run would take {} instead of {}",
            format_time(*ns),
            format_time(run_ns)
        )?;
    }
    Ok(())
}

/// Lists notes about the limits of the report: unexplained time, inconsistent events, and threads that had to wait for a processor.
pub(super) fn notes(summary: &WaitSummary) -> Vec<String> {
    let outcome = &summary.replayed.outcome;
    let mut notes: Vec<String> = Vec::new();
    if outcome.unexplained_ns > 0 {
        notes.push(format!("{} of waiting time could not be explained", format_time(outcome.unexplained_ns)));
    }
    for (diagnostic, found) in outcome.diagnostics.iter() {
        let location = summary.location_name(found.location);
        let times = plural(found.count.into(), "time", "times");
        notes.push(format!("{diagnostic} ({times}, first at {} on {location})", format_time(found.time_ns)));
    }
    for (name, (calls, ns)) in &summary.replayed.uncovered {
        let calls = plural((*calls).into(), "call", "calls");
        notes.push(format!("{name}: it is unknown who waits for whom ({calls}, {})", format_time(*ns)));
    }
    for name in summary.replayed.locations.iter().enumerate() {
        let (index, location) = name;
        if location.computing_ns > 10_000_000 && location.processor_ns * 10 < location.computing_ns * 9 {
            notes.push(format!(
                "{} had a processor for only {:.0} % of its computing time. The rest counts as computation, although the thread was in an \
                    unrecorded call or ready without a processor; run fewer threads than processors to avoid the latter",
                summary.location_name(trodden_waits::LocationId(index as u32)),
                percent(location.processor_ns, location.computing_ns)
            ));
        }
    }
    notes.extend(summary.replayed.notes.iter().cloned());
    notes.extend(summary.replayed.names.symbols.notes.iter().cloned());
    notes
}

fn write_notes(out: &mut impl Write, summary: &WaitSummary) -> io::Result<()> {
    let notes = notes(summary);
    if !notes.is_empty() {
        writeln!(out, "\nNotes")?;
        notes.iter().try_for_each(|note| writeln!(out, "  {}", escape::escape_line(note)))?;
    }
    Ok(())
}

/// Formats ` (file:line)` with a leading space. Returns an empty string if the file is unknown.
fn format_place(file: &str, line: u32) -> String {
    let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    match (name.is_empty(), line) {
        (true, _) => String::new(),
        (false, 0) => format!(" ({name})"),
        (false, line) => format!(" ({name}:{line})"),
    }
}

pub(super) fn format_time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
