//! A profile prepared for reports, in which every function is decoded, named and weighted.
//!
//! Functions that were not executed are kept, because coverage reports need them. A function whose counts cannot be decoded is listed in
//! [`ProfileView::corrupt`] instead, so that one corrupt map does not prevent a report.

use crate::measure::PathMeasure;
use crate::names::DemangledName;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::{Dag, Node};
use trodden_profile::{FunctionPaths, ImageProfile, PathCount, Profile, UnitProfile};
use trodden_unit::{FunctionMap, Identity, SourcePosition, UnitMap};

/// A decoded profile.
pub struct ProfileView<'a> {
    /// The profile from which everything else here was computed.
    pub profile: &'a Profile,
    /// Decoded functions. The function with the most executed instructions comes first.
    pub functions: Vec<Function<'a>>,
    /// Functions that could not be decoded, each with the reason.
    pub corrupt: Vec<String>,
    /// Sums over all functions.
    pub totals: ViewTotals,
    /// Line counts from the program's coverage mapping, by file; empty if there is none.
    pub mapped: MappedLines,
}

/// Number of executions of each line that has code, by file and line.
pub type MappedLines = BTreeMap<String, BTreeMap<u32, u64>>;

/// A function with its decoded paths.
pub struct Function<'a> {
    /// The image that contains the function.
    pub image: &'a ImageProfile,
    /// The unit that contains the function.
    pub unit: &'a UnitProfile,
    /// The function's graph and path numbering.
    pub map: &'a FunctionMap,
    /// The function's names. If several functions have the same short name, it is lengthened.
    pub name: DemangledName,
    /// The counts of paths, blocks and edges.
    pub paths: FunctionPaths,
    /// The acyclic graph whose paths are numbered.
    pub dag: Dag,
    /// Number of executed LLVM IR instructions.
    pub instructions: u128,
    /// Number of executed blocks.
    pub blocks: u128,
    /// Number of events counted on complete paths; 0 if the unit counts no event.
    pub events: i128,
}

/// Sums over a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewTotals {
    /// Number of executions of complete paths.
    pub executions: u128,
    /// Number of different complete paths.
    pub paths: u64,
    /// Number of executed LLVM IR instructions.
    pub instructions: u128,
    /// Number of executed blocks.
    pub blocks: u128,
    /// Number of events counted on complete paths.
    pub events: i128,
    /// Number of executed functions.
    pub executed: u64,
    /// Number of instrumented functions. Copies in several units, for example of an inline function, count once per image.
    pub instrumented: u64,
    /// Number of functions that have a body but are not instrumented.
    pub skipped: u64,
    /// Number of executions of unfinished paths, in which a call did not return or the path was interrupted.
    pub unfinished: u128,
    /// Number of functions that have unfinished paths or lost counts of paths.
    pub unfinished_functions: u64,
    /// Number of executed functions whose paths were cut into pieces because there were too many paths.
    pub cut: u64,
}

