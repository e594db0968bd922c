//! Trials of collectors: whether one works on this machine, shown by recording a single hit.

use crate::collect::Collector;
use crate::collectors::CollectorKind;
use crate::command;
use crate::follow::FollowEnding;
use crate::launcher::ProgramStart;
use crate::memory::common;
use crate::ptrace::wait_child;
use crate::repeat::RepeatRecipe;
use crate::run::{RunTarget, TraceRun};
use crate::sink::{Sink, SinkFlow, ThreadNumber};
use crate::sleds;
use crate::subject::Executable;
use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use trodden_binary::Binary;

/// Counts hits, and ends the collection at the first.
struct First(u64);

impl Sink for First {
    fn record(&mut self, _: ThreadNumber, _: u64) -> io::Result<SinkFlow> {
        self.0 += 1;
        Ok(SinkFlow::Enough)
    }
}

/// Tries a collector by running a program with `--version`, and watching its first witness sled if the collector needs one, else its
/// entry point.
///
/// # Errors
/// The reason why the collector does not work, or does not work with this program.
pub fn try_collector(kind: CollectorKind, program: &Path) -> Result<()> {
    ensure!(program.exists(), "the file of this program was replaced while it was running ({}). Start it again", program.display());
    let executable = Executable::read(program)?;
    let place = match kind {
        CollectorKind::Compiled => sleds::first(&Binary::read(program)?).context("the compiled program has no sled")?,
        _ => executable.entry,
    };
    sees(kind.collector(), &Executable { code: code_around(place, &executable), ..executable }, place)
}

/// The pages of code around a site. A trial needs no other code, and large programs would take long to read.
fn code_around(place: u64, executable: &Executable) -> Vec<Range<u64>> {
    let pages = (place & !0xfff)..(place & !0xfff) + 0x2000;
    executable.code.iter().map(|code| common(code, &pages)).filter(|range| !range.is_empty()).collect()
}

fn sees(collector: &dyn Collector, executable: &Executable, place: u64) -> Result<()> {
    let sites = [place];
    let block = place..place + 8;
    let mut trial = Command::new(&executable.path);
    trial.arg("--version");
    let mut start = ProgramStart::new(command::launcher(), &trial);
    let nothing = || io::Result::Ok(Some(File::options().read(true).write(true).open("/dev/null")?.into()));
    start.streams = [nothing()?, nothing()?, nothing()?];
    let stop = AtomicBool::new(false);
    let target = RunTarget::Start(Box::new(start));
    let (sender, begun) = channel();
    let run = TraceRun {
        target,
        executable,
        sites: &sites,
        jumps: &[],
        blocks: std::slice::from_ref(&block),
        guarded: &HashSet::new(),
        libraries: &[],
        recipe: RepeatRecipe::NONE,
        first: None,
        stop: &stop,
        limit: None,
        begun: Some(sender),
        note: |_| {},
    };
    let mut seen = First(0);
    let outcome = std::thread::scope(|s| s.spawn(|| collector.collect(run, &mut seen)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    if let (FollowEnding::Detached, None, Ok(process)) = (outcome.followed.ending, outcome.followed.status, begun.try_recv()) {
        wait_child(process as i32)?;
    }
    ensure!(seen.0 > 0, "the collector `{}` recorded no hit", collector.name());
    Ok(())
}
