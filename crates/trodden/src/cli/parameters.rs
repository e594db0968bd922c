//! Parameters of counting, which several commands take, and their words for the plugin.

use crate::cc::pgo::{COVERAGE, MARKERS, MCDC};
use crate::notes::reasons;
use anyhow::Context;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use trodden_profile::sampling::SAMPLE_TIER as SAMPLE_WORD;
use trodden_unit::marks::ADDRESSES_WORD;
use trodden_unit::{EventSource, Identity, KnownPaths, RESIDUAL_WORD};

/// How paths are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Parameters {
    /// Numbering of paths.
    #[arg(long, value_enum)]
    pub scheme: Option<Scheme>,
    /// Cut the paths of functions that have more than this many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub max_paths: Option<u64>,
    /// Count functions with more paths than `--array-paths` in a table of so many slots, instead of cutting their paths (0: cut them).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    pub table_slots: Option<u64>,
    /// Most paths of a function that counts in an array, where there are tables.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub array_paths: Option<u64>,
    /// Whose counters a thread increments: its own (no contention), or all threads' by atomic increments. Both are exact.
    #[arg(long, value_enum)]
    pub threads: Option<Threads>,
    /// Count on the chords of a spanning tree rather than on every edge with a value.
    #[arg(long, value_enum)]
    pub chords: Option<Switch>,
    /// At which calls to count that they were reached, and so to know the paths that did not come back.
    #[arg(long, value_enum)]
    pub reach: Option<Reach>,
    /// What to keep of each unit; other variants of a program need the bitcode.
    #[arg(long, value_enum)]
    pub keep: Option<Keep>,
    /// Measured frequencies (`trodden export weights`): probes go where the program hardly ever comes.
    #[arg(long, value_name = "FILE", value_parser = weights_file)]
    pub weights: Option<String>,
    /// Count nothing and change no code: only note where each block lies, for `trodden import` of branches that hardware recorded.
    #[arg(long, conflicts_with_all = ["sample", "pgo", "table_slots", "threads"])]
    pub addresses: bool,
    /// With `--addresses`: whether code generation may merge equal ends of blocks, which then lose their addresses.
    #[arg(long, value_enum, requires = "addresses")]
    pub tails: Option<Tails>,
    /// Note where LLVM's edge counters would be, so that profiles can be exported for `-fprofile-use`.
    #[arg(long)]
    pub pgo: bool,
    /// Have the compiler insert the counters of its source-based coverage, and compute them from the paths: for `trodden coverage`. With
    /// `=mcdc` the conditions of each decision are observed as well (C and C++).
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "regions",
          conflicts_with_all = ["addresses", "pgo", "sample"])]
    pub coverage: Option<CoverageKind>,
    /// Besides counting, sum up events for each path: their number, mean and deviation. `tsc` (time) works everywhere;
    /// hardware events need a machine that counts them.
    #[arg(long, value_name = "EVENT", value_parser = event, conflicts_with_all = ["addresses", "pgo", "coverage", "sample"])]
    pub events: Option<EventSource>,
    /// Count only paths that this profile does not have: a file, a run, a suite, known paths (`trodden export known`),
    /// or several of these divided by commas. Known paths cost next to nothing.
    #[arg(long, value_name = "PROFILE", value_parser = known_paths,
          conflicts_with_all = ["addresses", "pgo", "coverage", "sample", "events"])]
    pub residual: Option<String>,
    /// Write the sequence of paths and calls instead of counting, for `trodden record --whole-program` and `--last`: counts follow from it.
    #[arg(long, conflicts_with_all = ["addresses", "pgo", "coverage", "sample", "events", "residual", "table_slots", "threads"])]
    pub stream: bool,
    /// Count only in bursts, which `trodden record` or `trodden sample` ask for: next to no cost in between.
    #[arg(long)]
    pub sample: bool,
}

