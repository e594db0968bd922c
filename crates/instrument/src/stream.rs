//! Stream builds: the code of what a probe program appends to a stream ([`ProbeProgram::write_stream`]).
//!
//! The numbering is that of all builds (Ball and Larus), and an event is made where a path ends or comes to a call that
//! might not return: the address of the path's counter in the template, with a tag ([`trodden_wire::stream`]). Besides,
//!
//! - a function writes an event when it begins, and takes a slot of the shadow stack ([`Streams::enter`]);
//! - the slot holds the last call's path, to be read when the program has crashed ([`StreamCode::note`]);
//! - where the function is left, the slot is cleared ([`StreamCode::leave`]);
//! - at landing pads, and behind calls that return twice, an event says which frame goes on ([`StreamCode::resume`]).
//!
//! All of it is inline assembly, so that no block is split and an addition to the cursor is one instruction. Cold parts
//! are jumps to the runtime, not calls: a leaf function's red zone stays its own.
//!
//! Invariant: a path's event is written before its slot is cleared; counts are made one by one where paths end, not
//! moved, merged or delayed ([`AT_PATH_ENDS`](crate::unit::AT_PATH_ENDS)).
//!
//! [`ProbeProgram::write_stream`]: trodden_flow::ProbeProgram::write_stream

use crate::describe::FunctionCfg;
use crate::emit::{self, declare_of_runtime};
use crate::llvm::{Builder, Module, Value, llvm};
use crate::no_return::returns_twice;
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMMetadataRef;
use trodden_flow::program::StreamEdges;
use trodden_unit::{BlockKind, EdgeKind};
use trodden_wire::stream::{
    CHUNK_BYTES, NEXT_CHUNK_SYMBOL, NEXT_SLOT_SYMBOL, SHADOW_BYTES, STREAM_PLACE_SYMBOL, STREAM_SYMBOL, TAG_ENTER, TAG_EXIT, TAG_PATH,
    TAG_RESUME, ThreadStream,
};

/// What a program that writes a stream has to know of a function's edges.
pub fn edges(cfg: &FunctionCfg) -> StreamEdges {
    let are = |is: fn(EdgeKind) -> bool| cfg.edges.iter().map(|e| is(e.kind)).collect();
    StreamEdges {
        leaves: are(|kind| matches!(kind, EdgeKind::Return | EdgeKind::TailCall | EdgeKind::Resume)),
        calls: are(|kind| matches!(kind, EdgeKind::Reach | EdgeKind::NoReturn | EdgeKind::ReturnsTwice)),
    }
}

/// Whether control may come back to a function while frames above it are gone: it catches exceptions, or calls what returns twice.
pub fn catches(function: Value) -> bool {
    // Who only cleans up goes on unwinding.
    let is_handler = |i: Value| i.is(LLVMOpcode::LLVMLandingPad) && llvm!(LLVMGetNumClauses(i.0)) > 0;
    let is_catching = |i: Value| is_handler(i) || i.is_call() && returns_twice(i);
    function.blocks().any(|block| block.instructions().any(is_catching))
}

/// What the code of a unit refers to.
#[derive(Clone, Copy)]
pub struct Streams {
    module: Module,
    next_chunk: Value,
    next_slot: Value,
}

/// The code of one function.
#[derive(Clone, Copy)]
pub struct StreamCode {
    streams: Streams,
    /// Address of the frame's slot.
    slot: Value,
}

impl Streams {
    /// Declares what code refers to, and defines what is the thread's (linkers keep one definition in each image).
    pub fn declare(module: Module) -> Streams {
        emit::thread_local_with_place(module, STREAM_SYMBOL, size_of::<ThreadStream>(), STREAM_PLACE_SYMBOL, STREAM_SYMBOL);
        let kind = llvm!(LLVMFunctionType(module.void(), std::ptr::null_mut(), 0, 0));
        let [next_chunk, next_slot] = [NEXT_CHUNK_SYMBOL, NEXT_SLOT_SYMBOL].map(|name| declare_of_runtime(module, name, kind));
        Streams { module, next_chunk, next_slot }
    }

    /// Takes declarations out that nothing refers to.
    pub fn forget_unused(self) {
        emit::forget_unused(&[self.next_chunk, self.next_slot]);
    }

