//! Decoders for each kind of observation, and checks for inexact counts. The modules have the same names as in [`trodden_unit::observe`].
//!
//! A probe counts in a word of the unit's memory. For most kinds of observation, a word's index is the index of the counter; for the
//! others, [`translate_words`] translates it. Kinds whose counts are inexact or incomplete report the reason through an [`InexactFinder`];
//! all reasons are variants of [`InexactnessReason`].

pub(crate) mod bursts;
pub(crate) mod interesting;
pub(crate) mod iterations;
pub(crate) mod part;
pub(crate) mod segments;
pub(crate) mod stream;
pub(crate) mod sums;
pub(crate) mod tables;
pub(crate) mod unknown;
pub(crate) mod watched;

use std::ops::Range;
use trodden_unit::{FunctionMap, MapError, Storage, UnitMap};

/// Returns the range of a function's words that [`translate_words`] must translate; `None` if the index of each word is the index of its
/// counter.
pub(crate) fn word_range_to_translate(storage: &Storage) -> Option<Range<u64>> {
    match storage {
        Storage::Interesting(words) => Some(words.range()),
        Storage::Labels(words) => Some(words.first_word..words.first_word.saturating_add(words.words)),
        Storage::Events(words) => Some(words.range()),
        Storage::Array | Storage::Table(_) | Storage::Segments(_) | Storage::Iterations(_) => None,
    }
}

/// Translates indices of words to indices of counters. The result is `None` for a word that belongs to no counted path.
pub(crate) fn translate_words(function: &FunctionMap, indices: &[u64]) -> Result<Vec<Option<u64>>, MapError> {
    match &function.storage {
        Storage::Interesting(words) => Ok(interesting::translate_words(function, words, indices)),
        Storage::Labels(words) => part::translate_words(function, words, indices),
        Storage::Events(words) => stream::translate_words(function, words, indices),
        Storage::Array | Storage::Table(_) | Storage::Segments(_) | Storage::Iterations(_) => {
            Ok(indices.iter().copied().map(Some).collect())
        }
    }
}

/// Examines the units of a profile for a reason why their counts are inexact.
pub(crate) trait InexactFinder {
    fn visit_unit(&mut self, _map: &UnitMap) {}

    /// Examines a function. `unattributed` is the number of its executions whose path is unknown. Not called for functions of instrumented
    /// copies, which count only some of the paths.
    fn visit_function(&mut self, _map: &UnitMap, _function: &FunctionMap, _unattributed: u64) {}

    fn collect_reasons(&mut self) -> Vec<InexactnessReason>;
}

/// Returns a finder for each reason, in the order in which reports list the reasons.
pub(crate) fn create_inexactness_finders() -> Vec<Box<dyn InexactFinder>> {
    vec![
        Box::new(bursts::BurstFinder::default()),
        Box::new(segments::SegmentFinder::default()),
        Box::new(iterations::IterationFinder::default()),
        Box::new(interesting::InterestingPathFinder::default()),
        Box::new(tables::FullTableFinder::default()),
        Box::new(unknown::UnknownPathFinder::default()),
        Box::new(watched::WatchedPathFinder::default()),
        Box::new(part::CopyPartFinder::default()),
    ]
}

/// Number of functions with some property, and a sum over these functions.
#[derive(Default)]
pub(crate) struct FunctionCountAndSum {
    pub functions: u64,
    pub sum: u64,
}

impl FunctionCountAndSum {
    pub fn add(&mut self, number: u64) {
        self.functions += 1;
        self.sum = self.sum.saturating_add(number);
    }
}

