//! Rows of `trodden-lab experiment copies`, kept in a file for each day, and what they say together.

use crate::experiments::bench::machine;
use crate::experiments::bench::result::BenchMachine;
use crate::experiments::bench::statistics::geometric_mean;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;
use trodden_corpus::steps::commit;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 2;

/// Names of the columns of rows.
const HEADS: [&str; 10] =
    ["program", "strategy", "k", "hits", "labels", "at least", "slowest", "sequential", "slowest, cpu", "sequential, cpu"];

/// What they are.
const ABOUT: &str = "hits: of the slowest copy, in per cent of one program that counts all, both counted by the running programs; \
    labels: of them, edges with a label other than zero (what the paper counts); at least: no plan has fewer hits; \
    slowest, sequential: wall time of the slowest copy, and of one program that counts all, beyond the plain program's, in per cent; of \
    each the least of some rounds; \
    cpu: the same of processor times, which say more where something else runs on the machine.";

/// Names of the columns of averages.
const SUMMARY_HEADS: [&str; 12] = [
    "input",
    "strategy",
    "k",
    "programs",
    "hits",
    "geometric",
    "labels",
    "geometric",
    "paper (p3)",
    "above the bound",
    "slowest",
    "sequential",
];

/// What they are.
const SUMMARY_ABOUT: &str = "Change of the slowest copy's hits and labels against one program that counts all, in per cent: arithmetic \
    and geometric means over \
    programs. The paper has labels of p3 on other programs. Above the bound: by how much the hits are above what no plan is below, on \
    average. Slowest, sequential: geometric means of processor times beyond the plain program's, \
    of the programs whose times were measured.";

/// What the paper says of p3 with 2, 4 and 8 copies.
const PAPER: [(u32, f64); 3] = [(2, -23.0), (4, -43.0), (8, -56.0)];

/// What was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The program.
    pub program: String,
    /// How its counting was divided.
    pub strategy: String,
    /// Number of copies.
    pub copies: u32,
    /// Which run.
    pub input: String,
    /// Who ran the copies.
    pub engine: String,
    /// A node was lost.
    pub lost_node: bool,
}

/// One partition of one program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesRow {
    /// What was run.
    #[serde(flatten)]
    pub setting: Setting,
    /// Hits of the copy that has most: labels and counts; counted by the copies.
    pub hits: f64,
    /// Labels alone.
    pub label_hits: f64,
    /// The same of one program that counts all.
    pub sequential_hits: f64,
    /// Its labels alone.
    pub sequential_label_hits: f64,
    /// No plan has fewer hits.
    pub proven_hits: f64,
    /// Copies that ran more than once.
    pub run_again: usize,
    /// Wall times, if they were measured.
    pub times: Option<CopiesTimes>,
}

/// Times, in nanoseconds: the least of some rounds, as what else runs on the machine only ever adds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesTimes {
    /// That pass.
    pub wall: Triple,
    /// Of the processor.
    pub cpu: Triple,
    /// Measurements of each.
    pub rounds: u32,
}

/// What copies are compared by, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Triple {
    /// Of the slowest copy.
    pub slowest_ns: f64,
    /// Of one program that counts all.
    pub sequential_ns: f64,
    /// Of one that counts nothing.
    pub plain_ns: f64,
}

impl Triple {
    /// What counting adds to the time of the program: of the slowest copy, and of one program that counts all.
    fn ratios(&self) -> [f64; 2] {
        [self.slowest_ns, self.sequential_ns].map(|ns| ns / self.plain_ns)
    }
}

impl CopiesTimes {
    /// Of wall times, then of processor times.
    fn ratios(&self) -> [f64; 4] {
        let ([a, b], [c, d]) = (self.wall.ratios(), self.cpu.ratios());
        [a, b, c, d]
    }
}

/// Names of the columns of analyses.
const ANALYSIS_HEADS: [&str; 7] = ["program", "strategy", "k", "functions", "weights", "user s", "wall s"];

