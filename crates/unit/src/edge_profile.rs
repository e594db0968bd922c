//! LLVM's counters of a unit (of edges, or of regions for coverage), which allow converting a path profile to LLVM's profile.
//!
//! LLVM's profile-guided optimisation needs the values of counters that its instrumentation pass inserts, on chords of a spanning tree of
//! the graph at that time. A collecting build lets LLVM insert them and removes them before code generation. An increment by a constant
//! becomes a [`CounterPlaceholder`] in the map, whose value follows from the executions of its block. Other increments (by a computed
//! amount, or between two calls of one block that may not return) use a counter of the unit's own ([`OwnCounters`]).

use crate::position::Position;
use serde::{Deserialize, Serialize};
use trodden_flow::{Edge, Node};

/// LLVM's counters of a unit, and the data that their values are computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeProfile {
    /// LLVM's profile version with its variant flags (`__llvm_profile_raw_version`).
    pub version: u64,
    /// Names of functions in LLVM's profiles (`main`, `file.c;local`); [`ProfiledFunction::name`] has their hashes.
    pub names: Vec<String>,
    /// Functions with counters: defined in the unit, or inlined there.
    pub functions: Vec<ProfiledFunction>,
    /// Increments by a constant.
    pub placeholders: Vec<CounterPlaceholder>,
    /// LLVM's counters that are counted by the unit's own counters.
    pub own: Vec<OwnCounters>,
    /// Counters for value profiles.
    pub values: Vec<ValueCounters>,
    /// Calls that duplicate the process (`fork`), in functions with placeholders.
    pub forks: Vec<ForkCall>,
    /// Calls at which paths may stop; only for coverage.
    pub reached: Vec<ReachedCall>,
}

/// A call that may not return, or the last of several consecutive ones on the same line. Paths show how often control left a block, and
/// thus how often its last call returned; returns from the others are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReachedCall {
    /// Index of the function in [`crate::UnitMap::functions`].
    pub function: u32,
    /// The block.
    pub block: Node,
    /// Number of the block's positions up to the call.
    pub up_to_call: u32,
    /// Its position, if known.
    pub position: Option<Position>,
    /// The unit's counter of its returns; `None` for the last call of a block.
    pub counter: Option<u64>,
}

/// A call that duplicates the process; each of the two continues after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ForkCall {
    /// Index of the function in [`crate::UnitMap::functions`].
    pub function: u32,
    /// The edge after the call ([`crate::EdgeKind::ReturnsTwice`]).
    pub edge: Edge,
}

impl EdgeProfile {
    /// Returns whether the counters are those of coverage, which the front end inserts, and not of edges, for which LLVM has a flag.
    pub fn is_coverage(&self) -> bool {
        const EDGE_FLAG: u64 = 1 << 56;
        self.version & EDGE_FLAG == 0
    }

    /// The calls of a function at which paths may stop, those of a block in order. `function` is its index.
    pub fn reached_in(&self, function: usize) -> impl Iterator<Item = &ReachedCall> {
        self.reached.iter().filter(move |call| call.function as usize == function)
    }

    /// The edges after calls of a function that duplicate the process. `function` is its index.
    pub fn forks_of(&self, function: usize) -> impl Iterator<Item = Edge> + '_ {
        self.forks.iter().filter(move |call| call.function as usize == function).map(|call| call.edge)
    }
}

/// A function that has counters of LLVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledFunction {
    /// LLVM's hash of the function's name: the first eight bytes of its MD5, little-endian.
    pub name: u64,
    /// Hash of its graph.
    pub hash: u64,
    /// Number of its counters.
    pub counters: u32,
    /// Number of bits for the test vectors of its decisions (MC/DC), a multiple of 8. Each bit has a counter after the first `counters`
    /// ones, and is set if that is not 0.
    pub bits: u32,
    /// Number of its value sites for each kind: targets of indirect calls, sizes of memory operations, virtual tables. The compiler
    /// requires the same numbers in a profile.
    pub value_sites: [u16; 3],
}

/// One of LLVM's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EdgeCounter {
    /// Index of its function in [`EdgeProfile::functions`].
    pub function: u32,
    /// Its index in the function; indices from the number of counters on are bits.
    pub index: u32,
}

/// A place where LLVM's counter would be incremented by a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterPlaceholder {
    /// Index of the function that contains the place in [`crate::UnitMap::functions`].
    pub function: u32,
    /// Its block there.
    pub block: Node,
    /// Where it is in the block.
    pub place: PlaceholderPosition,
    /// The counter.
    pub counter: EdgeCounter,
    /// The increment.
    pub amount: i64,
}

/// Where a placeholder is in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaceholderPosition {
    /// Before every call that may not return, so that every execution that enters the block passes it.
    Entered,
    /// After every such call, so that only executions that leave the block pass it.
    Left,
}

/// Counters of the unit that count for LLVM's counters directly, without placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCounters {
    /// The first of LLVM's counters.
    pub counter: EdgeCounter,
    /// The first of the unit's.
    pub first: u64,
    /// Number of both.
    pub count: u32,
}

/// Counters of the unit that count values at one value site of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueCounters {
    /// Index of the function in [`EdgeProfile::functions`].
    pub function: u32,
    /// The kind of values.
    pub kind: ProfiledValueKind,
    /// Index of the site among the function's sites of that kind.
    pub site: u16,
    /// The first of the unit's [`ProfiledValueKind::counters`] counters.
    pub first: u64,
}

/// Kinds of profiled values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProfiledValueKind {
    /// Targets of indirect calls, as offsets from the beginning of the image (0 for other images). The offset selects one of
    /// [`TARGET_BUCKETS`] pairs of counters: the number of calls, and the sum of the offsets. If all calls of a pair have the same target,
    /// the pair determines it. Pairs of several threads and runs can be added.
    Target,
    /// Sizes of memory operations, in [`SIZE_CLASSES`] classes with a counter each: one for each of 0 to 8, then powers of two, the sizes
    /// between them, and all sizes above 512.
    Size,
}

/// Number of pairs of counters for the targets of one call; a power of two.
pub const TARGET_BUCKETS: u32 = 32;
/// Number of size classes.
pub const SIZE_CLASSES: u32 = 22;
/// Multiplier of offsets; the highest bits of the product select a pair.
pub const TARGET_HASH: u64 = 0x9e37_79b9_7f4a_7c15;

impl ProfiledValueKind {
    /// Number of the unit's counters at each site.
    pub fn counters(self) -> u32 {
        match self {
            ProfiledValueKind::Target => 2 * TARGET_BUCKETS,
            ProfiledValueKind::Size => SIZE_CLASSES,
        }
    }
}

/// Returns the pair of counters for a target.
pub fn target_bucket(distance: u64) -> u32 {
    (distance.wrapping_mul(TARGET_HASH) >> (u64::BITS - TARGET_BUCKETS.ilog2())) as u32
}

/// Returns the size that represents a class in LLVM's profiles.
pub fn size_of_class(class: u32) -> u64 {
    match class {
        0..=8 => u64::from(class),
        _ => (1 << ((class - 2) / 2)) + u64::from(class % 2),
    }
}
