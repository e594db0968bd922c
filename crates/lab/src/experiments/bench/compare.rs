//! Two results beside each other: what has really changed, and what is noise.
//!
//! Compared are costs: a variant's figure over its base's. For times that is done round by round, since base and
//! variant ran one after the other: so another machine, or another mood of one, moves both. A change of time is real if
//! the rounds of the two results are distinguished by the exact test of ranks at 1 % (five rounds at least: fewer cannot
//! be), and if it is 1 % at least. Instructions hardly vary: there 0.2 % is enough. What has no base is not checked.

use super::result::BenchResult;
use super::statistics::{Spread, geometric_mean, rank_test};
use anyhow::{Result, bail};
use std::fmt::Write;

/// How likely chance may be.
const CHANCE: f64 = 0.01;
/// Changes of time below this are of no interest, and may come from where code happens to lie.
const LEAST_TIME: f64 = 0.01;
/// The same of instructions.
const LEAST_INSTRUCTIONS: f64 = 0.002;

/// A variant of a program in two results.
#[derive(Debug, PartialEq)]
pub struct Comparison {
    program: String,
    variant: String,
    time: Option<Change>,
    instructions: Option<Change>,
}

/// A cost then and now.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    old: f64,
    new: f64,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Slower,
    Faster,
    Same,
    TooFewRuns,
}

impl Comparison {
    /// Whether it has really become slower.
    pub fn is_slower(&self) -> bool {
        [self.time, self.instructions].iter().flatten().any(|change| change.verdict == Verdict::Slower)
    }
}

/// Compares what both results have.
///
/// # Errors
/// They are of different runs, or have nothing in common.
pub fn compare(old: &BenchResult, new: &BenchResult) -> Result<Vec<Comparison>> {
    if old.input != new.input {
        bail!(
            "the results are of different runs ({} and {}): measure with{} --short",
            old.input,
            new.input,
            if old.input == "ref" { "out" } else { "" }
        );
    }
    let same_counter = counted(old) == counted(new);
    let mut all = Vec::new();
    for row in new.rows.iter().filter(|row| new.base_of(&row.variant).is_some()) {
        let (program, variant) = (row.program.as_str(), row.variant.as_str());
        let time = time_change(&costs(old, program, variant), &costs(new, program, variant));
        let counted = old.ratios(program, variant).instructions.zip(new.ratios(program, variant).instructions);
        let instructions =
            counted.filter(|_| same_counter).map(|(old, new)| Change { old, new, verdict: direction(old, new, LEAST_INSTRUCTIONS) });
        if time.is_some() || instructions.is_some() {
            all.push(Comparison { program: program.to_owned(), variant: variant.to_owned(), time, instructions });
        }
    }
    if all.is_empty() {
        bail!("the results have no program and variant in common");
    }
    Ok(all)
}

/// A variant's time over its base's, in each round.
fn costs(suite: &BenchResult, program: &str, variant: &str) -> Vec<f64> {
    let base = suite.base_of(variant).and_then(|base| suite.figures(program, base));
    // Callgrind's run has no rounds.
    let (Some(own), Some(base)) = (suite.figures(program, variant).filter(|f| f.base_user_s.is_none()), base) else { return Vec::new() };
    own.user_s.iter().zip(&base.user_s).filter(|(_, base)| **base > 0.0).map(|(own, base)| own / base).collect()
}

fn time_change(old: &[f64], new: &[f64]) -> Option<Change> {
    if old.is_empty() || new.is_empty() {
        return None;
    }
    let (was, is) = (Spread::from_values(old).median, Spread::from_values(new).median);
    // The least that any samples of these sizes could give.
    let ever = rank_test(&vec![0.0; old.len()], &vec![1.0; new.len()]);
    let verdict = match () {
        () if ever > CHANCE => Verdict::TooFewRuns,
        () if rank_test(old, new) > CHANCE => Verdict::Same,
        () => direction(was, is, LEAST_TIME),
    };
    Some(Change { old: was, new: is, verdict })
}

fn direction(old: f64, new: f64, least: f64) -> Verdict {
    match new / old - 1.0 {
        change if change >= least => Verdict::Slower,
        change if change <= -least => Verdict::Faster,
        _ => Verdict::Same,
    }
}

/// A line for each, and the means.
pub fn render(old: &BenchResult, new: &BenchResult, all: &[Comparison]) -> String {
    let mut out = format!("\n{} ({}) -> {} ({})\n", old.date, old.commit, new.date, new.commit);
    let _ = writeln!(
        out,
        "{:<16}{:<28}{:>8}{:>8}{:>8}  {:<14}{:>8}{:>8}{:>8}",
        "program", "variant", "time", "now", "", "", "instr.", "now", ""
    );
    for one in all {
        let _ = writeln!(out, "{}", line(&one.program, &one.variant, one.time, one.instructions));
    }
    let mut variants: Vec<&str> = Vec::new();
    all.iter().for_each(|c| {
        if !variants.contains(&c.variant.as_str()) {
            variants.push(&c.variant)
        }
    });
    for variant in variants {
        let of = |part: fn(&Comparison) -> Option<Change>| mean(all.iter().filter(|c| c.variant == variant).filter_map(part));
        let _ = writeln!(out, "{}", line("geometric mean", variant, of(|c| c.time), of(|c| c.instructions)));
    }
    let _ = writeln!(
        out,
        "\nTime and instructions over the base's. A change of time counts if the rounds differ by the exact test of ranks (1 %) and by 1 \
            % at least, one of instructions by 0.2 %."
    );
    if counted(old) != counted(new) {
        let _ = writeln!(out, "Instructions were counted by different means, or of different runs, and are not compared.");
    }
    if old.machine != new.machine {
        let _ = writeln!(out, "The machines differ: {} and {}.", old.machine.processor, new.machine.processor);
    }
    out
}

