//! Branches of a run, counted by callgrind: how many jumps were taken, and how many conditional branches a simple predictor gets wrong.
//!
//! Instructions do not show the layout of code; taken jumps do: processors fetch straight on. Calls and returns are no
//! jumps here, nor are indirect ones. The predictor is valgrind's: 16,384 two-bit counters, by address and the last
//! outcomes, weaker than what is built today.

use crate::experiments::progress;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use trodden_corpus::{Corpus, Input};

/// What branches did in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    /// Jumps within functions that were taken, conditional or not.
    pub taken: u64,
    /// Conditional branches.
    pub conditional: u64,
    /// Of those, guessed wrong by the predictor.
    pub mispredicted: u64,
}

/// Counts the branches of a build's short run.
///
/// # Errors
/// The run failed, or callgrind wrote something else than it is known to.
pub fn of_run(corpus: &Corpus, program: &str, build: &str) -> Result<Branches> {
    progress(&format!("branches, by callgrind: {program}, {build}"));
    let folder = corpus.folder().join("pgo").join(program).join("callgrind");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    corpus.run_as(build, program, Input::Train, &runner(&folder), &[])?;
    let mut all = Branches::default();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let one = read(&text).with_context(|| format!("{} is no output of callgrind that is known", path.display()))?;
        all.taken += one.taken;
        all.conditional += one.conditional;
        all.mispredicted += one.mispredicted;
    }
    progress("");
    Ok(all)
}

/// Addresses are asked for because jumps within a line of the source are left out otherwise.
fn runner(folder: &Path) -> String {
    let words = "valgrind --quiet --tool=callgrind --branch-sim=yes --collect-jumps=yes --dump-instr=yes --callgrind-out-file";
    format!("{words}={}/%p", folder.display())
}

/// Sums a file up.
fn read(text: &str) -> Option<Branches> {
    let value = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
    let (names, totals) = (value("events:")?, value("totals:")?);
    let total = |name: &str| names.split(' ').position(|n| n == name).and_then(|at| totals.split(' ').nth(at)?.parse::<u64>().ok());
    let count = |words: &str| words.split([' ', '/']).next()?.parse::<u64>().ok();
    let jumps = text.lines().filter_map(|l| l.strip_prefix("jump=").or(l.strip_prefix("jcnd=")));
    let taken = jumps.map(count).sum::<Option<u64>>()?;
    Some(Branches { taken, conditional: total("Bc")?, mispredicted: total("Bcm")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_totals_are_read() {
        let text =
            "events: Ir Bc Bcm Bi Bim\nfn=(1)\n0x10 0 3\njcnd=87456/100000 -36 0 \n* 0 \njump=12 +9 0\n0x20 0 4\ntotals: 1300 225 17 2 1\n";
        assert_eq!(read(text), Some(Branches { taken: 87_468, conditional: 225, mispredicted: 17 }));
        assert_eq!(read("events: Ir\ntotals: 5\n"), None);
    }
}
