//! Which collectors can work here: each follows a program for a moment, and must see one place of it: this program itself and its entry;
//! or one that is compiled for that, and its first witness sled.

use super::collectors::COLLECTORS;
use crate::driver::assets;
use crate::driver::other_programs::succeeded;
use crate::temporary;
use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use trodden_binary::Binary;
use trodden_trace::command as tracer;
use trodden_trace::{
    Collector, Compiled, Executable, FollowEnding, ProgramStart, RepeatRecipe, RunTarget, Sink, SinkFlow, ThreadNumber, TraceRun,
    first_sled, wait_child,
};

/// Sees the first thing, and has enough.
struct First(u64);

impl Sink for First {
    fn record(&mut self, _: ThreadNumber, _: u64) -> io::Result<SinkFlow> {
        self.0 += 1;
        Ok(SinkFlow::Enough)
    }
}

/// Names the collectors that work.
///
/// # Errors
/// None does; the reason of the first.
pub fn collectors() -> Result<String> {
    let tried: Vec<(&str, Result<()>)> = COLLECTORS.into_iter().map(|c| (c.name(), tried(c))).collect();
    let working = tried.iter().filter(|(_, result)| result.is_ok()).map(|(name, _)| match *name == Compiled.name() {
        true => format!("{name} (programs that are built with --witnesses)"),
        false => (*name).to_owned(),
    });
    let working: Vec<String> = working.collect();
    if let (true, Some((_, Err(error)))) = (working.is_empty(), tried.into_iter().next()) {
        return Err(error);
    }
    Ok(working.join(", "))
}

fn tried(collector: &dyn Collector) -> Result<()> {
    match collector.name() == Compiled.name() {
        true => works_with_sleds(collector),
        false => works(collector),
    }
}

/// Whether a collector works with a program that has sleds, which is compiled now.
fn works_with_sleds(collector: &dyn Collector) -> Result<()> {
    let place = temporary::folder("trodden-doctor-")?;
    let (source, program) = (place.path().join("trial.c"), place.path().join("trial"));
    std::fs::write(&source, "int main(void) { return 0; }\n")?;
    let mut compile = Command::new(assets::own_folder()?.join("trodden"));
    compile.args(["cc", "--trodden-witnesses"]).arg(&source).arg("-o").arg(&program).current_dir(place.path());
    let output = compile.output().context("trodden cc cannot be run")?;
    succeeded(output, "trodden cc fails")?;
    let sled = first_sled(&Binary::read(&program)?).context("the program that was compiled has no sled")?;
    sees(collector, &program, sled)
}

/// Whether a collector works.
///
/// # Errors
/// It does not: why.
pub fn works(collector: &dyn Collector) -> Result<()> {
    let own = std::env::current_exe().context("this program cannot be found")?;
    ensure!(own.exists(), "the file of this program was replaced while it runs ({}): start it again", own.display());
    sees(collector, &own, Executable::read(&own)?.entry)
}

fn sees(collector: &dyn Collector, program: &Path, place: u64) -> Result<()> {
    let executable = Executable::read(program)?;
    let sites = [place];
    let block = place..place + 8;
    let mut command = Command::new(program);
    command.arg("--version");
    let mut start = ProgramStart::new(tracer::launcher(), &command);
    let nothing = || io::Result::Ok(Some(File::options().read(true).write(true).open("/dev/null")?.into()));
    start.streams = [nothing()?, nothing()?, nothing()?];
    let stop = AtomicBool::new(false);
    let target = RunTarget::Start(Box::new(start));
    let (sender, begun) = channel();
    let run = TraceRun {
        target,
        executable: &executable,
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
    ensure!(seen.0 > 0, "the collector `{}` saw nothing", collector.name());
    Ok(())
}
