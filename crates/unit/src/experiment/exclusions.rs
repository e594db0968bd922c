//! What cannot be asked of one build together: the one list, each entry with its reason and its remedy.
//!
//! An entry is about two choices ([`Choice`]). Either they exclude each other, or the first needs the second. Whatever
//! is not on the list can be built.

use super::axes::{Scheme, Threads};
use super::settings::{Observe, Settings, Timing};
use std::fmt;

/// Something that settings may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// A numbering of interesting paths.
    Selective,
    /// The numbering that searches for the most compact numbers.
    Optimal,
    /// How long that searches.
    TimeLimit,
    /// Measured frequencies.
    Weights,
    /// Interesting paths.
    Interesting,
    /// Unknown paths only.
    Unknown,
    /// Watched paths only.
    Watched,
    /// Interprocedural segments.
    Segments,
    /// A part of the paths, as one of several copies.
    Part,
    /// The unit of which a copy's unit is made.
    Origin,
    /// Executions of a copy's probes.
    Hits,
    /// Sums of events.
    Events,
    /// LLVM's edge profile.
    EdgeProfile,
    /// Source-based coverage.
    Coverage,
    /// The sequence of paths and calls.
    Stream,
    /// A flight recorder in each run.
    Recorder,
    /// Addresses of blocks instead of counts.
    Addresses,
    /// Equal ends of blocks kept separate.
    TailMerging,
    /// Sleds for witnesses of what is followed from outside.
    Trace,
    /// In bursts.
    Bursts,
    /// In tables.
    Tables,
    /// Most paths in an array, beside tables.
    ArrayPaths,
    /// Counters that all threads increment.
    Atomic,
}

/// An entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// What is asked for.
    pub one: Choice,
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
    Excludes(Choice),
    /// The first makes no sense without the second.
    Needs(Choice),
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

impl Choice {
    /// Whether settings ask for it.
    pub fn is_made(self, s: &Settings) -> bool {
        match self {
            Choice::Selective => matches!(s.scheme, Some(Scheme::Interesting(_))),
            Choice::Optimal => s.scheme == Some(Scheme::Interesting(trodden_flow::Scheme::PppOptimal)),
            Choice::TimeLimit => s.time_limit_s.is_some(),
            Choice::Weights => s.weights.is_some(),
            Choice::Interesting => s.interesting.is_some(),
            Choice::Unknown => s.known.is_some(),
            Choice::Watched => s.watched.is_some(),
            Choice::Segments => s.segments.is_some(),
            Choice::Part => s.part.is_some(),
            Choice::Origin => s.origin.is_some(),
            Choice::Hits => s.count_hits == Some(true),
            Choice::Events => s.events.is_some(),
            Choice::EdgeProfile => s.observe == Some(Observe::EdgeProfile),
            Choice::Coverage => matches!(s.observe, Some(Observe::Coverage | Observe::Mcdc)),
            Choice::Stream => s.observe == Some(Observe::Stream),
            Choice::Recorder => s.recorder.is_some(),
            Choice::Addresses => s.observe == Some(Observe::Addresses),
            Choice::TailMerging => s.tail_merging.is_some(),
            Choice::Trace => s.observe == Some(Observe::Trace),
            Choice::Bursts => s.when == Some(Timing::Bursts),
            Choice::Tables => s.table_slots.is_some_and(|slots| slots > 0),
            Choice::ArrayPaths => s.array_paths.is_some(),
            Choice::Atomic => s.threads == Some(Threads::Atomic),
        }
    }

    /// How people ask for it: the option, and the setting where there is no option or it reads otherwise.
    pub fn spelling(self) -> &'static str {
        match self {
            Choice::Selective => "a --scheme of interesting paths",
            Choice::Optimal => "--scheme ppp-optimal",
            Choice::TimeLimit => "--time-limit",
            Choice::Weights => "--weights",
            Choice::Interesting => "--interesting",
            Choice::Unknown => "--residual (known=FILE)",
            Choice::Watched => "--watch (watched=FILE)",
            Choice::Segments => "--segments (segments=FILE)",
            Choice::Part => "a copy's part (part=FILE)",
            Choice::Origin => "the unit of a copy (origin=UNIT)",
            Choice::Hits => "--count-hits (count-hits=on)",
            Choice::Events => "--events",
            Choice::EdgeProfile => "--pgo (observe=edge-profile)",
            Choice::Coverage => "--coverage (observe=coverage)",
            Choice::Stream => "--stream (observe=stream)",
            Choice::Recorder => "--flight-recorder (recorder=PATTERN)",
            Choice::Addresses => "--addresses (observe=addresses)",
            Choice::TailMerging => "--tail-merging",
            Choice::Trace => "--witnesses (observe=trace)",
            Choice::Bursts => "--sample (when=bursts)",
            Choice::Tables => "--table-slots",
            Choice::ArrayPaths => "--array-paths",
            Choice::Atomic => "--threads atomic",
        }
    }
}

use Choice::*;

/// All entries. Those that say what a build counts come first, since their remedies say most.
pub static EXCLUSIONS: &[Exclusion] = &[
    // Which paths: one set at most, and the scheme that goes with it.
    excludes(Selective, Unknown, "--residual says itself which paths are counted", "leave one out"),
    excludes(Selective, Watched, "--watch says itself which paths are counted", "leave one out"),
    excludes(Interesting, Unknown, "both say which paths are counted", "leave one out"),
    excludes(Interesting, Watched, "both say which paths are counted", "leave one out"),
    excludes(Unknown, Watched, "both say which paths are counted", "leave one out"),
    excludes(Segments, Selective, "segments are numbered by the scheme ball-larus", "leave out --scheme"),
    excludes(Segments, Unknown, "both say what is counted", "make two builds"),
    excludes(Segments, Watched, "both say what is counted", "make two builds"),
    excludes(Segments, Interesting, "both say what is counted", "make two builds"),
    excludes(
        Segments,
        Part,
        "copies share the paths of a program, not its segments",
        "build the program without --segments for copies; `trodden record --copies K --segments SET` shares the counting of segments",
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
    needs(Hits, Part, "hits are those of a copy's probes", "let `trodden record --copies --count-hits` make copies"),
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

const fn excludes(one: Choice, other: Choice, reason: &'static str, remedy: &'static str) -> Exclusion {
    Exclusion { one, other: Relation::Excludes(other), reason, remedy }
}

const fn needs(one: Choice, other: Choice, reason: &'static str, remedy: &'static str) -> Exclusion {
    Exclusion { one, other: Relation::Needs(other), reason, remedy }
}
