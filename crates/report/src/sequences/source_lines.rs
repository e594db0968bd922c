//! Lists the source lines of paths below results that refer to paths by labels.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the source lines for each path label. Writes nothing if `sources` is empty.
pub fn write_sources(out: &mut dyn Write, sources: &BTreeMap<String, String>) -> io::Result<()> {
    if !sources.is_empty() {
        writeln!(out, "\npaths:")?;
    }
    let width = sources.keys().map(String::len).max().unwrap_or(0).min(40);
    sources.iter().try_for_each(|(label, source)| writeln!(out, "  {label:<width$}  {source}"))
}
