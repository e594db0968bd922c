//! How units are to be instrumented: the words of the environment variable `TRODDEN_INSTRUMENT`, which the compiler driver sets.
//!
//! The plugin has no command line of its own; clang hands it none. Words are `key=value`, separated by blanks; [`KNOWN`] lists them.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use trodden_flow::PlanOptions;
use trodden_flow::dag::Entries;
use trodden_flow::residual::Crowding;
use trodden_flow::schedule::{ByRounds, Choices, UsualRounds};
use trodden_unit::marks::ADDRESSES_WORD;
use trodden_unit::{Directions, EventSource, Identity, KnownPaths, NoDirections, NoKnownPaths, NoParts, NoWeights, Parts, Weights};
use trodden_unit::{INTERESTING_KEY, KNOWN_KEY, ORIGIN_WORD, PARTS_WORD, RESIDUAL_WORD, WATCHED_KEY};

/// Functions with more paths than this are cut. 4096 counters are a page of 32 KB per function at most, and few functions reach it.
const MAX_PATHS: u64 = 4096;

/// The most that can be asked for: larger arrays (128 MB a function) would not link.
const MOST_MAX_PATHS: u64 = 1 << 24;

/// Functions that count in tables may have this many paths and are cut beyond: so that all paths of a program can be numbered together.
const MOST_IN_TABLE: u64 = 1 << 52;
/// All paths of a unit's functions that count in tables.
const MOST_IN_TABLES: u64 = 1 << 56;

/// How long the most compact numbers of a function are searched for, if nothing else is said.
const TIME_LIMIT_S: u64 = 2;

/// All words.
const KNOWN: [&str; 28] = [
    "scheme=ball-larus|targeted|practical|structural|spp|mspp|pertinent|pspp|ppp|known-table|ppp-optimal|approximate",
    "max-paths=NUMBER (1 to 16777216)",
    "chords=on|off",
    "rounds=on|tight|off",
    "early=on|off",
    "usual=apart|held|off",
    "reach=doubtful|calls|all",
    "keep=bitcode|map",
    "stream=on|off",
    "tier=full|sample|residual|addresses",
    "tails=merged|apart",
    "markers=none|llvm",
    "counters=none|coverage|mcdc",
    "events=tsc|cycles|instructions|cache-references|cache-misses|branches|branch-misses|task-clock|page-faults",
    "weights=FILE",
    "facts=FILE",
    "known=FILE",
    "watched=FILE",
    "interesting=FILE",
    "time-limit=SECONDS (1 to 3600)",
    "parts=FILE",
    "origin=UNIT",
    "hits=unknown|counted",
    "table-slots=NUMBER (0 to 16777216)",
    "array-paths=NUMBER (1 to 16777216)",
    "threads=own|atomic",
    "versions=two|one",
    "apply=FILE",
];

