//! Control-flow graphs of machine code: functions, blocks, edges, calls, and uncertainties about them.
//!
//! A block starts at a function's entry, at a branch target, at a landing pad, or after a branch or return, but not after a call. It ends
//! where another block starts or control does not continue. Blocks overlap only if code jumps into an instruction (past a `lock` prefix,
//! say).
//!
//! Invariants: functions are in order of entry, and the blocks of each function in order of address; edges and calls stay in their
//! function; every indirect jump has edges, a call, or an [`Uncertainty`] at its address. Addresses are ELF virtual addresses of the
//! file.

use std::fmt;
use std::ops::Range;

/// Index of a function in [`ProgramGraph::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramFunctionIndex(pub u32);

/// Index of a block in [`FunctionGraph::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

/// Where a graph comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphSource {
    /// The compiler's address map.
    AddressMap {
        /// Format version of the map.
        version: u8,
    },
    /// Machine code, unwind tables and relocations.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockEnd {
    /// Control continues with the next block in memory.
    FallThrough,
    /// A jump to a fixed address.
    Jump,
    /// A conditional jump.
    Conditional,
    /// A jump through a register or memory.
    IndirectJump,
    /// A return.
    Return,
    /// A call that never returns.
    CallWithoutReturn,
    /// A trapping instruction (`ud2`, `hlt`).
    Stop,
    /// Undecodable bytes, or the end of the code. [`FunctionGraph::uncertain`] has the reason.
    Unknown,
}

impl BlockEnd {
    /// Returns the name used in JSON.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeEdgeKind {
    /// Control falls through to the next instruction in memory.
    FallThrough,
    /// A jump to a fixed address.
    Jump,
    /// A conditional jump is taken.
    Taken,
    /// A conditional jump is not taken.
    NotTaken,
    /// An indirect jump reaches an entry of a jump table, a label whose address is taken, or an observed target.
    Indirect,
    /// A call in the block throws an exception that reaches a landing pad. The edge may leave the block in its middle.
    Unwind,
    /// A run showed a transfer that static analysis had missed.
    Observed,
}

impl CodeEdgeKind {
    /// Returns the name used in JSON and DOT.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeEdge {
    /// The source block. A [`CodeEdgeKind::Unwind`] edge leaves it at a call.
    pub from: BlockIndex,
    /// The target block.
    pub to: BlockIndex,
    /// How the edge transfers control.
    pub kind: CodeEdgeKind,
}

/// What a call calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CodeCallee {
    /// The function with this entry in the same file.
    Function(u64),
    /// A function in a different file, by name, called through the procedure linkage table or the global offset table.
    Import(String),
    /// An address from a register or from memory.
    Indirect,
    /// One of several entries in the same file, which a table selects.
    OneOf(Vec<u64>),
}

/// How a callee is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A call, to which the callee returns.
    Call,
    /// A jump to the callee, which then returns to this function's caller.
    TailCall,
    /// A tail call by a conditional jump.
    ConditionalTailCall,
}

/// Whether a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Returns {
    /// The call may return.
    Maybe,
    /// The call never returns, as far as static analysis can tell.
    Never,
    /// The call may return more than once, like `setjmp`.
    Twice,
}

/// A call in a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallSite {
    /// The block that contains the call.
    pub block: BlockIndex,
    /// Address of the call or jump instruction.
    pub address: u64,
    /// Address of the next instruction; `None` for tail calls.
    pub return_address: Option<u64>,
    /// What is called.
    pub callee: CodeCallee,
    /// How the callee is entered.
    pub kind: CallKind,
    /// Whether the call returns.
    pub returns: Returns,
    /// The landing pad for exceptions that the callee throws.
    pub landing_pad: Option<u64>,
    /// Whether every exception reaches the landing pad, because the pad is a cleanup or catches everything. Even then, `longjmp` bypasses
    /// the pad.
    pub always_lands: bool,
}

/// A reason for doubt about a part of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// The targets of an indirect jump are unknown.
    UnresolvedJump,
    /// No check in the code bounds a jump table, so the table's size was guessed from its content.
    JumpTableWithoutBound {
        /// Address of the table.
        table: u64,
        /// Number of entries that the table is assumed to have.
        entries: u32,
    },
    /// An indirect jump is assumed to reach every label in its function whose address is taken.
    AnyLabel,
    /// An indirect jump is assumed to be a tail call, because the stack is as deep as at the function's entry.
    AssumedTailCall,
    /// Instructions overlap in memory.
    Overlap,
    /// Control reaches bytes that are not a valid instruction.
    Undecodable,
    /// A branch leads to an address outside the code.
    OutsideCode {
        /// The address to which the branch leads.
        target: u64,
    },
    /// The function contains bytes that are not padding and to which no control flow was found.
    Unreached {
        /// Number of bytes.
        size: u64,
    },
    /// An observed transfer was added to the graph.
    AddedEdge {
        /// The address to which the transfer leads.
        target: u64,
    },
}

