//! Which counters belong to which function of which program.
//!
//! LLVM's profiles know a function by its name and a hash of its graph, so the `main`s of two programs may be one function to them. And
//! `llvm-cov` shows one of the functions that have one name and the same files: of a source that was compiled in two ways it shows the
//! build that it meets first. Here a function of a source, compiled in one way, is an *instance*. It has the executions of all programs
//! that have it, and those only. Its record gets a hash of the graph that no other instance of its name has. The second of one name
//! and its files gets a further empty file, which makes its list of files another, and an object file in which its name occurs once.

use crate::region_code::{Counter, CounterKind, FunctionRegions};
use crate::sections::{Mapping, Record, hash};
use anyhow::Result;
use std::collections::{BTreeSet, HashMap, HashSet};
use trodden_profile::edges::FunctionEdges;

/// A function of a source, compiled in one way.
pub struct Instance {
    /// Its counters, with the hash of its graph that its records are given.
    pub edges: FunctionEdges,
    /// The programs that have it, by their places in the list of images.
    pub images: BTreeSet<usize>,
    /// Instances of its name and files before it.
    variant: usize,
}

impl Instance {
    /// The regions of its records, in which a variant has as many further files.
    pub fn with_files(&self, function: &mut FunctionRegions) -> bool {
        let first = function.files.first().copied();
        function.files.extend(first.into_iter().cycle().take(self.variant));
        function.regions.resize_with(function.files.len(), Vec::new);
        self.variant > 0
    }
}

/// Name and files of a function.
type Source = (u64, Vec<String>);

/// The functions of all programs.
#[derive(Default)]
pub struct Instances {
    all: Vec<Instance>,
    /// By image, and the hashes of the name and of the graph.
    of_image: HashMap<(usize, u64, u64), usize>,
    by_source: HashMap<(u64, u64, Vec<String>), usize>,
    names: HashSet<u64>,
    /// Instances of a name and files, and of a name and graph.
    variants: HashMap<Source, usize>,
    graphs: HashMap<(u64, u64), Vec<usize>>,
    /// Names of executed functions without a record, of which another has one.
    pub not_shown: BTreeSet<String>,
}

impl Instances {
    /// Of images, each with its counters if it was executed.
    ///
    /// # Errors
    /// A mapping is damaged.
    pub fn new(mappings: &[Mapping], counters: Vec<Vec<FunctionEdges>>) -> Result<Instances> {
        let mut instances = Instances::default();
        let mut counters: Vec<HashMap<(u64, u64), FunctionEdges>> =
            counters.into_iter().map(|all| all.into_iter().map(|f| ((hash(f.name.as_bytes()), f.hash), f)).collect()).collect();
        let names: HashMap<u64, String> = counters.iter().flatten().map(|((name, _), function)| (*name, function.name.clone())).collect();
        for (image, mapping) in mappings.iter().enumerate() {
            let mut met = BTreeSet::new();
            for record in mapping.records()? {
                let key = (record.name(), record.graph());
                let is_known = instances.of_image.contains_key(&(image, key.0, key.1));
                // Of a function that a unit does not use it has a record without counters.
                if is_known || (record.graph() == 0 && counters_of(&record.regions()?) == 0) {
                    continue;
                }
                let own = counters.get_mut(image).and_then(|all| all.remove(&key));
                // Of functions of one name `llvm-cov` takes a program's first. Others matter if they were executed.
                let is_executed = own.as_ref().is_some_and(|function| function.counts.iter().any(|count| *count > 0));
                if met.insert(record.name()) || is_executed {
                    instances.add(image, mapping, &record, own, &names)?;
                }
            }
        }
        // Code that was inlined into another program, which has no record of it.
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
        mapping: &Mapping,
        record: &Record,
        own: Option<FunctionEdges>,
        names: &HashMap<u64, String>,
    ) -> Result<()> {
        let (name, graph) = (record.name(), record.graph());
        let function = record.regions()?;
        let source = (name, graph, mapping.files_of(record, &function));
        let number = match (self.by_source.get(&source), names.get(&name)) {
            (Some(number), _) => *number,
            (None, None) => return Ok(()),
            (None, Some(known)) => {
                let of_graph = self.graphs.entry((name, graph)).or_default();
                // Nothing is known of it, and nothing would be taken for it.
                if own.is_none() && of_graph.is_empty() {
                    return Ok(());
                }
                let bits = of_graph.first().map_or(0, |first| self.all[*first].edges.bitmap.len());
                let variants = self.variants.entry((name, source.2.clone())).or_default();
                let counts = vec![0; counters_of(&function)];
                let hash = graph ^ (of_graph.len() as u64) << DIFFERENT_BITS;
                let edges = FunctionEdges { name: known.clone(), hash, counts, bitmap: vec![0; bits], values: Default::default() };
                of_graph.push(self.all.len());
                self.all.push(Instance { edges, images: BTreeSet::new(), variant: *variants });
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

    /// The number of a record's instance; `None` if nothing is known of its function.
    pub fn of(&self, image: usize, record: &Record) -> Option<usize> {
        self.of_image.get(&(image, record.name(), record.graph())).copied()
    }

    /// An instance by its number.
    pub fn get(&self, number: usize) -> &Instance {
        &self.all[number]
    }

    /// The counters of an instance.
    pub fn edges_mut(&mut self, number: usize) -> &mut FunctionEdges {
        &mut self.all[number].edges
    }

    /// The counters of all instances.
    pub fn into_edges(self) -> Vec<FunctionEdges> {
        let mut edges: Vec<FunctionEdges> = self.all.into_iter().map(|instance| instance.edges).collect();
        edges.sort_by(|a, b| (&a.name, a.hash).cmp(&(&b.name, b.hash)));
        edges
    }
}

/// Hashes of instances differ above this bit, and below LLVM's flags.
const DIFFERENT_BITS: u32 = 32;

/// Number of counters that regions refer to.
fn counters_of(function: &FunctionRegions) -> usize {
    let regions = function.regions.iter().flatten().flat_map(|region| region.counters.iter());
    let all = regions.chain(function.expressions.iter().flatten());
    let number = |counter: &Counter| match counter.kind() {
        CounterKind::Plain(number) => usize::try_from(number).map_or(0, |number| number + 1),
        _ => 0,
    };
    all.map(number).max().unwrap_or(0).min(MAX_COUNTERS)
}

/// A damaged mapping may name any.
const MAX_COUNTERS: usize = 1 << 20;
