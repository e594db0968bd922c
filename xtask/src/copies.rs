//! `cargo xtask copies`: programs of the corpus counted by copies, held against the programs that count all their paths.
//!
//! Each run is `trodden record --copies K --baseline`, which fails if the copies' profile is not the program's own to the last count. What copies are hit they count
//! themselves, and so does one program that counts all; with `--times` they run once more without that, one after the other, for the time that they take.
//!
//! On a Slurm cluster (`--engine slurm`) one is started for it (`xtask/slurm.sh`), and with `--lose-node` a node of it is lost while copies run there.

use crate::bench::{self, variant::Variant};
use crate::corpus::{Corpus, Input};
use crate::demo::build_trodden;
use crate::packages::{self, Purpose};
use crate::steps;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Programs whose runs are the same each time.
const DEFAULT: &[&str] = &["gzip", "bzip2", "mawk", "minisat", "hmmer", "sqlite"];

/// Programs that print how long they took.
const PRINT_TIMES: &[&str] = &["minisat", "sqlite"];

/// `cargo xtask copies`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask copies                                                    six programs, 2, 4 and 8 copies
  cargo xtask copies mawk --strategy p3,weighted
  cargo xtask copies bzip2 --input ref --engine slurm --lose-node        on a throw-away cluster")]
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
    /// Measure the wall time of copies as well, one at a time.
    #[arg(long, conflicts_with = "lose_node")]
    times: bool,
    /// Write the result to this folder, as DATE.json and DATE.md.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
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
    let mut rows = Vec::new();
    println!("{}", columns(&HEADS));
    for program in &programs {
        let subject = Subject::prepare(&corpus, program, &trodden, options)?;
        for &copies in &options.copies {
            for strategy in &options.strategy {
                let row = subject.row(copies, strategy, options)?;
                println!("{}", columns(&row.cells()));
                rows.push(row);
            }
        }
    }
    let means = means(&rows, options);
    means.iter().for_each(|mean| println!("{}", columns(mean)));
    options.output.iter().try_for_each(|folder| write(folder, &rows, &means, options))
}

/// Names of the table's columns.
const HEADS: [&str; 8] = ["program", "strategy", "k", "hits", "labels", "at least", "slowest", "sequential"];

/// What they are.
const ABOUT: &str = "hits: of the slowest copy, in per cent of one program that counts all, both counted by the running programs; \
    labels: of them, edges with a label other than zero (what the paper counts); at least: no plan has fewer hits; \
    slowest, sequential: wall time of the slowest copy, and of one program that counts all, beyond the plain program's.";

fn columns(cells: &[impl AsRef<str>; 8]) -> String {
    let [program, strategy, rest @ ..] = cells.each_ref().map(AsRef::as_ref);
    rest.iter().fold(format!("{program:<12} {strategy:<9}"), |line, cell| format!("{line} {cell:>10}"))
}

/// One division of one program.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    strategy: String,
    copies: u32,
    /// Hits of the copy that has most: labels and counts, and labels alone; counted by the copies.
    hits: f64,
    label_hits: f64,
    /// The same of one program that counts all.
    sequential_hits: f64,
    sequential_label_hits: f64,
    /// No plan has fewer.
    proven_hits: f64,
    /// Copies that ran more than once.
    run_again: usize,
    times: Option<Times>,
}

/// Wall times, in nanoseconds.
#[derive(Debug, Serialize)]
struct Times {
    slowest_ns: f64,
    sequential_ns: f64,
    plain_ns: f64,
}

impl Row {
    /// Hits and labels in per cent of the sequential program's, the bound, and overheads.
    fn figures(&self) -> [Option<f64>; 5] {
        let over = |ns: fn(&Times) -> f64| self.times.as_ref().map(|t| 100.0 * (ns(t) / t.plain_ns - 1.0));
        [
            Some(100.0 * self.hits / self.sequential_hits),
            Some(100.0 * self.label_hits / self.sequential_label_hits),
            Some(100.0 * self.proven_hits / self.sequential_hits),
            over(|t| t.slowest_ns),
            over(|t| t.sequential_ns),
        ]
    }

    fn cells(&self) -> [String; 8] {
        table_row(&self.program, &self.strategy, self.copies, &self.figures())
    }
}

fn table_row(program: &str, strategy: &str, copies: u32, figures: &[Option<f64>; 5]) -> [String; 8] {
    let [hits, labels, bound, slowest, sequential] =
        figures.map(|figure| figure.filter(|f| f.is_finite()).map_or_else(String::new, |f| format!("{f:.1}")));
    [program.into(), strategy.into(), copies.to_string(), hits, labels, bound, slowest, sequential]
}

/// Averages over programs.
fn means(rows: &[Row], options: &Options) -> Vec<[String; 8]> {
    let mut out = Vec::new();
    for strategy in &options.strategy {
        for &copies in &options.copies {
            let of_it: Vec<_> = rows.iter().filter(|r| r.strategy == *strategy && r.copies == copies).map(Row::figures).collect();
            let mean = |at: usize| of_it.iter().map(|f| f[at]).sum::<Option<f64>>().map(|sum| sum / of_it.len() as f64);
            out.push(table_row("mean", strategy, copies, &[0, 1, 2, 3, 4].map(mean)));
        }
    }
    out
}

