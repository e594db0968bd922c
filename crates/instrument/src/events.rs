//! Emits the code that charges hardware events to paths: it reads an event counter at function entry and where paths end, and adds the
//! difference to the path's sum. A path is not charged with the events of its callees' paths. This needs no stack: each thread has a sum
//! `spent` of all events charged so far, including the estimated cost of reading the counter ([`trodden_wire::EventCost`]). With `start =
//! now - spent` at entry, a path's own events are `own = now - start - spent`; then `count += 1; sum += own; squares += own * own; spent +=
//! own`. An activation that never reaches a path end (exception, `longjmp`) needs no clean-up: its events are charged to the next path that
//! ends. All of these are additions to memory, `spent` last, so that charges made by a signal handler are not lost.

use crate::additions::{add_to_two_words, add_to_word_inline};
use crate::emit::{declare_register_preserving, define_thread_local, symbol_definition};
use crate::llvm::{Block, Builder, DebugLocation, Module, Type, Value};
use std::mem::offset_of;
use trodden_unit::EventSource;
use trodden_unit::events::EVENT_CELLS_PER_COUNTER;
use trodden_unit::experiment::Spelling;
use trodden_wire::{EVENT_SYMBOL, EventCost, EventThread};

/// The symbols that a unit's code refers to for events.
#[derive(Clone, Copy)]
pub struct EventSymbols {
    thread: Value,
    /// Address of the image's [`EventCost`], the estimated cost of reading the event counter.
    cost: Value,
    /// The function or intrinsic that reads the event counter.
    now: Value,
}

/// The state of event counting in a function's activation.
#[derive(Clone, Copy)]
pub struct EventActivation {
    /// Type of the array of words that each path has: its count, its sum of events, and the sum of their squares (two words).
    pub cells: Type,
    events: EventSymbols,
    start: Value,
}

impl EventSymbols {
    /// Declares the symbols and defines them (linkers keep one definition per image).
    pub fn declare(module: Module, source: EventSource) -> EventSymbols {
        define_event_symbols(module, source);
        let thread = module.add_thread_local(&format!("{EVENT_SYMBOL}_own"));
        let cost = module.add_hidden_global(&format!("{EVENT_SYMBOL}_cost"), module.i64());
        EventSymbols { thread, cost, now: declare_reading(module, source) }
    }

    /// Reads the counter at the start of a function. `entry` is the block that was the entry before the check for a region was inserted.
    pub fn emit_read_at_entry(self, module: Module, entry: Block, location: Option<DebugLocation>) -> EventActivation {
        let builder = Builder::before(module, entry.after_allocas(), location);
        let now = self.emit_counter_read(&builder);
        let start = builder.subtract(now, builder.load(module.i64(), self.thread));
        self.emit_add_to_spent_events(&builder, builder.load(module.i64(), self.emit_cost_address(&builder, offset_of!(EventCost, begin))));
        let cells = module.i64().array(EVENT_CELLS_PER_COUNTER);
        EventActivation { cells, events: self, start }
    }

    fn emit_counter_read(self, builder: &Builder) -> Value {
        let call = builder.call(self.now, &[]);
        call.set_call_convention(self.now.convention());
        call
    }

    fn emit_cost_address(self, builder: &Builder, offset: usize) -> Value {
        builder.offset(builder.module.i8(), self.cost, builder.constant(offset as u64))
    }

    fn emit_add_to_spent_events(self, builder: &Builder, events: Value) {
        add_to_word_inline(builder, self.thread, events, false);
    }
}

impl EventActivation {
    /// Charges the events to the path that ends here. The caller increments its count.
    pub fn emit_charge_to_path(self, builder: &Builder, path: Value) {
        let (events, module) = (self.events, builder.module);
        let now = events.emit_counter_read(builder);
        let own = builder.subtract(builder.subtract(now, self.start), builder.load(module.i64(), events.thread));
        let cell = |number: i64| builder.offset(module.i64(), path, module.constant(number));
        add_to_word_inline(builder, cell(1), own, false);
        let wide = module.context().integer(128);
        let extended = builder.sign_extend(own, wide);
        let square = builder.multiply(extended, extended);
        let half = |value: Value| builder.truncate(value, module.i64());
        let high = half(builder.shift_right(square, wide.unsigned(64)));
        add_to_two_words(builder, cell(2), [half(square), high]);
        let cost = builder.load(module.i64(), events.emit_cost_address(builder, offset_of!(EventCost, end)));
        events.emit_add_to_spent_events(builder, builder.add(own, cost));
    }
}

fn declare_reading(module: Module, source: EventSource) -> Value {
    if source == EventSource::Tsc {
        return module.intrinsic("llvm.readcyclecounter", &[]);
    }
    let kind = Type::function(module.i64(), &[]);
    declare_register_preserving(module, &format!("{EVENT_SYMBOL}_now"), kind)
}

/// Defines the thread's state, the costs, the record, and the function by which the runtime finds the thread's state. All units of an
/// image define them in a section group named after the event. If two units use different events, the linker reports duplicate symbols.
fn define_event_symbols(module: Module, source: EventSource) {
    let (kind, config) = source.perf_event();
    let (symbol, group) = (EVENT_SYMBOL, format!("{EVENT_SYMBOL}.{}", source.name().replace('-', "_")));
    let (thread, cost) = (size_of::<EventThread>(), size_of::<EventCost>());
    module.append_assembly(&format!(
        ".pushsection .bss.{symbol},\"awG\",@nobits,{group},comdat\n.p2align 4\n{costs}.zero {cost}\n.popsection\n\
         .pushsection .rodata.{symbol},\"aG\",@progbits,{group},comdat\n.p2align 3\n{record}.long {kind},0\n.quad {config}\n.popsection\n",
        costs = symbol_definition(&format!("{symbol}_cost"), "object", cost),
        record = symbol_definition(symbol, "object", 16),
    ));
    define_thread_local(module, &format!("{symbol}_own"), thread, &format!("{symbol}_thread"), &group);
}