/// The path as a word for the plugin, which may work in another folder.
pub fn weights_file(path: &str) -> Result<String, String> {
    let absolute = std::path::absolute(path).map_err(|e| e.to_string())?;
    let words = absolute.to_str().filter(|p| !p.contains(char::is_whitespace));
    let word = words.ok_or_else(|| format!("{} has blanks in its name: copy it to a place without", absolute.display()))?;
    let bytes = std::fs::read(word).map_err(|e| format!("cannot read it: {e}"))?;
    trodden_unit::Weights::from_bytes(&bytes).map(|_| word.to_owned()).map_err(|e| e.to_string())
}

/// A file of the known paths that are meant, in the store, where `trodden residual` finds it by its identity. Several
/// names are divided by commas.
pub fn known_paths(wanted: &str) -> Result<String, String> {
    let written = || -> anyhow::Result<PathBuf> {
        let mut known = KnownPaths::default();
        for name in if Path::new(wanted).is_file() { vec![wanted] } else { wanted.split(',').collect() } {
            known.unite(match known_in(name)? {
                Some(known) => known,
                None => crate::profiles::load(name)?.known_paths()?,
            })?;
        }
        let bytes = known.to_bytes();
        let path = crate::assets::store()?.root().join("known").join(Identity::of(&bytes).to_string());
        crate::assets::write_whole(&path, &bytes)?;
        Ok(std::path::absolute(path)?)
    };
    let path = written().map_err(|e| reasons(&e))?;
    let word = path.to_str().filter(|p| !p.contains(char::is_whitespace));
    word.map(str::to_owned).ok_or_else(|| format!("{} has blanks in its name: set TRODDEN_STORE to a folder without", path.display()))
}

/// What a file of known paths holds; `None` if the name is not of one.
///
/// # Errors
/// It is damaged.
pub fn known_in(name: &str) -> anyhow::Result<Option<KnownPaths>> {
    let bytes = std::fs::read(name).ok().filter(|bytes| KnownPaths::is_begun_in(bytes));
    bytes.map(|bytes| KnownPaths::from_bytes(&bytes).with_context(|| name.to_owned())).transpose()
}

fn event(name: &str) -> Result<EventSource, String> {
    let known = || EventSource::ALL.map(EventSource::name).join(", ");
    EventSource::parse(name).ok_or_else(|| format!("there is no such event; known are {}", known()))
}

/// What coverage is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoverageKind {
    /// Of regions, and so of lines, functions and branches.
    Regions,
    /// And of the conditions of decisions (MC/DC).
    Mcdc,
}

impl CoverageKind {
    /// The plugin's parameter.
    fn option(self) -> &'static str {
        match self {
            CoverageKind::Regions => COVERAGE,
            CoverageKind::Mcdc => MCDC,
        }
    }
}

/// What becomes of equal ends of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tails {
    /// As without trodden: some are merged.
    Merged,
    /// They stay apart: code is some per cent longer, and all paths can be told.
    Apart,
}

/// A numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// Every acyclic path has a number (Ball and Larus).
    BallLarus,
    /// Partial: paths without edges that are cold where they begin (Joshi, Bond, Zilles); needs --weights.
    Targeted,
    /// Partial: paths without edges that are cold in the whole program (Bond, McKinley); needs --weights.
    Practical,
    /// Paths of each loop apart: shorter paths, exact counts.
    Structural,
    /// The paths of `trodden instrument --interesting`, selectively: other paths may be counted as such.
    Spp,
    /// The same, repaired; exact, for small functions.
    Mspp,
    /// The paths over the edges of --interesting, compactly numbered.
    Pertinent,
    /// The same, precisely: no other path is counted as such.
    Pspp,
    /// The paths of --interesting, preferentially: compactly numbered, each checked.
    Ppp,
    /// The paths of --interesting, looked up in a table (what is done if --interesting is given alone).
    KnownTable,
    /// As ppp, as compactly as can be found in the time of --time-limit.
    PppOptimal,
    /// As ppp without the check: other paths may be counted as such.
    Approximate,
}

