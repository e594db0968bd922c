//! The result of the suite: what is stored, and read again to compare, to go on after an interruption, and to draw.

use super::statistics::Spread;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the stored form.
pub const SCHEMA_VERSION: u32 = 2;

/// All measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Day, as 2026-01-31.
    pub date: String,
    /// Of the project.
    pub commit: String,
    /// Where it was measured.
    pub machine: BenchMachine,
    /// Which runs were timed: `train` or `ref`.
    pub input: String,
    /// Runs of each variant.
    pub rounds: usize,
    /// What counted instructions, if a tool did.
    pub instructions_by: Option<String>,
    /// In which run: `train` or `ref`.
    #[serde(default = "train")]
    pub instructions_input: String,
    /// The variants, in the order of the tables.
    pub variants: Vec<About>,
    /// One for each variant of each program.
    pub rows: Vec<BenchRow>,
}

/// The run whose instructions are counted where nothing else is said.
fn train() -> String {
    "train".into()
}

/// A variant, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// What it is compared with.
    pub base: Option<String>,
}

/// Where it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchMachine {
    /// The processor's name.
    pub processor: String,
    /// Processors.
    pub cores: usize,
    /// Version of the kernel.
    pub kernel: String,
}

/// One variant of one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// The program.
    pub program: String,
    /// The variant.
    pub variant: String,
    /// How it went.
    #[serde(flatten)]
    pub outcome: BenchOutcome,
}

/// How a variant of a program went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum BenchOutcome {
    /// It was measured.
    Measured(Figures),
    /// It was not tried.
    Skipped {
        /// Why.
        reason: String,
    },
    /// Its build or a run failed.
    Failed {
        /// How.
        reason: String,
    },
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Seconds of user time, a figure per round.
    pub user_s: Vec<f64>,
    /// Their middle and ends.
    pub user: Spread,
    /// Seconds that passed, a figure per round.
    pub wall_s: Vec<f64>,
    /// Seconds of user time of the base's run, where it is not the one in the base's row: other input.
    pub base_user_s: Option<f64>,
    /// Instructions of one run.
    pub instructions: Option<u64>,
    /// Bytes of code.
    pub code_bytes: Option<u64>,
    /// The most memory that a process of it had.
    pub memory_kb: u64,
    /// Seconds that its build took.
    pub build_s: Option<f64>,
    /// Does it print what its base prints?
    pub same_output: bool,
    /// What independent oracles say of its counts.
    pub exact: Option<Exact>,
    /// Of sampled runs: the share of the program's path executions that their estimates have in common with the full
    /// profile, over the rounds.
    #[serde(default)]
    pub overlap: Option<Spread>,
}

/// What independent oracles say of counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exact {
    /// They came to a verdict.
    Checked(Vec<OracleVerdict>),
    /// They did not.
    Failed(String),
}

/// One oracle's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OracleVerdict {
    /// Its name.
    pub oracle: String,
    /// Functions that were compared.
    pub functions: u64,
    /// Functions whose counts are all equal.
    pub equal: u64,
    /// Functions with a difference.
    pub different: u64,
}

impl Exact {
    /// Whether something was checked, and nothing differs.
    pub fn is_equal(&self) -> bool {
        match self {
            Exact::Checked(oracles) => !oracles.is_empty() && oracles.iter().all(|j| j.different == 0 && j.functions > 0),
            Exact::Failed(_) => false,
        }
    }
}

impl BenchRow {
    /// What was measured, if it was.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            BenchOutcome::Measured(figures) => Some(figures),
            BenchOutcome::Skipped { .. } | BenchOutcome::Failed { .. } => None,
        }
    }
}

/// A row's figures over its base's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ratios {
    /// User time: medians.
    pub user: Option<f64>,
    /// Least user times: what a neighbour on the machine adds is in them least. None where the base is not timed in the same turns.
    pub least: Option<f64>,
    /// Instructions.
    pub instructions: Option<f64>,
    /// Bytes of code.
    pub code: Option<f64>,
    /// Memory.
    pub memory: Option<f64>,
    /// Build time.
    pub build: Option<f64>,
}

