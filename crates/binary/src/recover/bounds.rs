//! Finds bounds for the index of a jump table: from checks on every path to the jump, from a mask, or from the width of the index.
//!
//! The index is traced backwards from the instruction that reads the table, along all paths, through copies and additions of constants. On
//! each path, a conditional jump after a comparison with a constant bounds the index. If there is no such check on a path, the checks give
//! no bounds.

use super::reached::CodeFlow;
use super::sums::{SumAtom, SumLocation, SumPosition, SumValue};
use super::values::{FunctionBody, register_number};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Maximum number of instructions that are visited between the read of a table and the checks of its index, on all paths together.
const MAX_CHECKED_INSTRUCTIONS: usize = 600;
/// Maximum depth to which the definitions of a value are expanded.
const MAX_EXPANSION_DEPTH: u32 = 12;

/// What is traced backwards. The index of the table is this value plus a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TrackedIndex {
    /// The content of a register or memory location.
    Location(SumLocation),
    /// A symbolic value, wherever it is stored.
    Value(SumValue),
}

/// The possible values of a jump table's index.
pub struct IndexBounds {
    pub values: RangeInclusive<u64>,
    /// Whether a check or a mask proves the bounds. The width of the index proves nothing, because the table of a `match` on an enumeration
    /// has no entries for invalid values.
    pub is_proven: bool,
}

/// Returns the possible values of the index with which a jump reads its table. `size` is the size of a table entry in bytes. Returns `None`
/// if no bounds are found, or if there are more than `max` values.
pub fn find_index_bounds(body: &FunctionBody, jump: SumPosition, index: &SumValue, size: u64, max: u64) -> Option<IndexBounds> {
    let by_value = || {
        let (value, constant) = split_constant(index);
        bounds_from_checks(body, jump, TrackedIndex::Value(value), constant, max)
    };
    let by_place = || {
        let (read, register) = find_table_read(body, jump, size)?;
        // The compiler has folded a constant term of the index into the address of the table.
        let folded = single_value(body.evaluate_register(Register::RAX + u32::from(register), read, MAX_EXPANSION_DEPTH))
            .map_or(0, |value| value.constant);
        bounds_from_checks(body, read, TrackedIndex::Location(SumLocation::Register(register)), folded.wrapping_neg(), max)
    };
    let proven_bounds = |values| IndexBounds { values, is_proven: true };
    let by_width =
        || bound_by_width(index).filter(|(last, _)| *last < max).map(|(last, is_proven)| IndexBounds { values: 0..=last, is_proven });
    by_place().or_else(by_value).map(proven_bounds).or_else(by_width)
}

/// Returns the values that checks allow for the register with which a table is read shortly before a jump. They are the indices of the
/// table, but for a constant that the compiler may have folded into the table's address.
pub fn find_checked_indices(body: &FunctionBody, jump: SumPosition, size: u64, max: u64) -> Option<RangeInclusive<u64>> {
    let (read, register) = find_table_read(body, jump, size)?;
    bounds_from_checks(body, read, TrackedIndex::Location(SumLocation::Register(register)), 0, max)
}

/// Returns the position of the instruction that reads the jump table, and the register that holds the table index.
fn find_table_read(body: &FunctionBody, jump: SumPosition, size: u64) -> Option<(SumPosition, u8)> {
    let mut at = jump;
    for _ in 0..24 {
        let instruction = &body.instructions[at as usize];
        if u64::from(instruction.memory_index_scale()) == size && instruction.memory_index() != Register::None {
            return Some((at, register_number(instruction.memory_index())?));
        }
        let [before] = body.predecessors(at) else { return None };
        at = *before;
    }
    None
}

