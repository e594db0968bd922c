//! LLVM's counters of a unit (of edges, or of regions of coverage): with them, a path profile can be converted to LLVM's profile.
//!
//! LLVM's profile-guided optimisation needs the values of counters that its instrumentation pass puts into a function (on chords of a
//! spanning tree of the graph at that time). A collecting build lets LLVM insert the counters, and removes them before code generation.
//! For an increment by a constant, the map keeps a [`CounterPlaceholder`]: its value follows from the block's executions, which paths give.
//! Other increments (by a computed amount, or between two calls of one block that may not return) are counted by a counter of the unit's
//! own ([`OwnCounters`]).

use crate::position::Position;
use serde::{Deserialize, Serialize};
use trodden_flow::{Edge, Node};

/// LLVM's counters of a unit, and the data that their values are computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeProfile {
    /// LLVM's 64-bit version with flags (`__llvm_profile_raw_version`).
    pub version: u64,
    /// Names of functions in LLVM's profiles (`main`, `file.c;local`); [`ProfiledFunction::name`] has their hashes.
    pub names: Vec<String>,
    /// Functions with counters: defined in the unit, or inlined there.
    pub functions: Vec<ProfiledFunction>,
    /// Increments by a constant.
    pub placeholders: Vec<CounterPlaceholder>,
    /// Counters that are counted by the unit's own counters.
    pub own: Vec<OwnCounters>,
    /// Counters of values.
    pub values: Vec<ValueCounters>,
    /// Calls by which a process becomes two (`fork`), in functions with placeholders.
    pub forks: Vec<ForkCall>,
    /// Calls in which paths may stop; only for coverage.
    pub reached: Vec<ReachedCall>,
}

/// A call that may not return, or the last of several such calls of one line in a row. Paths say how often control left the block, and so
/// how often the last call of a block returned; returns from others are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReachedCall {
    /// Index of the function in [`crate::UnitMap::functions`].
    pub function: u32,
    /// The block.
    pub block: Node,
    /// How many of the block's positions occur up to the call.
    pub up_to_call: u32,
    /// Its position, if known.
    pub position: Option<Position>,
    /// The unit's counter of its returns; none for the last of the block.
    pub counter: Option<u64>,
}

/// A call by which a process becomes two: each continues behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ForkCall {
    /// Index of the function in [`crate::UnitMap::functions`].
    pub function: u32,
    /// The edge behind the call, [`crate::EdgeKind::ReturnsTwice`].
    pub edge: Edge,
}

impl EdgeProfile {
    /// Whether the counters are those of coverage, which the compiler's front end inserts, and not of edges. LLVM has a flag for edges.
    pub fn is_coverage(&self) -> bool {
        const OF_EDGES: u64 = 1 << 56;
        self.version & OF_EDGES == 0
    }

    /// The calls of a function, by its index, in which paths may stop: those of a block in their order.
    pub fn reached_in(&self, function: usize) -> impl Iterator<Item = &ReachedCall> {
        self.reached.iter().filter(move |call| call.function as usize == function)
    }

    /// The edges behind the calls of a function, by its index, that make a process two.
    pub fn forks_of(&self, function: usize) -> impl Iterator<Item = Edge> + '_ {
        self.forks.iter().filter(move |call| call.function as usize == function).map(|call| call.edge)
    }
}

/// A function that LLVM counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledFunction {
    /// The first eight bytes of its name's MD5 hash, little-endian: LLVM's key for names.
    pub name: u64,
    /// Hash of its graph.
    pub hash: u64,
    /// Number of its counters.
    pub counters: u32,
    /// Number of bits of the test vectors of its decisions (MC/DC), whole bytes. Each bit is a counter after
    /// [`ProfiledFunction::counters`]; the bit is set if the counter is not 0.
    pub bits: u32,
    /// Number of its value sites, for each kind: targets of indirect calls, sizes of memory operations, tables of virtual functions. A
    /// compiler requires the same numbers of sites in a profile.
    pub value_sites: [u16; 3],
}

/// One of LLVM's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EdgeCounter {
    /// Index of its function in [`EdgeProfile::functions`].
    pub function: u32,
    /// Its number there; from the number of the function's counters on, those are its bits.
    pub index: u32,
}

/// A place where LLVM's counter would be incremented by a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterPlaceholder {
    /// Index of the function that contains it in [`crate::UnitMap::functions`].
    pub function: u32,
    /// Its block there.
    pub block: Node,
    /// Its position in the block.
    pub place: PlaceholderPosition,
    /// The counter.
    pub counter: EdgeCounter,
    /// The increment.
    pub amount: i64,
}

/// The position of a placeholder in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaceholderPosition {
    /// Before every call that may not return: every execution that enters the block passes it.
    Entered,
    /// After every such call: only executions that leave the block pass it.
    Left,
}

/// Counters of the unit that count for LLVM's counters, in addition to the placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCounters {
    /// The first of LLVM's counters.
    pub counter: EdgeCounter,
    /// The first of the unit's.
    pub first: u64,
    /// The number of both.
    pub count: u32,
}

/// Counters of the unit that count values at one value site of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueCounters {
    /// Place of the function in [`EdgeProfile::functions`].
    pub function: u32,
    /// The kind of values.
    pub kind: ProfiledValueKind,
    /// Number of the site among the function's sites of that kind.
    pub site: u16,
    /// The first of the unit's counters; there are [`ProfiledValueKind::counters`].
    pub first: u64,
}

/// Values that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProfiledValueKind {
    /// Targets of indirect calls. A target is identified by its distance from the beginning of the image (0 if it is elsewhere). The
    /// distance selects one of [`TARGET_BUCKETS`] pairs of counters: the number of calls, and the sum of the distances. If all calls of a
    /// pair have one target, both determine it. Pairs of several threads and runs can be added.
    Target,
    /// Sizes of memory operations in [`SIZE_CLASSES`] classes, each with a counter: 0 to 8 one class each, then powers of two, the sizes
    /// between two of them, and all sizes above 512.
    Size,
}

/// Pairs of counters for the targets of one call; a power of two.
pub const TARGET_BUCKETS: u32 = 32;
/// Classes of sizes.
pub const SIZE_CLASSES: u32 = 22;
/// The factor of distances: the highest bits of the product select a pair.
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

/// The pair for a target.
pub fn target_bucket(distance: u64) -> u32 {
    (distance.wrapping_mul(TARGET_HASH) >> (u64::BITS - TARGET_BUCKETS.ilog2())) as u32
}

/// The size that represents a class in LLVM's profiles.
pub fn size_of_class(class: u32) -> u64 {
    match class {
        0..=8 => u64::from(class),
        _ => (1 << ((class - 2) / 2)) + u64::from(class % 2),
    }
}
