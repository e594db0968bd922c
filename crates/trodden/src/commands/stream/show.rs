//! `trodden stream show`: paths and calls of a thread, from any place on.

use super::files;
use super::told::{Told, maps};
use crate::cli::StreamShow;
use crate::output;
use crate::sources;
use anyhow::{Context, Result};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use trodden_profile::stream::{Nesting, Step, StreamLog};
use trodden_report::{SourceCache, View};

/// Prints events.
///
/// # Errors
/// There is no such thread, or its log cannot be read.
pub fn run(job: &StreamShow) -> Result<ExitCode> {
    let logs = files::logs(&job.run)?.iter().map(|file| Ok(StreamLog::open(file)?)).collect::<Result<Vec<_>>>()?;
    let threads: usize = logs.iter().map(|log| log.threads().len()).sum();
    let mut all = logs.iter().flat_map(|log| log.threads().iter().map(move |thread| (log, thread)));
    let none = || format!("there is no thread {}: the streams have {threads}, from 0 on", job.thread);
    let (log, thread) = all.nth(job.thread).with_context(none)?;
    let profile = maps(log.head())?;
    let view = View::of(&profile);
    let provider = sources::sources(&job.source, &std::env::current_dir()?.display().to_string());
    let sources = SourceCache::new(&provider);
    let told = Told::new(log.head(), &profile, &view, &sources);
    let mut nesting = Nesting::new(&told.places, true);
    let mut out = BufWriter::new(output::text());
    let (mut number, end) = (0u64, if job.count == 0 { u64::MAX } else { job.from.saturating_add(job.count) });
    let mut failed = None;
    // From the beginning: depths are known from there.
    log.visit(thread, 0, |event| {
        let step = nesting.feed(event);
        if number >= job.from
            && let Err(error) = line(&mut out, &told, number, step, nesting.frames().len())
        {
            failed = Some(error);
        }
        number += 1;
        number < end && failed.is_none()
    })?;
    failed.map_or(Ok(()), Err)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn line(out: &mut impl Write, told: &Told, number: u64, step: Step, depth: usize) -> io::Result<()> {
    let indent = |depth: usize| 2 * depth.saturating_sub(1).min(40);
    match step {
        Step::Entered(frame) => {
            writeln!(out, "#{number:<9} {:width$}enter   {}", "", told.name(frame.function), width = indent(depth))
        }
        Step::Path { counter, role, depth } => {
            let name = told.places.path(counter).map_or_else(String::new, |(place, _)| told.name(place));
            writeln!(out, "#{number:<9} {:width$}{:<7} {name}  {}", "", told.role(role), told.path(counter), width = indent(depth))
        }
        Step::Unwound(0) => Ok(()),
        Step::Unwound(frames) => writeln!(out, "#{number:<9} {:width$}unwound {frames}", "", width = indent(depth)),
        Step::Unknown => writeln!(out, "#{number:<9} of a unit without a map"),
    }
}
