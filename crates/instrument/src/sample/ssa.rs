//! Values that are defined in several places: which of them arrives where, and phi nodes where they meet.
//!
//! When control can change from one version of the code to the other, what was one value is two, and both arrive where
//! the versions meet. The blocks where the value is live are found from its uses; there, which definition arrives is
//! computed to a fixed point, in reverse postorder: one, if all edges bring the same one, else a phi node. So phi nodes
//! are made only where the value is live and definitions meet. The idea, phi nodes made on demand from the uses, is
//! that of Braun et al., "Simple and efficient construction of static single assignment form" (CC 2013), section 2;
//! done by worklist here, since functions may be deep.
//!
//! What code generation would rematerialise where it is used (an address a constant away from another, a comparison) is not
//! merged but rematerialised: merged, it would be in a register or in the stack frame all the time, which in large functions
//! costs more than all else ([`ValueFlow::merge`]). So is what is the lower part of a value beside it: code generation keeps
//! one register for both only if no phi node has the lower part (an interpreter extended each of its instructions' numbers
//! twice).
//!
//! Invariant: blocks and edges do not change between [`ValueFlow::new`] and the last [`ValueFlow::variable`].

use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::shape::predecessors;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use trodden_flow::graph::postorder;

/// What arrives at the beginning of a block.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Arrival {
    /// Nothing is known yet.
    Unknown,
    /// This definition.
    Definition(usize),
    /// The phi node of this block.
    Phi(usize),
}

/// What definitions there are of a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Definitions {
    /// One in each version, of which each version uses its own.
    OnePerVersion,
    /// Any, and the uses name one of them at random.
    Several,
}

/// A use of a definition: an operand of an instruction.
struct Use {
    user: Value,
    operand: u32,
    /// Where the value must have arrived: at the block's end for phi nodes, else at its beginning.
    block: usize,
    at_end: bool,
}

/// The control flow between a function's blocks.
pub struct ValueFlow {
    module: Module,
    blocks: Vec<Block>,
    number: IndexMap<Block, usize>,
    /// As often as a block leads to another.
    before: Vec<Vec<usize>>,
    behind: Vec<Vec<usize>>,
    /// Place of each block in reverse postorder, and the inverse.
    position: Vec<usize>,
    order: Vec<usize>,
    meeting: Vec<bool>,
    /// Per block: what arrives, valid for the variable of that number.
    arrivals: Vec<(u32, Arrival)>,
    variable: u32,
}

impl ValueFlow {
    /// Reads a function; versions meet in the given blocks.
    pub fn new(module: Module, function: Value, meeting: &IndexSet<Block>) -> ValueFlow {
        let blocks: Vec<Block> = function.blocks().collect();
        let number: IndexMap<Block, usize> = blocks.iter().enumerate().map(|(i, b)| (*b, i)).collect();
        let before: Vec<Vec<usize>> = blocks.iter().map(|b| predecessors(*b).iter().map(|p| number[p]).collect()).collect();
        let mut behind = vec![Vec::new(); blocks.len()];
        for (to, sources) in before.iter().enumerate() {
            sources.iter().for_each(|&from: &usize| behind[from].push(to));
        }
        let order = reverse_postorder(&behind);
        let mut position = vec![0; blocks.len()];
        order.iter().enumerate().for_each(|(at, block)| position[*block] = at);
        let meeting = blocks.iter().map(|b| meeting.contains(b)).collect();
        let arrivals = vec![(0, Arrival::Unknown); blocks.len()];
        ValueFlow { module, blocks, number, before, behind, position, order, meeting, arrivals, variable: 0 }
    }

    /// Repairs the uses of values that are several: two of the given kind, one in each version, or any number.
    pub fn merge(&mut self, values: &[Vec<Value>], two: Definitions) {
        let kind = |definitions: &[Value]| if definitions.len() > 2 { Definitions::Several } else { two };
        let mut again: Vec<(&[Value], Vec<Rematerialised>)> =
            values.iter().filter_map(|d| Some((d.as_slice(), all_rematerialised(d, kind(d), two)?))).collect();
        // What is made of others first: the others are merged where it is rematerialised.
        again.sort_by_key(|(definitions, _)| Reverse(steps_to(definitions[0])));
        for (definitions, sources) in again {
            self.recompute(definitions, &sources, kind(definitions));
        }
        for definitions in values {
            self.variable(definitions, kind(definitions));
        }
    }