impl BenchResult {
    /// Reads a stored result.
    ///
    /// # Errors
    /// It cannot be read, or is of another version.
    pub fn read(path: &Path) -> Result<BenchResult> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
        if value["schema_version"] != SCHEMA_VERSION {
            bail!("{} has schema_version {}, this command reads {SCHEMA_VERSION}: measure again", path.display(), value["schema_version"]);
        }
        serde_json::from_value(value).with_context(|| format!("{} is no result of `trodden-lab experiment bench`", path.display()))
    }

    /// The programs, in order.
    pub fn programs(&self) -> Vec<&str> {
        let mut programs: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !programs.contains(&row.program.as_str()) {
                programs.push(&row.program);
            }
        }
        programs
    }

    /// A row's figures.
    pub fn figures(&self, program: &str, variant: &str) -> Option<&Figures> {
        self.rows.iter().find(|r| r.program == program && r.variant == variant)?.figures()
    }

    /// What a variant is compared with.
    pub fn base_of(&self, variant: &str) -> Option<&str> {
        self.variants.iter().find(|v| v.name == variant)?.base.as_deref()
    }

    /// A variant of a program beside its base; nothing where one was not measured.
    pub fn ratios(&self, program: &str, variant: &str) -> Ratios {
        let base = self.base_of(variant).and_then(|base| self.figures(program, base));
        let (Some(own), Some(base)) = (self.figures(program, variant), base) else { return Ratios::default() };
        let over = |own: f64, base: f64| (base > 0.0).then_some(own / base);
        let count = |own: Option<u64>, base: Option<u64>| over(own? as f64, base? as f64);
        Ratios {
            user: over(own.user.median, own.base_user_s.unwrap_or(base.user.median)),
            least: own.base_user_s.is_none().then(|| over(own.user.least, base.user.least)).flatten(),
            instructions: count(own.instructions, base.instructions),
            code: count(own.code_bytes, base.code_bytes),
            memory: over(own.memory_kb as f64, base.memory_kb as f64),
            build: own.build_s.zip(base.build_s).and_then(|(own, base)| over(own, base)),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Figures with these times and instructions.
    pub fn figures(user_s: &[f64], instructions: u64) -> Figures {
        Figures {
            user_s: user_s.to_vec(),
            user: Spread::from_values(user_s),
            wall_s: user_s.to_vec(),
            base_user_s: None,
            instructions: Some(instructions),
            code_bytes: Some(10 * 1024),
            memory_kb: 1000,
            build_s: Some(1.5),
            same_output: true,
            exact: None,
            overlap: None,
        }
    }

    /// A suite of plain and trodden with these rows.
    pub fn suite(rows: &[(&str, &str, &[f64], u64)]) -> BenchResult {
        let about =
            |name: &str, base: Option<&str>| About { name: name.into(), about: format!("about {name}"), base: base.map(str::to_owned) };
        let row = |(program, variant, times, instructions): &(&str, &str, &[f64], u64)| BenchRow {
            program: (*program).into(),
            variant: (*variant).into(),
            outcome: BenchOutcome::Measured(figures(times, *instructions)),
        };
        BenchResult {
            schema_version: SCHEMA_VERSION,
            date: "2026-01-31".into(),
            commit: "abc".into(),
            machine: BenchMachine { processor: "P".into(), cores: 2, kernel: "6".into() },
            input: "ref".into(),
            rounds: 5,
            instructions_by: Some("perf".into()),
            instructions_input: train(),
            variants: vec![about("plain", None), about("trodden", Some("plain"))],
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut suite = suite(&[("a", "plain", &[1.0, 1.1], 100), ("a", "trodden", &[2.0], 150)]);
        suite.rows.push(BenchRow { program: "b".into(), variant: "plain".into(), outcome: BenchOutcome::Failed { reason: "no".into() } });
        if let BenchOutcome::Measured(figures) = &mut suite.rows[1].outcome {
            let oracle = OracleVerdict { oracle: "block counters".into(), functions: 3, equal: 3, different: 0 };
            figures.exact = Some(Exact::Checked(vec![oracle]));
        }
        let file = std::env::temp_dir().join(format!("trodden-lab-result-{}.json", std::process::id()));
        std::fs::write(&file, serde_json::to_string(&suite).unwrap()).unwrap();
        let read = BenchResult::read(&file);
        std::fs::write(&file, "{\"schema_version\": 1}").unwrap();
        let old = BenchResult::read(&file).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read.unwrap(), suite);
        assert!(old.contains("schema_version 1"), "{old}");
    }

    #[test]
    fn ratios_are_to_the_base_and_there_only_where_both_were_measured() {
        let mut suite = suite(&[("a", "plain", &[1.0, 2.0, 1.5], 100), ("a", "trodden", &[3.0], 150)]);
        assert_eq!(suite.ratios("a", "trodden").user, Some(2.0));
        assert_eq!(suite.ratios("a", "trodden").least, Some(3.0));
        assert_eq!(suite.ratios("a", "trodden").instructions, Some(1.5));
        assert_eq!(suite.ratios("a", "plain"), Ratios::default());
        if let BenchOutcome::Measured(figures) = &mut suite.rows[1].outcome {
            figures.base_user_s = Some(0.5);
        }
        assert_eq!(suite.ratios("a", "trodden").user, Some(6.0));
        assert_eq!(suite.ratios("a", "trodden").least, None);
        suite.rows[0].outcome = BenchOutcome::Failed { reason: "no".into() };
        assert_eq!(suite.ratios("a", "trodden"), Ratios::default());
    }

    #[test]
    fn nothing_compared_is_not_equal() {
        let oracle = |functions, different| OracleVerdict { oracle: "j".into(), functions, equal: functions - different, different };
        assert!(Exact::Checked(vec![oracle(3, 0)]).is_equal());
        assert!(!Exact::Checked(vec![oracle(3, 0), oracle(3, 1)]).is_equal());
        assert!(!Exact::Checked(vec![]).is_equal());
        assert!(!Exact::Failed("x".into()).is_equal());
    }
}