impl Doubt {
    /// Returns the name used in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Doubt::UnresolvedJump => "unresolved-jump",
            Doubt::JumpTableWithoutBound { .. } => "jump-table-without-bound",
            Doubt::AnyLabel => "any-label",
            Doubt::AssumedTailCall => "assumed-tail-call",
            Doubt::Overlap => "overlap",
            Doubt::Undecodable => "undecodable",
            Doubt::OutsideCode { .. } => "outside-code",
            Doubt::Unreached { .. } => "unreached",
            Doubt::AddedEdge { .. } => "observed-edge",
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::UnresolvedJump => f.write_str("the targets of the indirect jump are unknown"),
            Doubt::JumpTableWithoutBound { table, entries } => {
                write!(f, "the jump table at {table:#x} has no bounds check: {entries} entries assumed")
            }
            Doubt::AnyLabel => f.write_str("the indirect jump is assumed to reach every label whose address is taken"),
            Doubt::AssumedTailCall => f.write_str("the indirect jump is assumed to be a tail call"),
            Doubt::Overlap => f.write_str("instructions overlap"),
            Doubt::Undecodable => f.write_str("the bytes are not an instruction"),
            Doubt::OutsideCode { target } => write!(f, "a branch leads to {target:#x}, which is outside the code"),
            Doubt::Unreached { size: 1 } => f.write_str("no control flow to 1 byte was found"),
            Doubt::Unreached { size } => write!(f, "no control flow to {size} bytes was found"),
            Doubt::AddedEdge { target } => write!(f, "a run went to {target:#x}, which was not in the graph"),
        }
    }
}

/// A doubt about the code at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uncertainty {
    /// Address of the code.
    pub address: u64,
    /// What is in doubt.
    pub doubt: Doubt,
}

/// Frequencies from the compiler, which are either estimated or from a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompilerFrequencies {
    /// How often the function was entered, if the compiler used a profile.
    pub entry_count: Option<u64>,
    /// Frequency of each block relative to the function's other blocks; empty if unknown.
    pub blocks: Vec<u64>,
    /// Probability of each edge, given that its source block executes; empty if unknown.
    pub edges: Vec<f64>,
}

/// The graph of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionGraph {
    /// The symbol's name, or `sub_` and the address in hexadecimal.
    pub name: String,
    /// Whether the name comes from a symbol.
    pub has_symbol: bool,
    /// Address of the instruction that is executed first.
    pub entry: u64,
    /// Additional entry addresses, which occur in hand-written assembly.
    pub other_entries: Vec<u64>,
    /// Address ranges of the function's code, ascending. There are several if cold code was split off.
    pub ranges: Vec<Range<u64>>,
    /// The function's blocks in order of address.
    pub blocks: Vec<CodeBlock>,
    /// Edges in order of source block, target block and kind.
    pub edges: Vec<CodeEdge>,
    /// Calls in order of address.
    pub calls: Vec<CallSite>,
    /// Addresses of blocks that are landing pads.
    pub landing_pads: Vec<u64>,
    /// Where the graph comes from.
    pub source: GraphSource,
    /// Uncertainties in order of address.
    pub uncertain: Vec<Uncertainty>,
    /// Whether the function's address is taken, so that indirect calls may reach the function.
    pub is_address_taken: bool,
    /// Whether the function may return to its caller.
    pub returns: bool,
    /// Frequencies, if the compiler's map contains any.
    pub frequencies: Option<CompilerFrequencies>,
}

impl FunctionGraph {
    /// Returns the block that starts at an address.
    pub fn block_starting_at(&self, address: u64) -> Option<BlockIndex> {
        let at = self.blocks.binary_search_by_key(&address, |b| b.start).ok()?;
        Some(BlockIndex(at as u32))
    }

    /// Returns the block that contains an address. If several blocks overlap there, returns the block with the highest start address.
    pub fn block_containing(&self, address: u64) -> Option<BlockIndex> {
        let after = self.blocks.partition_point(|b| b.start <= address);
        // Blocks overlap rarely, and overlapping blocks are close together.
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
        // The calls of overlapping blocks have the same addresses.
        self.calls[first..end].iter().filter(move |c| c.block == block)
    }

    /// Returns true if an address is in the function's code.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&address))
    }
}

/// A stub in the procedure linkage table: code from the linker that jumps to a function in a different file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stub {
    /// Address of the stub's first instruction.
    pub address: u64,
    /// The imported function; `None` for a stub that calls the dynamic linker.
    pub import: Option<String>,
    /// For an indirect function (`IFUNC`) of this file, the resolver that selects its implementation at startup.
    pub resolver: Option<u64>,
}

/// The control-flow graphs of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramGraph {
    /// Functions in order of entry.
    pub functions: Vec<FunctionGraph>,
    /// Stubs in order of address. Stubs are not functions. A call through a stub has the import as its callee.
    pub stubs: Vec<Stub>,
    /// Address ranges of sections that contain only stubs, ascending.
    pub stub_ranges: Vec<Range<u64>>,
    /// Address ranges of the other code sections, ascending.
    pub code_ranges: Vec<Range<u64>>,
    /// Parts of the code sections, ascending, that are not padding, that no unwind entry describes, and to which no control flow was
    /// found. They may contain targets of indirect calls.
    pub unknown_ranges: Vec<Range<u64>>,
    /// Observed control transfers that static analysis alone had missed.
    pub observations: Vec<GraphObservation>,
}

/// An observed transfer of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GraphObservation {
    /// Address of the instruction executed before the transfer.
    pub from: u64,
    /// Address of the instruction executed next.
    pub to: u64,
}

impl ProgramGraph {
    /// Returns the function that is entered at `address`, by its main entry or an additional entry.
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
