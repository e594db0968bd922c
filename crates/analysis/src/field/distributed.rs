//! Copies of a program that were distributed to users and each count some of the paths (software tomography: Bowring, Orso and Harrold,
//! "Monitoring deployed software using software tomography", 2002). This module maps the copies' counters to the program's counters, and
//! determines which copies count a path.

use std::collections::HashMap;
use std::sync::Arc;
use trodden_flow::{Dag, Numbering};
use trodden_profile::copies::{CopyToProgramEdges, PartitionedProgram};
use trodden_unit::{FunctionMap, Identity, UnitMap, parts};

/// A unit of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitKey {
    /// Identity of the executable or library, which differs from build to build.
    pub image: Identity,
    /// Identity of the unit.
    pub unit: Identity,
}

/// A distributed copy.
#[derive(Clone, Debug)]
pub struct DistributedCopy {
    /// Identity of the copy's executable or library.
    pub image: Identity,
    /// The copy's units.
    pub units: Vec<(Identity, Arc<UnitMap>)>,
}

/// A program and its copies.
pub struct DistributedCopies {
    program: PartitionedProgram,
    copies: Vec<DistributedCopy>,
    numbers: HashMap<Identity, u32>,
    /// For each unit of a copy, the program's unit from which the copy's unit was made, and the copy's map.
    origins: HashMap<UnitKey, (Identity, Arc<UnitMap>)>,
    /// The copies that count part of each function, by the program's unit and the function's name.
    copies_with: HashMap<(Identity, String), Vec<(u32, CopyToProgramEdges)>>,
    /// Cache of graphs, by unit and function index.
    graphs: HashMap<(UnitKey, usize), Option<(Dag, Numbering)>>,
}

/// Error: a copy was made from a different build of the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "copy {copy} of the program was made from a different build: its function `{function}` differs. Pass the folder with the copies of \
     this build"
)]
pub struct CopyOfOtherProgram {
    /// Number of the copy.
    pub copy: u32,
    /// Name of the function.
    pub function: String,
}

impl DistributedCopies {
    /// Maps the counters of copies to the counters of their program. Fails if a copy was made from a different build.
    pub fn new(program: PartitionedProgram, copies: Vec<DistributedCopy>) -> Result<DistributedCopies, CopyOfOtherProgram> {
        let maps: HashMap<Identity, Arc<UnitMap>> = program.units.iter().cloned().collect();
        let mut copies_with = HashMap::<(Identity, String), Vec<(u32, CopyToProgramEdges)>>::new();
        let mut origins = HashMap::new();
        for (number, copy) in (0..).zip(&copies) {
            for (unit, map) in &copy.units {
                let Some(origin) = parts::origin(map) else { continue };
                let key = UnitKey { image: copy.image, unit: *unit };
                // A program may contain the same unit twice. Only the first one counts.
                if origins.insert(key, (origin, map.clone())).is_some() {
                    continue;
                }
                for own in &map.functions {
                    let function = maps.get(&origin).and_then(|map| map.functions.iter().find(|f| f.name == own.name));
                    let copy_edges = function.and_then(|function| CopyToProgramEdges::new(function, own));
                    let copy_edges = copy_edges.ok_or_else(|| CopyOfOtherProgram { copy: number, function: own.name.clone() })?;
                    copies_with.entry((origin, own.name.clone())).or_default().push((number, copy_edges));
                }
            }
        }
        let numbers = copies.iter().map(|c| c.image).zip(0..).collect();
        Ok(DistributedCopies { program, copies, numbers, origins, copies_with, graphs: HashMap::new() })
    }

    /// Returns the program from which the copies were made.
    pub fn program(&self) -> &PartitionedProgram {
        &self.program
    }

    /// Returns the copies.
    pub fn copies(&self) -> &[DistributedCopy] {
        &self.copies
    }

    /// Returns the number of the copy with this image.
    pub fn copy_number_of_image(&self, image: Identity) -> Option<u32> {
        self.numbers.get(&image).copied()
    }

    /// Converts a copy's counter to the program's counter, or returns `None` if the program has no such counter.
    pub fn to_program_counter(&mut self, key: UnitKey, counter: u64) -> Option<(UnitKey, u64)> {
        let (origin, map) = self.origins.get(&key)?.clone();
        let (place, own) = find_function(&map, counter)?;
        let (dag, numbering) = cached_graph(&mut self.graphs, key, place, own)?;
        let path = numbering.path(dag, counter - own.first_counter)?;
        let whole = self.program.units.iter().find(|(unit, _)| *unit == origin)?.1.clone();
        let function = whole.functions.iter().find(|f| f.name == own.name)?;
        let number = self.copy_number_of_image(key.image)?;
        let (_, copy_edges) = self.copies_with.get(&(origin, own.name.clone()))?.iter().find(|(copy, _)| *copy == number)?;
        let unit = UnitKey { image: self.program.identity, unit: origin };
        Some((unit, function.first_counter + copy_edges.program_path_id(function, &path)))
    }

    /// Returns the copies that count a path of the program.
    pub fn copies_counting(&mut self, key: UnitKey, counter: u64) -> Vec<u32> {
        self.find_copies_counting(key, counter).unwrap_or_default()
    }

    fn find_copies_counting(&mut self, key: UnitKey, counter: u64) -> Option<Vec<u32>> {
        let map = self.program.units.iter().find(|(unit, _)| *unit == key.unit)?.1.clone();
        let (place, function) = find_function(&map, counter)?;
        let (dag, numbering) = cached_graph(&mut self.graphs, key, place, function)?;
        let path = numbering.path(dag, counter - function.first_counter)?;
        let copies_with = self.copies_with.get(&(key.unit, function.name.clone()))?;
        Some(copies_with.iter().filter(|(_, copy_edges)| copy_edges.contains(&path)).map(|(copy, _)| *copy).collect())
    }

    /// Returns the linkage names of the functions in which a copy counts paths.
    pub fn functions(&self, copy: u32) -> Vec<&str> {
        let units = self.copies.get(copy as usize).into_iter().flat_map(|c| &c.units);
        units
            .filter(|(_, map)| parts::origin(map).is_some())
            .flat_map(|(_, map)| map.functions.iter().map(FunctionMap::plain_name))
            .collect()
    }
}

fn find_function(map: &UnitMap, counter: u64) -> Option<(usize, &FunctionMap)> {
    let has = |f: &FunctionMap| (f.first_counter..f.first_counter.saturating_add(f.counters)).contains(&counter);
    map.functions.iter().enumerate().find(|(_, f)| has(f))
}

fn cached_graph<'a>(
    graphs: &'a mut HashMap<(UnitKey, usize), Option<(Dag, Numbering)>>,
    key: UnitKey,
    place: usize,
    function: &FunctionMap,
) -> Option<&'a (Dag, Numbering)> {
    let make = || {
        let dag = function.dag().ok()?;
        let numbering = function.numbering(&dag).ok()?;
        Some((dag, numbering))
    };
    graphs.entry((key, place)).or_insert_with(make).as_ref()
}
