//! Computes LLVM's edge profile of a program from its paths.
//!
//! The program was built with a placeholder wherever LLVM would increment a counter ([`trodden_unit::edge_profile`]). The value of a
//! counter is the sum, over its placeholders, of the block's executions times the increment. The unit's own counters for it are added.
//! Unfinished paths count up to their last call, and a function that was active during a `fork` counts for both processes
//! ([`crate::forks`]). A function that is in several units (an inline function or template instance) is identified by name and graph hash,
//! and its counters are summed, as LLVM does.

mod values;

pub use values::{CallTarget, CallTargetsByOffset, ProfiledValue};

use crate::forks::balance_forks;
use crate::model::{ImageProfile, Profile, UnitProfile};
use crate::paths::FunctionPaths;
use md5::{Digest, Md5};
use std::collections::{BTreeMap, HashMap};
use trodden_flow::Edge;
use trodden_unit::{CounterPlaceholder, EdgeCounter, EdgeProfile, MapError, PlaceholderPosition};
use values::{CountsByValue, add_values, sort_sites};

/// LLVM's profile counters of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeCounts {
    /// Version of LLVM's profile format, with its variant flags.
    pub version: u64,
    /// Functions, sorted by name and then by hash.
    pub functions: Vec<FunctionEdges>,
    /// Source files of units that were built without placeholders. Functions of these units are missing in `functions`.
    pub without_placeholders: Vec<String>,
}

/// LLVM's profile counters of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionEdges {
    /// The function's name in LLVM's profiles, such as `main` or `file.c;local`.
    pub name: String,
    /// LLVM's hash of the function's control-flow graph.
    pub hash: u64,
    /// Values of the counters.
    pub counts: Vec<u64>,
    /// Bitmap of the executed MC/DC test vectors, in LLVM's layout.
    pub bitmap: Vec<u8>,
    /// Profiled values, indexed by LLVM's value kind and then by site.
    pub values: [Vec<SiteValueCounts>; 3],
}

