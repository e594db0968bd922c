//! Reasons why counts of a profile are not exact or not complete: the program's experiment, full tables, lost data.
//!
//! Sampling is described separately ([`crate::sampling`]).

use crate::model::Profile;
use crate::sampling::is_sampled;
use std::collections::BTreeSet;
use std::fmt;
use trodden_unit::experiment::Spelling;
use trodden_unit::{Aliases, Counted, FunctionMap, UnitMap, parts};

/// Prefix of the reasons for which functions of the sample tier are not counted.
const NOT_SAMPLED: &str = "it is not sampled";

/// A reason why counts are not exact, or not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inexact {
    /// The scheme leaves paths out.
    Partial {
        /// Its name.
        scheme: String,
        /// Functions with some of their paths counted.
        functions: u64,
        /// Executions whose path is unattributed.
        executions: u64,
    },
    /// Tables were full.
    TableFull {
        /// Number of functions.
        functions: u64,
        /// Executions whose path is unattributed.
        executions: u64,
    },
    /// Paths that the build knew are not counted.
    Residual {
        /// Units that do so.
        units: u64,
    },
    /// Only paths that match an expression are counted.
    Watched {
        /// Units that do so.
        units: u64,
    },
    /// Only interesting paths are counted separately.
    Interesting {
        /// The numbering.
        scheme: String,
        /// Functions counted so.
        functions: u64,
        /// Executions of their other paths, counted together.
        executions: u64,
    },
    /// Counts of interesting paths may include executions of other paths.
    Aliases {
        /// The numbering.
        scheme: String,
        /// Functions with such paths.
        functions: u64,
        /// Paths found to share the number of another path, among those that were tried.
        aliases: u64,
    },
    /// Numberings that were tested on random paths and not proven.
    Unproven {
        /// Functions so numbered.
        functions: u64,
    },
    /// One of several copies, each of which counts a part of the paths.
    Copy {
        /// Units that do so.
        units: u64,
    },
    /// Edges are counted instead of paths.
    Edges {
        /// Number of units.
        units: u64,
    },
    /// The copies that counted together did not run the same execution.
    Diverged {
        /// Number of differences.
        differences: u64,
    },
    /// Functions of a sampled program that are not sampled.
    NotSampled {
        /// Their linkage names.
        functions: Vec<String>,
    },
    /// Counts could not be written.
    Lost {
        /// Number of threads.
        threads: u64,
    },
    /// A signal ended all copies that counted together.
    Interrupted {
        /// Number of copies.
        copies: u64,
    },
}

impl fmt::Display for Inexact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inexact::Partial { scheme, functions, executions } => write!(
                f,
                "only some of the paths of {} are counted (scheme {scheme}); the path of {} is unknown; build with \
                    --scheme ball-larus to count all paths",
                plural(*functions, "function"),
                plural(*executions, "execution")
            ),
            Inexact::TableFull { functions, executions } => write!(
                f,
                "the tables of {} were full; the path of {} is unknown; build with a greater --table-slots, or without it",
                plural(*functions, "function"),
                plural(*executions, "execution")
            ),
            Inexact::Residual { units } => write!(
                f,
                "{} only paths that were unknown at the time of the build (--residual); these are counted exactly",
                plural_verb(*units, "unit", "counts", "count")
            ),
            Inexact::Watched { units } => write!(
                f,
                "{} only paths that match the expression (--watch); these are counted exactly",
                plural_verb(*units, "unit", "counts", "count")
            ),
            Inexact::Interesting { scheme, functions, executions } => write!(
                f,
                "only interesting paths of {} are counted separately (--interesting, scheme {scheme}); {} of their other paths are \
                    counted together; functions without interesting paths are not counted",
                plural(*functions, "function"),
                plural(*executions, "execution")
            ),
            Inexact::Aliases { scheme, functions, aliases } => write!(
                f,
                "the scheme {scheme} counts {} of {} as interesting ones; use ppp or known-table for exact counts",
                plural(*aliases, "other path"),
                plural(*functions, "function")
            ),
            Inexact::Unproven { functions } => write!(
                f,
                "the numbering of {} has too many paths for a proof; it was tested on random paths",
                plural(*functions, "function")
            ),
            Inexact::Copy { units } => write!(
                f,
                "{} to one of several copies, each of which counts some of the paths; these are counted exactly",
                plural_verb(*units, "unit", "belongs", "belong")
            ),
            Inexact::Edges { units } => {
                write!(f, "{} edges (--edges) instead of paths: each path is one edge", plural_verb(*units, "unit", "counts", "count"))
            }
            Inexact::Diverged { differences } => write!(
                f,
                "the copies that counted together did not run the same execution: they differ in {}, so counts of several executions \
                    are mixed here; `trodden doctor -- COMMAND` checks whether the program does the same each time",
                plural(*differences, "place")
            ),
            Inexact::NotSampled { functions } => {
                const SHOWN: usize = 5;
                let more = if functions.len() > SHOWN { format!(" and {} more", functions.len() - SHOWN) } else { String::new() };
                write!(
                    f,
                    "never sampled, so that none of their paths are here, however often they are executed: {}{more} (they call setjmp, \
                        or have code that must not be duplicated; `trodden info --all PROGRAM` says which); build without --sample to \
                        count them",
                    functions.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ")
                )
            }
            Inexact::Lost { threads } => write!(
                f,
                "the counts of {} are lost, because the program could not write them: free space, and record again",
                plural(*threads, "thread")
            ),
            Inexact::Interrupted { copies } => write!(
                f,
                "a signal ended the {copies} copies that counted together, each at another place, so counts of different functions are \
                    not consistent; record without --copies to see where one program was"
            ),
        }
    }
}