/// How long the analysis took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The program.
    pub program: String,
    /// How its counting was divided.
    pub strategy: String,
    /// Number of copies.
    pub copies: u32,
    /// By a profile, or by estimated frequencies.
    pub profile: bool,
    /// Functions of the program.
    pub procedures: u64,
    /// Seconds of processor time, with LLVM's tools.
    pub user_s: f64,
    /// Seconds that passed.
    pub wall_s: f64,
}

impl Analysis {
    fn cells(&self) -> [String; 7] {
        let weights = if self.profile { "profile" } else { "estimated" };
        let seconds = |s: f64| format!("{s:.2}");
        let [program, strategy] = [self.program.clone(), self.strategy.clone()];
        [
            program,
            strategy,
            self.copies.to_string(),
            self.procedures.to_string(),
            weights.into(),
            seconds(self.user_s),
            seconds(self.wall_s),
        ]
    }
}

/// Rows of a day.
pub struct CopiesResults {
    stem: PathBuf,
    content: Content,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    schema_version: u32,
    date: String,
    commit: String,
    machine: BenchMachine,
    rows: Vec<CopiesRow>,
    #[serde(default)]
    analyses: Vec<Analysis>,
}

impl CopiesResults {
    /// Those that are in a folder.
    ///
    /// # Errors
    /// The file is damaged, or of another version.
    pub fn from_today(folder: &Path) -> Result<CopiesResults> {
        let date = steps::output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
        let stem = folder.join(&date);
        let path = stem.with_extension("json");
        let content = match path.exists() {
            true => {
                let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let remedy = || format!("{} is damaged or of another version: move it away", path.display());
                let known: Content = serde_json::from_str(&text).with_context(remedy)?;
                ensure!(known.schema_version == SCHEMA_VERSION, remedy());
                eprintln!("{} has {} rows, which are not run again", path.display(), known.rows.len());
                Content { commit: commit(), ..known }
            }
            false => Content {
                schema_version: SCHEMA_VERSION,
                date,
                commit: commit(),
                machine: machine(),
                rows: Vec::new(),
                analyses: Vec::new(),
            },
        };
        Ok(CopiesResults { stem, content })
    }

    /// The row of a setting, if it was run.
    pub fn row(&self, setting: &Setting) -> Option<&CopiesRow> {
        self.content.rows.iter().find(|row| row.setting == *setting)
    }

    /// Adds a row, or replaces that of the same setting; prints it, and writes all.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn add(&mut self, row: CopiesRow) -> Result<()> {
        println!("{}", columns(&row.cells()));
        self.content.rows.retain(|known| known.setting != row.setting);
        self.content.rows.push(row);
        self.write()
    }

    /// Adds how long an analysis took, or replaces what was known of it; prints it, and writes all.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn add_analysis(&mut self, row: Analysis) -> Result<()> {
        println!("{}", columns(&row.cells()));
        let key = |a: &Analysis| (a.program.clone(), a.strategy.clone(), a.copies, a.profile);
        self.content.analyses.retain(|known| key(known) != key(&row));
        self.content.analyses.push(row);
        self.write()
    }

    /// The page.
    pub fn page(&self) -> PathBuf {
        self.stem.with_extension("md")
    }

    /// Averages of the rows of each input, strategy and number of copies that counted here.
    fn averages(&self) -> Vec<Average> {
        let rows: Vec<&CopiesRow> = self.content.rows.iter().filter(|r| r.setting.engine == "local").collect();
        let kind = |r: &&CopiesRow| (r.setting.input.clone(), r.setting.strategy.clone(), r.setting.copies);
        let mut kinds: Vec<(String, String, u32)> = rows.iter().map(kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.iter().map(|(input, strategy, copies)| Average::new((input, strategy, *copies), &rows)).collect()
    }

    /// Prints averages.
    pub fn print_summary(&self) {
        println!("\n{}", columns(&SUMMARY_HEADS));
        self.averages().iter().for_each(|average| println!("{}", columns(&average.cells())));
    }

    fn write(&self) -> Result<()> {
        let folder = self.stem.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        self.store("json", serde_json::to_string_pretty(&self.content)? + "\n")?;
        self.store("md", self.text()?)
    }

    /// Whole or not at all: an interrupted run loses nothing.
    fn store(&self, ending: &str, text: String) -> Result<()> {
        let (path, new) = (self.stem.with_extension(ending), self.stem.with_extension(format!("{ending}.new")));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).with_context(|| format!("cannot write {}", path.display()))
    }

    fn text(&self) -> Result<String> {
        let Content { date, commit, machine, rows, analyses, .. } = &self.content;
        let mut page = format!("# Copies, {date}\n\nEvery merged profile was the program's own, to the last count.\n\n");
        writeln!(page, "{}, {} cores, Linux {}; commit {commit}\n", machine.processor, machine.cores, machine.kernel)?;
        let averages = self.averages();
        if !averages.is_empty() {
            writeln!(page, "## Averages\n\n{SUMMARY_ABOUT}\n")?;
            markdown(&mut page, &SUMMARY_HEADS, averages.iter().map(Average::cells))?;
        }
        let mut kinds: Vec<(&str, &str, bool)> = rows.iter().map(|r| r.setting.place()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let (engine, input, lost) = kind;
            let lost = if lost { ", a node lost while copies ran there" } else { "" };
            writeln!(page, "\n## Input {input}, engine {engine}{lost}\n\n{ABOUT}\n")?;
            markdown(&mut page, &HEADS, rows.iter().filter(|r| r.setting.place() == kind).map(CopiesRow::cells))?;
        }
        if !analyses.is_empty() {
            writeln!(page, "\n## Analysis\n\nWhat `trodden-lab plan` takes; the least of some rounds.\n")?;
            markdown(&mut page, &ANALYSIS_HEADS, analyses.iter().map(Analysis::cells))?;
        }
        Ok(page)
    }
}

