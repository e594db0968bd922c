//! Control-flow graphs of machine code: functions, blocks, edges, calls, and uncertainties about them.
//!
//! A block starts at a function's entry, at a branch target, at a landing pad, or after a branch or return, but not after a call. It ends
//! where another block starts or where control does not continue. Blocks overlap only if code jumps into an instruction, for instance past
//! a `lock` prefix.
//!
//! Invariants: functions are sorted by entry address, and the blocks of each function by address. Edges and calls stay in their function.
//! Every indirect jump has edges, a call, or an [`Uncertainty`] at its address. All addresses are virtual addresses as in the ELF file.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// Index of a function in [`ProgramGraph::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramFunctionIndex(pub u32);

/// Index of a block in [`FunctionGraph::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockIndex(pub u32);

/// Where a graph comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GraphSource {
    /// The graph comes from the compiler's address map.
    AddressMap {
        /// Format version of the address map.
        version: u8,
    },
    /// The graph was recovered from machine code, unwind tables and relocations.
    Recovered,
}

impl fmt::Display for GraphSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphSource::AddressMap { version } => write!(f, "address map, version {version}"),
            GraphSource::Recovered => f.write_str("recovered from machine code"),
        }
    }
}

/// How control leaves a block at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockEnd {
    /// Control continues with the next block in memory.
    FallThrough,
    /// The block ends with a jump to a fixed address.
    Jump,
    /// A conditional jump.
    Conditional,
    /// The block ends with a jump through a register or memory.
    IndirectJump,
    /// A return.
    Return,
    /// The block ends with a call that never returns.
    CallWithoutReturn,
    /// The block ends with a trapping instruction (`ud2`, `hlt`).
    Stop,
    /// The block ends before undecodable bytes or the end of the code. [`FunctionGraph::uncertain`] has the reason.
    Unknown,
}

impl BlockEnd {
    /// Returns the name of this end in JSON.
    pub fn name(self) -> &'static str {
        match self {
            BlockEnd::FallThrough => "fall-through",
            BlockEnd::Jump => "jump",
            BlockEnd::Conditional => "conditional",
            BlockEnd::IndirectJump => "indirect-jump",
            BlockEnd::Return => "return",
            BlockEnd::CallWithoutReturn => "call-without-return",
            BlockEnd::Stop => "stop",
            BlockEnd::Unknown => "unknown",
        }
    }
}

/// A basic block: instructions that are contiguous in memory and entered only at the first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CodeBlock {
    /// Address of the first instruction.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Address of the last instruction.
    pub last: u64,
    /// How control leaves the block.
    pub end: BlockEnd,
}

impl CodeBlock {
    /// Returns the address after the block's last byte.
    pub fn end_address(&self) -> u64 {
        self.start + self.size
    }

    /// Returns true if an address is in the block.
    pub fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.start).is_some_and(|at| at < self.size)
    }
}

/// How an edge transfers control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CodeEdgeKind {
    /// Control falls through to the next instruction in memory.
    FallThrough,
    /// A jump to a fixed address.
    Jump,
    /// A conditional jump is taken.
    Taken,
    /// A conditional jump is not taken.
    NotTaken,
    /// An indirect jump leads to an entry of a jump table, to a label whose address is taken, or to a target that was observed in a run.
    Indirect,
    /// A call in the block throws an exception, which reaches a landing pad. The edge may leave the block at a call in its middle.
    Unwind,
    /// A run showed this transfer of control, which static analysis had missed.
    Observed,
}

impl CodeEdgeKind {
    /// Returns the name of this kind in JSON and DOT.
    pub fn name(self) -> &'static str {
        match self {
            CodeEdgeKind::FallThrough => "fall-through",
            CodeEdgeKind::Jump => "jump",
            CodeEdgeKind::Taken => "taken",
            CodeEdgeKind::NotTaken => "not-taken",
            CodeEdgeKind::Indirect => "indirect",
            CodeEdgeKind::Unwind => "unwind",
            CodeEdgeKind::Observed => "observed",
        }
    }
}

