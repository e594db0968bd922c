//! Where indirect jumps lead: jump tables of `switch`, tables of labels, tail calls through pointers.
//!
//! Compilers write two forms: `jmp [table + 8*index]` with addresses in the table, and `jmp base + signed [table + 4*index]` with distances. A check before the
//! jump bounds the index (`cmp index, last; ja default`), or a mask does, or its width; where none does, the table ends with the first entry that does not
//! lead into the function, or where other data begins, and the jump is marked uncertain.

use super::code::Word;
use super::explore::{Explored, Flow, Resolution};
use super::values::{Atom, Body, Position, Value};
use crate::graph::Doubt;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind};
use std::collections::HashSet;

/// Steps from a use to a definition.
const DEPTH: u32 = 12;
/// Entries of a table at most.
const ENTRIES_LIMIT: u64 = 1 << 14;
/// Instructions between the check of an index and the jump at most.
const CHECK_LIMIT: usize = 400;

/// What was found of one indirect jump.
pub struct Found {
    /// Where it leads.
    pub resolution: Resolution,
    /// What is not certain.
    pub doubt: Option<Doubt>,
    /// The table ends where nothing better is known, and not by a check.
    pub unbounded: bool,
}

/// A jump table.
struct Table {
    /// Its address.
    address: u64,
    /// Addresses of eight bytes, or distances of four from this one.
    base: Option<u64>,
    index: Value,
}

/// Finds where the jump at an address leads. `is_inside` says whether an address belongs to the jump's function.
pub fn resolve(explored: &Explored, body: &Body, jump: u64, is_inside: &dyn Fn(u64) -> bool) -> Option<Found> {
    body.refuel();
    let at = body.position(jump)?;
    let targets = match body.instructions[at as usize].op0_kind() {
        OpKind::Memory => body.load(at, 8, DEPTH),
        _ => body.operand(at, 0, DEPTH),
    };
    let mut parts = Vec::new();
    for target in &targets {
        parts.push(resolve_value(explored, body, at, target, is_inside)?);
    }
    merge(parts)
}

/// Several values that the jump's operand may have.
fn merge(parts: Vec<Found>) -> Option<Found> {
    let mut parts = parts.into_iter();
    let mut whole = parts.next()?;
    for part in parts {
        whole.resolution = match (whole.resolution, part.resolution) {
            (Resolution::Within(mut a), Resolution::Within(b)) => {
                a.extend(b);
                a.sort_unstable();
                a.dedup();
                Resolution::Within(a)
            }
            (Resolution::Functions(mut a), Resolution::Functions(b)) => {
                a.extend(b);
                Resolution::Functions(a)
            }
            (a, b) if a == b => a,
            (Resolution::TailCall, Resolution::Functions(_) | Resolution::Import(_)) | (Resolution::Functions(_) | Resolution::Import(_), Resolution::TailCall) => Resolution::TailCall,
            _ => return None,
        };
        whole.doubt = whole.doubt.or(part.doubt);
        whole.unbounded |= part.unbounded;
    }
    Some(whole)
}

fn resolve_value(explored: &Explored, body: &Body, at: Position, target: &Value, is_inside: &dyn Fn(u64) -> bool) -> Option<Found> {
    let certain = |resolution| Some(Found { resolution, doubt: None, unbounded: false });
    if target.terms.is_empty() {
        let to = target.constant;
        if explored.code.is_stub(to) {
            return certain(explored.code.stubs.get(&to).and_then(|s| s.import.clone()).map_or(Resolution::TailCall, Resolution::Import));
        }
        return explored.code.is_code(to).then(|| certain(if is_inside(to) { Resolution::Within(vec![to]) } else { Resolution::Functions(vec![to]) }))?;
    }
    if let Some(table) = table(target) {
        return read(explored, body, at, &table, is_inside);
    }
    match target.only_atom()? {
        Atom::Load { bytes: 8, address, .. } if address.terms.is_empty() => match explored.code.words.get(&address.constant) {
            Some(Word::Import(name)) => certain(Resolution::Import(name.clone())),
            _ => certain(Resolution::TailCall),
        },
        _ => None,
    }
}

