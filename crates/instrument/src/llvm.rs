//! The parts of LLVM-C that the plugin uses, as safe functions where types and checks can make them so. What LLVM requires of an argument
//! is stated in one place. Having a handle ([`handles`]) means that the object is live. The classes ([`classes`]) in the signatures of the
//! foreign functions ([`functions`]) say that it is a phi node, an integer type, and so on. That an index is in range or two types are
//! equal is checked before the only call of the function concerned. A violation is a bug in the plugin and ends the compilation with an
//! internal error.
//!
//! Functions after which handles may dangle are unsafe. Each deletion, each run of passes and each replacement of a constant says why
//! nothing uses what is gone.

mod block;
mod builder;
mod classes;
mod functions;
mod globals;
mod handles;
mod instructions;
mod metadata;
mod module;
mod passes;
#[cfg(test)]
pub mod test_module;
#[cfg(test)]
mod tests;
mod types;
mod values;

pub use builder::Builder;
pub use classes::{HandleClass, Subprogram, Switch};
pub use handles::{
    Block, CodeAttribute, DebugFile, DebugLocation, LocalScope, Metadata, Module, OwnedPassError, PassOptionsHandle, TargetMachine,
    Terminated, Type, Value,
};
pub use module::OwnedModule;
pub use passes::PassOptions;
