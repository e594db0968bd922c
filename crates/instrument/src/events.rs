//! Events of each path: a counter of events is read where a function begins and where its paths end, and what passed
//! between is added to the path's sum.
//!
//! What a path is charged with is its own: less what paths of callees were charged with meanwhile. That takes no stack
//! of activations. Each thread has a sum `spent` of all that was charged so far, so `now - spent` is what is not
//! charged to a path yet; a path's own events are the difference between that quantity now and when its function
//! began, and charging them brings it back to what it was. So the function needs one number for all its paths,
//!
//! ```text
//! function begins   begun = now - spent
//! path ends         own = now - begun - spent;  count += 1;  sum += own;  squares += own * own;  spent += own
//! ```
//!
//! and an activation that never comes to its path's end (an exception, `longjmp`) leaves nothing behind that would have
//! to be undone: what it did is charged to the path that ends next. Reading takes time itself, of which `spent` gets an
//! estimate as well ([`trodden_wire::EventCost`]), so that no path is charged with it.
//!
//! Invariants: one reading for each path's end, where the count is made. `spent` and a path's sums are changed by additions to memory, in
//! unoptimised code too, and `spent` after everything else where a path ends: what a signal handler's paths were charged with meanwhile is
//! not forgotten.

use crate::additions::{add_in_place, add_to_two_words};
use crate::emit::{declare_preserving, label, thread_local_with_place};
use crate::llvm::{Block, Builder, Module, Value, llvm};
use llvm_sys::core::*;
use llvm_sys::prelude::{LLVMMetadataRef, LLVMTypeRef, LLVMValueRef};
use std::mem::offset_of;
use trodden_unit::EventSource;
use trodden_unit::events::CELLS;
use trodden_unit::experiment::Spelling;
use trodden_wire::{EVENT_SYMBOL, EventCost, EventThread};

/// What a unit's code refers to for events.
#[derive(Clone, Copy)]
pub struct Events {
    /// The thread's own: an [`EventThread`].
    thread: Value,
    /// The image's [`EventCost`].
    cost: Value,
    /// Reads the counter.
    now: Value,
}

/// Events of a function that has begun.
#[derive(Clone, Copy)]
pub struct BegunEvents {
    /// The cells of a path.
    pub cells: LLVMTypeRef,
    events: Events,
    begun: Value,
}

impl Events {
    /// Declares what code refers to, and defines it (linkers keep one definition in each image).
    pub fn declare(module: Module, source: EventSource) -> Events {
        define(module, source);
        let thread = module.add_thread_local(&format!("{EVENT_SYMBOL}_own"));
        let cost = module.add_hidden_global(&format!("{EVENT_SYMBOL}_cost"), module.i64());
        Events { thread, cost, now: declare_reading(module, source) }
    }

    /// Reads the counter where a function begins: in front of the first instruction of the block that was its entry
    /// before it was checked whether the thread has a region.
    pub fn begin(self, module: Module, entry: Block, location: Option<LLVMMetadataRef>) -> BegunEvents {
        let builder = Builder::before(module, entry.behind_variables(), location);
        let now = self.read(&builder);
        let begun = builder.subtract(now, builder.load(module.i64(), self.thread));
        self.spend(&builder, builder.load(module.i64(), self.at_cost(&builder, offset_of!(EventCost, begin))));
        let cells = llvm!(LLVMArrayType2(module.i64(), CELLS));
        BegunEvents { cells, events: self, begun }
    }

    fn read(self, builder: &Builder) -> Value {
        let call = builder.call(self.now, &[]);
        llvm!(LLVMSetInstructionCallConv(call.0, llvm!(LLVMGetFunctionCallConv(self.now.0))));
        call
    }

    fn at_cost(self, builder: &Builder, offset: usize) -> Value {
        builder.offset(builder.module.i8(), self.cost, builder.constant(offset as u64))
    }

    /// `spent += events`
    fn spend(self, builder: &Builder, events: Value) {
        add_in_place(builder, self.thread, events, false);
    }
}

impl BegunEvents {
    /// Charges a path that ends here. The count itself is made by the caller.
    pub fn end(self, builder: &Builder, path: Value) {
        let (events, module) = (self.events, builder.module);
        let now = events.read(builder);
        let own = builder.subtract(builder.subtract(now, self.begun), builder.load(module.i64(), events.thread));
        let cell = |number: i64| builder.offset(module.i64(), path, module.constant(number));
        add_in_place(builder, cell(1), own, false);
        let wide = llvm!(LLVMIntTypeInContext(module.context(), 128));
        let extended = Value(llvm!(LLVMBuildSExt(builder.raw(), own.0, wide, c"".as_ptr())));
        let square = builder.multiply(extended, extended);
        let half = |value: LLVMValueRef| Value(llvm!(LLVMBuildTrunc(builder.raw(), value, module.i64(), c"".as_ptr())));
        let word = llvm!(LLVMConstInt(wide, 64, 0));
        let high = half(llvm!(LLVMBuildLShr(builder.raw(), square.0, word, c"".as_ptr())));
        add_to_two_words(builder, cell(2), [half(square.0), high]);
        let cost = builder.load(module.i64(), events.at_cost(builder, offset_of!(EventCost, end)));
        events.spend(builder, builder.add(own, cost));
    }
}

/// What reads the counter: an instruction, or the runtime.
fn declare_reading(module: Module, source: EventSource) -> Value {
    if source == EventSource::Tsc {
        return module.intrinsic("llvm.readcyclecounter", &mut []);
    }
    let kind = llvm!(LLVMFunctionType(module.i64(), std::ptr::null_mut(), 0, 0));
    declare_preserving(module, &format!("{EVENT_SYMBOL}_now"), kind)
}

/// Defines the thread's own, the costs, the record, and the function by which the runtime finds the first. All units of
/// an image have them, in a section group whose name has the event in it: of units with other events, the linker finds
/// the symbols defined twice.
fn define(module: Module, source: EventSource) {
    let (kind, config) = source.kernel();
    let (symbol, group) = (EVENT_SYMBOL, format!("{EVENT_SYMBOL}.{}", source.name().replace('-', "_")));
    let (thread, cost) = (size_of::<EventThread>(), size_of::<EventCost>());
    module.append_assembly(&format!(
        ".pushsection .bss.{symbol},\"awG\",@nobits,{group},comdat\n.p2align 4\n{costs}.zero {cost}\n.popsection\n\
         .pushsection .rodata.{symbol},\"aG\",@progbits,{group},comdat\n.p2align 3\n{record}.long {kind},0\n.quad {config}\n.popsection\n",
        costs = label(&format!("{symbol}_cost"), "object", cost),
        record = label(symbol, "object", 16),
    ));
    thread_local_with_place(module, &format!("{symbol}_own"), thread, &format!("{symbol}_thread"), &group);
}
