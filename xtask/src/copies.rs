//! `cargo xtask copies`: programs of the corpus counted by copies, held against the programs that count all their paths.
//!
//! Each run is `trodden record --copies K --baseline`, which fails if the copies' profile is not the program's own to the last count. What the slowest copy
//! is hit is computed from that profile.
//!
//! On a Slurm cluster (`--engine slurm`) one is started for it (`xtask/slurm.sh`), and with `--lose-node` a node of it is lost while copies run there.

use crate::bench::variant::Variant;
use crate::corpus::{Corpus, Input};
use crate::demo::build_trodden;
use crate::packages::{self, Purpose};
use crate::steps;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Programs whose runs are the same each time.
const DEFAULT: &[&str] = &["gzip", "bzip2", "lua", "sqlite", "minisat", "mawk"];

/// `cargo xtask copies`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask copies                                                    six programs, 2, 4 and 8 copies
  cargo xtask copies lua --strategy p3,weighted
  cargo xtask copies lua bzip2 --input ref --engine slurm --lose-node   on a throw-away cluster")]
pub struct Options {
    /// Programs of the corpus.
    programs: Vec<String>,
    /// Which run.
    #[arg(long, value_enum, default_value_t = Input::Train)]
    input: Input,
    /// Numbers of copies.
    #[arg(long, value_name = "K", default_value = "2,4,8", value_delimiter = ',')]
    copies: Vec<u32>,
    /// How to divide; strategies of `trodden plan`.
    #[arg(long, value_name = "STRATEGY", default_value = "weighted", value_delimiter = ',')]
    strategy: Vec<String>,
    /// Who runs the copies.
    #[arg(long, value_enum, default_value_t = Engine::Local)]
    engine: Engine,
    /// With --engine slurm: lose a node while copies run there.
    #[arg(long)]
    lose_node: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// Processes of this machine.
    Local,
    /// A Slurm cluster of three nodes on this machine.
    Slurm,
}

/// Runs copies, and prints what they cost.
///
/// # Errors
/// A tool is missing or failed, or counts differ.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.engine == Engine::Slurm || !options.lose_node, "only --engine slurm has nodes to lose");
    packages::ensure(Purpose::Corpus)?;
    if options.engine == Engine::Slurm {
        packages::ensure_packages(&["slurmctld", "slurmd", "slurm-client", "munge"].map(str::to_owned))?;
    }
    let trodden = build_trodden()?.join("trodden");
    let corpus = Corpus::own();
    let named = if options.programs.is_empty() { DEFAULT.iter().map(|p| (*p).to_owned()).collect() } else { options.programs.clone() };
    let programs = corpus.programs(&named)?;
    corpus.ensure_packages(&programs)?;
    println!(
        "hits of the slowest copy, in per cent of one program that counts all; wall time of the slowest copy, and of that program, over the plain program's"
    );
    println!(
        "{:<12} {:<9} {:>2} {:>7} {:>7} {:>9} {:>9} {:>10}",
        "program", "strategy", "k", "hits", "labels", "at least", "slowest", "sequential"
    );
    let mut sums: BTreeMap<(String, u32), (f64, f64, u32)> = BTreeMap::new();
    for program in &programs {
        let subject = Subject::prepare(&corpus, program, &trodden, options)?;
        for &copies in &options.copies {
            for strategy in &options.strategy {
                let row = subject.row(copies, strategy, options)?;
                let sum = sums.entry((strategy.clone(), copies)).or_default();
                *sum = (sum.0 + row.0, sum.1 + row.1, sum.2 + 1);
            }
        }
    }
    for ((strategy, copies), (hits, labels, runs)) in sums {
        let mean = |sum: f64| sum / f64::from(runs);
        println!("{:<12} {strategy:<9} {copies:>2} {:>7.1} {:>7.1}", "mean", mean(hits), mean(labels));
    }
    Ok(())
}

/// A program with the profile of its run.
struct Subject<'a> {
    corpus: &'a Corpus,
    name: &'a str,
    trodden: &'a Path,
    folder: PathBuf,
    /// Checksum of what it prints.
    printed: String,
}

