//! What cannot be asked of one build together: the one list, each entry with its reason and its remedy.
//!
//! An entry is about two choices ([`ExperimentChoice`]). Either they exclude each other, or the first needs the second. Whatever
//! is not on the list can be built.

use super::axes::{ExperimentScheme, Threads};
use super::settings::{Observe, Settings, Timing};
use std::fmt;

macro_rules! choices {
    ($settings:ident: $($(#[$about:meta])* $choice:ident = $spelling:literal if $is_made:expr,)*) => {
        /// Something that settings may ask for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ExperimentChoice {
            $($(#[$about])* $choice,)*
        }

        impl ExperimentChoice {
            /// Whether settings ask for it.
            pub fn is_made(self, $settings: &Settings) -> bool {
                match self {
                    $(ExperimentChoice::$choice => $is_made,)*
                }
            }

            /// How people ask for it: the option, and the setting where there is no option or it reads otherwise.
            pub fn spelling(self) -> &'static str {
                match self {
                    $(ExperimentChoice::$choice => $spelling,)*
                }
            }
        }
    };
}

choices! { settings:
    /// A numbering of interesting paths.
    Selective = "a --scheme of interesting paths" if is_selective(settings),
    /// The numbering that searches for the most compact numbers.
    Optimal = "--scheme ppp-optimal" if settings.scheme == Some(ExperimentScheme::Interesting(trodden_flow::NumberingScheme::PppOptimal)),
    /// How long that searches.
    TimeLimit = "--time-limit" if settings.time_limit_s.is_some(),
    /// Measured frequencies.
    Weights = "--weights" if settings.weights.is_some(),
    /// Interesting paths.
    Interesting = "--interesting" if settings.interesting.is_some(),
    /// Unknown paths only.
    Unknown = "--residual (known=FILE)" if settings.known.is_some(),
    /// Watched paths only.
    Watched = "--watch (watched=FILE)" if settings.watched.is_some(),
    /// Interprocedural segments.
    Segments = "--segments (segments=FILE)" if settings.segments.is_some(),
    /// A part of the paths, as one of several copies.
    Part = "a copy's part (part=FILE)" if settings.part.is_some(),
    /// The unit of which a copy's unit is made.
    Origin = "the unit of a copy (origin=UNIT)" if settings.origin.is_some(),
    /// Executions of a copy's probes.
    Hits = "--count-hits (count-hits=on)" if settings.count_hits == Some(true),
    /// Sums of events.
    Events = "--events" if settings.events.is_some(),
    /// LLVM's edge profile.
    EdgeProfile = "--pgo (observe=edge-profile)" if settings.observe == Some(Observe::EdgeProfile),
    /// Source-based coverage.
    Coverage = "--coverage (observe=coverage)" if matches!(settings.observe, Some(Observe::Coverage | Observe::Mcdc)),
    /// The sequence of paths and calls.
    Stream = "--stream (observe=stream)" if settings.observe == Some(Observe::Stream),
    /// A flight recorder in each run.
    Recorder = "--flight-recorder (recorder=PATTERN)" if settings.recorder.is_some(),
    /// Addresses of blocks instead of counts.
    Addresses = "--addresses (observe=addresses)" if settings.observe == Some(Observe::Addresses),
    /// Equal ends of blocks kept separate.
    TailMerging = "--tail-merging" if settings.tail_merging.is_some(),
    /// Sleds for witnesses of what is followed from outside.
    Trace = "--witnesses (observe=trace)" if settings.observe == Some(Observe::Trace),
    /// In bursts.
    Bursts = "--sample (when=bursts)" if settings.when == Some(Timing::Bursts),
    /// In tables.
    Tables = "--table-slots" if settings.table_slots.is_some_and(|slots| slots > 0),
    /// Most paths in an array, beside tables.
    ArrayPaths = "--array-paths" if settings.array_paths.is_some(),
    /// Counters that all threads increment.
    Atomic = "--threads atomic" if settings.threads == Some(Threads::Atomic),
}

/// An entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// What is asked for.
    pub one: ExperimentChoice,
    /// What it excludes or needs.
    pub other: Relation,
    /// Why.
    pub reason: &'static str,
    /// What to do instead.
    pub remedy: &'static str,
}

/// How two choices stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They cannot be had together.
    Excludes(ExperimentChoice),
    /// The first makes no sense without the second.
    Needs(ExperimentChoice),
}

/// Settings that make no sense together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excluded(pub &'static Exclusion);

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exclusion { one, other, reason, remedy } = self.0;
        match other {
            Relation::Excludes(other) => {
                write!(f, "{} does not go together with {}: {reason}; {remedy}", one.spelling(), other.spelling())
            }
            Relation::Needs(other) => write!(f, "{} makes no sense without {}: {reason}; {remedy}", one.spelling(), other.spelling()),
        }
    }
}

impl std::error::Error for Excluded {}

