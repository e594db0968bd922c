//! Where paths run, below the results that name them.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes where paths run, below the results that name them.
///
/// # Errors
/// As of the writer.
pub fn write_sources(out: &mut dyn Write, sources: &BTreeMap<String, String>) -> io::Result<()> {
    if !sources.is_empty() {
        writeln!(out, "\npaths:")?;
    }
    let width = sources.keys().map(String::len).max().unwrap_or(0).min(40);
    sources.iter().try_for_each(|(label, source)| writeln!(out, "  {label:<width$}  {source}"))
}
