//! Repairs SSA form for variables that have several definitions. If control can change between versions of the code, a value has a
//! definition in each version, and both may reach a block where versions meet. The blocks where a variable is live are found from its uses.
//! The definition that reaches each block is computed as a fixed point in reverse postorder, and phi nodes are created only where different
//! definitions meet in a live block. This follows Braun et al., "Simple and efficient construction of static single assignment form" (CC
//! 2013), section 2, with a worklist because functions may be deep. Cheap values (constant offsets, comparisons, lower parts) are
//! rematerialised instead, because merged ones would occupy a register or stack slot all the time ([`VersionSsaRepair::merge`]). Invariant:
//! blocks and edges stay the same from [`VersionSsaRepair::new`] to the last [`VersionSsaRepair::rewrite_uses`].

use crate::llvm::{Block, Builder, Module, Value};
use crate::shape::predecessors;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use trodden_flow::graph::postorder;

#[derive(Clone, Copy, PartialEq, Debug)]
enum ArrivingDefinition {
    Unknown,
    Definition(usize),
    /// The value of a phi node in this block.
    Phi(usize),
}

/// How the definitions and uses of a variable are distributed over the versions of the code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum VersionDefinitions {
    /// Each version has one definition, and its uses refer to that one.
    OnePerVersion,
    /// There is any number of definitions, and a use may refer to any of them.
    Arbitrary,
}

/// A use of a definition: an operand of an instruction.
struct OperandUse {
    user: Value,
    operand: u32,
    /// The block that the value must reach: that of the user or, for a phi node, the predecessor.
    block: usize,
    /// True if the value is needed at the end of the block (for phi nodes), false if it is needed at its start.
    at_end: bool,
}

pub struct VersionSsaRepair {
    module: Module,
    blocks: Vec<Block>,
    number: IndexMap<Block, usize>,
    /// Predecessors of each block. One with several edges to the block occurs several times.
    predecessors: Vec<Vec<usize>>,
    successors: Vec<Vec<usize>>,
    /// The position of each block in reverse postorder. `order` is the inverse.
    position: Vec<usize>,
    order: Vec<usize>,
    join_blocks: Vec<bool>,
    /// The definition that reaches the start of each block. An entry is only valid for the variable whose number it contains.
    arrivals: Vec<(u32, ArrivingDefinition)>,
    variable: u32,
}

impl VersionSsaRepair {
    /// Reads a function's control flow. `join_blocks` are the blocks where versions meet.
    pub fn new(module: Module, function: Value, join_blocks: &IndexSet<Block>) -> VersionSsaRepair {
        let blocks: Vec<Block> = function.blocks().collect();
        let number: IndexMap<Block, usize> = blocks.iter().enumerate().map(|(i, b)| (*b, i)).collect();
        let incoming: Vec<Vec<usize>> = blocks.iter().map(|b| predecessors(*b).iter().map(|p| number[p]).collect()).collect();
        let mut outgoing = vec![Vec::new(); blocks.len()];
        for (to, sources) in incoming.iter().enumerate() {
            sources.iter().for_each(|&from: &usize| outgoing[from].push(to));
        }
        let order = reverse_postorder(&outgoing);
        let mut position = vec![0; blocks.len()];
        order.iter().enumerate().for_each(|(at, block)| position[*block] = at);
        let join_blocks = blocks.iter().map(|b| join_blocks.contains(b)).collect();
        let arrivals = vec![(0, ArrivingDefinition::Unknown); blocks.len()];
        VersionSsaRepair {
            module,
            blocks,
            number,
            predecessors: incoming,
            successors: outgoing,
            position,
            order,
            join_blocks,
            arrivals,
            variable: 0,
        }
    }

