//! Counts the branches of a run with callgrind: taken jumps, and conditional branches that a simple predictor mispredicts.
//!
//! Instruction counts do not reflect code layout, but taken jumps do, because processors fetch sequentially. Calls, returns and indirect
//! jumps are not included. The predictor is valgrind's: 16,384 two-bit counters, indexed by address and recent outcomes. It is weaker than
//! the predictors of current processors.

use crate::experiments::show_progress;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use trodden_corpus::{Corpus, CorpusInput};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchCounts {
    /// Number of taken jumps within functions, conditional or not.
    pub taken: u64,
    /// Number of executed conditional branches.
    pub conditional: u64,
    /// Number of mispredicted conditional branches.
    pub mispredicted: u64,
}

pub fn count_branches(corpus: &Corpus, program: &str, build: &str) -> Result<BranchCounts> {
    show_progress(&format!("branches, by callgrind: {program}, {build}"));
    let folder = corpus.folder().join("pgo").join(program).join("callgrind");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
    corpus.run_as(build, program, CorpusInput::Train, &command_prefix(&folder), &[])?;
    let mut all = BranchCounts::default();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let one = parse_counts(&text).with_context(|| format!("{} is not callgrind output in a known format", path.display()))?;
        all.taken += one.taken;
        all.conditional += one.conditional;
        all.mispredicted += one.mispredicted;
    }
    show_progress("");
    Ok(all)
}

/// Returns the words to put before a command. `--dump-instr` is necessary, because callgrind would otherwise omit jumps within a source
/// line.
fn command_prefix(folder: &Path) -> String {
    let words = "valgrind --quiet --tool=callgrind --branch-sim=yes --collect-jumps=yes --dump-instr=yes --callgrind-out-file";
    format!("{words}={}/%p", folder.display())
}

/// Adds up the counts in an output file. Returns `None` if the format is unknown.
fn parse_counts(text: &str) -> Option<BranchCounts> {
    let value = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
    let (names, totals) = (value("events:")?, value("totals:")?);
    let total = |name: &str| names.split(' ').position(|n| n == name).and_then(|at| totals.split(' ').nth(at)?.parse::<u64>().ok());
    let count = |words: &str| words.split([' ', '/']).next()?.parse::<u64>().ok();
    let jumps = text.lines().filter_map(|l| l.strip_prefix("jump=").or(l.strip_prefix("jcnd=")));
    let taken = jumps.map(count).sum::<Option<u64>>()?;
    Some(BranchCounts { taken, conditional: total("Bc")?, mispredicted: total("Bcm")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_totals_are_parsed() {
        let text =
            "events: Ir Bc Bcm Bi Bim\nfn=(1)\n0x10 0 3\njcnd=87456/100000 -36 0 \n* 0 \njump=12 +9 0\n0x20 0 4\ntotals: 1300 225 17 2 1\n";
        assert_eq!(parse_counts(text), Some(BranchCounts { taken: 87_468, conditional: 225, mispredicted: 17 }));
        assert_eq!(parse_counts("events: Ir\ntotals: 5\n"), None);
    }
}