/// Returns the maximum value of an index, and whether it is proven. A mask proves the maximum; the width of the index does not.
fn bound_by_width(index: &SumValue) -> Option<(u64, bool)> {
    match index.only_atom()? {
        SumAtom::And(bits, _) => Some((*bits, true)),
        SumAtom::Low(1, _) | SumAtom::Load { bytes: 1, is_signed: false, .. } => Some((255, false)),
        SumAtom::Low(_, inner) | SumAtom::Signed(_, inner) => bound_by_width(inner),
        _ => None,
    }
}

/// Splits an index into a value and a constant that is added to it. Ignores zero and sign extensions.
fn split_constant(value: &SumValue) -> (SumValue, u64) {
    let without_constant = || (SumValue { constant: 0, terms: value.terms.clone() }, value.constant);
    let [(atom, 1)] = &value.terms[..] else { return without_constant() };
    match atom {
        SumAtom::Low(bytes, inner) | SumAtom::Signed(bytes, inner) if *bytes >= 4 || value.constant == 0 => {
            let (inner, constant) = split_constant(inner);
            (inner, constant.wrapping_add(value.constant))
        }
        SumAtom::Load { bytes, address, .. } => {
            let load = SumAtom::Load { bytes: *bytes, is_signed: false, address: address.clone() };
            (SumValue { constant: 0, terms: vec![(load, 1)] }, value.constant)
        }
        _ => without_constant(),
    }
}

/// Traces the index backwards along all paths and returns the union of its bounds. Returns `None` if the index is not checked on some path.
fn bounds_from_checks(
    body: &FunctionBody,
    from: SumPosition,
    tracked: TrackedIndex,
    constant: u64,
    max: u64,
) -> Option<RangeInclusive<u64>> {
    let mut seen: HashSet<(SumPosition, TrackedIndex, u64)> = HashSet::new();
    let mut work = vec![(from, tracked, constant)];
    let mut union: Option<RangeInclusive<u64>> = None;
    while let Some((at, tracked, constant)) = work.pop() {
        if !seen.insert((at, tracked.clone(), constant)) {
            continue;
        }
        if seen.len() > MAX_CHECKED_INSTRUCTIONS || body.predecessors(at).is_empty() {
            return None;
        }
        for &before in body.predecessors(at) {
            let part = match bounds_implied_by_edge(body, before, at, &tracked, constant).filter(|part| part.end() - part.start() < max) {
                Some(part) => part,
                None => match step_back_to_source(body, before, &tracked, constant)? {
                    BackwardStep::Known(part) => part,
                    BackwardStep::Follow(tracked, constant) => {
                        work.push((before, tracked, constant));
                        continue;
                    }
                },
            };
            union = Some(match union {
                Some(union) => *union.start().min(part.start())..=*union.end().max(part.end()),
                None => part,
            });
        }
    }
    union.filter(|union| union.end() - union.start() < max)
}

/// Result of tracing the index backwards over one instruction: its bounds are known, or tracing continues with a different value and
/// constant.
enum BackwardStep {
    Known(RangeInclusive<u64>),
    Follow(TrackedIndex, u64),
}

fn single_value_range(value: u64) -> RangeInclusive<u64> {
    value..=value
}