fn mean(changes: impl Iterator<Item = Change>) -> Option<Change> {
    let (old, new): (Vec<f64>, Vec<f64>) = changes.map(|c| (c.old, c.new)).unzip();
    Some(Change { old: geometric_mean(&old)?, new: geometric_mean(&new)?, verdict: Verdict::Same })
}

fn line(program: &str, variant: &str, time: Option<Change>, instructions: Option<Change>) -> String {
    let cells = |change: Option<Change>| match change {
        None => format!("{:>8}{:>8}{:>8}  {:<14}", "", "", "", ""),
        Some(c) => {
            let word = match c.verdict {
                Verdict::Slower => "SLOWER",
                Verdict::Faster => "faster",
                Verdict::Same => "",
                Verdict::TooFewRuns => "too few runs",
            };
            format!("{:>8.3}{:>8.3}{:>+7.1}%  {word:<14}", c.old, c.new, (c.new / c.old - 1.0) * 100.0)
        }
    };
    format!("{program:<16}{variant:<28}{}{}", cells(time), cells(instructions)).trim_end().to_owned()
}

/// Who counted instructions, in which run.
fn counted(suite: &BenchResult) -> (&Option<String>, &str) {
    (&suite.instructions_by, &suite.instructions_input)
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::suite;
    use super::*;

    const PLAIN: [f64; 5] = [1.0, 1.01, 0.99, 1.0, 1.02];

    fn with(trodden: &[f64], instructions: u64) -> BenchResult {
        suite(&[("a", "plain", &PLAIN[..trodden.len()], 1000), ("a", "trodden", trodden, instructions)])
    }

    fn verdicts(old: &BenchResult, new: &BenchResult) -> (Verdict, Verdict) {
        let found = compare(old, new).unwrap();
        assert_eq!(found.len(), 1, "plain has no base");
        (found[0].time.unwrap().verdict, found[0].instructions.unwrap().verdict)
    }

    #[test]
    fn noise_is_no_change_and_a_shift_is() {
        let old = with(&[1.20, 1.22, 1.19, 1.21, 1.20], 1200);
        assert_eq!(verdicts(&old, &with(&[1.21, 1.20, 1.22, 1.19, 1.20], 1201)), (Verdict::Same, Verdict::Same));
        assert_eq!(verdicts(&old, &with(&[1.30, 1.31, 1.29, 1.30, 1.33], 1210)), (Verdict::Slower, Verdict::Slower));
        assert_eq!(verdicts(&old, &with(&[1.10, 1.11, 1.09, 1.10, 1.13], 1190)), (Verdict::Faster, Verdict::Faster));
        assert!(compare(&old, &with(&[1.30, 1.31, 1.29, 1.30, 1.33], 1200)).unwrap()[0].is_slower());
    }

    #[test]
    fn a_slower_machine_moves_the_base_too() {
        let old = with(&[1.20, 1.22, 1.19, 1.21, 1.20], 1200);
        let twice = |values: &[f64]| values.iter().map(|v| v * 2.0).collect::<Vec<_>>();
        let (plain, trodden) = (twice(&PLAIN), twice(&[1.20, 1.22, 1.19, 1.21, 1.20]));
        let new = suite(&[("a", "plain", &plain, 1000), ("a", "trodden", &trodden, 1200)]);
        assert_eq!(verdicts(&old, &new).0, Verdict::Same);
    }

    #[test]
    fn a_change_that_is_small_or_seen_in_few_runs_is_none() {
        // A certain difference, but less than 1 %.
        assert_eq!(verdicts(&with(&PLAIN, 1000), &with(&PLAIN.map(|v| v * 1.005), 1000)).0, Verdict::Same);
        assert_eq!(verdicts(&with(&[1.2, 1.2, 1.2], 1000), &with(&[2.0, 2.0, 2.0], 1000)).0, Verdict::TooFewRuns);
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let old = with(&PLAIN, 1000);
        let short = BenchResult { input: "train".into(), ..old.clone() };
        assert!(compare(&old, &short).unwrap_err().to_string().contains("different runs"));
        let other = suite(&[("b", "plain", &PLAIN, 1000), ("b", "trodden", &PLAIN, 1000)]);
        assert!(compare(&old, &other).unwrap_err().to_string().contains("in common"));
    }

    #[test]
    fn the_table_says_who_is_slower() {
        let (old, new) = (with(&[1.20, 1.22, 1.19, 1.21, 1.20], 1200), with(&[1.30, 1.31, 1.29, 1.30, 1.33], 1200));
        let text = render(&old, &new, &compare(&old, &new).unwrap());
        assert!(text.lines().any(|l| l.starts_with("a ") && l.contains("trodden") && l.contains("SLOWER")), "{text}");
    }
}
