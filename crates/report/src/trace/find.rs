//! Executions of a code location in a trace, as text and JSON.

use crate::escape;
use serde_json::Value;
use std::io::{self, Write};
use trodden_distributed::occurrences::PlaceOccurrences;

const SCHEMA_VERSION: u32 = 1;

/// Returns the executions as JSON.
pub fn json(all: &PlaceOccurrences) -> Value {
    serde_json::json!({ "schema_version": SCHEMA_VERSION, "times": all.seen, "found": all.found })
}

/// Writes the executions as text. `is_nth` is true if a single execution was requested by its number.
pub fn write(out: &mut impl Write, all: &PlaceOccurrences, is_nth: bool) -> io::Result<()> {
    let PlaceOccurrences { seen, found } = all;
    for f in found {
        writeln!(
            out,
            "thread {} #{}: {} (execution {})\n    in {}",
            f.thread,
            f.block,
            f.place,
            f.nth,
            escape::escape_line(&f.calls.join(" > "))
        )?;
    }
    let are_all = found.len() as u64 == *seen || is_nth;
    let shown = if are_all { String::new() } else { format!(", the first {} shown", found.len()) };
    writeln!(out, "executions: {seen}{shown}")
}
