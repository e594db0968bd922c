//! Why the counts of a profile are not all exact, where they are not: by the way the program was instrumented, or because tables were full.
//!
//! Profiles that were sampled say so elsewhere ([`crate::sampling`]).

use crate::model::Profile;
use crate::sampling::is_sampled;
use std::collections::BTreeSet;
use std::fmt;
use trodden_unit::experiment::Spelling;
use trodden_unit::{Aliases, Counted, FunctionMap, UnitMap, parts};

/// How reasons begin for which functions of the sample tier are not counted.
const NOT_SAMPLED: &str = "it is not sampled";

/// A reason why counts are not exact, or not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inexact {
    /// The scheme leaves paths out.
    Partial {
        /// Its name.
        scheme: String,
        /// Functions of which a part is counted.
        functions: u64,
        /// Executions of paths that were left out.
        executions: u64,
    },
    /// Tables were full.
    TableFull {
        /// In so many functions.
        functions: u64,
        /// Executions without their path.
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
    /// Only paths that were asked for are told apart.
    Chosen {
        /// The numbering.
        scheme: String,
        /// Functions counted so.
        functions: u64,
        /// Their other paths' executions, counted together.
        executions: u64,
    },
    /// Counts of paths that were asked for may have executions of other paths in them.
    Aliases {
        /// The numbering.
        scheme: String,
        /// Functions with such paths.
        functions: u64,
        /// So many paths counted as others, of those that were tried.
        aliases: u64,
    },
    /// Numberings that were tried on some paths, not proven.
    Unproven {
        /// Functions so numbered.
        functions: u64,
    },
    /// One of several copies, each of which counts a part of the paths.
    Copy {
        /// Units that do so.
        units: u64,
    },
    /// Edges are counted, not paths.
    Edges {
        /// Units where it is so.
        units: u64,
    },
    /// The copies that counted together were not the same execution.
    Diverged {
        /// Where they differ: so many places.
        differences: u64,
    },
    /// Functions of programs that are sampled which are not.
    NotSampled {
        /// Their linkage names.
        functions: Vec<String>,
    },
    /// Counts could not be written.
    Lost {
        /// Those of so many threads.
        threads: u64,
    },
    /// A signal ended all copies that counted together.
    Interrupted {
        /// So many copies.
        copies: u64,
    },
}

impl fmt::Display for Inexact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inexact::Partial { scheme, functions, executions } => write!(
                f,
                "only a part of the paths of {functions} functions is counted (scheme {scheme}), {executions} executions not told apart; \
                    build with --scheme ball-larus for all"
            ),
            Inexact::TableFull { functions, executions } => write!(
                f,
                "{executions} executions not told apart, because the tables of {functions} functions were full; build with a greater \
                    --table-slots, or without"
            ),
            Inexact::Residual { units } => {
                write!(
                    f,
                    "of {units} of the units only paths that were unknown when they were built are counted (--residual); those are \
                        counted exactly"
                )
            }
            Inexact::Watched { units } => write!(
                f,
                "of {units} of the units only paths that match what is watched for are counted (--watch); those are counted exactly"
            ),
            Inexact::Chosen { scheme, functions, executions } => write!(
                f,
                "only paths that were asked for are told apart (--interesting, scheme {scheme}), in {functions} functions; {executions} \
                    executions of their other paths are counted together, and functions without such paths are not counted"
            ),
            Inexact::Aliases { scheme, functions, aliases } => write!(
                f,
                "the scheme {scheme} counts {aliases} other paths of {functions} functions as some that were asked for; take ppp or \
                    known-table for exact counts"
            ),
            Inexact::Unproven { functions } => {
                write!(f, "the numbering of {functions} functions has too many paths for a proof, and was tried on some drawn at random")
            }
            Inexact::Copy { units } => {
                write!(
                    f,
                    "{units} units are those of one of several copies, which count a part of the paths each; those are counted exactly"
                )
            }
            Inexact::Edges { units } => {
                write!(f, "of {units} units edges are counted (--edges), not paths: each path is one edge")
            }
            Inexact::Diverged { differences } => {
                let places = if *differences == 1 { "place" } else { "places" };
                write!(
                    f,
                    "copies of the program counted it together, and were not the same execution: they differ in {differences} {places}, \
                        so counts of several executions are mixed here; `trodden doctor -- COMMAND` tells whether the program does the \
                        same each time"
                )
            }
            Inexact::NotSampled { functions } => {
                const SHOWN: usize = 5;
                let more = if functions.len() > SHOWN { format!(" and {} more", functions.len() - SHOWN) } else { String::new() };
                write!(
                    f,
                    "never sampled, so that none of their paths are here, however often they are executed: {}{more} (they call setjmp, \
                        or hold what there cannot be two of; `trodden info --all PROGRAM` says which); build without --sample to count \
                        them",
                    functions.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ")
                )
            }
            Inexact::Lost { threads } => {
                let whose = if *threads == 1 { "a thread".to_owned() } else { format!("{threads} threads") };
                write!(f, "the counts of {whose} are lost, because the program could not write them: record again where there is room")
            }
            Inexact::Interrupted { copies } => write!(
                f,
                "a signal ended the {copies} copies that counted together, each at another place, so counts of different functions do \
                    not fit together; record without --copies to see where one program was"
            ),
        }
    }
}

/// What is not exact by the way units were instrumented.
pub fn of_units<'a>(maps: impl Iterator<Item = &'a UnitMap>) -> Vec<Inexact> {
    collect(maps.map(|map| (map, 0)), |_, _| 0)
}

impl Profile {
    /// What is not exact about the counts; empty if nothing is.
    pub fn inexact(&self) -> Vec<Inexact> {
        let units: Vec<_> = self.images.iter().flat_map(|i| &i.units).collect();
        let mut out = collect(units.iter().enumerate().map(|(at, u)| (&*u.map, at)), |at, function| units[at].untold(function));
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

fn collect<'a>(maps: impl Iterator<Item = (&'a UnitMap, usize)>, untold: impl Fn(usize, &FunctionMap) -> u64) -> Vec<Inexact> {
    let (mut partial, mut full, mut residual, mut scheme) = ((0u64, 0u64), (0u64, 0u64), 0u64, String::new());
    let (mut chosen, mut aliases, mut unproven, mut chosen_scheme) = ((0u64, 0u64), (0u64, 0u64), 0u64, String::new());
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
            let executions = untold(at, function);
            let name = || map.experiment.scheme().name().to_owned();
            if let Some(words) = function.chosen() {
                chosen_scheme = name();
                chosen = (chosen.0 + 1, chosen.1.saturating_add(executions));
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
    if chosen.0 > 0 {
        out.push(Inexact::Chosen { scheme: chosen_scheme.clone(), functions: chosen.0, executions: chosen.1 });
    }
    if aliases.0 > 0 {
        out.push(Inexact::Aliases { scheme: chosen_scheme, functions: aliases.0, aliases: aliases.1 });
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