/// Whose counters a thread increments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Threads {
    /// Its own: exact.
    Own,
    /// All threads', by atomic increments: exact.
    Atomic,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Calls at which it is counted that they were reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reach {
    /// Those that might exit, throw or jump away: what the compiler cannot exclude.
    Doubtful,
    /// Those, and all of functions that the unit defines; so it is with --stream.
    Calls,
    /// All, so that callers' paths are known too when a signal ends the program.
    All,
}

/// What is kept of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// Map and bitcode.
    Bitcode,
    /// The map alone.
    Map,
}

impl Parameters {
    /// The parameters as the plugin reads them: `key=value` words, for those that are given.
    pub fn words(&self) -> String {
        fn word<T: ValueEnum>(key: &str, value: Option<T>) -> Option<String> {
            let value = value?.to_possible_value()?;
            Some(format!("{key}={}", value.get_name()))
        }
        let words = [
            word("scheme", self.scheme),
            self.max_paths.map(|n| format!("max-paths={n}")),
            self.table_slots.map(|n| format!("table-slots={n}")),
            self.array_paths.map(|n| format!("array-paths={n}")),
            word("threads", self.threads),
            word("chords", self.chords),
            word("reach", self.reach),
            word("keep", self.keep),
            self.weights.as_ref().map(|file| format!("weights={file}")),
            self.addresses.then(|| ADDRESSES_WORD.to_owned()),
            word("tails", self.tails),
            self.events.map(|event| format!("events={}", event.name())),
            self.residual.as_ref().map(|file| format!("{RESIDUAL_WORD} known={file}")),
            self.pgo.then(|| MARKERS.to_owned()),
            self.coverage.map(|kind| kind.option().to_owned()),
            self.stream.then(|| "stream=on".to_owned()),
            self.sample.then(|| SAMPLE_WORD.to_owned()),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Whether the scheme fits what else is asked for.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self, interesting: bool, watch: bool) -> anyhow::Result<()> {
        let Some(scheme) = self.scheme else { return Ok(()) };
        let name = scheme.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
        let all = matches!(scheme, Scheme::BallLarus | Scheme::Structural);
        let of_weights = matches!(scheme, Scheme::Targeted | Scheme::Practical);
        if !all && (self.residual.is_some() || watch) {
            let other = if watch { "--watch" } else { "--residual" };
            anyhow::bail!("--scheme {name} does not go together with {other}, which says itself which paths are counted: leave one");
        }
        if !all && !of_weights && !interesting {
            anyhow::bail!("--scheme {name} numbers paths that are asked for: say which by `trodden instrument --interesting`");
        }
        Ok(())
    }

    /// The parameters over those that the environment has: the command line wins.
    pub fn words_over(&self, environment: &str) -> String {
        parameters_over(environment, &self.words())
    }
}

/// `key=value` words over others: those win whose key they have.
pub fn parameters_over(others: &str, own: &str) -> String {
    let key = |word: &str| word.split_once('=').map_or(word.to_owned(), |(k, _)| k.to_owned());
    let given: Vec<String> = own.split_whitespace().map(key).collect();
    let others = others.split_whitespace().filter(|w| !given.contains(&key(w)));
    others.chain(own.split_whitespace()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_that_choose_paths_need_to_be_told_which() {
        let said = |scheme, interesting, watch| {
            let parameters = Parameters { scheme: Some(scheme), ..Parameters::default() };
            parameters.check(interesting, watch).map_err(|e| e.to_string()).err().unwrap_or_default()
        };
        assert!(said(Scheme::Ppp, false, false).contains("--interesting") && said(Scheme::Targeted, false, true).contains("--watch"));
        assert_eq!((said(Scheme::Ppp, true, false), said(Scheme::Targeted, false, false)), (String::new(), String::new()));
    }

    #[test]
    fn given_parameters_win_over_the_environment() {
        let given = Parameters { scheme: Some(Scheme::BallLarus), max_paths: Some(9), ..Parameters::default() };
        assert_eq!(given.words_over("max-paths=100 keep=map"), "keep=map scheme=ball-larus max-paths=9");
        assert_eq!(Parameters::default().words_over("chords=off"), "chords=off");
    }
}
