//! `trodden-lab experiment copies`: counts paths of corpus programs with several copies, and compares the copies' cost with that of
//! counting all paths in one program.
//!
//! Each run is `trodden record --copies K --baseline`. It fails unless the merged profile equals the program's own. The copies and the
//! program that counts everything ("sequential") also count how often their probes execute ("hits"). With `--times`, the copies run again,
//! one after the other and without counting hits. Results are written after each row, and rows of the same day are not run again.
//! `--engine slurm` starts a cluster (`xtask/slurm.sh`), and `--lose-node` kills one of its nodes while copies run there.

mod analysis;
mod cluster;
mod profitable;
mod table;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use cluster::Cluster;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use table::{ComparedTimes, CopiesResults, CopiesRow, CopiesSetting, CopiesTimes};
use trodden_corpus::CorpusVariant;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;
use trodden_corpus::steps::build_laboratory;
use trodden_corpus::{Corpus, CorpusInput};

/// Programs measured by default. Their runs are deterministic.
const DEFAULT_PROGRAMS: &[&str] = &["gzip", "bzip2", "mawk", "minisat", "hmmer", "sqlite"];

/// Programs that print elapsed times, so that the outputs of their copies differ.
const TIME_PRINTING_PROGRAMS: &[&str] = &["minisat", "sqlite", "x264"];

/// Programs that write files, so that each of their copies needs its own folder.
const FILE_WRITING_PROGRAMS: &[&str] = &["cppcheck", "x264"];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
    trodden-lab experiment copies                                                    six programs, 2, 4 and 8 copies
  trodden-lab experiment copies mawk --strategy p3,weighted
  trodden-lab experiment copies --profitable --copies 4                             table 1 of the paper
    trodden-lab experiment copies bzip2 --input ref --engine slurm --lose-node        on a temporary cluster")]
pub struct CopiesOptions {
    /// Corpus programs [default: gzip, bzip2, mawk, minisat, hmmer, sqlite].
    programs: Vec<String>,
    /// Run to count.
    #[arg(long, value_enum, default_value_t = CorpusInput::Train)]
    input: CorpusInput,
    /// Numbers of copies to try.
    #[arg(long, value_name = "K", default_value = "2,4,8", value_delimiter = ',')]
    copies: Vec<u32>,
    /// Strategies to try; see `trodden-lab plan`.
    #[arg(long, value_name = "STRATEGY", default_value = "weighted,p3,pbl", value_delimiter = ',')]
    strategy: Vec<String>,
    /// Engine that runs the copies.
    #[arg(long, value_enum, default_value_t = CopyEngine::Local)]
    engine: CopyEngine,
    /// Kill a node while copies run on it (--engine slurm).
    #[arg(long)]
    lose_node: bool,
    /// Also measure the times of the copies, one at a time.
    #[arg(long, conflicts_with = "lose_node")]
    times: bool,
    /// Measure only the time to divide the counting, without running copies.
    #[arg(long, conflicts_with_all = ["times", "lose_node"])]
    analysis: bool,
    /// Only count the procedures that p3 divides (table 1 of the paper), without running copies.
    #[arg(long, conflicts_with_all = ["analysis", "times", "lose_node"])]
    profitable: bool,
    /// Number of measurements of each time.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Folder for DATE.json and DATE.md, written after each row; rows that they contain are not run again.
    #[arg(long, value_name = "FOLDER", default_value_os_t = steps::target_folder().join("copies"))]
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CopyEngine {
    /// Run the copies as processes on this machine.
    Local,
    /// Run the copies on a Slurm cluster of three nodes on this machine.
    Slurm,
}

pub fn run(options: &CopiesOptions) -> Result<()> {
    ensure!(options.engine == CopyEngine::Slurm || !options.lose_node, "--lose-node requires --engine slurm");
    packages::ensure_packages_for(PackagePurpose::Corpus)?;
    if options.engine == CopyEngine::Slurm {
        packages::ensure_packages(&["slurmctld", "slurmd", "slurm-client", "munge"].map(str::to_owned))?;
    }
    let trodden = build_laboratory()?.with_file_name("trodden");
    let corpus = Corpus::in_target();
    let programs = corpus.prepare(&options.programs, DEFAULT_PROGRAMS)?;
    let mut results = CopiesResults::from_today(&options.output)?;
    let mut failed = Vec::new();
    table::print_heads(options);
    for program in &programs {
        if let Err(error) = run_missing_settings(&corpus, program, &trodden, options, &mut results, &mut failed) {
            failed.push(format!("{program}: {error:#}"));
        }
    }
    if !options.analysis && !options.profitable {
        results.print_summary();
    }
    println!("wrote {}", results.page_path().display());
    failed.iter().for_each(|what| eprintln!("{what}"));
    ensure!(failed.is_empty(), "{} of the runs failed. Their errors are listed above", failed.len());
    Ok(())
}

/// Runs those settings of a program for which there are no results yet.
fn run_missing_settings(
    corpus: &Corpus,
    program: &str,
    trodden: &Path,
    options: &CopiesOptions,
    results: &mut CopiesResults,
    failed: &mut Vec<String>,
) -> Result<()> {
    if options.profitable {
        return profitable::count_profitable_procedures(corpus, program, options, results);
    }
    if options.analysis {
        return analysis::measure_analysis(&CopiesSubject::prepare(corpus, program, trodden, options)?, options, results);
    }
    let mut subject = None;
    for (&copies, strategy) in options.copies.iter().flat_map(|copies| options.strategy.iter().map(move |s| (copies, s))) {
        let setting = CopiesSetting {
            program: program.to_owned(),
            strategy: strategy.clone(),
            copies,
            input: options.input.name().to_owned(),
            engine: if options.engine == CopyEngine::Slurm { "slurm" } else { "local" }.to_owned(),
            killed_node: options.lose_node,
        };
        let known = results.find_row(&setting);
        if known.is_some_and(|row| row.times.is_some() || !options.times) {
            continue;
        }
        let known = known.cloned();
        if subject.is_none() {
            subject = Some(CopiesSubject::prepare(corpus, program, trodden, options)?);
        }
        let Some(subject) = &mut subject else { continue };
        match subject.measure_row(setting, known, options) {
            Ok(row) => results.add_row(row)?,
            Err(error) => failed.push(format!("{program} {strategy} {copies}: {error:#}")),
        }
    }
    Ok(())
}

/// A program, and the folder with the profile of its run.
struct CopiesSubject<'a> {
    corpus: &'a Corpus,
    name: &'a str,
    trodden: &'a Path,
    folder: PathBuf,
    /// Checksum of the program's output.
    output_sum: String,
    /// Probe executions ("hits") in the program that counts everything: all, and those of labels (increments on edges) only. `None` until
    /// they are measured.
    sequential: Option<[f64; 2]>,
}

