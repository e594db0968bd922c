//! Measures time and memory of a run. The corpus's build recipes prefix each program with `trodden-lab measure FILE`, which appends a line
//! per process to the file.

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;
use trodden_corpus::CorpusVariant;
use trodden_corpus::steps;
use trodden_corpus::{Corpus, CorpusInput};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUsage {
    pub wall_s: f64,
    pub user_s: f64,
    pub system_s: f64,
    pub memory_kb: u64,
}

impl ProcessUsage {
    fn combine(self, other: ProcessUsage) -> ProcessUsage {
        ProcessUsage {
            wall_s: self.wall_s + other.wall_s,
            user_s: self.user_s + other.user_s,
            system_s: self.system_s + other.system_s,
            memory_kb: self.memory_kb.max(other.memory_kb),
        }
    }
}

/// Runs a corpus program. Returns the usage of its processes, and the checksum of its output.
pub fn measure_run(corpus: &Corpus, program: &str, variant: &CorpusVariant, input: CorpusInput) -> Result<(ProcessUsage, String)> {
    run_measured(|runner| match variant.simulator() {
        None => corpus.run(program, variant, input, runner),
        // Stripped, because Valgrind 3.19 cannot read clang's debug information.
        Some(under) => corpus.run_stripped(program, variant, input, &format!("{runner} {under}")),
    })
}

/// Calls `run` with a command prefix that measures each process. Returns the usage of all processes, and the result of `run`.
pub fn run_measured<T>(run: impl FnOnce(&str) -> Result<T>) -> Result<(ProcessUsage, T)> {
    let file = steps::path_for_process("trodden-lab-usage", "jsonl");
    let _ = std::fs::remove_file(&file);
    let own = std::env::current_exe().context("cannot find the path of this program (is /proc mounted?)")?;
    let runner = format!("{} measure {}", own.display(), file.display());
    if runner.split_whitespace().count() != 3 {
        bail!("path {} contains a space. Set CARGO_TARGET_DIR to a folder without spaces in its path", steps::target_folder().display());
    }
    let sum = run(&runner)?;
    let lines = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let _ = std::fs::remove_file(&file);
    let mut total = ProcessUsage::default();
    for line in lines.lines() {
        total = total
            .combine(serde_json::from_str(line).with_context(|| format!("{} was not written by `trodden-lab measure`", file.display()))?);
    }
    Ok((total, sum))
}

/// Implements `trodden-lab measure FILE COMMAND`: runs a command, appends its usage to a file, and returns the command's exit status.
pub fn measure(file: &Path, command: &[OsString]) -> Result<ExitCode> {
    let started = Instant::now();
    let status = Command::new(&command[0]).args(&command[1..]).status().with_context(|| format!("cannot run {}", command[0].display()))?;
    let wall_s = started.elapsed().as_secs_f64();
    // The command is this process's only child, so the usage of all children is that of the command.
    let children = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the program's resource usage")?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let usage = ProcessUsage {
        wall_s,
        user_s: seconds(children.user_time()),
        system_s: seconds(children.system_time()),
        memory_kb: u64::try_from(children.max_rss()).unwrap_or_default(),
    };
    let line = serde_json::to_string(&usage)? + "\n";
    let mut out = OpenOptions::new().create(true).append(true).open(file).with_context(|| format!("cannot write {}", file.display()))?;
    out.write_all(line.as_bytes())?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_and_memory_is_the_maximum() {
        let one = ProcessUsage { wall_s: 1.0, user_s: 0.5, system_s: 0.25, memory_kb: 10 };
        let two = ProcessUsage { wall_s: 2.0, user_s: 1.5, system_s: 0.25, memory_kb: 8 };
        assert_eq!(one.combine(two), ProcessUsage { wall_s: 3.0, user_s: 2.0, system_s: 0.5, memory_kb: 10 });
    }
}
