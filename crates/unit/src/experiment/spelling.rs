//! The textual form of settings: in the environment variable `TRODDEN_INSTRUMENT` of the compiler drivers, in command-line options, and in
//! reports.
//!
//! The variable contains `key=value` entries separated by blanks. File names in it are percent-encoded (RFC 3986), since they may contain
//! blanks, quotes and bytes that are not UTF-8; in options they are literal. A file in an input folder is written as `id:` followed by its
//! identity.

use super::Experiment;
use super::axes::{DominantIteration, ExperimentScheme, Reach, ThreadCounters, TripCounts};
use super::settings::{Keep, ObservationTiming, Settings, SettingsFile};
use crate::observe::Observe;
use crate::{EventSource, Identity};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;

/// Environment variable with settings for the compiler drivers.
pub const SETTINGS_VARIABLE: &str = "TRODDEN_INSTRUMENT";

/// Maximum number of counters in an array, and of slots in a hash table. Programs with larger arrays (128 MB per function) would not link.
pub const MAX_PATHS: u64 = 1 << 24;

/// A type with a finite number of values, which users write by name.
pub trait Spelling: Copy + PartialEq + Sized + 'static {
    /// Returns all values of the type, each with its name and a description in one line.
    fn spellings() -> Vec<(Self, &'static str, &'static str)>;

    /// Returns the value whose name is `text`; `None` if there is none.
    fn parse(text: &str) -> Option<Self> {
        Self::spellings().into_iter().find(|(_, name, _)| *name == text).map(|(value, ..)| value)
    }

    /// Returns the value's name.
    fn name(self) -> &'static str {
        Self::spellings().into_iter().find(|(value, ..)| *value == self).map_or("", |(_, name, _)| name)
    }

    /// Returns the description of the value.
    fn description(self) -> &'static str {
        Self::spellings().into_iter().find(|(value, ..)| *value == self).map_or("", |(.., about)| about)
    }
}

/// Implements [`Spelling`] for a type, given its values with their names and descriptions.
#[macro_export]
macro_rules! spell {
    ($type:ty: $($value:expr => $name:literal, $about:literal;)*) => {
        impl $crate::experiment::Spelling for $type {
            fn spellings() -> Vec<(Self, &'static str, &'static str)> {
                vec![$(($value, $name, $about),)*]
            }
        }
    };
}

spell! { bool:
    true => "on", "on";
    false => "off", "off";
}
spell! { ThreadCounters:
    ThreadCounters::Own => "own", "Each thread has its own counters; exact";
    ThreadCounters::Atomic => "atomic", "All threads share counters, which are incremented atomically; exact";
}
spell! { TripCounts:
    TripCounts::On => "on", "All loops with one path and enough iterations";
    TripCounts::Tight => "tight", "Loops of a few instructions, or with a known trip count";
    TripCounts::Off => "off", "No loops";
}
spell! { DominantIteration:
    DominantIteration::Split => "split", "By an instruction of its own";
    DominantIteration::Shared => "shared", "By the same instruction as all other iterations";
}
spell! { Reach:
    Reach::MayNotReturn => "may-not-return", "Calls that may exit, throw or jump away, as far as the compiler cannot exclude it";
    Reach::Calls => "calls", "Calls as for may-not-return, and calls of functions that the unit defines";
    Reach::All => "all", "All calls, so that callers' paths are also known when a signal ends the program";
}
spell! { ObservationTiming:
    ObservationTiming::Always => "always", "All the time";
    ObservationTiming::Bursts => "bursts", "While `trodden record` has turned counting on";
}
spell! { Keep:
    Keep::Bitcode => "bitcode", "Map and bitcode";
    Keep::Map => "map", "Only the map";
}
spell! { ExperimentScheme:
    ExperimentScheme::BallLarus => "ball-larus", "All acyclic paths (Ball and Larus)";
    ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Spp) =>
        "spp", "Selective numbering of the paths of `trodden instrument --interesting`; other paths may be counted as interesting";
    ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Mspp) =>
        "mspp", "Selective numbering, repaired to be exact; for small functions";
    ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Pertinent) => "pertinent",
        "Compact numbering of the paths over the edges of --interesting";
    ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Pspp) =>
        "pspp", "Precise selective numbering: no other path is counted as interesting";
    ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Ppp) =>
        "ppp", "Preferential numbering of the paths of --interesting: compact, and checked for each path";
    ExperimentScheme::Interesting(trodden_flow::NumberingScheme::KnownTable) =>
        "known-table", "Table lookup of the paths of --interesting (default for --interesting)";
    ExperimentScheme::Interesting(trodden_flow::NumberingScheme::PppOptimal) =>
        "ppp-optimal", "Like ppp, with the most compact numbering found within --time-limit";
    ExperimentScheme::Interesting(trodden_flow::NumberingScheme::Approximate) =>
        "approximate", "Like ppp without the check; other paths may be counted as interesting";
}