impl<'a> CopiesSubject<'a> {
    fn prepare(corpus: &'a Corpus, name: &'a str, trodden: &'a Path, options: &CopiesOptions) -> Result<CopiesSubject<'a>> {
        corpus.fetch(name)?;
        corpus.create_inputs(name)?;
        corpus.build_once(name, &CorpusVariant::trodden())?;
        let folder = std::path::absolute(corpus.folder().join("copies").join(name))?;
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
        let mut subject = CopiesSubject { corpus, name, trodden, folder, output_sum: String::new(), sequential: None };
        let arguments = format!("-o {}", subject.profile_path().display());
        subject.output_sum = subject.record(&arguments, options)?;
        Ok(subject)
    }

    fn measure_sequential(&mut self, options: &CopiesOptions) -> Result<[f64; 2]> {
        if let Some(known) = self.sequential {
            return Ok(known);
        }
        let (arguments, costs) = self.record_arguments(1, "sbl");
        self.record(&format!("{arguments} --count-hits"), options)?;
        let hits = max_counted_hits(&read_json(&costs)?)?;
        self.sequential = Some(hits);
        Ok(hits)
    }

    fn program_path(&self) -> PathBuf {
        self.corpus.program(self.name, &CorpusVariant::trodden())
    }

    fn profile_path(&self) -> PathBuf {
        self.folder.join("all.trodden")
    }

    fn record(&self, arguments: &str, options: &CopiesOptions) -> Result<String> {
        self.corpus.run(self.name, &CorpusVariant::trodden(), options.input, &build_record_command(self.trodden, arguments))
    }

    /// Returns the arguments of `record` for copies, and the file to which it writes their costs.
    fn record_arguments(&self, copies: u32, strategy: &str) -> (String, PathBuf) {
        let costs = self.folder.join(format!("{strategy}-{copies}.json"));
        let mut arguments = format!("-o {} --copies {copies} --strategy {strategy}", self.folder.join("copies.trodden").display());
        write!(arguments, " --weights {} --costs {}", self.profile_path().display(), costs.display())
            .expect("writing to a string cannot fail");
        if TIME_PRINTING_PROGRAMS.contains(&self.name) {
            arguments += " --ignore-output";
        }
        if FILE_WRITING_PROGRAMS.contains(&self.name) {
            arguments += " --own-folders";
        }
        (arguments, costs)
    }

    /// Measures what is missing in the row of a setting. `known` is the row so far, or `None` if there is none.
    fn measure_row(&mut self, setting: CopiesSetting, known: Option<CopiesRow>, options: &CopiesOptions) -> Result<CopiesRow> {
        let (copies, strategy) = (setting.copies, setting.strategy.clone());
        let mut row = match known {
            Some(row) => row,
            None => self.measure_hits(setting, options)?,
        };
        if options.times {
            let (arguments, costs) = self.record_arguments(copies, &strategy);
            row.times = Some(self.measure_times(&arguments, &costs, options)?);
        }
        Ok(row)
    }

    fn measure_hits(&mut self, setting: CopiesSetting, options: &CopiesOptions) -> Result<CopiesRow> {
        let [sequential_hits, sequential_label_hits] = self.measure_sequential(options)?;
        let (arguments, costs) = self.record_arguments(setting.copies, &setting.strategy);
        let counting = format!("{arguments} --baseline --count-hits");
        let output_sum = match options.engine {
            CopyEngine::Local => self.record(&counting, options)?,
            CopyEngine::Slurm => self.record_on_cluster(&counting, options)?,
        };
        if output_sum != self.output_sum {
            bail!("the output of the copies differs from the output of the program");
        }
        let counted = read_json(&costs)?;
        let [hits, label_hits] = max_counted_hits(&counted)?;
        let attempts = copies_in_json(&counted).map(|c| number_field(c, "attempts")).collect::<Result<Vec<_>>>()?;
        Ok(CopiesRow {
            setting,
            hits,
            label_hits,
            sequential_hits,
            sequential_label_hits,
            proven_hits: number_field(&counted, "lower_bound_hits")?,
            run_again: attempts.iter().filter(|n| **n > 1.0).count(),
            times: None,
        })
    }

    /// Runs copies that only count paths, one at a time. Returns the minimum times over all rounds.
    fn measure_times(&self, arguments: &str, costs: &Path, options: &CopiesOptions) -> Result<CopiesTimes> {
        let lower = |ns: &mut f64, now: f64| *ns = ns.min(now);
        let mut single = [[f64::INFINITY; 2]; 2];
        let mut each = [Vec::<f64>::new(), Vec::new()];
        for _ in 0..options.rounds {
            self.record(&format!("{arguments} --baseline --jobs 1"), options)?;
            let costs = read_json(costs)?;
            for (kind, [of_copy, plain, sequential]) in
                [["wall_ns", "plain_ns", "sequential_ns"], ["cpu_ns", "plain_cpu_ns", "sequential_cpu_ns"]].into_iter().enumerate()
            {
                for (at, copy) in copies_in_json(&costs).enumerate() {
                    each[kind].resize(each[kind].len().max(at + 1), f64::INFINITY);
                    lower(&mut each[kind][at], number_field(copy, of_copy)?);
                }
                lower(&mut single[kind][0], number_field(&costs["baseline"], plain)?);
                lower(&mut single[kind][1], number_field(&costs["baseline"], sequential)?);
            }
        }
        let [wall, cpu] = [0, 1].map(|kind| ComparedTimes {
            slowest_ns: each[kind].iter().copied().fold(0.0, f64::max),
            plain_ns: single[kind][0],
            sequential_ns: single[kind][1],
        });
        Ok(CopiesTimes { wall, cpu, rounds: options.rounds })
    }

    fn record_on_cluster(&self, arguments: &str, options: &CopiesOptions) -> Result<String> {
        let work = self.folder.join("work");
        if work.exists() {
            std::fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
        }
        let cluster = Cluster::start(&self.folder.join("slurm"))?;
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let node_killer = options.lose_node.then(|| scope.spawn(|| cluster.kill_node(&is_done)));
            let arguments = format!("{arguments} --engine slurm --work {}", work.display());
            let runner =
                format!("env SLURM_CONF={} {}", cluster.configuration_file().display(), build_record_command(self.trodden, &arguments));
            let output_sum = self.corpus.run(self.name, &CorpusVariant::trodden(), options.input, &runner);
            is_done.store(true, Ordering::Relaxed);
            let lost = node_killer.map(|l| l.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).transpose()?;
            match (output_sum, lost) {
                (Ok(_), Some(None)) => bail!("the copies finished before a node could be killed. Use the longer input, --input ref"),
                (output_sum, lost) => {
                    lost.flatten().iter().for_each(|reported| eprintln!("{reported}"));
                    output_sum
                }
            }
        })
    }
}

