//! Finds the reachable instructions by following branches from the entries of functions.
//!
//! Only code that is reachable from a known entry is decoded, so data between functions is never mistaken for code. Exploration continues
//! after a call unless the callee never returns. Gaps in functions are explored last ([`gaps`]). The time is O(n log n) in the code size.

mod candidates;
mod gaps;

use super::code::FileCode;
use super::frames::UnwindTables;
use super::imports;
use super::reached::{CodeFlow, ReachedCode, ReachedInstruction};
use crate::graph::{CallReturns, GraphDoubt, GraphObservation, Uncertainty};
use crate::instruction::{BranchInstruction, classify_branch, decode_instruction};
use candidates::data_words;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Alignment of functions in bytes, which compilers use by default.
const FUNCTION_ALIGNMENT: u64 = 16;

/// Where an indirect jump can lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JumpResolution {
    /// To these addresses in the function of the jump.
    Within(Vec<u64>),
    Functions(Vec<u64>),
    Import(String),
    /// To an unknown function, as a tail call.
    TailCall,
    Unknown,
}

/// What is known before an exploration starts.
#[derive(Clone, Debug, Default)]
pub struct KnownCode {
    /// Entry addresses of functions that never return.
    pub never_returning: HashSet<u64>,
    /// Names of functions that have a symbol, by address.
    pub symbols: BTreeMap<u64, String>,
    /// Names of functions, which come from symbols or are deduced from how programs start, by address.
    pub names: BTreeMap<u64, String>,
    /// Further entry addresses of functions.
    pub entries: Vec<u64>,
    /// Addresses of data to which instructions refer.
    pub data: BTreeSet<u64>,
    pub observations: Vec<GraphObservation>,
    /// Targets of indirect jumps according to the compiler's address map, by address of the jump.
    pub jump_targets: HashMap<u64, Vec<u64>>,
}

