//! LLVM's edge profile of a program, as it follows from its paths.
//!
//! The program was built with counter placeholders ([`trodden_unit::edge_profile`]): places in blocks where LLVM would increment a counter.
//! A counter's value is the sum over its placeholders of the block's executions times the increment, plus the values of the unit's own
//! counters for it. Executions include those of unfinished paths, up to their last call, and both processes execute what was under way at a
//! fork ([`crate::forks`]). Units with the same function (inlined, or a copy of a template) are summed by name and hash of the function's
//! graph, as LLVM's own counters would be.

mod values;

pub use values::{CallTarget, NotedValue, Targets};

use crate::forks::with_paths_of_children;
use crate::model::{ImageProfile, Profile, UnitProfile};
use crate::paths::FunctionPaths;
use md5::{Digest, Md5};
use std::collections::{BTreeMap, HashMap};
use trodden_flow::Edge;
use trodden_unit::{CounterPlaceholder, EdgeCounter, EdgeProfile, MapError, PlaceholderPosition};
use values::{Values as PlaceValues, add_values, sorted};

/// LLVM's counters of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeCounts {
    /// LLVM's 64-bit version with flags.
    pub version: u64,
    /// Functions by name, then by hash.
    pub functions: Vec<FunctionEdges>,
    /// Sources of units that were built without placeholders: their functions are missing.
    pub without_markers: Vec<String>,
}

/// LLVM's counters of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionEdges {
    /// Name in LLVM's profiles (`main`, `file.c;local`).
    pub name: String,
    /// Hash of its graph.
    pub hash: u64,
    /// Values.
    pub counts: Vec<u64>,
    /// Bitmaps of the executed test vectors of its decisions (MC/DC).
    pub bitmap: Vec<u8>,
    /// Profiled values, for each kind and site.
    pub values: [Vec<SiteValues>; 3],
}

