//! What reports say beside what they show: what is missing, and which counts are not exact.

use crate::notes::{note, warn};
use trodden_coverage::Files;
use trodden_profile::Profile;
use trodden_report::{SourceCache, View};

/// Says which files a tracefile lacks because they are not there.
pub fn left_out(files: &Files) {
    let missing = files.missing();
    if let Some(first) = missing.first() {
        let more = if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
        note(format_args!("left out, since there is no such file: {first}{more}. Set TRODDEN_SOURCES=FOLDER if it has moved"));
    }
}

/// Says what a profile does not have, where what is printed does not say it.
pub fn report_partial(profile: &Profile) {
    if profile.sampling.is_some() {
        warn("the profile is sampled: what has no count in it may have been executed all the same");
    }
    profile.inexact().iter().for_each(|inexact| note(format_args!("not exact: {inexact}")));
}

/// What is missing in a report.
pub fn remarks(view: &View, sources: &SourceCache) {
    view.damaged.iter().for_each(warn);
    let missing = sources.missing();
    if let Some(first) = missing.first() {
        let more = if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
        note(format_args!("cannot read source files: {first}{more}. Set TRODDEN_SOURCES=FOLDER if they have moved"));
    }
}
