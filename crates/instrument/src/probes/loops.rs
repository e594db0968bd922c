//! Emits counts for loops whose paths are counted by trip count: at a loop's exits, for all iterations at once.

use super::{ProbeCode, RegisterValue};
use crate::counting::LoopFlushStrategy;
use crate::llvm::{Block, Builder, Value};
use crate::shape::{move_rest_to_new_block, new_block_after, predecessors};
use crate::trip_count::{self, TripCounter};
use trodden_flow::Edge;
use trodden_flow::program::TripCountedLoop;
use trodden_flow::program::operation::LoopId;

#[derive(Clone, Copy)]
pub(super) enum IterationCount {
    Constant(i64),
    Inserted(TripCounter),
    /// The program itself has an induction variable that counts the iterations.
    Existing(TripCounter),
}

/// The counts at a loop's exit, in code that is skipped if the loop did not iterate.
pub(super) struct TripCountFlush {
    /// The path register's value after the exit: a `select` that depends on whether the loop iterated.
    choice: Value,
    /// A condition that is true if the loop did not iterate.
    none: Value,
    number: TripCounter,
    /// A copy of the path register's value at loop entry.
    entered: Value,
    start: RegisterValue,
    /// What must be added to the path register to get the index of the iteration's counter.
    increment: i64,
}

impl ProbeCode<'_> {
    /// Finds or inserts a counter of the loop's iterations. Returns the path register's value at the loop header.
    pub(super) fn enter_trip_counted_loop(&mut self, which: LoopId) -> RegisterValue {
        let (module, counted_loop) = (self.context.module, self.program.loop_by_id(which));
        let head = self.cfg.nodes[counted_loop.head.index()].expect("a dispatch block heads no loop of one path");
        let latch = self.cfg.nodes[self.graph.from(counted_loop.back).index()].expect("a dispatch block is in no loop of one path");
        let from = predecessors(head);
        let at_top = || Builder::phi_at_top(module, head, module.i64(), self.location);
        let make_counter = || {
            let number = at_top();
            let next = Builder::before(module, latch.terminator(), self.location).add(number, module.constant(1));
            let start = |b: Block| if b == latch { next } else { module.constant(0) };
            number.add_incoming(&from.iter().map(|b| (start(*b), *b)).collect::<Vec<_>>());
            TripCounter { value: number, first: 0, shift: 0 }
        };
        let number = match counted_loop.trip_count {
            Some(times) => IterationCount::Constant(times.get() as i64),
            None => {
                trip_count::existing_counter(latch, head).map_or_else(|| IterationCount::Inserted(make_counter()), IterationCount::Existing)
            }
        };
        let outside: Vec<Edge> = self
            .graph
            .incoming(counted_loop.head)
            .iter()
            .copied()
            .filter(|e| *e != counted_loop.back && !self.program.is_dead(*e))
            .collect();
        let entered = self.common_register(&outside).unwrap_or_else(|| {
            let phi = at_top();
            let incoming_register = |b: Block| if b == latch { phi } else { self.register_value(self.incoming_register(b, head)) };
            phi.add_incoming(&from.iter().map(|b| (incoming_register(*b), *b)).collect::<Vec<_>>());
            RegisterValue::Computed(phi)
        });
        self.trip_counts.insert(which, (number, entered));
        entered
    }

    /// Returns the value of the program's own induction variable on an exit edge. LLVM can infer nothing about the value, because it might
    /// otherwise add a second induction variable to the loop to save one instruction outside. This is not done with inserted counters,
    /// because LLVM may find that they equal the difference of two addresses.
    fn iteration_counter_on_exit_edge(
        &self,
        builder: &Builder,
        counter: TripCounter,
        counted_loop: &TripCountedLoop,
        edge: Edge,
    ) -> TripCounter {
        let from = self.graph.from(edge);
        let latch = self.cfg.block(from).filter(|_| from == self.graph.from(counted_loop.back));
        let next = latch.and_then(|latch| counter.counter_at_latch(latch));
        let counter = next.unwrap_or(counter);
        TripCounter { value: builder.build_opaque_copy(counter.value), ..counter }
    }

    pub(super) fn flush_trip_count(&self, builder: &Builder, of: LoopId, partial: i64, edge: Edge) -> RegisterValue {
        let module = self.context.module;
        let counted_loop = self.program.loop_by_id(of);
        let (number, entered) = self.trip_counts[&of];
        let start = RegisterValue::Constant(counted_loop.start);
        let number = match number {
            IterationCount::Constant(times) => {
                self.count(builder, entered, counted_loop.increment, module.constant(1));
                self.count(builder, start, counted_loop.increment, module.constant(times - 1));
                return self.add_increment(builder, start, partial);
            }
            IterationCount::Inserted(number) => number,
            IterationCount::Existing(number) => self.iteration_counter_on_exit_edge(builder, number, counted_loop, edge),
        };
        if entered == start {
            self.count(builder, start, counted_loop.increment, number.emit_iterations_minus(builder, 0));
            return self.add_increment(builder, start, partial);
        }
        let none = builder.equal(number.value, module.constant(number.first));
        let some = builder.not(none);
        let choose = || {
            let (entry_value, start_value) = (self.add_increment(builder, entered, partial), self.add_increment(builder, start, partial));
            builder.select(some, self.register_value(start_value), self.register_value(entry_value))
        };
        if self.counters.flushing == LoopFlushStrategy::Branch {
            let choice = choose();
            // Adding 0 creates a new value, because `entered` may be replaced before the counts are emitted.
            let entered = builder.add(self.register_value(entered), module.constant(0));
            self.flushes.borrow_mut().push(TripCountFlush { choice, none, number, entered, start, increment: counted_loop.increment });
            return RegisterValue::Computed(choice);
        }
        let first = builder.zero_extend(some);
        self.count(builder, entered, counted_loop.increment, first);
        let others = builder.subtract(number.emit_iterations_minus(builder, 0), first);
        self.count(builder, start, counted_loop.increment, others);
        RegisterValue::Computed(choose())
    }

    /// Emits deferred counts at a loop's exit, with a branch that skips them if the loop did not iterate.
    pub(super) fn emit_flush(&self, flush: TripCountFlush) {
        let (module, TripCountFlush { choice, none, number, entered, start, increment }) = (self.context.module, flush);
        let block = choice.block();
        let (start_value, entry_value) = (choice.operand(1), choice.operand(2));
        // Read the counter's value from the condition, because its phi node may have been replaced in the meantime.
        let number = TripCounter { value: none.operand(0), ..number };
        let rest = move_rest_to_new_block(module, choice);
        let counting = new_block_after(module, block);
        Builder::at_end(module, block, self.location).branch(none, rest, counting);
        let builder = Builder::at_end(module, counting, self.location);
        if entered.is_instruction() {
            entered.remove_from_block();
            builder.insert(entered);
        }
        self.count(&builder, RegisterValue::Computed(entered), increment, module.constant(1));
        self.count(&builder, start, increment, number.emit_iterations_minus(&builder, 1));
        builder.jump(rest);
        let register = Builder::phi_at_top(module, rest, module.i64(), self.location);
        register.add_incoming(&[(entry_value, block), (start_value, counting)]);
        choice.replace_uses(register);
        // SAFETY: all uses were replaced by the phi node, and `flush` is consumed here.
        unsafe { choice.erase() };
    }
}