/// How units are instrumented.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cutting and placement.
    pub plan: PlanOptions,
    /// When counts are made.
    pub choices: Choices,
    /// Count at every call that it was reached, not only at those that might not come back by themselves: so that
    /// callers' paths are known too when a signal ends the program.
    pub reach_all: bool,
    /// Count it at calls of functions that the unit defines, too.
    pub reach_calls: bool,
    /// Write a stream of paths and calls instead of counting.
    pub stream: bool,
    /// Keep the unit's bitcode, so that other variants can be made of it.
    pub keep_bitcode: bool,
    /// Measured frequencies of edges, and the identity of their file.
    pub weights: Option<(Rc<Weights>, Identity)>,
    /// Known paths, which the tier `residual` does not count, and the identity of their file.
    pub known: Option<(Rc<KnownPaths>, Identity)>,
    /// How crowded caches are by the hot code of the program, as its known paths tell.
    pub crowding: Crowding,
    /// Known are all paths but those that are watched for.
    pub watches: bool,
    /// Paths that are asked for, and the identity of their file: all others are counted together.
    pub interesting: Option<(Rc<KnownPaths>, Identity)>,
    /// How long the scheme `ppp-optimal` may search for the numbers of one function, in seconds.
    pub time_limit_s: u64,
    /// What this copy of a program counts, and the identity of the file.
    pub parts: Option<(Rc<Parts>, Identity)>,
    /// The unit of which this one is made, as the program has it that is divided among copies.
    pub origin: Option<Identity>,
    /// Executions of a copy's probes are counted, too.
    pub count_hits: bool,
    /// Write what the unit's blocks compute to this file, and make no code.
    pub facts: Option<PathBuf>,
    /// Change the code as these directions say, and count nothing.
    pub apply: Option<Rc<Directions>>,
    /// What is put into the code.
    pub tier: Tier,
    /// Of the tier `addresses`: equal ends of blocks are not merged, so that every block has an address, and the code is a little longer.
    pub tails_apart: bool,
    /// Which paths there are.
    pub scheme: Scheme,
    /// Slots of the tables of functions with more than [`Options::array_paths`] paths; 0: there are no tables, and such functions are cut.
    pub table_slots: u64,
    /// Most paths of a function that counts in an array, where there are tables.
    pub array_paths: u64,
    /// Who counts in a region.
    pub threads: Threads,
    /// Of the tier `sample`: there is one version of the code, which keeps the register at all times and counts while the switch is on.
    pub one_version: bool,
    /// Take LLVM's edge counters, with which the unit was compiled, out of it, and note where they were.
    pub markers: bool,
    /// These are the counters of clang's or rustc's coverage; the unit's mapping of them to regions of its sources stays in the program.
    pub coverage: bool,
    /// Sum this up for each path.
    pub events: Option<EventSource>,
}

/// What is put into the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Probes that count every path.
    Full,
    /// Probes that count while the image's switch is on; see [`crate::sample`].
    Sample,
    /// Probes that count every path but the known ones; see [`crate::residual`].
    Residual,
    /// Nothing: blocks are marked, so that their addresses are known; see [`crate::addresses`].
    Addresses,
}

/// Which paths of a function are told apart; see [`trodden_flow::baselines`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// All acyclic ones.
    BallLarus,
    /// Those without edges that are cold where they begin.
    Targeted,
    /// Those without edges that are cold in the whole program.
    Practical,
    /// Those of each loop apart.
    Structural,
    /// Those that are asked for, numbered in one of the ways of [`trodden_flow::numbering`].
    Selected(trodden_flow::Scheme),
}

impl Scheme {
    const OF_ALL: [Scheme; 4] = [Scheme::BallLarus, Scheme::Targeted, Scheme::Practical, Scheme::Structural];

    /// The scheme of a name.
    fn parse(name: &str) -> Option<Scheme> {
        let selected = || trodden_flow::Scheme::ALL.into_iter().find(|s| s.name() == name).map(Scheme::Selected);
        Scheme::OF_ALL.into_iter().find(|s| s.name() == name).or_else(selected)
    }

    /// Its name in the word.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::BallLarus => "ball-larus",
            Scheme::Targeted => "targeted",
            Scheme::Practical => "practical",
            Scheme::Structural => "structural",
            Scheme::Selected(scheme) => scheme.name(),
        }
    }

    /// Whether it leaves paths out, by measured frequencies.
    pub fn leaves_out(self) -> bool {
        matches!(self, Scheme::Targeted | Scheme::Practical)
    }
}

/// Who counts in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One thread at a time.
    Own,
    /// All threads of a process, by atomic increments.
    Atomic,
}

