//! Value numbering along one path: finds computations and loads that repeat an earlier result of the path, and computations
//! with constant operands.
//!
//! Local value numbering (Cocke and Schwartz, 1970) treats the blocks of a path as one block, in which a phi node is the value that arrives
//! along the path. Two values share a number only if they are equal whenever the path is executed. A store makes its value known to later
//! loads and invalidates memory that may overlap. A call that may write invalidates all memory that is not constant.

use super::walks::ExecutedBlockPath;
use std::collections::HashMap;
use trodden_flow::Node;
use trodden_unit::properties::*;

/// Identifies a step, which is a computation, a load or a store, by its block and its index among the block's steps.
pub type StepPosition = (Node, u32);

/// A value number: two values with the same number are equal whenever the current path is executed.
type ValueNumber = u32;

/// Whether the result of a step was already known from earlier steps of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    New,
    /// This earlier step had computed the same result.
    Known(StepPosition),
    /// All operands are constant on this path, and so is the result.
    Constant,
}

/// Numbers values along paths of one function, one path at a time.
pub struct ValueTracer<'a> {
    unit: &'a UnitProperties,
    function: &'a FunctionProperties,
    commutes: Vec<bool>,
    /// The number of each value on this path, or `None` if the value's index is its number.
    numbers: Vec<Option<ValueNumber>>,
    assigned: Vec<ValueId>,
    /// Properties of each value number. The first numbers belong to the function's own values.
    known: Vec<NumberProperties>,
    computed: HashMap<(OperationId, Vec<ValueNumber>), (ValueNumber, StepPosition)>,
    addresses: HashMap<(ValueNumber, i64), ValueNumber>,
    memory: Vec<MemoryCell>,
}

#[derive(Clone, Copy)]
struct NumberProperties {
    constant: bool,
    /// If the value is an address, these are its root and, if known, its offset from the root in bytes.
    root: ValueNumber,
    bytes: Option<i64>,
    /// Whether the value is the address of a distinct object, which overlaps no other such object.
    object: bool,
}

/// A memory location whose content is known.
struct MemoryCell {
    address: ValueNumber,
    operation: OperationId,
    access: AccessedMemory,
    content: ValueNumber,
    from: StepPosition,
    constant: bool,
}

