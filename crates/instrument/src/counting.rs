//! What one count is in code: an increment of a word, or of a cell in a table; by one thread alone, or by several.
//!
//! The plain increment is made where it stands ([`Counters::add`]). Everything that needs blocks of its own is made
//! later, when the register's values stand ([`DeferredCount`]): until then a call of a function that does not exist holds the
//! place.
//!
//! # Tables
//! Layout: [`trodden_unit::CountTable`]. The code probes the cell that the path's number hashes to (multiplied by an odd
//! constant, upper bits), and at those behind it until it finds the key, or a free cell, or has probed
//! [`MOST_PROBES`]. A free cell is acquired with a compare-and-exchange: so a signal handler, or another thread where
//! threads share a region, that comes in between acquires another cell, or finds the key there. Keys never change, so the
//! count is the same increment as in arrays. Executions that find neither are counted separately: they are lost for the
//! profile, but not silently.
//!
//! # Unknown paths
//! Where a path ends that may be unknown, it is looked up ([`Lookup`]). If it is unknown, and was counted before in the
//! thread's region, its count is incremented there and then; the first time, and whenever something is done at such
//! paths, the runtime is jumped to. One comparison decides both, and whether the thread has a region at all
//! ([`trodden_wire::DIRECT_BIAS_SYMBOL`]). Of several executions that are counted together the runtime sees one, and
//! the next one too if the comparison still says so.

use crate::additions::{add_in_place, add_to_word};
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::path_end::{KnownTest, PathEnd, Unknown};
use crate::shape::{new_block_behind, predecessors, split_off_behind};
use crate::weights::{mark_unlikely, weigh_successors};
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMMetadataRef;
use llvm_sys::{LLVMAtomicOrdering, LLVMIntPredicate};
use trodden_unit::CountTable;

/// Spreads path numbers: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: i64 = 8;

/// Cells that are probed for one path: a full table would cost too much otherwise. With 256, one of three programs executes 4.6 % more;
/// with 4, 0.6 % less (docs/benchmarks/constants.md).
const MOST_PROBES: u64 = 32;

/// How often an iteration is the dominant one, and how often it is not: weights for code generation. With 1, three programs are within
/// 0.1 %; with 15, -2.8 to +1 % (docs/benchmarks/constants.md).
const DOMINANT: [u64; 2] = [3, 1];

/// Name of the function that stands for a count to be made.
const PLACE: &str = "__trodden_place_of_a_count";

/// To the runtime's function that counts, and back. Not a call: a function that calls nothing else would get a frame
/// for it, on its known paths too.
const JUMP_TO_COUNT: &str = "leaq 1f(%rip), %r11\n\tjmp ${1:P}\n1:";
/// The counter's address, the function; what both change.
const JUMP_REGISTERS: &str = "{rdi},i,~{r10},~{r11},~{flags},~{fpsr},~{dirflag}";

/// Where a function counts, and how.
#[derive(Clone, Copy)]
pub struct Counters<'a> {
    /// Address of the thread's copy of the unit's counters, as [`crate::entry::counters_of_thread`] gives it.
    pub base: Value,
    /// The function's first one, if it counts in an array.
    pub first: u64,
    /// Increments are atomic, since other threads make them too.
    pub atomic: bool,
    /// How iterations are counted.
    pub flushing: Flushing,
    /// What is done where a path ends.
    pub at_end: PathEnd<'a>,
}

/// How the iterations of a loop are counted when it is left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flushing {
    /// By a jump over it if there were none: most loops iterate seldom. Blocks are split.
    Jumping,
    /// In one go, where blocks have to stay what they are.
    Straight,
}

impl Counters<'_> {
    /// An array of the thread's own.
    pub fn own(base: Value, first: u64) -> Self {
        Counters { base, first, atomic: false, flushing: Flushing::Straight, at_end: PathEnd::Word }
    }

    /// Whether a path that is counted often may have code of its own: where that is an addition to a word of one thread.
    pub fn may_count_split(&self) -> bool {
        self.at_end.may_count_split() && !self.atomic
    }

    /// Adds to the word at an address.
    pub fn add(&self, builder: &Builder, address: Value, by: Value) {
        match self.at_end.has_events() {
            true => add_in_place(builder, address, by, self.atomic),
            false => add_to_word(builder, address, by, self.atomic),
        }
    }
}

