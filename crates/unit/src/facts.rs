//! What the blocks of a unit compute: enough to see, along a path, which computations and loads repeat what was done before.
//!
//! Not part of a [`crate::UnitMap`]: the plugin makes these of a unit's kept bitcode on demand (`facts=FILE`), for
//! `trodden advise`. Values are numbered within a function; an operation is known by its name with everything that is
//! not an operand (`icmp ult`, `load i32`), so two steps of one operation on equal operands compute one value.
//!
//! Wire format: postcard of [`UnitFacts`]; [`FACTS_VERSION`] comes first in it.

use crate::map::{Position, Scope};
use serde::{Deserialize, Serialize};
use trodden_flow::Node;

/// Version of the wire format of [`UnitFacts`].
pub const FACTS_VERSION: u32 = 1;

/// A value of a function, by its place in [`FunctionFacts::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// An operation, by its place in [`UnitFacts::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId(pub u32);

/// A class of memory, by its place in [`UnitFacts::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClassId(pub u32);

/// The facts of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitFacts {
    /// [`FACTS_VERSION`].
    pub version: u32,
    /// Files that positions name; those of the unit's map, if it is the map of this bitcode.
    pub files: Vec<String>,
    /// Scopes that positions name, likewise.
    pub scopes: Vec<Scope>,
    /// Names of operations.
    pub operations: Vec<String>,
    /// For each class of memory the class that contains it. Accesses of two classes do not meet unless one contains the other.
    pub classes: Vec<Option<ClassId>>,
    /// The instrumented functions.
    pub functions: Vec<FunctionFacts>,
}

/// The facts of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionFacts {
    /// Linkage name.
    pub name: String,
    /// What is known of each value.
    pub values: Vec<ValueFact>,
    /// The blocks, numbered as in the function's map; a hub has no facts.
    pub blocks: Vec<BlockFacts>,
}

/// What is known of a value without regard to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueFact {
    /// What it is.
    pub kind: ValueKind,
    /// For an address that the linker computes: the object it points into, and the distance from its beginning in bytes if that is known.
    pub object: Option<(ValueId, Option<i64>)>,
}

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ValueKind {
    /// A whole number.
    Integer(i64),
    /// Another constant.
    Constant,
    /// The address of an object of its own: a variable of the function or of the program, or memory that nothing else points to.
    Object,
    /// Anything else.
    Other,
}

/// What a block does, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockFacts {
    /// Values that depend on where control comes from.
    pub phis: Vec<Phi>,
    /// Computations and accesses to memory.
    pub steps: Vec<Step>,
}

/// A value chosen by the edge through which the block was entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phi {
    /// The value.
    pub result: ValueId,
    /// What it is behind each block that leads here.
    pub incoming: Vec<(Node, ValueId)>,
}

/// Something that a block does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What.
    pub what: Action,
    /// Where it comes from.
    pub position: Option<Position>,
}

/// A computation or an access to memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// A value that depends on nothing but the operands.
    Compute {
        /// The value.
        result: ValueId,
        /// What is done.
        operation: OperationId,
        /// To what.
        operands: Vec<ValueId>,
    },
    /// An address at a distance from another.
    Offset {
        /// The address.
        result: ValueId,
        /// The other.
        base: ValueId,
        /// Distance in bytes.
        bytes: i64,
    },
    /// A value read from memory.
    Load {
        /// The value.
        result: ValueId,
        /// Name of the operation; it tells the type.
        operation: OperationId,
        /// From where.
        access: Access,
        /// Nothing ever writes there.
        constant: bool,
    },
    /// A value written to memory.
    Store {
        /// The value.
        value: ValueId,
        /// The load that would read it back as it is.
        operation: OperationId,
        /// To where.
        access: Access,
    },
    /// Anything may be written: a call, an atomic operation.
    Clobber,
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Address.
    pub address: ValueId,
    /// Bytes.
    pub size: u64,
    /// Class of memory by the source's types, if known.
    pub class: Option<ClassId>,
}

