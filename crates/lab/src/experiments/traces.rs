//! `trodden-lab experiment traces`: the cost of collecting the complete trace of an unmodified program, by number of runs, strategy and
//! weights, compared in one session with the program alone and with other tools.
//!
//! Each run is assigned to a separate machine, and the slowest machine determines the collection time. On this machine, the runs are
//! executed one after the other (`--jobs 1`), so that they do not slow each other down.

use anyhow::{Context, Result, ensure};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trodden_corpus::steps;

#[derive(Debug, Args)]
pub struct TracesOptions {
    /// `trodden` program to use instead of building one.
    #[arg(long, value_name = "FILE")]
    trodden: Option<PathBuf>,
    /// Size of the programs' input, in bytes.
    #[arg(long, default_value_t = 20_000)]
    bytes: usize,
}

/// Debian programs, with the arguments that precede the input.
const MEASURED_PROGRAMS: [(&str, &[&str]); 2] = [("/usr/bin/gzip", &["-c"]), ("/usr/bin/sed", &["-e", "s/a\\(.\\)/\\1b/g"])];
const MEASURED_STRATEGIES: [&str; 4] = ["fine", "function", "grouped", "weighted"];
const RUN_COUNTS: [u32; 3] = [1, 2, 4];
const PLAIN_RUNS: usize = 7;

#[derive(Deserialize)]
struct TraceReport {
    runs: Vec<TraceRunReport>,
}

#[derive(Deserialize)]
struct TraceRunReport {
    hits: u64,
    seconds: f64,
}

#[derive(Deserialize)]
struct TracePlan {
    predicted: Vec<f64>,
    bound: f64,
}

struct TraceBench<'a> {
    trodden: PathBuf,
    folder: &'a Path,
    program: Vec<String>,
}

pub fn run(options: &TracesOptions) -> Result<()> {
    let trodden = match &options.trodden {
        Some(file) => fs::canonicalize(file).with_context(|| format!("cannot find {}", file.display()))?,
        None => steps::build_trodden()?,
    };
    let folder = steps::target_folder().join("traces");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("input"), generate_input(options.bytes))?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("Input: {} bytes of text; initial load of the machine: {}", options.bytes, load.split(' ').next().unwrap_or("?"));
    for (program, arguments) in MEASURED_PROGRAMS {
        let arguments = [program].iter().chain(arguments).chain(&["input"]).map(|w| (*w).to_owned()).collect();
        TraceBench { trodden: trodden.clone(), folder: &folder, program: arguments }.run()?;
    }
    Ok(())
}

/// Generates a reproducible text of pseudo-random words.
fn generate_input(bytes: usize) -> String {
    const WORDS: [&str; 8] = ["path", "block", "a", "witness", "branch", "and", "trace", "an edge"];
    let (mut state, mut text) = (1u64, String::new());
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(state >> 61) as usize]);
        text.push(if (state >> 40) % 9 == 0 { '\n' } else { ' ' });
    }
    text
}