impl<'a> ProfileView<'a> {
    /// Decodes all functions of a profile. The number of unfinished paths is computed from the counts of all paths, so unfinished paths are
    /// dropped for functions that count only some paths or executions. For example, a sampling burst may count the start of a path but not
    /// its end.
    pub fn from_profile(profile: &'a Profile) -> ProfileView<'a> {
        ProfileView::decode(profile, |unit, map| profile.cannot_compare_paths(unit, map))
    }

    /// Decodes a profile from which the known paths were removed ([`trodden_analysis::untested`]). All apparent unfinished paths are kept,
    /// because the caller knows which of them were counted.
    pub fn from_untested(profile: &'a Profile) -> ProfileView<'a> {
        ProfileView::decode(profile, |_, _| false)
    }

    fn decode(profile: &'a Profile, is_partial: impl Fn(&UnitProfile, &FunctionMap) -> bool) -> ProfileView<'a> {
        let (mut functions, mut corrupt) = (Vec::new(), Vec::new());
        for (image, unit, map) in profile.functions() {
            match Function::new(image, unit, map) {
                Ok(mut function) => {
                    if is_partial(unit, map) {
                        function.paths.unfinished.clear();
                        function.paths.lost.clear();
                    }
                    functions.push(function);
                }
                Err(error) => corrupt.push(format!("{} of {}: {error}", unit.map.source, image.path)),
            }
        }
        disambiguate_names(&mut functions);
        functions.sort_by(|a, b| b.instructions.cmp(&a.instructions).then_with(|| a.name.full.cmp(&b.name.full)));
        let totals = ViewTotals::new(profile, &functions);
        ProfileView { profile, functions, corrupt, totals, mapped: MappedLines::new() }
    }

    /// Returns the program's total by a measure.
    pub fn total(&self, measure: PathMeasure) -> u128 {
        match measure {
            PathMeasure::Instructions => self.totals.instructions,
            PathMeasure::Blocks => self.totals.blocks,
            PathMeasure::Count => self.totals.executions,
            PathMeasure::Events => self.totals.events.max(0) as u128,
        }
    }

    /// Returns a map from (unit, index of the function in the unit's map) to the function.
    pub fn functions_by_map_index(&self) -> HashMap<(Identity, usize), &Function<'a>> {
        let place = |f: &Function| f.unit.map.functions.iter().position(|m| std::ptr::eq(m, f.map)).unwrap_or_default();
        self.functions.iter().map(|f| ((f.unit.unit, place(f)), f)).collect()
    }

    /// Returns the executed functions.
    pub fn executed(&self) -> impl Iterator<Item = &Function<'a>> {
        self.functions.iter().filter(|f| f.is_executed())
    }
}

impl<'a> Function<'a> {
    fn new(image: &'a ImageProfile, unit: &'a UnitProfile, map: &'a FunctionMap) -> Result<Function<'a>, trodden_unit::MapError> {
        let dag = map.dag()?;
        let paths = unit.executed_paths(map)?.unwrap_or_else(|| empty_paths(map));
        let weigh = |instructions: fn(&trodden_unit::UnitBlock) -> u128| -> u128 {
            paths.blocks.iter().zip(&map.blocks).map(|(count, block)| u128::from(*count) * instructions(block)).sum()
        };
        let (instructions, blocks) = (weigh(|b| u128::from(b.instructions)), weigh(|_| 1));
        let name = DemangledName::from_linkage(&map.name);
        let mut function = Function { image, unit, map, name, dag, instructions, blocks, paths, events: 0 };
        function.events = function.total_events();
        Ok(function)
    }

    /// Returns the source of each edge that leads to `node`.
    pub fn predecessors(&self, node: Node) -> impl Iterator<Item = Node> + use<'a> {
        let graph = &self.map.graph;
        graph.incoming(node).iter().map(|edge| graph.from(*edge))
    }

    fn total_events(&self) -> i128 {
        let paths = self.paths.complete.iter();
        paths.map(|p| self.unit.events_of(self.map, p.id).sum).fold(0, i128::saturating_add)
    }

    /// Returns true if the function was called, or continued in a forked process.
    pub fn is_executed(&self) -> bool {
        self.paths.blocks.iter().any(|count| *count > 0)
    }

    /// Copies the function with only the selected paths, and without edge and event counts. A path is identified by whether it is complete
    /// and by its number.
    pub(crate) fn restricted_to(&self, selected: &BTreeSet<(bool, u64)>) -> Function<'a> {
        let mut paths = empty_paths(self.map);
        paths.complete = self.paths.complete.iter().filter(|p| selected.contains(&(true, p.id))).cloned().collect();
        paths.unfinished = self.paths.unfinished.iter().filter(|u| selected.contains(&(false, u.id))).cloned().collect();
        let complete = paths.complete.iter().map(|p| (&p.blocks, p.count));
        let unfinished = paths.unfinished.iter().map(|u| (&u.blocks, u.count.max(0) as u64));
        for (path, count) in complete.chain(unfinished) {
            for block in path {
                if let Some(sum) = paths.blocks.get_mut(block.index()) {
                    *sum = sum.saturating_add(count);
                }
            }
        }
        let (name, dag) = (self.name.clone(), self.dag.clone());
        let mut function = Function { name, dag, paths, instructions: 0, blocks: 0, events: 0, ..*self };
        let weigh = |length: fn(&trodden_unit::UnitBlock) -> u128| -> u128 {
            function.paths.blocks.iter().zip(&self.map.blocks).map(|(count, block)| u128::from(*count) * length(block)).sum()
        };
        (function.instructions, function.blocks) = (weigh(|b| u128::from(b.instructions)), weigh(|_| 1));
        function
    }

    /// Returns the function's total by a measure.
    pub fn total(&self, measure: PathMeasure) -> u128 {
        match measure {
            PathMeasure::Instructions => self.instructions,
            PathMeasure::Blocks => self.blocks,
            PathMeasure::Count => u128::from(self.paths.total()),
            PathMeasure::Events => self.events.max(0) as u128,
        }
    }

