//! An instruction builder that checks its arguments.

use super::classes::{FunctionType, HandleClass, IntegerType, NumberValue, Pointer, StructType};
use super::functions::*;
use super::handles::{Block, BuilderHandle, CodeAttribute, DebugLocation, Module, Terminated, Type, Value};
use llvm_sys::{LLVMAtomicOrdering, LLVMAtomicRMWBinOp, LLVMInlineAsmDialect, LLVMIntPredicate};

/// Inserts instructions at a position in a module.
pub struct Builder {
    pub module: Module,
    raw: BuilderHandle,
}

/// A function of LLVM-C that builds an operation on two integers of the same type.
struct IntegerOperator(unsafe extern "C" fn(BuilderHandle, NumberValue, NumberValue, Terminated) -> Value);

/// Defines a method of [`Builder`] for each listed operation on two integers.
macro_rules! operations {
    ($($(#[$what:meta])* $name:ident: $build:ident,)*) => {
        impl Builder {
            $($(#[$what])* pub fn $name(&self, a: Value, b: Value) -> Value {
                self.operation(IntegerOperator($build), a, b)
            })*
        }
    };
}

operations! {
    add: LLVMBuildAdd,
    subtract: LLVMBuildSub,
    multiply: LLVMBuildMul,
    and: LLVMBuildAnd,
    or: LLVMBuildOr,
    xor: LLVMBuildXor,
    shift_left: LLVMBuildShl,
    /// Logical `a >> b`
    shift_right: LLVMBuildLShr,
}

/// Name of all instructions that are built.
const UNNAMED_VALUE: &std::ffi::CStr = c"";

/// Where a builder inserts instructions.
impl Builder {
    /// Creates a builder without a position, which the caller sets.
    fn new(module: Module) -> Builder {
        Builder { module, raw: LLVMCreateBuilderInContext(module.context()) }
    }

    /// Creates a builder that inserts before an instruction, with the given debug location.
    pub fn before(module: Module, instruction: Value, location: Option<DebugLocation>) -> Builder {
        let builder = Builder::new(module);
        LLVMPositionBuilderBefore(builder.raw, instruction.expect());
        builder.with_location(location)
    }

    /// Inserts an empty phi node before an instruction, and also before the debug records attached to it, because no phi node may follow
    /// these.
    pub fn phi_before(module: Module, instruction: Value, kind: Type, location: Option<DebugLocation>) -> Value {
        let builder = Builder::new(module);
        LLVMPositionBuilderBeforeInstrAndDbgRecords(builder.raw, instruction.expect());
        builder.with_location(location).phi(kind)
    }

    /// Inserts an empty phi node at the beginning of a block.
    pub fn phi_at_top(module: Module, block: Block, kind: Type, location: Option<DebugLocation>) -> Value {
        Builder::phi_before(module, block.instructions().next().expect("a block has a terminator"), kind, location)
    }

    /// Inserts an empty phi node with the type, location and fast-math flags of `phi`.
    pub fn insert_phi_like(module: Module, phi: Value, before: Value) -> Value {
        let new = Builder::phi_before(module, before, phi.kind(), phi.location());
        new.copy_fast_math(phi);
        new
    }

    /// Creates a builder that appends to a block, with the given debug location.
    pub fn at_end(module: Module, block: Block, location: Option<DebugLocation>) -> Builder {
        let builder = Builder::new(module);
        LLVMPositionBuilderAtEnd(builder.raw, block);
        builder.with_location(location)
    }

    fn with_location(self, location: Option<DebugLocation>) -> Builder {
        LLVMSetCurrentDebugLocation2(self.raw, location);
        self
    }

    /// Returns the block into which instructions are inserted.
    pub fn block(&self) -> Block {
        LLVMGetInsertBlock(self.raw).expect("builders have a position")
    }

    /// Inserts an instruction that is in no block: one that was removed from its block, or a clone.
    pub fn insert(&self, instruction: Value) {
        assert!(!instruction.is_in_block(), "the instruction is in no other block");
        // SAFETY: the instruction is in no block, so the builder's block can take ownership.
        unsafe { LLVMInsertIntoBuilder(self.raw, instruction.expect()) }
    }
}

/// Terminators and phi nodes.
impl Builder {
    /// `br label %to`
    pub fn jump(&self, to: Block) {
        LLVMBuildBr(self.raw, to);
    }

    /// `br i1 %condition, label %yes, label %no`
    pub fn branch(&self, condition: Value, yes: Block, no: Block) -> Value {
        LLVMBuildCondBr(self.raw, condition.expect(), yes, no)
    }

    /// Builds a `ret` of a call's result, or `ret void` if the call has none.
    pub fn return_result_of(&self, call: Value) -> Value {
        let expected = self.block().function().value_type().result();
        assert!(call.kind() == expected, "a function returns a value of its type of result");
        match call.is_void() {
            true => LLVMBuildRetVoid(self.raw),
            // SAFETY: the value has the function's return type.
            false => unsafe { LLVMBuildRet(self.raw, call) },
        }
    }

    pub fn unreachable(&self) -> Value {
        LLVMBuildUnreachable(self.raw)
    }

    pub fn phi(&self, kind: Type) -> Value {
        LLVMBuildPhi(self.raw, kind, UNNAMED_VALUE.into())
    }
}

/// Arithmetic and comparisons.
impl Builder {
    fn operation(&self, operator: IntegerOperator, a: Value, b: Value) -> Value {
        assert!(a.kind() == b.kind(), "an operation has operands of one type");
        // SAFETY: the operator takes two integers of one type, which `a` and `b` are.
        unsafe { operator.0(self.raw, a.expect(), b.expect(), UNNAMED_VALUE.into()) }
    }

    pub fn constant(&self, value: u64) -> Value {
        self.module.constant(value as i64)
    }

    pub fn not(&self, number: Value) -> Value {
        LLVMBuildNot(self.raw, number.expect(), UNNAMED_VALUE.into())
    }

    pub fn compare(&self, how: LLVMIntPredicate, a: Value, b: Value) -> Value {
        let is_comparable = NumberValue::of(a).is_some() || Pointer::of(a).is_some();
        assert!(is_comparable && a.kind() == b.kind(), "numbers or pointers of one type are compared");
        // SAFETY: both operands are numbers or pointers of one type.
        unsafe { LLVMBuildICmp(self.raw, how, a, b, UNNAMED_VALUE.into()) }
    }

    pub fn equal(&self, a: Value, b: Value) -> Value {
        self.compare(LLVMIntPredicate::LLVMIntEQ, a, b)
    }

    pub fn select(&self, condition: Value, yes: Value, no: Value) -> Value {
        assert!(yes.kind() == no.kind(), "both values have the type of the result");
        // SAFETY: the condition is an `i1`, and the values have one type.
        unsafe { LLVMBuildSelect(self.raw, condition.expect(), yes, no, UNNAMED_VALUE.into()) }
    }

    /// Zero-extends a number to 64 bits.
    pub fn zero_extend(&self, number: Value) -> Value {
        let (from, to) = (number.expect(), self.module.i64());
        assert!(number.integer_width() <= to.width(), "the number has at most 64 bits");
        // SAFETY: the new type is not narrower.
        unsafe { LLVMBuildZExt(self.raw, from, to.expect(), UNNAMED_VALUE.into()) }
    }

    /// Sign-extends a number to a wider type.
    pub fn sign_extend(&self, number: Value, to: Type) -> Value {
        assert!(number.integer_width() <= to.width(), "the new type is not narrower");
        // SAFETY: the new type is not narrower.
        unsafe { LLVMBuildSExt(self.raw, number.expect(), to.expect(), UNNAMED_VALUE.into()) }
    }

    /// Truncates a number to a narrower type.
    pub fn truncate(&self, number: Value, to: Type) -> Value {
        assert!(number.integer_width() >= to.width(), "the new type is not wider");
        // SAFETY: the new type is not wider.
        unsafe { LLVMBuildTrunc(self.raw, number.expect(), to.expect(), UNNAMED_VALUE.into()) }
    }

    pub fn pointer_to_int(&self, address: Value) -> Value {
        LLVMBuildPtrToInt(self.raw, address.expect(), self.module.i64().expect::<IntegerType>(), UNNAMED_VALUE.into())
    }

    /// Builds `freeze`: turns poison into an arbitrary but fixed value.
    pub fn freeze(&self, value: Value) -> Value {
        LLVMBuildFreeze(self.raw, value, UNNAMED_VALUE.into())
    }

    /// Counts leading or trailing zeros with the given intrinsic; the result for 0 is 64.
    pub fn count_zeros(&self, intrinsic: &str, number: Value) -> Value {
        let defined = self.module.i1().unsigned(0);
        self.call(self.module.intrinsic(intrinsic, &[self.module.i64()]), &[number, defined])
    }
}

/// Memory accesses.
impl Builder {
    /// Reserves memory in the stack frame.
    pub fn allocate(&self, kind: Type) -> Value {
        LLVMBuildAlloca(self.raw, kind.expect(), UNNAMED_VALUE.into())
    }

    /// Builds the address `base + offset`, where `offset` counts elements of type `element`.
    pub fn offset(&self, element: Type, base: Value, offset: Value) -> Value {
        let index: NumberValue = offset.expect();
        // SAFETY: the single index is a number, which moves the address by multiples of the type's size.
        unsafe { LLVMBuildGEP2(self.raw, element.expect(), base.expect(), &index, 1, UNNAMED_VALUE.into()) }
    }

    pub fn load(&self, kind: Type, from: Value) -> Value {
        LLVMBuildLoad2(self.raw, kind.expect(), from.expect(), UNNAMED_VALUE.into())
    }

    pub fn store(&self, value: Value, to: Value) -> Value {
        LLVMBuildStore(self.raw, value, to.expect())
    }

    /// Builds an atomic addition to a number in memory.
    pub fn atomic_add(&self, address: Value, by: Value) {
        let (add, order) = (LLVMAtomicRMWBinOp::LLVMAtomicRMWBinOpAdd, LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic);
        // SAFETY: the address is a pointer, `by` is an integer, which can be added, and relaxed order is allowed for atomic updates.
        unsafe { LLVMBuildAtomicRMW(self.raw, add, address.expect(), by.expect(), order, 0) };
    }

    /// Builds an atomic compare-and-exchange: stores `new` in memory if that contains `expected`. Returns the earlier content, and the
    /// condition that it was `expected`.
    pub fn atomic_exchange(&self, address: Value, expected: Value, new: Value, alignment: u32) -> (Value, Value) {
        let order = LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic;
        assert!(expected.kind() == new.kind(), "a number is exchanged for one of its type");
        // SAFETY: the address is a pointer, the numbers have the same type, and relaxed order is allowed for this instruction.
        let both = unsafe { LLVMBuildAtomicCmpXchg(self.raw, address.expect(), expected.expect(), new.expect(), order, order, 0) };
        both.set_alignment(alignment);
        (self.extract(both, 0), self.extract(both, 1))
    }

    /// Builds `extractvalue`: reads an element of a structure.
    fn extract(&self, structure: Value, index: u32) -> Value {
        assert!(StructType::of(structure.kind()).is_some() && index < structure.kind().structure_elements().len() as u32);
        // SAFETY: the value is a structure that has the element.
        unsafe { LLVMBuildExtractValue(self.raw, structure, index, UNNAMED_VALUE.into()) }
    }
}

/// Checks that a function of type `kind` can be called with the arguments.
fn check_arguments(kind: Type, arguments: &[Value]) {
    let parameters = kind.parameters();
    let is_count_right = parameters.len() == arguments.len() || kind.is_variadic() && parameters.len() < arguments.len();
    let fits = is_count_right && parameters.iter().zip(arguments).all(|(parameter, argument)| *parameter == argument.kind());
    assert!(fits, "the arguments do not fit `{}`", kind.printed());
}

/// Calls.
impl Builder {
    pub fn call(&self, function: Value, arguments: &[Value]) -> Value {
        self.call_as(function.value_type(), function, arguments)
    }

    /// Builds a call to `callee` as a function of type `kind`.
    pub fn call_as(&self, kind: Type, callee: Value, arguments: &[Value]) -> Value {
        check_arguments(kind, arguments);
        let count = arguments.len() as u32;
        // SAFETY: the array has that many arguments, which fit the type.
        unsafe { LLVMBuildCall2(self.raw, kind.expect::<FunctionType>(), callee.expect(), arguments.as_ptr(), count, UNNAMED_VALUE.into()) }
    }

    /// Builds an `invoke` of a function.
    pub fn invoke(&self, function: Value, arguments: &[Value], normal: Block, unwind: Block) -> Value {
        let kind = function.value_type();
        check_arguments(kind, arguments);
        let (kind, count) = (kind.expect::<FunctionType>(), arguments.len() as u32);
        // SAFETY: the array has that many arguments, which fit the type.
        unsafe { LLVMBuildInvoke2(self.raw, kind, function.expect(), arguments.as_ptr(), count, normal, unwind, UNNAMED_VALUE.into()) }
    }

    /// Builds inline assembly, in AT&T syntax and with side effects, so that LLVM does not remove it.
    pub fn assembly(&self, result: Type, text: &str, registers: &str, operands: &[Value]) -> Value {
        self.assembly_with(true, result, text, registers, operands)
    }

    /// Builds inline assembly whose first operands are the words in memory at `addresses`.
    pub fn assembly_on_memory(&self, text: &str, constraints: &str, addresses: &[Value], others: &[Value]) {
        let operands: Vec<Value> = addresses.iter().chain(others).copied().collect();
        let call = self.assembly(self.module.void(), text, constraints, &operands);
        let word = CodeAttribute::element_type(self.module.context(), self.module.i64());
        (1..=addresses.len()).for_each(|number| call.add_call_attribute_at(number as u32, word));
    }

    /// Builds a copy of a value about which LLVM can infer nothing.
    pub fn build_opaque_copy(&self, value: Value) -> Value {
        self.assembly_with(false, value.kind(), "", "=r,0", &[value])
    }

    fn assembly_with(&self, effects: bool, result: Type, text: &str, registers: &str, operands: &[Value]) -> Value {
        let kinds: Vec<Type> = operands.iter().map(|o| o.kind()).collect();
        let kind = Type::function(result, &kinds);
        let (dialect, effects) = (LLVMInlineAsmDialect::LLVMInlineAsmDialectATT, effects.into());
        let (text_at, registers_at) = (text.as_ptr().cast(), registers.as_ptr().cast());
        // SAFETY: pointers and lengths are those of `text` and `registers`, which LLVM copies.
        let assembly =
            unsafe { LLVMGetInlineAsm(kind.expect(), text_at, text.len(), registers_at, registers.len(), effects, 0, dialect, 0) };
        self.call_as(kind, assembly, operands)
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        // SAFETY: nothing outside the builder has a copy of the handle, and the builder ends here.
        unsafe { LLVMDisposeBuilder(self.raw) }
    }
}