impl TraceBench<'_> {
    fn run(&self) -> Result<()> {
        println!("\n## `{}`\n", self.program.join(" "));
        let plain = self.measure_untraced_run()?;
        let blocks = self.record_whole_trace("trampolines", &["--runs", "1"])?;
        println!("{} blocks; the program alone: {:.2} ms.\n", blocks.0, plain * 1e3);
        println!("| runs | strategy | static: predicted | counted | time, ms | from a trace: predicted | counted | time, ms | bound |");
        println!("|---|---|---|---|---|---|---|---|---|");
        for runs in RUN_COUNTS {
            for strategy in MEASURED_STRATEGIES {
                let [fixed, measured] = ["static", "one.trace"].map(|weights| self.measure_strategy(runs, strategy, weights));
                let ((p1, c1, t1, _), (p2, c2, t2, bound)) = (fixed?, measured?);
                let (t1, t2) = (t1 * 1e3, t2 * 1e3);
                println!("| {runs} | `{strategy}` | {p1:.0} | {c1} | {t1:.0} | {p2:.0} | {c2} | {t2:.0} | {bound:.0} |");
            }
        }
        println!("\n| method | time, ms | relative to the program alone | processor time per block, ns |\n|---|---|---|---|");
        let alone = run_timed(&mut self.command())?.processor;
        let line = |method: &str, times: CommandTimes| {
            let (seconds, extra) = (times.elapsed.as_secs_f64(), times.processor.saturating_sub(alone));
            let each = extra.as_nanos() as f64 / blocks.0 as f64;
            println!("| {method} | {:.1} | {:.1} | {each:.0} |", seconds * 1e3, seconds / plain);
        };
        for collector in ["trampolines", "ptrace", "single-step"] {
            let mut record = self.record_command(collector, "");
            record.args(["--output", "other.trace", "--"]).args(&self.program).current_dir(self.folder);
            let times = run_timed(record.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))?;
            line(&format!("`{collector}`, until the trace can be searched"), times);
        }
        let four = self.measure_plan("ptrace", 4, "weighted", "one.trace")?;
        println!("| `ptrace`, the slowest of four runs | {:.1} | {:.1} | |", four.2 * 1e3, four.2 / plain);
        self.measure_other_tools(&line)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).current_dir(self.folder).stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        command
    }

    /// Returns the median time of the program alone, in seconds.
    fn measure_untraced_run(&self) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..PLAIN_RUNS {
            times.push(run_timed(&mut self.command())?.elapsed.as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok(times[PLAIN_RUNS / 2])
    }

    fn record(&self, collector: &str, arguments: &[&str], trace: &str) -> Result<TraceReport> {
        self.record_with(collector, "", arguments, trace)
    }

    fn record_with(&self, collector: &str, choices: &str, arguments: &[&str], trace: &str) -> Result<TraceReport> {
        let mut command = self.record_command(collector, choices);
        let jobs: &[&str] = if arguments == ["--runs", "1"] { &[] } else { &["--jobs", "1"] };
        command.args(jobs).args(["--output", trace]).args(arguments).arg("--");
        command.args(&self.program).current_dir(self.folder).stdin(Stdio::null());
        steps::output(&mut command)?;
        let mut show = Command::new(&self.trodden);
        show.args(["report", "--json", trace]).current_dir(self.folder);
        serde_json::from_str(&steps::output(&mut show)?).context("`trodden report --json` printed unexpected JSON")
    }

    /// Creates the recording command. Two of the collectors can be selected only through the laboratory's environment variable.
    fn record_command(&self, collector: &str, choices: &str) -> Command {
        let mut command = Command::new(&self.trodden);
        command.args(["trace", "record"]);
        match collector {
            "hardware" | "uprobes" => command.env(steps::LABORATORY_VARIABLE, format!("{choices} --collector {collector}")),
            _ => command.env(steps::LABORATORY_VARIABLE, choices).args(["--collector", collector]),
        };
        command
    }

    /// Records the complete trace in one run, and returns the number of hits (executions of watched blocks) and the time in seconds. The
    /// trace by `trampolines` later provides weights.
    fn record_whole_trace(&self, collector: &str, arguments: &[&str]) -> Result<(u64, f64)> {
        let trace = if collector == "trampolines" { "one.trace" } else { "other.trace" };
        let shown = self.record(collector, arguments, trace)?;
        let run = shown.runs.first().context("the output of `trodden report --json` contains no runs")?;
        Ok((run.hits, run.seconds))
    }

    fn measure_strategy(&self, runs: u32, strategy: &str, weights: &str) -> Result<(f64, u64, f64, f64)> {
        self.measure_plan("trampolines", runs, strategy, weights)
    }

    /// Returns the predicted hits, the counted hits, the seconds, and the lower bound of the hits. The first three are maxima over all
    /// machines.
    fn measure_plan(&self, collector: &str, runs: u32, strategy: &str, weights: &str) -> Result<(f64, u64, f64, f64)> {
        // A single run watches all blocks, which needs no division. To get a plan for it nevertheless, two runs on one machine are planned.
        let (number, machines) = (runs.max(2).to_string(), runs.to_string());
        let choices = format!("--machines {machines} --witness-strategy {strategy} --witness-weights {weights}");
        let arguments = ["--runs", &number];
        let mut plan = self.record_command(collector, &format!("{choices} --plan=json"));
        plan.args(arguments).arg("--").args(&self.program);
        let planned: TracePlan = serde_json::from_str(&steps::output(plan.current_dir(self.folder).stdin(Stdio::null()))?)?;
        let shown = self.record_with(collector, &choices, &arguments, "other.trace")?;
        let (hits, seconds) = match runs {
            1 => (shown.runs.iter().map(|r| r.hits).sum(), shown.runs.iter().map(|r| r.seconds).sum()),
            _ => (
                shown.runs.iter().map(|r| r.hits).max().unwrap_or(0),
                shown.runs.iter().map(|r| r.seconds).max_by(f64::total_cmp).unwrap_or(0.0),
            ),
        };
        let predicted = match runs {
            1 => planned.predicted.iter().sum(),
            _ => planned.predicted.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0),
        };
        Ok((predicted, hits, seconds, planned.bound))
    }

    /// Measures other tools that see every executed block or instruction of an unmodified program.
    fn measure_other_tools(&self, line: &dyn Fn(&str, CommandTimes)) -> Result<()> {
        for (name, words) in OTHER_TOOLS {
            if !steps::is_on_search_path(words[0]) {
                println!("| {name} | {} is not installed | | |", words[0]);
                continue;
            }
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).args(&self.program).current_dir(self.folder);
            // gdb cannot record AVX instructions and rseq(2), which the C library uses by default.
            command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0:glibc.cpu.hwcaps=-AVX2_Usable,-AVX2,-AVX512F,-AVX512VL,-XSAVEC,-XSAVE");
            let log = self.folder.join("other.log");
            let messages = fs::File::create(&log)?;
            let times = run_timed(command.stdin(Stdio::null()).stdout(messages.try_clone()?).stderr(messages))?;
            match String::from_utf8_lossy(&fs::read(&log)?).lines().find(|line| line.contains("doesn't support")) {
                Some(reason) => println!("| {name} | not possible: {reason} | | |"),
                None => line(name, times),
            }
        }
        Ok(())
    }
}

