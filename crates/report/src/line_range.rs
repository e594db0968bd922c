//! The range of source lines of a function.
//!
//! Debug information contains the line of a function's declaration and the lines of its code, but not its last line. The last line is
//! found by searching the source text for the closing brace.

use crate::source::{SourceCache, SourceFile};
use crate::view::{Function, file_of, inline_chain};
use std::collections::BTreeMap;

/// Maximum distance, in lines, of the closing brace from the last line with code.
const MAX_BRACE_DISTANCE: u32 = 12;

/// A range of lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// The file, as named in the debug information.
    pub file: String,
    /// The first line, counted from 1.
    pub first: u32,
    /// The last line, inclusive.
    pub last: u32,
}

impl LineRange {
    /// The source lines of a function; `None` without debug information.
    pub fn from_function(function: &Function, sources: &SourceCache) -> Option<LineRange> {
        let (file, lines) = own_lines(function)?;
        let (lowest, highest) = (*lines.first()?, *lines.last()?);
        let first = function.line().filter(|l| *l <= lowest && function.file() == Some(file)).unwrap_or(lowest);
        let last = sources.file(file).map_or(highest, |text| closing_brace(&text, first, highest));
        Some(LineRange { file: file.to_string(), first, last })
    }
}

/// Returns the file that declares the function, or else the file with most of the function's own lines, and the own lines in that file, in
/// order. A function may have lines in several files because of `#include`.
fn own_lines<'a>(function: &Function<'a>) -> Option<(&'a str, Vec<u32>)> {
    let map = function.units_map();
    let mut files: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for block in &function.map.blocks {
        for position in block.positions.iter().copied().chain(block.branch) {
            let outermost = inline_chain(map, position)[0];
            if let Some(file) = file_of(map, outermost).filter(|_| outermost.line > 0) {
                files.entry(file).or_default().push(outermost.line);
            }
        }
    }
    files.values_mut().for_each(|lines| {
        lines.sort_unstable();
        lines.dedup();
    });
    let declared = function.file().and_then(|f| files.remove_entry(f));
    declared.or_else(|| files.into_iter().max_by_key(|(_, lines)| lines.len()))
}

fn closing_brace(text: &SourceFile, first: u32, last: u32) -> u32 {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let outermost = text.line(first).map_or(0, indent);
    let closes = |l: &u32| text.line(*l).is_some_and(|t| t.trim_start().starts_with('}') && indent(t) <= outermost);
    (last..=last.saturating_add(MAX_BRACE_DISTANCE)).find(closes).unwrap_or(last)
}
