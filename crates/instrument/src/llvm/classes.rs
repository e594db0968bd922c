//! Classes of values, types, attributes and metadata, as far as functions of LLVM-C require them.
//!
//! A class has one constructor, which tests for it ([`Class::of`]). A live value keeps its class. Only whether an instruction is in a block
//! can change, so a [`PlacedInstruction`] is made for the next call and not kept.

use super::functions::*;
use super::handles::{AttributeKind, CodeAttribute, Metadata, Type, Value};
use crate::host::type_kind;
use llvm_sys::LLVMOpcode::{self, *};
use llvm_sys::LLVMTypeKind::*;
use llvm_sys::debuginfo::LLVMMetadataKind;

/// A class of what `Of` is a handle to.
pub trait Class<Of>: Sized {
    /// The class's name, for messages.
    const NAME: &'static str;

    /// Returns the handle as one of this class, if it is.
    fn of(handle: Of) -> Option<Self>;
}

/// Defines classes, each with the test for it.
macro_rules! classes {
    ($of:ident: $($(#[$what:meta])* $name:ident($handle:ident) if $test:expr;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name($of);

        impl Class<$of> for $name {
            const NAME: &'static str = stringify!($name);

            fn of($handle: $of) -> Option<$name> {
                ($test).then_some($name($handle))
            }
        }

        impl From<$name> for $of {
            fn from(of_class: $name) -> $of {
                of_class.0
            }
        }
    )*};
}

classes! { Value:
    /// A value with operands (`llvm::User`).
    UserValue(value) if LLVMIsAUser(value).is_some();
    AnyInstruction(value) if LLVMIsAInstruction(value).is_some();
    /// An instruction in a block.
    PlacedInstruction(value) if AnyInstruction::of(value).is_some_and(|i| LLVMGetInstructionParent(i).is_some());
    Terminator(value) if LLVMIsATerminatorInst(value).is_some();
    Branch(value) if value.is(LLVMBr);
    ConditionalBranch(value) if Branch::of(value).is_some_and(|branch| LLVMIsConditional(branch) != 0);
    Switch(value) if value.is(LLVMSwitch);
    Invoke(value) if value.is(LLVMInvoke);
    /// `call`, `invoke` or `callbr` (`llvm::CallBase`).
    CallInstruction(value) if value.is_one_of(&[LLVMCall, LLVMInvoke, LLVMCallBr]);
    /// `call` (`llvm::CallInst`).
    PlainCall(value) if value.is(LLVMCall);
    PhiNode(value) if value.is(LLVMPHI);
    LandingPad(value) if value.is(LLVMLandingPad);
    IntegerComparison(value) if value.is(LLVMICmp);
    FloatComparison(value) if value.is(LLVMFCmp);
    ValueExtract(value) if value.is(LLVMExtractValue);
    AtomicUpdate(value) if value.is(LLVMAtomicRMW);
    /// An access to memory that may be volatile.
    AccessInstruction(value) if value.is_one_of(&[LLVMLoad, LLVMStore, LLVMAtomicRMW, LLVMAtomicCmpXchg]);
    /// An access to memory with one order.
    OrderedAccess(value) if value.is_one_of(&[LLVMLoad, LLVMStore, LLVMAtomicRMW, LLVMFence]);
    /// An operation that has fast-math flags (`llvm::FPMathOperator`).
    FloatOperation(value) if AnyInstruction::of(value).is_some() && LLVMCanValueUseFastMathFlags(value) != 0;
    /// `getelementptr`, as an instruction or a constant (`llvm::GEPOperator`).
    ElementAddress(value) if value.opcode_of_operation() == Some(LLVMGetElementPtr);
    Constant(value) if LLVMIsAConstant(value).is_some();
    ConstantExpression(value) if LLVMIsAConstantExpr(value).is_some();
    /// A constant integer of at most 64 bits.
    ShortInteger(value) if LLVMIsAConstantInt(value).is_some() && LLVMTypeOf(value).width().is_some_and(|bits| bits <= 64);
    /// A constant array or vector of numbers.
    DataSequence(value) if LLVMIsAConstantDataSequential(value).is_some();
    /// A constant array of bytes.
    ConstantText(value) if DataSequence::of(value).is_some_and(|sequence| LLVMIsConstantString(sequence) != 0);
    BlockAddress(value) if LLVMIsABlockAddress(value).is_some();
    Argument(value) if LLVMIsAArgument(value).is_some();
    InlineAssembly(value) if LLVMIsAInlineAsm(value).is_some();
    GlobalValue(value) if LLVMIsAGlobalValue(value).is_some();
    /// A function, a variable or an indirect function.
    GlobalObject(value) if LLVMIsAGlobalObject(value).is_some();
    GlobalVariable(value) if LLVMIsAGlobalVariable(value).is_some();
    FunctionValue(value) if LLVMIsAFunction(value).is_some();
    FunctionWithPersonality(value) if FunctionValue::of(value).is_some_and(|function| LLVMHasPersonalityFn(function) != 0);
    AliasValue(value) if LLVMIsAGlobalAlias(value).is_some();
    IndirectFunction(value) if LLVMIsAGlobalIFunc(value).is_some();
    /// A value that has an alignment.
    AlignedValue(value) if GlobalObject::of(value).is_some() || AccessInstruction::of(value).is_some() || value.is(LLVMAlloca);
    /// A metadata node, or a value as metadata, in turn as a value.
    MetadataNode(value) if LLVMIsAMDNode(value).is_some();
    /// A value of an integer type.
    NumberValue(value) if IntegerType::of(LLVMTypeOf(value)).is_some();
    /// An `i1`.
    ConditionValue(value) if LLVMTypeOf(value).width() == Some(1);
    /// A value of a pointer type.
    Pointer(value) if type_kind(LLVMTypeOf(value)) == LLVMPointerTypeKind;
}

classes! { Type:
    IntegerType(kind) if type_kind(kind) == LLVMIntegerTypeKind;
    FunctionType(kind) if type_kind(kind) == LLVMFunctionTypeKind;
    StructType(kind) if type_kind(kind) == LLVMStructTypeKind;
    ArrayType(kind) if type_kind(kind) == LLVMArrayTypeKind;
    /// A type whose values have a size.
    SizedType(kind) if LLVMTypeIsSized(kind) != 0;
}

classes! { Metadata:
    /// A node (`llvm::MDNode`), which may be attached to instructions, globals and modules; no string, and no value as metadata.
    AttachedNode(node) if !matches!(
        LLVMGetMetadataKind(node),
        LLVMMetadataKind::LLVMMDStringMetadataKind
            | LLVMMetadataKind::LLVMConstantAsMetadataMetadataKind
            | LLVMMetadataKind::LLVMLocalAsMetadataMetadataKind
    );
    /// The description of a function (`DISubprogram`).
    Subprogram(node) if matches!(LLVMGetMetadataKind(node), LLVMMetadataKind::LLVMDISubprogramMetadataKind);
}

classes! { CodeAttribute:
    /// An attribute that has a number or no value.
    NumberAttribute(attribute) if LLVMIsEnumAttribute(attribute) != 0;
    TypeAttribute(attribute) if LLVMIsTypeAttribute(attribute) != 0;
    TextAttribute(attribute) if LLVMIsStringAttribute(attribute) != 0;
}

classes! { AttributeKind:
    KnownAttributeKind(kind) if kind.is_known();
}

impl Value {
    /// Returns true for an instruction with this opcode.
    pub fn is(self, opcode: LLVMOpcode) -> bool {
        self.is_one_of(&[opcode])
    }

    /// Returns true for an instruction with one of these opcodes.
    pub fn is_one_of(self, opcodes: &[LLVMOpcode]) -> bool {
        AnyInstruction::of(self).is_some_and(|instruction| opcodes.contains(&LLVMGetInstructionOpcode(instruction)))
    }

    /// Returns the opcode of an instruction or a constant expression.
    fn opcode_of_operation(self) -> Option<LLVMOpcode> {
        let expression = || ConstantExpression::of(self).map(|it| LLVMGetConstOpcode(it));
        AnyInstruction::of(self).map(|it| LLVMGetInstructionOpcode(it)).or_else(expression)
    }
}