    /// Returns the number of LLVM IR instructions in a list of blocks.
    pub fn length(&self, blocks: &[Node]) -> u64 {
        blocks.iter().filter_map(|b| self.map.blocks.get(b.index())).map(|b| u64::from(b.instructions)).sum()
    }

    /// Returns the weight of a path: its executions times its length in instructions or blocks, its executions alone, or its events,
    /// depending on the measure.
    pub fn weight(&self, path: &PathCount, measure: PathMeasure) -> u128 {
        let each = match measure {
            PathMeasure::Instructions => self.length(&path.blocks),
            PathMeasure::Blocks => path.blocks.len() as u64,
            PathMeasure::Count => 1,
            PathMeasure::Events => return self.unit.events_of(self.map, path.id).sum.max(0) as u128,
        };
        u128::from(path.count) * u128::from(each)
    }

    /// Returns the map of the function's unit.
    pub fn unit_map(&self) -> &'a UnitMap {
        &self.unit.map
    }

    /// Returns the file of the function's declaration; `None` without debug information.
    pub fn file(&self) -> Option<&'a str> {
        self.map.position.and_then(|p| file_of(self.unit_map(), p))
    }

    /// Returns the line of the function's declaration; `None` without debug information.
    pub fn line(&self) -> Option<u32> {
        self.map.position.map(|p| p.line).filter(|line| *line > 0)
    }

    /// Returns true if the function's paths were cut into pieces because there were too many paths.
    pub fn is_cut(&self) -> bool {
        self.map.cuts.iter().any(|(_, reason)| *reason == trodden_flow::CutReason::Limit)
    }
}

/// Lengthens short names that are not unique, such as those of template instances.
fn disambiguate_names(functions: &mut [Function]) {
    for longer in [|name: &DemangledName| name.qualified.clone(), |name: &DemangledName| name.full.clone()] {
        let mut linkages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for name in functions.iter().map(|f| &f.name) {
            linkages.entry(name.short.clone()).or_default().insert(name.linkage.clone());
        }
        for name in functions.iter_mut().map(|f| &mut f.name).filter(|n| linkages[&n.short].len() > 1) {
            name.short = longer(name);
        }
    }
}

/// Returns the file of a position; `None` if the map is corrupt.
pub fn file_of(unit: &UnitMap, position: SourcePosition) -> Option<&str> {
    unit.files.get(position.file as usize).map(String::as_str)
}

/// Returns the inlined calls that lead to a position, outermost first, and finally the position itself.
pub fn inline_chain(unit: &UnitMap, position: SourcePosition) -> Vec<SourcePosition> {
    let mut chain: Vec<SourcePosition> = unit.inlined_chain(position).collect();
    chain.reverse();
    chain
}

fn empty_paths(map: &FunctionMap) -> FunctionPaths {
    FunctionPaths {
        complete: Vec::new(),
        unfinished: Vec::new(),
        lost: Vec::new(),
        blocks: vec![0; map.blocks.len()],
        edges: vec![0; map.graph.edge_count()],
    }
}

impl ViewTotals {
    fn new(profile: &Profile, functions: &[Function]) -> ViewTotals {
        let mut totals = ViewTotals::default();
        let (mut instrumented, mut skipped) = (BTreeSet::new(), BTreeSet::new());
        for (at, function) in functions.iter().enumerate() {
            // Local functions with the same name are different functions, so each counts.
            let which = if function.map.local { at + 1 } else { 0 };
            instrumented.insert((function.image.identity, function.map.name.as_str(), which));
            totals.add(function);
        }
        for image in &profile.images {
            for unit in &image.units {
                skipped.extend(unit.map.skipped.iter().map(|s| (image.identity, s.name.as_str())));
            }
        }
        totals.instrumented = instrumented.len() as u64;
        totals.skipped = skipped.len() as u64;
        totals
    }

    fn add(&mut self, function: &Function) {
        self.executions += function.paths.complete.iter().map(|p| u128::from(p.count)).sum::<u128>();
        self.paths += function.paths.complete.len() as u64;
        self.instructions += function.instructions;
        self.blocks += function.blocks;
        self.events = self.events.saturating_add(function.events);
        self.executed += u64::from(function.is_executed());
        let interrupted = function.paths.lost.iter().map(|l| l.count);
        let stopped = function.paths.unfinished.iter().map(|u| u.count);
        self.unfinished += stopped.chain(interrupted).map(|count| u128::from(count.max(0) as u64)).sum::<u128>();
        self.unfinished_functions += u64::from(!function.paths.are_all_paths_finished());
        self.cut += u64::from(function.is_cut() && function.is_executed());
    }
}
