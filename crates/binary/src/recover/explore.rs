//! Finds the reachable instructions by following branches from function entries.
//!
//! Only code that is reachable from a known entry is decoded, so data between functions is never mistaken for code. Exploration continues
//! after a call unless the callee never returns. Gaps in functions are explored last ([`gaps`]). Complexity: O(n log n).

mod candidates;
mod gaps;

use super::code::FileCode;
use super::frames::UnwindTables;
use super::imports;
use super::reached::{CodeFlow, Reached, ReachedCode};
use crate::graph::{Doubt, GraphObservation, Returns, Uncertainty};
use crate::instruction::{BranchInstruction, branch, decode};
use candidates::data_words;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Alignment of functions in bytes.
const FUNCTION_ALIGNMENT: u64 = 16;

/// The targets of an indirect jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Addresses in the jump's own function.
    Within(Vec<u64>),
    Functions(Vec<u64>),
    Import(String),
    /// A tail call of an unknown function.
    TailCall,
    Unknown,
}

/// Facts that are known before an exploration starts.
#[derive(Clone, Debug, Default)]
pub struct KnownCode {
    /// Entries of functions that never return.
    pub never_returning: HashSet<u64>,
    /// Names of functions that have symbols, by address.
    pub symbols: BTreeMap<u64, String>,
    /// Names of functions, either from symbols or deduced from how a program starts.
    pub names: BTreeMap<u64, String>,
    /// Additional function entries.
    pub entries: Vec<u64>,
    /// Data addresses that occur in instructions.
    pub data: BTreeSet<u64>,
    pub observations: Vec<GraphObservation>,
    /// Targets of indirect jumps according to the compiler's map.
    pub jump_targets: HashMap<u64, Vec<u64>>,
}

pub struct Exploration<'k, 'a> {
    pub code: &'a FileCode<'a>,
    pub frames: &'a UnwindTables<'a>,
    pub known: &'k KnownCode,
    /// Reachable instructions by address.
    pub instructions: ReachedCode,
    /// Starts of functions without unwind information.
    pub starts: BTreeSet<u64>,
    pub call_targets: BTreeSet<u64>,
    pub address_taken: BTreeSet<u64>,
    /// Addresses inside functions, other than entries, that occur in data or instructions.
    pub labels: BTreeSet<u64>,
    pub data: BTreeSet<u64>,
    pub jumps: BTreeMap<u64, Resolution>,
    /// Indirect jumps with targets in their own function that may also leave the function by a tail call.
    pub may_leave: BTreeSet<u64>,
    pub uncertain: Vec<Uncertainty>,
    /// Addresses after trapping instructions, where execution resumes if a signal handler skips the trap.
    pub resume_points: BTreeSet<u64>,
    /// Instructions found in gaps, without a known predecessor.
    pub speculative: BTreeSet<u64>,
    is_speculative: bool,
    /// Code addresses without unwind information that occur in data or instructions. They are followed only if they look like functions.
    candidates: BTreeSet<u64>,
    work: Vec<u64>,
}

impl<'k, 'a> Exploration<'k, 'a> {
    pub fn new(code: &'a FileCode<'a>, frames: &'a UnwindTables<'a>, known: &'k KnownCode) -> Exploration<'k, 'a> {
        let mut explored = Exploration {
            code,
            frames,
            known,
            instructions: ReachedCode::new(&code.sections),
            starts: BTreeSet::new(),
            call_targets: BTreeSet::new(),
            address_taken: BTreeSet::new(),
            labels: BTreeSet::new(),
            data: known.data.clone(),
            jumps: BTreeMap::new(),
            may_leave: BTreeSet::new(),
            uncertain: Vec::new(),
            resume_points: BTreeSet::new(),
            speculative: BTreeSet::new(),
            is_speculative: false,
            candidates: BTreeSet::new(),
            work: Vec::new(),
        };
        explored.schedule_known_code();
        explored.follow_all();
        explored
    }

