//! Decoding for each kind of observation, one module for each kind that needs it, named as in [`trodden_unit::observe`].
//!
//! If a kind's words are not simply its counters, [`counters`] decodes them. A kind that omits something or counts differently reports that
//! through an [`InexactFinder`]; all reasons are variants of [`Inexact`].

pub(crate) mod bursts;
pub(crate) mod interesting;
pub(crate) mod part;
pub(crate) mod segments;
pub(crate) mod stream;
pub(crate) mod sums;
pub(crate) mod tables;
pub(crate) mod unknown;
pub(crate) mod watched;

use std::ops::Range;
use trodden_unit::{FunctionMap, MapError, Storage, UnitMap};

/// Returns the range of a function's words that must be decoded; `None` if each word is the counter of its index.
pub(crate) fn coded_range(storage: &Storage) -> Option<Range<u64>> {
    match storage {
        Storage::Interesting(words) => Some(words.range()),
        Storage::Labels(words) => Some(words.first_word..words.first_word.saturating_add(words.words)),
        Storage::Events(words) => Some(words.range()),
        Storage::Array | Storage::Table(_) | Storage::Segments(_) => None,
    }
}

/// Returns the counter that each word stands for; `None` for words of paths that are not counted here.
pub(crate) fn counters(function: &FunctionMap, of: &[u64]) -> Result<Vec<Option<u64>>, MapError> {
    match &function.storage {
        Storage::Interesting(words) => Ok(interesting::counters(function, words, of)),
        Storage::Labels(words) => part::counters(function, words, of),
        Storage::Events(words) => stream::counters(function, words, of),
        Storage::Array | Storage::Table(_) | Storage::Segments(_) => Ok(of.iter().copied().map(Some).collect()),
    }
}

/// Looks for reasons why counts are inexact in the units of a profile.
pub(crate) trait InexactFinder {
    /// Examines a unit.
    fn unit(&mut self, _map: &UnitMap) {}

    /// Examines a function of a unit that is not a copy's, with the number of executions whose path is unknown.
    fn function(&mut self, _map: &UnitMap, _function: &FunctionMap, _unattributed: u64) {}

    /// Returns the reasons found.
    fn reasons(&mut self) -> Vec<Inexact>;
}

/// Returns a finder for each reason, in the order of reports.
pub(crate) fn finders() -> Vec<Box<dyn InexactFinder>> {
    vec![
        Box::new(bursts::Finder::default()),
        Box::new(segments::Finder::default()),
        Box::new(interesting::Finder::default()),
        Box::new(tables::Finder::default()),
        Box::new(unknown::Finder::default()),
        Box::new(watched::Finder::default()),
        Box::new(part::Finder::default()),
    ]
}

/// Number of functions, and the sum of a quantity over them.
#[derive(Default)]
pub(crate) struct Tally {
    pub functions: u64,
    pub sum: u64,
}

impl Tally {
    pub fn add(&mut self, number: u64) {
        self.functions += 1;
        self.sum = self.sum.saturating_add(number);
    }
}

/// A reason why counts are inexact or incomplete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inexact {
    /// The numbering omits some paths.
    #[error(
        "only some of the paths of {} are counted (scheme {scheme}); the path of {} is unknown; record a build without \
            --interesting to count all paths",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    Partial {
        /// Name of the numbering.
        scheme: String,
        /// Number of functions that count only some of their paths.
        functions: u64,
        /// Number of executions whose path is unknown.
        executions: u64,
    },
    /// Number of functions that count interprocedural segments instead of their paths.
    #[error(
        "the paths of {} are counted as ends of interprocedural segments (`trodden segments` shows them), not here; a program made without \
            --segments counts them here",
        plural(*.0, "function")
    )]
    Segments(u64),
    /// Tables overflowed.
    #[error(
        "the tables of {} were full; the path of {} is unknown; build with a larger table-slots=N in TRODDEN_INSTRUMENT, or without it",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    TableFull {
        /// Number of functions.
        functions: u64,
        /// Number of executions whose path is unknown.
        executions: u64,
    },
    /// Number of units that do not count the paths that were known to the build.
    #[error("{} only paths that were unknown at the time of the build (--residual); {EXACTLY}", units_count(*.0))]
    Residual(u64),
    /// Number of units that count only paths that match an expression.
    #[error("{} only paths that match the expression (--watch); {EXACTLY}", units_count(*.0))]
    Watched(u64),
    /// Only interesting paths are counted separately.
    #[error(
        "only interesting paths of {} are counted separately (--interesting, scheme {scheme}); {} of their other paths are counted \
            together; functions without interesting paths are not counted",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    Interesting {
        /// Name of the numbering.
        scheme: String,
        /// Number of such functions.
        functions: u64,
        /// Number of executions of their other paths, which are counted together.
        executions: u64,
    },
    /// Counts of interesting paths may include executions of other paths.
    #[error(
        "the scheme {scheme} counts {} of {} as interesting ones; use ppp or known-table for exact counts",
        plural(*.aliases, "other path"),
        plural(*.functions, "function")
    )]
    Aliases {
        /// Name of the numbering.
        scheme: String,
        /// Number of functions with such paths.
        functions: u64,
        /// Number of paths found to share the counter of an interesting one, among those that were tried.
        aliases: u64,
    },
    /// Number of functions whose numberings were tested on random paths instead of proven.
    #[error("the numbering of {} has too many paths for a proof; it was tested on random paths", plural(*.0, "function"))]
    Unproven(u64),
    /// Number of units of a copy that counts only a part of the paths.
    #[error(
        "{} to one of several copies, each of which counts some of the paths; {EXACTLY}",
        plural_verb(*.0, "unit", "belongs", "belong")
    )]
    Copy(u64),
    /// Number of units that count edges instead of paths.
    #[error("{} edges (--divide edges) instead of paths: each path is one edge", units_count(*.0))]
    Edges(u64),
    /// Number of differences between copies that should have run the same execution.
    #[error(
        "the copies that counted together did not run the same execution: they differ in {}, so counts of several executions are mixed \
            here; `trodden repeatable -- COMMAND` checks whether the program does the same each time",
        plural(*.0, "place")
    )]
    Diverged(u64),
    /// Linkage names of functions of a sampled program that are never sampled.
    #[error(
        "never sampled, so that none of their paths are here, however often they are executed: {} (they call setjmp, or have \
            code that must not be duplicated; `trodden info --json PROGRAM` says which); build without --sample to count them",
        first_few(.0)
    )]
    NotSampled(Vec<String>),
    /// Number of threads whose counts could not be written.
    #[error(
        "the counts of {} are lost: they could not be written; free space or raise ulimit -f, and record again",
        plural(*.0, "thread")
    )]
    Lost(u64),
    /// Number of copies that counted together and were all ended by a signal.
    #[error(
        "a signal ended the {0} copies that counted together, each at a different place, so counts of different functions are not \
            consistent; record without --copies to see where one program was"
    )]
    Interrupted(u64),
}

/// Added if only some paths are counted.
const EXACTLY: &str = "these are counted exactly";

fn units_count(units: u64) -> String {
    plural_verb(units, "unit", "counts", "count")
}

/// Lists the first few names and the number of the others.
fn first_few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

/// Formats a number of things: `1 unit`, `2 units`.
fn plural(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats a number of things with a verb: `1 unit counts`, `2 units count`.
fn plural_verb(number: u64, noun: &str, one: &str, many: &str) -> String {
    format!("{} {}", plural(number, noun), if number == 1 { one } else { many })
}
