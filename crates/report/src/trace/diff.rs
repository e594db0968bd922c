//! The differences between two traces, as text and JSON.

use crate::escape;
use crate::words::plural;
use serde_json::Value;
use std::io::{self, Write};
use trodden_distributed::differences::TraceDifferences;

const SCHEMA_VERSION: u32 = 2;

/// Returns the differences as JSON.
pub fn json(found: &TraceDifferences) -> Value {
    serde_json::json!({ "schema_version": SCHEMA_VERSION, "same_build": found.same_build, "differences": found.differences })
}

/// Writes the differences as text. `top` is the maximum number of differences that the comparison searched for.
pub fn write(out: &mut impl Write, found: &TraceDifferences, top: usize) -> io::Result<()> {
    for (number, difference) in (1..).zip(&found.differences) {
        let last = difference.last_common_block.as_deref().unwrap_or("the beginning");
        writeln!(out, "{number}. thread {}, in {}", difference.thread, escape::escape_line(&difference.calls.join(" > ")))?;
        writeln!(out, "   after {}", escape::escape_line(last))?;
        for (name, after) in [("left ", &difference.left), ("right", &difference.right)] {
            let blocks = plural(u128::from(after.blocks), "block", "blocks");
            writeln!(out, "   {name} #{}: {}; {blocks} to the end of this call", after.block_number, after.first)?;
            let called = after.called.iter().map(|(f, n)| if *n == 1 { f.clone() } else { format!("{f} x {n}") });
            let called: Vec<String> = called.collect();
            if !called.is_empty() {
                writeln!(out, "         calls {}", escape::escape_line(&called.join(", ")))?;
            }
        }
    }
    if found.differences.is_empty() {
        writeln!(out, "the traces are equal")?;
    } else if found.differences.len() == top {
        writeln!(out, "there may be more differences. Pass --top {}", top * 10)?;
    }
    Ok(())
}
