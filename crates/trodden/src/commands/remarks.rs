//! Remarks that several reports print: missing files, and counts that are not exact.

use crate::notes::{note, warn};
use crate::rust_sources::STANDARD_LIBRARY_PREFIX;
use trodden_coverage::FilePatterns;
use trodden_profile::Profile;
use trodden_report::{ProfileView, SourceCache};

/// Prints a note about source files that a tracefile lacks because they do not exist.
pub fn note_missing_files(files: &FilePatterns) {
    let missing = files.missing();
    if let Some(first) = missing.first() {
        let more = if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
        note(format_args!("skipping source files that do not exist: {first}{more}. If they have moved, set TRODDEN_SOURCES=FOLDER"));
    }
}

/// Warns that counts are sampled or inexact. Called for output formats that cannot say so themselves.
pub fn warn_of_inexact_counts(profile: &Profile) {
    if profile.sampling.is_some() {
        warn("the profile is sampled, so code without a count may have been executed");
    }
    profile.inexactness_reasons().iter().for_each(|inexact| note(format_args!("not exact: {inexact}")));
}

/// Warns about corrupt parts of a profile, and notes which source files could not be read.
pub fn warn_of_missing_sources(view: &ProfileView, sources: &SourceCache) {
    view.corrupt.iter().for_each(warn);
    let (library, missing): (Vec<String>, Vec<String>) =
        sources.missing().into_iter().partition(|path| path.starts_with(STANDARD_LIBRARY_PREFIX));
    if !library.is_empty() {
        note(
            "cannot read the sources of Rust's standard library. To install them, run `rustup component add rust-src` for the program's \
             toolchain",
        );
    }
    if let Some(first) = missing.first() {
        let more = if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
        note(format_args!("cannot read source files: {first}{more}. If they have moved, set TRODDEN_SOURCES=FOLDER"));
    }
}
