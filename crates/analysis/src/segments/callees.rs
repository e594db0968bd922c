//! Determines which functions a path that ends at a call may call. These are the functions that its last block names and, for a call
//! through a pointer, all functions known to have been called through a pointer.

use anyhow::Result;
use std::collections::{BTreeSet, HashMap};
use trodden_profile::segments::{FunctionPath, Segment, calling_block, function_map, unit_map};
use trodden_profile::stream::FunctionIndex;
use trodden_profile::{FunctionPaths, ImageProfile, PathDecoder};
use trodden_unit::{EdgeKind, FunctionMap};

pub struct CalleeResolver<'a> {
    image: &'a ImageProfile,
    /// Functions by name. The key of a local function includes its unit, because other units cannot call it by name.
    names: HashMap<(Option<usize>, &'a str), FunctionIndex>,
    /// Functions that were called through pointers. Any call through a pointer may call any of them.
    by_pointer: BTreeSet<FunctionIndex>,
}

impl<'a> CalleeResolver<'a> {
    /// Collects the functions that can be called by name.
    pub fn from_image(image: &'a ImageProfile) -> CalleeResolver<'a> {
        let mut names: HashMap<(Option<usize>, &str), FunctionIndex> = HashMap::new();
        for (place, function) in functions(image) {
            let aliases = unit_map(image, place).aliases.iter().filter(|a| a.of == function.name).map(|a| a.name.as_str());
            let own = function.local.then_some(place.unit);
            names.extend(aliases.chain([function.name.as_str()]).map(|name| ((own, name), place)));
        }
        CalleeResolver { image, names, by_pointer: BTreeSet::new() }
    }

    fn resolve_callee(&self, from: FunctionIndex, name: &str) -> Option<FunctionIndex> {
        self.names.get(&(Some(from.unit), name)).or_else(|| self.names.get(&(None, name))).copied()
    }

    /// Returns true if the function has paths that end at each of its calls to functions of the image.
    pub fn has_paths_to_calls(&self, place: FunctionIndex, function: &FunctionMap) -> bool {
        let mut calls =
            function.calls.iter().filter(|call| call.callee.as_ref().is_some_and(|name| self.resolve_callee(place, name).is_some()));
        let ends = |kind| matches!(kind, EdgeKind::Reach | EdgeKind::TailCall | EdgeKind::NoReturn);
        calls.all(|call| function.graph.flow_edges().any(|e| e.from == call.block && ends(e.kind)))
    }

    /// Returns the functions that the last block of a path calls or may call.
    pub fn callees_of(&self, at: FunctionPath) -> Vec<FunctionIndex> {
        let (mut found, by_pointer) = self.direct_callees(at);
        if by_pointer {
            found.extend(&self.by_pointer);
        }
        found.sort();
        found.dedup();
        found
    }

    /// Returns the functions that the last block of a path calls by name, and whether it calls through a pointer.
    fn direct_callees(&self, at: FunctionPath) -> (Vec<FunctionIndex>, bool) {
        let function = function_map(self.image, at.function);
        let Some(walk) = PathDecoder::from_function(function).ok().and_then(|walks| walks.decode(at.path)) else {
            return (Vec::new(), false);
        };
        let block = calling_block(function, &walk);
        let here: Vec<_> = function.calls.iter().filter(|call| Some(call.block) == block).collect();
        let named = here.iter().filter_map(|call| self.resolve_callee(at.function, call.callee.as_deref()?)).collect();
        (named, here.iter().any(|call| call.callee.is_none()))
    }

    /// Records the functions that segments show to have been called through pointers.
    pub fn record_pointer_calls<'s>(&mut self, segments: impl Iterator<Item = &'s Segment>) {
        let pairs: BTreeSet<(FunctionPath, FunctionIndex)> =
            segments.flat_map(|s| s.windows(2).map(|pair| (pair[0], pair[1].function)).collect::<Vec<_>>()).collect();
        let is_by_pointer = |(caller, callee): &(FunctionPath, FunctionIndex)| !self.direct_callees(*caller).0.contains(callee);
        let found: Vec<FunctionIndex> = pairs.iter().filter(|pair| is_by_pointer(pair)).map(|(_, callee)| *callee).collect();
        self.by_pointer.extend(found);
    }

    /// Records the functions that were entered more or less often than calls by name reached them, which suggests calls through pointers.
    /// (A lower number of entries can also mean that an earlier call in the calling block did not return.)
    pub fn infer_from_counts(&mut self) -> Result<()> {
        let mut by_name: HashMap<FunctionIndex, u64> = HashMap::new();
        for (place, function) in functions(self.image) {
            for (path, count) in executed_paths(self.image, place, function) {
                for callee in self.direct_callees(FunctionPath { function: place, path }).0 {
                    *by_name.entry(callee).or_default() += count;
                }
            }
        }
        for (place, function) in functions(self.image) {
            let paths = FunctionPaths::decode(function, self.image.units[place.unit].counts_of(function))?;
            let entries = paths.call_count();
            if entries > 0 && entries != by_name.get(&place).copied().unwrap_or(0) {
                self.by_pointer.insert(place);
            }
        }
        Ok(())
    }
}

pub fn functions(image: &ImageProfile) -> impl Iterator<Item = (FunctionIndex, &FunctionMap)> {
    image.units.iter().enumerate().flat_map(|(unit, profile)| {
        profile.map.functions.iter().enumerate().map(move |(function, map)| (FunctionIndex { unit, function }, map))
    })
}

pub fn executed_paths(image: &ImageProfile, place: FunctionIndex, function: &FunctionMap) -> impl Iterator<Item = (u64, u64)> {
    image.units[place.unit].counts_of(function).filter(|(_, count)| *count > 0)
}