/// Traces the index backwards over one instruction. Returns `None` if this is not possible.
fn step_back_to_source(body: &FunctionBody, at: SumPosition, tracked: &TrackedIndex, constant: u64) -> Option<BackwardStep> {
    let place = match tracked {
        TrackedIndex::Value(value)
            if value.terms.iter().any(|(a, _)| matches!(a, SumAtom::Opaque(_, definitions) if definitions.contains(&at))) =>
        {
            return None;
        }
        TrackedIndex::Value(_) => return Some(BackwardStep::Follow(tracked.clone(), constant)),
        TrackedIndex::Location(place) if !body.defines(at, *place) => return Some(BackwardStep::Follow(tracked.clone(), constant)),
        TrackedIndex::Location(place) => *place,
    };
    let instruction = &body.instructions[at as usize];
    let known = |value: u64| Some(BackwardStep::Known(single_value_range(value.wrapping_add(constant) & u64::from(u32::MAX))));
    let follow = |register: Register, more: u64| {
        Some(BackwardStep::Follow(TrackedIndex::Location(SumLocation::Register(register_number(register)?)), constant.wrapping_add(more)))
    };
    let operand = instruction.op_count().saturating_sub(1);
    let is_target =
        instruction.op0_kind() == OpKind::Memory || register_number(instruction.op0_register()).map(SumLocation::Register) == Some(place);
    if instruction.mnemonic() == Mnemonic::Cdqe {
        return follow(Register::RAX, 0);
    }
    if !is_target {
        return None;
    }
    match (instruction.mnemonic(), instruction.op_kind(operand)) {
        (Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd | Mnemonic::Movsx, OpKind::Register) => {
            follow(instruction.op_register(operand), 0)
        }
        (Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd | Mnemonic::Movsx, OpKind::Memory) => follow_load(body, at, constant),
        (Mnemonic::Lea, _) if instruction.memory_index() == Register::None => {
            follow(instruction.memory_base(), instruction.memory_displacement64())
        }
        (Mnemonic::Xor, OpKind::Register) if instruction.op0_register() == instruction.op1_register() => known(0),
        (Mnemonic::Inc, _) => follow(instruction.op0_register(), 1),
        (Mnemonic::Dec, _) => follow(instruction.op0_register(), u64::MAX),
        (mnemonic, _) => {
            let immediate = instruction.try_immediate(operand).ok()?;
            match mnemonic {
                Mnemonic::Mov => known(immediate),
                Mnemonic::Add => follow(instruction.op0_register(), immediate),
                Mnemonic::Sub => follow(instruction.op0_register(), immediate.wrapping_neg()),
                Mnemonic::And if constant == 0 => Some(BackwardStep::Known(0..=immediate)),
                _ => None,
            }
        }
    }
}

/// Continues tracing with the value that an instruction loads from memory. Returns `None` if several values are possible.
fn follow_load(body: &FunctionBody, at: SumPosition, constant: u64) -> Option<BackwardStep> {
    let values = body.evaluate_operand(at, 1, MAX_EXPANSION_DEPTH);
    let [value] = &values[..] else { return None };
    let (value, more) = split_constant(value);
    Some(BackwardStep::Follow(TrackedIndex::Value(value), constant.wrapping_add(more)))
}

/// Returns the bounds that a conditional jump at `from` implies for the index if control takes its edge to `to`.
fn bounds_implied_by_edge(
    body: &FunctionBody,
    from: SumPosition,
    to: SumPosition,
    tracked: &TrackedIndex,
    constant: u64,
) -> Option<RangeInclusive<u64>> {
    let CodeFlow::Conditional(target) = body.flows[from as usize] else { return None };
    let jump = &body.instructions[from as usize];
    let to = body.addresses[to as usize];
    if target == jump.next_ip() {
        return None;
    }
    let condition = if to == target { jump.condition_code() } else { negate_condition(jump.condition_code())? };
    let (compare, bits) = find_comparison(body, from, tracked)?;
    let offset = offset_from_traced_value(body, compare, tracked)?;
    let (least, max) = range_satisfying(condition, body.instructions[compare as usize].try_immediate(1).ok()?, bits)?;
    // The compared value is the traced value plus `offset`; the index is the traced value plus `constant`.
    let as_index = |value: u64| value.wrapping_sub(offset).wrapping_add(constant) & u64::from(u32::MAX);
    let (first, last) = (as_index(least), as_index(max));
    // If the compared operand has only one or two bytes, the index is the low part of the sum.
    let narrow = bits < 32 && first >> bits == last >> bits;
    let (first, last) = if narrow { (first & mask_of_low_bits(bits), last & mask_of_low_bits(bits)) } else { (first, last) };
    // Assumes that the compared value is not below the constant that is subtracted from it, as in any correct program.
    let first = if first > last && least == 0 { 0 } else { first };
    (first <= last).then_some(first..=last)
}