    /// Repairs the uses of variables with several definitions. `two` applies to variables with two definitions; those with more are treated
    /// as `Arbitrary`.
    pub fn merge(&mut self, values: &[Vec<Value>], two: VersionDefinitions) {
        let kind = |definitions: &[Value]| if definitions.len() > 2 { VersionDefinitions::Arbitrary } else { two };
        let mut again: Vec<(&[Value], Vec<Rematerialisation>)> =
            values.iter().filter_map(|d| Some((d.as_slice(), rematerialisations(d, kind(d), two)?))).collect();
        // Start with values that are computed from other values: rematerialising them adds uses of those other values.
        again.sort_by_key(|(definitions, _)| Reverse(rematerialisation_depth(definitions[0])));
        for (definitions, sources) in again {
            self.rematerialise_at_uses(definitions, &sources, kind(definitions));
        }
        for definitions in values {
            self.rewrite_uses(definitions, kind(definitions));
        }
    }

    /// Makes each use of one of the definitions refer to the definition that reaches it.
    pub fn rewrite_uses(&mut self, definitions: &[Value], of_kind: VersionDefinitions) {
        let defined: IndexMap<usize, usize> = definitions.iter().enumerate().map(|(i, d)| (self.number[&d.block()], i)).collect();
        let uses: Vec<OperandUse> = definitions.iter().flat_map(|d| self.uses_elsewhere(*d, &defined)).collect();
        if uses.is_empty() {
            return;
        }
        let Some(live) = self.find_live_blocks(&uses, &defined, of_kind == VersionDefinitions::Arbitrary) else { return };
        let phis = self.solve_arrivals(&live, &defined);
        let kind = definitions[0].kind();
        let mut created = IndexMap::new();
        for &block in &phis {
            created.insert(block, Builder::phi_at_top(self.module, self.blocks[block], kind, None));
        }
        let poison = kind.poison();
        let value = |flow: &VersionSsaRepair, block: usize, at_end: bool| {
            let arrival = match defined.get(&block) {
                Some(definition) if at_end => ArrivingDefinition::Definition(*definition),
                _ => flow.arriving_definition(block),
            };
            match arrival {
                ArrivingDefinition::Definition(definition) => definitions[definition],
                ArrivingDefinition::Phi(block) => created[&block],
                // No definition reaches the block, so it is unreachable.
                ArrivingDefinition::Unknown => poison,
            }
        };
        for &block in &phis {
            let incoming: Vec<_> = self.predecessors[block].iter().map(|&from| (value(self, from, true), self.blocks[from])).collect();
            created[&block].add_incoming(&incoming);
        }
        for OperandUse { user, operand, block, at_end } in uses {
            user.set_operand(operand, value(self, block, at_end));
        }
    }

    /// Rematerialises a variable's value before each use that several definitions reach. Afterwards, the operands of the new instructions
    /// must be repaired in turn.
    fn rematerialise_at_uses(&mut self, definitions: &[Value], sources: &[Rematerialisation], of_kind: VersionDefinitions) {
        let defined: IndexMap<usize, usize> = definitions.iter().enumerate().map(|(i, d)| (self.number[&d.block()], i)).collect();
        let uses: Vec<OperandUse> = definitions.iter().flat_map(|d| self.uses_elsewhere(*d, &defined)).collect();
        let Some(live) = self.find_live_blocks(&uses, &defined, of_kind == VersionDefinitions::Arbitrary) else { return };
        self.solve_arrivals(&live, &defined);
        let source: IndexMap<Value, Rematerialisation> = definitions.iter().copied().zip(sources.iter().copied()).collect();
        let mut created = IndexMap::<(Value, usize, bool), Value>::new();
        for OperandUse { user, operand, block, at_end } in uses {
            let definition = user.operand(operand);
            let value = match self.arriving_definition(block) {
                ArrivingDefinition::Definition(definition) => definitions[definition],
                ArrivingDefinition::Unknown => definition.kind().poison(),
                ArrivingDefinition::Phi(_) => *created.entry((definition, block, at_end)).or_insert_with(|| {
                    let mut others = self.blocks[block].instructions();
                    let before = if at_end { None } else { others.find(|i| uses_value(*i, definition)) };
                    self.rematerialise(definition, source[&definition], before.unwrap_or_else(|| self.blocks[block].terminator()))
                }),
            };
            user.set_operand(operand, value);
        }
    }

