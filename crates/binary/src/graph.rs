//! Control-flow graphs of machine code: functions, blocks, edges, calls, and what is not certain about them.
//!
//! A block starts at a function's entry, a branch target, a landing pad, or behind a branch or return; a call ends
//! none. It ends with the first instruction behind which another block starts or nothing follows. Blocks overlap in
//! memory only where code jumps into an instruction (over its prefix `lock`, say).
//!
//! Invariants: functions ascend by entry; a function's blocks ascend by address and none is empty; edges and calls name
//! blocks of their own function; every indirect jump has edges, or a call, or an [`Uncertainty`] at its address.
//! Addresses are those of the file (ELF virtual addresses).

use std::fmt;
use std::ops::Range;

/// A function, by its place in [`ProgramGraph::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(pub u32);

/// A block, by its place in [`FunctionGraph::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

/// Where a graph comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphSource {
    /// The compiler's own map of its blocks, of this version of the format.
    AddressMap {
        /// Version of the map.
        version: u8,
    },
    /// The machine code, unwind tables and relocations.
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

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockEnd {
    /// Another block starts behind it.
    FallThrough,
    /// A jump to a fixed address.
    Jump,
    /// A conditional jump.
    Conditional,
    /// A jump through a register or memory.
    IndirectJump,
    /// A return.
    Return,
    /// A call that does not return.
    CallWithoutReturn,
    /// An instruction that traps (`ud2`, `hlt`, `int3`).
    Stop,
    /// Bytes that are no instruction, or the end of the code: see [`FunctionGraph::uncertain`].
    Unknown,
}

impl BlockEnd {
    /// Its name in JSON.
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

/// Instructions that are executed one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeBlock {
    /// Address of the first instruction.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Address of the last instruction.
    pub last: u64,
    /// How it ends.
    pub end: BlockEnd,
}

impl CodeBlock {
    /// The address behind its last byte.
    pub fn end_address(&self) -> u64 {
        self.start + self.size
    }

    /// Whether a byte at this address belongs to it.
    pub fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.start).is_some_and(|at| at < self.size)
    }
}

/// What an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeEdgeKind {
    /// The next instruction in memory follows, without a branch.
    FallThrough,
    /// A jump to a fixed address.
    Jump,
    /// A conditional jump that is taken.
    Taken,
    /// A conditional jump that is not taken.
    NotTaken,
    /// An indirect jump: an entry of a jump table, a label whose address the program keeps, or a target that was observed.
    Indirect,
    /// An exception thrown by a call in the block reaches a landing pad. It leaves the block in its middle.
    Unwind,
    /// Control was observed to go there, against the graph.
    Observed,
}

impl CodeEdgeKind {
    /// Its name in JSON and DOT.
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

/// Control can go from the end of one block to the start of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeEdge {
    /// From its last instruction (of [`CodeEdgeKind::Unwind`], from a call in it).
    pub from: BlockIndex,
    /// To its first instruction.
    pub to: BlockIndex,
    /// Why.
    pub kind: CodeEdgeKind,
}

/// What is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CodeCallee {
    /// The function with this entry, in the same file.
    Function(u64),
    /// A function of another file, by name, through the procedure linkage table or the global offset table.
    Import(String),
    /// Whatever address a register or a place in memory holds.
    Indirect,
    /// One of these entries in the same file, by a table.
    OneOf(Vec<u64>),
}

/// How control gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A call: the callee returns behind it.
    Call,
    /// A jump at the end of a function: the callee returns to this function's caller.
    TailCall,
    /// The same by a conditional jump.
    ConditionalTailCall,
}

/// Whether execution goes on behind a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Returns {
    /// It may.
    Maybe,
    /// Never, as far as the code shows.
    Never,
    /// Perhaps more than once: `setjmp` and its like.
    Twice,
}

/// A call in a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallSite {
    /// The block.
    pub block: BlockIndex,
    /// Address of the call or jump.
    pub address: u64,
    /// Address of the next instruction; `None` for tail calls.
    pub return_address: Option<u64>,
    /// What is called.
    pub callee: CodeCallee,
    /// How.
    pub kind: CallKind,
    /// Whether execution goes on behind it.
    pub returns: Returns,
    /// Where an exception out of the callee is received.
    pub landing_pad: Option<u64>,
    /// No exception out of the callee passes the landing pad by: it cleans up, or catches everything. Unwinding by `longjmp` does.
    pub always_lands: bool,
}

