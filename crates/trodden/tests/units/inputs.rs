//! Creates the input files for the builds of a unit, from lines in the unit's text and from the map of a default build.

use crate::place::Place;
use std::path::Path;
use trodden_flow::part::Measure;
use trodden_partition::{PartitionOptions, PartitionStrategy, Procedure, ProfitableProcedures};
use trodden_profile::FunctionPaths;
use trodden_unit::{
    Frame, FunctionMap, FunctionParts, FunctionWeights, InstrumentedImage, KnownPaths, SegmentSetBuilder, Settings, UnitMap,
};

/// A unit built with default settings, and the text that describes its paths.
pub struct Inputs<'a> {
    frame: Frame,
    map: UnitMap,
    text: &'a str,
}

/// A function named in such lines, with the counts of its paths and edges.
struct FunctionExecutions<'a> {
    function: &'a FunctionMap,
    paths: Vec<(u64, u64)>,
    edges: Vec<u64>,
}

impl Inputs<'_> {
    pub fn new<'a>(object: &Path, text: &'a str) -> Inputs<'a> {
        let image = InstrumentedImage::read(&std::fs::read(object).unwrap()).unwrap();
        let frame = image.frames.into_iter().next().expect("the object carries its unit");
        Inputs { map: frame.map().unwrap(), frame, text }
    }

    /// Creates the input file for a setting, and stores its name in the settings.
    pub fn create_input(&self, settings: &mut Settings, key: &str, place: &Place) {
        let bytes = match key {
            "weights" => self.build_weights().to_bytes(),
            "segments" => self.build_segments(),
            "part" => self.build_part().to_bytes(),
            _ => self.build_known().to_bytes(),
        };
        std::fs::write(place.path(key), bytes).unwrap();
        settings.set(key, place.path(key).as_os_str()).unwrap();
        if key == "part" {
            settings.origin = Some(self.frame.unit);
        }
    }

    fn split_lines_with_prefix<'s>(&'s self, head: &'s str) -> impl Iterator<Item = Vec<&'s str>> {
        self.text.lines().filter_map(move |line| line.strip_prefix(head)).map(|line| line.split_whitespace().collect())
    }

    fn find_function(&self, name: &str) -> &FunctionMap {
        self.map.functions.iter().find(|function| function.name == name).unwrap_or_else(|| panic!("there is no function {name}"))
    }

    fn executed_functions(&self) -> impl Iterator<Item = FunctionExecutions<'_>> {
        self.map.functions.iter().filter_map(|function| {
            let mine = self.split_lines_with_prefix("; path:").filter(|words| words[0] == function.name);
            let mut paths: Vec<(u64, u64)> = mine.map(|words| (words[1].parse().unwrap(), words[2].parse().unwrap())).collect();
            paths.sort_unstable();
            let edges = FunctionPaths::decode(function, paths.iter().copied()).unwrap().edges;
            (!paths.is_empty()).then_some(FunctionExecutions { function, paths, edges })
        })
    }

    fn build_known(&self) -> KnownPaths {
        let mut known = KnownPaths::default();
        for FunctionExecutions { function, paths, edges } in self.executed_functions() {
            known.add(&self.map, function, paths.into_iter(), &edges).unwrap();
        }
        known
    }

    fn build_weights(&self) -> FunctionWeights {
        let mut weights = FunctionWeights::default();
        self.executed_functions().for_each(|one| weights.add(&one.function.name, one.function.shape, &one.edges));
        weights
    }

    fn build_segments(&self) -> Vec<u8> {
        let mut builder = SegmentSetBuilder::default();
        for chain in self.split_lines_with_prefix("; segment:") {
            let mut chain: Vec<(u32, u64)> = chain
                .iter()
                .map(|word| word.split_once(':').expect("FUNCTION:PATH"))
                .map(|(function, path)| (builder.add_function(&self.map, self.find_function(function)), path.parse().unwrap()))
                .collect();
            let (callee, path) = chain.pop().expect("a segment ends with a path");
            builder.insert(&chain, callee, path);
        }
        builder.finish(false).to_bytes()
    }

    fn build_part(&self) -> FunctionParts {
        let procedures: Vec<Procedure> = self.map.functions.iter().map(make_procedure).collect();
        let options = PartitionOptions { copies: 2, profitable: ProfitableProcedures::ALL, fold_again: true, measure: Measure::All };
        let first = trodden_partition::plan(&procedures, PartitionStrategy::Weighted, &options).copies.remove(0);
        let mut parts = FunctionParts::default();
        for (function, part) in self.map.functions.iter().zip(first.parts) {
            part.into_iter().for_each(|part| parts.add(self.frame.unit, function, part));
        }
        parts
    }
}

/// Returns a function in which all edges have the same frequency.
fn make_procedure(function: &FunctionMap) -> Procedure {
    let dag = function.dag().unwrap();
    let frequencies = vec![1; dag.edges().len()];
    Procedure { dag, frequencies, paths: Vec::new(), call_sites: None, unit: 0 }
}
