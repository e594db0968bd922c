//! Emits the code that counts one execution of a path: it increments a word of an array or a cell of a hash table.
//!
//! A plain increment is emitted in place ([`CounterAccess::add`]). Counts that need new blocks are emitted after the path register's values
//! are final ([`DeferredCount`]); until then a call to a placeholder function marks the position. In tables ([`trodden_unit::CountTable`])
//! the code probes cells, from the one that the path number hashes to, until it finds the key or a free cell, or has probed
//! [`MAX_PROBED_TABLE_CELLS`] cells. Executions that find neither are counted as lost. Builds that count only paths unknown to earlier runs
//! look the path up first ([`KnownPathLookup`]); there, the runtime counts an unknown path's first execution, and inline code the later
//! ones.

use crate::additions::{add_to_word, add_to_word_inline};
use crate::llvm::{Block, Builder, DebugLocation, Module, Value};
use crate::path_end::{KnownTest, PathEndAction, UnknownPathCode};
use crate::shape::{move_rest_to_new_block, new_block_after, predecessors};
use crate::weights::{mark_branch_unlikely, set_edge_weights};
use llvm_sys::LLVMIntPredicate;
use trodden_unit::CountTable;

/// Fibonacci hashing of path numbers: 2^64 divided by the golden ratio.
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD_BYTES: i64 = 8;

/// Maximum number of cells probed for a path, which limits the cost of a full table. With 256, one of three programs executes 4.6 % more
/// instructions; with 4, 0.6 % fewer (docs/benchmarks/constants.md).
const MAX_PROBED_TABLE_CELLS: u64 = 32;

/// Weights of the branch that checks for the most frequent path of a loop: taken, not taken. Compared with 3 : 1, weights of 1 : 1 change
/// the time of three programs by at most 0.1 %, and 15 : 1 by -2.8 to +1 % (docs/benchmarks/constants.md).
const DOMINANT_PATH_BRANCH_WEIGHTS: [u64; 2] = [3, 1];

/// Name of the placeholder function that marks a deferred count.
const DEFERRED_COUNT_PLACEHOLDER: &str = "__trodden_place_of_a_count";

/// Jumps to the runtime's counting function, which jumps back to label 1. A call would force a leaf function to set up a stack frame, even
/// on paths that are not counted.
const JUMP_TO_COUNT_ASSEMBLY: &str = "leaq 1f(%rip), %r11\n\tjmp ${1:P}\n1:";
/// Operands of [`JUMP_TO_COUNT_ASSEMBLY`] (address of the counter, address of the runtime's function) and the registers that it clobbers.
const JUMP_TO_COUNT_CONSTRAINTS: &str = "{rdi},i,~{r10},~{r11},~{flags},~{fpsr},~{dirflag}";

/// Where a function's counters are, and how the emitted code increments them.
#[derive(Clone, Copy)]
pub struct CounterAccess<'a> {
    /// Address of the thread's copy of the unit's counters, from [`crate::entry::emit_thread_counters`].
    pub base: Value,
    /// Index of the function's first counter among the unit's counters. Unused if the function counts in a hash table.
    pub first: u64,
    /// True if increments are atomic, because threads share the counters.
    pub atomic: bool,
    pub flushing: LoopFlushStrategy,
    pub at_end: PathEndAction<'a>,
}

/// How to emit the code at a loop's exits that adds the iterations, counted in a register, to the counter in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LoopFlushStrategy {
    /// With a branch around the addition, which is usually taken because the loop did not iterate. Splits blocks.
    Branch,
    /// Without branches, for functions whose blocks must not be split.
    Branchless,
}

impl CounterAccess<'_> {
    /// Returns counters in an array that only the current thread writes.
    pub fn private_to_thread(base: Value, first: u64) -> Self {
        CounterAccess { base, first, atomic: false, flushing: LoopFlushStrategy::Branchless, at_end: PathEndAction::Word }
    }

    /// Returns true if the count of a frequent path may be emitted separately, because it is a plain addition to a word that only one
    /// thread writes.
    pub fn may_count_separately(&self) -> bool {
        self.at_end.may_count_separately() && !self.atomic
    }

    pub fn add(&self, builder: &Builder, address: Value, by: Value) {
        match self.at_end.has_events() {
            true => add_to_word_inline(builder, address, by, self.atomic),
            false => add_to_word(builder, address, by, self.atomic),
        }
    }
}

