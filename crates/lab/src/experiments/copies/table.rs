//! The table that `trodden-lab experiment copies` writes: one file per day, with averages.

use crate::experiments::bench::describe_machine;
use crate::experiments::bench::result::BenchMachine;
use crate::experiments::bench::statistics::geometric_mean;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;
use trodden_corpus::steps::describe_commit;

const SCHEMA_VERSION: u32 = 3;

const TABLE_HEADS: [&str; 10] =
    ["program", "strategy", "k", "hits", "labels", "at least", "slowest", "sequential", "slowest, cpu", "sequential, cpu"];

const TABLE_EXPLANATION: &str = "\
    hits: probe executions of the slowest copy, in percent of one program that counts everything, both counted by the running programs; \
    labels: those of edges with a non-zero label (which the paper counts); at least: lower bound for any plan; slowest, sequential: \
    overhead in wall time of the slowest copy, and of one program that counts everything, over the plain program, in percent; minimum of \
    several rounds; cpu: the same in processor time, which is more reliable on a busy machine.";

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

const SUMMARY_EXPLANATION: &str = "\
    Change of the slowest copy's hits and labels relative to one program that counts everything, in percent: arithmetic and geometric \
    means over the programs. The paper reports labels of p3 on other programs. Above the bound: mean excess of the hits over the lower \
    bound for any plan. Slowest, sequential: geometric mean overhead in processor time over the plain program, for programs whose times \
    were measured.";

