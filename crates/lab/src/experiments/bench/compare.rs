//! Compares two benchmark results and separates real changes from noise.
//!
//! The compared figures are ratios of a variant to its base. Time ratios are computed round by round: base and variant run one after the
//! other, so a change of the machine affects both. A change of time counts as real if it is at least 1 % and the exact rank test finds it
//! significant at the 1 % level, for which it needs at least five rounds. Instruction counts hardly vary, so a change of 0.2 % counts as
//! real.

use super::result::BenchResult;
use super::statistics::{MedianAndRange, geometric_mean, rank_sum_p_value};
use anyhow::{Result, bail};
use std::fmt::Write;

const SIGNIFICANCE_LEVEL: f64 = 0.01;
/// Smaller changes of time are ignored, because code alignment alone may cause them.
const MIN_TIME_CHANGE_SHARE: f64 = 0.01;
const MIN_INSTRUCTIONS_CHANGE_SHARE: f64 = 0.002;

#[derive(Debug, PartialEq)]
pub struct VariantComparison {
    program: String,
    variant: String,
    time: Option<RatioChange>,
    instructions: Option<RatioChange>,
}

/// A variant's ratio to its base, in the old and in the new result.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RatioChange {
    old: f64,
    new: f64,
    verdict: ComparisonVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ComparisonVerdict {
    Slower,
    Faster,
    Same,
    TooFewRuns,
}

impl VariantComparison {
    pub fn is_slower(&self) -> bool {
        [self.time, self.instructions].iter().flatten().any(|change| change.verdict == ComparisonVerdict::Slower)
    }
}

/// Compares the variants that both results contain. Fails if the results have different inputs or no variant of a program in common.
pub fn compare(old: &BenchResult, new: &BenchResult) -> Result<Vec<VariantComparison>> {
    if old.input != new.input {
        bail!(
            "cannot compare results for different inputs ({} and {}). Measure again with{} --short",
            old.input,
            new.input,
            if old.input == "ref" { "out" } else { "" }
        );
    }
    let same_counter = instruction_source(old) == instruction_source(new);
    let mut all = Vec::new();
    for row in new.rows.iter().filter(|row| new.base_variant_of(&row.variant).is_some()) {
        let (program, variant) = (row.program.as_str(), row.variant.as_str());
        let time = time_change(&time_ratios(old, program, variant), &time_ratios(new, program, variant));
        let counted = old.ratios(program, variant).instructions.zip(new.ratios(program, variant).instructions);
        let instructions = counted.filter(|_| same_counter).map(|(old, new)| RatioChange {
            old,
            new,
            verdict: classify(old, new, MIN_INSTRUCTIONS_CHANGE_SHARE),
        });
        if time.is_some() || instructions.is_some() {
            all.push(VariantComparison { program: program.to_owned(), variant: variant.to_owned(), time, instructions });
        }
    }
    if all.is_empty() {
        bail!("cannot compare the results, because they have no program and variant in common");
    }
    Ok(all)
}

/// Returns the ratios of a variant's time to its base's time, by round.
fn time_ratios(suite: &BenchResult, program: &str, variant: &str) -> Vec<f64> {
    let base = suite.base_variant_of(variant).and_then(|base| suite.figures(program, base));
    // Measurements under callgrind have no rounds.
    let (Some(own), Some(base)) = (suite.figures(program, variant).filter(|f| f.base_user_s.is_none()), base) else { return Vec::new() };
    own.user_s.iter().zip(&base.user_s).filter(|(_, base)| **base > 0.0).map(|(own, base)| own / base).collect()
}

