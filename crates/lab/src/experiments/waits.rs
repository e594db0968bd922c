//! `trodden-lab experiment waits`: the cost of recording and analysing waits, compared with the Python reader of OTF2.
//!
//! Measures the overhead of recording per MPI call and per lock operation (`calls.c`), the analysis of calls in memory
//! (`crates/waits/examples/throughput.rs`), the report of a recorded ring of two ranks (`ring.c`) and of an OTF2 archive (`archive.py`),
//! and Python's `otf2` counting the events of the same archive. Processor times include a command's children.

use crate::experiments::bench::usage::ProcessUsage;
use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;

const CALLS_SOURCE: &str = include_str!("waits/calls.c");
const RING_SOURCE: &str = include_str!("waits/ring.c");
const ARCHIVE_SCRIPT: &str = include_str!("waits/archive.py");
const LOOP_CALLS: u32 = 2_000_000;
const ARCHIVE_RANKS: u64 = 4;

#[derive(Debug, Args)]
pub struct WaitsOptions {
    /// Iterations of the ring and of each rank of the archive; each has eight events.
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    iterations: u64,
    /// Number of measurements of each figure; the median is reported.
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: usize,
}

struct WaitsBench<'a> {
    options: &'a WaitsOptions,
    folder: PathBuf,
    trodden: PathBuf,
}

pub fn run(options: &WaitsOptions) -> Result<()> {
    packages::ensure_packages_for(PackagePurpose::Waits)?;
    ensure!(options.repeat > 0 && options.iterations > 0, "--iterations and --repeat must be at least 1");
    let mut build = steps::cargo_command();
    build.args(["build", "--release", "--package", "trodden", "--package", "trodden-waits-recorder", "--package", "trodden-waits"]);
    steps::run(build.args(["--example", "throughput", "--bins", "--lib"]))?;
    let folder = steps::target_folder().join("bench/waits");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let bench = WaitsBench { options, folder, trodden: steps::target_folder().join("release/trodden") };
    bench.write("calls.c", CALLS_SOURCE)?;
    bench.write("ring.c", RING_SOURCE)?;
    bench.write("archive.py", ARCHIVE_SCRIPT)?;
    let mut rows = bench.measure_calls()?;
    rows.extend(bench.measure_analysis()?);
    rows.extend(bench.measure_readers()?);
    println!("| what | figure |\n|---|---|");
    rows.iter().for_each(|(what, figure)| println!("| {what} | {figure} |"));
    Ok(())
}

type FigureRows = Vec<(String, String)>;