/// Change in the number of label hits that the paper reports for p3 with 2, 4 and 8 copies, in percent.
const PUBLISHED_CHANGES: [(u32, f64); 3] = [(2, -23.0), (4, -43.0), (8, -56.0)];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiesSetting {
    pub program: String,
    pub strategy: String,
    pub copies: u32,
    pub input: String,
    pub engine: String,
    pub killed_node: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesRow {
    #[serde(flatten)]
    pub setting: CopiesSetting,
    /// Hits (executions of probes) in the copy that has most: increments of the path register and of path counters.
    pub hits: f64,
    /// Label hits in the copy that has most: increments of the path register only.
    pub label_hits: f64,
    /// Hits of the program that counts everything.
    pub sequential_hits: f64,
    /// Label hits of the program that counts everything.
    pub sequential_label_hits: f64,
    /// Proven lower bound for the hits of any plan.
    pub proven_hits: f64,
    /// Number of copies that ran more than once.
    pub run_again: usize,
    pub times: Option<CopiesTimes>,
}

/// Minimum times over several rounds. The minimum is used because other load on the machine can only add to the times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesTimes {
    pub wall: ComparedTimes,
    pub cpu: ComparedTimes,
    pub rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedTimes {
    pub slowest_ns: f64,
    /// Time of the program that counts everything.
    pub sequential_ns: f64,
    /// Time of the program that counts nothing.
    pub plain_ns: f64,
}

impl ComparedTimes {
    /// Returns the times of the slowest copy and of the program that counts everything, as ratios to the program that counts nothing.
    fn time_ratios(&self) -> [f64; 2] {
        [self.slowest_ns, self.sequential_ns].map(|ns| ns / self.plain_ns)
    }
}

impl CopiesTimes {
    /// Returns the ratios of wall-clock times, followed by those of processor times.
    fn time_ratios(&self) -> [f64; 4] {
        let ([a, b], [c, d]) = (self.wall.time_ratios(), self.cpu.time_ratios());
        [a, b, c, d]
    }
}

const ANALYSIS_HEADS: [&str; 7] = ["program", "strategy", "k", "functions", "weights", "user s", "wall s"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnalysisTime {
    pub program: String,
    pub strategy: String,
    pub copies: u32,
    /// True if frequencies come from a profile; false if they are estimated.
    pub profile: bool,
    pub procedures: u64,
    /// Processor time in seconds, including LLVM's tools.
    pub user_s: f64,
    pub wall_s: f64,
}

impl AnalysisTime {
    fn table_cells(&self) -> [String; 7] {
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

const PROFITABLE_EXPLANATION: &str = "\
    Procedures that p3 divides among k copies, like table 1 of the paper: those with at most one call site and several tasks. lines: \
    lines of the program's source files that are not blank; share: profitable procedures, in percent.";

const PROFITABLE_HEADS: [&str; 6] = ["program", "k", "lines", "procedures", "profitable", "share"];

/// A row of table 1 of the paper: the procedures of a program that P3 considers profitable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfitableRow {
    pub program: String,
    pub copies: u32,
    /// Number of non-blank lines in the program's source files.
    pub lines: u64,
    pub procedures: u64,
    pub profitable: u64,
}

impl ProfitableRow {
    fn table_cells(&self) -> [String; 6] {
        let share = format!("{:.1}", 100.0 * self.profitable as f64 / self.procedures.max(1) as f64);
        let [copies, lines, procedures, profitable] =
            [self.copies.into(), self.lines, self.procedures, self.profitable].map(|number: u64| number.to_string());
        [self.program.clone(), copies, lines, procedures, profitable, share]
    }
}

pub struct CopiesResults {
    stem: PathBuf,
    content: StoredCopiesResults,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredCopiesResults {
    schema_version: u32,
    date: String,
    commit: String,
    machine: BenchMachine,
    rows: Vec<CopiesRow>,
    #[serde(default)]
    analyses: Vec<AnalysisTime>,
    #[serde(default)]
    profitable: Vec<ProfitableRow>,
}

impl CopiesResults {
    /// Reads today's results from a folder, or starts new ones. Fails if the file is corrupt or has a different schema version.
    pub fn from_today(folder: &Path) -> Result<CopiesResults> {
        let date = steps::output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
        let stem = folder.join(&date);
        let path = stem.with_extension("json");
        let content = match path.exists() {
            true => {
                let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let advice = || format!("{} is corrupt or has a different schema version; move it away", path.display());
                let known: StoredCopiesResults = serde_json::from_str(&text).with_context(advice)?;
                ensure!(known.schema_version == SCHEMA_VERSION, advice());
                eprintln!("rows in {} that will not be run again: {}", path.display(), known.rows.len());
                StoredCopiesResults { commit: describe_commit(), ..known }
            }
            false => StoredCopiesResults {
                schema_version: SCHEMA_VERSION,
                date,
                commit: describe_commit(),
                machine: describe_machine(),
                rows: Vec::new(),
                analyses: Vec::new(),
                profitable: Vec::new(),
            },
        };
        Ok(CopiesResults { stem, content })
    }

    /// Returns the row of a setting; `None` if the setting has not been measured.
    pub fn find_row(&self, setting: &CopiesSetting) -> Option<&CopiesRow> {
        self.content.rows.iter().find(|row| row.setting == *setting)
    }

    /// Prints a row, replaces any row with the same setting by it, and writes the files.
    pub fn add_row(&mut self, row: CopiesRow) -> Result<()> {
        println!("{}", format_columns(&row.table_cells()));
        self.content.rows.retain(|known| known.setting != row.setting);
        self.content.rows.push(row);
        self.write()
    }

    /// Prints the time of an analysis, replaces any with the same setting by it, and writes the files.
    pub fn add_analysis(&mut self, row: AnalysisTime) -> Result<()> {
        println!("{}", format_columns(&row.table_cells()));
        let key = |a: &AnalysisTime| (a.program.clone(), a.strategy.clone(), a.copies, a.profile);
        self.content.analyses.retain(|known| key(known) != key(&row));
        self.content.analyses.push(row);
        self.write()
    }

    /// Prints a row, replaces any for the same program and number of copies by it, and writes the files.
    pub fn add_profitable(&mut self, row: ProfitableRow) -> Result<()> {
        println!("{}", format_columns(&row.table_cells()));
        self.content.profitable.retain(|known| (&known.program, known.copies) != (&row.program, row.copies));
        self.content.profitable.push(row);
        self.write()
    }

    pub fn page_path(&self) -> PathBuf {
        self.stem.with_extension("md")
    }

    /// Averages the rows with the same input, strategy and number of copies. Leaves out rows that were run on a cluster.
    fn averages(&self) -> Vec<AverageRow> {
        let rows: Vec<&CopiesRow> = self.content.rows.iter().filter(|r| r.setting.engine == "local").collect();
        let kind = |r: &&CopiesRow| (r.setting.input.clone(), r.setting.strategy.clone(), r.setting.copies);
        let mut kinds: Vec<(String, String, u32)> = rows.iter().map(kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.iter().map(|(input, strategy, copies)| AverageRow::new((input, strategy, *copies), &rows)).collect()
    }

    pub fn print_summary(&self) {
        println!("\n{}", format_columns(&SUMMARY_HEADS));
        self.averages().iter().for_each(|average| println!("{}", format_columns(&average.table_cells())));
    }

    fn write(&self) -> Result<()> {
        let folder = self.stem.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
        self.write_file("json", serde_json::to_string_pretty(&self.content)? + "\n")?;
        self.write_file("md", self.to_markdown()?)
    }

    /// Writes a file under another name and renames it, so that an interruption cannot destroy the previous version.
    fn write_file(&self, ending: &str, text: String) -> Result<()> {
        let (path, new) = (self.stem.with_extension(ending), self.stem.with_extension(format!("{ending}.new")));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).with_context(|| format!("cannot write {}", path.display()))
    }

    fn to_markdown(&self) -> Result<String> {
        let StoredCopiesResults { date, commit, machine, rows, analyses, profitable, .. } = &self.content;
        let mut page = format!("# Copies, {date}\n\nEvery merged profile equalled the program's own.\n\n");
        writeln!(page, "{}, {} cores, Linux {}; commit {commit}\n", machine.processor, machine.cores, machine.kernel)?;
        let averages = self.averages();
        if !averages.is_empty() {
            writeln!(page, "## Averages\n\n{SUMMARY_EXPLANATION}\n")?;
            write_table(&mut page, &SUMMARY_HEADS, averages.iter().map(AverageRow::table_cells))?;
        }
        let mut kinds: Vec<(&str, &str, bool)> = rows.iter().map(|r| r.setting.section_key()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let (engine, input, lost) = kind;
            let lost = if lost { ", with a node killed while copies ran on it" } else { "" };
            writeln!(page, "\n## Input {input}, engine {engine}{lost}\n\n{TABLE_EXPLANATION}\n")?;
            write_table(&mut page, &TABLE_HEADS, rows.iter().filter(|r| r.setting.section_key() == kind).map(CopiesRow::table_cells))?;
        }
        if !analyses.is_empty() {
            writeln!(page, "\n## Analysis\n\nTime of `trodden-lab plan`, minimum of several rounds.\n")?;
            write_table(&mut page, &ANALYSIS_HEADS, analyses.iter().map(AnalysisTime::table_cells))?;
        }
        if !profitable.is_empty() {
            writeln!(page, "\n## Profitable procedures\n\n{PROFITABLE_EXPLANATION}\n")?;
            write_table(&mut page, &PROFITABLE_HEADS, profitable.iter().map(ProfitableRow::table_cells))?;
        }
        Ok(page)
    }
}

pub fn print_heads(options: &super::CopiesOptions) {
    println!(
        "{}",
        match (options.analysis, options.profitable) {
            (true, _) => format_columns(&ANALYSIS_HEADS),
            (_, true) => format_columns(&PROFITABLE_HEADS),
            _ => format_columns(&TABLE_HEADS),
        }
    );
}

impl CopiesSetting {
    fn section_key(&self) -> (&str, &str, bool) {
        (&self.engine, &self.input, self.killed_node)
    }
}

impl CopiesRow {
    fn table_cells(&self) -> [String; 10] {
        let CopiesSetting { program, strategy, copies, .. } = &self.setting;
        let ratios = self.times.map_or([f64::NAN; 4], |t| t.time_ratios());
        let [slowest, sequential, slowest_cpu, sequential_cpu] = ratios.map(|ratio| format_decimal(100.0 * (ratio - 1.0)));
        [
            program.clone(),
            strategy.clone(),
            copies.to_string(),
            format_decimal(100.0 * self.hits / self.sequential_hits),
            format_decimal(100.0 * self.label_hits / self.sequential_label_hits),
            format_decimal(100.0 * self.proven_hits / self.sequential_hits),
            slowest,
            sequential,
            slowest_cpu,
            sequential_cpu,
        ]
    }
}

/// Means over the programs measured with the same input, strategy and number of copies.
#[derive(Debug, PartialEq)]
struct AverageRow {
    input: String,
    strategy: String,
    copies: u32,
    programs: usize,
    /// Arithmetic and geometric mean of the changes, in percent.
    hits: [f64; 2],
    labels: [f64; 2],
    above_bound: f64,
    /// Processor time that the slowest copy needs in addition to the plain program's, in percent; NaN if no time was measured.
    slowest: f64,
    sequential: f64,
}

impl AverageRow {
    fn new((input, strategy, copies): (&str, &str, u32), rows: &[&CopiesRow]) -> AverageRow {
        let is_averaged = |r: &&&CopiesRow| r.setting.input == input && r.setting.strategy == strategy && r.setting.copies == copies;
        let own: Vec<&CopiesRow> = rows.iter().filter(is_averaged).copied().collect();
        let change = |share: fn(&CopiesRow) -> f64| {
            let shares: Vec<f64> = own.iter().map(|r| share(r)).filter(|s| s.is_finite()).collect();
            let mean = |of: fn(f64) -> f64| shares.iter().map(|s| of(*s)).sum::<f64>() / shares.len() as f64;
            [100.0 * (mean(|s| s) - 1.0), 100.0 * (mean(f64::ln).exp() - 1.0)]
        };
        let overhead = |which: usize| {
            let ratios: Vec<f64> = own.iter().filter_map(|r| r.times).map(|t| t.cpu.time_ratios()[which]).collect();
            geometric_mean(&ratios).map_or(f64::NAN, |mean| 100.0 * (mean - 1.0))
        };
        AverageRow {
            input: input.to_owned(),
            strategy: strategy.to_owned(),
            copies,
            programs: own.len(),
            hits: change(|r| r.hits / r.sequential_hits),
            labels: change(|r| r.label_hits / r.sequential_label_hits),
            above_bound: change(|r| r.hits / r.proven_hits)[0],
            slowest: overhead(0),
            sequential: overhead(1),
        }
    }

    fn table_cells(&self) -> [String; 12] {
        let paper = PUBLISHED_CHANGES
            .iter()
            .find(|(copies, _)| *copies == self.copies)
            .map_or(String::new(), |(_, change)| format_decimal(*change));
        let [[hits, hits_geometric], [labels, labels_geometric]] = [self.hits, self.labels].map(|both| both.map(format_decimal));
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
            format_decimal(self.above_bound),
            format_decimal(self.slowest),
            format_decimal(self.sequential),
        ]
    }
}

fn format_decimal(value: f64) -> String {
    if value.is_finite() { format!("{value:.1}") } else { String::new() }
}

fn format_columns(cells: &[impl AsRef<str>]) -> String {
    let all = cells.iter().enumerate();
    all.map(|(at, cell)| if at == 0 { format!("{:<12}", cell.as_ref()) } else { format!(" {:>10}", cell.as_ref()) }).collect()
}

fn write_table<const N: usize>(page: &mut String, heads: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> Result<()> {
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

    fn sample_row(program: &str, hits: f64) -> CopiesRow {
        let setting = CopiesSetting {
            program: program.into(),
            strategy: "p3".into(),
            copies: 2,
            input: "train".into(),
            engine: "local".into(),
            killed_node: false,
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
        results.add_row(sample_row("a", 50.0)).unwrap();
        results.add_row(sample_row("b", 32.0)).unwrap();
        let mut again = CopiesResults::from_today(folder.path()).unwrap();
        assert_eq!(again.find_row(&sample_row("b", 0.0).setting), Some(&sample_row("b", 32.0)));
        assert_eq!(again.find_row(&sample_row("c", 0.0).setting), None);
        let [average] = &again.averages()[..] else { panic!() };
        assert_eq!(
            (average.programs, average.table_cells()),
            (2, ["train", "p3", "2", "2", "-59.0", "-60.0", "-79.5", "-80.0", "-23.0", "64.0", "", ""].map(Into::into))
        );
        let [wall, cpu] = [13.0, 11.0].map(|slowest_ns| ComparedTimes { slowest_ns, sequential_ns: 12.0, plain_ns: 10.0 });
        let timed = CopiesRow { times: Some(CopiesTimes { wall, cpu, rounds: 1 }), ..sample_row("c", 50.0) };
        assert_eq!(timed.table_cells()[6..], ["30.0", "20.0", "10.0", "20.0"]);
        again.add_row(timed).unwrap();
        assert_eq!(again.averages()[0].table_cells()[10..], ["10.0", "20.0"]);
        again.add_row(sample_row("b", 50.0)).unwrap();
        assert_eq!((again.content.rows.len(), again.averages()[0].programs), (3, 3));
        assert!(std::fs::read_to_string(again.page_path()).unwrap().contains("| b | p3 | 2 | 50.0 | 25.0 | 25.0 |  |  |  |  |"));
    }
}