/// Why bytes are no facts.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Written by another version of the plugin.
    #[error("the facts of a unit have format {0}, this program reads {FACTS_VERSION}: the plugin and trodden are of different versions")]
    Version(u32),
    /// Damaged.
    #[error("the facts of a unit cannot be read: {0}; report it with the unit's source")]
    Damaged(#[from] postcard::Error),
    /// Numbers that name nothing.
    #[error("the facts of function `{0}` are damaged: a number in them names nothing")]
    Inconsistent(String),
}

impl UnitFacts {
    /// The bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("facts are plain data")
    }

    /// Reads what [`UnitFacts::to_bytes`] wrote.
    ///
    /// # Errors
    /// Another version, or damage.
    pub fn from_bytes(bytes: &[u8]) -> Result<UnitFacts, FactsError> {
        let (version, _) = postcard::take_from_bytes::<u32>(bytes)?;
        if version != FACTS_VERSION {
            return Err(FactsError::Version(version));
        }
        let facts: UnitFacts = postcard::from_bytes(bytes)?;
        match facts.functions.iter().find(|f| !facts.fits(f)) {
            Some(bad) => Err(FactsError::Inconsistent(bad.name.clone())),
            None => Ok(facts),
        }
    }

    /// Drops all positions: they are another map's.
    pub fn forget_positions(&mut self) {
        let steps = self.functions.iter_mut().flat_map(|f| &mut f.blocks).flat_map(|b| &mut b.steps);
        steps.for_each(|s| s.position = None);
    }

    /// Whether every number of a function's facts names something.
    fn fits(&self, function: &FunctionFacts) -> bool {
        let value = |v: &ValueId| (v.0 as usize) < function.values.len();
        let operation = |o: &OperationId| (o.0 as usize) < self.operations.len();
        let access = |a: &Access| value(&a.address) && a.class.is_none_or(|c| (c.0 as usize) < self.classes.len());
        let step = |s: &Step| match &s.what {
            Action::Compute { result, operation: o, operands } => value(result) && operation(o) && operands.iter().all(value),
            Action::Offset { result, base, .. } => value(result) && value(base),
            Action::Load { result, operation: o, access: a, .. } => value(result) && operation(o) && access(a),
            Action::Store { value: v, operation: o, access: a } => value(v) && operation(o) && access(a),
            Action::Clobber => true,
        };
        let phi = |p: &Phi| value(&p.result) && p.incoming.iter().all(|(_, v)| value(v));
        let objects = function.values.iter().all(|v| v.object.as_ref().is_none_or(|(v, _)| value(v)));
        objects && function.blocks.iter().all(|b| b.phis.iter().all(phi) && b.steps.iter().all(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> UnitFacts {
        let load = Action::Load {
            result: ValueId(1),
            operation: OperationId(0),
            access: Access { address: ValueId(0), size: 4, class: None },
            constant: false,
        };
        let blocks = vec![BlockFacts { phis: Vec::new(), steps: vec![Step { what: load, position: None }] }];
        let values = vec![ValueFact { kind: ValueKind::Object, object: None }, ValueFact { kind: ValueKind::Other, object: None }];
        let function = FunctionFacts { name: "f".into(), values, blocks };
        UnitFacts {
            version: FACTS_VERSION,
            files: Vec::new(),
            scopes: Vec::new(),
            operations: vec!["load i32".into()],
            classes: Vec::new(),
            functions: vec![function],
        }
    }

    #[test]
    fn facts_come_back() {
        assert_eq!(UnitFacts::from_bytes(&facts().to_bytes()).unwrap(), facts());
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let mut wrong = facts();
        wrong.functions[0].values.pop();
        assert!(matches!(UnitFacts::from_bytes(&wrong.to_bytes()), Err(FactsError::Inconsistent(name)) if name == "f"));
        let mut newer = facts();
        newer.version += 1;
        assert!(matches!(UnitFacts::from_bytes(&newer.to_bytes()), Err(FactsError::Version(2))));
    }
}
