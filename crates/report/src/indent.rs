//! Indentation of inlined code, which keeps its shape below the call that was replaced.

use crate::source::SourceCache;
use crate::view::{Function, chain, file_of};
use std::collections::{BTreeMap, BTreeSet};
use trodden_unit::Position;

/// For each inlined body of a function, by scope, the indentation of its least indented line with code.
#[derive(Debug, Default)]
pub struct InlinedIndent {
    least: BTreeMap<u32, usize>,
}

impl InlinedIndent {
    /// Measures all inlined bodies of a function.
    pub fn of_all(function: &Function, sources: &SourceCache) -> InlinedIndent {
        InlinedIndent::measure(function, sources, |_| true)
    }

    /// Measures the bodies that contain the given chains. Only their source files are read.
    pub fn of_chains<'c>(function: &Function, sources: &SourceCache, chains: impl Iterator<Item = &'c [Position]>) -> InlinedIndent {
        let scopes: BTreeSet<u32> = chains.flat_map(|chain| chain.iter().skip(1)).map(|position| position.scope).collect();
        if scopes.is_empty() { InlinedIndent::default() } else { InlinedIndent::measure(function, sources, |s| scopes.contains(&s)) }
    }

    fn measure(function: &Function, sources: &SourceCache, is_wanted: impl Fn(u32) -> bool) -> InlinedIndent {
        let map = function.units_map();
        let positions = function.map.blocks.iter().flat_map(|block| block.positions.iter().copied().chain(block.branch));
        // A line may have code of several blocks.
        let lines: BTreeSet<(u32, u32, u32)> = positions
            .flat_map(|position| chain(map, position).into_iter().skip(1))
            .filter(|at| is_wanted(at.scope))
            .map(|at| (at.scope, at.file, at.line))
            .collect();
        let mut least: BTreeMap<u32, usize> = BTreeMap::new();
        for (scope, file, line) in lines {
            let text = file_of(map, Position { scope, file, line, column: 0 }).and_then(|file| sources.line(file, line));
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                let known = least.entry(scope).or_insert(usize::MAX);
                *known = indent(&text).min(*known);
            }
        }
        InlinedIndent { least }
    }

    /// The indentation of a scope's least indented line; 0 if the scope is unknown.
    pub fn least(&self, scope: u32) -> usize {
        self.least.get(&scope).copied().unwrap_or(0)
    }

    /// The indentation of a line of inlined code within its body.
    pub fn within(&self, at: Position, text: &str) -> usize {
        indent(text).saturating_sub(self.least(at.scope))
    }
}

/// The number of spaces at the start of a line.
pub fn indent(text: &str) -> usize {
    text.len() - text.trim_start().len()
}