/// Words that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum BadOption {
    /// It means nothing.
    #[error("TRODDEN_INSTRUMENT holds `{0}`; known are {known}", known = KNOWN.join(", "))]
    Unknown(String),
    /// Markers are noted where everything is counted.
    #[error("TRODDEN_INSTRUMENT holds {0} and another tier than full: build without --sample, --addresses and --residual")]
    MarkersWithoutCounts(&'static str),
    /// Words that exclude each other.
    #[error("TRODDEN_INSTRUMENT holds {0} and {1}, which do not go together: leave one of them out")]
    Conflict(&'static str, &'static str),
    /// A scheme that goes by a profile, and no profile.
    #[error(
        "TRODDEN_INSTRUMENT holds scheme={0} without weights=FILE: make a file of a training run (`trodden export weights`) and give it \
            (`--weights FILE`)"
    )]
    NoWeights(&'static str),
    /// A numbering of selected paths, and none are.
    #[error("TRODDEN_INSTRUMENT holds scheme={0} without interesting=FILE: say which paths are to be counted (`--interesting SET`)")]
    NothingInteresting(&'static str),
    /// The tier `residual` is that of known paths, and they are of no use to another.
    #[error("TRODDEN_INSTRUMENT holds one of tier=residual and known=FILE (or watched=FILE) without the other: give both")]
    ResidualWithoutKnown,
    /// A copy's parts are those of units, and this one does not say which it is.
    #[error("TRODDEN_INSTRUMENT holds one of parts=FILE and origin=UNIT without the other: `trodden record --copies` gives both")]
    PartsWithoutOrigin,
    /// The file of parts is none.
    #[error("{file}: {source}")]
    Parts {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoParts,
    },
    /// The file of known paths is none.
    #[error("{file}: {source}")]
    KnownPaths {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: NoKnownPaths,
    },
    /// A file of an earlier profile cannot be read.
    #[error("the file {file} of an earlier profile cannot be read ({source}): give one that can")]
    Unreadable {
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
            plan: PlanOptions { max_paths: MAX_PATHS, entries: Entries::Shared, chords: true, hot_first: false },
            choices: Choices { rounds: ByRounds::Tight, early: true, usual: UsualRounds::Apart },
            reach_all: false,
            reach_calls: false,
            stream: false,
            keep_bitcode: true,
            weights: None,
            known: None,
            crowding: Crowding::default(),
            watches: false,
            interesting: None,
            time_limit_s: TIME_LIMIT_S,
            parts: None,
            origin: None,
            count_hits: false,
            facts: None,
            apply: None,
            tier: Tier::Full,
            tails_apart: false,
            markers: false,
            coverage: false,
            events: None,
            scheme: Scheme::BallLarus,
            table_slots: 0,
            array_paths: MAX_PATHS,
            threads: Threads::Own,
            one_version: false,
        };
        let mut scheme = None;
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some(("weights", file)) => options.weights = Some(read_weights(Path::new(file))?),
                Some((key @ (KNOWN_KEY | WATCHED_KEY), file)) => {
                    (options.known, options.watches) = (Some(read_known(Path::new(file))?), key == WATCHED_KEY);
                }
                Some(("interesting", file)) => options.interesting = Some(read_known(Path::new(file))?),
                Some(("parts", file)) => options.parts = Some(read_parts(Path::new(file))?),
                Some(("scheme", name)) => scheme = Some(Scheme::parse(name).ok_or_else(|| BadOption::Unknown(word.into()))?),
                Some(("apply", file)) => options.apply = Some(read_directions(Path::new(file))?),
                _ => options.apply(word).ok_or_else(|| BadOption::Unknown(word.into()))?,
            }
        }
        options.scheme = scheme.unwrap_or(match options.interesting {
            Some(_) => Scheme::Selected(trodden_flow::Scheme::KnownTable),
            None => Scheme::BallLarus,
        });
        if options.markers && options.coverage {
            return Err(BadOption::Conflict("markers=llvm (--pgo)", "counters=coverage (--coverage)"));
        }
        options.markers |= options.coverage;
        if options.markers && options.tier != Tier::Full {
            return Err(BadOption::MarkersWithoutCounts(options.counters_name()));
        }
        if (options.tier == Tier::Residual) != options.known.is_some() {
            return Err(BadOption::ResidualWithoutKnown);
        }
        if options.parts.is_some() != options.origin.is_some() {
            return Err(BadOption::PartsWithoutOrigin);
        }
        let executions = |known: &KnownPaths| Crowding::of(known.functions().flat_map(|(_, _, f)| f.known.iter().map(|(_, n)| *n)));
        options.crowding = options.known.as_ref().map(|(known, _)| executions(known)).unwrap_or_default();
        // Which call a function was called from is known by the event before.
        options.reach_calls |= options.stream;
        options.exclusions()?;
        Ok(options)
    }

    /// What cannot be had together.
    fn exclusions(&self) -> Result<(), BadOption> {
        let (sample, two) = (self.tier == Tier::Sample, !self.one_version);
        let (left_out, parts) = (self.scheme.leaves_out(), self.parts.is_some());
        if left_out && self.weights.is_none() {
            return Err(BadOption::NoWeights(self.scheme.name()));
        }
        let selected = self.interesting.is_some();
        if matches!(self.scheme, Scheme::Selected(_)) && !selected {
            return Err(BadOption::NothingInteresting(self.scheme.name()));
        }
        let stream = self.stream;
        let wrong = [
            (stream && self.tier != Tier::Full, ("stream=on", "a tier other than full")),
            (stream && self.table_slots > 0, ("stream=on", "table-slots")),
            (stream && self.threads != Threads::Own, ("stream=on", "threads=atomic")),
            (stream && self.markers, ("stream=on", self.counters_name())),
            (stream && self.events.is_some(), ("stream=on", "events")),
            (stream && (selected || left_out), ("stream=on", "a scheme that leaves paths out, or interesting")),
            (stream && parts, ("stream=on", "parts")),
            (selected && (left_out || self.scheme == Scheme::Structural), ("interesting", "a scheme of other paths")),
            (selected && self.tier != Tier::Full, ("interesting", "a tier other than full")),
            (selected && self.table_slots > 0, ("interesting", "table-slots")),
            (selected && self.markers, ("interesting", self.counters_name())),
            (selected && self.events.is_some(), ("interesting", "events")),
            (left_out && self.table_slots > 0, ("table-slots", "a scheme that leaves paths out")),
            (left_out && self.tier != Tier::Full, ("a tier other than full", "a scheme that leaves paths out")),
            (left_out && self.markers, (self.counters_name(), "a scheme that leaves paths out")),
            (sample && self.table_slots > 0, ("tier=sample", "table-slots")),
            (sample && two && self.threads != Threads::Own, ("tier=sample versions=two", "threads=atomic")),
            (!sample && self.one_version, ("versions=one", "another tier than sample")),
            (self.markers && self.one_version, ("versions=one", self.counters_name())),
            (self.tier == Tier::Addresses && self.threads != Threads::Own, ("tier=addresses", "threads=atomic")),
            (self.tier == Tier::Residual && self.table_slots > 0, ("tier=residual", "table-slots")),
            (self.tier == Tier::Residual && self.threads != Threads::Own, ("tier=residual", "threads=atomic")),
            (self.events.is_some() && self.markers, ("events", self.counters_name())),
            (self.events.is_some() && self.tier != Tier::Full, ("events", "a tier other than full (--sample, --addresses)")),
            (self.events.is_some() && self.table_slots > 0, ("events", "table-slots")),
            (self.events.is_some() && self.threads != Threads::Own, ("events", "threads=atomic")),
            (self.count_hits && (!parts || self.tier != Tier::Full), ("hits=counted", "no parts of a copy that counts all paths")),
            (parts && left_out, ("parts", "a scheme that leaves paths out")),
            (parts && !matches!(self.tier, Tier::Full | Tier::Residual), ("parts", "a tier other than full or residual")),
            (parts && self.table_slots > 0, ("parts", "table-slots")),
            (parts && self.markers, ("parts", self.counters_name())),
            (parts && self.events.is_some(), ("parts", "events")),
            (self.events.is_some() && left_out, ("events", "a scheme that leaves paths out")),
        ];
        wrong.into_iter().find(|(is, _)| *is).map_or(Ok(()), |(_, (one, other))| Err(BadOption::Conflict(one, other)))
    }

    /// The option that asks for counters of LLVM's, for messages.
    fn counters_name(&self) -> &'static str {
        if self.coverage { "counters=coverage (--coverage)" } else { "markers=llvm (--pgo)" }
    }

    /// How a function is to be planned, when the unit's tables hold `used` paths so far; see [`Options::in_table`].
    pub fn plan_of(&self, used: u64) -> PlanOptions {
        match self.table_slots {
            0 => self.plan.clone(),
            // Ever smaller, but never nothing, when the sum comes near its limit.
            _ => PlanOptions {
                max_paths: (MOST_IN_TABLES.saturating_sub(used) / 16).min(MOST_IN_TABLE).max(self.array_paths),
                ..self.plan.clone()
            },
        }
    }

    /// Whether a function with so many paths counts in a table.
    pub fn in_table(&self, paths: u64) -> bool {
        self.table_slots > 0 && paths > self.array_paths
    }

    fn apply(&mut self, word: &str) -> Option<()> {
        match word.split_once('=')? {
            ("time-limit", n) => self.time_limit_s = n.parse().ok().filter(|n| (1..=3600).contains(n))?,
            ("max-paths", n) => self.plan.max_paths = n.parse().ok().filter(|n| (1..=MOST_MAX_PATHS).contains(n))?,
            ("chords", value) => self.plan.chords = switch(value)?,
            ("rounds", "off") => self.choices.rounds = ByRounds::No,
            ("rounds", "tight") => self.choices.rounds = ByRounds::Tight,
            ("rounds", "on") => self.choices.rounds = ByRounds::Often,
            ("early", value) => self.choices.early = switch(value)?,
            ("usual", "off") => self.choices.usual = UsualRounds::Together,
            ("usual", "apart") => self.choices.usual = UsualRounds::Apart,
            ("usual", "held") => self.choices.usual = UsualRounds::Held,
            ("reach", "calls") => self.reach_calls = true,
            ("reach", value) => self.reach_all = either(value, "doubtful", "all")?,
            ("stream", value) => self.stream = switch(value)?,
            ("keep", value) => self.keep_bitcode = either(value, "map", "bitcode")?,
            ("tier", "full") => self.tier = Tier::Full,
            ("tier", "sample") => self.tier = Tier::Sample,
            ("tier", "residual") => self.tier = Tier::Residual,
            ("tier", "addresses") => self.tier = Tier::Addresses,
            ("table-slots", n) => self.table_slots = n.parse().ok().filter(|n| *n <= MOST_MAX_PATHS)?,
            ("array-paths", n) => self.array_paths = n.parse().ok().filter(|n| (1..=MOST_MAX_PATHS).contains(n))?,
            ("threads", "own") => self.threads = Threads::Own,
            ("threads", "atomic") => self.threads = Threads::Atomic,
            ("versions", value) => self.one_version = either(value, "two", "one")?,
            ("tails", value) => self.tails_apart = either(value, "merged", "apart")?,
            ("markers", value) => self.markers = either(value, "none", "llvm")?,
            // Whether there are bitmaps for MC/DC as well is the front end's business: the unit has them or not.
            ("counters", "mcdc") => self.coverage = true,
            ("counters", value) => self.coverage = either(value, "none", "coverage")?,
            ("events", name) => self.events = Some(EventSource::parse(name)?),
            ("origin", unit) => self.origin = Some(Identity::parse(unit)?),
            ("hits", value) => self.count_hits = either(value, "unknown", "counted")?,
            ("facts", file) if !file.is_empty() => self.facts = Some(file.into()),
            _ => return None,
        }
        Some(())
    }

    /// The scheme with everything that shapes the code, as stored in the unit's map.
    pub fn scheme(&self) -> String {
        let on = |is: bool| if is { "on" } else { "off" };
        let (chords, early) = (on(self.plan.chords), on(self.choices.early));
        let rounds = match self.choices.rounds {
            ByRounds::No => "off",
            ByRounds::Tight => "tight",
            ByRounds::Often => "on",
        };
        let reach = if self.reach_all {
            "all"
        } else if self.reach_calls {
            "calls"
        } else {
            "doubtful"
        };
        let tier = match self.tier {
            Tier::Full => String::new(),
            Tier::Sample => " tier=sample".into(),
            Tier::Residual => {
                let key = if self.watches { WATCHED_KEY } else { KNOWN_KEY };
                let file = self.known.as_ref().map_or_else(String::new, |(_, file)| format!(" {key}={file}"));
                format!(" {RESIDUAL_WORD}{file}")
            }
            Tier::Addresses if self.tails_apart => format!(" {ADDRESSES_WORD} tails=apart"),
            Tier::Addresses => format!(" {ADDRESSES_WORD}"),
        };
        let markers = match (self.markers, self.coverage) {
            (_, true) => " counters=coverage",
            (true, false) => " markers=llvm",
            (false, false) => "",
        };
        let events = self.events.map_or_else(String::new, |e| format!(" events={}", e.name()));
        let more = self.more_words();
        let weights = self.weights.as_ref().map_or_else(String::new, |(_, file)| format!(" weights={file}"));
        format!(
            "{} max-paths={} chords={chords} rounds={rounds} early={early} reach={reach}{tier}{markers}{events}{more}{weights}",
            self.scheme.name(),
            self.plan.max_paths
        )
    }
}