#[derive(Clone, Copy)]
pub struct DeferredCount {
    place: Value,
    path: Value,
    by: Value,
    lookup: KnownPathLookup,
    dominant: Option<UsuallyCountedPath>,
}

/// The path that a deferred count is expected to count most often.
#[derive(Clone, Copy)]
struct UsuallyCountedPath {
    /// A comparison in the emitted code, true if the path being counted is this one.
    holds: Value,
    number: i64,
    /// The new value of the register in which this path's executions are accumulated: a `select` controlled by `holds`. `None` if they are
    /// counted in memory.
    in_register: Option<Value>,
}

/// Whether a build that counts only unknown paths must look a path up before counting it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KnownPathLookup {
    /// The path may be known.
    Needed,
    /// The path is certainly unknown.
    NotNeeded,
}

impl DeferredCount {
    /// Marks the builder's position as the place where `path` is counted `by` times.
    pub fn new(builder: &Builder, path: Value, by: Value, lookup: KnownPathLookup) -> DeferredCount {
        let place = builder.call(builder.module.function_without_parameters(DEFERRED_COUNT_PLACEHOLDER), &[]);
        DeferredCount { place, path, by, lookup, dominant: None }
    }

    /// Sets the path that is usually counted, and the comparison that is true for it. The path gets its own increment, unless its
    /// executions are accumulated in a register: `in_register` is the `select` between the register plus one and its old value.
    pub fn with_dominant_path(self, holds: Value, number: i64, in_register: Option<Value>) -> DeferredCount {
        DeferredCount { dominant: Some(UsuallyCountedPath { holds, number, in_register }), ..self }
    }
}

pub fn emit_deferred_counts(module: Module, counters: CounterAccess, waiting: &[DeferredCount], location: Option<DebugLocation>) {
    for count in waiting {
        let block = count.place.block();
        let rest = move_rest_to_new_block(module, count.place);
        // SAFETY: each deferred count has its own placeholder, and the code below refers to blocks only.
        unsafe { count.place.erase() };
        let emitter = CountEmitter { module, counters, count: *count, location, rest };
        for (start, path) in emitter.split_block_by_path(block) {
            CountEmitter { count: DeferredCount { path, ..*count }, ..emitter }.emit_count(start);
        }
        emitter.replace_accumulator();
    }
    if let Some(place) = module.function(DEFERRED_COUNT_PLACEHOLDER) {
        // SAFETY: all calls to the placeholder were erased above, and only this function has a handle to it.
        unsafe { place.delete_function() };
    }
}

/// Emits one count, which starts in a block without terminator and continues in `rest`.
#[derive(Clone, Copy)]
struct CountEmitter<'a> {
    module: Module,
    counters: CounterAccess<'a>,
    count: DeferredCount,
    location: Option<DebugLocation>,
    rest: Block,
}

