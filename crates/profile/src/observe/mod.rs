//! What the counters of each kind of observation mean: one module for each kind that needs one, under the name that it has in
//! [`trodden_unit::observe`].
//!
//! A kind whose words do not stand for the counters of their numbers says for which they do ([`counters`]). One that leaves something
//! out, or counts differently, says so ([`InexactFinder`]); the reasons in words are all here ([`Inexact`]). A kind whose words are counts
//! of all paths needs nothing of this.

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

/// The words of a function that stand for other counters than their numbers say, if it has any, as a range.
pub(crate) fn coded_range(storage: &Storage) -> Option<Range<u64>> {
    match storage {
        Storage::Interesting(words) => Some(words.range()),
        Storage::Labels(words) => Some(words.first_word..words.first_word.saturating_add(words.words)),
        Storage::Events(words) => Some(words.range()),
        Storage::Array | Storage::Table(_) | Storage::Segments(_) => None,
    }
}

/// The counters for which words of that range stand; `None` for a word that belongs to no path that is counted here.
pub(crate) fn counters(function: &FunctionMap, of: &[u64]) -> Result<Vec<Option<u64>>, MapError> {
    match &function.storage {
        Storage::Interesting(words) => Ok(interesting::counters(function, words, of)),
        Storage::Labels(words) => part::counters(function, words, of),
        Storage::Events(words) => stream::counters(function, words, of),
        Storage::Array | Storage::Table(_) | Storage::Segments(_) => Ok(of.iter().copied().map(Some).collect()),
    }
}

/// Collects, over the units of a profile, what makes counts inexact.
pub(crate) trait InexactFinder {
    /// A unit.
    fn unit(&mut self, _map: &UnitMap) {}

    /// A function of a unit that is no copy's, with its executions whose path is not known.
    fn function(&mut self, _map: &UnitMap, _function: &FunctionMap, _unattributed: u64) {}

    /// The reasons that were found.
    fn reasons(&mut self) -> Vec<Inexact>;
}

/// One for each reason, in the order of reports.
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

/// Functions of one kind, and a number that belongs to them.
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

/// A reason why counts are not exact, or not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inexact {
    /// The scheme leaves paths out.
    #[error(
        "only some of the paths of {} are counted (scheme {scheme}); the path of {} is unknown; record a build without \
            --interesting to count all paths",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    Partial {
        /// Its name.
        scheme: String,
        /// Functions with some of their paths counted.
        functions: u64,
        /// Executions whose path is unattributed.
        executions: u64,
    },
    /// So many functions count interprocedural segments in the place of their own paths.
    #[error(
        "the paths of {} are counted as ends of interprocedural segments (`trodden segments` shows them), not here; a program made without \
            --segments counts them here",
        plural(*.0, "function")
    )]
    Segments(u64),
    /// Tables were full.
    #[error(
        "the tables of {} were full; the path of {} is unknown; build with a greater table-slots=N in TRODDEN_INSTRUMENT, or without it",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    TableFull {
        /// Number of functions.
        functions: u64,
        /// Executions whose path is unattributed.
        executions: u64,
    },
    /// Paths that the build knew are not counted, in so many units.
    #[error("{} only paths that were unknown at the time of the build (--residual); {EXACTLY}", count(*.0))]
    Residual(u64),
    /// Only paths that match an expression are counted, in so many units.
    #[error("{} only paths that match the expression (--watch); {EXACTLY}", count(*.0))]
    Watched(u64),
    /// Only interesting paths are counted separately.
    #[error(
        "only interesting paths of {} are counted separately (--interesting, scheme {scheme}); {} of their other paths are counted \
            together; functions without interesting paths are not counted",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    Interesting {
        /// The numbering.
        scheme: String,
        /// Functions counted so.
        functions: u64,
        /// Executions of their other paths, counted together.
        executions: u64,
    },
    /// Counts of interesting paths may include executions of other paths.
    #[error(
        "the scheme {scheme} counts {} of {} as interesting ones; use ppp or known-table for exact counts",
        plural(*.aliases, "other path"),
        plural(*.functions, "function")
    )]
    Aliases {
        /// The numbering.
        scheme: String,
        /// Functions with such paths.
        functions: u64,
        /// Paths found to share the number of another path, among those that were tried.
        aliases: u64,
    },
    /// Numberings of so many functions were tested on random paths and not proven.
    #[error("the numbering of {} has too many paths for a proof; it was tested on random paths", plural(*.0, "function"))]
    Unproven(u64),
    /// So many units are of one of several copies, each of which counts a part of the paths.
    #[error(
        "{} to one of several copies, each of which counts some of the paths; {EXACTLY}",
        plural_verb(*.0, "unit", "belongs", "belong")
    )]
    Copy(u64),
    /// Edges are counted instead of paths, in so many units.
    #[error("{} edges (--divide edges) instead of paths: each path is one edge", count(*.0))]
    Edges(u64),
    /// The copies that counted together did not run the same execution, but differ in so many places.
    #[error(
        "the copies that counted together did not run the same execution: they differ in {}, so counts of several executions are mixed \
            here; `trodden repeatable -- COMMAND` checks whether the program does the same each time",
        plural(*.0, "place")
    )]
    Diverged(u64),
    /// Functions of a sampled program that are not sampled, by their linkage names.
    #[error(
        "never sampled, so that none of their paths are here, however often they are executed: {} (they call setjmp, or have \
            code that must not be duplicated; `trodden info --all PROGRAM` says which); build without --sample to count them",
        some(.0)
    )]
    NotSampled(Vec<String>),
    /// Counts of so many threads could not be written.
    #[error(
        "the counts of {} are lost: they could not be written; free space or raise ulimit -f, and record again",
        plural(*.0, "thread")
    )]
    Lost(u64),
    /// A signal ended all copies that counted together, so many.
    #[error(
        "a signal ended the {0} copies that counted together, each at another place, so counts of different functions are not \
            consistent; record without --copies to see where one program was"
    )]
    Interrupted(u64),
}

/// What is said of paths that are counted while others are not.
const EXACTLY: &str = "these are counted exactly";

fn count(units: u64) -> String {
    plural_verb(units, "unit", "counts", "count")
}

/// The first of some names, and how many more there are.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

/// A number of things: `1 unit`, `2 units`.
fn plural(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A number of things with the verb that belongs to it: `1 unit counts`, `2 units count`.
fn plural_verb(number: u64, noun: &str, one: &str, many: &str) -> String {
    format!("{} {}", plural(number, noun), if number == 1 { one } else { many })
}
