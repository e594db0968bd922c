//! Checks counts of the short run against the oracles in `crates/oracle`: LLVM's own profile of the same bitcode, and a counter in every
//! block.

use super::result::{ExactnessCheck, OracleVerdict};
use std::path::Path;
use trodden_corpus::CorpusVariant;
use trodden_corpus::oracle;
use trodden_corpus::steps;
use trodden_corpus::{Corpus, CorpusInput};

pub fn check_counts(corpus: &Corpus, program: &str, variant: &CorpusVariant, oracle: &Path) -> ExactnessCheck {
    match oracle::check_run(corpus, program, variant, CorpusInput::Train, oracle) {
        Ok(text) => parse_verdicts(&text),
        Err(error) => ExactnessCheck::Failed(steps::strip_root(&format!("{error:#}"))),
    }
}

/// Parses verdicts, and adds up each oracle's verdicts over all processes.
fn parse_verdicts(text: &str) -> ExactnessCheck {
    let mut all: Vec<OracleVerdict> = Vec::new();
    for one in text.lines().filter(|l| !l.starts_with(' ')).filter_map(parse_verdict) {
        match all.iter_mut().find(|j| j.oracle == one.oracle) {
            Some(sum) => {
                sum.functions += one.functions;
                sum.equal += one.equal;
                sum.different += one.different;
            }
            None => all.push(one),
        }
    }
    if all.is_empty() { ExactnessCheck::Failed("the oracles printed no verdict".into()) } else { ExactnessCheck::Checked(all) }
}

/// Parses a line such as `lua: block counters: 650 of 650 functions equal (302 executed), 0 differ`.
fn parse_verdict(line: &str) -> Option<OracleVerdict> {
    let (_, rest) = line.split_once(": ")?;
    let (oracle, rest) = rest.split_once(": ")?;
    let (equal, rest) = rest.split_once(" of ")?;
    let (functions, rest) = rest.split_once(" functions equal (")?;
    let different = rest.rsplit_once("), ")?.1.strip_suffix(" differ")?;
    Some(OracleVerdict {
        oracle: oracle.to_owned(),
        functions: functions.parse().ok()?,
        equal: equal.parse().ok()?,
        different: different.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_of_one_oracle_are_summed() {
        let text = "a: block counters: 9 of 10 functions equal (5 executed), 1 differ\n  differs: f: block 3: trodden 1, oracle 2\n\
            a: LLVM's edge profile: 10 of 10 functions equal (5 executed), 0 differ\n  not checked: g (a: b: c.c): 1 of 2 functions equal\n\
            a: block counters: 10 of 10 functions equal (5 executed), 0 differ\n";
        let oracle = |name: &str, functions, equal, different| OracleVerdict { oracle: name.into(), functions, equal, different };
        let expected = vec![oracle("block counters", 20, 19, 1), oracle("LLVM's edge profile", 10, 10, 0)];
        assert_eq!(parse_verdicts(text), ExactnessCheck::Checked(expected));
        assert!(matches!(parse_verdicts("nonsense\n"), ExactnessCheck::Failed(_)));
    }
}