/// Whether settings make sense together.
///
/// # Errors
/// They do not; the first entry of the list that says so.
pub fn check(settings: &Settings) -> Result<(), Excluded> {
    let is_broken = |entry: &&Exclusion| {
        entry.one.is_made(settings)
            && match entry.other {
                Relation::Excludes(other) => other.is_made(settings),
                Relation::Needs(other) => !other.is_made(settings),
            }
    };
    EXCLUSIONS.iter().find(is_broken).map_or(Ok(()), |entry| Err(Excluded(entry)))
}

/// Whether paths are numbered by what is interesting of them. Segments always are, by a scheme that then says so; a residual build's known
/// paths are by ppp, if that is asked for.
fn is_selective(settings: &Settings) -> bool {
    use trodden_flow::NumberingScheme::{KnownTable, Ppp, Pspp};
    match settings.scheme {
        Some(ExperimentScheme::Interesting(Ppp)) if settings.part.is_none() => settings.known.is_none() && settings.segments.is_none(),
        Some(ExperimentScheme::Interesting(KnownTable | Pspp)) => settings.segments.is_none(),
        Some(ExperimentScheme::Interesting(_)) => true,
        _ => false,
    }
}

use ExperimentChoice::*;

/// All entries. Those that say what a build counts come first, since their remedies say most.
pub static EXCLUSIONS: &[Exclusion] = &[
    // Which paths: one set at most, and the scheme that goes with it.
    excludes(Selective, Unknown, "--residual says itself which paths are counted", "leave one out, or take --scheme ppp"),
    excludes(Selective, Watched, "--watch says itself which paths are counted", "leave one out"),
    excludes(Interesting, Unknown, "both say which paths are counted", "leave one out"),
    excludes(Interesting, Watched, "both say which paths are counted", "leave one out"),
    excludes(Unknown, Watched, "both say which paths are counted", "leave one out"),
    excludes(Segments, Selective, "segments are numbered by the scheme known-table, ppp, pspp or ball-larus", "take one of these"),
    excludes(Segments, Unknown, "both say what is counted", "make two builds"),
    excludes(Segments, Watched, "both say what is counted", "make two builds"),
    excludes(Segments, Interesting, "both say what is counted", "make two builds"),
    excludes(
        Segments,
        Part,
        "copies share the paths of a program, not its segments",
        "build the program without --segments for copies; `trodden record --copies K --divide segments:SET` shares their counting",
    ),
    excludes(Segments, Events, "segments are counted, and nothing is summed up", "make two builds"),
    excludes(Segments, EdgeProfile, "an edge profile takes the counts of all paths", "make two builds"),
    excludes(Segments, Coverage, "coverage takes the counts of all paths", "make two builds"),
    excludes(Segments, Stream, "segments of a stream are read off it", "make two builds"),
    excludes(Segments, Addresses, "nothing is counted there", "make two builds"),
    excludes(Segments, Trace, "nothing is counted there", "make two builds"),
    excludes(Segments, Bursts, "a burst may begin inside a segment", "make two builds"),
    excludes(Segments, Tables, "counts of segments are in arrays", "leave --table-slots out"),
    excludes(Interesting, Part, "copies share all paths of a program", "build the program without --interesting for copies"),
    excludes(Watched, Part, "copies share all paths of a program", "build the program without --watch for copies"),
    excludes(Part, Selective, "copies share all paths of a program", "build the program with the scheme ball-larus for copies"),
    // What a choice is nothing without.
    needs(Selective, Interesting, "it numbers interesting paths", "say which by `trodden instrument --interesting SET`"),
    needs(TimeLimit, Optimal, "only that scheme searches for as long as it may", "leave --time-limit out, or take --scheme ppp-optimal"),
    needs(Part, Origin, "a part is known by its unit", "let `trodden record --copies` make copies, which gives both"),
    needs(Origin, Part, "a part is known by its unit", "let `trodden record --copies` make copies, which gives both"),
    needs(Hits, Part, "hits are those of a copy's probes", "let `trodden-lab with --count-hits -- record --copies K` make copies"),
    needs(Recorder, Stream, "it keeps the end of a stream", "build with --stream, too"),
    needs(TailMerging, Addresses, "only there does a block need an address of its own", "leave it out, or build with --addresses"),
    needs(ArrayPaths, Tables, "without tables all counts are in arrays", "say how many --table-slots tables have, or take --max-paths"),
    // What of them: one observation.
    excludes(Events, EdgeProfile, "the counters of the edge profile have no cells for sums", "make two builds"),
    excludes(Events, Coverage, "the counters of coverage have no cells for sums", "make two builds"),
    excludes(Events, Addresses, "nothing is counted there", "make two builds"),
    excludes(Events, Trace, "a trace has no events", "make two builds"),
    excludes(Events, Unknown, "unknown paths have times where sums would be", "make two builds"),
    excludes(Events, Watched, "watched paths have times where sums would be", "make two builds"),
    excludes(Events, Interesting, "the other paths of a function have no sums of their own", "make two builds"),
    excludes(Events, Part, "copies share counts, not sums", "build the program without --events for copies"),
    excludes(Events, Bursts, "estimates of bursts are of counts alone", "make two builds"),
    excludes(Events, Tables, "a slot of a table has no room for sums", "leave one out: long paths are cut without tables"),
    excludes(Events, Atomic, "a sum and its square cannot be added to atomically", "let each thread have counters of its own"),
    excludes(EdgeProfile, Unknown, "an edge profile takes the counts of all paths", "make two builds"),
    excludes(Coverage, Unknown, "coverage takes the counts of all paths", "make two builds"),
    excludes(EdgeProfile, Watched, "an edge profile takes the counts of all paths", "make two builds"),
    excludes(Coverage, Watched, "coverage takes the counts of all paths", "make two builds"),
    excludes(EdgeProfile, Interesting, "an edge profile takes the counts of all paths", "make two builds"),
    excludes(Coverage, Interesting, "coverage takes the counts of all paths", "make two builds"),
    excludes(EdgeProfile, Part, "an edge profile takes the counts of all paths", "build the program without --pgo for copies"),
    excludes(Coverage, Part, "coverage takes the counts of all paths", "build the program without --coverage for copies"),
    excludes(EdgeProfile, Bursts, "an edge profile takes the counts of a whole run", "make two builds"),
    excludes(Coverage, Bursts, "coverage takes the counts of a whole run", "make two builds"),
    excludes(Events, Stream, "counts follow from a stream, and sums do not", "make two builds"),
    excludes(Stream, Unknown, "a stream is of all paths", "make two builds"),
    excludes(Stream, Watched, "a stream is of all paths", "make two builds"),
    excludes(Stream, Selective, "a stream has all paths of the functions that --interesting names", "leave --scheme out"),
    excludes(Stream, Part, "a stream is of all paths", "build the program without --stream for copies"),
    excludes(Stream, Bursts, "a stream with gaps says nothing of the order", "make two builds"),
    excludes(Stream, Tables, "a stream has no counters", "leave --table-slots out"),
    excludes(Stream, Atomic, "each thread writes a stream of its own", "leave --threads out"),
    excludes(Addresses, Unknown, "nothing is counted there", "make two builds"),
    excludes(Addresses, Watched, "nothing is counted there", "make two builds"),
    excludes(Addresses, Interesting, "nothing is counted there", "make two builds"),
    excludes(Addresses, Part, "nothing is counted there", "build the program without --addresses for copies"),
    excludes(Addresses, Bursts, "nothing is counted there, at any time", "leave --sample out"),
    excludes(Addresses, Tables, "nothing is counted there", "leave --table-slots out"),
    excludes(Addresses, Atomic, "nothing is counted there", "leave --threads out"),
    excludes(Trace, Unknown, "nothing is counted there", "make two builds"),
    excludes(Trace, Watched, "nothing is counted there", "make two builds"),
    excludes(Trace, Interesting, "nothing is counted there", "make two builds"),
    excludes(Trace, Part, "nothing is counted there", "build the program without --witnesses for copies"),
    excludes(Trace, Bursts, "nothing is counted there, at any time", "leave --sample out"),
    excludes(Trace, Tables, "nothing is counted there", "leave --table-slots out"),
    excludes(Trace, Atomic, "nothing is counted there", "leave --threads out"),
    // When: in bursts, arrays of all paths only.
    excludes(Bursts, Unknown, "unknown paths are rare, and would fall between bursts", "make two builds"),
    excludes(Bursts, Watched, "watched paths would fall between bursts", "make two builds"),
    excludes(Bursts, Interesting, "interesting paths would fall between bursts", "make two builds"),
    excludes(Bursts, Part, "copies count all of a run", "build the program without --sample for copies"),
    excludes(Bursts, Tables, "readings between bursts are of arrays", "leave one out: long paths are cut without tables"),
    excludes(Bursts, Atomic, "the duplicated code counts in its own thread's memory", "let each thread have counters of its own"),
    // Where to: what needs arrays of threads.
    excludes(Tables, Unknown, "each unknown path has a word of its own", "leave one out"),
    excludes(Tables, Watched, "each watched path has a word of its own", "leave one out"),
    excludes(Tables, Interesting, "each interesting path has a word of its own", "leave one out"),
    excludes(Tables, Part, "a copy's counts are in arrays", "build the program without --table-slots for copies"),
    excludes(Atomic, Unknown, "times are noted by the thread that counts first", "let each thread have counters of its own"),
    excludes(Atomic, Watched, "times are noted by the thread that counts first", "let each thread have counters of its own"),
    // Copies.
    excludes(Hits, Unknown, "unknown paths have times where hits would be", "count hits of a program that counts all paths"),
];

const fn excludes(one: ExperimentChoice, other: ExperimentChoice, reason: &'static str, remedy: &'static str) -> Exclusion {
    Exclusion { one, other: Relation::Excludes(other), reason, remedy }
}

const fn needs(one: ExperimentChoice, other: ExperimentChoice, reason: &'static str, remedy: &'static str) -> Exclusion {
    Exclusion { one, other: Relation::Needs(other), reason, remedy }
}