    fn schedule_known_code(&mut self) {
        let (code, frames, known) = (self.code, self.frames, self.known);
        for frame in &frames.frames {
            self.work.push(frame.start);
            self.work.extend(frame.protected.iter().map(|p| p.landing_pad));
        }
        for &at in code.startup_functions.iter().chain(&code.exported).chain(known.names.keys()).chain(&known.entries) {
            self.schedule_function(at);
        }
        self.address_taken.extend(code.startup_functions.iter().chain(&code.exported));
        for word in code.words.values() {
            match word {
                super::code::CodeWord::Address(to) => self.record_code_address(*to),
                super::code::CodeWord::Resolved(resolver) => {
                    self.schedule_function(*resolver);
                    self.address_taken.insert(*resolver);
                }
                super::code::CodeWord::Import(_) => {}
            }
        }
        for stub in code.stubs.values() {
            self.work.extend(stub.resolver);
        }
        if !code.binary.is_position_independent() {
            self.scan_data();
        }
        self.work.extend(known.jump_targets.values().flatten());
        for seen in &known.observations {
            self.follow_observed(*seen);
        }
    }

    /// Follows an observed transfer, unless it is the return of a call.
    fn follow_observed(&mut self, seen: GraphObservation) {
        let before = self.code.binary.code_at(seen.from).and_then(|bytes| decode(bytes, seen.from));
        let is_call = before.is_some_and(|i| matches!(flow_of(&i), CodeFlow::Call(_) | CodeFlow::CallIndirect));
        let is_return = is_call && before.is_some_and(|i| i.next_ip() == seen.to);
        if !is_return && self.code.is_code(seen.to) {
            if self.frames.index_at(seen.to).is_none() && !self.is_return_address(seen.to) {
                self.starts.insert(seen.to);
            }
            if is_call {
                self.address_taken.insert(seen.to);
            }
            self.work.push(seen.to);
        }
    }

    /// Returns true if a call could return to an address.
    pub fn is_return_address(&self, to: u64) -> bool {
        const CALL_SIZES: std::ops::RangeInclusive<u64> = 2..=8;
        let ends_there = |at: u64| self.code.binary.code_at(at).and_then(|bytes| decode(bytes, at)).filter(|i| i.next_ip() == to);
        CALL_SIZES
            .filter_map(|size| ends_there(to.checked_sub(size)?))
            .any(|i| matches!(flow_of(&i), CodeFlow::Call(_) | CodeFlow::CallIndirect))
    }

    /// Treats every data word that equals a function's start as that function's address. Files loaded at a fixed address need this,
    /// because they have no relocations.
    fn scan_data(&mut self) {
        let starts: HashSet<u64> = self.frames.frames.iter().map(|f| f.start).collect();
        self.address_taken.extend(data_words(self.code.binary).filter(|to| starts.contains(to)));
    }

    /// Schedules the function that starts at an address. Does nothing if the address is a stub or not code.
    fn schedule_function(&mut self, at: u64) {
        if !self.code.is_code(at) || self.code.is_stub(at) {
            return;
        }
        if self.frames.index_at(at).is_none() {
            self.starts.insert(at);
        }
        self.work.push(at);
    }

    /// Classifies a code address that occurs in data or in an instruction as a function, a label, or a candidate.
    fn record_code_address(&mut self, at: u64) {
        if !self.code.is_code(at) || self.code.is_stub(at) {
            return;
        }
        match self.frames.index_at(at) {
            Some(frame) if self.frames.frames[frame].start == at => _ = self.address_taken.insert(at),
            Some(_) => _ = self.labels.insert(at),
            None => _ = self.candidates.insert(at),
        }
    }

    /// Records the targets of an indirect jump and schedules them.
    pub fn set_resolution(&mut self, jump: u64, resolution: Resolution) {
        if let Resolution::Within(targets) | Resolution::Functions(targets) = &resolution {
            self.work.extend(targets);
        }
        self.jumps.insert(jump, resolution);
    }

    /// Follows all scheduled addresses, and then the candidates that look like functions.
    pub fn follow_all(&mut self) {
        self.follow_scheduled();
        while !self.candidates.is_empty() {
            let candidates = std::mem::take(&mut self.candidates);
            let fresh: Vec<u64> = candidates.into_iter().filter(|at| !self.instructions.contains(*at)).collect();
            for at in fresh {
                if self.looks_like_function(at) {
                    self.address_taken.insert(at);
                    self.schedule_function(at);
                    self.follow_scheduled();
                }
            }
        }
    }

    fn follow_scheduled(&mut self) {
        while let Some(at) = self.work.pop() {
            self.follow_from(at);
        }
    }