/// A possible transfer of control from one block to the start of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CodeEdge {
    /// The source block. A [`CodeEdgeKind::Unwind`] edge leaves it at one of its calls.
    pub from: BlockIndex,
    /// The target block.
    pub to: BlockIndex,
    /// How the edge transfers control.
    pub kind: CodeEdgeKind,
}

/// What a call calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CodeCallee {
    /// The function with this entry address in the same file.
    Function(u64),
    /// A function in a different file, given by name. It is called through the procedure linkage table or the global offset table.
    Import(String),
    /// A function whose address comes from a register or from memory.
    Indirect,
    /// One of several functions in the same file, given by their entry addresses, of which a table selects one.
    OneOf(Vec<u64>),
}

/// How a callee is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CallKind {
    /// A call instruction. The callee returns to the next instruction.
    Call,
    /// A jump to the callee, which returns to the caller of this function.
    TailCall,
    /// A jump to the callee, as a tail call, that is one of several ways out of its block.
    ConditionalTailCall,
}

/// Whether a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CallReturns {
    /// The call may return.
    Maybe,
    /// The call never returns, as far as static analysis can tell.
    Never,
    /// The call may return more than once, like a call to `setjmp`.
    Twice,
}

/// A call in a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallSite {
    /// The block that contains the call.
    pub block: BlockIndex,
    /// Address of the call or jump instruction.
    pub address: u64,
    /// Address of the instruction after the call; `None` for tail calls.
    pub return_address: Option<u64>,
    /// What is called.
    pub callee: CodeCallee,
    /// How the callee is entered: by a call or by a jump.
    pub kind: CallKind,
    /// Whether the call returns.
    pub returns: CallReturns,
    /// Address of the landing pad for exceptions that the callee throws; `None` if there is none.
    pub landing_pad: Option<u64>,
    /// Whether every exception of the callee reaches the landing pad, because the pad is a cleanup or catches everything. `longjmp`
    /// bypasses it even then.
    pub always_lands: bool,
}

/// A reason to doubt that a part of a graph is correct.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GraphDoubt {
    /// The targets of an indirect jump are unknown.
    UnresolvedJump,
    /// No check in the code limits the index of a jump table, so the size of the table was guessed from its content.
    JumpTableWithoutBound {
        /// Address of the table.
        table: u64,
        /// Number of entries that the table is assumed to have.
        entries: u32,
    },
    /// An indirect jump may have more targets than those found: code that leads to it with unknown values was found after its targets.
    MoreTargets,
    /// An indirect jump is assumed to reach every label of its function whose address is taken.
    AnyLabel,
    /// An indirect jump is assumed to be a tail call, because the stack has the same depth as at the function's entry.
    AssumedTailCall,
    /// Two instructions overlap in memory.
    Overlap,
    /// Control reaches bytes that are not a valid instruction.
    Undecodable,
    /// A branch leads to an address outside the code.
    OutsideCode {
        /// The address to which the branch leads.
        target: u64,
    },
    /// The function contains bytes that no control flow was found to reach and that are not padding.
    Unreached {
        /// Number of bytes.
        size: u64,
    },
    /// A transfer of control that was observed in a run was added to the graph.
    AddedEdge {
        /// Address to which control was transferred.
        target: u64,
    },
}

impl GraphDoubt {
    /// Returns the name of this doubt in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            GraphDoubt::UnresolvedJump => "unresolved-jump",
            GraphDoubt::JumpTableWithoutBound { .. } => "jump-table-without-bound",
            GraphDoubt::MoreTargets => "more-targets",
            GraphDoubt::AnyLabel => "any-label",
            GraphDoubt::AssumedTailCall => "assumed-tail-call",
            GraphDoubt::Overlap => "overlap",
            GraphDoubt::Undecodable => "undecodable",
            GraphDoubt::OutsideCode { .. } => "outside-code",
            GraphDoubt::Unreached { .. } => "unreached",
            GraphDoubt::AddedEdge { .. } => "observed-edge",
        }
    }
}