pub struct Exploration<'k, 'a> {
    pub code: &'a FileCode<'a>,
    pub frames: &'a UnwindTables<'a>,
    pub known: &'k KnownCode,
    /// Instructions that were reached.
    pub instructions: ReachedCode,
    /// Starts of functions that have no unwind information.
    pub starts: BTreeSet<u64>,
    pub call_targets: BTreeSet<u64>,
    pub address_taken: BTreeSet<u64>,
    /// Addresses inside functions, other than entries, to which data or instructions refer.
    pub labels: BTreeSet<u64>,
    pub data: BTreeSet<u64>,
    pub jumps: BTreeMap<u64, JumpResolution>,
    /// Indirect jumps that have targets in their own function and may also leave it by a tail call.
    pub may_leave: BTreeSet<u64>,
    pub uncertain: Vec<Uncertainty>,
    /// Addresses after trapping instructions. A signal handler may skip the trap, so that execution resumes there.
    pub resume_points: BTreeSet<u64>,
    /// Instructions that were found in gaps, where no known instruction leads to them.
    pub speculative: BTreeSet<u64>,
    is_speculative: bool,
    /// Trapping instructions.
    stops: BTreeSet<u64>,
    /// Instructions after which control does not continue, since [`Exploration::follow_gaps`] examined them last.
    ends: Vec<u64>,
    /// Addresses in functions, after such instructions, at which code may begin that no known instruction leads to.
    gap_starts: BTreeSet<u64>,
    /// Indirect jumps that were found since the last call of [`Exploration::follow_gaps`].
    new_jumps: BTreeSet<u64>,
    /// Addresses of code without unwind information to which data or instructions refer. They are followed only if the code there looks
    /// like a function.
    candidates: BTreeSet<u64>,
    /// Words in data that look like addresses of functions, once they have been collected.
    data_words: Option<BTreeSet<u64>>,
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
            stops: BTreeSet::new(),
            ends: Vec::new(),
            gap_starts: BTreeSet::new(),
            new_jumps: BTreeSet::new(),
            candidates: BTreeSet::new(),
            data_words: None,
            work: Vec::new(),
        };
        explored.schedule_known_code();
        explored.follow_all_code();
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

    /// Follows the target of an observed transfer of control, unless it is the return of a call.
    fn follow_observed(&mut self, seen: GraphObservation) {
        let before = self.code.binary.code_at(seen.from).and_then(|bytes| decode_instruction(bytes, seen.from));
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

    /// Returns true if an address directly follows a call instruction, so that a call may return there.
    pub fn is_return_address(&self, to: u64) -> bool {
        const CALL_SIZES: std::ops::RangeInclusive<u64> = 2..=8;
        let ends_there =
            |at: u64| self.code.binary.code_at(at).and_then(|bytes| decode_instruction(bytes, at)).filter(|i| i.next_ip() == to);
        CALL_SIZES
            .filter_map(|size| ends_there(to.checked_sub(size)?))
            .any(|i| matches!(flow_of(&i), CodeFlow::Call(_) | CodeFlow::CallIndirect))
    }

    /// Treats each word in data that equals the start of a function as that function's address. This is needed for files that are loaded at
    /// a fixed address, because they have no relocations.
    fn scan_data(&mut self) {
        let starts: HashSet<u64> = self.frames.frames.iter().map(|f| f.start).collect();
        self.address_taken.extend(data_words(self.code).filter(|to| starts.contains(to)));
    }

    /// Schedules the function at an address for exploration. Does nothing if the address is in a stub, or not in code.
    fn schedule_function(&mut self, at: u64) {
        if !self.code.is_code(at) || self.code.is_stub(at) {
            return;
        }
        if self.frames.index_at(at).is_none() {
            self.starts.insert(at);
        }
        self.work.push(at);
    }

    /// Classifies a code address to which data or an instruction refers: as a function whose address is taken, a label in a function, or a
    /// candidate for a function.
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

    /// Records where an indirect jump leads, and schedules its targets for exploration.
    pub fn set_resolution(&mut self, jump: u64, resolution: JumpResolution) {
        if let JumpResolution::Within(targets) | JumpResolution::Functions(targets) = &resolution {
            self.work.extend(targets);
        }
        self.jumps.insert(jump, resolution);
    }

    /// Follows all scheduled addresses, and then all candidates that look like functions.
    pub fn follow_all_code(&mut self) {
        self.follow_scheduled_addresses();
        while !self.candidates.is_empty() {
            let candidates = std::mem::take(&mut self.candidates);
            for &at in &candidates {
                if !self.instructions.contains(at) && self.looks_like_function(at) {
                    self.address_taken.insert(at);
                    self.schedule_function(at);
                    self.follow_scheduled_addresses();
                }
            }
            self.add_slow_entries(candidates);
        }
    }

    fn follow_scheduled_addresses(&mut self) {
        while let Some(at) = self.work.pop() {
            self.follow_from(at);
        }
    }

    /// Follows instructions from an address until control cannot continue, or until it reaches known instructions.
    fn follow_from(&mut self, mut at: u64) {
        let mut before: Option<Instruction> = None;
        loop {
            if self.instructions.contains(at) || self.code.is_stub(at) {
                return;
            }
            let Some(instruction) =
                self.code.binary.code_at(at).filter(|_| self.code.is_code(at)).and_then(|bytes| decode_instruction(bytes, at))
            else {
                self.uncertain.push(Uncertainty { address: at, doubt: GraphDoubt::Undecodable });
                return;
            };
            let flow = self.flow_in_context(&instruction, before.as_ref());
            before = Some(instruction);
            self.instructions.insert(at, ReachedInstruction { size: instruction.len() as u8, flow });
            if self.is_speculative {
                self.speculative.insert(at);
            }
            self.record_operands(&instruction);
            if self.record_transfer(at, flow) {
                self.ends.push(at);
                return;
            }
            at = instruction.next_ip();
        }
    }

    /// Records where an instruction may transfer control. Returns true if control does not continue with the next instruction.
    fn record_transfer(&mut self, at: u64, flow: CodeFlow) -> bool {
        match flow {
            CodeFlow::Next => return false,
            CodeFlow::Call(callee) => {
                self.record_call(at, callee);
                return self.call_returns(at) == CallReturns::Never;
            }
            CodeFlow::CallIndirect => return self.call_returns(at) == CallReturns::Never,
            CodeFlow::Conditional(target) => {
                self.record_jump(at, target);
                return false;
            }
            CodeFlow::Jump(target) => self.record_jump(at, target),
            CodeFlow::JumpIndirect => {
                let known = self.known.jump_targets.get(&at).cloned();
                self.new_jumps.insert(at);
                self.jumps.insert(at, known.map_or(JumpResolution::Unknown, JumpResolution::Within));
            }
            CodeFlow::Return => {}
            CodeFlow::Stop => _ = self.stops.insert(at),
        }
        true
    }

    /// Returns the effect of an instruction on control flow, taking its context into account. A return is an indirect jump if the
    /// instruction before it stores the return address. A call is a jump if the called code replaces its return address. Retpolines use
    /// both (Intel, "Retpoline: A Branch Target Injection Mitigation").
    fn flow_in_context(&self, instruction: &Instruction, before: Option<&Instruction>) -> CodeFlow {
        match flow_of(instruction) {
            CodeFlow::Return if before.is_some_and(sets_return_address) => CodeFlow::JumpIndirect,
            CodeFlow::Call(to) if self.replaces_return_address(to) => CodeFlow::Jump(to),
            other => other,
        }
    }

    /// Returns true if the code at an address overwrites or drops its return address and then returns.
    fn replaces_return_address(&self, at: u64) -> bool {
        let decoded =
            |at: u64| self.code.binary.code_at(at).filter(|_| self.code.is_code(at)).and_then(|bytes| decode_instruction(bytes, at));
        let Some(first) = decoded(at) else { return false };
        let is_first = drops_return_address(&first) || (sets_return_address(&first) && first.mnemonic() != Mnemonic::Push);
        is_first && decoded(first.next_ip()).is_some_and(|second| flow_of(&second) == CodeFlow::Return)
    }

    fn record_call(&mut self, at: u64, callee: u64) {
        if self.code.is_stub(callee) {
            return;
        }
        if !self.code.is_code(callee) {
            self.uncertain.push(Uncertainty { address: at, doubt: GraphDoubt::OutsideCode { target: callee } });
            return;
        }
        self.call_targets.insert(callee);
        self.schedule_function(callee);
    }

    fn record_jump(&mut self, at: u64, target: u64) {
        if self.code.is_code(target) {
            // In code without unwind information, an aligned target in a different region is taken as the start of a function.
            if target.is_multiple_of(FUNCTION_ALIGNMENT)
                && self.frames.index_at(target).is_none()
                && self.region_of(at) != self.region_of(target)
            {
                self.starts.insert(target);
            }
            self.work.push(target);
        } else {
            self.uncertain.push(Uncertainty { address: at, doubt: GraphDoubt::OutsideCode { target } });
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
        } else if has_memory_operand(instruction) && instruction.memory_displacement64() > 0xfff && instruction.memory_displ_size() >= 4 {
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

    /// Returns whether the call at an address returns, as far as is known.
    pub fn call_returns(&self, at: u64) -> CallReturns {
        let Some(reached) = self.instructions.get(at) else { return CallReturns::Maybe };
        let next = at + u64::from(reached.size);
        if self.known.observations.iter().any(|o| o.from == at && o.to == next) {
            return CallReturns::Maybe;
        }
        // Compilers generate no code after calls that they know never to return. Therefore a call at the very end of a function is assumed
        // never to return.
        if self.frames.index_at(at).is_some_and(|f| self.frames.frames[f].end == next) || !self.code.is_code(next) {
            return CallReturns::Never;
        }
        match self.called_import(at) {
            Some(name) if imports::never_returns(name) => CallReturns::Never,
            Some(name) if imports::returns_twice(name) => CallReturns::Twice,
            Some(_) => CallReturns::Maybe,
            None => match reached.flow {
                CodeFlow::Call(callee) if self.known.never_returning.contains(&callee) => CallReturns::Never,
                CodeFlow::Call(callee) => match self.known.symbols.get(&callee) {
                    Some(name) if imports::returns_twice(name) => CallReturns::Twice,
                    _ => CallReturns::Maybe,
                },
                _ => CallReturns::Maybe,
            },
        }
    }

    /// Returns true if an address is inside a reached instruction. The second byte of an instruction with a `lock` prefix is not counted,
    /// because code may jump there to skip the prefix.
    pub fn is_within_instruction(&self, at: u64) -> bool {
        let before = self.instructions.last_before(at).filter(|(start, reached)| at < *start + u64::from(reached.size));
        before
            .is_some_and(|(start, _)| start + 1 != at || self.code.binary.bytes_at(start).is_none_or(|bytes| bytes[0] != LOCK_PREFIX_BYTE))
    }

    /// Returns the imported function to which the call or jump at an address leads, directly or through a stub. Returns `None` for any
    /// other target.
    pub fn called_import(&self, at: u64) -> Option<&str> {
        let reached = self.instructions.get(at)?;
        match reached.flow {
            CodeFlow::Call(to) | CodeFlow::Jump(to) | CodeFlow::Conditional(to) => self.code.stubs.get(&to)?.import.as_deref(),
            CodeFlow::CallIndirect | CodeFlow::JumpIndirect => {
                let instruction = decode_instruction(self.code.binary.code_at(at)?, at)?;
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

/// Returns the effect of an instruction on control flow without considering its context.
pub fn flow_of(instruction: &Instruction) -> CodeFlow {
    if instruction.mnemonic() == Mnemonic::Hlt {
        return CodeFlow::Stop;
    }
    match classify_branch(instruction) {
        None | Some(BranchInstruction::System) => CodeFlow::Next,
        // A call to the next instruction only pushes the address of that instruction, in position-independent code.
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

/// Returns true if an instruction determines where a return directly after it leads, by a push or by changing the word on top of the stack.
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

/// Returns true if an instruction does nothing but drop one word from the stack.
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

pub const LOCK_PREFIX_BYTE: u8 = 0xf0;

fn has_memory_operand(instruction: &Instruction) -> bool {
    instruction.memory_base() != Register::None
        || instruction.memory_index() != Register::None
        || (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
}
