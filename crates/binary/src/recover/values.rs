//! Evaluates registers symbolically: finds the values that a register may have before an instruction, by a backward search for the
//! instructions that may have written it.
//!
//! This locates jump tables, whose address may be loaded far from the jump or spilled to the stack. A value is a constant plus multiples of
//! atoms, which are not analysed further. Equal atoms denote equal values.
//!
//! Stores through pointers are assumed not to alias stack slots, which is unsound. Therefore the results are checked (the entries of a
//! table must lead into the function) or marked as uncertain. [`MAX_SEARCHED_INSTRUCTIONS`] and [`MAX_SEARCH_STEPS`] limit the searches.

use super::explore::Exploration;
use super::reached::CodeFlow;
use super::sums::{SumAtom, SumLocation, SumPosition, SumValue, is_from_table, without_zero_extension};
use crate::graph::CallReturns;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

/// Maximum number of instructions that one search visits.
const MAX_SEARCHED_INSTRUCTIONS: usize = 30_000;
/// Maximum number of searches and of evaluated instructions for one jump, together.
const MAX_SEARCH_STEPS: u32 = 4_000;
/// Maximum number of different values that are tracked for one location.
const MAX_VALUES_PER_LOCATION: usize = 16;
/// Bit set of the registers that a call may change: rax, rcx, rdx, rsi, rdi, and r8 to r11.
const CALLER_SAVED_REGISTERS: u16 = 0b0000_1111_1100_0111;

/// The instructions of a function, with their possible predecessors.
pub struct FunctionBody {
    /// Addresses of the instructions, ascending. The other vectors have the same indices.
    pub addresses: Vec<u64>,
    pub instructions: Vec<Instruction>,
    pub flows: Vec<CodeFlow>,
    /// Bit set of the registers that each instruction writes.
    writes: Vec<u16>,
    predecessors: Vec<Vec<SumPosition>>,
    /// Number of searches and evaluated instructions that remain for the current jump.
    search_budget: Cell<u32>,
    search_cache: RefCell<HashMap<(SumLocation, SumPosition), Rc<ReachingDefinitions>>>,
}

impl FunctionBody {
    pub fn new(explored: &Exploration, ranges: &[Range<u64>]) -> FunctionBody {
        let reached: Vec<_> = ranges.iter().flat_map(|r| explored.instructions.range(r.clone())).collect();
        let mut body = FunctionBody {
            addresses: Vec::new(),
            instructions: Vec::new(),
            flows: Vec::new(),
            writes: Vec::new(),
            predecessors: vec![Vec::new(); reached.len()],
            search_budget: Cell::new(MAX_SEARCH_STEPS),
            search_cache: RefCell::default(),
        };
        let mut factory = InstructionInfoFactory::new();
        for (address, reached) in reached {
            let instruction = explored
                .code
                .binary
                .code_at(address)
                .and_then(|bytes| crate::instruction::decode_instruction(bytes, address))
                .unwrap_or_default();
            body.addresses.push(address);
            body.writes.push(registers_written(&mut factory, &instruction, reached.flow));
            body.flows.push(reached.flow);
            body.instructions.push(instruction);
        }
        for at in 0..body.addresses.len() {
            body.add_predecessors(explored, at);
        }
        for range in ranges {
            body.add_landing_pad_predecessors(explored, range);
        }
        body
    }

    /// Resets the search budget, which is that of a single jump.
    pub fn reset_budget(&self) {
        self.search_budget.set(MAX_SEARCH_STEPS);
    }

    pub fn position(&self, address: u64) -> Option<SumPosition> {
        self.addresses.binary_search(&address).ok().map(|at| at as SumPosition)
    }

    /// Returns the positions of the instructions that may execute directly before an instruction.
    pub fn predecessors(&self, at: SumPosition) -> &[SumPosition] {
        &self.predecessors[at as usize]
    }

    fn add_predecessors(&mut self, explored: &Exploration, at: usize) {
        let address = self.addresses[at];
        let next = self.instructions[at].next_ip();
        let mut to: Vec<u64> = Vec::new();
        match self.flows[at] {
            CodeFlow::Next => to.push(next),
            CodeFlow::Call(_) | CodeFlow::CallIndirect if explored.call_returns(address) != CallReturns::Never => to.push(next),
            CodeFlow::Conditional(target) => to.extend([next, target]),
            CodeFlow::Jump(target) => to.push(target),
            CodeFlow::JumpIndirect => {
                if let Some(super::explore::JumpResolution::Within(targets)) = explored.jumps.get(&address) {
                    to.extend(targets);
                }
            }
            _ => {}
        }
        for target in to {
            if let Some(position) = self.position(target) {
                self.predecessors[position as usize].push(at as SumPosition);
            }
        }
    }

