//! Assigns counters to functions, separately for each way in which a function was compiled.
//!
//! LLVM's profiles identify a function by its name and a hash of its graph, so they cannot distinguish the `main` functions of two similar
//! programs. And if several functions have the same name and files, `llvm-cov` shows only the first. Therefore, each way in which a
//! function was compiled becomes an *instance*, which counts executions of only those programs that contain it. Instances with the same
//! name get different graph hashes. Instances that also have the same files get different numbers of additional empty files, and are
//! written to separate object files.

use crate::region_code::{FunctionRegions, RegionCounter, RegionCounterKind};
use crate::sections::{ImageCoverageMapping, MappingRecord, hash_name};
use anyhow::Result;
use std::collections::{BTreeSet, HashMap, HashSet};
use trodden_profile::edges::FunctionEdges;

pub struct FunctionInstance {
    /// The counters of the instance. Their graph hash is unique.
    pub edges: FunctionEdges,
    /// Indices of the programs that contain the instance.
    pub images: BTreeSet<usize>,
    /// Number of earlier instances with the same name and files.
    variant: usize,
}

impl FunctionInstance {
    /// Adds empty files to the regions of `function`, so that this instance differs from earlier ones. Returns true if any were added.
    pub fn add_variant_files(&self, function: &mut FunctionRegions) -> bool {
        let first = function.files.first().copied();
        function.files.extend(first.into_iter().cycle().take(self.variant));
        function.regions.resize_with(function.files.len(), Vec::new);
        self.variant > 0
    }
}

/// The hash of a function's name, and the function's files.
type FunctionSource = (u64, Vec<String>);

#[derive(Default)]
pub struct FunctionInstances {
    all: Vec<FunctionInstance>,
    /// Maps (image, name hash, graph hash) to an index into `all`.
    of_image: HashMap<(usize, u64, u64), usize>,
    by_source: HashMap<(u64, u64, Vec<String>), usize>,
    names: HashSet<u64>,
    /// Number of instances with the same name and files.
    variants: HashMap<FunctionSource, usize>,
    /// Maps (name hash, graph hash) to indices into `all`.
    graphs: HashMap<(u64, u64), Vec<usize>>,
    /// Names of executed functions that have no record in the mapping and cannot be shown, because records with the same name belong to
    /// other functions.
    pub not_shown: BTreeSet<String>,
}

impl FunctionInstances {
    /// Assigns counters to instances. `counters` has one element for each executed image. The mappings of these images come first in
    /// `mappings`.
    pub fn new(mappings: &[ImageCoverageMapping], counters: Vec<Vec<FunctionEdges>>) -> Result<FunctionInstances> {
        let mut instances = FunctionInstances::default();
        let mut counters: Vec<HashMap<(u64, u64), FunctionEdges>> =
            counters.into_iter().map(|all| all.into_iter().map(|f| ((hash_name(f.name.as_bytes()), f.hash), f)).collect()).collect();
        let names: HashMap<u64, String> = counters.iter().flatten().map(|((name, _), function)| (*name, function.name.clone())).collect();
        for (image, mapping) in mappings.iter().enumerate() {
            let mut met = BTreeSet::new();
            for record in mapping.records()? {
                let key = (record.name_hash(), record.graph_hash());
                let is_known = instances.of_image.contains_key(&(image, key.0, key.1));
                // If a unit does not use a function, its record has no counters and is ignored.
                if is_known || (record.graph_hash() == 0 && count_counters(&record.regions()?) == 0) {
                    continue;
                }
                let own = counters.get_mut(image).and_then(|all| all.remove(&key));
                // For each name, `llvm-cov` shows the first function of a program. The other functions are needed only if they were
                // executed.
                let is_executed = own.as_ref().is_some_and(|function| function.counts.iter().any(|count| *count > 0));
                if met.insert(record.name_hash()) || is_executed {
                    instances.add(image, mapping, &record, own, &names)?;
                }
            }
        }
        // The remaining counters belong to functions that are inlined everywhere in a program, so that the program has no record of them.
        for (key, function) in counters.into_iter().flatten() {
            match instances.graphs.get(&key).and_then(|all| all.first()) {
                Some(first) => instances.all[*first].edges.add(&function),
                None if function.counts.iter().any(|count| *count > 0) && instances.names.contains(&key.0) => {
                    instances.not_shown.insert(function.name);
                }
                None => {}
            }
        }
        Ok(instances)
    }