/// A count to be made: of the path with this number, at this place.
#[derive(Clone, Copy)]
pub struct DeferredCount {
    place: Value,
    path: Value,
    by: Value,
    lookup: Lookup,
    /// If it is mostly one and the same.
    dominant: Option<Mostly>,
}

/// A path that is mostly the one that is counted.
#[derive(Clone, Copy)]
struct Mostly {
    /// The comparison that holds then.
    holds: Value,
    /// Its number.
    number: i64,
    /// Where its iterations are kept in a register: how many there are now, chosen by the comparison.
    in_register: Option<Value>,
}

/// Whether a path is looked up where only unknown ones are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// It may be known.
    Needed,
    /// It cannot be.
    Decided,
}

impl DeferredCount {
    /// Notes a count where the builder stands.
    pub fn at(builder: &Builder, path: Value, by: Value, lookup: Lookup) -> DeferredCount {
        let place = builder.call(builder.module.function_without_parameters(PLACE), &[]);
        DeferredCount { place, path, by, lookup, dominant: None }
    }

    /// The path mostly has this number, namely if a comparison holds: it is counted by an instruction of its own then;
    /// or by the register from which a choice is made behind the count: of one more, and of as many as before.
    pub fn mostly(self, holds: Value, number: i64, in_register: Option<Value>) -> DeferredCount {
        DeferredCount { dominant: Some(Mostly { holds, number, in_register }), ..self }
    }
}

/// Makes the counts that were waiting.
pub fn make(module: Module, counters: Counters, waiting: &[DeferredCount], location: Option<LLVMMetadataRef>) {
    for count in waiting {
        let block = count.place.block();
        let rest = split_off_behind(module, count.place);
        // SAFETY: each waiting count has a place of its own; what is made from here on goes by blocks.
        unsafe { count.place.erase() };
        let maker = Maker { module, counters, count: *count, location, rest };
        for (start, path) in maker.split(block) {
            Maker { count: DeferredCount { path, ..*count }, ..maker }.make(start);
        }
        maker.hold();
    }
    if let Some(place) = module.function(PLACE) {
        llvm!(LLVMDeleteFunction(place.0));
    }
}

/// Makes one count. Control comes to a block that is not ended yet, and goes on in `rest`.
#[derive(Clone, Copy)]
struct Maker<'a> {
    module: Module,
    counters: Counters<'a>,
    count: DeferredCount,
    location: Option<LLVMMetadataRef>,
    rest: Block,
}