/// Why part of a graph is not certain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// Where an indirect jump leads is not known.
    UnresolvedJump,
    /// The number of entries of a jump table was taken from what lies in memory, not from a check in the code.
    JumpTableWithoutBound {
        /// Address of the table.
        table: u64,
        /// Entries that can be targets.
        entries: u32,
    },
    /// The jump is assumed to reach any label of the function whose address the program keeps.
    AnyLabel,
    /// An indirect jump at the stack depth of the function's entry is taken for a tail call.
    AssumedTailCall,
    /// Instructions overlap in memory.
    Overlap,
    /// Bytes that are no instruction are reached.
    Undecodable,
    /// A branch leads to where no code is.
    OutsideCode {
        /// The target.
        target: u64,
    },
    /// Bytes of the function that nothing is known to reach, and that are no padding.
    Unreached {
        /// How many.
        size: u64,
    },
    /// An execution went there, and the graph did not know it.
    Amended {
        /// The target.
        target: u64,
    },
}

impl Doubt {
    /// Its name in JSON.
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
            Doubt::Amended { .. } => "amended",
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::UnresolvedJump => f.write_str("targets of the indirect jump are not known"),
            Doubt::JumpTableWithoutBound { table, entries } => {
                write!(f, "the jump table at {table:#x} has no bounds check: {entries} entries assumed")
            }
            Doubt::AnyLabel => f.write_str("the indirect jump is assumed to reach every label whose address is taken"),
            Doubt::AssumedTailCall => f.write_str("the indirect jump is assumed to be a tail call"),
            Doubt::Overlap => f.write_str("instructions overlap"),
            Doubt::Undecodable => f.write_str("no instruction"),
            Doubt::OutsideCode { target } => write!(f, "a branch leads to {target:#x}, where no code is"),
            Doubt::Unreached { size } => write!(f, "{size} bytes that nothing is known to reach"),
            Doubt::Amended { target } => write!(f, "an execution went to {target:#x}, which the graph did not have"),
        }
    }
}

/// A doubt about the code at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uncertainty {
    /// Where.
    pub address: u64,
    /// What.
    pub doubt: Doubt,
}

/// Frequencies that the compiler estimated or knew from a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frequencies {
    /// Entries of the function, if a profile was used.
    pub entry_count: Option<u64>,
    /// Of each block, relative to the others of the function; empty if the map has none.
    pub blocks: Vec<u64>,
    /// Of each edge, the probability that its block leaves by it; empty if the map has none.
    pub edges: Vec<f64>,
}

/// The graph of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionGraph {
    /// The symbol's name; `sub_` and the address where there is none.
    pub name: String,
    /// Whether a symbol gave the name.
    pub has_symbol: bool,
    /// Address of the first instruction executed.
    pub entry: u64,
    /// More addresses at which it is entered (hand-written assembly).
    pub other_entries: Vec<u64>,
    /// Its code, ascending: more than one range where cold code was split off.
    pub ranges: Vec<Range<u64>>,
    /// Its blocks, ascending by address.
    pub blocks: Vec<CodeBlock>,
    /// Its edges, ascending.
    pub edges: Vec<CodeEdge>,
    /// Its calls, ascending by address.
    pub calls: Vec<CallSite>,
    /// Addresses of blocks that receive exceptions.
    pub landing_pads: Vec<u64>,
    /// Where the graph comes from.
    pub source: GraphSource,
    /// What is not certain, ascending by address.
    pub uncertain: Vec<Uncertainty>,
    /// Its address is kept somewhere, so that indirect calls may reach it.
    pub address_taken: bool,
    /// It may return to its caller.
    pub returns: bool,
    /// Frequencies, where the compiler's map has some.
    pub frequencies: Option<Frequencies>,
}

impl FunctionGraph {
    /// The block that starts at an address.
    pub fn block_starting_at(&self, address: u64) -> Option<BlockIndex> {
        let at = self.blocks.binary_search_by_key(&address, |b| b.start).ok()?;
        Some(BlockIndex(at as u32))
    }