/// The table that a jump's target is read from.
fn table(target: &Value) -> Option<Table> {
    let [(atom, 1)] = &target.terms[..] else { return None };
    let (atom, signed) = match atom {
        Atom::Signed(4, inner) | Atom::Low(4, inner) => (inner.only_atom()?, true),
        other => (other, false),
    };
    let Atom::Load { bytes, signed: load_signed, address } = atom else { return None };
    let [(index, scale)] = &address.terms[..] else { return None };
    let scaled = |size: u64| scaled_index(index, *scale, size);
    match bytes {
        8 if target.constant == 0 => Some(Table { address: address.constant, base: None, index: scaled(8)? }),
        4 if signed || *load_signed => Some(Table { address: address.constant, base: Some(target.constant), index: scaled(4)? }),
        4 if target.constant == 0 => Some(Table { address: address.constant, base: Some(0), index: scaled(4)? }),
        _ => None,
    }
}

/// The index of a table whose entries have a size.
fn scaled_index(index: &Atom, scale: u64, size: u64) -> Option<Value> {
    if scale == size {
        return Some(Value { constant: 0, terms: vec![(index.clone(), 1)] });
    }
    // The product may have been computed in a register before.
    match index {
        Atom::Low(_, inner) | Atom::Signed(_, inner) if scale == 1 => match (&inner.terms[..], inner.constant) {
            ([(inner, factor)], 0) if *factor == size => Some(Value { constant: 0, terms: vec![(inner.clone(), 1)] }),
            _ => None,
        },
        _ => None,
    }
}

fn read(explored: &Explored, body: &Body, at: Position, table: &Table, is_inside: &dyn Fn(u64) -> bool) -> Option<Found> {
    let last = bound(body, at, &table.index);
    let count = last.map_or(ENTRIES_LIMIT, |last| last.saturating_add(1).min(ENTRIES_LIMIT));
    let size = if table.base.is_some() { 4 } else { 8 };
    // Without a check the table ends where other data begins.
    let end = match last {
        Some(_) => u64::MAX,
        None => explored.data.range(table.address + 1..).next().copied().unwrap_or(u64::MAX),
    };
    let mut targets = Vec::new();
    let mut functions = 0;
    for entry in 0..count {
        let place = table.address.checked_add(entry * size)?;
        if place >= end {
            break;
        }
        let to = match table.base {
            Some(base) => base.wrapping_add(explored.code.half_word_at(place).unwrap_or(0) as i64 as u64),
            None => match explored.code.word_at(place) {
                Some(Word::Address(to)) => to,
                _ => 0,
            },
        };
        let outside = !is_inside(to);
        let is_function = outside && table.base.is_none() && explored.is_function_start(to);
        if (outside && !is_function) || (is_function && targets.len() as u64 > functions) {
            break;
        }
        functions += u64::from(is_function);
        targets.push(to);
    }
    if targets.is_empty() {
        return None;
    }
    let read = targets.len() as u64;
    targets.sort_unstable();
    targets.dedup();
    let complete = last.is_some_and(|last| read == last + 1);
    let doubt = (!complete).then_some(Doubt::JumpTableWithoutBound { table: table.address, entries: read as u32 });
    let resolution = if functions > 0 { Resolution::Functions(targets) } else { Resolution::Within(targets) };
    Some(Found { resolution, doubt, unbounded: !complete })
}

/// The greatest value that an index can have before the jump, by the checks on all paths to it, by a mask, or by its width.
fn bound(body: &Body, at: Position, index: &Value) -> Option<u64> {
    checked(body, at, index).or_else(|| by_width(index))
}

fn by_width(index: &Value) -> Option<u64> {
    match index.only_atom()? {
        Atom::And(bits, _) => Some(*bits).filter(|b| *b < ENTRIES_LIMIT),
        Atom::Low(1, _) | Atom::Load { bytes: 1, signed: false, .. } => Some(255),
        Atom::Low(_, inner) | Atom::Signed(_, inner) => by_width(inner),
        _ => None,
    }
}