    fn add_landing_pad_predecessors(&mut self, explored: &Exploration, range: &Range<u64>) {
        let Some(frame) = explored.frames.index_at(range.start) else { return };
        for protected in &explored.frames.frames[frame].protected {
            let Some(pad) = self.position(protected.landing_pad) else { continue };
            let first = self.addresses.partition_point(|a| *a < protected.start);
            let end = self.addresses.partition_point(|a| *a < protected.end);
            let calls = (first..end).filter(|&at| matches!(self.flows[at], CodeFlow::Call(_) | CodeFlow::CallIndirect));
            let calls: Vec<SumPosition> = calls.map(|at| at as SumPosition).collect();
            self.predecessors[pad as usize].extend(calls);
        }
    }

    /// Returns the possible addresses of an instruction's memory operand.
    pub fn evaluate_address(&self, at: SumPosition, depth: u32) -> Vec<SumValue> {
        let instruction = &self.instructions[at as usize];
        if instruction.is_ip_rel_memory_operand() {
            return vec![SumValue::constant(instruction.memory_displacement64())];
        }
        let mut sums = vec![SumValue::constant(instruction.memory_displacement64())];
        let parts = [(instruction.memory_base(), 1), (instruction.memory_index(), u64::from(instruction.memory_index_scale()))];
        for (register, scale) in parts.into_iter().filter(|(r, _)| *r != Register::None) {
            let values: Vec<SumValue> = self.evaluate_register(register, at, depth).into_iter().map(|v| v.times(scale)).collect();
            sums = combine_values(&sums, &values, |a, b| a.plus(b));
        }
        sums
    }

    /// Returns the possible values of an instruction's memory operand, of which `bytes` bytes are read.
    pub fn evaluate_load(&self, at: SumPosition, bytes: u8, depth: u32) -> Vec<SumValue> {
        let instruction = &self.instructions[at as usize];
        if let Some(slot) = stack_slot(instruction)
            && depth > 0
        {
            let definitions = self.reaching_definitions(slot, at);
            if definitions.is_complete() {
                return self.evaluate_location(slot, &definitions, depth).into_iter().map(|v| v.truncated(bytes)).collect();
            }
        }
        let load = |address| SumValue::atom(SumAtom::Load { bytes, is_signed: false, address: Box::new(address) });
        self.evaluate_address(at, depth).into_iter().map(load).collect()
    }

    /// Returns the possible values that an operand has before its instruction executes.
    pub fn evaluate_operand(&self, at: SumPosition, operand: u32, depth: u32) -> Vec<SumValue> {
        let instruction = &self.instructions[at as usize];
        match instruction.op_kind(operand) {
            OpKind::Register => self.evaluate_register(instruction.op_register(operand), at, depth),
            OpKind::Memory => self.evaluate_load(at, instruction.memory_size().size().min(8) as u8, depth),
            _ => match instruction.try_immediate(operand) {
                Ok(value) => vec![SumValue::constant(value)],
                Err(_) => vec![SumValue::atom(SumAtom::Opaque(SumLocation::Register(16), vec![at]))],
            },
        }
    }

    /// Returns the possible values that a register has before an instruction.
    pub fn evaluate_register(&self, register: Register, at: SumPosition, depth: u32) -> Vec<SumValue> {
        let high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
        let Some(number) = register_number(register).filter(|_| !high) else {
            return vec![SumValue::atom(SumAtom::Opaque(SumLocation::Register(16), vec![at]))];
        };
        let location = SumLocation::Register(number);
        let definitions = self.reaching_definitions(location, at);
        let values = if depth == 0 { vec![definitions.opaque(location)] } else { self.evaluate_location(location, &definitions, depth) };
        values.into_iter().map(|v| v.truncated(register.size().min(8) as u8)).collect()
    }