/// A number of things: `1 unit`, `2 units`.
fn plural(number: impl Into<u128>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A number of things with the verb that belongs to it: `1 unit counts`, `2 units count`.
fn plural_verb(number: impl Into<u128>, noun: &str, one: &str, many: &str) -> String {
    let number = number.into();
    format!("{} {}", plural(number, noun), if number == 1 { one } else { many })
}

/// The reasons that follow from the units' experiments.
pub fn of_units<'a>(maps: impl Iterator<Item = &'a UnitMap>) -> Vec<Inexact> {
    collect(maps.map(|map| (map, 0)), |_, _| 0)
}

impl Profile {
    /// The reasons why counts are not exact; empty if all are exact.
    pub fn inexact(&self) -> Vec<Inexact> {
        let units: Vec<_> = self.images.iter().flat_map(|i| &i.units).collect();
        let mut out = collect(units.iter().enumerate().map(|(at, u)| (&*u.map, at)), |at, function| units[at].unattributed(function));
        if self.run.lost > 0 {
            out.push(Inexact::Lost { threads: self.run.lost });
        }
        if self.run.interrupted > 0 {
            out.push(Inexact::Interrupted { copies: self.run.interrupted });
        }
        if self.run.diverged > 0 {
            out.push(Inexact::Diverged { differences: self.run.diverged });
        }
        out
    }
}

fn collect<'a>(maps: impl Iterator<Item = (&'a UnitMap, usize)>, unattributed: impl Fn(usize, &FunctionMap) -> u64) -> Vec<Inexact> {
    let (mut partial, mut full, mut residual, mut scheme) = ((0u64, 0u64), (0u64, 0u64), 0u64, String::new());
    let (mut interesting, mut aliases, mut unproven, mut interesting_scheme) = ((0u64, 0u64), (0u64, 0u64), 0u64, String::new());
    let (mut copy, mut watched, mut edges) = (0u64, 0u64, 0u64);
    let mut not_sampled = BTreeSet::new();
    for (map, at) in maps {
        edges += u64::from(map.counted == Counted::Edges);
        if is_sampled(map) {
            let refused = map.skipped.iter().filter(|s| s.reason.starts_with(NOT_SAMPLED));
            not_sampled.extend(refused.map(|s| s.name.trim_start_matches('\u{1}').to_owned()));
        }
        watched += u64::from(map.is_watched());
        residual += u64::from(map.has_times() && !map.is_watched());
        let is_copy = parts::origin(map).is_some();
        copy += u64::from(is_copy);
        for function in map.functions.iter().filter(|_| !is_copy) {
            let executions = unattributed(at, function);
            let name = || map.experiment.scheme().name().to_owned();
            if let Some(words) = function.interesting() {
                interesting_scheme = name();
                interesting = (interesting.0 + 1, interesting.1.saturating_add(executions));
                unproven += u64::from(!words.proven);
                let (Aliases::Exactly(found) | Aliases::Drawn { aliases: found, .. }) = words.aliases;
                aliases = (aliases.0 + u64::from(found > 0), aliases.1.saturating_add(found));
            } else if function.is_partial() {
                scheme = name();
                partial = (partial.0 + 1, partial.1.saturating_add(executions));
            } else if executions > 0 {
                full = (full.0 + 1, full.1.saturating_add(executions));
            }
        }
    }
    let mut out = Vec::new();
    if !not_sampled.is_empty() {
        out.push(Inexact::NotSampled { functions: not_sampled.into_iter().collect() });
    }
    if partial.0 > 0 {
        out.push(Inexact::Partial { scheme, functions: partial.0, executions: partial.1 });
    }
    if interesting.0 > 0 {
        out.push(Inexact::Interesting { scheme: interesting_scheme.clone(), functions: interesting.0, executions: interesting.1 });
    }
    if aliases.0 > 0 {
        out.push(Inexact::Aliases { scheme: interesting_scheme, functions: aliases.0, aliases: aliases.1 });
    }
    if unproven > 0 {
        out.push(Inexact::Unproven { functions: unproven });
    }
    if full.0 > 0 {
        out.push(Inexact::TableFull { functions: full.0, executions: full.1 });
    }
    if residual > 0 {
        out.push(Inexact::Residual { units: residual });
    }
    if watched > 0 {
        out.push(Inexact::Watched { units: watched });
    }
    if copy > 0 {
        out.push(Inexact::Copy { units: copy });
    }
    if edges > 0 {
        out.push(Inexact::Edges { units: edges });
    }
    out
}