fn time_change(old: &[f64], new: &[f64]) -> Option<RatioChange> {
    if old.is_empty() || new.is_empty() {
        return None;
    }
    let (old_median, new_median) = (MedianAndRange::from_values(old).median, MedianAndRange::from_values(new).median);
    // The smallest p-value that is possible with these sample sizes.
    let min_p_value = rank_sum_p_value(&vec![0.0; old.len()], &vec![1.0; new.len()]);
    let verdict = match () {
        () if min_p_value > SIGNIFICANCE_LEVEL => ComparisonVerdict::TooFewRuns,
        () if rank_sum_p_value(old, new) > SIGNIFICANCE_LEVEL => ComparisonVerdict::Same,
        () => classify(old_median, new_median, MIN_TIME_CHANGE_SHARE),
    };
    Some(RatioChange { old: old_median, new: new_median, verdict })
}

fn classify(old: f64, new: f64, threshold: f64) -> ComparisonVerdict {
    match new / old - 1.0 {
        change if change >= threshold => ComparisonVerdict::Slower,
        change if change <= -threshold => ComparisonVerdict::Faster,
        _ => ComparisonVerdict::Same,
    }
}

/// Renders one line per comparison, and the geometric means.
pub fn render(old: &BenchResult, new: &BenchResult, all: &[VariantComparison]) -> String {
    let mut out = format!("\n{} ({}) -> {} ({})\n", old.date, old.commit, new.date, new.commit);
    let _ = writeln!(
        out,
        "{:<16}{:<28}{:>8}{:>8}{:>8}  {:<14}{:>8}{:>8}{:>8}",
        "program", "variant", "time", "now", "", "", "instr.", "now", ""
    );
    for one in all {
        let _ = writeln!(out, "{}", format_row(&one.program, &one.variant, one.time, one.instructions));
    }
    let mut variants: Vec<&str> = Vec::new();
    all.iter().for_each(|c| {
        if !variants.contains(&c.variant.as_str()) {
            variants.push(&c.variant)
        }
    });
    for variant in variants {
        let of = |part: fn(&VariantComparison) -> Option<RatioChange>| {
            geometric_mean_change(all.iter().filter(|c| c.variant == variant).filter_map(part))
        };
        let _ = writeln!(out, "{}", format_row("geometric mean", variant, of(|c| c.time), of(|c| c.instructions)));
    }
    let _ = writeln!(
        out,
        "\nTime and instructions are ratios to the base. A change of time counts if it is at least 1 % and the exact rank test at 1 % \
            distinguishes the rounds; a change of instructions counts from 0.2 %."
    );
    if instruction_source(old) != instruction_source(new) {
        let _ = writeln!(out, "Instructions are not compared: they were counted by different tools or in different runs.");
    }
    if old.machine != new.machine {
        let _ = writeln!(out, "The machines differ: {} and {}.", old.machine.processor, new.machine.processor);
    }
    out
}

fn geometric_mean_change(changes: impl Iterator<Item = RatioChange>) -> Option<RatioChange> {
    let (old, new): (Vec<f64>, Vec<f64>) = changes.map(|c| (c.old, c.new)).unzip();
    Some(RatioChange { old: geometric_mean(&old)?, new: geometric_mean(&new)?, verdict: ComparisonVerdict::Same })
}

fn format_row(program: &str, variant: &str, time: Option<RatioChange>, instructions: Option<RatioChange>) -> String {
    let cells = |change: Option<RatioChange>| match change {
        None => format!("{:>8}{:>8}{:>8}  {:<14}", "", "", "", ""),
        Some(c) => {
            let word = match c.verdict {
                ComparisonVerdict::Slower => "SLOWER",
                ComparisonVerdict::Faster => "faster",
                ComparisonVerdict::Same => "",
                ComparisonVerdict::TooFewRuns => "too few runs",
            };
            format!("{:>8.3}{:>8.3}{:>+7.1}%  {word:<14}", c.old, c.new, (c.new / c.old - 1.0) * 100.0)
        }
    };
    format!("{program:<16}{variant:<28}{}{}", cells(time), cells(instructions)).trim_end().to_owned()
}