spell! { EventSource:
    EventSource::Tsc => "tsc", "ticks";
    EventSource::Cycles => "cycles", "cycles";
    EventSource::Instructions => "instructions", "instructions";
    EventSource::CacheReferences => "cache-references", "cache references";
    EventSource::CacheMisses => "cache-misses", "cache misses";
    EventSource::Branches => "branches", "branches";
    EventSource::BranchMisses => "branch-misses", "branch misses";
    EventSource::TaskClock => "task-clock", "ns";
    EventSource::PageFaults => "page-faults", "page faults";
}

struct SpelledSetting {
    key: &'static str,
    values: fn() -> String,
    read: fn(&mut Settings, &OsStr) -> Option<()>,
    write: fn(&Settings) -> Option<String>,
}

macro_rules! one_of {
    ($key:literal, $field:ident: $type:ty) => {
        SpelledSetting {
            key: $key,
            values: || <$type>::spellings().iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join("|"),
            read: |settings, text| {
                settings.$field = Some(<$type as Spelling>::parse(text.to_str()?)?);
                Some(())
            },
            write: |settings| settings.$field.map(|value| Spelling::name(value).to_owned()),
        }
    };
}

macro_rules! number {
    ($key:literal, $field:ident: $from:literal to $to:expr) => {
        SpelledSetting {
            key: $key,
            values: || format!("NUMBER ({} to {})", $from, $to),
            read: |settings, text| {
                settings.$field = Some(text.to_str()?.parse().ok().filter(|n| ($from..=$to).contains(n))?);
                Some(())
            },
            write: |settings| settings.$field.map(|number| number.to_string()),
        }
    };
}

macro_rules! file {
    ($key:literal, $field:ident) => {
        SpelledSetting {
            key: $key,
            values: || "FILE".into(),
            read: |settings, text| {
                settings.$field = Some(parse_file(text)?);
                Some(())
            },
            write: |settings| settings.$field.as_ref().map(format_file),
        }
    };
}

/// All settings, in the order in which they are listed in text.
static SPELLED_SETTINGS: &[SpelledSetting] = &[
    one_of!("scheme", scheme: ExperimentScheme),
    number!("max-paths", max_paths: 1 to MAX_PATHS),
    one_of!("chords", chords: bool),
    one_of!("trip-counts", trip_counts: TripCounts),
    one_of!("early", early: bool),
    one_of!("dominant-iteration", dominant_iteration: DominantIteration),
    one_of!("reach", reach: Reach),
    one_of!("when", when: ObservationTiming),
    one_of!("observe", observe: Observe),
    one_of!("events", events: EventSource),
    one_of!("tail-merging", tail_merging: bool),
    number!("table-slots", table_slots: 0 to MAX_PATHS),
    number!("array-paths", array_paths: 1 to MAX_PATHS),
    one_of!("threads", threads: ThreadCounters),
    file!("interesting", interesting),
    file!("segments", segments),
    file!("iterations", iterations),
    number!("time-limit", time_limit_s: 1 to 3600),
    file!("known", known),
    file!("watched", watched),
    file!("part", part),
    SpelledSetting {
        key: "origin",
        values: || "UNIT".into(),
        read: |settings, text| {
            settings.origin = Some(Identity::parse(text.to_str()?)?);
            Some(())
        },
        write: |settings| settings.origin.map(|unit| unit.to_string()),
    },
    one_of!("count-hits", count_hits: bool),
    file!("weights", weights),
    file!("apply", apply),
    one_of!("keep", keep: Keep),
    SpelledSetting {
        key: "recorder",
        values: || "PATTERN".into(),
        read: |settings, text| {
            settings.recorder = Some(text.into()).filter(|pattern: &OsString| !pattern.is_empty());
            settings.recorder.as_ref().map(|_| ())
        },
        write: |settings| settings.recorder.as_ref().map(|pattern| encode(pattern)),
    },
];