/// Prints the names of the columns.
pub fn print_heads(analysis: bool) {
    println!("{}", if analysis { columns(&ANALYSIS_HEADS) } else { columns(&HEADS) });
}

impl Setting {
    fn place(&self) -> (&str, &str, bool) {
        (&self.engine, &self.input, self.lost_node)
    }
}

impl CopiesRow {
    fn cells(&self) -> [String; 10] {
        let Setting { program, strategy, copies, .. } = &self.setting;
        let ratios = self.times.map_or([f64::NAN; 4], |t| t.ratios());
        let [slowest, sequential, slowest_cpu, sequential_cpu] = ratios.map(|ratio| decimal(100.0 * (ratio - 1.0)));
        [
            program.clone(),
            strategy.clone(),
            copies.to_string(),
            decimal(100.0 * self.hits / self.sequential_hits),
            decimal(100.0 * self.label_hits / self.sequential_label_hits),
            decimal(100.0 * self.proven_hits / self.sequential_hits),
            slowest,
            sequential,
            slowest_cpu,
            sequential_cpu,
        ]
    }
}

/// Means over programs.
#[derive(Debug, PartialEq)]
struct Average {
    input: String,
    strategy: String,
    copies: u32,
    programs: usize,
    /// Changes in per cent, arithmetic and geometric mean.
    hits: [f64; 2],
    labels: [f64; 2],
    above_bound: f64,
    /// Processor time beyond the plain program's, in per cent, of the slowest copy and of one program that counts all;
    /// not a number where none was measured.
    slowest: f64,
    sequential: f64,
}

impl Average {
    fn new((input, strategy, copies): (&str, &str, u32), rows: &[&CopiesRow]) -> Average {
        let is_own = |r: &&&CopiesRow| r.setting.input == input && r.setting.strategy == strategy && r.setting.copies == copies;
        let own: Vec<&CopiesRow> = rows.iter().filter(is_own).copied().collect();
        let change = |share: fn(&CopiesRow) -> f64| {
            let shares: Vec<f64> = own.iter().map(|r| share(r)).filter(|s| s.is_finite()).collect();
            let mean = |of: fn(f64) -> f64| shares.iter().map(|s| of(*s)).sum::<f64>() / shares.len() as f64;
            [100.0 * (mean(|s| s) - 1.0), 100.0 * (mean(f64::ln).exp() - 1.0)]
        };
        let over = |which: usize| {
            let ratios: Vec<f64> = own.iter().filter_map(|r| r.times).map(|t| t.cpu.ratios()[which]).collect();
            geometric_mean(&ratios).map_or(f64::NAN, |mean| 100.0 * (mean - 1.0))
        };
        Average {
            input: input.to_owned(),
            strategy: strategy.to_owned(),
            copies,
            programs: own.len(),
            hits: change(|r| r.hits / r.sequential_hits),
            labels: change(|r| r.label_hits / r.sequential_label_hits),
            above_bound: change(|r| r.hits / r.proven_hits)[0],
            slowest: over(0),
            sequential: over(1),
        }
    }

