//! Properties of a unit's instructions. `trodden advise` uses them to find computations and loads on a path that repeat earlier ones.
//!
//! The properties are not part of a [`crate::UnitMap`]: the compiler plugin computes them on demand from stored bitcode
//! ([`UnitAction::Describe`](crate::experiment::UnitAction::Describe)). The name of an operation includes everything except the operands
//! (`icmp ult`, `load i32`), so two steps with the same operation and operands compute the same value.
//!
//! Files contain [`UnitProperties`] in postcard encoding, beginning with [`PROPERTIES_VERSION`].

use crate::map::Scope;
use crate::position::SourcePosition;
use serde::{Deserialize, Serialize};
use trodden_flow::Node;

/// Version of the encoding of [`UnitProperties`].
pub const PROPERTIES_VERSION: u32 = 1;

/// A value in a function, represented by its index in [`FunctionProperties::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// An operation, represented by its index in [`UnitProperties::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId(pub u32);

/// A class of memory, represented by its index in [`UnitProperties::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemoryClassId(pub u32);

/// Properties of the instructions of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitProperties {
    /// [`PROPERTIES_VERSION`].
    pub version: u32,
    /// Source files to which positions refer. They are the same as in the unit's map if both were computed from the same bitcode.
    pub files: Vec<String>,
    /// Scopes to which positions refer. They are the same as in the unit's map if both were computed from the same bitcode.
    pub scopes: Vec<Scope>,
    /// Names of operations.
    pub operations: Vec<String>,
    /// For each class of memory, the class that contains it; `None` for an outermost class. Accesses to two classes can overlap only if one
    /// class contains the other.
    pub classes: Vec<Option<MemoryClassId>>,
    /// The instrumented functions.
    pub functions: Vec<FunctionProperties>,
}

/// Properties of the instructions of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionProperties {
    /// Linkage name.
    pub name: String,
    /// Properties of each value.
    pub values: Vec<ValueProperties>,
    /// Instructions of each block, with the same indices as in the function's map.
    pub blocks: Vec<InstructionProperties>,
}

/// Properties of a value, which it has on every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueProperties {
    /// Its kind.
    pub kind: ValueKind,
    /// For an address that is constant at link time: the object into which it points, and the offset in bytes if known.
    pub object: Option<(ValueId, Option<i64>)>,
}

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ValueKind {
    /// An integer constant.
    Integer(i64),
    /// A constant, but not an integer.
    Constant,
    /// The address of a distinct object: a local or global variable, or memory that can be accessed only through this value.
    Object,
    /// Any other value.
    Other,
}

/// Instructions of a block, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionProperties {
    /// Values that depend on the edge through which the block was entered.
    pub phis: Vec<Phi>,
    /// Computations and memory accesses.
    pub steps: Vec<BlockStep>,
}

/// A value that depends on the edge through which the block was entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phi {
    /// The value.
    pub result: ValueId,
    /// The value for each predecessor of the block.
    pub incoming: Vec<(Node, ValueId)>,
}

/// A step of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockStep {
    /// What the step does.
    pub what: BlockAction,
    /// Its source position.
    pub position: Option<SourcePosition>,
}

/// What a step of a block does: a computation or a memory access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of the fields say their role")]
pub enum BlockAction {
    /// Computes a value that depends only on the operands.
    Compute { result: ValueId, operation: OperationId, operands: Vec<ValueId> },
    /// Computes an address at a constant offset from a base address.
    Offset {
        result: ValueId,
        base: ValueId,
        /// Offset in bytes.
        bytes: i64,
    },
    /// A value read from memory.
    Load {
        result: ValueId,
        /// The operation, whose name includes the type.
        operation: OperationId,
        access: AccessedMemory,
        /// Whether nothing ever writes to the memory.
        constant: bool,
    },
    /// Writes a value to memory.
    Store {
        value: ValueId,
        /// The operation of a load that would read the value back unchanged.
        operation: OperationId,
        access: AccessedMemory,
    },
    /// May write to any memory, such as a call or an atomic operation.
    Clobber,
}

/// A memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessedMemory {
    /// Address.
    pub address: ValueId,
    /// Size in bytes.
    pub size: u64,
    /// Class of the memory according to the types of the source language, if known.
    pub class: Option<MemoryClassId>,
}

