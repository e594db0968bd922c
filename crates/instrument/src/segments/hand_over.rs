//! Passes a context (a number that stands for the caller's path) to a callee in any unit, through a thread-local word that only this call
//! of this callee can read.
//!
//! The word may be stale: the callee may be replaced by a wrapper or left before its first instruction, or a signal handler may run between
//! store and entry. So the word is `(stack pointer at the call << 17) ^ tag of the callee ^ context`. The callee removes its tag and the
//! stack pointer, which it knows from the position of its return address. The rest is a valid context only if the word is for this call: a
//! different stack pointer leaves a number above [`MAX_CONTEXTS`], since stack pointers at calls are multiples of 16, and so does a
//! different tag, except with probability 2^-43. Accesses are volatile because signal handlers observe their order.

use crate::describe::{emits_no_code, is_must_tail};
use crate::host::type_kind;
use crate::llvm::{Block, Builder, CodeAttribute, Module, Type, Value};
use crate::no_return::returns_twice;
use llvm_sys::{LLVMIntPredicate, LLVMOpcode, LLVMTailCallKind, LLVMTypeKind};
use trodden_unit::Identity;

/// Number of bits by which the stack pointer is shifted in a word.
const STACK_POINTER_SHIFT: u64 = 17;
/// Maximum number of contexts of a function that fit into a word.
pub const MAX_CONTEXTS: u64 = (1 << (STACK_POINTER_SHIFT + 4)) - 1;

/// Address of the thread-local words through which contexts are passed, [`trodden_wire::CONTEXT_SYMBOL`].
#[derive(Clone, Copy)]
pub struct ContextWords(pub Value);

/// The tags of the functions in one set of segments, by which a callee recognises contexts meant for it.
#[derive(Clone, Copy, Debug)]
pub struct ContextTags(pub Identity);

impl ContextTags {
    pub fn of(self, number: u32) -> u64 {
        let hash = Identity::from_content(&[&self.0.0[..], &number.to_le_bytes()].concat());
        u64::from_le_bytes(std::array::from_fn(|byte| hash.0[byte]))
    }
}

/// Names of a thread's words, by index.
#[derive(Clone, Copy)]
enum ContextWord {
    Call,
    /// For a callee that is reached by a jump, because of a tail call, and so has its caller's return address.
    Jump,
    /// The previous value of `Call`, which the callee restores. So a signal handler that itself passes contexts leaves the interrupted
    /// caller's word intact, unless handlers nest within these few instructions.
    Before,
}

impl ContextWords {
    /// Emits code that stores a context for the callee of a call. `mark` is the callee's tag xor its context.
    pub fn emit_store_for_callee(self, builder: &Builder, call: Value, mark: Value) {
        let module = builder.module;
        let pointer = builder.shift_left(emit_stack_pointer(builder), builder.constant(STACK_POINTER_SHIFT));
        let pushed = stack_argument_bytes(module, call);
        if let Some(jump) = self.emit_jump_word(builder, call, pushed, (pointer, mark)) {
            self.store_context_word(builder, ContextWord::Jump, jump);
        }
        let before = self.load_context_word(builder, ContextWord::Call);
        self.store_context_word(builder, ContextWord::Before, before);
        self.store_context_word(builder, ContextWord::Call, builder.xor(pointer, mark));
    }

    /// Returns the value of `ContextWord::Jump` for a call that may become a jump, or whose stack arguments may be pushed below the stack
    /// pointer as it was read, as in frames of variable size; `None` for other calls.
    fn emit_jump_word(self, builder: &Builder, call: Value, pushed: u64, (pointer, mark): (Value, Value)) -> Option<Value> {
        let other = if is_must_tail(call) || pushed == 0 && may_become_tail_jump(call) {
            builder.shift_left(emit_stack_pointer_at_call(builder), builder.constant(STACK_POINTER_SHIFT))
        } else if pushed > 0 {
            if call.is_tail_call() {
                call.set_tail_call_kind(LLVMTailCallKind::LLVMTailCallKindNoTail);
            }
            builder.subtract(pointer, builder.constant(pushed << STACK_POINTER_SHIFT))
        } else {
            return None;
        };
        Some(builder.xor(other, mark))
    }