    /// Makes every use of one of the definitions a use of the one that arrives there.
    pub fn variable(&mut self, definitions: &[Value], of_kind: Definitions) {
        let defined: IndexMap<usize, usize> = definitions.iter().enumerate().map(|(i, d)| (self.number[&d.block()], i)).collect();
        let uses: Vec<Use> = definitions.iter().flat_map(|d| self.uses(*d, &defined)).collect();
        if uses.is_empty() {
            return;
        }
        let Some(live) = self.live(&uses, &defined, of_kind == Definitions::Several) else { return };
        let phis = self.solve(&live, &defined);
        let kind = definitions[0].kind();
        let mut made = IndexMap::new();
        for &block in &phis {
            made.insert(block, Builder::phi_at_top(self.module, self.blocks[block], kind, None));
        }
        let poison = Value(llvm!(LLVMGetPoison(kind)));
        let value = |flow: &ValueFlow, block: usize, at_end: bool| {
            let arrival = match defined.get(&block) {
                Some(definition) if at_end => Arrival::Definition(*definition),
                _ => flow.arrival(block),
            };
            match arrival {
                Arrival::Definition(definition) => definitions[definition],
                Arrival::Phi(block) => made[&block],
                // Nothing leads there.
                Arrival::Unknown => poison,
            }
        };
        for &block in &phis {
            let incoming: Vec<_> = self.before[block].iter().map(|&from| (value(self, from, true), self.blocks[from])).collect();
            made[&block].add_incoming(&incoming);
        }
        for Use { user, operand, block, at_end } in uses {
            llvm!(LLVMSetOperand(user.0, operand, value(self, block, at_end).0));
        }
    }

    /// Of a value of several versions, with what each is made of: rematerialises it in front of each use that values
    /// of more than one reach. What it is made of is to be seen to afterwards.
    fn recompute(&mut self, definitions: &[Value], sources: &[Rematerialised], of_kind: Definitions) {
        let defined: IndexMap<usize, usize> = definitions.iter().enumerate().map(|(i, d)| (self.number[&d.block()], i)).collect();
        let uses: Vec<Use> = definitions.iter().flat_map(|d| self.uses(*d, &defined)).collect();
        let Some(live) = self.live(&uses, &defined, of_kind == Definitions::Several) else { return };
        self.solve(&live, &defined);
        let source: IndexMap<Value, Rematerialised> = definitions.iter().copied().zip(sources.iter().copied()).collect();
        let mut made = IndexMap::<(Value, usize, bool), Value>::new();
        for Use { user, operand, block, at_end } in uses {
            let definition = user.operand(operand);
            let value = match self.arrival(block) {
                Arrival::Definition(definition) => definitions[definition],
                Arrival::Unknown => Value(llvm!(LLVMGetPoison(definition.kind()))),
                Arrival::Phi(_) => *made.entry((definition, block, at_end)).or_insert_with(|| {
                    let mut others = self.blocks[block].instructions();
                    let before = if at_end { None } else { others.find(|i| uses_value(*i, definition)) };
                    self.rematerialise(definition, source[&definition], before.unwrap_or_else(|| self.blocks[block].terminator()))
                }),
            };
            llvm!(LLVMSetOperand(user.0, operand, value.0));
        }
    }

    fn rematerialise(&self, definition: Value, source: Rematerialised, before: Value) -> Value {
        let builder = Builder::before(self.module, before, None);
        match source {
            Rematerialised::Again => {
                let copy = Value(llvm!(LLVMInstructionClone(definition.0)));
                builder.insert(copy);
                copy.set_location(before.location());
                copy
            }
            Rematerialised::LowerPart(whole) => Value(llvm!(LLVMBuildTrunc(builder.raw(), whole.0, definition.kind(), c"".as_ptr()))),
        }
    }

    /// The uses that a definition reaches by way of edges.
    fn uses(&self, definition: Value, defined: &IndexMap<usize, usize>) -> Vec<Use> {
        let home = definition.block();
        let is_reached = |u: &Value| u.is_instruction() && (u.is(LLVMOpcode::LLVMPHI) || u.block() != home);
        // In the order of the uses, each user once: passes that follow go by that order, and addresses are none.
        let mut seen = IndexSet::new();
        let users: Vec<Value> = definition.users().filter(|u| is_reached(u) && seen.insert(*u)).collect();
        let mut uses = Vec::new();
        for user in users {
            let at_end = user.is(LLVMOpcode::LLVMPHI);
            for (operand, _) in (0..).zip(user.operands()).filter(|(_, value)| *value == definition) {
                let block = if at_end { Block(llvm!(LLVMGetIncomingBlock(user.0, operand))) } else { user.block() };
                let block = self.number[&block];
                if !(at_end && defined.contains_key(&block)) {
                    uses.push(Use { user, operand, block, at_end });
                }
            }
        }
        uses
    }

    /// The blocks at whose beginning the variable is live; `None` if versions meet in none of them, unless they are asked for `always`.
    fn live(&mut self, uses: &[Use], defined: &IndexMap<usize, usize>, always: bool) -> Option<Vec<usize>> {
        self.variable += 1;
        let mut live = Vec::new();
        let mut stack: Vec<usize> = uses.iter().map(|u| u.block).collect();
        while let Some(block) = stack.pop() {
            if self.arrivals[block].0 == self.variable {
                continue;
            }
            self.arrivals[block] = (self.variable, Arrival::Unknown);
            live.push(block);
            stack.extend(self.before[block].iter().filter(|b| !defined.contains_key(*b)));
        }
        // Of two versions of a value, each arrives at its own uses, unless they meet.
        (always || live.iter().any(|b| self.meeting[*b])).then_some(live)
    }