/// Tools to compare with, each with the words that precede the traced program. None writes its result to a disk, and gdb keeps only the
/// last 200,000 instructions, as it does by default.
const OTHER_TOOLS: [(&str, &[&str]); 3] = [
    ("callgrind (counts only)", &["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]),
    ("QEMU, `-d exec,nochain`", &["qemu-x86_64", "-d", "exec,nochain", "-D", "/dev/null"]),
    (
        "gdb, `record full`",
        &[
            "gdb",
            "-nx",
            "-batch",
            "-ex",
            "set pagination off",
            "-ex",
            "set confirm off",
            "-ex",
            "set record full stop-at-limit off",
            "-ex",
            "starti",
            "-ex",
            "record full",
            "-ex",
            "continue",
            "--args",
        ],
    ),
];

/// What a command took.
#[derive(Clone, Copy)]
struct CommandTimes {
    elapsed: Duration,
    /// Processor time of the command and of its children.
    processor: Duration,
}

/// Returns the processor time of all children of this process that have ended.
fn processor_time_of_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the processor time of child processes")?;
    let microseconds = |time: TimeVal| time.num_microseconds() as u64;
    Ok(Duration::from_micros(microseconds(usage.user_time()) + microseconds(usage.system_time())))
}

/// Runs a command to its end.
fn run_timed(command: &mut Command) -> Result<CommandTimes> {
    let (start, before) = (Instant::now(), processor_time_of_children()?);
    let status = command.status().with_context(|| format!("cannot run the command {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(CommandTimes { elapsed: start.elapsed(), processor: processor_time_of_children()? - before })
}
