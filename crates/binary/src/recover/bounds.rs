//! Which values the index of a jump table can have: by the checks that every path to the jump passes, by a mask, or by its width.
//!
//! The index is followed backwards from where the table is read, over all paths, through copies and sums with
//! constants. A conditional jump that compares it with a constant bounds it on that path. A path without a check leaves
//! the index unbounded.

use super::explore::CodeFlow;
use super::sums::{Atom, SumLocation, SumPosition, SumValue};
use super::values::{FunctionBody, number};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Instructions between the check of an index and the jump, over all paths, at most.
const CHECK_LIMIT: usize = 600;
/// Steps from a use to a definition.
const DEPTH: u32 = 12;

/// What is followed backwards; the index is this and a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Tracked {
    /// What a place holds.
    Place(SumLocation),
    /// A value, wherever it is held.
    Value(SumValue),
}

/// The values that an index can have before a jump.
pub struct Bounds {
    /// The values.
    pub values: RangeInclusive<u64>,
    /// A check or a mask says so, and not only the width of what is read: a `match` of an enumeration has no entry for values that the
    /// enumeration does not have.
    pub certain: bool,
}

/// The values that an index can have before the jump; a range of at most `most` values. `size` is that of the table's entries.
pub fn bounds(body: &FunctionBody, jump: SumPosition, index: &SumValue, size: u64, most: u64) -> Option<Bounds> {
    let by_value = || {
        let (value, constant) = core(index);
        checked(body, jump, Tracked::Value(value), constant, most)
    };
    let by_place = || {
        let (read, register) = table_read(body, jump, size)?;
        // A constant that the register's value has is part of the table's address, and not of the index.
        let folded = only(body.register(Register::RAX + u32::from(register), read, DEPTH)).map_or(0, |value| value.constant);
        checked(body, read, Tracked::Place(SumLocation::Register(register)), folded.wrapping_neg(), most)
    };
    let certain = |values| Bounds { values, certain: true };
    let by_width = || by_width(index).filter(|(last, _)| *last < most).map(|(last, certain)| Bounds { values: 0..=last, certain });
    by_place().or_else(by_value).map(certain).or_else(by_width)
}

/// The instruction that reads the table, and the register that holds the index there.
fn table_read(body: &FunctionBody, jump: SumPosition, size: u64) -> Option<(SumPosition, u8)> {
    let mut at = jump;
    for _ in 0..24 {
        let instruction = &body.instructions[at as usize];
        if u64::from(instruction.memory_index_scale()) == size && instruction.memory_index() != Register::None {
            return Some((at, number(instruction.memory_index())?));
        }
        let [before] = body.before(at) else { return None };
        at = *before;
    }
    None
}

/// The greatest value of an index by a mask, which is certain, or by its width.
fn by_width(index: &SumValue) -> Option<(u64, bool)> {
    match index.only_atom()? {
        Atom::And(bits, _) => Some((*bits, true)),
        Atom::Low(1, _) | Atom::Load { bytes: 1, signed: false, .. } => Some((255, false)),
        Atom::Low(_, inner) | Atom::Signed(_, inner) => by_width(inner),
        _ => None,
    }
}

/// An index without its extensions and its constant, and the constant.
fn core(value: &SumValue) -> (SumValue, u64) {
    let without_constant = || (SumValue { constant: 0, terms: value.terms.clone() }, value.constant);
    let [(atom, 1)] = &value.terms[..] else { return without_constant() };
    match atom {
        Atom::Low(bytes, inner) | Atom::Signed(bytes, inner) if *bytes >= 4 || value.constant == 0 => {
            let (inner, constant) = core(inner);
            (inner, constant.wrapping_add(value.constant))
        }
        Atom::Load { bytes, address, .. } => {
            let load = Atom::Load { bytes: *bytes, signed: false, address: address.clone() };
            (SumValue { constant: 0, terms: vec![(load, 1)] }, value.constant)
        }
        _ => without_constant(),
    }
}

/// Walks back over all paths; each must pass a check of the index.
fn checked(body: &FunctionBody, from: SumPosition, tracked: Tracked, constant: u64, most: u64) -> Option<RangeInclusive<u64>> {
    let mut seen: HashSet<(SumPosition, Tracked, u64)> = HashSet::new();
    let mut work = vec![(from, tracked, constant)];
    let mut whole: Option<RangeInclusive<u64>> = None;
    while let Some((at, tracked, constant)) = work.pop() {
        if !seen.insert((at, tracked.clone(), constant)) {
            continue;
        }
        if seen.len() > CHECK_LIMIT || body.before(at).is_empty() {
            return None;
        }
        for &before in body.before(at) {
            let part = match bounds_of_edge(body, before, at, &tracked, constant).filter(|part| part.end() - part.start() < most) {
                Some(part) => part,
                None => match step(body, before, &tracked, constant)? {
                    Step::Known(part) => part,
                    Step::Follow(tracked, constant) => {
                        work.push((before, tracked, constant));
                        continue;
                    }
                },
            };
            whole = Some(match whole {
                Some(whole) => *whole.start().min(part.start())..=*whole.end().max(part.end()),
                None => part,
            });
        }
    }
    whole.filter(|whole| whole.end() - whole.start() < most)
}

/// What an instruction makes of what is followed.
enum Step {
    Known(RangeInclusive<u64>),
    Follow(Tracked, u64),
}

fn single(value: u64) -> RangeInclusive<u64> {
    value..=value
}

