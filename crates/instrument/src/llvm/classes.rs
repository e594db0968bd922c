//! Classes of LLVM handles: subsets of the values, types, attributes and metadata that certain functions of LLVM-C require. A class has one
//! constructor, which tests whether a handle belongs to it ([`HandleClass::of`], in [`checks`]).
//!
//! A live value never changes its class, with one exception: an instruction can be inserted in a block or removed from it. So a
//! [`PlacedInstruction`] is only created for the next call and not kept.

mod checks;

use super::handles::{AttributeKind, CodeAttribute, Metadata, Type, Value};

/// A type that wraps those handles of type `Of` which belong to a certain class.
pub trait HandleClass<Of>: Sized {
    /// The class's name, for messages.
    const NAME: &'static str;

    /// Returns the handle as a member of this class; `None` if it is not one.
    fn of(handle: Of) -> Option<Self>;
}

/// Defines a type for each listed class, as a wrapper of `$of`.
macro_rules! classes {
    ($of:ident: $($(#[$what:meta])* $name:ident;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name($of);

        impl From<$name> for $of {
            fn from(of_class: $name) -> $of {
                of_class.0
            }
        }
    )*};
}

classes! { Value:
    /// A value with operands (`llvm::User`).
    UserValue;
    AnyInstruction;
    /// An instruction that is in a block.
    PlacedInstruction;
    Terminator;
    Branch;
    ConditionalBranch;
    Switch;
    Invoke;
    /// `call`, `invoke` or `callbr` (`llvm::CallBase`).
    CallInstruction;
    /// `call` (`llvm::CallInst`).
    PlainCall;
    PhiNode;
    LandingPad;
    IntegerComparison;
    FloatComparison;
    ValueExtract;
    AtomicUpdate;
    /// A memory access that may be volatile.
    AccessInstruction;
    /// A memory access with a single atomic ordering.
    OrderedAccess;
    /// An operation that has fast-math flags (`llvm::FPMathOperator`).
    FloatOperation;
    /// `getelementptr`, as an instruction or a constant (`llvm::GEPOperator`).
    ElementAddress;
    Constant;
    ConstantExpression;
    /// A constant integer of at most 64 bits.
    ShortInteger;
    /// A constant array or vector whose elements are plain numbers.
    DataSequence;
    /// A constant array of bytes.
    ConstantText;
    BlockAddress;
    Argument;
    InlineAssembly;
    GlobalValue;
    /// A function, a variable or an indirect function.
    GlobalObject;
    GlobalVariable;
    FunctionValue;
    FunctionWithPersonality;
    AliasValue;
    IndirectFunction;
    /// A value that has an alignment.
    AlignedValue;
    /// A metadata node, or a value wrapped as metadata, that is itself wrapped as a value.
    MetadataNode;
    /// A value of an integer type.
    NumberValue;
    /// An `i1`.
    ConditionValue;
    /// A value of a pointer type.
    Pointer;
}

classes! { Type:
    IntegerType;
    FunctionType;
    StructType;
    ArrayType;
    /// A type whose values have a size.
    SizedType;
}

classes! { Metadata:
    /// A node (`llvm::MDNode`), which may be attached to instructions, globals and modules. Strings and wrapped values are not nodes.
    AttachedNode;
    /// The description of a function (`DISubprogram`).
    Subprogram;
}

classes! { CodeAttribute:
    /// An attribute with an integer value, or without a value.
    NumberAttribute;
    TypeAttribute;
    TextAttribute;
}

classes! { AttributeKind:
    KnownAttributeKind;
}

impl Value {
    /// Checks that the value is of a class.
    ///
    /// # Panics
    /// Panics if it is not.
    #[track_caller]
    pub(super) fn expect<C: HandleClass<Value>>(self) -> C {
        C::of(self).unwrap_or_else(|| panic!("`{}` is not of class {}", self.printed().trim(), C::NAME))
    }
}

impl Metadata {
    /// Checks that the metadata is of a class.
    ///
    /// # Panics
    /// Panics if it is not.
    #[track_caller]
    pub(super) fn expect<C: HandleClass<Metadata>>(self) -> C {
        C::of(self).unwrap_or_else(|| panic!("the metadata is not of class {}", C::NAME))
    }
}

impl Type {
    /// Checks that the type is of a class.
    ///
    /// # Panics
    /// Panics if it is not.
    #[track_caller]
    pub(super) fn expect<C: HandleClass<Type>>(self) -> C {
        C::of(self).unwrap_or_else(|| panic!("`{}` is not of class {}", self.printed(), C::NAME))
    }
}
