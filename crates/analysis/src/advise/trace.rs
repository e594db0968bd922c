//! Values along one path: which computations and loads repeat an earlier result of the path, and which have constant operands there.
//!
//! This is local value numbering (Cocke and Schwartz, 1970) over the blocks of a path as if they were one block. A phi node is the value
//! that comes along the path, so expressions are compared through phi nodes. Two values have one number only if they are equal whenever
//! the path is executed. A store makes its value known to later loads, and invalidates memory that may overlap. A call that may write
//! invalidates all memory but constants.

use super::walks::BlockWalk;
use std::collections::HashMap;
use trodden_flow::Node;
use trodden_unit::properties::*;

/// A step: the block and the index among its steps.
pub type StepPlace = (Node, u32);

/// The number of a value on the current path.
type Number = u32;

/// The result of a step on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finds {
    /// A result that is new.
    New,
    /// The result of this earlier step.
    Known(StepPlace),
    /// Operands that are constants on the path.
    Constant,
}

/// Numbers values along paths of one function, one path at a time.
pub struct Tracer<'a> {
    unit: &'a UnitProperties,
    function: &'a FunctionProperties,
    commutes: Vec<bool>,
    /// The number of each value, if it has one on this path.
    numbers: Vec<Option<Number>>,
    given: Vec<ValueId>,
    /// The known properties of each number; those of values come first.
    known: Vec<Known>,
    computed: HashMap<(OperationId, Vec<Number>), (Number, StepPlace)>,
    addresses: HashMap<(Number, i64), Number>,
    memory: Vec<Cell>,
}

/// The known properties of a number.
#[derive(Clone, Copy)]
struct Known {
    constant: bool,
    /// As an address: its root and the distance from it in bytes.
    root: Number,
    bytes: Option<i64>,
    /// The value is an object of its own: addresses in it do not overlap addresses in another such object.
    object: bool,
}

/// A place in memory whose content is known.
struct Cell {
    address: Number,
    operation: OperationId,
    access: AccessedMemory,
    content: Number,
    from: StepPlace,
    constant: bool,
}