/// Writes the result as JSON and as a page.
fn write(folder: &Path, rows: &[Row], means: &[[String; 8]], options: &Options) -> Result<()> {
    let date = steps::output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
    let (commit, machine) = (bench::commit(), bench::machine());
    let stem = folder.join(&date);
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let store = |ending: &str, text: String| {
        let path = stem.with_extension(ending);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let json = serde_json::json!({
        "schema_version": 1, "date": date, "commit": commit, "machine": machine, "input": options.input.name(),
        "engine": format!("{:?}", options.engine).to_lowercase(), "lost_node": options.lose_node, "rows": rows,
    });
    store("json", serde_json::to_string_pretty(&json)? + "\n")?;
    let mut page = format!("# Copies, {date}\n\n{ABOUT}\nEvery merged profile was the program's own, to the last count.\n");
    writeln!(
        page,
        "Input {}; {}, {} cores, Linux {}; commit {commit}\n",
        options.input.name(),
        machine.processor,
        machine.cores,
        machine.kernel
    )?;
    writeln!(page, "| {} |\n|---|---|--:|--:|--:|--:|--:|--:|", HEADS.join(" | "))?;
    for cells in rows.iter().map(Row::cells).chain(means.iter().cloned()) {
        writeln!(page, "| {} |", cells.join(" | "))?;
    }
    store("md", page)
}

/// A program with the profile of its run.
struct Subject<'a> {
    corpus: &'a Corpus,
    name: &'a str,
    trodden: &'a Path,
    folder: PathBuf,
    /// Checksum of what it prints.
    printed: String,
    /// Hits of one program that counts all, counted by itself: all, and of labels.
    sequential: [f64; 2],
}

impl<'a> Subject<'a> {
    fn prepare(corpus: &'a Corpus, name: &'a str, trodden: &'a Path, options: &Options) -> Result<Subject<'a>> {
        corpus.fetch(name)?;
        corpus.inputs(name)?;
        corpus.build_once(name, &Variant::trodden())?;
        let folder = std::path::absolute(corpus.folder().join("copies").join(name))?;
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut subject = Subject { corpus, name, trodden, folder, printed: String::new(), sequential: [0.0; 2] };
        let words = format!("-o {}", subject.profile().display());
        subject.printed = subject.record(&words, options)?;
        let (words, costs) = subject.words(1, "sbl");
        subject.record(&format!("{words} --count-hits"), options)?;
        subject.sequential = most_counted(&read_json(&costs)?);
        Ok(subject)
    }

    fn profile(&self) -> PathBuf {
        self.folder.join("all.trodden")
    }

    fn record(&self, words: &str, options: &Options) -> Result<String> {
        let runner = format!("{} record --no-store {words} --", self.trodden.display());
        self.corpus.run(self.name, &Variant::trodden(), options.input, &runner)
    }

    /// Words of `record` for copies, and the file to which they write their costs.
    fn words(&self, copies: u32, strategy: &str) -> (String, PathBuf) {
        let costs = self.folder.join(format!("{strategy}-{copies}.json"));
        let mut words = format!("-o {} --copies {copies} --strategy {strategy}", self.folder.join("copies.trodden").display());
        write!(words, " --weights {} --costs {}", self.profile().display(), costs.display()).expect("strings take all");
        if PRINT_TIMES.contains(&self.name) {
            words += " --ignore-output";
        }
        (words, costs)
    }

    /// Runs copies; gives a row of the table.
    fn row(&self, copies: u32, strategy: &str, options: &Options) -> Result<Row> {
        let (words, costs) = self.words(copies, strategy);
        let counting = format!("{words} --baseline --count-hits");
        let printed = match options.engine {
            Engine::Local => self.record(&counting, options)?,
            Engine::Slurm => self.on_cluster(&counting, options)?,
        };
        if printed != self.printed {
            bail!("{}: copies print something else than the program", self.name);
        }
        let counted = read_json(&costs)?;
        let [hits, label_hits] = most_counted(&counted);
        let times = options.times.then(|| self.times(&words, &costs, options)).transpose()?;
        Ok(Row {
            program: self.name.to_owned(),
            strategy: strategy.to_owned(),
            copies,
            hits,
            label_hits,
            sequential_hits: self.sequential[0],
            sequential_label_hits: self.sequential[1],
            proven_hits: number(&counted, "proven_hits"),
            run_again: each_copy(&counted).filter(|c| number(c, "attempts") > 1.0).count(),
            times,
        })
    }

    /// Runs copies that count paths only, one at a time.
    fn times(&self, words: &str, costs: &Path, options: &Options) -> Result<Times> {
        self.record(&format!("{words} --baseline --parallel 1"), options)?;
        let costs = read_json(costs)?;
        let base = &costs["baseline"];
        let slowest_ns = each_copy(&costs).map(|c| number(c, "wall_ns")).fold(0.0, f64::max);
        Ok(Times { slowest_ns, sequential_ns: number(base, "sequential_ns"), plain_ns: number(base, "plain_ns") })
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

fn read_json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or(f64::NAN)
}

fn each_copy(costs: &Value) -> impl Iterator<Item = &Value> {
    costs["copies"].as_array().into_iter().flatten()
}

/// Hits that copies counted, of the copy that has most: all, and of labels.
fn most_counted(costs: &Value) -> [f64; 2] {
    let most = |at: usize| each_copy(costs).map(|c| c["counted"][at].as_f64().unwrap_or(f64::NAN)).fold(0.0, f64::max);
    [most(0), most(1)]
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
