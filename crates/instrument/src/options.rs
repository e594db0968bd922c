//! How units are to be instrumented: the words of the environment variable `TRODDEN_INSTRUMENT`, which the compiler driver sets.
//!
//! The plugin has no command line of its own; clang hands it none. Words are `key=value`, separated by blanks; [`KNOWN`] lists them.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use trodden_flow::PlanOptions;
use trodden_flow::dag::Entries;
use trodden_flow::schedule::Choices;
use trodden_unit::marks::ADDRESSES_WORD;
use trodden_unit::{Directions, Identity, NoDirections, NoWeights, Weights};

/// Functions with more paths than this are cut. 4096 counters are a page of 32 KB per function at most, and few functions reach it.
const MAX_PATHS: u64 = 4096;

/// The most that can be asked for: larger arrays (128 MB a function) would not link.
const MOST_MAX_PATHS: u64 = 1 << 24;

/// All words.
const KNOWN: [&str; 13] = [
    "scheme=ball-larus",
    "max-paths=NUMBER (1 to 16777216)",
    "chords=on|off",
    "rounds=on|off",
    "early=on|off",
    "reach=doubtful|all",
    "keep=bitcode|map",
    "tier=full|sample|addresses",
    "tails=merged|apart",
    "markers=none|llvm",
    "weights=FILE",
    "facts=FILE",
    "apply=FILE",
];

/// How units are instrumented.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cutting and placement.
    pub plan: PlanOptions,
    /// When counts are made.
    pub choices: Choices,
    /// Count at every call that it was reached, not only at those that might not come back by themselves: so that callers' paths are known too when a
    /// signal ends the program.
    pub reach_all: bool,
    /// Keep the unit's bitcode, so that other variants can be made of it.
    pub keep_bitcode: bool,
    /// Measured frequencies of edges, and the identity of their file.
    pub weights: Option<(Rc<Weights>, Identity)>,
    /// Write what the unit's blocks compute to this file, and make no code.
    pub facts: Option<PathBuf>,
    /// Change the code as these directions say, and count nothing.
    pub apply: Option<Rc<Directions>>,
    /// What is put into the code.
    pub tier: Tier,
    /// Of the tier `addresses`: equal ends of blocks are not merged, so that every block has an address, and the code is a little longer.
    pub tails_apart: bool,
    /// Take LLVM's edge counters, with which the unit was compiled, out of it, and note where they were.
    pub markers: bool,
}

/// What is put into the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Probes that count every path.
    Full,
    /// Probes that count while the image's switch is on; see [`crate::sample`].
    Sample,
    /// Nothing: blocks are marked, so that their addresses are known; see [`crate::addresses`].
    Addresses,
}

/// Words that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum BadOption {
    /// It means nothing.
    #[error("TRODDEN_INSTRUMENT holds `{0}`; known are {known}", known = KNOWN.join(", "))]
    Unknown(String),
    /// Markers are noted where everything is counted.
    #[error(
        "TRODDEN_INSTRUMENT holds markers=llvm and another tier than full: build for an edge profile (--pgo) without --sample or --addresses"
    )]
    MarkersWithoutCounts,
    /// The file of weights cannot be read.
    #[error("the file of weights {file} cannot be read ({source}): give --weights a file that can")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// The file of directions cannot be read.
    #[error("the file of directions {file} cannot be read ({source}): give apply=FILE one that can")]
    UnreadableDirections {
        /// The file.
        file: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// The file of directions is none.
    #[error("{file}: {source}")]
    Directions {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoDirections,
    },
    /// The file of weights is none.
    #[error("{file}: {source}")]
    Weights {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoWeights,
    },
}