    fn add(
        &mut self,
        image: usize,
        mapping: &ImageCoverageMapping,
        record: &MappingRecord,
        own: Option<FunctionEdges>,
        names: &HashMap<u64, String>,
    ) -> Result<()> {
        let (name, graph) = (record.name_hash(), record.graph_hash());
        let function = record.regions()?;
        let source = (name, graph, mapping.files_of(record, &function));
        let number = match (self.by_source.get(&source), names.get(&name)) {
            (Some(number), _) => *number,
            (None, None) => return Ok(()),
            (None, Some(known)) => {
                let of_graph = self.graphs.entry((name, graph)).or_default();
                // A function without counters that no other function resembles needs no instance.
                if own.is_none() && of_graph.is_empty() {
                    return Ok(());
                }
                let bits = of_graph.first().map_or(0, |first| self.all[*first].edges.bitmap.len());
                let variants = self.variants.entry((name, source.2.clone())).or_default();
                let counts = vec![0; count_counters(&function)];
                let hash = graph ^ (of_graph.len() as u64) << INSTANCE_NUMBER_SHIFT;
                let edges = FunctionEdges { name: known.clone(), hash, counts, bitmap: vec![0; bits], values: Default::default() };
                of_graph.push(self.all.len());
                self.all.push(FunctionInstance { edges, images: BTreeSet::new(), variant: *variants });
                *variants += 1;
                *self.by_source.entry(source).or_insert(self.all.len() - 1)
            }
        };
        let instance = &mut self.all[number];
        own.iter().for_each(|function| instance.edges.add(function));
        instance.images.insert(image);
        self.names.insert(name);
        self.of_image.insert((image, name, graph), number);
        Ok(())
    }

    /// Returns the index of a record's instance; `None` if the record needs no instance.
    pub fn instance_number(&self, image: usize, record: &MappingRecord) -> Option<usize> {
        self.of_image.get(&(image, record.name_hash(), record.graph_hash())).copied()
    }

    pub fn instance(&self, number: usize) -> &FunctionInstance {
        &self.all[number]
    }

    pub fn instance_edges_mut(&mut self, number: usize) -> &mut FunctionEdges {
        &mut self.all[number].edges
    }

    pub fn into_function_edges(self) -> Vec<FunctionEdges> {
        let mut edges: Vec<FunctionEdges> = self.all.into_iter().map(|instance| instance.edges).collect();
        edges.sort_by(|a, b| (&a.name, a.hash).cmp(&(&b.name, b.hash)));
        edges
    }
}

/// Number of bits by which instance numbers are shifted to make graph hashes differ. LLVM uses higher bits of hashes as flags.
const INSTANCE_NUMBER_SHIFT: u32 = 32;

/// Returns the number of counters to which the regions refer, but at most [`MAX_COUNTERS`].
fn count_counters(function: &FunctionRegions) -> usize {
    let regions = function.regions.iter().flatten().flat_map(|region| region.counters.iter());
    let all = regions.chain(function.expressions.iter().flatten());
    let number = |counter: &RegionCounter| match counter.kind() {
        RegionCounterKind::Plain(number) => usize::try_from(number).map_or(0, |number| number + 1),
        _ => 0,
    };
    all.map(number).max().unwrap_or(0).min(MAX_COUNTERS)
}

/// Maximum number of counters in a function. Without it, a corrupt mapping could refer to any number of counters.
const MAX_COUNTERS: usize = 1 << 20;