impl CountEmitter<'_> {
    fn builder_at_end(&self, block: Block) -> Builder {
        Builder::at_end(self.module, block, self.location)
    }

    fn i64_constant(&self, value: u64) -> Value {
        self.module.constant(value as i64)
    }

    /// Returns the blocks in which the count is emitted, each with its path. A dominant path gets its own block, unless it is accumulated
    /// in a register.
    fn split_block_by_path(&self, block: Block) -> Vec<(Block, Value)> {
        let path = self.count.path;
        let Some(UsuallyCountedPath { holds, number, in_register }) = self.count.dominant else { return vec![(block, path)] };
        let [same, other] = [(); 2].map(|()| new_block_after(self.module, self.rest));
        let branch = self.builder_at_end(block).branch(holds, same, other);
        set_edge_weights(self.module, branch, &DOMINANT_PATH_BRANCH_WEIGHTS);
        let Some(choice) = in_register else { return vec![(same, self.module.constant(number)), (other, path)] };
        let more = choice.operand(1);
        more.remove_from_block();
        let builder = self.builder_at_end(same);
        builder.insert(more);
        builder.jump(self.rest);
        vec![(other, path)]
    }

    /// Replaces the `select` of the accumulating register with a phi node: the register plus one if control comes from the comparison, its
    /// old value if control comes from a count.
    fn replace_accumulator(&self) {
        let Some(choice) = self.count.dominant.and_then(|u| u.in_register) else { return };
        let [more, before] = [1, 2].map(|i| choice.operand(i));
        let number = Builder::phi_at_top(self.module, self.rest, self.module.i64(), self.location);
        let from = predecessors(self.rest).into_iter();
        number.add_incoming(&from.map(|b| (if b == more.block() { more } else { before }, b)).collect::<Vec<_>>());
        choice.replace_uses(number);
        // SAFETY: each deferred count has its own `select`, which is only read here.
        unsafe { choice.erase() };
    }

    fn emit_count(&self, block: Block) {
        match self.counters.at_end {
            PathEndAction::Unknown(unknown) => self.count_if_unknown(block, unknown),
            PathEndAction::Table(table) => self.count_in_table(block, table),
            _ => self.count_in_array(block),
        }
    }

    /// Looks the path up and counts it if it is unknown: inline if it has been counted before, otherwise by the runtime.
    fn count_if_unknown(&self, block: Block, unknown: UnknownPathCode) {
        let test = unknown.known.filter(|_| self.count.lookup == KnownPathLookup::Needed);
        let count = test.map_or(block, |test| self.emit_known_path_lookup(block, test));
        let i64 = self.module.i64();
        let own = |builder: &Builder, base: Value| {
            let own = builder.offset(i64, base, self.i64_constant(self.counters.first));
            let number = match unknown.known {
                Some(KnownTest::Words(_, identity)) => builder.and(self.count.path, self.i64_constant(identity)),
                _ => self.count.path,
            };
            builder.offset(i64, own, number)
        };
        let builder = self.builder_at_end(count);
        let copies = || {
            // Freezing the sum keeps code generation from computing it a second time for the count.
            builder.freeze(builder.offset(self.module.i8(), self.counters.base, builder.load(i64, unknown.bias)))
        };
        let copy = own(&builder, unknown.thread_base.unwrap_or_else(copies));
        let [check, first, again] = [(); 3].map(|()| new_block_after(self.module, self.rest));
        let left = self.branch_to_check(count, check);

        let builder = self.builder_at_end(check);
        let is_first = self.emit_zero_comparison(&builder, builder.load(i64, copy));
        mark_branch_unlikely(self.module, builder.branch(is_first, first, again));

        // The counter's address within the image is only needed here; computing it in a block that always runs would slow down counting.
        let builder = self.builder_at_end(first);
        emit_jump_to_runtime(&builder, unknown, own(&builder, self.counters.base));
        self.emit_check_of_remaining(&builder, left, first, check);

        let builder = self.builder_at_end(again);
        self.counters.add(&builder, copy, left);
        builder.jump(self.rest);
    }

    /// Branches to the check, unless the number of executions to count is 0. Returns the number of executions left to count.
    fn branch_to_check(&self, from: Block, check: Block) -> Value {
        let (builder, by) = (self.builder_at_end(from), self.count.by);
        if by == self.i64_constant(1) {
            builder.jump(check);
            return by;
        }
        builder.branch(self.emit_zero_comparison(&builder, by), self.rest, check);
        let left = self.builder_at_end(check).phi(self.module.i64());
        left.add_incoming(&[(by, from)]);
        left
    }

    /// Emits the code after the runtime has counted one execution: if more are left, goes back to the check, which decides who counts the
    /// next one.
    fn emit_check_of_remaining(&self, builder: &Builder, left: Value, counted: Block, check: Block) {
        if left == self.i64_constant(1) {
            builder.jump(self.rest);
            return;
        }
        let others = builder.add(left, self.i64_constant(u64::MAX));
        builder.branch(self.emit_zero_comparison(builder, others), self.rest, check);
        left.add_incoming(&[(others, counted)]);
    }

    fn emit_zero_comparison(&self, builder: &Builder, value: Value) -> Value {
        builder.equal(value, self.i64_constant(0))
    }

    /// Emits a branch to a new block if the path is unknown, and to the remaining code if it is known. Returns the new block.
    fn emit_known_path_lookup(&self, block: Block, test: KnownTest) -> Block {
        let unknown = new_block_after(self.module, self.rest);
        let builder = self.builder_at_end(block);
        let is_unknown = match test {
            KnownTest::Bytes(table) => {
                let known = builder.load(self.module.i8(), builder.offset(self.module.i8(), table, self.count.path));
                builder.equal(known, self.module.i8().unsigned(0))
            }
            KnownTest::Words(words, _) => words.emit_has_no_own_word(&builder, self.count.path),
        };
        let branch = builder.branch(is_unknown, unknown, self.rest);
        mark_branch_unlikely(self.module, branch);
        unknown
    }

    fn count_in_array(&self, block: Block) {
        let builder = self.builder_at_end(block);
        let first = builder.offset(self.module.i64(), self.counters.base, self.i64_constant(self.counters.first));
        let address = builder.offset(self.module.i64(), first, self.count.path);
        self.counters.add(&builder, address, self.count.by);
        builder.jump(self.rest);
    }

    fn count_in_table(&self, block: Block, table: CountTable) {
        let [hit, miss, acquire, advance, full] = [(); 5].map(|()| new_block_after(self.module, self.rest));
        let probe = new_block_after(self.module, block);
        let i64 = self.module.i64();
        let builder = self.builder_at_end(block);
        let key = builder.add(self.count.path, self.i64_constant(1));
        let start = self.emit_first_probed_slot(&builder, table.slots);
        let cells = builder.offset(i64, self.counters.base, self.i64_constant(table.first_word + 1));
        builder.jump(probe);

        let builder = self.builder_at_end(probe);
        let [slot, left] = [(); 2].map(|()| builder.phi(i64));
        let cell = builder.offset(i64, cells, builder.shift_left(slot, self.i64_constant(1)));
        let found = builder.load(i64, cell);
        let other = builder.compare(LLVMIntPredicate::LLVMIntNE, found, key);
        mark_branch_unlikely(self.module, builder.branch(other, miss, hit));

        let builder = self.builder_at_end(miss);
        mark_branch_unlikely(self.module, builder.branch(self.emit_zero_comparison(&builder, found), acquire, advance));

        let builder = self.builder_at_end(acquire);
        builder.branch(self.emit_cell_acquisition(&builder, cell, key), hit, advance);

        let builder = self.builder_at_end(advance);
        let following = builder.add(slot, self.i64_constant(1));
        let last = builder.equal(following, self.i64_constant(table.slots));
        let next = builder.select(last, self.i64_constant(0), following);
        let fewer = builder.add(left, self.i64_constant(u64::MAX));
        mark_branch_unlikely(self.module, builder.branch(self.emit_zero_comparison(&builder, fewer), full, probe));
        slot.add_incoming(&[(start, block), (next, advance)]);
        left.add_incoming(&[(self.i64_constant(table.slots.min(MAX_PROBED_TABLE_CELLS)), block), (fewer, advance)]);

        let builder = self.builder_at_end(hit);
        let address = builder.offset(i64, cell, self.i64_constant(1));
        self.counters.add(&builder, address, self.count.by);
        builder.jump(self.rest);

        let builder = self.builder_at_end(full);
        let lost = builder.offset(i64, self.counters.base, self.i64_constant(table.first_word));
        self.counters.add(&builder, lost, self.count.by);
        builder.jump(self.rest);
    }

    /// Returns the first slot to probe for a path.
    fn emit_first_probed_slot(&self, builder: &Builder, slots: u64) -> Value {
        let spread = builder.multiply(self.count.path, self.i64_constant(HASH_MULTIPLIER));
        let right = |value: Value, bits: u32| builder.shift_right(value, self.i64_constant(bits.into()));
        match slots {
            1 => self.i64_constant(0),
            _ if slots.is_power_of_two() => right(spread, 64 - slots.trailing_zeros()),
            _ => right(builder.multiply(right(spread, 32), self.i64_constant(slots)), 32),
        }
    }

    /// Stores the key into a free cell atomically, because a signal handler or another thread may acquire the cell at the same time.
    /// Returns the condition that the cell has the key now.
    fn emit_cell_acquisition(&self, builder: &Builder, cell: Value, key: Value) -> Value {
        let (before, done) = builder.atomic_exchange(cell, self.i64_constant(0), key, WORD_BYTES as u32);
        builder.or(done, builder.equal(before, key))
    }
}

/// Emits a jump to the runtime's counting function. `counter` is an address among the image's own counters, which the runtime translates
/// into one of the calling thread's copy.
fn emit_jump_to_runtime(builder: &Builder, unknown: UnknownPathCode, counter: Value) {
    builder.assembly(builder.module.void(), JUMP_TO_COUNT_ASSEMBLY, JUMP_TO_COUNT_CONSTRAINTS, &[counter, unknown.count]);
}