fn mask_of_low_bits(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// Returns the least and the greatest unsigned value for which a condition holds after a comparison with a constant.
fn range_satisfying(condition: ConditionCode, constant: u64, bits: u32) -> Option<(u64, u64)> {
    let max = mask_of_low_bits(bits);
    let limit = constant & max;
    let is_negative = limit > max / 2;
    match condition {
        ConditionCode::be => Some((0, limit)),
        ConditionCode::b => Some((0, limit.checked_sub(1)?)),
        ConditionCode::ae => Some((limit, max)),
        ConditionCode::a => Some((limit.checked_add(1)?, max)),
        ConditionCode::e => Some((limit, limit)),
        // Assumes that a signed index with only an upper bound is not negative, as in any correct program.
        ConditionCode::le if !is_negative => Some((0, limit)),
        ConditionCode::l if !is_negative => Some((0, limit.checked_sub(1)?)),
        _ => None,
    }
}

/// Returns by how much the first operand of a comparison exceeds the traced value, if the difference is constant. Otherwise returns `None`.
fn offset_from_traced_value(body: &FunctionBody, compare: SumPosition, tracked: &TrackedIndex) -> Option<u64> {
    let followed = match tracked {
        TrackedIndex::Location(SumLocation::Register(register)) => {
            let instruction = &body.instructions[compare as usize];
            let is_same = instruction.op0_kind() == OpKind::Register && register_number(instruction.op0_register()) == Some(*register);
            if is_same && instruction.mnemonic() == Mnemonic::Cmp {
                return Some(0);
            }
            // Another register may hold the same value, or one that differs from it by a constant.
            single_value(body.evaluate_register(Register::RAX + u32::from(*register), compare, MAX_EXPANSION_DEPTH))?
        }
        TrackedIndex::Location(_) => return None,
        TrackedIndex::Value(value) => value.clone(),
    };
    let (followed, own) = split_constant(&followed);
    let (compared, offset) = split_constant(&single_value(body.evaluate_operand(compare, 0, MAX_EXPANSION_DEPTH))?);
    (compared == followed).then(|| offset.wrapping_sub(own))
}

fn single_value(values: Vec<SumValue>) -> Option<SumValue> {
    let mut values = values.into_iter();
    values.next().filter(|_| values.next().is_none())
}

/// Returns the comparison with a constant that sets the flags for a conditional jump, and the comparison's width in bits. Returns `None` if
/// the traced value changes between the comparison and the jump.
fn find_comparison(body: &FunctionBody, jump: SumPosition, tracked: &TrackedIndex) -> Option<(SumPosition, u32)> {
    let mut at = jump;
    for _ in 0..12 {
        let [before] = body.predecessors(at) else { return None };
        at = *before;
        let instruction = &body.instructions[at as usize];
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Sub if is_immediate(instruction) => return Some((at, operand_bits(instruction))),
            _ if instruction.rflags_modified() != 0 => return None,
            _ if matches!(tracked, TrackedIndex::Location(place) if body.defines(at, *place)) => return None,
            _ => {}
        }
    }
    None
}

fn is_immediate(instruction: &Instruction) -> bool {
    !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
}

fn operand_bits(instruction: &Instruction) -> u32 {
    match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().size() as u32 * 8,
        _ => instruction.memory_size().size() as u32 * 8,
    }
    .clamp(8, 64)
}

fn negate_condition(condition: ConditionCode) -> Option<ConditionCode> {
    Some(match condition {
        ConditionCode::a => ConditionCode::be,
        ConditionCode::b => ConditionCode::ae,
        ConditionCode::be => ConditionCode::a,
        ConditionCode::ae => ConditionCode::b,
        ConditionCode::g => ConditionCode::le,
        ConditionCode::ge => ConditionCode::l,
        ConditionCode::ne => ConditionCode::e,
        _ => return None,
    })
}
