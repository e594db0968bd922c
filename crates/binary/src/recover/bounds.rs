//! Bounds of a jump table's index, derived from checks on every path to the jump, from a mask, or from the index's width.
//!
//! The index is traced backwards from the instruction that reads the table, along all paths, through copies and additions of constants.
//! On each path, a conditional jump on a comparison with a constant bounds the index. If a path has no check, the index is unbounded.

use super::reached::CodeFlow;
use super::sums::{Atom, SumLocation, SumPosition, SumValue};
use super::values::{FunctionBody, register_number};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Maximum number of instructions visited between an index's checks and its use, over all paths.
const MAX_CHECKED_INSTRUCTIONS: usize = 600;
/// Maximum depth to which a value's definitions are expanded.
const MAX_DEPTH: u32 = 12;

/// The value that is traced backwards. The index is this value plus a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Tracked {
    /// The content of a location.
    Location(SumLocation),
    /// A value, wherever it is stored.
    Value(SumValue),
}

/// The possible values of an index.
pub struct IndexBounds {
    pub values: RangeInclusive<u64>,
    /// Whether a check or a mask proves the bounds. The index's width alone proves nothing, because the table for a `match` on an
    /// enumeration lacks entries for invalid values.
    pub is_proven: bool,
}

/// Returns the possible values of a table's index at a jump. `size` is the size of a table entry in bytes. Returns `None` if no bounds
/// are found, or if there are more than `max` values.
pub fn find_index_bounds(body: &FunctionBody, jump: SumPosition, index: &SumValue, size: u64, max: u64) -> Option<IndexBounds> {
    let by_value = || {
        let (value, constant) = split_constant(index);
        bounds_from_checks(body, jump, Tracked::Value(value), constant, max)
    };
    let by_place = || {
        let (read, register) = find_table_read(body, jump, size)?;
        // A constant in the register's value was folded into the table's address.
        let folded =
            single_value(body.evaluate_register(Register::RAX + u32::from(register), read, MAX_DEPTH)).map_or(0, |value| value.constant);
        bounds_from_checks(body, read, Tracked::Location(SumLocation::Register(register)), folded.wrapping_neg(), max)
    };
    let proven_bounds = |values| IndexBounds { values, is_proven: true };
    let by_width =
        || bound_by_width(index).filter(|(last, _)| *last < max).map(|(last, is_proven)| IndexBounds { values: 0..=last, is_proven });
    by_place().or_else(by_value).map(proven_bounds).or_else(by_width)
}

/// Returns the position of the instruction that reads the table, and the index register.
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

/// Returns the maximum value of an index, and whether the maximum is proven. A mask proves it; the index's width does not.
fn bound_by_width(index: &SumValue) -> Option<(u64, bool)> {
    match index.only_atom()? {
        Atom::And(bits, _) => Some((*bits, true)),
        Atom::Low(1, _) | Atom::Load { bytes: 1, is_signed: false, .. } => Some((255, false)),
        Atom::Low(_, inner) | Atom::Signed(_, inner) => bound_by_width(inner),
        _ => None,
    }
}

/// Strips an index of its zero and sign extensions, and splits it into a value without a constant term and the constant.
fn split_constant(value: &SumValue) -> (SumValue, u64) {
    let without_constant = || (SumValue { constant: 0, terms: value.terms.clone() }, value.constant);
    let [(atom, 1)] = &value.terms[..] else { return without_constant() };
    match atom {
        Atom::Low(bytes, inner) | Atom::Signed(bytes, inner) if *bytes >= 4 || value.constant == 0 => {
            let (inner, constant) = split_constant(inner);
            (inner, constant.wrapping_add(value.constant))
        }
        Atom::Load { bytes, address, .. } => {
            let load = Atom::Load { bytes: *bytes, is_signed: false, address: address.clone() };
            (SumValue { constant: 0, terms: vec![(load, 1)] }, value.constant)
        }
        _ => without_constant(),
    }
}

