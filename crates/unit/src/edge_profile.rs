//! Describes the counters that LLVM would insert into a unit, for edges or for coverage regions. With this description, a path profile can
//! be converted to a profile of LLVM.
//!
//! LLVM's profile-guided optimisation needs the values of counters that its instrumentation pass inserts on chords of a spanning tree. A
//! build for such profiles lets LLVM insert the counters and removes them again before code generation. Each removed increment by a
//! constant is recorded in the map as a [`CounterPlaceholder`], and the counter's value is computed from the executions of the
//! placeholder's block. Any other increment (by a computed amount, or between two calls of a block that may not return) uses a counter of
//! the unit itself ([`UnitCountersForLlvm`]).

use crate::position::SourcePosition;
use serde::{Deserialize, Serialize};
use trodden_flow::{Edge, Node};

/// LLVM's counters in a unit, and what is needed to compute their values from paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeProfile {
    /// Version of LLVM's profile format with its variant flags (`__llvm_profile_raw_version`).
    pub version: u64,
    /// Function names as in LLVM's profiles (`main`, `file.c;local`). [`ProfiledFunction::name`] is the hash of such a name.
    pub names: Vec<String>,
    /// Functions that have counters of LLVM: those that the unit defines, and those that were inlined into them.
    pub functions: Vec<ProfiledFunction>,
    /// Increments by a constant.
    pub placeholders: Vec<CounterPlaceholder>,
    /// LLVM's counters whose values are also, or only, counted by counters of the unit.
    pub own: Vec<UnitCountersForLlvm>,
    /// Counters of the unit for value profiles.
    pub values: Vec<ValueCounters>,
    /// Calls that duplicate the process, such as `fork`, in functions with placeholders.
    pub forks: Vec<ForkCall>,
    /// Calls that may not return, so that paths may end there. Recorded only for coverage.
    pub reached: Vec<ReachedCall>,
}

/// A call that may not return. Of several such calls that follow each other on the same line, only the last is recorded. From the paths
/// follows how often control left a block, which is how often the block's last call returned. For the other calls of the block, a counter
/// counts how often they returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReachedCall {
    /// Index of the calling function in [`crate::UnitMap::functions`].
    pub function: u32,
    /// The block that contains the call.
    pub block: Node,
    /// Number of the block's source positions before or at the call.
    pub up_to_call: u32,
    /// Source position of the call, if known.
    pub position: Option<SourcePosition>,
    /// Index of the unit's counter that counts how often the call returned; `None` for the last call of a block.
    pub counter: Option<u64>,
}

/// A call that duplicates the process, such as `fork`. Both processes continue after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ForkCall {
    /// Index of the calling function in [`crate::UnitMap::functions`].
    pub function: u32,
    /// The edge after the call ([`crate::EdgeKind::ReturnsTwice`]).
    pub edge: Edge,
}

impl EdgeProfile {
    /// Returns true if the counters count regions for source-based coverage, and false if they count edges. LLVM marks edge counters by a
    /// flag in the version.
    pub fn is_coverage(&self) -> bool {
        const EDGE_FLAG: u64 = 1 << 56;
        self.version & EDGE_FLAG == 0
    }

    /// Returns the calls in a function that may not return. The calls of each block are in order. `function` is the function's index in the
    /// map.
    pub fn reached_calls_in(&self, function: usize) -> impl Iterator<Item = &ReachedCall> {
        self.reached.iter().filter(move |call| call.function as usize == function)
    }

    /// Returns the edges after a function's calls that duplicate the process. `function` is the function's index in the map.
    pub fn fork_edges_of(&self, function: usize) -> impl Iterator<Item = Edge> + '_ {
        self.forks.iter().filter(move |call| call.function as usize == function).map(|call| call.edge)
    }
}