/// Returns the tool that counted instructions, and the input with which it did so.
fn instruction_source(suite: &BenchResult) -> (&Option<String>, &str) {
    (&suite.instructions_by, &suite.instructions_input)
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::create_result;
    use super::*;

    const PLAIN_TIMES: [f64; 5] = [1.0, 1.01, 0.99, 1.0, 1.02];

    fn result_with(trodden: &[f64], instructions: u64) -> BenchResult {
        create_result(&[("a", "plain", &PLAIN_TIMES[..trodden.len()], 1000), ("a", "trodden", trodden, instructions)])
    }

    fn verdicts(old: &BenchResult, new: &BenchResult) -> (ComparisonVerdict, ComparisonVerdict) {
        let found = compare(old, new).unwrap();
        assert_eq!(found.len(), 1, "plain has no base");
        (found[0].time.unwrap().verdict, found[0].instructions.unwrap().verdict)
    }

    #[test]
    fn noise_is_ignored_and_a_shift_is_reported() {
        let old = result_with(&[1.20, 1.22, 1.19, 1.21, 1.20], 1200);
        assert_eq!(verdicts(&old, &result_with(&[1.21, 1.20, 1.22, 1.19, 1.20], 1201)), (ComparisonVerdict::Same, ComparisonVerdict::Same));
        assert_eq!(
            verdicts(&old, &result_with(&[1.30, 1.31, 1.29, 1.30, 1.33], 1210)),
            (ComparisonVerdict::Slower, ComparisonVerdict::Slower)
        );
        assert_eq!(
            verdicts(&old, &result_with(&[1.10, 1.11, 1.09, 1.10, 1.13], 1190)),
            (ComparisonVerdict::Faster, ComparisonVerdict::Faster)
        );
        assert!(compare(&old, &result_with(&[1.30, 1.31, 1.29, 1.30, 1.33], 1200)).unwrap()[0].is_slower());
    }

    #[test]
    fn slower_machine_does_not_change_the_ratio() {
        let old = result_with(&[1.20, 1.22, 1.19, 1.21, 1.20], 1200);
        let twice = |values: &[f64]| values.iter().map(|v| v * 2.0).collect::<Vec<_>>();
        let (plain, trodden) = (twice(&PLAIN_TIMES), twice(&[1.20, 1.22, 1.19, 1.21, 1.20]));
        let new = create_result(&[("a", "plain", &plain, 1000), ("a", "trodden", &trodden, 1200)]);
        assert_eq!(verdicts(&old, &new).0, ComparisonVerdict::Same);
    }

    #[test]
    fn small_change_or_too_few_runs_give_no_verdict() {
        // The change is statistically significant, but less than 1 %.
        assert_eq!(
            verdicts(&result_with(&PLAIN_TIMES, 1000), &result_with(&PLAIN_TIMES.map(|v| v * 1.005), 1000)).0,
            ComparisonVerdict::Same
        );
        assert_eq!(verdicts(&result_with(&[1.2, 1.2, 1.2], 1000), &result_with(&[2.0, 2.0, 2.0], 1000)).0, ComparisonVerdict::TooFewRuns);
    }

    #[test]
    fn incomparable_results_are_rejected() {
        let old = result_with(&PLAIN_TIMES, 1000);
        let short = BenchResult { input: "train".into(), ..old.clone() };
        assert!(compare(&old, &short).unwrap_err().to_string().contains("different inputs"));
        let other = create_result(&[("b", "plain", &PLAIN_TIMES, 1000), ("b", "trodden", &PLAIN_TIMES, 1000)]);
        assert!(compare(&old, &other).unwrap_err().to_string().contains("in common"));
    }

    #[test]
    fn slower_variant_is_marked_in_the_table() {
        let (old, new) = (result_with(&[1.20, 1.22, 1.19, 1.21, 1.20], 1200), result_with(&[1.30, 1.31, 1.29, 1.30, 1.33], 1200));
        let text = render(&old, &new, &compare(&old, &new).unwrap());
        assert!(text.lines().any(|l| l.starts_with("a ") && l.contains("trodden") && l.contains("SLOWER")), "{text}");
    }
}