impl<'a> Tracer<'a> {
    /// For a function.
    pub fn new(unit: &'a UnitProperties, function: &'a FunctionProperties) -> Tracer<'a> {
        let commutes = unit.operations.iter().map(|name| commutes(name)).collect();
        let known = function.values.iter().enumerate().map(|(i, value)| Known::new(i as Number, value)).collect();
        Tracer {
            unit,
            function,
            commutes,
            numbers: vec![None; function.values.len()],
            given: Vec::new(),
            known,
            computed: HashMap::new(),
            addresses: HashMap::new(),
            memory: Vec::new(),
        }
    }

    /// Follows a path and calls `visit` with the result of each computation and load.
    pub fn follow(&mut self, walk: &BlockWalk, mut visit: impl FnMut(StepPlace, Finds)) {
        self.forget();
        let function = self.function;
        for (at, &block) in walk.blocks.iter().enumerate() {
            let Some(properties) = function.blocks.get(block.index()) else { continue };
            if let Some(&before) = at.checked_sub(1).and_then(|b| walk.blocks.get(b)) {
                self.arrive(&properties.phis, before);
            }
            for (place, step) in (0..).zip(&properties.steps) {
                if let Some(finds) = self.step(&step.what, (block, place)) {
                    visit((block, place), finds);
                }
            }
        }
    }

    fn forget(&mut self) {
        for value in self.given.drain(..) {
            self.numbers[value.0 as usize] = None;
        }
        self.known.truncate(self.function.values.len());
        self.computed.clear();
        self.addresses.clear();
        self.memory.clear();
    }

    /// All phi nodes of a block take their values at once.
    fn arrive(&mut self, phis: &[Phi], before: Node) {
        let incoming = |p: &Phi| p.incoming.iter().find(|(from, _)| *from == before).map(|(_, value)| (p.result, *value));
        let values: Vec<(ValueId, Number)> = phis.iter().filter_map(incoming).map(|(result, v)| (result, self.number(v))).collect();
        values.into_iter().for_each(|(result, number)| self.give(result, number));
    }

    fn step(&mut self, what: &BlockAction, place: StepPlace) -> Option<Finds> {
        match what {
            BlockAction::Compute { result, operation, operands } => Some(self.compute(*result, *operation, operands, place)),
            BlockAction::Offset { result, base, bytes } => {
                let number = self.offset(*base, *bytes);
                self.give(*result, number);
                None
            }
            BlockAction::Load { result, operation, access, constant } => Some(self.load(*result, *operation, *access, *constant, place)),
            BlockAction::Store { value, operation, access } => {
                self.store(*value, *operation, *access, place);
                None
            }
            BlockAction::Clobber => {
                self.memory.retain(|cell| cell.constant);
                None
            }
        }
    }

    fn compute(&mut self, result: ValueId, operation: OperationId, operands: &[ValueId], place: StepPlace) -> Finds {
        let mut key: Vec<Number> = operands.iter().map(|o| self.number(*o)).collect();
        if self.commutes[operation.0 as usize] {
            key.sort_unstable();
        }
        // A constant on every path is left to the compiler.
        let anyway = operands.iter().all(|o| self.known[o.0 as usize].constant);
        let constant = !anyway && key.iter().all(|n| self.known[*n as usize].constant);
        if let Some(&(number, from)) = self.computed.get(&(operation, key.clone())) {
            self.give(result, number);
            return if constant { Finds::Constant } else { Finds::Known(from) };
        }
        let address = self.unit.operations[operation.0 as usize].starts_with("getelementptr");
        let object = key.first().filter(|_| address).map(|base| self.known[*base as usize]);
        let number = self.new_number(constant || anyway, object);
        self.computed.insert((operation, key), (number, place));
        self.give(result, number);
        if constant { Finds::Constant } else { Finds::New }
    }

    /// An address at a distance. Equal distances from one root are one address, in any number of steps.
    fn offset(&mut self, base: ValueId, bytes: i64) -> Number {
        let from = self.number(base);
        let Known { root, bytes: so_far, constant, .. } = self.known[from as usize];
        let (root, distance) = so_far.map_or((from, bytes), |b| (root, b.wrapping_add(bytes)));
        if let Some(&known) = self.addresses.get(&(root, distance)) {
            return known;
        }
        let number = self.new_number(constant, Some(self.known[from as usize]));
        let fresh = &mut self.known[number as usize];
        // An address at an unknown distance is no root: two of them may be equal.
        if so_far.is_some() {
            fresh.bytes = Some(distance);
        }
        self.addresses.insert((root, distance), number);
        number
    }

    fn load(&mut self, result: ValueId, operation: OperationId, access: AccessedMemory, constant: bool, place: StepPlace) -> Finds {
        let address = self.number(access.address);
        let holds =
            |c: &&Cell| c.operation == operation && self.same_address(c.address, address) && self.outlives(c.access.class, access.class);
        if let Some(cell) = self.memory.iter().find(holds) {
            let (content, from) = (cell.content, cell.from);
            self.give(result, content);
            return Finds::Known(from);
        }
        // A phi node of this path may have given its number to another value.
        let content = self.new_number(false, None);
        self.give(result, content);
        self.memory.push(Cell { address, operation, access, content, from: place, constant });
        Finds::New
    }

    fn store(&mut self, value: ValueId, operation: OperationId, access: AccessedMemory, place: StepPlace) {
        let (address, content) = (self.number(access.address), self.number(value));
        let mut memory = std::mem::take(&mut self.memory);
        memory.retain(|cell| cell.constant || !self.may_meet((cell.address, cell.access), (address, access)));
        memory.push(Cell { address, operation, access, content, from: place, constant: false });
        self.memory = memory;
    }

    fn same_address(&self, a: Number, b: Number) -> bool {
        let (x, y) = (self.known[a as usize], self.known[b as usize]);
        a == b || (x.root == y.root && x.bytes.is_some() && x.bytes == y.bytes)
    }

    /// Whether two accesses may touch one byte.
    fn may_meet(&self, (a, one): (Number, AccessedMemory), (b, other): (Number, AccessedMemory)) -> bool {
        let (x, y) = (self.known[a as usize], self.known[b as usize]);
        if x.root != y.root && self.known[x.root as usize].object && self.known[y.root as usize].object {
            return false;
        }
        if let (true, Some(p), Some(q)) = (x.root == y.root, x.bytes, y.bytes) {
            let apart = |p: i64, size: u64, q: i64| i128::from(p) + i128::from(size) <= i128::from(q);
            return !apart(p, one.size, q) && !apart(q, other.size, p);
        }
        one.class.zip(other.class).is_none_or(|(c, d)| self.classes_meet(c, d))
    }

    /// Whether memory that is unaffected by a store when accessed with one class is also unaffected when accessed with another.
    fn outlives(&self, known: Option<ClassId>, wanted: Option<ClassId>) -> bool {
        known.is_none_or(|known| wanted.is_some_and(|wanted| self.chain(wanted).any(|c| c == known)))
    }

    /// A class and those that contain it. (The chain is at most as long as the number of classes, even if damaged
    /// classes contain themselves.)
    fn chain(&self, class: ClassId) -> impl Iterator<Item = ClassId> {
        std::iter::successors(Some(class), |c| self.unit.classes[c.0 as usize]).take(self.unit.classes.len())
    }

    /// Whether one class contains the other, or they belong to different languages.
    fn classes_meet(&self, a: ClassId, b: ClassId) -> bool {
        self.chain(a).any(|c| c == b) || self.chain(b).any(|c| c == a) || self.chain(a).last() != self.chain(b).last()
    }

    fn number(&self, value: ValueId) -> Number {
        self.numbers[value.0 as usize].unwrap_or(value.0)
    }

    fn give(&mut self, value: ValueId, number: Number) {
        self.numbers[value.0 as usize] = Some(number);
        self.given.push(value);
    }

    /// A number that no value has. As an address it has the root of `base` and an unknown distance.
    fn new_number(&mut self, constant: bool, base: Option<Known>) -> Number {
        let number = self.known.len() as Number;
        let (root, bytes) = base.map_or((number, Some(0)), |b| (b.root, None));
        self.known.push(Known { constant, root, bytes, object: false });
        number
    }
}

impl Known {
    fn new(number: Number, value: &ValueProperties) -> Known {
        let constant = matches!(value.kind, ValueKind::Integer(_) | ValueKind::Constant);
        let (root, bytes) = value.object.map_or((number, Some(0)), |(object, bytes)| (object.0, bytes));
        Known { constant, root, bytes, object: value.kind == ValueKind::Object }
    }
}

/// Whether the order of an operation's operands does not matter.
fn commutes(operation: &str) -> bool {
    let word = operation.split(' ').next().unwrap_or_default();
    matches!(word, "add" | "mul" | "and" | "or" | "xor" | "fadd" | "fmul")
        || operation.starts_with("icmp eq")
        || operation.starts_with("icmp ne")
}

#[cfg(test)]
mod tests;
