//! Folded stacks: one line for each path, as flame graph tools read them.
//!
//! Format: frames from the outermost, joined by `;`, a space, a number. A function is the outer frame, its path the inner one.

use crate::path_listing::PathListing;
use crate::select::{Ranking, Selection};
use crate::view::View;
use std::fmt::Write;

/// Lines of a path that its frame names.
const OUTLINE: usize = 12;

/// Writes the selected paths, weighed by the selection's measure.
///
/// # Errors
/// The selection names no function.
pub fn folded(view: &View, selection: &Selection) -> Result<String, crate::ReportError> {
    let ranking: Ranking = selection.rank(view)?;
    let mut out = String::new();
    for ranked in ranking.paths.iter().filter(|r| r.weight > 0) {
        let (function, path) = (frame(&ranked.function.name.full), ranked.path.id);
        let outline = frame(&PathListing::from_path(ranked.function, ranked.path).outline(OUTLINE));
        writeln!(out, "{function};path {path} ({outline}) {}", ranked.weight).expect("strings take whatever is written");
    }
    Ok(out)
}

/// A name without what separates frames and lines.
fn frame(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}