/// Walks backwards along all paths, and returns the union of the bounds. Returns `None` if a path does not check the index.
fn bounds_from_checks(body: &FunctionBody, from: SumPosition, tracked: Tracked, constant: u64, max: u64) -> Option<RangeInclusive<u64>> {
    let mut seen: HashSet<(SumPosition, Tracked, u64)> = HashSet::new();
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
            let part = match bounds_of_edge(body, before, at, &tracked, constant).filter(|part| part.end() - part.start() < max) {
                Some(part) => part,
                None => match step_back(body, before, &tracked, constant)? {
                    BoundStep::Known(part) => part,
                    BoundStep::Follow(tracked, constant) => {
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

/// The result of tracing a value backwards over one instruction.
enum BoundStep {
    Known(RangeInclusive<u64>),
    Follow(Tracked, u64),
}

fn to_range(value: u64) -> RangeInclusive<u64> {
    value..=value
}

/// Traces the index backwards over one instruction. Returns `None` if it cannot be traced further.
fn step_back(body: &FunctionBody, at: SumPosition, tracked: &Tracked, constant: u64) -> Option<BoundStep> {
    let place = match tracked {
        Tracked::Value(value)
            if value.terms.iter().any(|(a, _)| matches!(a, Atom::Opaque(_, definitions) if definitions.contains(&at))) =>
        {
            return None;
        }
        Tracked::Value(_) => return Some(BoundStep::Follow(tracked.clone(), constant)),
        Tracked::Location(place) if !body.defines(at, *place) => return Some(BoundStep::Follow(tracked.clone(), constant)),
        Tracked::Location(place) => *place,
    };
    let instruction = &body.instructions[at as usize];
    let known = |value: u64| Some(BoundStep::Known(to_range(value.wrapping_add(constant) & u64::from(u32::MAX))));
    let follow = |register: Register, more: u64| {
        Some(BoundStep::Follow(Tracked::Location(SumLocation::Register(register_number(register)?)), constant.wrapping_add(more)))
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
                Mnemonic::And if constant == 0 => Some(BoundStep::Known(0..=immediate)),
                _ => None,
            }
        }
    }
}

/// Continues with the value that an instruction loads from memory. Returns `None` if the value is ambiguous.
fn follow_load(body: &FunctionBody, at: SumPosition, constant: u64) -> Option<BoundStep> {
    let values = body.evaluate_operand(at, 1, MAX_DEPTH);
    let [value] = &values[..] else { return None };
    let (value, more) = split_constant(value);
    Some(BoundStep::Follow(Tracked::Value(value), constant.wrapping_add(more)))
}

/// Returns the bounds of the index that a conditional jump at `from` implies for its edge to `to`.
fn bounds_of_edge(
    body: &FunctionBody,
    from: SumPosition,
    to: SumPosition,
    tracked: &Tracked,
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
    let offset = compared_offset(body, compare, tracked)?;
    let (least, max) = range_satisfying(condition, body.instructions[compare as usize].try_immediate(1).ok()?, bits)?;
    // The compared value is the tracked value plus `offset`; the index is the tracked value plus `constant`.
    let as_index = |value: u64| value.wrapping_sub(offset).wrapping_add(constant) & u64::from(u32::MAX);
    let (first, last) = (as_index(least), as_index(max));
    // An index of one or two bytes is the low part of a sum.
    let narrow = bits < 32 && first >> bits == last >> bits;
    let (first, last) = if narrow { (first & low_bits(bits), last & low_bits(bits)) } else { (first, last) };
    // In a correct program, a compared value is not below the constant that is subtracted from it.
    let first = if first > last && least == 0 { 0 } else { first };
    (first <= last).then_some(first..=last)
}

fn low_bits(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// Returns the unsigned range of values for which a condition holds after a comparison with a constant.
fn range_satisfying(condition: ConditionCode, constant: u64, bits: u32) -> Option<(u64, u64)> {
    let max = low_bits(bits);
    let limit = constant & max;
    let is_negative = limit > max / 2;
    match condition {
        ConditionCode::be => Some((0, limit)),
        ConditionCode::b => Some((0, limit.checked_sub(1)?)),
        ConditionCode::ae => Some((limit, max)),
        ConditionCode::a => Some((limit.checked_add(1)?, max)),
        ConditionCode::e => Some((limit, limit)),
        // In a correct program, a signed index with only an upper bound is not negative.
        ConditionCode::le if !is_negative => Some((0, limit)),
        ConditionCode::l if !is_negative => Some((0, limit.checked_sub(1)?)),
        _ => None,
    }
}

/// Returns the constant by which a comparison's first operand exceeds the tracked value. Returns `None` if something else is compared.
fn compared_offset(body: &FunctionBody, compare: SumPosition, tracked: &Tracked) -> Option<u64> {
    let followed = match tracked {
        Tracked::Location(SumLocation::Register(register)) => {
            let instruction = &body.instructions[compare as usize];
            let is_same = instruction.op0_kind() == OpKind::Register && register_number(instruction.op0_register()) == Some(*register);
            if is_same && instruction.mnemonic() == Mnemonic::Cmp {
                return Some(0);
            }
            // Another register may hold the same value, or a value that differs by a constant.
            single_value(body.evaluate_register(Register::RAX + u32::from(*register), compare, MAX_DEPTH))?
        }
        Tracked::Location(_) => return None,
        Tracked::Value(value) => value.clone(),
    };
    let (followed, own) = split_constant(&followed);
    let (compared, offset) = split_constant(&single_value(body.evaluate_operand(compare, 0, MAX_DEPTH))?);
    (compared == followed).then(|| offset.wrapping_sub(own))
}

fn single_value(values: Vec<SumValue>) -> Option<SumValue> {
    let mut values = values.into_iter();
    values.next().filter(|_| values.next().is_none())
}

/// Returns the comparison with a constant that sets the flags for a jump, and its width in bits. Returns `None` if the tracked value
/// changes between the comparison and the jump.
fn find_comparison(body: &FunctionBody, jump: SumPosition, tracked: &Tracked) -> Option<(SumPosition, u32)> {
    let mut at = jump;
    for _ in 0..12 {
        let [before] = body.predecessors(at) else { return None };
        at = *before;
        let instruction = &body.instructions[at as usize];
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Sub if is_immediate(instruction) => return Some((at, operand_bits(instruction))),
            _ if instruction.rflags_modified() != 0 => return None,
            _ if matches!(tracked, Tracked::Location(place) if body.defines(at, *place)) => return None,
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