/// Builds the command line of `record`. Options that only `trodden-lab with` accepts are passed through that command.
fn build_record_command(trodden: &Path, arguments: &str) -> String {
    let (mut choices, mut arguments_of_record) = (Vec::new(), Vec::new());
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "--strategy" | "--costs" => choices.extend([Some(word), words.next()].into_iter().flatten()),
            "--count-hits" | "--baseline" => choices.push(word),
            other => arguments_of_record.push(other),
        }
    }
    let record = format!("record --no-store {} --", arguments_of_record.join(" "));
    match choices.is_empty() {
        true => format!("{} {record}", trodden.display()),
        false => format!("{} with {} -- {record}", trodden.with_file_name("trodden-lab").display(), choices.join(" ")),
    }
}

fn read_json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn number_field(of: &Value, name: &str) -> Result<f64> {
    of[name].as_f64().with_context(|| format!("the cost file has no field `{name}`"))
}

fn copies_in_json(costs: &Value) -> impl Iterator<Item = &Value> {
    costs["copies"].as_array().into_iter().flatten()
}

/// Returns the numbers of hits in the copy that counted most: all hits, and hits of labels only.
fn max_counted_hits(costs: &Value) -> Result<[f64; 2]> {
    let mut max = [0.0f64; 2];
    for copy in copies_in_json(costs) {
        for (at, max) in max.iter_mut().enumerate() {
            *max = max.max(copy["counted"][at].as_f64().context("a copy reported no hits")?);
        }
    }
    Ok(max)
}
