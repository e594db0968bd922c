//! Indentation of inlined code, which reports show below the call that it replaced. Its lines keep their indentation relative to each
//! other.

use crate::source::SourceCache;
use crate::view::{Function, file_of, inline_chain};
use std::collections::{BTreeMap, BTreeSet};
use trodden_unit::SourcePosition;

/// For each body inlined into a function, the minimum indentation of its lines with code.
#[derive(Debug, Default)]
pub struct InlinedIndent {
    /// Minimum indentation in columns, by scope.
    minimum: BTreeMap<u32, usize>,
}

impl InlinedIndent {
    pub fn measure_all_inlined_bodies(function: &Function, sources: &SourceCache) -> InlinedIndent {
        InlinedIndent::measure_scopes(function, sources, |_| true)
    }

    /// Measures the indentation of the inlined bodies in the given chains. Other bodies are skipped, so that their source files need not be
    /// read.
    pub fn measure_inlined_bodies_of_chains<'c>(
        function: &Function,
        sources: &SourceCache,
        chains: impl Iterator<Item = &'c [SourcePosition]>,
    ) -> InlinedIndent {
        let scopes: BTreeSet<u32> = chains.flat_map(|chain| chain.iter().skip(1)).map(|position| position.scope).collect();
        if scopes.is_empty() { InlinedIndent::default() } else { InlinedIndent::measure_scopes(function, sources, |s| scopes.contains(&s)) }
    }

    fn measure_scopes(function: &Function, sources: &SourceCache, is_wanted: impl Fn(u32) -> bool) -> InlinedIndent {
        let map = function.unit_map();
        let positions = function.map.blocks.iter().flat_map(|block| block.positions.iter().copied().chain(block.branch));
        // Several blocks may have code from the same line.
        let lines: BTreeSet<(u32, u32, u32)> = positions
            .flat_map(|position| inline_chain(map, position).into_iter().skip(1))
            .filter(|at| is_wanted(at.scope))
            .map(|at| (at.scope, at.file, at.line))
            .collect();
        let mut minimum: BTreeMap<u32, usize> = BTreeMap::new();
        for (scope, file, line) in lines {
            let text = file_of(map, SourcePosition { scope, file, line, column: 0 }).and_then(|file| sources.line(file, line));
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                let known = minimum.entry(scope).or_insert(usize::MAX);
                *known = indent_width(&text).min(*known);
            }
        }
        InlinedIndent { minimum }
    }

    pub fn min_indent(&self, scope: u32) -> usize {
        self.minimum.get(&scope).copied().unwrap_or(0)
    }

    /// Returns a line's indentation relative to the minimum in its inlined body.
    pub fn relative_indent(&self, at: SourcePosition, text: &str) -> usize {
        indent_width(text).saturating_sub(self.min_indent(at.scope))
    }
}

pub fn indent_width(text: &str) -> usize {
    text.len() - text.trim_start().len()
}