/// A reason why counts are inexact or incomplete. The message continues the note "not exact".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum InexactnessReason {
    #[error(
        "scheme {scheme} counts only some paths of {}, so it is unknown which path {} took. To count all paths, record a build without \
         --interesting",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    Partial { scheme: String, functions: u64, executions: u64 },
    /// Number of functions that count segments, which are paths across calls, instead of their own paths.
    #[error(
        "the paths of {} are missing here, because they were counted as parts of segments (paths across calls). To show the segments, run \
         `trodden segments`; to count paths, instrument without --segments",
        plural(*.0, "function")
    )]
    Segments(u64),
    #[error(
        "the paths of {} are missing here, because they were counted together with the paths of previous iterations. To show them, run \
         `trodden-lab patterns iterations`. {}",
        plural(*.functions, "function"),
        match .others {
            0 => "Each execution is one of a known path over iterations".to_owned(),
            others => format!(
                "{} of paths over iterations that were unknown at the time of the build were not distinguished",
                plural(*others, "execution")
            ),
        }
    )]
    Iterations {
        functions: u64,
        /// Number of executions of paths over iterations that were not known when the program was built, and are counted together.
        others: u64,
    },
    #[error(
        "the hash tables of {} overflowed, so it is unknown which path {} took. Build with a larger table-slots=N in TRODDEN_INSTRUMENT, \
         or omit table-slots",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    TableFull { functions: u64, executions: u64 },
    /// Number of units that count only paths that were not known when the program was built.
    #[error(
        "{} only paths that no test had taken when the program was built (--residual). {COUNTS_ARE_EXACT}",
        count_units_as_subject(*.0)
    )]
    Residual(u64),
    /// Number of units that count only the paths selected by an expression.
    #[error("{} only paths that match the expression (--watch). {COUNTS_ARE_EXACT}", count_units_as_subject(*.0))]
    Watched(u64),
    #[error(
        "of the paths of {}, only the interesting ones are counted separately (--interesting, scheme {scheme}); their other paths are \
         counted together ({}). Functions without interesting paths are not counted",
        plural(*.functions, "function"),
        plural(*.executions, "execution")
    )]
    Interesting { scheme: String, functions: u64, executions: u64 },
    #[error(
        "scheme {scheme} cannot distinguish {} of {} from interesting paths, and counts them together. For exact counts, use --scheme ppp \
         or known-table",
        plural(*.aliases, "other path"),
        plural(*.functions, "function")
    )]
    Aliases {
        scheme: String,
        functions: u64,
        /// Number of other paths that share the counter of an interesting path; may be an estimate from random paths.
        aliases: u64,
    },
    /// Number of functions for which the path numbering was tested on random paths instead of being verified.
    #[error("{} had too many paths to verify the numbers of all paths; the numbers were tested on random paths", plural(*.0, "function"))]
    Unproven(u64),
    /// Number of units that belong to an instrumented copy of the program, which counts only some of the paths.
    #[error(
        "{} to one of several copies of the program, each of which counts only a part of the paths. {COUNTS_ARE_EXACT}",
        plural_verb(*.0, "compilation unit", "belongs", "belong")
    )]
    Copy(u64),
    /// Number of units that count edges instead of paths.
    #[error(
        "{} edges of the control-flow graph instead of paths (--divide edges), so each path below is a single edge",
        count_units_as_subject(*.0)
    )]
    Edges(u64),
    /// Number of differences between instrumented copies that should have run the same execution.
    #[error(
        "the copies of the program did not execute the same paths ({}), so the profile mixes counts of different executions. To check \
         whether the program behaves the same in each run, use `trodden repeatable -- COMMAND`",
        plural(*.0, "difference")
    )]
    Diverged(u64),
    /// Linkage names of the functions that a sampled program never counts.
    #[error(
        "some functions have no counts, because they call setjmp or contain code that must not be duplicated, and therefore cannot be \
         sampled: {}. To count them, build without --sample; `trodden info --json PROGRAM` shows the reason for each",
        join_first_few(.0)
    )]
    NotSampled(Vec<String>),
    /// Number of threads whose counts could not be written.
    #[error(
        "the counts of {} are lost, because they could not be written. Free disk space or raise ulimit -f, and record again",
        plural(*.0, "thread")
    )]
    Lost(u64),
    /// Number of instrumented copies that ran together and were all ended by a signal.
    #[error(
        "a signal ended each of the {0} copies of the program at a different point, so the counts of different functions do not fit \
         together. To see where a run is interrupted, record without --copies"
    )]
    Interrupted(u64),
}

/// Last sentence of messages about builds that count only some paths.
const COUNTS_ARE_EXACT: &str = "The counts of these paths are exact";

fn count_units_as_subject(units: u64) -> String {
    plural_verb(units, "compilation unit", "counts", "count")
}

fn join_first_few(names: &[String]) -> String {
    const MAX_LISTED: usize = 5;
    let more = if names.len() > MAX_LISTED { format!(" and {} more", names.len() - MAX_LISTED) } else { String::new() };
    format!("{}{more}", names[..names.len().min(MAX_LISTED)].join(", "))
}

fn plural(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats a number with its noun and verb: `1 compilation unit counts`, `2 compilation units count`.
fn plural_verb(number: u64, noun: &str, one: &str, many: &str) -> String {
    format!("{} {}", plural(number, noun), if number == 1 { one } else { many })
}
