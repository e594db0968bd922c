//! The test by which each class recognises its members.

use super::*;
use crate::host::type_kind;
use crate::llvm::functions::*;
use llvm_sys::LLVMOpcode::{self, *};
use llvm_sys::LLVMTypeKind::*;
use llvm_sys::debuginfo::LLVMMetadataKind;

/// Defines the constructor of each listed class from a condition.
macro_rules! checks {
    ($of:ident: $($name:ident($handle:ident) if $test:expr;)*) => {$(
        impl HandleClass<$of> for $name {
            const NAME: &'static str = stringify!($name);

            fn of($handle: $of) -> Option<$name> {
                ($test).then_some($name($handle))
            }
        }
    )*};
}

checks! { Value:
    UserValue(value) if LLVMIsAUser(value).is_some();
    AnyInstruction(value) if LLVMIsAInstruction(value).is_some();
    PlacedInstruction(value) if AnyInstruction::of(value).is_some_and(|i| LLVMGetInstructionParent(i).is_some());
    Terminator(value) if LLVMIsATerminatorInst(value).is_some();
    Branch(value) if value.is(LLVMBr);
    ConditionalBranch(value) if Branch::of(value).is_some_and(|branch| LLVMIsConditional(branch) != 0);
    Switch(value) if value.is(LLVMSwitch);
    Invoke(value) if value.is(LLVMInvoke);
    CallInstruction(value) if value.is_one_of(&[LLVMCall, LLVMInvoke, LLVMCallBr]);
    PlainCall(value) if value.is(LLVMCall);
    PhiNode(value) if value.is(LLVMPHI);
    LandingPad(value) if value.is(LLVMLandingPad);
    IntegerComparison(value) if value.is(LLVMICmp);
    FloatComparison(value) if value.is(LLVMFCmp);
    ValueExtract(value) if value.is(LLVMExtractValue);
    AtomicUpdate(value) if value.is(LLVMAtomicRMW);
    AccessInstruction(value) if value.is_one_of(&[LLVMLoad, LLVMStore, LLVMAtomicRMW, LLVMAtomicCmpXchg]);
    OrderedAccess(value) if value.is_one_of(&[LLVMLoad, LLVMStore, LLVMAtomicRMW, LLVMFence]);
    FloatOperation(value) if AnyInstruction::of(value).is_some() && LLVMCanValueUseFastMathFlags(value) != 0;
    ElementAddress(value) if value.opcode_of_operation() == Some(LLVMGetElementPtr);
    Constant(value) if LLVMIsAConstant(value).is_some();
    ConstantExpression(value) if LLVMIsAConstantExpr(value).is_some();
    ShortInteger(value) if LLVMIsAConstantInt(value).is_some() && LLVMTypeOf(value).width().is_some_and(|bits| bits <= 64);
    DataSequence(value) if LLVMIsAConstantDataSequential(value).is_some();
    ConstantText(value) if DataSequence::of(value).is_some_and(|sequence| LLVMIsConstantString(sequence) != 0);
    BlockAddress(value) if LLVMIsABlockAddress(value).is_some();
    Argument(value) if LLVMIsAArgument(value).is_some();
    InlineAssembly(value) if LLVMIsAInlineAsm(value).is_some();
    GlobalValue(value) if LLVMIsAGlobalValue(value).is_some();
    GlobalObject(value) if LLVMIsAGlobalObject(value).is_some();
    GlobalVariable(value) if LLVMIsAGlobalVariable(value).is_some();
    FunctionValue(value) if LLVMIsAFunction(value).is_some();
    FunctionWithPersonality(value) if FunctionValue::of(value).is_some_and(|function| LLVMHasPersonalityFn(function) != 0);
    AliasValue(value) if LLVMIsAGlobalAlias(value).is_some();
    IndirectFunction(value) if LLVMIsAGlobalIFunc(value).is_some();
    AlignedValue(value) if GlobalObject::of(value).is_some() || AccessInstruction::of(value).is_some() || value.is(LLVMAlloca);
    MetadataNode(value) if LLVMIsAMDNode(value).is_some();
    NumberValue(value) if IntegerType::of(LLVMTypeOf(value)).is_some();
    ConditionValue(value) if LLVMTypeOf(value).width() == Some(1);
    Pointer(value) if type_kind(LLVMTypeOf(value)) == LLVMPointerTypeKind;
}

checks! { Type:
    IntegerType(kind) if type_kind(kind) == LLVMIntegerTypeKind;
    FunctionType(kind) if type_kind(kind) == LLVMFunctionTypeKind;
    StructType(kind) if type_kind(kind) == LLVMStructTypeKind;
    ArrayType(kind) if type_kind(kind) == LLVMArrayTypeKind;
    SizedType(kind) if LLVMTypeIsSized(kind) != 0;
}

checks! { Metadata:
    AttachedNode(node) if !matches!(
        LLVMGetMetadataKind(node),
        LLVMMetadataKind::LLVMMDStringMetadataKind
            | LLVMMetadataKind::LLVMConstantAsMetadataMetadataKind
            | LLVMMetadataKind::LLVMLocalAsMetadataMetadataKind
    );
    Subprogram(node) if matches!(LLVMGetMetadataKind(node), LLVMMetadataKind::LLVMDISubprogramMetadataKind);
}

checks! { CodeAttribute:
    NumberAttribute(attribute) if LLVMIsEnumAttribute(attribute) != 0;
    TypeAttribute(attribute) if LLVMIsTypeAttribute(attribute) != 0;
    TextAttribute(attribute) if LLVMIsStringAttribute(attribute) != 0;
}

checks! { AttributeKind:
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