impl Options {
    /// The words of [`Options::scheme`] that are there only where something else than usual was asked for.
    fn more_words(&self) -> String {
        let mut words = String::new();
        if self.stream {
            words += " stream=on";
        }
        if self.one_version {
            words += " versions=one";
        }
        words += match self.choices.usual {
            UsualRounds::Together => " usual=off",
            UsualRounds::Apart => "",
            UsualRounds::Held => " usual=held",
        };
        if self.table_slots > 0 {
            words += &format!(" table-slots={} array-paths={}", self.table_slots, self.array_paths);
        }
        if let Some((_, file)) = &self.interesting {
            words += &format!(" {INTERESTING_KEY}={file}");
        }
        if self.scheme == Scheme::Selected(trodden_flow::Scheme::PppOptimal) {
            words += &format!(" time-limit={}", self.time_limit_s);
        }
        if let (Some((_, file)), Some(unit)) = (&self.parts, self.origin) {
            words += &format!(" {PARTS_WORD}{file} {ORIGIN_WORD}{unit}");
        }
        if self.count_hits {
            words += " hits=counted";
        }
        match self.threads {
            Threads::Own => {}
            Threads::Atomic => words += " threads=atomic",
        }
        words
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

fn read_known(file: &Path) -> Result<(Rc<KnownPaths>, Identity), BadOption> {
    let bytes = std::fs::read(file).map_err(|source| BadOption::Unreadable { file: file.to_owned(), source })?;
    let known = KnownPaths::from_bytes(&bytes).map_err(|source| BadOption::KnownPaths { file: file.to_owned(), source })?;
    Ok((Rc::new(known), Identity::of(&bytes)))
}

fn read_parts(file: &Path) -> Result<(Rc<Parts>, Identity), BadOption> {
    let bytes = std::fs::read(file).map_err(|source| BadOption::Unreadable { file: file.to_owned(), source })?;
    let parts = Parts::from_bytes(&bytes).map_err(|source| BadOption::Parts { file: file.to_owned(), source })?;
    Ok((Rc::new(parts), Identity::of(&bytes)))
}

fn read_directions(file: &Path) -> Result<Rc<Directions>, BadOption> {
    let bytes = std::fs::read(file).map_err(|source| BadOption::Unreadable { file: file.to_owned(), source })?;
    let directions = Directions::from_bytes(&bytes).map_err(|source| BadOption::Directions { file: file.to_owned(), source })?;
    Ok(Rc::new(directions))
}