    fn evaluate_location(&self, location: SumLocation, definitions: &ReachingDefinitions, depth: u32) -> Vec<SumValue> {
        let several = definitions.at.len() > 1;
        if !definitions.is_complete() || (several && !definitions.at.iter().all(|&at| self.may_produce_address(at))) {
            return vec![definitions.opaque(location)];
        }
        let mut values: Vec<SumValue> = Vec::new();
        for &definition in &definitions.at {
            values.extend(self.values_written(location, definition, depth - 1));
            values.sort();
            values.dedup();
            if values.len() > MAX_VALUES_PER_LOCATION {
                return vec![definitions.opaque(location)];
            }
        }
        // Several possible values are useful only if all of them are addresses. Otherwise the value stays unknown.
        let is_address = |v: &SumValue| match &v.terms[..] {
            [] => true,
            [(atom, 1)] => is_from_table(atom),
            _ => false,
        };
        match values.len() {
            1 => values,
            _ if values.iter().all(is_address) => values,
            _ => vec![definitions.opaque(location)],
        }
    }

    /// Returns true if an instruction may compute an address or load a table entry, unlike the increment of a loop counter.
    fn may_produce_address(&self, at: SumPosition) -> bool {
        let instruction = &self.instructions[at as usize];
        match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movsxd => true,
            Mnemonic::Lea => instruction.is_ip_rel_memory_operand(),
            Mnemonic::Add => instruction.op1_kind() == OpKind::Register,
            _ => false,
        }
    }

    /// Returns the possible values that an instruction writes to a location.
    fn values_written(&self, location: SumLocation, at: SumPosition, depth: u32) -> Vec<SumValue> {
        let instruction = &self.instructions[at as usize];
        let opaque = || vec![SumValue::atom(SumAtom::Opaque(location, vec![at]))];
        if depth == 0 || self.search_budget.get() == 0 {
            return opaque();
        }
        self.search_budget.set(self.search_budget.get() - 1);
        let SumLocation::Register(registers_written) = location else {
            return if instruction.mnemonic() == Mnemonic::Mov && stack_slot(instruction) == Some(location) {
                let bytes = instruction.memory_size().size().min(8) as u8;
                self.evaluate_operand(at, 1, depth).into_iter().map(|v| v.truncated(bytes)).collect()
            } else {
                opaque()
            };
        };
        if instruction.mnemonic() == Mnemonic::Cdqe {
            let low = self.evaluate_register(Register::EAX, at, depth).into_iter();
            return low.map(|v| without_zero_extension(v).sign_extended(4)).collect();
        }
        let target = instruction.op0_register();
        if instruction.op0_kind() != OpKind::Register || register_number(target) != Some(registers_written) || target.size() < 4 {
            return opaque();
        }
        let bytes = target.size().min(8) as u8;
        let (first, second) = (|| self.evaluate_operand(at, 0, depth), || self.evaluate_operand(at, 1, depth));
        let immediate = || instruction.try_immediate(instruction.op_count() - 1).ok();
        let values = match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx => second(),
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let from = operand_size_in_bytes(instruction, 1);
                second().into_iter().map(|v| without_zero_extension(v).sign_extended(from)).collect()
            }
            Mnemonic::Lea => self.evaluate_address(at, depth),
            Mnemonic::Add => combine_values(&first(), &second(), |a, b| a.plus(b)),
            Mnemonic::Sub => combine_values(&first(), &second(), |a, b| a.plus(&b.times(u64::MAX))),
            Mnemonic::Inc => combine_values(&first(), &[SumValue::constant(1)], |a, b| a.plus(b)),
            Mnemonic::Dec => combine_values(&first(), &[SumValue::constant(u64::MAX)], |a, b| a.plus(b)),
            Mnemonic::Xor if clears_register(instruction, target) => vec![SumValue::constant(0)],
            Mnemonic::And => match immediate() {
                Some(bits) => first().into_iter().map(|v| SumValue::atom(SumAtom::And(bits, Box::new(v)))).collect(),
                None => opaque(),
            },
            Mnemonic::Shl => match immediate() {
                Some(by @ 0..=4) => first().into_iter().map(|v| without_zero_extension(v).times(1 << by)).collect(),
                _ => opaque(),
            },
            _ => opaque(),
        };
        values.into_iter().map(|v| v.truncated(bytes)).collect()
    }

    /// Returns the instructions that may have written the value that a location has before an instruction.
    fn reaching_definitions(&self, location: SumLocation, at: SumPosition) -> Rc<ReachingDefinitions> {
        if let Some(found) = self.search_cache.borrow().get(&(location, at)) {
            return found.clone();
        }
        let mut found = ReachingDefinitions { at: Vec::new(), reaches_entry: self.predecessors[at as usize].is_empty() };
        if self.search_budget.get() == 0 {
            found.reaches_entry = true;
            return Rc::new(found);
        }
        self.search_budget.set(self.search_budget.get() - 1);
        let mut seen = HashSet::new();
        let mut work: Vec<SumPosition> = self.predecessors[at as usize].clone();
        while let Some(position) = work.pop() {
            if !seen.insert(position) {
                continue;
            }
            if seen.len() > MAX_SEARCHED_INSTRUCTIONS {
                found.reaches_entry = true;
                break;
            }
            if self.defines(position, location) {
                found.at.push(position);
                continue;
            }
            let before = &self.predecessors[position as usize];
            found.reaches_entry |= before.is_empty();
            work.extend(before);
        }
        found.at.sort_unstable();
        let found = Rc::new(found);
        self.search_cache.borrow_mut().insert((location, at), found.clone());
        found
    }

    pub fn defines(&self, at: SumPosition, location: SumLocation) -> bool {
        match location {
            SumLocation::Register(number) => self.writes[at as usize] >> number & 1 == 1,
            SumLocation::Slot { base, .. } => {
                let instruction = &self.instructions[at as usize];
                let moved = base == FRAME_POINTER && self.writes[at as usize] >> base & 1 == 1;
                let stored = instruction.op0_kind() == OpKind::Memory
                    && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Call | Mnemonic::Jmp);
                moved || (stored && stack_slot(instruction) == Some(location))
            }
        }
    }
}

