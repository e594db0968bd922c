//! The stored form of a benchmark result, which is read to compare, resume and draw it.

use super::statistics::MedianAndRange;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;

pub const SCHEMA_VERSION: u32 = 3;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    pub schema_version: u32,
    /// UTC date, such as 2026-01-31.
    pub date: String,
    pub commit: String,
    pub machine: BenchMachine,
    /// Input of the timed runs: `train` or `ref`.
    pub input: String,
    pub rounds: usize,
    /// Name of the tool that counted instructions; `None` if they were not counted.
    pub instructions_by: Option<String>,
    /// Input of the run whose instructions were counted: `train` or `ref`.
    #[serde(default = "default_instructions_input")]
    pub instructions_input: String,
    pub variants: Vec<VariantInfo>,
    pub rows: Vec<BenchRow>,
}

fn default_instructions_input() -> String {
    "train".into()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariantInfo {
    pub name: String,
    pub about: String,
    /// The variant that this variant is compared with.
    pub base: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchMachine {
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    pub program: String,
    pub variant: String,
    #[serde(flatten)]
    pub outcome: BenchOutcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum BenchOutcome {
    Measured(BenchFigures),
    /// The variant is not available on this machine or for this program.
    Skipped {
        reason: String,
    },
    /// A build or run failed.
    Failed {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchFigures {
    /// User time by round, in seconds.
    pub user_s: Vec<f64>,
    /// Median and range of the user times.
    pub user: MedianAndRange,
    /// Elapsed time by round, in seconds.
    pub wall_s: Vec<f64>,
    /// User time of the base's run, in seconds. `None` if the base's row has it; a variant has its own value only if its input differs from
    /// the base's.
    pub base_user_s: Option<f64>,
    pub instructions: Option<u64>,
    pub code_bytes: Option<u64>,
    /// Maximum memory of a process, in kilobytes.
    pub memory_kb: u64,
    pub build_s: Option<f64>,
    /// True if the output of all runs equals the output of the base.
    pub same_output: bool,
    pub exact: Option<ExactnessCheck>,
    /// Overlap of sampled profiles with the full profile, over all rounds.
    #[serde(default)]
    pub overlap: Option<MedianAndRange>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExactnessCheck {
    Checked(Vec<OracleVerdict>),
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OracleVerdict {
    pub oracle: String,
    pub functions: u64,
    /// Number of functions whose counts are all equal.
    pub equal: u64,
    pub different: u64,
}

impl ExactnessCheck {
    /// Returns true if at least one oracle compared functions and no count differs.
    pub fn is_equal(&self) -> bool {
        match self {
            ExactnessCheck::Checked(oracles) => !oracles.is_empty() && oracles.iter().all(|j| j.different == 0 && j.functions > 0),
            ExactnessCheck::Failed(_) => false,
        }
    }
}

impl BenchRow {
    /// Returns the measurements; `None` if the variant was skipped or failed.
    pub fn figures(&self) -> Option<&BenchFigures> {
        match &self.outcome {
            BenchOutcome::Measured(figures) => Some(figures),
            BenchOutcome::Skipped { .. } | BenchOutcome::Failed { .. } => None,
        }
    }
}

/// Ratios of a variant's figures to its base's; `None` if either was not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct VariantRatios {
    pub user: Option<f64>,
    /// Ratio of the minimum user times, which are least affected by other load on the machine. `None` if the base was not timed in the same
    /// rounds.
    pub least: Option<f64>,
    pub instructions: Option<f64>,
    pub code: Option<f64>,
    pub memory: Option<f64>,
    pub build: Option<f64>,
}

impl BenchResult {
    /// Reads a stored result. Fails if it has a different schema version.
    pub fn read(path: &Path) -> Result<BenchResult> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("{} is not valid JSON", path.display()))?;
        if value["schema_version"] != SCHEMA_VERSION {
            bail!(
                "{} has schema_version {}, but this trodden-lab reads {SCHEMA_VERSION}. Measure again",
                path.display(),
                value["schema_version"]
            );
        }
        serde_json::from_value(value).with_context(|| format!("{} is not a result of `trodden-lab experiment bench`", path.display()))
    }

    /// Returns the programs in the order of the rows.
    pub fn programs(&self) -> Vec<&str> {
        let mut programs: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !programs.contains(&row.program.as_str()) {
                programs.push(&row.program);
            }
        }
        programs
    }

    pub fn figures(&self, program: &str, variant: &str) -> Option<&BenchFigures> {
        self.rows.iter().find(|r| r.program == program && r.variant == variant)?.figures()
    }

    pub fn base_variant_of(&self, variant: &str) -> Option<&str> {
        self.variants.iter().find(|v| v.name == variant)?.base.as_deref()
    }

    pub fn ratios(&self, program: &str, variant: &str) -> VariantRatios {
        let base = self.base_variant_of(variant).and_then(|base| self.figures(program, base));
        let (Some(own), Some(base)) = (self.figures(program, variant), base) else { return VariantRatios::default() };
        let over = |own: f64, base: f64| (base > 0.0).then_some(own / base);
        let count = |own: Option<u64>, base: Option<u64>| over(own? as f64, base? as f64);
        VariantRatios {
            user: over(own.user.median, own.base_user_s.unwrap_or(base.user.median)),
            least: own.base_user_s.is_none().then(|| over(own.user.min, base.user.min)).flatten(),
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

    pub fn figures(user_s: &[f64], instructions: u64) -> BenchFigures {
        BenchFigures {
            user_s: user_s.to_vec(),
            user: MedianAndRange::from_values(user_s),
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

    /// Returns a result with the variants plain and trodden, for tests. Each row has a program, a variant, user times and the number of
    /// instructions.
    pub fn create_result(rows: &[(&str, &str, &[f64], u64)]) -> BenchResult {
        let about = |name: &str, base: Option<&str>| VariantInfo {
            name: name.into(),
            about: format!("about {name}"),
            base: base.map(str::to_owned),
        };
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
            instructions_input: default_instructions_input(),
            variants: vec![about("plain", None), about("trodden", Some("plain"))],
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn written_result_is_read_back() {
        let mut suite = create_result(&[("a", "plain", &[1.0, 1.1], 100), ("a", "trodden", &[2.0], 150)]);
        suite.rows.push(BenchRow { program: "b".into(), variant: "plain".into(), outcome: BenchOutcome::Failed { reason: "no".into() } });
        if let BenchOutcome::Measured(figures) = &mut suite.rows[1].outcome {
            let oracle = OracleVerdict { oracle: "block counters".into(), functions: 3, equal: 3, different: 0 };
            figures.exact = Some(ExactnessCheck::Checked(vec![oracle]));
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
    fn ratio_needs_measurements_of_variant_and_base() {
        let mut suite = create_result(&[("a", "plain", &[1.0, 2.0, 1.5], 100), ("a", "trodden", &[3.0], 150)]);
        assert_eq!(suite.ratios("a", "trodden").user, Some(2.0));
        assert_eq!(suite.ratios("a", "trodden").least, Some(3.0));
        assert_eq!(suite.ratios("a", "trodden").instructions, Some(1.5));
        assert_eq!(suite.ratios("a", "plain"), VariantRatios::default());
        if let BenchOutcome::Measured(figures) = &mut suite.rows[1].outcome {
            figures.base_user_s = Some(0.5);
        }
        assert_eq!(suite.ratios("a", "trodden").user, Some(6.0));
        assert_eq!(suite.ratios("a", "trodden").least, None);
        suite.rows[0].outcome = BenchOutcome::Failed { reason: "no".into() };
        assert_eq!(suite.ratios("a", "trodden"), VariantRatios::default());
    }

    #[test]
    fn counts_that_were_not_compared_are_not_equal() {
        let oracle = |functions, different| OracleVerdict { oracle: "j".into(), functions, equal: functions - different, different };
        assert!(ExactnessCheck::Checked(vec![oracle(3, 0)]).is_equal());
        assert!(!ExactnessCheck::Checked(vec![oracle(3, 0), oracle(3, 1)]).is_equal());
        assert!(!ExactnessCheck::Checked(vec![]).is_equal());
        assert!(!ExactnessCheck::Failed("x".into()).is_equal());
    }
}
