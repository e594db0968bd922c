//! Folded stacks for flame graph tools: one line for each path.
//!
//! A line has the frames from the outermost to the innermost, joined by `;`, then a space and the path's weight. The function is the outer
//! frame, and the path is the inner one.

use crate::path_listing::PathListing;
use crate::select::{PathSelection, RankedPaths};
use crate::view::ProfileView;
use std::fmt::Write;

const MAX_OUTLINE_LINES: usize = 12;

/// Writes the selected paths, weighted by the selection's measure. Fails if no function matches the selection.
pub fn write_folded_stacks(view: &ProfileView, selection: &PathSelection) -> Result<String, crate::ReportError> {
    let ranking: RankedPaths = selection.rank(view)?;
    let mut out = String::new();
    for ranked in ranking.paths.iter().filter(|r| r.weight > 0) {
        let (function, path) = (format_frame(&ranked.function.name.full), ranked.path.id);
        let outline = format_frame(&PathListing::from_path(ranked.function, ranked.path).outline(MAX_OUTLINE_LINES));
        writeln!(out, "{function};path {path} ({outline}) {}", ranked.weight).expect("writing to a string cannot fail");
    }
    Ok(out)
}

/// Replaces the characters that separate frames and lines.
fn format_frame(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}
