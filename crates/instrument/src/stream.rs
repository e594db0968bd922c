//! Emits the code by which stream builds record the sequence of their paths ([`trodden_flow::ProbeProgram::write_stream`]). The program
//! writes an event where a path ends or reaches a call that may not return: the address of the path's counter in the image, with a tag
//! ([`trodden_wire::stream`]). At entry, a function writes an event and takes a slot of a shadow stack. The slot holds the path up to the
//! latest call, in case of a crash, and is cleared at exit. Landing pads and returns of `setjmp` write an event that says which frame
//! continues. Everything is inline assembly, so that no block is split and the cursor advances in one instruction. Cold code is reached by
//! jumps instead of calls, which would overwrite a leaf function's red zone. A path's event precedes the clearing of its slot, and events
//! stay at path ends ([`PassChoices::COUNTING_AT_PATH_ENDS`](trodden_flow::program::PassChoices::COUNTING_AT_PATH_ENDS)).

use crate::describe::FunctionCfg;
use crate::emit::{self, declare_runtime_function};
use crate::llvm::{Builder, DebugLocation, Module, Type, Value};
use crate::no_return::returns_twice;
use llvm_sys::LLVMOpcode;
use trodden_flow::program::StreamEdges;
use trodden_unit::{BlockKind, EdgeKind};
use trodden_wire::stream::{
    CHUNK_BYTES, NEXT_CHUNK_SYMBOL, NEXT_SLOT_SYMBOL, SHADOW_BYTES, STREAM_ADDRESS_SYMBOL, STREAM_SYMBOL, TAG_ENTER, TAG_EXIT, TAG_PATH,
    TAG_RESUME, ThreadStream,
};

/// Returns the edges on which functions are left, and those on which calls are reached; their code writes events or updates the shadow
/// stack.
pub fn stream_edges(cfg: &FunctionCfg) -> StreamEdges {
    StreamEdges {
        leaves: cfg.graph.edges_where(|kind| matches!(kind, EdgeKind::Return | EdgeKind::TailCall | EdgeKind::Resume)),
        calls: cfg.graph.edges_where(|kind| matches!(kind, EdgeKind::Reach | EdgeKind::NoReturn | EdgeKind::ReturnsTwice)),
    }
}

/// Returns true if unwinding or `longjmp` may end in a function: it catches exceptions, or calls a function that returns twice.
pub fn may_resume_after_unwinding(function: Value) -> bool {
    // A landing pad without clauses only cleans up and continues unwinding.
    let is_handler = |i: Value| i.clause_count() > 0;
    let is_catching = |i: Value| is_handler(i) || i.is_call() && returns_twice(i);
    function.blocks().any(|block| block.instructions().any(is_catching))
}

/// The runtime functions that a stream build's code refers to.
#[derive(Clone, Copy)]
pub struct StreamRuntimeFunctions {
    module: Module,
    next_chunk: Value,
    next_slot: Value,
}

/// Emits the stream code of one function.
#[derive(Clone, Copy)]
pub struct StreamCode {
    streams: StreamRuntimeFunctions,
    /// Address of the frame's slot in the shadow stack.
    slot: Value,
}

impl StreamRuntimeFunctions {
    /// Declares the runtime's functions, and defines the thread's stream state (linkers keep one definition per image).
    pub fn declare(module: Module) -> StreamRuntimeFunctions {
        emit::define_thread_local(module, STREAM_SYMBOL, size_of::<ThreadStream>(), STREAM_ADDRESS_SYMBOL, STREAM_SYMBOL);
        let kind = Type::function(module.void(), &[]);
        let [next_chunk, next_slot] = [NEXT_CHUNK_SYMBOL, NEXT_SLOT_SYMBOL].map(|name| declare_runtime_function(module, name, kind));
        StreamRuntimeFunctions { module, next_chunk, next_slot }
    }

    pub fn remove_unused_declarations(self) {
        emit::remove_unused_declarations(&[self.next_chunk, self.next_slot]);
    }

    /// Emits code at function entry that takes a slot for the function's frame and writes the event of its entry. `first` is the index of
    /// the function's first counter.
    pub fn emit_function_entry(self, function: Value, first: u64, counters: Value, location: Option<DebugLocation>) -> StreamCode {
        let builder = Builder::before(self.module, function.entry().after_allocas(), location);
        let word = self.event_word(&builder, builder.offset(self.module.i64(), counters, self.module.constant(first as i64)), TAG_ENTER);
        let text = format!(
            "movq {STREAM_SYMBOL}@GOTTPOFF(%rip), %r10\n\tmovq %fs:8(%r10), %rax\n\tleaq 2f(%rip), %r11\n\t\
             testl $$0x{:x}, %eax\n\tjz ${{2:P}}\n\tleaq 4(%rax), %r11\n\tmovq %r11, %fs:8(%r10)\n2:\n\t\
             movl ${{1:k}}, %r11d\n\tmovq %r11, (%rax)",
            SHADOW_BYTES - 1
        );
        let registers = "=&{rax},r,i,~{r10},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}";
        let slot = builder.assembly(self.module.i64(), &text, registers, &[word, self.next_slot]);
        self.append_word(&builder, word);
        StreamCode { streams: self, slot }
    }