impl<'a> ValueTracer<'a> {
    pub fn new(unit: &'a UnitProperties, function: &'a FunctionProperties) -> ValueTracer<'a> {
        let commutes = unit.operations.iter().map(|name| is_commutative(name)).collect();
        let known = function.values.iter().enumerate().map(|(i, value)| NumberProperties::new(i as ValueNumber, value)).collect();
        ValueTracer {
            unit,
            function,
            commutes,
            numbers: vec![None; function.values.len()],
            assigned: Vec::new(),
            known,
            computed: HashMap::new(),
            addresses: HashMap::new(),
            memory: Vec::new(),
        }
    }

    pub fn trace_path(&mut self, walk: &ExecutedBlockPath, mut visit: impl FnMut(StepPosition, StepResult)) {
        self.reset();
        let function = self.function;
        for (at, &block) in walk.blocks.iter().enumerate() {
            let Some(properties) = function.blocks.get(block.index()) else { continue };
            if let Some(&before) = at.checked_sub(1).and_then(|b| walk.blocks.get(b)) {
                self.assign_phis(&properties.phis, before);
            }
            for (place, step) in (0..).zip(&properties.steps) {
                if let Some(result) = self.trace_step(&step.what, (block, place)) {
                    visit((block, place), result);
                }
            }
        }
    }

    fn reset(&mut self) {
        for value in self.assigned.drain(..) {
            self.numbers[value.0 as usize] = None;
        }
        self.known.truncate(self.function.values.len());
        self.computed.clear();
        self.addresses.clear();
        self.memory.clear();
    }

    /// Assigns the phi nodes of a block. All incoming values are read before any node is assigned.
    fn assign_phis(&mut self, phis: &[Phi], before: Node) {
        let incoming = |p: &Phi| p.incoming.iter().find(|(from, _)| *from == before).map(|(_, value)| (p.result, *value));
        let values: Vec<(ValueId, ValueNumber)> =
            phis.iter().filter_map(incoming).map(|(result, v)| (result, self.value_number_of(v))).collect();
        values.into_iter().for_each(|(result, number)| self.assign(result, number));
    }

    fn trace_step(&mut self, what: &BlockAction, place: StepPosition) -> Option<StepResult> {
        match what {
            BlockAction::Compute { result, operation, operands } => Some(self.number_computation(*result, *operation, operands, place)),
            BlockAction::Offset { result, base, bytes } => {
                let number = self.number_address(*base, *bytes);
                self.assign(*result, number);
                None
            }
            BlockAction::Load { result, operation, access, constant } => {
                Some(self.number_load(*result, *operation, *access, *constant, place))
            }
            BlockAction::Store { value, operation, access } => {
                self.record_store(*value, *operation, *access, place);
                None
            }
            BlockAction::Clobber => {
                self.memory.retain(|cell| cell.constant);
                None
            }
        }
    }

    fn number_computation(&mut self, result: ValueId, operation: OperationId, operands: &[ValueId], place: StepPosition) -> StepResult {
        let mut key: Vec<ValueNumber> = operands.iter().map(|o| self.value_number_of(*o)).collect();
        if self.commutes[operation.0 as usize] {
            key.sort_unstable();
        }
        // If the operands are constant on every path, the compiler folds the computation.
        let always_constant = operands.iter().all(|o| self.known[o.0 as usize].constant);
        let constant = !always_constant && key.iter().all(|n| self.known[*n as usize].constant);
        if let Some(&(number, from)) = self.computed.get(&(operation, key.clone())) {
            self.assign(result, number);
            return if constant { StepResult::Constant } else { StepResult::Known(from) };
        }
        let address = self.unit.operations[operation.0 as usize].starts_with("getelementptr");
        let object = key.first().filter(|_| address).map(|base| self.known[*base as usize]);
        let number = self.new_number(constant || always_constant, object);
        self.computed.insert((operation, key), (number, place));
        self.assign(result, number);
        if constant { StepResult::Constant } else { StepResult::New }
    }

    /// Numbers an address with a constant offset. Equal offsets from the same root get the same number.
    fn number_address(&mut self, base: ValueId, bytes: i64) -> ValueNumber {
        let from = self.value_number_of(base);
        let NumberProperties { root, bytes: so_far, constant, .. } = self.known[from as usize];
        let (root, distance) = so_far.map_or((from, bytes), |b| (root, b.wrapping_add(bytes)));
        if let Some(&known) = self.addresses.get(&(root, distance)) {
            return known;
        }
        let number = self.new_number(constant, Some(self.known[from as usize]));
        let fresh = &mut self.known[number as usize];
        // An address at an unknown offset is not a root, since two such addresses may be equal.
        if so_far.is_some() {
            fresh.bytes = Some(distance);
        }
        self.addresses.insert((root, distance), number);
        number
    }

    fn number_load(
        &mut self,
        result: ValueId,
        operation: OperationId,
        access: AccessedMemory,
        constant: bool,
        place: StepPosition,
    ) -> StepResult {
        let address = self.value_number_of(access.address);
        let is_known = |c: &&MemoryCell| {
            c.operation == operation && self.is_same_address(c.address, address) && self.remains_valid_for(c.access.class, access.class)
        };
        if let Some(cell) = self.memory.iter().find(is_known) {
            let (content, from) = (cell.content, cell.from);
            self.assign(result, content);
            return StepResult::Known(from);
        }
        // The content needs a new number, because a phi node of this path may have given the value's own number to a different value.
        let content = self.new_number(false, None);
        self.assign(result, content);
        self.memory.push(MemoryCell { address, operation, access, content, from: place, constant });
        StepResult::New
    }

    fn record_store(&mut self, value: ValueId, operation: OperationId, access: AccessedMemory, place: StepPosition) {
        let (address, content) = (self.value_number_of(access.address), self.value_number_of(value));
        let mut memory = std::mem::take(&mut self.memory);
        memory.retain(|cell| cell.constant || !self.may_alias((cell.address, cell.access), (address, access)));
        memory.push(MemoryCell { address, operation, access, content, from: place, constant: false });
        self.memory = memory;
    }

    fn is_same_address(&self, a: ValueNumber, b: ValueNumber) -> bool {
        let (x, y) = (self.known[a as usize], self.known[b as usize]);
        a == b || (x.root == y.root && x.bytes.is_some() && x.bytes == y.bytes)
    }

    fn may_alias(&self, (a, one): (ValueNumber, AccessedMemory), (b, other): (ValueNumber, AccessedMemory)) -> bool {
        let (x, y) = (self.known[a as usize], self.known[b as usize]);
        if x.root != y.root && self.known[x.root as usize].object && self.known[y.root as usize].object {
            return false;
        }
        if let (true, Some(p), Some(q)) = (x.root == y.root, x.bytes, y.bytes) {
            let apart = |p: i64, size: u64, q: i64| i128::from(p) + i128::from(size) <= i128::from(q);
            return !apart(p, one.size, q) && !apart(q, other.size, p);
        }
        one.class.zip(other.class).is_none_or(|(c, d)| self.classes_may_alias(c, d))
    }

    /// Returns true if every store that cannot affect an access of type class `known` cannot affect an access of type class `wanted`
    /// either. Type classes form a tree, as LLVM's type-based alias metadata does; `None` may alias everything.
    fn remains_valid_for(&self, known: Option<MemoryClassId>, wanted: Option<MemoryClassId>) -> bool {
        known.is_none_or(|known| wanted.is_some_and(|wanted| self.enclosing_classes(wanted).any(|c| c == known)))
    }

    /// Iterates over a type class and its ancestors. The iteration is bounded, because corrupt input may make classes contain themselves.
    fn enclosing_classes(&self, class: MemoryClassId) -> impl Iterator<Item = MemoryClassId> {
        std::iter::successors(Some(class), |c| self.unit.classes[c.0 as usize]).take(self.unit.classes.len())
    }

    /// Returns true if accesses of two type classes may overlap: if one class contains the other, or if their roots differ. Different roots
    /// come from different languages, whose types cannot be compared.
    fn classes_may_alias(&self, a: MemoryClassId, b: MemoryClassId) -> bool {
        self.enclosing_classes(a).any(|c| c == b)
            || self.enclosing_classes(b).any(|c| c == a)
            || self.enclosing_classes(a).last() != self.enclosing_classes(b).last()
    }

    fn value_number_of(&self, value: ValueId) -> ValueNumber {
        self.numbers[value.0 as usize].unwrap_or(value.0)
    }

    fn assign(&mut self, value: ValueId, number: ValueNumber) {
        self.numbers[value.0 as usize] = Some(number);
        self.assigned.push(value);
    }

    /// Creates a value number that no other value has. If `base` is given, the value is an address at an unknown offset from the root of
    /// `base`.
    fn new_number(&mut self, constant: bool, base: Option<NumberProperties>) -> ValueNumber {
        let number = self.known.len() as ValueNumber;
        let (root, bytes) = base.map_or((number, Some(0)), |b| (b.root, None));
        self.known.push(NumberProperties { constant, root, bytes, object: false });
        number
    }
}

impl NumberProperties {
    fn new(number: ValueNumber, value: &ValueProperties) -> NumberProperties {
        let constant = matches!(value.kind, ValueKind::Integer(_) | ValueKind::Constant);
        let (root, bytes) = value.object.map_or((number, Some(0)), |(object, bytes)| (object.0, bytes));
        NumberProperties { constant, root, bytes, object: value.kind == ValueKind::Object }
    }
}

fn is_commutative(operation: &str) -> bool {
    let word = operation.split(' ').next().unwrap_or_default();
    matches!(word, "add" | "mul" | "and" | "or" | "xor" | "fadd" | "fmul")
        || operation.starts_with("icmp eq")
        || operation.starts_with("icmp ne")
}

#[cfg(test)]
mod tests;