/// An index without its extensions, as an atom and a constant.
fn core(value: &Value) -> Option<(Atom, u64)> {
    match &value.terms[..] {
        [(Atom::Low(bytes, inner) | Atom::Signed(bytes, inner), 1)] if *bytes >= 4 || inner.terms.len() == 1 && value.constant == 0 => {
            let (atom, constant) = core(inner)?;
            Some((atom, constant.wrapping_add(value.constant)))
        }
        [(Atom::Load { bytes, address, .. }, 1)] => Some((Atom::Load { bytes: *bytes, signed: false, address: address.clone() }, value.constant)),
        [(atom, 1)] => Some((atom.clone(), value.constant)),
        _ => None,
    }
}

/// Walks back from the jump over all paths; each must pass a check of the index.
fn checked(body: &Body, jump: Position, index: &Value) -> Option<u64> {
    let (atom, constant) = core(index)?;
    let defined_at = |at: Position| matches!(&atom, Atom::Opaque(_, at_definitions) if at_definitions.contains(&at));
    let mut seen: HashSet<Position> = HashSet::new();
    let mut work = vec![jump];
    let mut greatest = None;
    while let Some(at) = work.pop() {
        if !seen.insert(at) {
            continue;
        }
        if seen.len() > CHECK_LIMIT || body.before(at).is_empty() {
            return None;
        }
        for &before in body.before(at) {
            if let Some(limit) = limit_of_edge(body, before, at, &atom, constant) {
                greatest = greatest.max(Some(limit));
            } else if defined_at(before) {
                return None;
            } else {
                work.push(before);
            }
        }
    }
    greatest
}

/// What a conditional jump says about the index when it leads from one instruction to another.
fn limit_of_edge(body: &Body, from: Position, to: Position, atom: &Atom, constant: u64) -> Option<u64> {
    let Flow::Conditional(target) = body.flows[from as usize] else { return None };
    let jump = &body.instructions[from as usize];
    let to = body.addresses[to as usize];
    if target == jump.next_ip() {
        return None;
    }
    let condition = jump.condition_code();
    let condition = if to == target { condition } else { opposite(condition)? };
    let (compare, bits) = compare_before(body, from)?;
    let instruction = &body.instructions[compare as usize];
    let limit = instruction.try_immediate(1).ok()? & (u64::MAX >> (64 - bits));
    let limit = match condition {
        ConditionCode::be | ConditionCode::le => limit,
        ConditionCode::b | ConditionCode::l => limit.checked_sub(1)?,
        ConditionCode::e => limit,
        _ => return None,
    };
    let signed = matches!(condition, ConditionCode::le | ConditionCode::l);
    if signed && limit >= 1 << (bits - 1) {
        return None;
    }
    let values = body.operand(compare, 0, DEPTH);
    let [value] = &values[..] else { return None };
    let (compared, offset) = core(value)?;
    // The index is the compared value, less its constant, plus the index's.
    (compared == *atom).then(|| limit.wrapping_sub(offset).wrapping_add(constant) & 0xffff_ffff).filter(|l| *l < ENTRIES_LIMIT)
}

/// The comparison with a constant whose flags a jump reads, and its width in bits.
fn compare_before(body: &Body, jump: Position) -> Option<(Position, u32)> {
    let mut at = jump;
    for _ in 0..12 {
        let [before] = body.before(at) else { return None };
        at = *before;
        let instruction = &body.instructions[at as usize];
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Sub if is_immediate(instruction) => return Some((at, width(instruction))),
            _ if instruction.rflags_modified() != 0 => return None,
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
        ConditionCode::ae => ConditionCode::b,
        ConditionCode::g => ConditionCode::le,
        ConditionCode::ge => ConditionCode::l,
        ConditionCode::ne => ConditionCode::e,
        _ => return None,
    })
}