    /// Emits the word of an event: the address of a counter in the image, plus the tag.
    fn event_word(self, builder: &Builder, counter: Value, tag: u32) -> Value {
        builder.offset(self.module.i8(), counter, self.module.constant(tag.into()))
    }

    /// Emits code that appends the lower half of `word` to the thread's stream.
    fn append_word(self, builder: &Builder, word: Value) {
        let text = format!(
            "movq {STREAM_SYMBOL}@GOTTPOFF(%rip), %r11\n\tmovl $$4, %eax\n\txaddq %rax, %fs:(%r11)\n\tleaq 1f(%rip), %r11\n\t\
             testl $$0x{:x}, %eax\n\tjz ${{1:P}}\n1:\n\tmovl ${{0:k}}, (%rax)",
            CHUNK_BYTES - 1
        );
        let registers = "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}";
        builder.assembly(self.module.void(), &text, registers, &[word, self.next_chunk]);
    }
}

impl StreamCode {
    /// Emits code that appends a path to the stream. `counter` is the address of the path's counter in the image; with `call_ends`, the
    /// event also says that the function returns. Returns the event's word.
    pub fn append_path(self, builder: &Builder, counter: Value, call_ends: bool) -> Value {
        let tag = if call_ends { TAG_EXIT } else { TAG_PATH };
        let word = self.streams.event_word(builder, counter, tag);
        self.streams.append_word(builder, word);
        word
    }

    /// Emits code before a call that stores the path so far in the frame's slot.
    pub fn record_call(self, builder: &Builder, word: Value) {
        builder.assembly(builder.module.void(), "movl ${1:k}, ($0)", "r,r,~{memory},~{fpsr},~{dirflag}", &[self.slot, word]);
    }

    /// Emits code that clears the frame's slot when the function is left.
    pub fn clear_slot(self, builder: &Builder) {
        let text = format!("movq {STREAM_SYMBOL}@GOTTPOFF(%rip), %r11\n\tmovq $0, %fs:8(%r11)\n\tmovl $$0, ($0)");
        builder.assembly(builder.module.void(), &text, "r,~{r11},~{memory},~{flags},~{fpsr},~{dirflag}", &[self.slot]);
    }

    /// Emits code, for a landing pad or after a call that returns twice, that writes an event: this frame continues, and the frames above
    /// it are gone.
    pub fn append_resume(self, builder: &Builder) {
        let offset = builder.and(self.slot, builder.constant(SHADOW_BYTES - 1));
        let word = builder.shift_left(offset, builder.constant(1));
        self.streams.append_word(builder, builder.or(word, builder.constant(TAG_RESUME.into())));
        // Frames beyond the maximum depth share the last slot, and the stack's pointer stays there.
        let text = format!(
            "movq {STREAM_SYMBOL}@GOTTPOFF(%rip), %r11\n\tmovq $0, %rax\n\ttestl $$0x{:x}, %eax\n\tjz 1f\n\taddq $$4, %rax\n1:\n\t\
             movq %rax, %fs:8(%r11)\n\ttestl $$0x{:x}, %eax\n\tjz 2f\n\tmovl $$0, (%rax)\n2:",
            SHADOW_BYTES - 1,
            SHADOW_BYTES - 1
        );
        builder.assembly(builder.module.void(), &text, "r,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}", &[self.slot]);
    }

    /// Emits the code of [`StreamCode::append_resume`] at the function's landing pads and after its calls that return twice.
    pub fn append_resume_events_after_unwinding(self, function: Value, cfg: &FunctionCfg, location: Option<DebugLocation>) {
        let module = self.streams.module;
        let is_pad = |i: &Value| i.is(LLVMOpcode::LLVMLandingPad);
        let pads: Vec<Value> = function.blocks().flat_map(|b| b.instructions().filter(is_pad).collect::<Vec<_>>()).collect();
        for pad in pads {
            let after = pad.next().expect("a block has a terminator");
            self.append_resume(&Builder::before(module, after, location));
        }
        let continuations = cfg.nodes.iter().zip(&cfg.blocks).filter(|(_, map)| map.kind == BlockKind::Continuation);
        for block in continuations.filter_map(|(block, _)| *block) {
            self.append_resume(&Builder::before(module, block.first_insertion_point(), location));
        }
    }
}
