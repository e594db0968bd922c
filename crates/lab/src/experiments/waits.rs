//! `trodden-lab experiment waits`: what recording and analysis of waits cost, beside the Python reader of OTF2 in the same run.
//!
//! | row | how |
//! |---|---|
//! | a call of MPI, a free lock | a loop of them, alone and recorded; processor time of the loop |
//! | analysis | `crates/waits/examples/throughput.rs`: calls in memory to classes |
//! | own recording | a ring of two ranks, recorded, then `trodden report` |
//! | OTF2 | an archive that Python's `otf2` wrote, then `trodden report` |
//! | Python's `otf2` | the same archive, its events only counted |
//!
//! Programs are in `experiments/waits/`. Processor time is of the whole command, its children included.

use crate::experiments::bench::usage::Usage;
use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;

const CALLS: &str = include_str!("waits/calls.c");
const RING: &str = include_str!("waits/ring.c");
const ARCHIVE: &str = include_str!("waits/archive.py");
/// Calls of the loops whose cost is measured.
const LOOP: u32 = 2_000_000;
/// Ranks of the archive.
const RANKS: u64 = 4;

/// `trodden-lab experiment waits`
#[derive(Debug, Args)]
pub struct WaitsOptions {
    /// Iterations of the ring, and of each rank of the archive: eight events each.
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    iterations: u64,
    /// Times each is measured; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: usize,
}

struct Bench<'a> {
    options: &'a WaitsOptions,
    folder: PathBuf,
    trodden: PathBuf,
}

/// Measures, and prints a table.
///
/// # Errors
/// A tool is missing or failed.
pub fn run(options: &WaitsOptions) -> Result<()> {
    packages::ensure(PackagePurpose::Waits)?;
    ensure!(options.repeat > 0 && options.iterations > 0, "--iterations and --repeat must be at least 1");
    let mut build = steps::cargo();
    build.args(["build", "--release", "--package", "trodden", "--package", "trodden-waits-recorder", "--package", "trodden-waits"]);
    steps::run(build.args(["--example", "throughput", "--bins", "--lib"]))?;
    let folder = steps::target().join("bench/waits");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let bench = Bench { options, folder, trodden: steps::target().join("release/trodden") };
    bench.write("calls.c", CALLS)?;
    bench.write("ring.c", RING)?;
    bench.write("archive.py", ARCHIVE)?;
    let mut rows = bench.calls()?;
    rows.extend(bench.analysis()?);
    rows.extend(bench.readers()?);
    println!("| what | figure |\n|---|---|");
    rows.iter().for_each(|(what, figure)| println!("| {what} | {figure} |"));
    Ok(())
}

type Rows = Vec<(String, String)>;

impl Bench<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// A command in the bench's folder.
    fn command(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(&self.folder).args(arguments);
        command
    }

    fn recorded(&self, recording: &str, arguments: &[&str]) -> Result<Command> {
        // A recording is never replaced.
        let _ = std::fs::remove_dir_all(self.path(recording));
        let mut command = self.command(&self.trodden, &["waits", "record", "--output", recording, "--"]);
        command.args(arguments);
        Ok(command)
    }

    /// Costs of a call of MPI and of a free lock, as their loops print them, alone and recorded.
    fn calls(&self) -> Result<Rows> {
        steps::run(&mut self.command("mpicc", &["-O2", "-pthread", "-o", "calls", "calls.c"]))?;
        let count = LOOP.to_string();
        let mut rows = Rows::new();
        for (kind, what) in [("mpi", "a call of MPI (`MPI_Barrier` of `MPI_COMM_SELF`)"), ("lock", "taking and releasing a free lock")] {
            let alone = self.median(|| number(&steps::output(&mut self.command("./calls", &[kind, &count]))?))?;
            let recorded = self.median(|| number(&steps::output(&mut self.recorded("calls.waits", &["./calls", kind, &count])?)?))?;
            rows.push((what.to_owned(), format!("{:.1} ns more than the {alone:.1} ns it takes", recorded - alone)));
        }
        Ok(rows)
    }

    fn analysis(&self) -> Result<Rows> {
        let text = steps::output(&mut self.command(steps::target().join("release/examples/throughput"), &[]))?;
        Ok(text.lines().map(|line| ("analysis, from calls in memory to classes".to_owned(), line.to_owned())).collect())
    }

    fn readers(&self) -> Result<Rows> {
        let iterations = self.options.iterations.to_string();
        steps::run(&mut self.command("mpicc", &["-O2", "-o", "ring", "ring.c"]))?;
        let mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "./ring", &iterations];
        steps::run(&mut self.recorded("ring.waits", &mpirun)?)?;
        let python = self.python()?;
        let _ = std::fs::remove_dir_all(self.path("archive"));
        let ranks = RANKS.to_string();
        steps::run(&mut self.command(&python, &["archive.py", "write", "archive", &ranks, &iterations]))?;
        let own = self.used(&mut self.command(&self.trodden, &["report", "ring.waits", "--json"]))?;
        let otf2 = self.used(&mut self.command(&self.trodden, &["report", "archive/traces.otf2", "--json"]))?;
        let theirs = self.used(&mut self.command(&python, &["archive.py", "count", "archive/traces.otf2"]))?;
        let counted = steps::output(&mut self.command(&python, &["archive.py", "count", "archive/traces.otf2"]))?;
        let events = number(&counted)?;
        // An enter and an exit of each call; the archive has records of messages beside them.
        let own_events = self.options.iterations as f64 * 2.0 * 4.0;
        let (own, otf2, theirs) = (own_events / own, events / otf2, events / theirs);
        let row = |what: &str, rate: f64| {
            let figure = format!("{:.2} M events per second of processor time, {:.2} times Python's", rate / 1e6, rate / theirs);
            (what.to_owned(), figure)
        };
        Ok(vec![
            row(&format!("from an own recording of {own_events} events to the report"), own),
            row(&format!("from OTF2, {events} events, to the report, `otf2-print` included"), otf2),
            row("Python's `otf2`, the same archive: reading only", theirs),
        ])
    }

    /// Python with the reader of OTF2, in an environment of the bench's own.
    fn python(&self) -> Result<PathBuf> {
        let python = self.path("python/bin/python");
        if !self.path("python/lib").exists() || steps::output(&mut self.command(&python, &["-c", "import otf2"])).is_err() {
            steps::run(&mut self.command("python3", &["-m", "venv", "python"]))?;
            steps::run(&mut self.command(&python, &["-m", "pip", "--quiet", "install", "otf2"]))?;
        }
        Ok(python)
    }

    /// Processor time of a command and its children, s: the median.
    fn used(&self, command: &mut Command) -> Result<f64> {
        let own = std::env::current_exe().context("where is this program?")?;
        self.median(|| {
            let log = self.path("used.json");
            let _ = std::fs::remove_file(&log);
            let mut measure = Command::new(&own);
            measure.arg("measure").arg(&log).arg(command.get_program()).args(command.get_args()).current_dir(&self.folder);
            steps::output(&mut measure)?;
            let text = std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
            let used: Usage = serde_json::from_str(text.lines().next_back().unwrap_or_default())?;
            Ok(used.user_s + used.system_s)
        })
    }

    fn median(&self, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
        let mut all = (0..self.options.repeat).map(|_| measure()).collect::<Result<Vec<f64>>>()?;
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    }
}

/// The number that is the last line of a text.
fn number(text: &str) -> Result<f64> {
    let line = text.lines().next_back().unwrap_or_default().trim();
    line.parse().map_err(|_| anyhow!("`{line}` is no number"))
}
