//! Finds the source lines that a function occupies.
//!
//! Debug information has the line of a function's declaration and the lines of its code, but not the function's last line. The last line is
//! found by searching the source for the closing brace.

use crate::source::{SourceCache, SourceFile};
use crate::view::{Function, file_of, inline_chain};
use std::collections::BTreeMap;

/// Maximum number of lines between the last line with code and the closing brace.
const MAX_BRACE_DISTANCE: u32 = 12;

/// A range of lines in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// The file's name in debug information.
    pub file: String,
    /// Number of the first line, from 1.
    pub first: u32,
    /// Number of the last line, inclusive.
    pub last: u32,
}

impl LineRange {
    /// Returns the source lines of a function; `None` without debug information.
    pub fn from_function(function: &Function, sources: &SourceCache) -> Option<LineRange> {
        let (file, lines) = find_own_lines(function)?;
        let (lowest, highest) = (*lines.first()?, *lines.last()?);
        let first = function.line().filter(|l| *l <= lowest && function.file() == Some(file)).unwrap_or(lowest);
        let last = sources.file(file).map_or(highest, |text| find_closing_brace(&text, first, highest));
        Some(LineRange { file: file.to_string(), first, last })
    }
}

/// Returns the function's source file and the sorted lines of its code in that file. The file is the one that declares the function, or
/// else the one with most of its lines. Because of `#include`, a function may have lines in several files.
fn find_own_lines<'a>(function: &Function<'a>) -> Option<(&'a str, Vec<u32>)> {
    let map = function.unit_map();
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

fn find_closing_brace(text: &SourceFile, first: u32, last: u32) -> u32 {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let outermost = text.line(first).map_or(0, indent);
    let closes = |l: &u32| text.line(*l).is_some_and(|t| t.trim_start().starts_with('}') && indent(t) <= outermost);
    (last..=last.saturating_add(MAX_BRACE_DISTANCE)).find(closes).unwrap_or(last)
}