/// Reason why bytes cannot be decoded as instruction properties.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum PropertiesError {
    #[error(
        "the instruction properties of a compilation unit have format {0}, but this version of trodden reads format {PROPERTIES_VERSION}. \
         Install the plugin and trodden in the same version"
    )]
    Version(u32),
    #[error("cannot read the instruction properties of a compilation unit: {0}. Please report this bug with its source file")]
    Corrupt(#[from] postcard::Error),
    #[error(
        "the instruction properties of function `{0}` are corrupt: an index is out of range. Please report this bug with the function's \
         source file"
    )]
    Inconsistent(String),
}

impl UnitProperties {
    /// Encodes the properties.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("properties are plain data")
    }

    /// Decodes the result of [`UnitProperties::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<UnitProperties, PropertiesError> {
        let (version, _) = postcard::take_from_bytes::<u32>(bytes)?;
        if version != PROPERTIES_VERSION {
            return Err(PropertiesError::Version(version));
        }
        let properties: UnitProperties = postcard::from_bytes(bytes)?;
        match properties.functions.iter().find(|f| !properties.has_valid_indices(f)) {
            Some(bad) => Err(PropertiesError::Inconsistent(bad.name.clone())),
            None => Ok(properties),
        }
    }

    /// Removes all positions. They are valid only together with a map that was computed from the same bitcode.
    pub fn clear_positions(&mut self) {
        let steps = self.functions.iter_mut().flat_map(|f| &mut f.blocks).flat_map(|b| &mut b.steps);
        steps.for_each(|s| s.position = None);
    }

    fn has_valid_indices(&self, function: &FunctionProperties) -> bool {
        let value = |v: &ValueId| (v.0 as usize) < function.values.len();
        let operation = |o: &OperationId| (o.0 as usize) < self.operations.len();
        let access = |a: &AccessedMemory| value(&a.address) && a.class.is_none_or(|c| (c.0 as usize) < self.classes.len());
        let step = |s: &BlockStep| match &s.what {
            BlockAction::Compute { result, operation: o, operands } => value(result) && operation(o) && operands.iter().all(value),
            BlockAction::Offset { result, base, .. } => value(result) && value(base),
            BlockAction::Load { result, operation: o, access: a, .. } => value(result) && operation(o) && access(a),
            BlockAction::Store { value: v, operation: o, access: a } => value(v) && operation(o) && access(a),
            BlockAction::Clobber => true,
        };
        let phi = |p: &Phi| value(&p.result) && p.incoming.iter().all(|(_, v)| value(v));
        let objects = function.values.iter().all(|v| v.object.as_ref().is_none_or(|(v, _)| value(v)));
        objects && function.blocks.iter().all(|b| b.phis.iter().all(phi) && b.steps.iter().all(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_properties() -> UnitProperties {
        let load = BlockAction::Load {
            result: ValueId(1),
            operation: OperationId(0),
            access: AccessedMemory { address: ValueId(0), size: 4, class: None },
            constant: false,
        };
        let blocks = vec![InstructionProperties { phis: Vec::new(), steps: vec![BlockStep { what: load, position: None }] }];
        let values =
            vec![ValueProperties { kind: ValueKind::Object, object: None }, ValueProperties { kind: ValueKind::Other, object: None }];
        let function = FunctionProperties { name: "f".into(), values, blocks };
        UnitProperties {
            version: PROPERTIES_VERSION,
            files: Vec::new(),
            scopes: Vec::new(),
            operations: vec!["load i32".into()],
            classes: Vec::new(),
            functions: vec![function],
        }
    }

    #[test]
    fn properties_survive_encoding() {
        assert_eq!(UnitProperties::from_bytes(&sample_properties().to_bytes()).unwrap(), sample_properties());
    }

    #[test]
    fn indices_out_of_range_and_newer_versions_are_rejected() {
        let mut wrong = sample_properties();
        wrong.functions[0].values.pop();
        assert!(matches!(UnitProperties::from_bytes(&wrong.to_bytes()), Err(PropertiesError::Inconsistent(name)) if name == "f"));
        let mut newer = sample_properties();
        newer.version += 1;
        assert!(matches!(UnitProperties::from_bytes(&newer.to_bytes()), Err(PropertiesError::Version(2))));
    }
}