    /// The function begins: takes a slot for its frame, and writes the event. `first` is its first counter in the template.
    pub fn enter(self, function: Value, first: u64, counters: Value, location: Option<LLVMMetadataRef>) -> StreamCode {
        let builder = Builder::before(self.module, function.entry().behind_variables(), location);
        let word = self.word(&builder, builder.offset(self.module.i64(), counters, self.module.constant(first as i64)), TAG_ENTER);
        let text = format!(
            "movq {STREAM_SYMBOL}@GOTTPOFF(%rip), %r10\n\tmovq %fs:8(%r10), %rax\n\tleaq 2f(%rip), %r11\n\t\
             testl $$0x{:x}, %eax\n\tjz ${{2:P}}\n\tleaq 4(%rax), %r11\n\tmovq %r11, %fs:8(%r10)\n2:\n\t\
             movl ${{1:k}}, %r11d\n\tmovq %r11, (%rax)",
            SHADOW_BYTES - 1
        );
        let registers = "=&{rax},r,i,~{r10},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}";
        let slot = builder.assembly(self.module.i64(), &text, registers, &[word, self.next_slot]);
        self.write(&builder, word);
        StreamCode { streams: self, slot }
    }

    /// The event of a counter of the template, at an address, as a word.
    fn word(self, builder: &Builder, counter: Value, tag: u32) -> Value {
        builder.offset(self.module.i8(), counter, self.module.constant(tag.into()))
    }

    /// Writes the low half of `word` as the thread's next event.
    fn write(self, builder: &Builder, word: Value) {
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
    /// A path ends, or comes to a call: its counter in the template is at that address. The call ends with it if
    /// `call_ends`. Gives the event's word.
    pub fn path(self, builder: &Builder, counter: Value, call_ends: bool) -> Value {
        let tag = if call_ends { TAG_EXIT } else { TAG_PATH };
        let word = self.streams.word(builder, counter, tag);
        self.streams.write(builder, word);
        word
    }

    /// The function calls something: its slot holds the event of the path so far.
    pub fn note(self, builder: &Builder, word: Value) {
        builder.assembly(builder.module.void(), "movl ${1:k}, ($0)", "r,r,~{memory},~{fpsr},~{dirflag}", &[self.slot, word]);
    }

    /// The function is left: the frame has no slot any more.
    pub fn leave(self, builder: &Builder) {
        let text = format!("movq {STREAM_SYMBOL}@GOTTPOFF(%rip), %r11\n\tmovq $0, %fs:8(%r11)\n\tmovl $$0, ($0)");
        builder.assembly(builder.module.void(), &text, "r,~{r11},~{memory},~{flags},~{fpsr},~{dirflag}", &[self.slot]);
    }

    /// At a landing pad, or behind a call that returns twice: frames above this one are gone.
    pub fn resume(self, builder: &Builder) {
        let offset = builder.and(self.slot, builder.constant(SHADOW_BYTES - 1));
        let word = builder.shift_left(offset, builder.constant(1));
        self.streams.write(builder, builder.or(word, builder.constant(TAG_RESUME.into())));
        // A frame too deep for the stack has the last slot, and leaves the pointer there.
        let text = format!(
            "movq {STREAM_SYMBOL}@GOTTPOFF(%rip), %r11\n\tmovq $0, %rax\n\ttestl $$0x{:x}, %eax\n\tjz 1f\n\taddq $$4, %rax\n1:\n\t\
             movq %rax, %fs:8(%r11)\n\ttestl $$0x{:x}, %eax\n\tjz 2f\n\tmovl $$0, (%rax)\n2:",
            SHADOW_BYTES - 1,
            SHADOW_BYTES - 1
        );
        builder.assembly(builder.module.void(), &text, "r,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}", &[self.slot]);
    }

    /// Has the function say which frame goes on at its landing pads, and behind calls that return twice.
    pub fn resume_where_control_comes_back(self, function: Value, cfg: &FunctionCfg, location: Option<LLVMMetadataRef>) {
        let module = self.streams.module;
        let is_pad = |i: &Value| i.is(LLVMOpcode::LLVMLandingPad);
        let pads: Vec<Value> = function.blocks().flat_map(|b| b.instructions().filter(is_pad).collect::<Vec<_>>()).collect();
        for pad in pads {
            let behind = pad.next().expect("a block has a terminator");
            self.resume(&Builder::before(module, behind, location));
        }
        let continuations = cfg.nodes.iter().zip(&cfg.blocks).filter(|(_, map)| map.kind == BlockKind::Continuation);
        for block in continuations.filter_map(|(block, _)| *block) {
            self.resume(&Builder::before(module, block.first_insertion_point(), location));
        }
    }
}