impl FunctionEdges {
    /// Adds the counts and test vectors of the same function in a different program. Does not add profiled values.
    pub fn add(&mut self, other: &FunctionEdges) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.bitmap.resize(self.bitmap.len().max(other.bitmap.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.bitmap.iter_mut().zip(&other.bitmap).for_each(|(all, bits)| *all |= bits);
    }
}

/// Values and their counts at one site, most frequent first.
pub type SiteValueCounts = Vec<(ProfiledValue, u64)>;

/// Reason why an edge profile cannot be computed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum EdgeError {
    #[error(
        "the profiled program was built without LLVM's counters. Build it with `trodden build --coverage` (for coverage) or `trodden \
         build --pgo` (for `-fprofile-use`), or with `cargo trodden build` and the same option, and record again"
    )]
    NoPlaceholders,
    /// Units were built for different kinds or versions of LLVM's profile format.
    #[error(
        "the program's source files were compiled for different LLVM profile versions ({one:#x} and {other:#x}). Build all of them with \
         the same compiler, and either all with --pgo or all with --coverage"
    )]
    Versions {
        /// Profile version and variant flags of one unit.
        one: u64,
        other: u64,
    },
    #[error("the counter placeholders of compilation unit {unit} are corrupt ({what}). Rebuild the program and record again")]
    Corrupt { unit: String, what: &'static str },
    #[error(transparent)]
    Map(#[from] MapError),
}

#[derive(Default)]
pub(crate) struct EdgeCounters {
    counters: Vec<i128>,
    bits: Vec<i128>,
    /// Profiled values, indexed by value kind and then by site.
    pub(crate) values: [Vec<CountsByValue>; 3],
}

/// Counters of functions, by hash of the name and hash of the control-flow graph.
pub(crate) type ProfileFunctions = BTreeMap<(u64, u64), EdgeCounters>;

impl EdgeCounts {
    /// Computes the values of all counters. `targets` returns the functions of an image, among which the callees of indirect calls are
    /// looked up. Fails if the program was built without placeholders or for different profile versions, or if a map is corrupt.
    pub fn new(profile: &Profile, targets: &dyn Fn(&ImageProfile) -> CallTargetsByOffset) -> Result<EdgeCounts, EdgeError> {
        let mut sum = CounterSums::default();
        profile.images.iter().flat_map(|image| &image.units).try_for_each(|unit| sum.add(unit))?;
        for image in &profile.images {
            add_values(&mut sum.values, image, targets(image))?;
        }
        sum.into_edge_counts()
    }

    /// Computes the counter values of a single image, without profiled values. Fails like [`EdgeCounts::new`].
    pub fn from_image(image: &ImageProfile) -> Result<EdgeCounts, EdgeError> {
        let mut sum = CounterSums::default();
        image.units.iter().try_for_each(|unit| sum.add(unit))?;
        sum.into_edge_counts()
    }
}

#[derive(Default)]
struct CounterSums {
    values: ProfileFunctions,
    names: HashMap<u64, String>,
    version: Option<u64>,
    without_placeholders: Vec<String>,
}

impl CounterSums {
    fn add(&mut self, unit: &UnitProfile) -> Result<(), EdgeError> {
        let Some(edges) = &unit.map.edge_profile else {
            self.without_placeholders.push(unit.map.source.clone());
            return Ok(());
        };
        // A unit in which LLVM counts nothing has no version. Its version field cannot show that, because 0 is a valid version (coverage
        // without flags).
        if !edges.functions.is_empty() {
            let one = *self.version.get_or_insert(edges.version);
            if one != edges.version {
                return Err(EdgeError::Versions { one, other: edges.version });
            }
        }
        self.names.extend(edges.names.iter().map(|n| (hash_function_name(n), n.clone())));
        add_unit(&mut self.values, unit, edges)
    }

    fn into_edge_counts(mut self) -> Result<EdgeCounts, EdgeError> {
        let version = self.version.ok_or(EdgeError::NoPlaceholders)?;
        self.without_placeholders.sort();
        self.without_placeholders.dedup();
        Ok(EdgeCounts { version, functions: build_functions(self.values, &self.names)?, without_placeholders: self.without_placeholders })
    }
}

fn build_functions(all: ProfileFunctions, names: &HashMap<u64, String>) -> Result<Vec<FunctionEdges>, EdgeError> {
    let mut functions = Vec::with_capacity(all.len());
    for ((name, hash), known) in all {
        let name = names.get(&name).ok_or(EdgeError::Corrupt { unit: format!("{name:#x}"), what: "a function without a name" })?.clone();
        let counts = known.counters.into_iter().map(|v| v.clamp(0, i128::from(u64::MAX)) as u64).collect();
        let bitmap = known.bits.chunks(8).map(counter_bit_mask).collect();
        functions.push(FunctionEdges { name, hash, counts, bitmap, values: known.values.map(sort_sites) });
    }
    functions.sort_by(|a, b| (&a.name, a.hash).cmp(&(&b.name, b.hash)));
    Ok(functions)
}

/// Packs up to eight counts into a byte, lowest bit first. A bit is set if its count is positive.
fn counter_bit_mask(counts: &[i128]) -> u8 {
    counts.iter().rev().fold(0, |byte, count| byte << 1 | u8::from(*count > 0))
}

/// Computes LLVM's hash of a function name.
fn hash_function_name(name: &str) -> u64 {
    let digest = Md5::digest(name.as_bytes());
    u64::from_le_bytes(digest[..8].try_into().expect("eight bytes"))
}

fn add_unit(all: &mut ProfileFunctions, unit: &UnitProfile, edges: &EdgeProfile) -> Result<(), EdgeError> {
    let corrupt = |what| EdgeError::Corrupt { unit: unit.map.source.clone(), what };
    for function in &edges.functions {
        let known = all.entry((function.name, function.hash)).or_default();
        known.counters.resize(known.counters.len().max(function.counters as usize), 0);
        known.bits.resize(known.bits.len().max(function.bits as usize), 0);
        for (places, count) in known.values.iter_mut().zip(function.value_sites) {
            places.resize_with(places.len().max(usize::from(count)), CountsByValue::new);
        }
    }
    let mut add = |counter: EdgeCounter, amount: i128| -> Result<(), EdgeError> {
        let function = edges.functions.get(counter.function as usize).ok_or(corrupt("a function number out of range"))?;
        let known = all.get_mut(&(function.name, function.hash)).expect("inserted above");
        let value = match counter.index.checked_sub(function.counters) {
            None => known.counters.get_mut(counter.index as usize),
            Some(bit) => known.bits.get_mut(bit as usize),
        };
        *value.ok_or(corrupt("a counter number out of range"))? += amount;
        Ok(())
    };
    let mut by_function: BTreeMap<u32, Vec<&CounterPlaceholder>> = BTreeMap::new();
    edges.placeholders.iter().for_each(|m| by_function.entry(m.function).or_default().push(m));
    for (number, placeholders) in by_function {
        let function = unit.map.functions.get(number as usize).ok_or(corrupt("a function number out of range"))?;
        let Some(paths) = unit.executed_paths(function)? else { continue };
        let forks: Vec<Edge> = edges.fork_edges_of(number as usize).collect();
        let paths = balance_forks(function, &paths, &forks)?.unwrap_or(paths);
        for placeholder in placeholders {
            let executions = count_executions(&paths, placeholder).ok_or(corrupt("a block number out of range"))?;
            add(placeholder.counter, executions * i128::from(placeholder.amount))?;
        }
    }
    for own in &edges.own {
        for (at, count) in unit.counts.counters_in_range(own.first..own.first.saturating_add(u64::from(own.count))) {
            let index = own.counter.index + (at - own.first) as u32;
            add(EdgeCounter { index, ..own.counter }, i128::from(count))?;
        }
    }
    Ok(())
}

/// Returns how often the placeholder was executed; `None` if its block does not exist.
fn count_executions(paths: &FunctionPaths, placeholder: &CounterPlaceholder) -> Option<i128> {
    let entered = i128::from(*paths.blocks.get(placeholder.block.index())?);
    let stayed = paths.unfinished.iter().filter(|u| u.blocks.last() == Some(&placeholder.block)).map(|u| i128::from(u.count));
    Some(match placeholder.place {
        PlaceholderPosition::Entered => entered,
        PlaceholderPosition::Left => entered - stayed.sum::<i128>(),
    })
}