impl fmt::Display for GraphDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphDoubt::UnresolvedJump => f.write_str("the targets of the indirect jump are unknown"),
            GraphDoubt::JumpTableWithoutBound { table, entries } => {
                write!(f, "the jump table at {table:#x} has no bounds check: {entries} entries assumed")
            }
            GraphDoubt::MoreTargets => f.write_str("the indirect jump may have more targets than those found"),
            GraphDoubt::AnyLabel => f.write_str("the indirect jump is assumed to reach every label whose address is taken"),
            GraphDoubt::AssumedTailCall => f.write_str("the indirect jump is assumed to be a tail call"),
            GraphDoubt::Overlap => f.write_str("instructions overlap"),
            GraphDoubt::Undecodable => f.write_str("the bytes are not an instruction"),
            GraphDoubt::OutsideCode { target } => write!(f, "a branch leads to {target:#x}, which is outside the code"),
            GraphDoubt::Unreached { size: 1 } => f.write_str("no control flow to 1 byte was found"),
            GraphDoubt::Unreached { size } => write!(f, "no control flow to {size} bytes was found"),
            GraphDoubt::AddedEdge { target } => write!(f, "a run went to {target:#x}, which was not in the graph"),
        }
    }
}

/// A part of a graph that may not be correct, given by the address of the code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Uncertainty {
    /// Address of the code.
    pub address: u64,
    /// What is in doubt.
    pub doubt: GraphDoubt,
}

/// Frequencies in the compiler's address map. The compiler estimated them, or took them from a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompilerFrequencies {
    /// Number of calls to the function, if the compiler used a profile.
    pub entry_count: Option<u64>,
    /// Frequency of each block relative to the other blocks of the function; empty if unknown.
    pub blocks: Vec<u64>,
    /// Probability that control takes each edge when it leaves the source block; empty if unknown.
    pub edges: Vec<f64>,
}

/// The control-flow graph of one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionGraph {
    /// Name of the function's symbol; without a symbol, `sub_` and the entry address in hexadecimal.
    pub name: String,
    /// Whether `name` comes from a symbol.
    pub has_symbol: bool,
    /// Entry address of the function.
    pub entry: u64,
    /// Further entry addresses, which occur in hand-written assembly.
    pub other_entries: Vec<u64>,
    /// Address ranges of the function's code, ascending. There are several if the compiler moved cold code elsewhere.
    pub ranges: Vec<Range<u64>>,
    /// Blocks, sorted by address.
    pub blocks: Vec<CodeBlock>,
    /// Edges, sorted by source block, target block and kind.
    pub edges: Vec<CodeEdge>,
    /// Calls, sorted by address.
    pub calls: Vec<CallSite>,
    /// Start addresses of the blocks that are landing pads.
    pub landing_pads: Vec<u64>,
    /// Where the graph comes from.
    pub source: GraphSource,
    /// Parts of the graph that may not be correct, sorted by address.
    pub uncertain: Vec<Uncertainty>,
    /// Whether the address of the function is taken, so that indirect calls may reach it.
    pub is_address_taken: bool,
    /// Whether the function may return to its caller.
    pub returns: bool,
    /// Frequencies of blocks and edges, if the compiler's address map contains any.
    pub frequencies: Option<CompilerFrequencies>,
}

impl FunctionGraph {
    /// Returns the block that starts at an address.
    pub fn block_starting_at(&self, address: u64) -> Option<BlockIndex> {
        let at = self.blocks.binary_search_by_key(&address, |b| b.start).ok()?;
        Some(BlockIndex(at as u32))
    }

    /// Returns the block that contains an address. If overlapping blocks contain it, returns the one with the highest start address.
    pub fn block_containing(&self, address: u64) -> Option<BlockIndex> {
        let after = self.blocks.partition_point(|b| b.start <= address);
        // Few blocks overlap, and those that do are close to each other, so it suffices to look at the last four.
        let close = after.saturating_sub(4)..after;
        close.rev().find(|&at| self.blocks[at].contains(address)).map(|at| BlockIndex(at as u32))
    }