    /// Computes what arrives in the live blocks; gives those that need a phi node, in order.
    fn solve(&mut self, live: &[usize], defined: &IndexMap<usize, usize>) -> Vec<usize> {
        // Both versions' definitions come to where versions meet: to know that at once saves phi nodes behind.
        for &block in live.iter().filter(|b| self.meeting[**b]) {
            self.arrivals[block].1 = Arrival::Phi(block);
        }
        let mut work: BinaryHeap<Reverse<usize>> = live.iter().map(|b| Reverse(self.position[*b])).collect();
        while let Some(Reverse(at)) = work.pop() {
            let block = self.order[at];
            let old = self.arrivals[block].1;
            if old == Arrival::Phi(block) {
                continue;
            }
            let mut new = Arrival::Unknown;
            for &from in &self.before[block] {
                let brings = defined.get(&from).map_or_else(|| self.arrival(from), |d| Arrival::Definition(*d));
                new = match (new, brings) {
                    (one, Arrival::Unknown) => one,
                    (Arrival::Unknown, one) => one,
                    (one, other) if one == other => one,
                    _ => Arrival::Phi(block),
                };
            }
            if new != old {
                self.arrivals[block].1 = new;
                let next = self.behind[block].iter().filter(|b| self.arrivals[**b].0 == self.variable);
                work.extend(next.map(|b| Reverse(self.position[*b])));
            }
        }
        let mut phis: Vec<usize> = live.iter().copied().filter(|b| self.arrivals[*b].1 == Arrival::Phi(*b)).collect();
        phis.sort();
        phis
    }

    fn arrival(&self, block: usize) -> Arrival {
        let (variable, arrival) = self.arrivals[block];
        if variable == self.variable { arrival } else { Arrival::Unknown }
    }
}

/// How a value is rematerialised where it is used, in other blocks than its own.
#[derive(Clone, Copy)]
enum Rematerialised {
    /// By the same instruction.
    Again,
    /// As the lower part of this one.
    LowerPart(Value),
}

/// How a value is rematerialised, if it is.
fn again(value: Value) -> Option<Rematerialised> {
    if is_cloned(value) { Some(Rematerialised::Again) } else { extension(value).map(Rematerialised::LowerPart) }
}

/// Whether code generation makes such a value again where it is used, rather than keep it.
fn is_cloned(value: Value) -> bool {
    match value.opcode() {
        LLVMOpcode::LLVMGetElementPtr => value.operands().skip(1).all(Value::is_constant),
        LLVMOpcode::LLVMBitCast | LLVMOpcode::LLVMPtrToInt | LLVMOpcode::LLVMIntToPtr => true,
        LLVMOpcode::LLVMICmp => value.operands().any(Value::is_constant),
        _ => false,
    }
}

/// What a number is extended to in its own block: it is the lower part of that. A single bit has no register of which it is a part.
fn extension(value: Value) -> Option<Value> {
    let width = |v: Value| v.integer_width().unwrap_or_default();
    let is_extended = |user: &Value| user.is(LLVMOpcode::LLVMZExt) && user.block() == value.block();
    if width(value) < 8 {
        return None;
    }
    value.users().filter(is_extended).min_by_key(|user| width(*user))
}

/// How all definitions of a value are rematerialised, if all are; `two` is what two definitions are. Where there may be
/// several, comparisons are not: in residual builds that was more expensive by up to 0.8 % of what is executed. Nor are lower
/// parts in residual builds (5 % of an interpreter), whose two definitions are of that kind.
fn all_rematerialised(definitions: &[Value], of_kind: Definitions, two: Definitions) -> Option<Vec<Rematerialised>> {
    let is_allowed = |value: Value, source: &Rematerialised| match source {
        Rematerialised::Again => of_kind == Definitions::OnePerVersion || !value.is(LLVMOpcode::LLVMICmp),
        Rematerialised::LowerPart(_) => two == Definitions::OnePerVersion,
    };
    definitions.iter().map(|d| again(*d).filter(|source| is_allowed(*d, source))).collect()
}

/// How many values one after the other are to be rematerialised before this one can be, itself among them.
fn steps_to(value: Value) -> usize {
    let (mut steps, mut at) = (0, value);
    while at.is_instruction()
        && let Some(source) = again(at)
    {
        at = match source {
            Rematerialised::LowerPart(whole) => whole,
            Rematerialised::Again if at.is(LLVMOpcode::LLVMICmp) && at.operand(0).is_constant() => at.operand(1),
            Rematerialised::Again => at.operand(0),
        };
        steps += 1;
    }
    steps
}

fn uses_value(instruction: Value, value: Value) -> bool {
    !instruction.is(LLVMOpcode::LLVMPHI) && instruction.operands().any(|operand| operand == value)
}

/// All blocks, those first that are reached from the first block; iteratively, for functions may be deep.
fn reverse_postorder(behind: &[Vec<usize>]) -> Vec<usize> {
    let (mut seen, mut order) = (vec![false; behind.len()], Vec::with_capacity(behind.len()));
    for root in 0..behind.len() {
        order.extend(postorder(root, &mut seen, |block| behind[block].iter().copied()).into_iter().rev());
    }
    order
}