/// Goes back over one instruction; `None` if the index cannot be followed further.
fn step(body: &FunctionBody, at: SumPosition, tracked: &Tracked, constant: u64) -> Option<Step> {
    let place = match tracked {
        Tracked::Value(value)
            if value.terms.iter().any(|(a, _)| matches!(a, Atom::Opaque(_, definitions) if definitions.contains(&at))) =>
        {
            return None;
        }
        Tracked::Value(_) => return Some(Step::Follow(tracked.clone(), constant)),
        Tracked::Place(place) if !body.defines(at, *place) => return Some(Step::Follow(tracked.clone(), constant)),
        Tracked::Place(place) => *place,
    };
    let instruction = &body.instructions[at as usize];
    let known = |value: u64| Some(Step::Known(single(value.wrapping_add(constant) & u64::from(u32::MAX))));
    let follow = |register: Register, more: u64| {
        Some(Step::Follow(Tracked::Place(SumLocation::Register(number(register)?)), constant.wrapping_add(more)))
    };
    let operand = instruction.op_count().saturating_sub(1);
    let is_target =
        instruction.op0_kind() == OpKind::Memory || number(instruction.op0_register()).map(SumLocation::Register) == Some(place);
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
        (Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd | Mnemonic::Movsx, OpKind::Memory) => loaded(body, at, constant),
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
                Mnemonic::And if constant == 0 => Some(Step::Known(0..=immediate)),
                _ => None,
            }
        }
    }
}

/// What is loaded from memory, if it is one value.
fn loaded(body: &FunctionBody, at: SumPosition, constant: u64) -> Option<Step> {
    let values = body.operand(at, 1, DEPTH);
    let [value] = &values[..] else { return None };
    let (value, more) = core(value);
    Some(Step::Follow(Tracked::Value(value), constant.wrapping_add(more)))
}

/// What a conditional jump says about the index when it leads from one instruction to another.
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
    let condition = if to == target { jump.condition_code() } else { opposite(jump.condition_code())? };
    let (compare, bits) = compare_before(body, from, tracked)?;
    let offset = compared(body, compare, tracked)?;
    let (least, most) = allowed(condition, body.instructions[compare as usize].try_immediate(1).ok()?, bits)?;
    // The index is the compared value, less its constant, plus the index's.
    let as_index = |value: u64| value.wrapping_sub(offset).wrapping_add(constant) & u64::from(u32::MAX);
    let (first, last) = (as_index(least), as_index(most));
    // An index of a byte or two is the low part of a sum.
    let narrow = bits < 32 && first >> bits == last >> bits;
    let (first, last) = if narrow { (first & low_bits(bits), last & low_bits(bits)) } else { (first, last) };
    // A value below the constant that is taken off it cannot come here where the source is right.
    let first = if first > last && least == 0 { 0 } else { first };
    (first <= last).then_some(first..=last)
}

fn low_bits(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// Values for which a condition holds after a comparison with a constant.
fn allowed(condition: ConditionCode, constant: u64, bits: u32) -> Option<(u64, u64)> {
    let most = low_bits(bits);
    let limit = constant & most;
    let is_negative = limit > most / 2;
    match condition {
        ConditionCode::be => Some((0, limit)),
        ConditionCode::b => Some((0, limit.checked_sub(1)?)),
        ConditionCode::ae => Some((limit, most)),
        ConditionCode::a => Some((limit.checked_add(1)?, most)),
        ConditionCode::e => Some((limit, limit)),
        // A signed index that is bounded above only is not negative where the source is right.
        ConditionCode::le if !is_negative => Some((0, limit)),
        ConditionCode::l if !is_negative => Some((0, limit.checked_sub(1)?)),
        _ => None,
    }
}

/// Whether a comparison is of what is followed, and the constant that it compares in addition.
fn compared(body: &FunctionBody, compare: SumPosition, tracked: &Tracked) -> Option<u64> {
    let followed = match tracked {
        Tracked::Place(SumLocation::Register(register)) => {
            let instruction = &body.instructions[compare as usize];
            let is_same = instruction.op0_kind() == OpKind::Register && number(instruction.op0_register()) == Some(*register);
            if is_same && instruction.mnemonic() == Mnemonic::Cmp {
                return Some(0);
            }
            // Another register may hold the same, or differ by a constant.
            only(body.register(Register::RAX + u32::from(*register), compare, DEPTH))?
        }
        Tracked::Place(_) => return None,
        Tracked::Value(value) => value.clone(),
    };
    let (followed, own) = core(&followed);
    let (compared, offset) = core(&only(body.operand(compare, 0, DEPTH))?);
    (compared == followed).then(|| offset.wrapping_sub(own))
}

/// The value, if there is one only.
fn only(values: Vec<SumValue>) -> Option<SumValue> {
    let mut values = values.into_iter();
    values.next().filter(|_| values.next().is_none())
}

/// The comparison with a constant whose flags a jump reads, and its width in bits. Nothing between may change what is followed.
fn compare_before(body: &FunctionBody, jump: SumPosition, tracked: &Tracked) -> Option<(SumPosition, u32)> {
    let mut at = jump;
    for _ in 0..12 {
        let [before] = body.before(at) else { return None };
        at = *before;
        let instruction = &body.instructions[at as usize];
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Sub if is_immediate(instruction) => return Some((at, width(instruction))),
            _ if instruction.rflags_modified() != 0 => return None,
            _ if matches!(tracked, Tracked::Place(place) if body.defines(at, *place)) => return None,
            _ => {}
        }
    }
    None
}

fn is_immediate(instruction: &Instruction) -> bool {
    !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
}

fn width(instruction: &Instruction) -> u32 {
    match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().size() as u32 * 8,
        _ => instruction.memory_size().size() as u32 * 8,
    }
    .clamp(8, 64)
}

fn opposite(condition: ConditionCode) -> Option<ConditionCode> {
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