impl<'a> Subject<'a> {
    fn prepare(corpus: &'a Corpus, name: &'a str, trodden: &'a Path, options: &Options) -> Result<Subject<'a>> {
        corpus.fetch(name)?;
        corpus.inputs(name)?;
        corpus.build_once(name, &Variant::trodden())?;
        let folder = std::path::absolute(corpus.folder().join("copies").join(name))?;
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut subject = Subject { corpus, name, trodden, folder, printed: String::new() };
        let words = format!("-o {}", subject.profile().display());
        subject.printed = subject.record(&words, options)?;
        Ok(subject)
    }

    fn profile(&self) -> PathBuf {
        self.folder.join("all.trodden")
    }

    fn record(&self, words: &str, options: &Options) -> Result<String> {
        let runner = format!("{} record --no-store {words} --", self.trodden.display());
        self.corpus.run(self.name, &Variant::trodden(), options.input, &runner)
    }

    /// Runs copies and prints a row of the table; gives hits and labels of the slowest, in per cent.
    fn row(&self, copies: u32, strategy: &str, options: &Options) -> Result<(f64, f64)> {
        let costs = self.folder.join(format!("{strategy}-{copies}.json"));
        let mut words = format!("-o {} --copies {copies} --strategy {strategy}", self.folder.join("copies.trodden").display());
        words += &format!(" --weights {} --costs {} --baseline", self.profile().display(), costs.display());
        let printed = match options.engine {
            Engine::Local => self.record(&words, options)?,
            Engine::Slurm => self.on_cluster(&words, options)?,
        };
        if printed != self.printed {
            bail!("{}: copies print something else than the program", self.name);
        }
        let text = std::fs::read_to_string(&costs).with_context(|| format!("cannot read {}", costs.display()))?;
        let costs: Value = serde_json::from_str(&text)?;
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or(f64::NAN);
        let each = || costs["copies"].as_array().into_iter().flatten();
        let most = |name: &str| each().map(|c| number(c, name)).fold(0.0, f64::max);
        let all = number(&costs, "sequential_hits");
        let base = &costs["baseline"];
        let (plain, sequential) = (number(base, "plain_ns"), number(base, "sequential_ns"));
        let over = |ns: f64| 100.0 * (ns / plain - 1.0);
        let labels = self.sequential_labels(copies)?;
        let (hits, label_hits) = (100.0 * most("hits") / all, 100.0 * most("label_hits") / labels);
        println!(
            "{:<12} {strategy:<9} {copies:>2} {hits:>7.1} {label_hits:>7.1} {:>9.1} {:>8.1}% {:>9.1}%{}",
            self.name,
            100.0 * number(&costs, "proven_hits") / all,
            over(most("wall_ns")),
            over(sequential),
            if each().any(|c| number(c, "attempts") > 1.0) { "  (copies ran again)" } else { "" }
        );
        Ok((hits, label_hits))
    }

    /// Labels that sequential Ball-Larus executes.
    fn sequential_labels(&self, copies: u32) -> Result<f64> {
        let program = self.corpus.program(self.name, &Variant::trodden());
        let mut plan = Command::new(self.trodden);
        plan.arg("plan").arg(program).args(["-k", &copies.to_string(), "--strategy", "sbl", "--hits", "labels", "--json", "--profile"]);
        let plans: Value = serde_json::from_str(&steps::output(plan.arg(self.profile()))?)?;
        plans["plans"][0]["slowest"].as_f64().context("the plan has no hits")
    }

    fn on_cluster(&self, words: &str, options: &Options) -> Result<String> {
        let work = self.folder.join("work");
        if work.exists() {
            std::fs::remove_dir_all(&work).with_context(|| format!("cannot empty {}", work.display()))?;
        }
        let cluster = Cluster::start(&self.folder.join("slurm"))?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let loser = options.lose_node.then(|| scope.spawn(|| cluster.lose_node(&over)));
            let words = format!("{words} --engine slurm --work {}", work.display());
            let runner =
                format!("env SLURM_CONF={} {} record --no-store {words} --", cluster.configuration().display(), self.trodden.display());
            let printed = self.corpus.run(self.name, &Variant::trodden(), options.input, &runner);
            over.store(true, Ordering::Relaxed);
            let lost = loser.map(|l| l.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).transpose()?;
            match (printed, lost) {
                (Ok(_), Some(None)) => bail!("{}: the copies were done before a node could be lost: take --input ref", self.name),
                (printed, lost) => {
                    lost.flatten().iter().for_each(|told| eprintln!("{told}"));
                    printed
                }
            }
        })
    }
}

/// A throw-away cluster, stopped when this goes out of scope.
struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    fn start(folder: &Path) -> Result<Cluster> {
        let cluster = Cluster { folder: folder.to_owned() };
        steps::run(&mut cluster.script("start"))?;
        Ok(cluster)
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("slurm.conf")
    }

    fn script(&self, word: &str) -> Command {
        let mut command = Command::new("bash");
        command.arg(steps::root().join("xtask/slurm.sh")).arg(word).env("SLURM_FOLDER", &self.folder);
        command
    }

    /// Waits until something runs on the first node, and loses it; gives what happened, or nothing if all was over first.
    fn lose_node(&self, over: &AtomicBool) -> Result<Option<String>> {
        while !over.load(Ordering::Relaxed) {
            let mut queue = Command::new("squeue");
            queue.args(["-h", "-r", "-w", "n1", "-t", "R", "-o", "%i"]).env("SLURM_CONF", self.configuration());
            if steps::output(&mut queue).is_ok_and(|jobs| !jobs.trim().is_empty()) {
                return steps::output(self.script("kill-node").arg("n1")).map(|told| Some(told.trim().to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(None)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.script("stop").status();
    }
}