    fn rematerialise(&self, definition: Value, source: Rematerialisation, before: Value) -> Value {
        let builder = Builder::before(self.module, before, None);
        match source {
            Rematerialisation::Clone => {
                let copy = definition.duplicate();
                builder.insert(copy);
                copy.set_location(before.location());
                copy
            }
            Rematerialisation::LowerPart(whole) => builder.truncate(whole, definition.kind()),
        }
    }

    /// Returns the uses of a definition outside its block, and those by phi nodes.
    fn uses_elsewhere(&self, definition: Value, defined: &IndexMap<usize, usize>) -> Vec<OperandUse> {
        let home = definition.block();
        let is_reached = |u: &Value| u.is_instruction() && (u.is(LLVMOpcode::LLVMPHI) || u.block() != home);
        // Keep the order of the use list: later passes depend on it, and an order by address would differ from run to run.
        let mut seen = IndexSet::new();
        let users: Vec<Value> = definition.users().filter(|u| is_reached(u) && seen.insert(*u)).collect();
        let mut uses = Vec::new();
        for user in users {
            let at_end = user.is(LLVMOpcode::LLVMPHI);
            for (operand, _) in (0..).zip(user.operands()).filter(|(_, value)| *value == definition) {
                let block = if at_end { user.incoming_block(operand) } else { user.block() };
                let block = self.number[&block];
                if !(at_end && defined.contains_key(&block)) {
                    uses.push(OperandUse { user, operand, block, at_end });
                }
            }
        }
        uses
    }

    /// Returns the blocks at whose start the variable is live. Unless `always` is set, returns `None` if versions meet in none of them.
    fn find_live_blocks(&mut self, uses: &[OperandUse], defined: &IndexMap<usize, usize>, always: bool) -> Option<Vec<usize>> {
        self.variable += 1;
        let mut live = Vec::new();
        let mut stack: Vec<usize> = uses.iter().map(|u| u.block).collect();
        while let Some(block) = stack.pop() {
            if self.arrivals[block].0 == self.variable {
                continue;
            }
            self.arrivals[block] = (self.variable, ArrivingDefinition::Unknown);
            live.push(block);
            stack.extend(self.predecessors[block].iter().filter(|b| !defined.contains_key(*b)));
        }
        // If versions meet nowhere, each definition reaches only its own uses, and there is nothing to repair.
        (always || live.iter().any(|b| self.join_blocks[*b])).then_some(live)
    }

    /// Computes which definition reaches each live block. Returns the blocks that need a phi node, in ascending order.
    fn solve_arrivals(&mut self, live: &[usize], defined: &IndexMap<usize, usize>) -> Vec<usize> {
        // Two definitions reach each block where versions meet. Starting with this avoids phi nodes further on.
        for &block in live.iter().filter(|b| self.join_blocks[**b]) {
            self.arrivals[block].1 = ArrivingDefinition::Phi(block);
        }
        let mut work: BinaryHeap<Reverse<usize>> = live.iter().map(|b| Reverse(self.position[*b])).collect();
        while let Some(Reverse(at)) = work.pop() {
            let block = self.order[at];
            let old = self.arrivals[block].1;
            if old == ArrivingDefinition::Phi(block) {
                continue;
            }
            let mut new = ArrivingDefinition::Unknown;
            for &from in &self.predecessors[block] {
                let incoming = defined.get(&from).map_or_else(|| self.arriving_definition(from), |d| ArrivingDefinition::Definition(*d));
                new = match (new, incoming) {
                    (one, ArrivingDefinition::Unknown) => one,
                    (ArrivingDefinition::Unknown, one) => one,
                    (one, other) if one == other => one,
                    _ => ArrivingDefinition::Phi(block),
                };
            }
            if new != old {
                self.arrivals[block].1 = new;
                let next = self.successors[block].iter().filter(|b| self.arrivals[**b].0 == self.variable);
                work.extend(next.map(|b| Reverse(self.position[*b])));
            }
        }
        let mut phis: Vec<usize> = live.iter().copied().filter(|b| self.arrivals[*b].1 == ArrivingDefinition::Phi(*b)).collect();
        phis.sort();
        phis
    }

