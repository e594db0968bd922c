//! Loops that are counted by trip count: the number of iterations, and the counts when the loop is left.

use super::{ProbeCode, Register};
use crate::counting::Flushing;
use crate::llvm::{Block, Builder, Value, llvm};
use crate::shape::{new_block_behind, predecessors, split_off_behind};
use crate::trip_count::{self, Counter};
use llvm_sys::core::*;
use trodden_flow::Edge;
use trodden_flow::program::TripCountedLoop;
use trodden_flow::program::operation::LoopId;

/// How often a loop iterated.
#[derive(Clone, Copy)]
pub(super) enum IterationNumber {
    /// This many times, always.
    Always(i64),
    /// As often as this counter says, which was made for it.
    Made(Counter),
    /// As often as this counter says, which the program counts itself.
    Counted(Counter),
}

/// What is counted when a loop is left after some iterations, and not if there were none.
pub(super) struct TripCountFlush {
    /// The register's value: a choice between that without iterations and that with some.
    choice: Value,
    /// Whether there were none.
    none: Value,
    /// How many there were.
    number: Counter,
    /// The register when the loop was entered, in an instruction of its own, and when it iterated.
    entered: Value,
    start: Register,
    /// What to add to the register for the index.
    increment: i64,
}

impl ProbeCode<'_> {
    /// The register where a loop that is counted by iterations is entered; makes the number of its iterations.
    pub(super) fn enter_loop(&mut self, which: LoopId) -> Register {
        let (module, counted_loop) = (self.context.module, self.program.loop_of(which));
        let head = self.cfg.nodes[counted_loop.head.index()].expect("a dispatch block heads no loop of one path");
        let latch = self.cfg.nodes[self.graph.from(counted_loop.back).index()].expect("a dispatch block is in no loop of one path");
        let from = predecessors(head);
        let at_top = || Builder::phi_at_top(module, head, module.i64(), self.location);
        let make_counter = || {
            let number = at_top();
            let next = Builder::before(module, latch.terminator(), self.location).add(number, module.constant(1));
            let start = |b: Block| if b == latch { next } else { module.constant(0) };
            number.add_incoming(&from.iter().map(|b| (start(*b), *b)).collect::<Vec<_>>());
            Counter { value: number, first: 0, shift: 0 }
        };
        let number = match counted_loop.trip_count {
            Some(times) => IterationNumber::Always(times.get() as i64),
            None => trip_count::counter(latch, head).map_or_else(|| IterationNumber::Made(make_counter()), IterationNumber::Counted),
        };
        let outside: Vec<Edge> = self
            .graph
            .incoming(counted_loop.head)
            .iter()
            .copied()
            .filter(|e| *e != counted_loop.back && !self.program.is_dead(*e))
            .collect();
        let entered = self.same(&outside).unwrap_or_else(|| {
            let phi = at_top();
            let brought = |b: Block| if b == latch { phi } else { self.value(self.brought(b, head)) };
            phi.add_incoming(&from.iter().map(|b| (brought(*b), *b)).collect::<Vec<_>>());
            Register::Computed(phi)
        });
        self.trip_counts.insert(which, (number, entered));
        entered
    }

    /// What the program counts of a loop's iterations, as it is on an edge out of the loop. Code generation is not shown
    /// how it comes about: it would keep another counter in the loop, from which the number follows by an instruction
    /// less. (A counter that was made is shown: code generation may find that it is the difference of two addresses.)
    fn on_exit_edge(&self, builder: &Builder, counter: Counter, counted_loop: &TripCountedLoop, edge: Edge) -> Counter {
        let from = self.graph.from(edge);
        let latch = self.cfg.block(from).filter(|_| from == self.graph.from(counted_loop.back));
        let next = latch.and_then(|latch| counter.next(latch));
        let counter = next.unwrap_or(counter);
        Counter { value: builder.opaque(counter.value), ..counter }
    }

    /// Counts the iterations of a loop that is left; returns the register.
    pub(super) fn flush(&self, builder: &Builder, of: LoopId, partial: i64, edge: Edge) -> Register {
        let module = self.context.module;
        let counted_loop = self.program.loop_of(of);
        let (number, entered) = self.trip_counts[&of];
        let start = Register::Constant(counted_loop.start);
        let number = match number {
            IterationNumber::Always(times) => {
                self.count(builder, entered, counted_loop.increment, module.constant(1));
                self.count(builder, start, counted_loop.increment, module.constant(times - 1));
                return self.plus(builder, start, partial);
            }
            IterationNumber::Made(number) => number,
            IterationNumber::Counted(number) => self.on_exit_edge(builder, number, counted_loop, edge),
        };
        if entered == start {
            self.count(builder, start, counted_loop.increment, number.less(builder, 0));
            return self.plus(builder, start, partial);
        }
        let none = builder.equal(number.value, module.constant(number.first));
        let some = Value(llvm!(LLVMBuildNot(builder.raw(), none.0, c"".as_ptr())));
        let choose = || {
            let (without, with) = (self.plus(builder, entered, partial), self.plus(builder, start, partial));
            builder.select(some, self.value(with), self.value(without))
        };
        if self.counters.flushing == Flushing::Jumping {
            let choice = choose();
            // What is used later has to be used now: values may be replaced by others until then.
            let entered = builder.add(self.value(entered), module.constant(0));
            self.flushes.borrow_mut().push(TripCountFlush { choice, none, number, entered, start, increment: counted_loop.increment });
            return Register::Computed(choice);
        }
        let first = builder.widen(some);
        self.count(builder, entered, counted_loop.increment, first);
        let others = builder.subtract(number.less(builder, 0), first);
        self.count(builder, start, counted_loop.increment, others);
        Register::Computed(choose())
    }

    /// Counts the iterations of a loop where the register is chosen, unless there were none.
    pub(super) fn jump_over(&self, flush: TripCountFlush) {
        let (module, TripCountFlush { choice, none, number, entered, start, increment }) = (self.context.module, flush);
        let block = choice.block();
        let (with, without) = (choice.operand(1), choice.operand(2));
        // Its phi node may have been replaced since.
        let number = Counter { value: none.operand(0), ..number };
        let rest = split_off_behind(module, choice);
        let counting = new_block_behind(module, block);
        Builder::at_end(module, block, self.location).branch(none, rest, counting);
        let builder = Builder::at_end(module, counting, self.location);
        if entered.is_instruction() {
            llvm!(LLVMInstructionRemoveFromParent(entered.0));
            builder.insert(entered);
        }
        self.count(&builder, Register::Computed(entered), increment, module.constant(1));
        self.count(&builder, start, increment, number.less(&builder, 1));
        builder.jump(rest);
        let register = Builder::phi_at_top(module, rest, module.i64(), self.location);
        register.add_incoming(&[(without, block), (with, counting)]);
        choice.replace_uses(register);
        // SAFETY: the register takes its place, and the loop's description is not read again.
        unsafe { choice.erase() };
    }
}