    /// Follows instructions until control cannot continue or reaches known code.
    fn follow_from(&mut self, mut at: u64) {
        let mut before: Option<Instruction> = None;
        loop {
            if self.instructions.contains(at) || self.code.is_stub(at) {
                return;
            }
            let Some(instruction) = self.code.binary.code_at(at).filter(|_| self.code.is_code(at)).and_then(|bytes| decode(bytes, at))
            else {
                self.uncertain.push(Uncertainty { address: at, doubt: Doubt::Undecodable });
                return;
            };
            let flow = self.flow_in_context(&instruction, before.as_ref());
            before = Some(instruction);
            self.instructions.insert(at, Reached { size: instruction.len() as u8, flow });
            if self.is_speculative {
                self.speculative.insert(at);
            }
            self.record_operands(&instruction);
            let next = instruction.next_ip();
            match flow {
                CodeFlow::Next => {}
                CodeFlow::Call(callee) => {
                    self.record_call(at, callee);
                    if self.call_returns(at) == Returns::Never {
                        return;
                    }
                }
                CodeFlow::CallIndirect => {
                    if self.call_returns(at) == Returns::Never {
                        return;
                    }
                }
                CodeFlow::Conditional(target) => self.record_jump(at, target),
                CodeFlow::Jump(target) => {
                    self.record_jump(at, target);
                    return;
                }
                CodeFlow::JumpIndirect => {
                    let known = self.known.jump_targets.get(&at).cloned();
                    self.jumps.insert(at, known.map_or(Resolution::Unknown, Resolution::Within));
                    return;
                }
                CodeFlow::Return | CodeFlow::Stop => return,
            }
            at = next;
        }
    }

    /// Returns an instruction's effect on control flow in its context. A return directly after an instruction that stored the return
    /// address is an indirect jump. A call of code that replaces its return address is a jump. Retpolines use both (Intel, "Retpoline: A
    /// Branch Target Injection Mitigation").
    fn flow_in_context(&self, instruction: &Instruction, before: Option<&Instruction>) -> CodeFlow {
        match flow_of(instruction) {
            CodeFlow::Return if before.is_some_and(sets_return_address) => CodeFlow::JumpIndirect,
            CodeFlow::Call(to) if self.replaces_return_address(to) => CodeFlow::Jump(to),
            other => other,
        }
    }

    /// Returns true if the code at an address overwrites or pops its return address and then returns.
    fn replaces_return_address(&self, at: u64) -> bool {
        let decoded = |at: u64| self.code.binary.code_at(at).filter(|_| self.code.is_code(at)).and_then(|bytes| decode(bytes, at));
        let Some(first) = decoded(at) else { return false };
        let is_first = drops_return_address(&first) || (sets_return_address(&first) && first.mnemonic() != Mnemonic::Push);
        is_first && decoded(first.next_ip()).is_some_and(|second| flow_of(&second) == CodeFlow::Return)
    }

    fn record_call(&mut self, at: u64, callee: u64) {
        if self.code.is_stub(callee) {
            return;
        }
        if !self.code.is_code(callee) {
            self.uncertain.push(Uncertainty { address: at, doubt: Doubt::OutsideCode { target: callee } });
            return;
        }
        self.call_targets.insert(callee);
        self.schedule_function(callee);
    }

    fn record_jump(&mut self, at: u64, target: u64) {
        if self.code.is_code(target) {
            // In code without unwind information, an aligned target in a different region starts a new region.
            if target.is_multiple_of(FUNCTION_ALIGNMENT)
                && self.frames.index_at(target).is_none()
                && self.region_of(at) != self.region_of(target)
            {
                self.starts.insert(target);
            }
            self.work.push(target);
        } else {
            self.uncertain.push(Uncertainty { address: at, doubt: Doubt::OutsideCode { target } });
        }
    }

