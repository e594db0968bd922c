//! Describes the counters that LLVM would insert into a unit, for edges or for coverage regions. With this description, a path profile can
//! be converted to LLVM's profile.
//!
//! LLVM's profile-guided optimisation needs the values of the counters that its instrumentation pass inserts on chords of a spanning tree.
//! A build for such profiles lets LLVM insert the counters and removes them before code generation. In the map, a [`CounterPlaceholder`]
//! replaces each increment by a constant. The counter's value follows from the executions of the placeholder's block. Any other increment
//! (by a computed amount, or between two calls of a block that may not return) uses a counter of the unit itself ([`OwnCounters`]).

use crate::position::SourcePosition;
use serde::{Deserialize, Serialize};
use trodden_flow::{Edge, Node};

/// LLVM's counters in a unit, and the data that their values are computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeProfile {
    /// LLVM's profile version with its variant flags (`__llvm_profile_raw_version`).
    pub version: u64,
    /// Names of functions in LLVM's profiles (`main`, `file.c;local`). [`ProfiledFunction::name`] is the hash of such a name.
    pub names: Vec<String>,
    /// Functions that have counters: functions that the unit defines, and functions inlined into it.
    pub functions: Vec<ProfiledFunction>,
    /// Increments by a constant.
    pub placeholders: Vec<CounterPlaceholder>,
    /// LLVM's counters that correspond to counters of the unit.
    pub own: Vec<OwnCounters>,
    /// Counters for value profiles.
    pub values: Vec<ValueCounters>,
    /// Calls that duplicate the process (`fork`), in functions with placeholders.
    pub forks: Vec<ForkCall>,
    /// Calls at which paths may end; only for coverage.
    pub reached: Vec<ReachedCall>,
}

/// A call that may not return. If several such calls are consecutive and on the same line, only the last is recorded. The paths show how
/// often control left a block, and thus how often the block's last call returned. Returns of its other calls have counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReachedCall {
    /// Index of the function in [`crate::UnitMap::functions`].
    pub function: u32,
    /// The block that makes the call.
    pub block: Node,
    /// Number of the block's source positions up to the call.
    pub up_to_call: u32,
    /// Source position of the call, if known.
    pub position: Option<SourcePosition>,
    /// Index of the unit's counter that counts returns of the call; `None` for the last call of a block.
    pub counter: Option<u64>,
}

/// A call that duplicates the process. Both processes continue after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ForkCall {
    /// Index of the function in [`crate::UnitMap::functions`].
    pub function: u32,
    /// The edge after the call ([`crate::EdgeKind::ReturnsTwice`]).
    pub edge: Edge,
}

impl EdgeProfile {
    /// Returns true if the counters are for source-based coverage, which the front end inserts. Otherwise they are edge counters; LLVM
    /// marks those by a flag in the version.
    pub fn is_coverage(&self) -> bool {
        const EDGE_FLAG: u64 = 1 << 56;
        self.version & EDGE_FLAG == 0
    }

    /// Returns the calls of a function at which paths may end. The calls of each block are in order. `function` is the function's index.
    pub fn reached_calls_in(&self, function: usize) -> impl Iterator<Item = &ReachedCall> {
        self.reached.iter().filter(move |call| call.function as usize == function)
    }

    /// Returns the edges of a function after calls that duplicate the process. `function` is the function's index.
    pub fn fork_edges_of(&self, function: usize) -> impl Iterator<Item = Edge> + '_ {
        self.forks.iter().filter(move |call| call.function as usize == function).map(|call| call.edge)
    }
}

/// A function for which LLVM has counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledFunction {
    /// LLVM's hash of the function's name: the first eight bytes of its MD5, little-endian.
    pub name: u64,
    /// LLVM's hash of the function's graph.
    pub hash: u64,
    /// Number of counters.
    pub counters: u32,
    /// Number of bits for the test vectors of decisions (MC/DC), a multiple of 8. Bit `i` has the counter `counters + i`, and is set if
    /// the value of that counter is not 0.
    pub bits: u32,
    /// Number of value sites of each kind: targets of indirect calls, sizes of memory operations, virtual tables. LLVM accepts a profile
    /// only if it has the same numbers.
    pub value_sites: [u16; 3],
}

/// One of LLVM's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EdgeCounter {
    /// Index of its function in [`EdgeProfile::functions`].
    pub function: u32,
    /// Index within the function. An index that is not less than [`ProfiledFunction::counters`] denotes a bit.
    pub index: u32,
}

/// Records a removed instruction that incremented one of LLVM's counters by a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterPlaceholder {
    /// Index in [`crate::UnitMap::functions`] of the function that contains the placeholder.
    pub function: u32,
    /// Block of this function.
    pub block: Node,
    /// Position in the block.
    pub place: PlaceholderPosition,
    /// The counter.
    pub counter: EdgeCounter,
    /// The increment.
    pub amount: i64,
}

/// Position of a placeholder in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaceholderPosition {
    /// Before all calls that may not return: executed whenever the block is entered.
    Entered,
    /// After all calls that may not return: executed whenever the block is left.
    Left,
}

/// Consecutive counters of the unit. Their values are added to consecutive counters of LLVM, in addition to the increments of
/// placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCounters {
    /// The first of LLVM's counters.
    pub counter: EdgeCounter,
    /// The first of the unit's counters.
    pub first: u64,
    /// Number of counters.
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
    /// The first counter; the number of counters is [`ProfiledValueKind::counters`].
    pub first: u64,
}

/// Kinds of profiled values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProfiledValueKind {
    /// Targets of indirect calls, as offsets from the start of the image (0 for targets in other images). The offset selects one of
    /// [`TARGET_BUCKETS`] pairs of counters: the number of calls, and the sum of the offsets. If all calls that are counted by a pair have
    /// the same target, the pair determines the target. The pairs of several threads and runs can be added.
    Target,
    /// Sizes of memory operations, in [`SIZE_CLASSES`] classes with one counter each: the sizes 0 to 8, then alternately the sizes between
    /// two powers of two and the next power of two (up to 512), and finally all sizes above 512.
    Size,
}

/// Number of counter pairs per call site, for its targets; a power of two.
pub const TARGET_BUCKETS: u32 = 32;
/// Number of size classes.
pub const SIZE_CLASSES: u32 = 22;
/// Multiplier for offsets. The highest bits of the product select a counter pair.
pub const TARGET_HASH: u64 = 0x9e37_79b9_7f4a_7c15;

impl ProfiledValueKind {
    /// Returns the number of counters of each site.
    pub fn counters(self) -> u32 {
        match self {
            ProfiledValueKind::Target => 2 * TARGET_BUCKETS,
            ProfiledValueKind::Size => SIZE_CLASSES,
        }
    }
}

/// Returns the index of the counter pair for calls of a target at this offset.
pub fn target_bucket(offset: u64) -> u32 {
    (offset.wrapping_mul(TARGET_HASH) >> (u64::BITS - TARGET_BUCKETS.ilog2())) as u32
}

/// Returns the size that represents a class in LLVM's profiles.
pub fn size_of_class(class: u32) -> u64 {
    match class {
        0..=8 => u64::from(class),
        _ => (1 << ((class - 2) / 2)) + u64::from(class % 2),
    }
}