    /// Returns the block with an index.
    ///
    /// # Panics
    /// Panics if the index belongs to a different function.
    pub fn block(&self, index: BlockIndex) -> &CodeBlock {
        &self.blocks[index.0 as usize]
    }

    /// Returns the edges that leave a block.
    pub fn successors(&self, block: BlockIndex) -> &[CodeEdge] {
        let first = self.edges.partition_point(|e| e.from < block);
        let end = self.edges.partition_point(|e| e.from <= block);
        &self.edges[first..end]
    }

    /// Returns the calls in a block.
    pub fn calls_in(&self, block: BlockIndex) -> impl Iterator<Item = &CallSite> {
        let span = self.block(block);
        let first = self.calls.partition_point(|c| c.address < span.start);
        let end = self.calls.partition_point(|c| c.address <= span.last);
        // Overlapping blocks may contain the same addresses, so the block of each call is checked, too.
        self.calls[first..end].iter().filter(move |c| c.block == block)
    }

    /// Returns true if an address is in the function's code.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&address))
    }
}

/// A stub in the procedure linkage table: code that the linker adds and that jumps to a function in a different file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImportStub {
    /// Address of the stub's first instruction.
    pub address: u64,
    /// Name of the imported function to which the stub jumps; `None` for a stub that calls the dynamic linker.
    pub import: Option<String>,
    /// For an indirect function (`IFUNC`) of this file, the entry of the resolver, which selects the implementation when the program
    /// starts; otherwise `None`.
    pub resolver: Option<u64>,
}

/// The control-flow graphs of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramGraph {
    /// Functions, sorted by entry address.
    pub functions: Vec<FunctionGraph>,
    /// Stubs of the procedure linkage table, sorted by address. They are not functions: a call through a stub has the imported function as
    /// its callee.
    pub stubs: Vec<ImportStub>,
    /// Address ranges of the sections that contain only stubs, ascending.
    pub stub_ranges: Vec<Range<u64>>,
    /// Address ranges of all other code sections, ascending.
    pub code_ranges: Vec<Range<u64>>,
    /// Ranges of the code sections that are not padding, that no unwind entry describes, and that no control flow was found to reach,
    /// ascending. They may contain targets of indirect calls.
    pub unknown_ranges: Vec<Range<u64>>,
    /// Observed transfers of control that static analysis alone had missed.
    pub observations: Vec<GraphObservation>,
}

/// A transfer of control that was observed in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GraphObservation {
    /// Address of the last instruction before the transfer.
    pub from: u64,
    /// Address of the first instruction after the transfer.
    pub to: u64,
}

impl ProgramGraph {
    /// Returns the function that has an entry at `address`, either its main entry or an additional one.
    pub fn function_entered_at(&self, address: u64) -> Option<ProgramFunctionIndex> {
        if let Ok(at) = self.functions.binary_search_by_key(&address, |f| f.entry) {
            return Some(ProgramFunctionIndex(at as u32));
        }
        self.functions.iter().position(|f| f.other_entries.contains(&address)).map(|at| ProgramFunctionIndex(at as u32))
    }

    /// Returns the function whose code contains an address.
    pub fn function_containing(&self, address: u64) -> Option<ProgramFunctionIndex> {
        let after = self.functions.partition_point(|f| f.entry <= address);
        let close = (0..after).rev().take(2).find(|&at| self.functions[at].contains(address));
        close.or_else(|| self.functions.iter().position(|f| f.contains(address))).map(|at| ProgramFunctionIndex(at as u32))
    }

    /// Returns the function with an index.
    ///
    /// # Panics
    /// Panics if the index belongs to a different program.
    pub fn function(&self, index: ProgramFunctionIndex) -> &FunctionGraph {
        &self.functions[index.0 as usize]
    }

    /// Returns the functions with the given name.
    pub fn functions_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a FunctionGraph> {
        self.functions.iter().filter(move |f| f.name == name)
    }

    /// Returns true if an address is in a stub.
    pub fn is_stub(&self, address: u64) -> bool {
        self.stub_ranges.iter().any(|r| r.contains(&address))
    }
}
