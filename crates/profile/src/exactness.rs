//! Reasons why counts of a profile are not exact or not complete: the program's experiment, full tables, lost data.
//!
//! Sampling is described separately ([`crate::sampling`]).

use crate::model::{Profile, Run, UnitProfile};
use std::collections::BTreeSet;
use trodden_unit::experiment::Spelling;
use trodden_unit::{CountedEvent, FunctionMap, StorageAliases, UnitMap, parts};

/// Prefix of the reasons for which functions of the sample tier are not counted.
const NOT_SAMPLED: &str = "it is not sampled";

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

/// The reasons that follow from the units' experiments.
pub fn of_units<'a>(maps: impl Iterator<Item = &'a UnitMap>) -> Vec<Inexact> {
    collect(maps.map(|map| (map, 0)), |_, _| 0)
}

impl Profile {
    /// Whether executions of a function may be missing in its counts: a path of it that has no count may have been executed all the same.
    pub fn may_lack(&self, unit: &UnitProfile, function: &FunctionMap) -> bool {
        self.lacks_paths(unit, function) || [self.run.lost, self.run.interrupted, self.run.diverged] != [0; 3]
    }

    /// Whether a function's paths are not counted alike, so that the count of one says nothing of another's: it is sampled, counts a part
    /// of its paths, or executions were counted without their path.
    pub fn lacks_paths(&self, unit: &UnitProfile, function: &FunctionMap) -> bool {
        let is_sampled = self.sampling.as_ref().is_some_and(|sampling| match sampling.branches() {
            Some(branches) => !branches.is_complete(),
            None => unit.map.experiment.is_sampled(),
        });
        is_sampled || unit.map.has_times() || function.is_partial() || unit.unattributed(function) > 0
    }

    /// The reasons why counts are not exact; empty if all are exact.
    pub fn inexact(&self) -> Vec<Inexact> {
        let units: Vec<_> = self.images.iter().flat_map(|i| &i.units).collect();
        let mut out = collect(units.iter().enumerate().map(|(at, u)| (&*u.map, at)), |at, function| units[at].unattributed(function));
        let Run { lost, interrupted, diverged, .. } = self.run;
        let of_run =
            [(lost, Inexact::Lost(lost)), (interrupted, Inexact::Interrupted(interrupted)), (diverged, Inexact::Diverged(diverged))];
        out.extend(of_run.into_iter().filter(|(number, _)| *number > 0).map(|(_, reason)| reason));
        out
    }
}

fn collect<'a>(maps: impl Iterator<Item = (&'a UnitMap, usize)>, unattributed: impl Fn(usize, &FunctionMap) -> u64) -> Vec<Inexact> {
    let mut found = Found::default();
    for (map, at) in maps {
        found.unit(map);
        let counts_all = parts::origin(map).is_none();
        map.functions.iter().filter(|_| counts_all).for_each(|function| found.function(map, function, unattributed(at, function)));
    }
    found.reasons()
}

/// Functions of one kind, and a number that belongs to them.
#[derive(Default)]
struct Tally {
    functions: u64,
    sum: u64,
}

impl Tally {
    fn add(&mut self, number: u64) {
        self.functions += 1;
        self.sum = self.sum.saturating_add(number);
    }
}

/// What the units of a profile have that makes counts inexact.
#[derive(Default)]
struct Found {
    not_sampled: BTreeSet<String>,
    scheme: String,
    /// With executions of unknown paths.
    partial: Tally,
    segments: u64,
    interesting_scheme: String,
    /// With executions of other paths.
    interesting: Tally,
    /// With paths that are counted as others.
    aliases: Tally,
    unproven: u64,
    /// With executions of unknown paths.
    full: Tally,
    residual: u64,
    watched: u64,
    copy: u64,
    edges: u64,
}

impl Found {
    fn unit(&mut self, map: &UnitMap) {
        if map.experiment.is_sampled() {
            let refused = map.skipped.iter().filter(|s| s.reason.starts_with(NOT_SAMPLED));
            self.not_sampled.extend(refused.map(|s| s.name.trim_start_matches('\u{1}').to_owned()));
        }
        self.edges += u64::from(map.counted == CountedEvent::Edges);
        self.watched += u64::from(map.experiment.is_watched());
        self.residual += u64::from(map.has_times() && !map.experiment.is_watched());
        self.copy += u64::from(parts::origin(map).is_some());
    }

    fn function(&mut self, map: &UnitMap, function: &FunctionMap, unattributed: u64) {
        let scheme = || map.experiment.scheme().name().to_owned();
        if let Some(words) = function.interesting() {
            self.interesting_scheme = scheme();
            self.interesting.add(unattributed);
            self.unproven += u64::from(!words.proven);
            let (StorageAliases::Exactly(aliases) | StorageAliases::Drawn { aliases, .. }) = words.aliases;
            if aliases > 0 {
                self.aliases.add(aliases);
            }
        } else if function.segment_words().is_some() {
            self.segments += 1;
        } else if function.is_partial() {
            self.scheme = scheme();
            self.partial.add(unattributed);
        } else if unattributed > 0 {
            self.full.add(unattributed);
        }
    }

    fn reasons(self) -> Vec<Inexact> {
        let Found { scheme, interesting_scheme, .. } = self;
        let Tally { functions: aliased, sum: aliases } = self.aliases;
        let Tally { functions: partial, sum: unknown } = self.partial;
        let Tally { functions: interesting, sum: others } = self.interesting;
        let Tally { functions: full, sum: lost } = self.full;
        let not_sampled: Vec<String> = self.not_sampled.into_iter().collect();
        let all = [
            (!not_sampled.is_empty(), Inexact::NotSampled(not_sampled)),
            (partial > 0, Inexact::Partial { scheme, functions: partial, executions: unknown }),
            (self.segments > 0, Inexact::Segments(self.segments)),
            (interesting > 0, Inexact::Interesting { scheme: interesting_scheme.clone(), functions: interesting, executions: others }),
            (aliased > 0, Inexact::Aliases { scheme: interesting_scheme, functions: aliased, aliases }),
            (self.unproven > 0, Inexact::Unproven(self.unproven)),
            (full > 0, Inexact::TableFull { functions: full, executions: lost }),
            (self.residual > 0, Inexact::Residual(self.residual)),
            (self.watched > 0, Inexact::Watched(self.watched)),
            (self.copy > 0, Inexact::Copy(self.copy)),
            (self.edges > 0, Inexact::Edges(self.edges)),
        ];
        all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, reason)| reason).collect()
    }
}