impl WaitsBench<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn command(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(&self.folder).args(arguments);
        command
    }

    fn record_command(&self, recording: &str, arguments: &[&str]) -> Result<Command> {
        // Removed first, because `waits record` does not overwrite a recording.
        let _ = std::fs::remove_dir_all(self.path(recording));
        let mut command = self.command(&self.trodden, &["waits", "record", "--output", recording, "--"]);
        command.args(arguments);
        Ok(command)
    }

    /// Measures an MPI call and the locking of a free lock, each with and without the recorder, in loops that print the time per call.
    fn measure_calls(&self) -> Result<FigureRows> {
        steps::run(&mut self.command("mpicc", &["-O2", "-pthread", "-o", "calls", "calls.c"]))?;
        let count = LOOP_CALLS.to_string();
        let mut rows = FigureRows::new();
        for (kind, what) in [("mpi", "an MPI call (`MPI_Barrier` on `MPI_COMM_SELF`)"), ("lock", "taking and releasing a free lock")] {
            let alone = self.measure_median(|| parse_number(&steps::output(&mut self.command("./calls", &[kind, &count]))?))?;
            let recorded = self
                .measure_median(|| parse_number(&steps::output(&mut self.record_command("calls.waits", &["./calls", kind, &count])?)?))?;
            rows.push((what.to_owned(), format!("{:.1} ns in addition to {alone:.1} ns", recorded - alone)));
        }
        Ok(rows)
    }

    fn measure_analysis(&self) -> Result<FigureRows> {
        let text = steps::output(&mut self.command(steps::target_folder().join("release/examples/throughput"), &[]))?;
        Ok(text.lines().map(|line| ("analysis, from calls in memory to classes".to_owned(), line.to_owned())).collect())
    }

    fn measure_readers(&self) -> Result<FigureRows> {
        let iterations = self.options.iterations.to_string();
        steps::run(&mut self.command("mpicc", &["-O2", "-o", "ring", "ring.c"]))?;
        let mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "./ring", &iterations];
        steps::run(&mut self.record_command("ring.waits", &mpirun)?)?;
        let python = self.find_python()?;
        let _ = std::fs::remove_dir_all(self.path("archive"));
        let ranks = ARCHIVE_RANKS.to_string();
        steps::run(&mut self.command(&python, &["archive.py", "write", "archive", &ranks, &iterations]))?;
        let own = self.measure_processor_seconds(&mut self.command(&self.trodden, &["report", "ring.waits", "--json"]))?;
        let otf2 = self.measure_processor_seconds(&mut self.command(&self.trodden, &["report", "archive/traces.otf2", "--json"]))?;
        let theirs = self.measure_processor_seconds(&mut self.command(&python, &["archive.py", "count", "archive/traces.otf2"]))?;
        let counted = steps::output(&mut self.command(&python, &["archive.py", "count", "archive/traces.otf2"]))?;
        let events = parse_number(&counted)?;
        // Each call counts as two events, its entry and its exit. The archive also contains message records, which are counted.
        let own_events = self.options.iterations as f64 * 2.0 * 4.0;
        let (own, otf2, theirs) = (own_events / own, events / otf2, events / theirs);
        let row = |what: &str, rate: f64| {
            let figure = format!("{:.2} M events per second of processor time, {:.2} times Python's", rate / 1e6, rate / theirs);
            (what.to_owned(), figure)
        };
        Ok(vec![
            row(&format!("report of trodden's recording of {own_events} events"), own),
            row(&format!("report of an OTF2 archive of {events} events, including `otf2-print`"), otf2),
            row("Python's `otf2`, reading the same archive", theirs),
        ])
    }

    /// Returns a Python interpreter with the `otf2` package, in a virtual environment.
    fn find_python(&self) -> Result<PathBuf> {
        let python = self.path("python/bin/python");
        if !self.path("python/lib").exists() || steps::output(&mut self.command(&python, &["-c", "import otf2"])).is_err() {
            steps::run(&mut self.command("python3", &["-m", "venv", "python"]))?;
            steps::run(&mut self.command(&python, &["-m", "pip", "--quiet", "install", "otf2"]))?;
        }
        Ok(python)
    }

    /// Returns the median processor time of a command and its children, in seconds.
    fn measure_processor_seconds(&self, command: &mut Command) -> Result<f64> {
        let own = std::env::current_exe().context("cannot find the path of this program (is /proc mounted?)")?;
        self.measure_median(|| {
            let log = self.path("used.json");
            let _ = std::fs::remove_file(&log);
            let mut measure = Command::new(&own);
            measure.arg("measure").arg(&log).arg(command.get_program()).args(command.get_args()).current_dir(&self.folder);
            steps::output(&mut measure)?;
            let text = std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
            let usage: ProcessUsage = serde_json::from_str(text.lines().next_back().unwrap_or_default())?;
            Ok(usage.user_s + usage.system_s)
        })
    }

    fn measure_median(&self, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
        let mut all = (0..self.options.repeat).map(|_| measure()).collect::<Result<Vec<f64>>>()?;
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    }
}

/// Parses the last line of a text as a number.
fn parse_number(text: &str) -> Result<f64> {
    let line = text.lines().next_back().unwrap_or_default().trim();
    line.parse().map_err(|_| anyhow!("`{line}` is not a number"))
}