    /// Emits code at a function's entry that reads its context and clears the words. The context is 0 if the words were not stored for this
    /// call.
    pub fn emit_load_and_clear(self, builder: &Builder, tag: u64, contexts: u64) -> Value {
        let (zero, max) = (builder.constant(0), builder.constant(contexts.min(MAX_CONTEXTS)));
        let own = builder
            .xor(builder.shift_left(emit_stack_pointer_at_call(builder), builder.constant(STACK_POINTER_SHIFT)), builder.constant(tag));
        let (call, jump, before) = (
            self.load_context_word(builder, ContextWord::Call),
            self.load_context_word(builder, ContextWord::Jump),
            self.load_context_word(builder, ContextWord::Before),
        );
        let [by_call, by_jump] = [call, jump].map(|word| builder.xor(word, own));
        let [is_called, is_jumped_to] = [by_call, by_jump].map(|c| builder.compare(LLVMIntPredicate::LLVMIntULE, c, max));
        let is_passed = builder.or(is_called, is_jumped_to);
        // If both words are equal, a signal handler that ran before this entry has saved the word of this very call, and the word before it
        // is lost.
        let restored = builder.select(builder.equal(before, call), zero, before);
        self.store_context_word(builder, ContextWord::Call, builder.select(is_passed, restored, call));
        self.store_context_word(builder, ContextWord::Jump, builder.select(is_passed, zero, jump));
        builder.select(is_called, by_call, builder.select(is_jumped_to, by_jump, zero))
    }

    /// Emits code that clears the words after each call that returns twice: code that then called `longjmp` may have stored a word that no
    /// callee has read.
    pub fn clear_contexts_after_returning_twice(self, module: Module) {
        let calls: Vec<Value> = module.functions().flat_map(Value::blocks).flat_map(Block::instructions).collect();
        for call in calls.into_iter().filter(|call| call.is(LLVMOpcode::LLVMCall) && returns_twice(*call) && !is_must_tail(*call)) {
            let next = call.next().expect("a call is no terminator");
            let builder = Builder::before(module, next, call.location());
            [ContextWord::Call, ContextWord::Jump]
                .into_iter()
                .for_each(|word| self.store_context_word(&builder, word, builder.constant(0)));
        }
    }

    fn context_word_address(self, builder: &Builder, word: ContextWord) -> Value {
        match word {
            ContextWord::Call => self.0,
            _ => builder.offset(builder.module.i64(), self.0, builder.constant(word as u64)),
        }
    }

    fn load_context_word(self, builder: &Builder, word: ContextWord) -> Value {
        let loaded = builder.load(builder.module.i64(), self.context_word_address(builder, word));
        loaded.set_volatile();
        loaded
    }

    fn store_context_word(self, builder: &Builder, word: ContextWord, value: Value) {
        let stored = builder.store(value, self.context_word_address(builder, word));
        stored.set_volatile();
    }
}

/// Emits code that reads the stack pointer. LLVM completes the stack frame before this intrinsic.
fn emit_stack_pointer(builder: &Builder) -> Value {
    let (module, context) = (builder.module, builder.module.context());
    let register = context.as_value(context.metadata_node(&[context.metadata_string(b"rsp")]));
    builder.call(module.intrinsic("llvm.read_volatile_register", &[module.i64()]), &[register])
}

/// Emits code that computes the stack pointer at the moment when the current function was called, before the return address was pushed.
fn emit_stack_pointer_at_call(builder: &Builder) -> Value {
    let module = builder.module;
    let pointer = module.pointer();
    let address = builder.call(module.intrinsic("llvm.addressofreturnaddress", &[pointer]), &[]);
    builder.add(builder.pointer_to_int(address), builder.constant(8))
}