/// Reason why a text cannot be parsed as settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum SpellingError {
    #[error("unknown build setting `{entry}`. Known settings: {known}", entry = entry.escape_debug(), known = list_settings())]
    Unknown { entry: String },
    #[error("invalid build setting `{key}={value}`. Values of {key}: {known}", value = value.escape_debug(), known = list_values(key))]
    Value { key: &'static str, value: String },
    #[error("{SETTINGS_VARIABLE} is not valid UTF-8. In file names, write bytes that are not UTF-8 as %XX")]
    NotText,
}

fn list_values(key: &str) -> String {
    SPELLED_SETTINGS.iter().find(|entry| entry.key == key).map(|entry| (entry.values)()).unwrap_or_default()
}

fn list_settings() -> String {
    SPELLED_SETTINGS.iter().map(|entry| format!("{}={}", entry.key, (entry.values)())).collect::<Vec<_>>().join(", ")
}

impl Settings {
    /// Gives the setting with this key a value. File names in the value are literal. Fails if the key is unknown, or if the value is
    /// invalid.
    pub fn set(&mut self, key: &str, value: &OsStr) -> Result<(), SpellingError> {
        let text = value.to_string_lossy();
        let Some(entry) = SPELLED_SETTINGS.iter().find(|entry| entry.key == key) else {
            return Err(SpellingError::Unknown { entry: format!("{key}={text}") });
        };
        (entry.read)(self, value).ok_or_else(|| SpellingError::Value { key: entry.key, value: text.into_owned() })
    }

    /// Parses the value of [`SETTINGS_VARIABLE`].
    pub fn from_variable(value: &OsStr) -> Result<Settings, SpellingError> {
        value.to_str().ok_or(SpellingError::NotText)?.parse()
    }
}

impl FromStr for Settings {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Settings, SpellingError> {
        let mut settings = Settings::default();
        for entry in text.split_ascii_whitespace() {
            let unknown = || SpellingError::Unknown { entry: entry.to_owned() };
            let (key, value) = entry.split_once('=').ok_or_else(unknown)?;
            settings.set(key, &decode(value))?;
        }
        Ok(settings)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = SPELLED_SETTINGS.iter().filter_map(|entry| Some((entry.key, (entry.write)(self)?)));
        for (i, (key, value)) in entries.enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Settings::from(self).fmt(f)
    }
}

/// Prefix that distinguishes an identity from a file name.
const IDENTITY_PREFIX: &[u8] = b"id:";

fn parse_file(text: &OsStr) -> Option<SettingsFile> {
    match text.as_bytes().strip_prefix(IDENTITY_PREFIX) {
        Some(identity) => Some(SettingsFile::Stored(Identity::parse(std::str::from_utf8(identity).ok()?)?)),
        None if text.is_empty() => None,
        None => Some(SettingsFile::File(text.into())),
    }
}

fn format_file(input: &SettingsFile) -> String {
    match input {
        SettingsFile::Stored(identity) => format!("id:{identity}"),
        SettingsFile::File(file) => encode(file.as_os_str()),
    }
}

/// Reverses [`encode`].
pub fn decode(text: &str) -> OsString {
    OsString::from_vec(percent_decode_str(text).collect())
}

/// Percent-encodes a file name for the textual form of settings.
pub fn encode(name: &OsStr) -> String {
    const ESCAPED_CHARACTERS: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'"').add(b'\'').add(b'`').add(b'\\');
    percent_encode(name.as_bytes(), ESCAPED_CHARACTERS).to_string()
}
