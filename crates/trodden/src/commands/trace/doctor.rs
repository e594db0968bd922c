//! Which collectors can work here: each follows this program itself for a moment, and must see its entry.

use super::collectors::COLLECTORS;
use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use trodden_trace::{Collector, Executable, Flow, Recipe, Run, Sink, Target, ThreadNumber};

/// Sees the first thing, and has enough.
struct First(u64);

impl Sink for First {
    fn record(&mut self, _: ThreadNumber, _: u64) -> io::Result<Flow> {
        self.0 += 1;
        Ok(Flow::Enough)
    }
}

/// Names the collectors that work.
///
/// # Errors
/// None does; the reason of the first.
pub fn collectors() -> Result<String> {
    let tried: Vec<(&str, Result<()>)> = COLLECTORS.into_iter().map(|c| (c.name(), works(c))).collect();
    let working: Vec<&str> = tried.iter().filter(|(_, result)| result.is_ok()).map(|(name, _)| *name).collect();
    if let (true, Some((_, Err(error)))) = (working.is_empty(), tried.into_iter().next()) {
        return Err(error);
    }
    Ok(working.join(", "))
}

/// Whether a collector works.
///
/// # Errors
/// It does not: why.
pub fn works(collector: &dyn Collector) -> Result<()> {
    let own = std::env::current_exe().context("this program cannot be found")?;
    ensure!(own.exists(), "the file of this program was replaced while it runs ({}): start it again", own.display());
    let executable = Executable::read(&own)?;
    let sites = [executable.entry];
    let block = executable.entry..executable.entry + 8;
    let mut command = Command::new(&own);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let stop = AtomicBool::new(false);
    let target = Target::Start(Box::new(command));
    let run = Run {
        target,
        executable: &executable,
        sites: &sites,
        jumps: &[],
        blocks: std::slice::from_ref(&block),
        guarded: &HashSet::new(),
        libraries: &[],
        recipe: Recipe::NONE,
        first: None,
        stop: &stop,
        limit: None,
    };
    let mut seen = First(0);
    std::thread::scope(|s| s.spawn(|| collector.collect(run, &mut seen)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    ensure!(seen.0 > 0, "the collector `{}` saw nothing", collector.name());
    Ok(())
}