const FRAME_POINTER: u8 = 5;
const STACK_POINTER: u8 = 4;

struct ReachingDefinitions {
    at: Vec<SumPosition>,
    /// Whether the value may come from elsewhere: a path from the function's entry contains no definition, or the search reached its limit.
    reaches_entry: bool,
}

impl ReachingDefinitions {
    fn is_complete(&self) -> bool {
        !self.reaches_entry && !self.at.is_empty()
    }

    fn opaque(&self, location: SumLocation) -> SumValue {
        SumValue::atom(SumAtom::Opaque(location, self.at.clone()))
    }
}

fn combine_values(a: &[SumValue], b: &[SumValue], with: impl Fn(&SumValue, &SumValue) -> SumValue) -> Vec<SumValue> {
    let mut all: Vec<SumValue> =
        a.iter().flat_map(|a| b.iter().map(|b| with(a, b)).collect::<Vec<_>>()).take(MAX_VALUES_PER_LOCATION).collect();
    all.sort();
    all.dedup();
    all
}

fn operand_size_in_bytes(instruction: &Instruction, operand: u32) -> u8 {
    match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size().min(8) as u8,
        _ => instruction.memory_size().size().min(8) as u8,
    }
}

/// Returns the number of a general-purpose register in instruction encodings. Returns `None` for other registers.
pub fn register_number(register: Register) -> Option<u8> {
    register.is_gpr().then(|| register.full_register().number() as u8)
}

/// Returns the stack slot to which a memory operand refers, which is `rsp` or `rbp` plus a constant. Returns `None` for other operands.
fn stack_slot(instruction: &Instruction) -> Option<SumLocation> {
    let base = register_number(instruction.memory_base()).filter(|b| matches!(*b, STACK_POINTER | FRAME_POINTER))?;
    let plain = instruction.memory_index() == Register::None;
    plain.then(|| SumLocation::Slot { base, displacement: instruction.memory_displacement64() })
}

fn registers_written(factory: &mut InstructionInfoFactory, instruction: &Instruction, flow: CodeFlow) -> u16 {
    let info = factory.info(instruction);
    let is_write =
        |access: OpAccess| matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    let own = info.used_registers().iter().filter(|u| is_write(u.access())).filter_map(|u| register_number(u.register()));
    let own = own.fold(0, |bits, number| bits | 1 << number);
    let is_call = matches!(flow, CodeFlow::Call(_) | CodeFlow::CallIndirect);
    own | if is_call { CALLER_SAVED_REGISTERS } else { 0 }
}

fn clears_register(instruction: &Instruction, target: Register) -> bool {
    instruction.op1_kind() == OpKind::Register && instruction.op1_register() == target
}