/// A function for which LLVM has profile counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledFunction {
    /// LLVM's hash of the function's name: the first eight bytes of its MD5, little-endian.
    pub name: u64,
    /// LLVM's hash of the function's control-flow graph.
    pub hash: u64,
    /// Number of counters.
    pub counters: u32,
    /// Number of bits for the test vectors of decisions (MC/DC); a multiple of 8. Bit `i` is set if counter `counters + i` is not 0.
    pub bits: u32,
    /// Number of profiled sites of each kind of value: targets of indirect calls, sizes of memory operations, virtual tables. LLVM rejects
    /// a profile with different numbers.
    pub value_sites: [u16; 3],
}

/// One of LLVM's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EdgeCounter {
    /// Index of the counter's function in [`EdgeProfile::functions`].
    pub function: u32,
    /// Index of the counter within the function. Counters from [`ProfiledFunction::counters`] on represent bits.
    pub index: u32,
}

/// A removed instruction that incremented one of LLVM's counters by a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterPlaceholder {
    /// Index in [`crate::UnitMap::functions`] of the function from which the instruction was removed.
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

/// Position of the removed instruction in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaceholderPosition {
    /// Before all calls of the block that may not return: executed whenever the block is entered.
    Entered,
    /// After all calls of the block that may not return: executed whenever the block is left.
    Left,
}

/// Consecutive counters of the unit, whose values are added to consecutive counters of LLVM. The increments of placeholders are added, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitCountersForLlvm {
    /// The first of LLVM's counters.
    pub counter: EdgeCounter,
    /// Index of the first of the unit's counters.
    pub first: u64,
    /// Number of counters.
    pub count: u32,
}

/// Counters of the unit that count the values at one site of a function, for LLVM's value profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueCounters {
    /// Index of the function in [`EdgeProfile::functions`].
    pub function: u32,
    /// The kind of values.
    pub kind: ProfiledValueKind,
    /// Index of the site among the function's sites of the same kind.
    pub site: u16,
    /// Index of the first counter of the unit. The number of counters is [`ProfiledValueKind::counters`].
    pub first: u64,
}

/// Kinds of profiled values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProfiledValueKind {
    /// Targets of indirect calls, as offsets from the start of the image (0 for targets in other images). The offset selects one of
    /// [`TARGET_BUCKET_COUNT`] pairs of counters, which hold the number of calls and the sum of the offsets. If all calls that a pair
    /// counts have the same target, the pair determines the target. Pairs of several threads and runs can be added.
    Target,
    /// Sizes of memory operations, in [`SIZE_CLASS_COUNT`] classes with one counter each. The first classes are the sizes 0 to 8. Then, for
    /// each power of two up to 512, there is a class for the sizes between the previous power and this one, and a class for this size. The
    /// last class is for all sizes above 512.
    Size,
}

/// Number of pairs of counters for the targets of a call site; a power of two.
pub const TARGET_BUCKET_COUNT: u32 = 32;
/// Number of size classes.
pub const SIZE_CLASS_COUNT: u32 = 22;
/// Multiplier of offsets. The highest bits of the product are the index of a pair of counters.
pub const TARGET_HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl ProfiledValueKind {
    /// Returns the number of counters for each site.
    pub fn counters(self) -> u32 {
        match self {
            ProfiledValueKind::Target => 2 * TARGET_BUCKET_COUNT,
            ProfiledValueKind::Size => SIZE_CLASS_COUNT,
        }
    }
}

/// Returns the index of the pair of counters that counts calls of a target, given by its offset in the image.
pub fn target_bucket_index(offset: u64) -> u32 {
    (offset.wrapping_mul(TARGET_HASH_MULTIPLIER) >> (u64::BITS - TARGET_BUCKET_COUNT.ilog2())) as u32
}

/// Returns the size by which LLVM's profiles represent a size class.
pub fn size_of_class(class: u32) -> u64 {
    match class {
        0..=8 => u64::from(class),
        _ => (1 << ((class - 2) / 2)) + u64::from(class % 2),
    }
}