    fn arriving_definition(&self, block: usize) -> ArrivingDefinition {
        let (variable, arrival) = self.arrivals[block];
        if variable == self.variable { arrival } else { ArrivingDefinition::Unknown }
    }
}

/// How to compute a value again at a use in another block.
#[derive(Clone, Copy)]
enum Rematerialisation {
    /// By a clone of the instruction.
    Clone,
    /// By truncating this value.
    LowerPart(Value),
}

/// Returns how to rematerialise a value; `None` if that is not worthwhile.
fn rematerialisation(value: Value) -> Option<Rematerialisation> {
    if is_recomputed_by_llvm(value) { Some(Rematerialisation::Clone) } else { zero_extension_of(value).map(Rematerialisation::LowerPart) }
}

/// Returns true if LLVM prefers computing such a value again to keeping it in a register.
fn is_recomputed_by_llvm(value: Value) -> bool {
    match value.opcode() {
        LLVMOpcode::LLVMGetElementPtr => value.operands().skip(1).all(Value::is_constant),
        LLVMOpcode::LLVMBitCast | LLVMOpcode::LLVMPtrToInt | LLVMOpcode::LLVMIntToPtr => true,
        LLVMOpcode::LLVMICmp => value.operands().any(Value::is_constant),
        _ => false,
    }
}

/// Returns a zero extension of an integer in the same block; truncating it gives the integer. Integers of fewer than 8 bits are excluded,
/// because they are not the lower part of a register.
fn zero_extension_of(value: Value) -> Option<Value> {
    let width = |v: Value| v.integer_width().unwrap_or_default();
    let is_extended = |user: &Value| user.is(LLVMOpcode::LLVMZExt) && user.block() == value.block();
    if width(value) < 8 {
        return None;
    }
    value.users().filter(is_extended).min_by_key(|user| width(*user))
}

/// Returns how to rematerialise each definition of a variable; `None` if that is impossible or not worthwhile. `two` is how pairs of
/// definitions are distributed. Comparisons are not rematerialised if uses may refer to any definition (up to 0.8 % more instructions in
/// residual builds), and truncation is not used in residual builds (5 % of an interpreter's instructions).
fn rematerialisations(definitions: &[Value], of_kind: VersionDefinitions, two: VersionDefinitions) -> Option<Vec<Rematerialisation>> {
    let is_allowed = |value: Value, source: &Rematerialisation| match source {
        Rematerialisation::Clone => of_kind == VersionDefinitions::OnePerVersion || !value.is(LLVMOpcode::LLVMICmp),
        Rematerialisation::LowerPart(_) => two == VersionDefinitions::OnePerVersion,
    };
    definitions.iter().map(|d| rematerialisation(*d).filter(|source| is_allowed(*d, source))).collect()
}

/// Returns the length of the chain of rematerialised values on which this value depends, including itself.
fn rematerialisation_depth(value: Value) -> usize {
    let (mut steps, mut at) = (0, value);
    while at.is_instruction()
        && let Some(source) = rematerialisation(at)
    {
        at = match source {
            Rematerialisation::LowerPart(whole) => whole,
            Rematerialisation::Clone if at.is(LLVMOpcode::LLVMICmp) && at.operand(0).is_constant() => at.operand(1),
            Rematerialisation::Clone => at.operand(0),
        };
        steps += 1;
    }
    steps
}

fn uses_value(instruction: Value, value: Value) -> bool {
    !instruction.is(LLVMOpcode::LLVMPHI) && instruction.operands().any(|operand| operand == value)
}

/// Returns all blocks in reverse postorder, starting with those reachable from the first block. Works without recursion, because functions
/// may be deeply nested.
fn reverse_postorder(successors: &[Vec<usize>]) -> Vec<usize> {
    let (mut seen, mut order) = (vec![false; successors.len()], Vec::with_capacity(successors.len()));
    for root in 0..successors.len() {
        order.extend(postorder(root, &mut seen, |block| successors[block].iter().copied()).into_iter().rev());
    }
    order
}