    fn record_operands(&mut self, instruction: &Instruction) {
        if instruction.is_ip_rel_memory_operand() {
            let to = instruction.memory_displacement64();
            if instruction.mnemonic() == Mnemonic::Lea && self.code.is_code(to) {
                self.record_code_address(to);
            } else {
                self.data.insert(to);
            }
        } else if has_memory(instruction) && instruction.memory_displacement64() > 0xfff && instruction.memory_displ_size() >= 4 {
            self.data.insert(instruction.memory_displacement64());
        }
        let fixed = !self.code.binary.is_position_independent();
        if fixed && matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Push) {
            let Ok(value) = instruction.try_immediate(instruction.op_count().saturating_sub(1)) else { return };
            if self.frames.index_at(value).is_none_or(|f| self.frames.frames[f].start == value) {
                self.record_code_address(value);
            }
            self.data.insert(value);
        }
    }

    /// Whether the call at an address returns.
    pub fn call_returns(&self, at: u64) -> Returns {
        let Some(reached) = self.instructions.get(at) else { return Returns::Maybe };
        let next = at + u64::from(reached.size);
        if self.known.observations.iter().any(|o| o.from == at && o.to == next) {
            return Returns::Maybe;
        }
        // Compilers emit no code after a call of a function that they know never returns, so a call at the very end of a function never
        // returns.
        if self.frames.index_at(at).is_some_and(|f| self.frames.frames[f].end == next) || !self.code.is_code(next) {
            return Returns::Never;
        }
        match self.called_import(at) {
            Some(name) if imports::never_returns(name) => Returns::Never,
            Some(name) if imports::returns_twice(name) => Returns::Twice,
            Some(_) => Returns::Maybe,
            None => match reached.flow {
                CodeFlow::Call(callee) if self.known.never_returning.contains(&callee) => Returns::Never,
                CodeFlow::Call(callee) => match self.known.symbols.get(&callee) {
                    Some(name) if imports::returns_twice(name) => Returns::Twice,
                    _ => Returns::Maybe,
                },
                _ => Returns::Maybe,
            },
        }
    }

    /// Returns true if an address is inside a reached instruction. The byte after a `lock` prefix does not count, because code may jump
    /// there.
    pub fn is_within_instruction(&self, at: u64) -> bool {
        let before = self.instructions.last_before(at).filter(|(start, reached)| at < *start + u64::from(reached.size));
        before.is_some_and(|(start, _)| start + 1 != at || self.code.binary.bytes_at(start).is_none_or(|bytes| bytes[0] != LOCK_PREFIX))
    }

    /// The imported function that the call or jump at an address leads to, directly or through a stub. `None` for other targets.
    pub fn called_import(&self, at: u64) -> Option<&str> {
        let reached = self.instructions.get(at)?;
        match reached.flow {
            CodeFlow::Call(to) | CodeFlow::Jump(to) | CodeFlow::Conditional(to) => self.code.stubs.get(&to)?.import.as_deref(),
            CodeFlow::CallIndirect | CodeFlow::JumpIndirect => {
                let instruction = decode(self.code.binary.code_at(at)?, at)?;
                if !instruction.is_ip_rel_memory_operand() {
                    return None;
                }
                match self.code.words.get(&instruction.memory_displacement64())? {
                    super::code::CodeWord::Import(name) => Some(name),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Returns an instruction's effect on control flow, regardless of its context.
pub fn flow_of(instruction: &Instruction) -> CodeFlow {
    if instruction.mnemonic() == Mnemonic::Hlt {
        return CodeFlow::Stop;
    }
    match branch(instruction) {
        None | Some(BranchInstruction::System) => CodeFlow::Next,
        // A call of the next instruction only pushes its own address, for position-independent code.
        Some(BranchInstruction::Call(to)) if to == instruction.next_ip() => CodeFlow::Next,
        Some(BranchInstruction::Call(to)) => CodeFlow::Call(to),
        Some(BranchInstruction::IndirectCall) => CodeFlow::CallIndirect,
        Some(BranchInstruction::Conditional(to)) => CodeFlow::Conditional(to),
        Some(BranchInstruction::Jump(to)) => CodeFlow::Jump(to),
        Some(BranchInstruction::IndirectJump) => CodeFlow::JumpIndirect,
        Some(BranchInstruction::Return) => CodeFlow::Return,
        Some(BranchInstruction::Stop) => CodeFlow::Stop,
    }
}

/// Returns true if an instruction sets the address to which a return directly after it jumps, by a push or by changing the top of the
/// stack.
fn sets_return_address(instruction: &Instruction) -> bool {
    let is_top = instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0;
    match instruction.mnemonic() {
        Mnemonic::Push => true,
        Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Xchg | Mnemonic::Xor => is_top,
        _ => false,
    }
}

/// Returns true if an instruction only pops one word off the stack.
fn drops_return_address(instruction: &Instruction) -> bool {
    let is_stack_pointer = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Add => is_stack_pointer && instruction.try_immediate(1).is_ok_and(|bytes| bytes == 8),
        Mnemonic::Lea => {
            let by_one_word = instruction.memory_base() == Register::RSP && instruction.memory_displacement64() == 8;
            is_stack_pointer && by_one_word && instruction.memory_index() == Register::None
        }
        _ => false,
    }
}

pub const LOCK_PREFIX: u8 = 0xf0;

fn has_memory(instruction: &Instruction) -> bool {
    instruction.memory_base() != Register::None
        || instruction.memory_index() != Register::None
        || (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
}