impl Options {
    /// Reads the words.
    pub fn parse(words: &str) -> Result<Options, BadOption> {
        let mut options = Options {
            plan: PlanOptions { max_paths: MAX_PATHS, entries: Entries::Shared, chords: true },
            choices: Choices { rounds: false, early: true },
            reach_all: false,
            keep_bitcode: true,
            weights: None,
            facts: None,
            apply: None,
            tier: Tier::Full,
            tails_apart: false,
            markers: false,
        };
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some(("weights", file)) => options.weights = Some(read_weights(Path::new(file))?),
                Some(("apply", file)) => options.apply = Some(read_directions(Path::new(file))?),
                _ => options.apply(word).ok_or_else(|| BadOption::Unknown(word.into()))?,
            }
        }
        if options.markers && options.tier != Tier::Full {
            return Err(BadOption::MarkersWithoutCounts);
        }
        Ok(options)
    }

    fn apply(&mut self, word: &str) -> Option<()> {
        match word.split_once('=')? {
            ("scheme", "ball-larus") => {}
            ("max-paths", n) => self.plan.max_paths = n.parse().ok().filter(|n| (1..=MOST_MAX_PATHS).contains(n))?,
            ("chords", value) => self.plan.chords = switch(value)?,
            ("rounds", value) => self.choices.rounds = switch(value)?,
            ("early", value) => self.choices.early = switch(value)?,
            ("reach", value) => self.reach_all = either(value, "doubtful", "all")?,
            ("keep", value) => self.keep_bitcode = either(value, "map", "bitcode")?,
            ("tier", "full") => self.tier = Tier::Full,
            ("tier", "sample") => self.tier = Tier::Sample,
            ("tier", "addresses") => self.tier = Tier::Addresses,
            ("tails", value) => self.tails_apart = either(value, "merged", "apart")?,
            ("markers", value) => self.markers = either(value, "none", "llvm")?,
            ("facts", file) if !file.is_empty() => self.facts = Some(file.into()),
            _ => return None,
        }
        Some(())
    }

    /// The scheme with everything that shapes the code, as stored in the unit's map.
    pub fn scheme(&self) -> String {
        let on = |is: bool| if is { "on" } else { "off" };
        let (chords, rounds, early) = (on(self.plan.chords), on(self.choices.rounds), on(self.choices.early));
        let reach = if self.reach_all { "all" } else { "doubtful" };
        let tier = match self.tier {
            Tier::Full => String::new(),
            Tier::Sample => " tier=sample".into(),
            Tier::Addresses if self.tails_apart => format!(" {ADDRESSES_WORD} tails=apart"),
            Tier::Addresses => format!(" {ADDRESSES_WORD}"),
        };
        let markers = if self.markers { " markers=llvm" } else { "" };
        let weights = self.weights.as_ref().map_or_else(String::new, |(_, file)| format!(" weights={file}"));
        format!(
            "ball-larus max-paths={} chords={chords} rounds={rounds} early={early} reach={reach}{tier}{markers}{weights}",
            self.plan.max_paths
        )
    }
}

/// `on` or `off`.
fn switch(value: &str) -> Option<bool> {
    either(value, "off", "on")
}

/// Whether a value is the second of two words.
fn either(value: &str, no: &str, yes: &str) -> Option<bool> {
    (value == yes || value == no).then(|| value == yes)
}

fn read_weights(file: &Path) -> Result<(Rc<Weights>, Identity), BadOption> {
    let bytes = std::fs::read(file).map_err(|source| BadOption::Unreadable { file: file.to_owned(), source })?;
    let weights = Weights::from_bytes(&bytes).map_err(|source| BadOption::Weights { file: file.to_owned(), source })?;
    Ok((Rc::new(weights), Identity::of(&bytes)))
}

fn read_directions(file: &Path) -> Result<Rc<Directions>, BadOption> {
    let bytes = std::fs::read(file).map_err(|source| BadOption::UnreadableDirections { file: file.to_owned(), source })?;
    let directions = Directions::from_bytes(&bytes).map_err(|source| BadOption::Directions { file: file.to_owned(), source })?;
    Ok(Rc::new(directions))
}
