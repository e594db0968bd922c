//! How units are to be instrumented: the words of the environment variable `TRODDEN_INSTRUMENT`, which the compiler driver sets.
//!
//! The plugin has no command line of its own; clang hands it none. Words are `key=value`, separated by blanks:
//! `scheme=ball-larus`, `max-paths=N`, `chords=on|off`, `reach=doubtful|all`, `keep=bitcode|map`, `tier=full|sample`,
//! `jumps=through|cut`.

use trodden_flow::PlanOptions;
use trodden_flow::dag::Entries;

/// Functions with more paths than this are cut. 4096 counters are a page of 32 KB per function at most, and few functions reach it.
const MAX_PATHS: u64 = 4096;

/// The most that can be asked for: larger arrays (128 MB a function) would not link.
const MOST_MAX_PATHS: u64 = 1 << 24;

/// How units are instrumented.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cutting and placement.
    pub plan: PlanOptions,
    /// Count at every call that it was reached, not only at those that might not come back by themselves: so that callers' paths are known too when a
    /// signal ends the program.
    pub reach_all: bool,
    /// Keep the unit's bitcode, so that other variants can be made of it.
    pub keep_bitcode: bool,
    /// Count only while the image's switch is on; see [`crate::sample`].
    pub sample: bool,
    /// Paths end at a function's only computed jump, as they do where there are several. Always so in the sample tier, where versions change there.
    pub cut_jumps: bool,
}

/// A word that means nothing.
#[derive(Debug, thiserror::Error)]
#[error(
    "TRODDEN_INSTRUMENT holds `{0}`; known are scheme=ball-larus, max-paths=NUMBER (1 to 16777216), chords=on|off, reach=doubtful|all, keep=bitcode|map, tier=full|sample, jumps=through|cut"
)]
pub struct BadOption(String);

impl Options {
    /// Reads the words.
    pub fn parse(words: &str) -> Result<Options, BadOption> {
        let plan = PlanOptions { max_paths: MAX_PATHS, entries: Entries::Shared, chords: true };
        let mut options = Options { plan, reach_all: false, keep_bitcode: true, sample: false, cut_jumps: false };
        for word in words.split_whitespace() {
            options.apply(word).ok_or_else(|| BadOption(word.into()))?;
        }
        Ok(options)
    }

    fn apply(&mut self, word: &str) -> Option<()> {
        match word.split_once('=')? {
            ("scheme", "ball-larus") => {}
            ("max-paths", n) => self.plan.max_paths = n.parse().ok().filter(|n| (1..=MOST_MAX_PATHS).contains(n))?,
            ("chords", "on") => self.plan.chords = true,
            ("chords", "off") => self.plan.chords = false,
            ("reach", "doubtful") => self.reach_all = false,
            ("reach", "all") => self.reach_all = true,
            ("keep", "bitcode") => self.keep_bitcode = true,
            ("keep", "map") => self.keep_bitcode = false,
            ("tier", "full") => self.sample = false,
            ("tier", "sample") => self.sample = true,
            ("jumps", "through") => self.cut_jumps = false,
            ("jumps", "cut") => self.cut_jumps = true,
            _ => return None,
        }
        Some(())
    }

    /// The scheme with everything that shapes the code, as stored in the unit's map.
    pub fn scheme(&self) -> String {
        let chords = if self.plan.chords { "on" } else { "off" };
        let reach = if self.reach_all { "all" } else { "doubtful" };
        let tier = if self.sample { " tier=sample" } else { "" };
        let jumps = if self.cut_jumps { " jumps=cut" } else { "" };
        format!("ball-larus max-paths={} chords={chords} reach={reach}{tier}{jumps}", self.plan.max_paths)
    }
}