impl Maker<'_> {
    fn at_end(&self, block: Block) -> Builder {
        Builder::at_end(self.module, block, self.location)
    }

    fn constant(&self, value: u64) -> Value {
        self.module.constant(value as i64)
    }

    /// The blocks where the count is made, and of which path: two if one of them is for the dominant one, unless that is in a register.
    fn split(&self, block: Block) -> Vec<(Block, Value)> {
        let path = self.count.path;
        let Some(Mostly { holds, number, in_register }) = self.count.dominant else { return vec![(block, path)] };
        let [same, other] = [(); 2].map(|()| new_block_behind(self.module, self.rest));
        let branch = self.at_end(block).branch(holds, same, other);
        weigh_successors(self.module, branch, &DOMINANT);
        let Some(choice) = in_register else { return vec![(same, self.module.constant(number)), (other, path)] };
        let more = choice.operand(1);
        llvm!(LLVMInstructionRemoveFromParent(more.0));
        let builder = self.at_end(same);
        builder.insert(more);
        builder.jump(self.rest);
        vec![(other, path)]
    }

    /// One more is in the register where control comes by the comparison, and as many as before where it comes by a count.
    fn hold(&self) {
        let Some(choice) = self.count.dominant.and_then(|u| u.in_register) else { return };
        let [more, before] = [1, 2].map(|i| choice.operand(i));
        let number = Builder::phi_at_top(self.module, self.rest, self.module.i64(), self.location);
        let from = predecessors(self.rest).into_iter();
        number.add_incoming(&from.map(|b| (if b == more.block() { more } else { before }, b)).collect::<Vec<_>>());
        choice.replace_uses(number);
        // SAFETY: each waiting count has a register of its own, which is read here only.
        unsafe { choice.erase() };
    }

    fn make(&self, block: Block) {
        match self.counters.at_end {
            PathEnd::Unknown(unknown) => self.if_unknown(block, unknown),
            PathEnd::Table(table) => self.in_table(block, table),
            _ => self.in_array(block),
        }
    }

    /// Looks the path up, and counts it if it is unknown: here, if it was counted before.
    fn if_unknown(&self, block: Block, unknown: Unknown) {
        let test = unknown.known.filter(|_| self.count.lookup == Lookup::Needed);
        let count = test.map_or(block, |test| self.look_up(block, test));
        let i64 = self.module.i64();
        let own = |builder: &Builder, base: Value| {
            let own = builder.offset(i64, base, self.constant(self.counters.first));
            let number = match unknown.known {
                Some(KnownTest::Words(_, identity)) => builder.and(self.count.path, self.constant(identity)),
                _ => self.count.path,
            };
            builder.offset(i64, own, number)
        };
        let builder = self.at_end(count);
        let copies = || {
            // Frozen, so that code generation does not add it up again for the count.
            builder.freeze(builder.offset(self.module.i8(), self.counters.base, builder.load(i64, unknown.bias)))
        };
        let copy = own(&builder, unknown.copies.unwrap_or_else(copies));
        let [check, first, again] = [(); 3].map(|()| new_block_behind(self.module, self.rest));
        let left = self.number_left(count, check);

        let builder = self.at_end(check);
        let is_first = self.is_zero(&builder, builder.load(i64, copy));
        mark_unlikely(self.module, builder.branch(is_first, first, again));

        // The template's address is computed here alone, so that counting costs nothing for it.
        let builder = self.at_end(first);
        jump_to_runtime(&builder, unknown, own(&builder, self.counters.base));
        self.check_others(&builder, left, first, check);

        let builder = self.at_end(again);
        self.counters.add(&builder, copy, left);
        builder.jump(self.rest);
    }

    /// Lets control come to a look-up, unless nothing is to be counted; gives how much is.
    fn number_left(&self, from: Block, check: Block) -> Value {
        let (builder, by) = (self.at_end(from), self.count.by);
        if by == self.constant(1) {
            builder.jump(check);
            return by;
        }
        builder.branch(self.is_zero(&builder, by), self.rest, check);
        let left = self.at_end(check).phi(self.module.i64());
        left.add_incoming(&[(by, from)]);
        left
    }

    /// The runtime has counted one; whether it is to see the next one too, the next check says.
    fn check_others(&self, builder: &Builder, left: Value, counted: Block, check: Block) {
        if left == self.constant(1) {
            builder.jump(self.rest);
            return;
        }
        let others = builder.add(left, self.constant(u64::MAX));
        builder.branch(self.is_zero(builder, others), self.rest, check);
        left.add_incoming(&[(others, counted)]);
    }

    fn is_zero(&self, builder: &Builder, value: Value) -> Value {
        builder.equal(value, self.constant(0))
    }

    /// Lets control come to the count only if the path is unknown; gives the block where it does.
    fn look_up(&self, block: Block, test: KnownTest) -> Block {
        let unknown = new_block_behind(self.module, self.rest);
        let builder = self.at_end(block);
        let is_unknown = match test {
            KnownTest::Bytes(table) => {
                let known = builder.load(self.module.i8(), builder.offset(self.module.i8(), table, self.count.path));
                builder.equal(known, Value(llvm!(LLVMConstInt(self.module.i8(), 0, 0))))
            }
            KnownTest::Words(words, _) => words.is_of_others(&builder, self.count.path),
        };
        let branch = builder.branch(is_unknown, unknown, self.rest);
        mark_unlikely(self.module, branch);
        unknown
    }

    fn in_array(&self, block: Block) {
        let builder = self.at_end(block);
        let first = builder.offset(self.module.i64(), self.counters.base, self.constant(self.counters.first));
        let address = builder.offset(self.module.i64(), first, self.count.path);
        self.counters.add(&builder, address, self.count.by);
        builder.jump(self.rest);
    }

    fn in_table(&self, block: Block, table: CountTable) {
        let [hit, miss, acquire, advance, full] = [(); 5].map(|()| new_block_behind(self.module, self.rest));
        let probe = new_block_behind(self.module, block);
        let i64 = self.module.i64();
        let builder = self.at_end(block);
        let key = builder.add(self.count.path, self.constant(1));
        let start = self.slot_of(&builder, table.slots);
        let cells = builder.offset(i64, self.counters.base, self.constant(table.first_word + 1));
        builder.jump(probe);

        let builder = self.at_end(probe);
        let [slot, left] = [(); 2].map(|()| builder.phi(i64));
        let cell = builder.offset(i64, cells, builder.shift_left(slot, self.constant(1)));
        let found = builder.load(i64, cell);
        let other = builder.compare(LLVMIntPredicate::LLVMIntNE, found, key);
        mark_unlikely(self.module, builder.branch(other, miss, hit));

        let builder = self.at_end(miss);
        mark_unlikely(self.module, builder.branch(self.is_zero(&builder, found), acquire, advance));

        let builder = self.at_end(acquire);
        builder.branch(self.acquire(&builder, cell, key), hit, advance);

        let builder = self.at_end(advance);
        let behind = builder.add(slot, self.constant(1));
        let last = builder.equal(behind, self.constant(table.slots));
        let next = builder.select(last, self.constant(0), behind);
        let fewer = builder.add(left, self.constant(u64::MAX));
        mark_unlikely(self.module, builder.branch(self.is_zero(&builder, fewer), full, probe));
        slot.add_incoming(&[(start, block), (next, advance)]);
        left.add_incoming(&[(self.constant(table.slots.min(MOST_PROBES)), block), (fewer, advance)]);

        let builder = self.at_end(hit);
        let address = builder.offset(i64, cell, self.constant(1));
        self.counters.add(&builder, address, self.count.by);
        builder.jump(self.rest);

        let builder = self.at_end(full);
        let lost = builder.offset(i64, self.counters.base, self.constant(table.first_word));
        self.counters.add(&builder, lost, self.count.by);
        builder.jump(self.rest);
    }

    /// The slot where a path's cell is looked for first.
    fn slot_of(&self, builder: &Builder, slots: u64) -> Value {
        let spread = builder.multiply(self.count.path, self.constant(SPREAD));
        let right = |value: Value, bits: u32| builder.shift_right(value, self.constant(bits.into()));
        match slots {
            1 => self.constant(0),
            _ if slots.is_power_of_two() => right(spread, 64 - slots.trailing_zeros()),
            _ => right(builder.multiply(right(spread, 32), self.constant(slots)), 32),
        }
    }

    /// Puts the key into a free cell; gives whether it is there, by this thread or by another that was faster.
    fn acquire(&self, builder: &Builder, cell: Value, key: Value) -> Value {
        let order = LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic;
        let free = self.constant(0);
        let both = llvm!(LLVMBuildAtomicCmpXchg(builder.raw(), cell.0, free.0, key.0, order, order, 0));
        llvm!(LLVMSetAlignment(both, WORD as u32));
        let before = Value(llvm!(LLVMBuildExtractValue(builder.raw(), both, 0, c"".as_ptr())));
        let done = Value(llvm!(LLVMBuildExtractValue(builder.raw(), both, 1, c"".as_ptr())));
        builder.or(done, builder.equal(before, key))
    }
}

/// Has the runtime count at an address of the template.
fn jump_to_runtime(builder: &Builder, unknown: Unknown, counter: Value) {
    builder.assembly(builder.module.void(), JUMP_TO_COUNT, JUMP_REGISTERS, &[counter, unknown.count]);
}