    /// A block that contains an address: of several, the one that starts last.
    pub fn block_containing(&self, address: u64) -> Option<BlockIndex> {
        let behind = self.blocks.partition_point(|b| b.start <= address);
        // Overlapping blocks are rare, and lie close together.
        let close = behind.saturating_sub(4)..behind;
        close.rev().find(|&at| self.blocks[at].contains(address)).map(|at| BlockIndex(at as u32))
    }

    /// A block.
    ///
    /// # Panics
    /// If it is not of this function.
    pub fn block(&self, index: BlockIndex) -> &CodeBlock {
        &self.blocks[index.0 as usize]
    }

    /// Edges out of a block.
    pub fn successors(&self, block: BlockIndex) -> &[CodeEdge] {
        let first = self.edges.partition_point(|e| e.from < block);
        let end = self.edges.partition_point(|e| e.from <= block);
        &self.edges[first..end]
    }

    /// Calls in a block.
    pub fn calls_in(&self, block: BlockIndex) -> impl Iterator<Item = &CallSite> {
        let span = self.block(block);
        let first = self.calls.partition_point(|c| c.address < span.start);
        let end = self.calls.partition_point(|c| c.address <= span.last);
        // Blocks that overlap have calls at the same addresses.
        self.calls[first..end].iter().filter(move |c| c.block == block)
    }

    /// Whether code at an address belongs to it.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&address))
    }
}

/// A stub of the procedure linkage table: code of the linker that jumps to a function of another file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stub {
    /// Address of its first instruction.
    pub address: u64,
    /// The function; `None` for the stub that calls the dynamic linker.
    pub import: Option<String>,
    /// Of a function of this file that is chosen when the program starts: the function that chooses it.
    pub resolver: Option<u64>,
}

/// The graphs of a file's functions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramGraph {
    /// Functions, ascending by entry.
    pub functions: Vec<FunctionGraph>,
    /// Stubs, ascending by address. They are no functions; calls through them name the import.
    pub stubs: Vec<Stub>,
    /// Addresses that stubs cover, ascending.
    pub stub_ranges: Vec<Range<u64>>,
    /// Addresses of sections with code that are not for stubs only, ascending.
    pub code_ranges: Vec<Range<u64>>,
    /// Pieces of them that nothing is known to reach, that no unwind table describes, and that are no padding, ascending. What is called
    /// indirectly may lie there.
    pub unknown_ranges: Vec<Range<u64>>,
    /// What executions showed that the file does not.
    pub observations: Vec<GraphObservation>,
}

/// A transfer of control that an execution showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GraphObservation {
    /// Address of the last instruction before.
    pub from: u64,
    /// Address of the first instruction behind.
    pub to: u64,
}

impl ProgramGraph {
    /// The function entered at an address.
    pub fn function_entered_at(&self, address: u64) -> Option<FunctionIndex> {
        if let Ok(at) = self.functions.binary_search_by_key(&address, |f| f.entry) {
            return Some(FunctionIndex(at as u32));
        }
        self.functions.iter().position(|f| f.other_entries.contains(&address)).map(|at| FunctionIndex(at as u32))
    }

    /// The function whose code lies at an address.
    pub fn function_containing(&self, address: u64) -> Option<FunctionIndex> {
        let behind = self.functions.partition_point(|f| f.entry <= address);
        let close = (0..behind).rev().take(2).find(|&at| self.functions[at].contains(address));
        close.or_else(|| self.functions.iter().position(|f| f.contains(address))).map(|at| FunctionIndex(at as u32))
    }

    /// A function.
    ///
    /// # Panics
    /// If it is not of this program.
    pub fn function(&self, index: FunctionIndex) -> &FunctionGraph {
        &self.functions[index.0 as usize]
    }

    /// Functions of a name.
    pub fn functions_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a FunctionGraph> {
        self.functions.iter().filter(move |f| f.name == name)
    }

    /// Whether an address belongs to a stub.
    pub fn is_stub(&self, address: u64) -> bool {
        self.stub_ranges.iter().any(|r| r.contains(&address))
    }
}
