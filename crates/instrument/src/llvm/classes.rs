//! Classes of values, types, attributes and metadata, as far as functions of LLVM-C require them. A class has one constructor, which tests
//! for it ([`Class::of`], in [`checks`]).
//!
//! A live value keeps its class. Only whether an instruction is in a block can change, so a [`PlacedInstruction`] is made for the next call
//! and not kept.

mod checks;

use super::handles::{AttributeKind, CodeAttribute, Metadata, Type, Value};

/// A class of what `Of` is a handle to.
pub trait Class<Of>: Sized {
    /// The class's name, for messages.
    const NAME: &'static str;

    /// Returns the handle as one of this class, if it is.
    fn of(handle: Of) -> Option<Self>;
}

/// Defines classes.
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
    /// An instruction in a block.
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
    /// An access to memory that may be volatile.
    AccessInstruction;
    /// An access to memory with one order.
    OrderedAccess;
    /// An operation that has fast-math flags (`llvm::FPMathOperator`).
    FloatOperation;
    /// `getelementptr`, as an instruction or a constant (`llvm::GEPOperator`).
    ElementAddress;
    Constant;
    ConstantExpression;
    /// A constant integer of at most 64 bits.
    ShortInteger;
    /// A constant array or vector of numbers.
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
    /// A metadata node, or a value as metadata, in turn as a value.
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
    /// A node (`llvm::MDNode`), which may be attached to instructions, globals and modules; no string, and no value as metadata.
    AttachedNode;
    /// The description of a function (`DISubprogram`).
    Subprogram;
}

classes! { CodeAttribute:
    /// An attribute that has a number or no value.
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
    /// It is not.
    #[track_caller]
    pub(super) fn expect<C: Class<Value>>(self) -> C {
        C::of(self).unwrap_or_else(|| panic!("`{}` is not of class {}", self.printed().trim(), C::NAME))
    }
}

impl Metadata {
    /// Checks that the metadata is of a class.
    ///
    /// # Panics
    /// It is not.
    #[track_caller]
    pub(super) fn expect<C: Class<Metadata>>(self) -> C {
        C::of(self).unwrap_or_else(|| panic!("the metadata is not of class {}", C::NAME))
    }
}

impl Type {
    /// Checks that the type is of a class.
    ///
    /// # Panics
    /// It is not.
    #[track_caller]
    pub(super) fn expect<C: Class<Type>>(self) -> C {
        C::of(self).unwrap_or_else(|| panic!("`{}` is not of class {}", self.printed(), C::NAME))
    }
}