impl FunctionEdges {
    /// Adds the counts and executed vectors of the same function in another program. Profiled values stay as they are.
    pub fn add(&mut self, other: &FunctionEdges) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.bitmap.resize(self.bitmap.len().max(other.bitmap.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.bitmap.iter_mut().zip(&other.bitmap).for_each(|(all, bits)| *all |= bits);
    }
}

/// The values at one site, most frequent first.
pub type SiteValues = Vec<(NotedValue, u64)>;

/// Why there is no edge profile.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// Nothing was built for it.
    #[error(
        "the program of this profile was built without LLVM's counters: build it with `trodden build --coverage -- ...` for \
            coverage, or `trodden build --pgo -- ...` for `-fprofile-use` (`cargo trodden build` takes \
            both options, too), and record again"
    )]
    NoPlaceholders,
    /// Units of different compilers.
    #[error(
        "units of the program were built for different kinds of LLVM's profiles ({one:#x} and {other:#x}): build all of them \
            with one compiler and one of --pgo and --coverage"
    )]
    Versions {
        /// One unit's word of version and flags.
        one: u64,
        /// Another's.
        other: u64,
    },
    /// The map is damaged.
    #[error("unit {unit}: its counter placeholders are damaged ({what}): build the program again, and record again")]
    Damaged {
        /// The unit's source.
        unit: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The map is damaged.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// The counters of a function.
#[derive(Default)]
pub(crate) struct EdgeCounters {
    counters: Vec<i128>,
    bits: Vec<i128>,
    /// Values for each kind and site.
    pub(crate) values: [Vec<PlaceValues>; 3],
}

/// Functions by hash of the name and hash of the graph.
pub(crate) type ProfileFunctions = BTreeMap<(u64, u64), EdgeCounters>;

impl EdgeCounts {
    /// The values of all counters. `targets` gives for each image the functions that indirect calls may have
    /// called; `None` if that is unknown.
    ///
    /// # Errors
    /// The program was built without placeholders, or a map is damaged.
    pub fn new(profile: &Profile, targets: &dyn Fn(&ImageProfile) -> Targets) -> Result<EdgeCounts, EdgeError> {
        let mut sum = CountersOfUnits::default();
        profile.images.iter().flat_map(|image| &image.units).try_for_each(|unit| sum.add(unit))?;
        for image in &profile.images {
            add_values(&mut sum.values, image, targets(image))?;
        }
        sum.counts()
    }

    /// The values of the counters of one image, without profiled values.
    ///
    /// # Errors
    /// A map is damaged, or the image was built without placeholders.
    pub fn of_image(image: &ImageProfile) -> Result<EdgeCounts, EdgeError> {
        let mut sum = CountersOfUnits::default();
        image.units.iter().try_for_each(|unit| sum.add(unit))?;
        sum.counts()
    }
}

/// Counters summed over units.
#[derive(Default)]
struct CountersOfUnits {
    values: ProfileFunctions,
    names: HashMap<u64, String>,
    version: Option<u64>,
    without_markers: Vec<String>,
}

impl CountersOfUnits {
    fn add(&mut self, unit: &UnitProfile) -> Result<(), EdgeError> {
        let Some(edges) = &unit.map.edge_profile else {
            self.without_markers.push(unit.map.source.clone());
            return Ok(());
        };
        // A unit in which LLVM counts nothing has no version. The version of coverage is 0: no flag is set.
        if !edges.functions.is_empty() {
            let one = *self.version.get_or_insert(edges.version);
            if one != edges.version {
                return Err(EdgeError::Versions { one, other: edges.version });
            }
        }
        self.names.extend(edges.names.iter().map(|n| (key(n), n.clone())));
        add_unit(&mut self.values, unit, edges)
    }

    fn counts(mut self) -> Result<EdgeCounts, EdgeError> {
        let version = self.version.ok_or(EdgeError::NoPlaceholders)?;
        self.without_markers.sort();
        self.without_markers.dedup();
        Ok(EdgeCounts { version, functions: functions(self.values, &self.names)?, without_markers: self.without_markers })
    }
}

fn functions(all: ProfileFunctions, names: &HashMap<u64, String>) -> Result<Vec<FunctionEdges>, EdgeError> {
    let mut functions = Vec::with_capacity(all.len());
    for ((name, hash), known) in all {
        let name = names.get(&name).ok_or(EdgeError::Damaged { unit: format!("{name:#x}"), what: "a function without a name" })?.clone();
        let counts = known.counters.into_iter().map(|v| v.clamp(0, i128::from(u64::MAX)) as u64).collect();
        let bitmap = known.bits.chunks(8).map(byte).collect();
        functions.push(FunctionEdges { name, hash, counts, bitmap, values: known.values.map(sorted) });
    }
    functions.sort_by(|a, b| (&a.name, a.hash).cmp(&(&b.name, b.hash)));
    Ok(functions)
}

/// Eight bits, the lowest first, each set if its count is not 0.
fn byte(counts: &[i128]) -> u8 {
    counts.iter().rev().fold(0, |byte, count| byte << 1 | u8::from(*count > 0))
}

/// LLVM's key for a name.
fn key(name: &str) -> u64 {
    let digest = Md5::digest(name.as_bytes());
    u64::from_le_bytes(digest[..8].try_into().expect("eight bytes"))
}

fn add_unit(all: &mut ProfileFunctions, unit: &UnitProfile, edges: &EdgeProfile) -> Result<(), EdgeError> {
    let damaged = |what| EdgeError::Damaged { unit: unit.map.source.clone(), what };
    for function in &edges.functions {
        let known = all.entry((function.name, function.hash)).or_default();
        known.counters.resize(known.counters.len().max(function.counters as usize), 0);
        known.bits.resize(known.bits.len().max(function.bits as usize), 0);
        for (places, count) in known.values.iter_mut().zip(function.value_sites) {
            places.resize_with(places.len().max(usize::from(count)), PlaceValues::new);
        }
    }
    let mut add = |counter: EdgeCounter, amount: i128| -> Result<(), EdgeError> {
        let function = edges.functions.get(counter.function as usize).ok_or(damaged("a function number out of range"))?;
        let known = all.get_mut(&(function.name, function.hash)).expect("entered above");
        let value = match counter.index.checked_sub(function.counters) {
            None => known.counters.get_mut(counter.index as usize),
            Some(bit) => known.bits.get_mut(bit as usize),
        };
        *value.ok_or(damaged("a counter number out of range"))? += amount;
        Ok(())
    };
    let mut by_function: BTreeMap<u32, Vec<&CounterPlaceholder>> = BTreeMap::new();
    edges.placeholders.iter().for_each(|m| by_function.entry(m.function).or_default().push(m));
    for (number, placeholders) in by_function {
        let function = unit.map.functions.get(number as usize).ok_or(damaged("a function number out of range"))?;
        let Some(paths) = unit.executed_paths(function)? else { continue };
        let forks: Vec<Edge> = edges.forks_of(number as usize).collect();
        let paths = with_paths_of_children(function, &paths, &forks)?.unwrap_or(paths);
        for placeholder in placeholders {
            let executions = executions(&paths, placeholder).ok_or(damaged("a block number out of range"))?;
            add(placeholder.counter, executions * i128::from(placeholder.amount))?;
        }
    }
    for own in &edges.own {
        for (at, count) in unit.counts.within(own.first..own.first.saturating_add(u64::from(own.count))) {
            let index = own.counter.index + (at - own.first) as u32;
            add(EdgeCounter { index, ..own.counter }, i128::from(count))?;
        }
    }
    Ok(())
}

/// Executions of a placeholder.
fn executions(paths: &FunctionPaths, placeholder: &CounterPlaceholder) -> Option<i128> {
    let entered = i128::from(*paths.blocks.get(placeholder.block.index())?);
    let stayed = paths.unfinished.iter().filter(|u| u.blocks.last() == Some(&placeholder.block)).map(|u| i128::from(u.count));
    Some(match placeholder.place {
        PlaceholderPosition::Entered => entered,
        PlaceholderPosition::Left => entered - stayed.sum::<i128>(),
    })
}