    fn cells(&self) -> [String; 12] {
        let paper = PAPER.iter().find(|(copies, _)| *copies == self.copies).map_or(String::new(), |(_, change)| decimal(*change));
        let [[hits, hits_geometric], [labels, labels_geometric]] = [self.hits, self.labels].map(|both| both.map(decimal));
        [
            self.input.clone(),
            self.strategy.clone(),
            self.copies.to_string(),
            self.programs.to_string(),
            hits,
            hits_geometric,
            labels,
            labels_geometric,
            paper,
            decimal(self.above_bound),
            decimal(self.slowest),
            decimal(self.sequential),
        ]
    }
}

fn decimal(value: f64) -> String {
    if value.is_finite() { format!("{value:.1}") } else { String::new() }
}

fn columns(cells: &[impl AsRef<str>]) -> String {
    let all = cells.iter().enumerate();
    all.map(|(at, cell)| if at == 0 { format!("{:<12}", cell.as_ref()) } else { format!(" {:>10}", cell.as_ref()) }).collect()
}

fn markdown<const N: usize>(page: &mut String, heads: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> Result<()> {
    let rows: Vec<[String; N]> = rows.collect();
    let is_text = |at: usize| rows.iter().any(|r| r[at].starts_with(char::is_alphabetic));
    let rule: Vec<&str> = (0..N).map(|at| if is_text(at) { "---" } else { "--:" }).collect();
    writeln!(page, "| {} |\n|{}|", heads.join(" | "), rule.join("|"))?;
    for cells in rows {
        writeln!(page, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(program: &str, hits: f64) -> CopiesRow {
        let setting = Setting {
            program: program.into(),
            strategy: "p3".into(),
            copies: 2,
            input: "train".into(),
            engine: "local".into(),
            lost_node: false,
        };
        CopiesRow {
            setting,
            hits,
            label_hits: hits / 2.0,
            sequential_hits: 100.0,
            sequential_label_hits: 100.0,
            proven_hits: 25.0,
            run_again: 0,
            times: None,
        }
    }

    #[test]
    fn rows_are_kept_and_averaged() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = CopiesResults::from_today(folder.path()).unwrap();
        results.add(row("a", 50.0)).unwrap();
        results.add(row("b", 32.0)).unwrap();
        let mut again = CopiesResults::from_today(folder.path()).unwrap();
        assert_eq!(again.row(&row("b", 0.0).setting), Some(&row("b", 32.0)));
        assert_eq!(again.row(&row("c", 0.0).setting), None);
        let [average] = &again.averages()[..] else { panic!() };
        assert_eq!(
            (average.programs, average.cells()),
            (2, ["train", "p3", "2", "2", "-59.0", "-60.0", "-79.5", "-80.0", "-23.0", "64.0", "", ""].map(Into::into))
        );
        let [wall, cpu] = [13.0, 11.0].map(|slowest_ns| Triple { slowest_ns, sequential_ns: 12.0, plain_ns: 10.0 });
        let timed = CopiesRow { times: Some(CopiesTimes { wall, cpu, rounds: 1 }), ..row("c", 50.0) };
        assert_eq!(timed.cells()[6..], ["30.0", "20.0", "10.0", "20.0"]);
        again.add(timed).unwrap();
        assert_eq!(again.averages()[0].cells()[10..], ["10.0", "20.0"]);
        again.add(row("b", 50.0)).unwrap();
        assert_eq!((again.content.rows.len(), again.averages()[0].programs), (3, 3));
        assert!(std::fs::read_to_string(again.page()).unwrap().contains("| b | p3 | 2 | 50.0 | 25.0 | 25.0 |  |  |  |  |"));
    }
}