/// Returns true if LLVM may turn a call into a jump: it is in tail position, or followed by a block that only returns.
fn may_become_tail_jump(call: Value) -> bool {
    let leads_to_return = |mut at: Option<Value>| {
        for _ in 0..64 {
            at = match at {
                None => return false,
                Some(i) if i.is(LLVMOpcode::LLVMRet) => return true,
                Some(i) if i.is(LLVMOpcode::LLVMBr) => match i.successors()[..] {
                    [next] => next.instructions().next(),
                    _ => return false,
                },
                Some(i) if i.is(LLVMOpcode::LLVMPHI) || i.is(LLVMOpcode::LLVMBitCast) || is_placeholder_call(i) => i.next(),
                Some(_) => return false,
            };
        }
        true
    };
    call.is(LLVMOpcode::LLVMCall) && call.is_tail_call() && leads_to_return(call.next())
}

fn is_placeholder_call(instruction: Value) -> bool {
    instruction.is_call() && emits_no_code(instruction)
}

/// Returns the size in bytes of the arguments that a call passes on the stack, including padding (x86-64 psABI, section 3.2.3).
fn stack_argument_bytes(module: Module, call: Value) -> u64 {
    let mut arguments = ArgumentPlacement { integers: 6, vectors: 8, bytes: 0 };
    for (number, argument) in (1..).zip(call.arguments()) {
        let has = |name: &str| call.call_attribute_at(number, name).is_some();
        if let Some(kind) = call.call_attribute_at(number, "byval").and_then(CodeAttribute::kind) {
            let (size, alignment) = kind.abi_size_and_alignment(module);
            arguments.place_argument_on_stack(size, alignment.into());
        } else if !["nest", "swiftself", "swifterror", "swiftasync"].into_iter().any(has) {
            arguments.add(argument.kind());
        }
    }
    arguments.bytes.next_multiple_of(16)
}

/// The registers that are left for further arguments, by kind, and the size in bytes of the arguments on the stack so far.
struct ArgumentPlacement {
    integers: u64,
    vectors: u64,
    bytes: u64,
}

impl ArgumentPlacement {
    fn place_argument_on_stack(&mut self, size: u64, alignment: u64) {
        self.bytes = self.bytes.next_multiple_of(alignment.max(8)) + size.next_multiple_of(8);
    }

    fn add(&mut self, kind: Type) {
        match type_kind(kind) {
            LLVMTypeKind::LLVMStructTypeKind => {
                kind.structure_elements().into_iter().for_each(|element| self.add(element));
            }
            LLVMTypeKind::LLVMArrayTypeKind => {
                let (count, element) = kind.array_elements();
                (0..count).for_each(|_| self.add(element));
            }
            LLVMTypeKind::LLVMPointerTypeKind => self.place_argument_in_registers(|left| &mut left.integers, 1, 8),
            LLVMTypeKind::LLVMIntegerTypeKind => {
                let words = u64::from(kind.width().unwrap_or(0)).div_ceil(64);
                self.place_argument_in_registers(|left| &mut left.integers, words, 8 * words);
            }
            LLVMTypeKind::LLVMX86_FP80TypeKind => self.place_argument_on_stack(16, 16),
            LLVMTypeKind::LLVMFloatTypeKind
            | LLVMTypeKind::LLVMDoubleTypeKind
            | LLVMTypeKind::LLVMHalfTypeKind
            | LLVMTypeKind::LLVMBFloatTypeKind => self.place_argument_in_registers(|left| &mut left.vectors, 1, 8),
            // 128-bit vectors and floats.
            _ => self.place_argument_in_registers(|left| &mut left.vectors, 1, 16),
        }
    }

    fn place_argument_in_registers(&mut self, class: impl Fn(&mut ArgumentPlacement) -> &mut u64, registers: u64, size: u64) {
        let left = class(self);
        match left.checked_sub(registers) {
            Some(rest) => *left = rest,
            None => self.place_argument_on_stack(size, size),
        }
    }
}
