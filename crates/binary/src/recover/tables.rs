//! Resolves indirect jumps: jump tables of `switch`, tables of labels, and tail calls through pointers.
//!
//! Compilers generate two forms of tables: `jmp [table + 8*index]` with addresses in the table, and `jmp base + signed [table + 4*index]`
//! with offsets. The index is bounded by a check (`cmp index, last; ja default`), by a mask, or by its width. Without a bound, the table is
//! assumed to end at the first entry that does not lead into the function, or where other data begins, and the jump is marked as uncertain.

use super::bounds::{IndexBounds, find_checked_indices, find_index_bounds};
use super::code::CodeWord;
use super::explore::{Exploration, JumpResolution, flow_of};
use super::reached::CodeFlow;
use super::sums::{SumAtom, SumPosition, SumValue};
use super::values::FunctionBody;
use crate::graph::GraphDoubt;
use iced_x86::{OpKind, Register};
use std::ops::{Range, RangeInclusive};

/// Maximum depth to which the definitions of a value are expanded.
const MAX_EXPANSION_DEPTH: u32 = 12;
const MAX_TABLE_ENTRIES: u64 = 1 << 14;

pub struct ResolvedJump {
    pub resolution: JumpResolution,
    pub doubt: Option<GraphDoubt>,
    /// Whether the end of the table is only a guess, which later passes may improve.
    pub is_unbounded: bool,
    /// The indices of the jump table that checks allow. `None` if other facts determine the targets.
    pub indices: Option<RangeInclusive<u64>>,
}

struct JumpTable {
    address: u64,
    /// Address to which the four-byte entries are relative; `None` if the entries are eight-byte addresses.
    base: Option<u64>,
    index: SumValue,
}

/// Resolves the indirect jump at an address. `is_inside` returns true for addresses in the same function. Returns `None` if the jump has no
/// known form.
pub fn resolve_jump(explored: &Exploration, body: &FunctionBody, jump: u64, is_inside: &dyn Fn(u64) -> bool) -> Option<ResolvedJump> {
    body.reset_budget();
    let at = body.position(jump)?;
    // The jump is a return to an address that the code has stored on the stack.
    if flow_of(&body.instructions[at as usize]) == CodeFlow::Return {
        return None;
    }
    let targets = match body.instructions[at as usize].op0_kind() {
        OpKind::Memory => body.evaluate_load(at, 8, MAX_EXPANSION_DEPTH),
        _ => body.evaluate_operand(at, 0, MAX_EXPANSION_DEPTH),
    };
    let mut parts = Vec::new();
    for target in &targets {
        parts.push(resolve_value(explored, body, at, target, is_inside)?);
    }
    combine_resolutions(parts)
}

/// Returns true if checks near a jump still allow only as many indices of its table. Then the jump's targets do not depend on other code.
pub fn are_indices_checked(body: &FunctionBody, jump: u64, indices: &RangeInclusive<u64>) -> bool {
    body.reset_budget();
    let Some(at) = body.position(jump) else { return false };
    let checked = [4, 8].iter().find_map(|size| find_checked_indices(body, at, *size, MAX_TABLE_ENTRIES));
    checked.is_some_and(|checked| checked.end() - checked.start() == indices.end() - indices.start())
}

/// Combines the resolutions that follow from several possible values of the jump's operand. Returns `None` if they cannot be combined.
fn combine_resolutions(parts: Vec<ResolvedJump>) -> Option<ResolvedJump> {
    let mut parts = parts.into_iter();
    let mut combined = parts.next()?;
    for part in parts {
        combined.resolution = match (combined.resolution, part.resolution) {
            (JumpResolution::Within(mut a), JumpResolution::Within(b)) => {
                a.extend(b);
                a.sort_unstable();
                a.dedup();
                JumpResolution::Within(a)
            }
            (JumpResolution::Functions(mut a), JumpResolution::Functions(b)) => {
                a.extend(b);
                JumpResolution::Functions(a)
            }
            (a, b) if a == b => a,
            (JumpResolution::TailCall, JumpResolution::Functions(_) | JumpResolution::Import(_))
            | (JumpResolution::Functions(_) | JumpResolution::Import(_), JumpResolution::TailCall) => JumpResolution::TailCall,
            _ => return None,
        };
        combined.indices = combined.indices.filter(|indices| Some(indices) == part.indices.as_ref());
        combined.doubt = combined.doubt.or(part.doubt);
        combined.is_unbounded |= part.is_unbounded;
    }
    Some(combined)
}

fn resolve_value(
    explored: &Exploration,
    body: &FunctionBody,
    at: SumPosition,
    target: &SumValue,
    is_inside: &dyn Fn(u64) -> bool,
) -> Option<ResolvedJump> {
    let certain = |resolution| Some(ResolvedJump { resolution, doubt: None, is_unbounded: false, indices: None });
    if target.terms.is_empty() {
        let to = target.constant;
        if explored.code.is_stub(to) {
            return certain(
                explored.code.stubs.get(&to).and_then(|s| s.import.clone()).map_or(JumpResolution::TailCall, JumpResolution::Import),
            );
        }
        return explored
            .code
            .is_code(to)
            .then(|| certain(if is_inside(to) { JumpResolution::Within(vec![to]) } else { JumpResolution::Functions(vec![to]) }))?;
    }
    if let Some(table) = find_table(target) {
        return read_table(explored, body, at, &table, is_inside);
    }
    match target.only_atom()? {
        SumAtom::Load { bytes: 8, address, .. } if address.terms.is_empty() => match explored.code.words.get(&address.constant) {
            Some(CodeWord::Import(name)) => certain(JumpResolution::Import(name.clone())),
            _ => certain(JumpResolution::TailCall),
        },
        _ => None,
    }
}

/// Returns the jump table from which a jump's target is read. Returns `None` if the target is not read from a table.
fn find_table(target: &SumValue) -> Option<JumpTable> {
    let [(atom, 1)] = &target.terms[..] else { return None };
    let (atom, signed) = match atom {
        SumAtom::Signed(4, inner) | SumAtom::Low(4, inner) => (inner.only_atom()?, true),
        other => (other, false),
    };
    let SumAtom::Load { bytes, is_signed: load_signed, address } = atom else { return None };
    let scaled = |size: u64| find_scaled_index(address, size);
    match bytes {
        8 if target.constant == 0 => Some(JumpTable { address: address.constant, base: None, index: scaled(8)? }),
        4 if signed || *load_signed => Some(JumpTable { address: address.constant, base: Some(target.constant), index: scaled(4)? }),
        4 if target.constant == 0 => Some(JumpTable { address: address.constant, base: Some(0), index: scaled(4)? }),
        _ => None,
    }
}

/// Returns the index of the entry at an address, in a table whose entries have `size` bytes. Returns `None` if the address is not computed
/// from an index.
fn find_scaled_index(address: &SumValue, size: u64) -> Option<SumValue> {
    if let [(SumAtom::Low(_, inner) | SumAtom::Signed(_, inner), 1)] = &address.terms[..] {
        // The index was already multiplied in a register.
        return if inner.constant == 0 { find_scaled_index(inner, size) } else { None };
    }
    let divided = |factor: u64| (factor as i64 % size as i64 == 0).then(|| (factor as i64 / size as i64) as u64);
    let terms: Option<Vec<(SumAtom, u64)>> = address.terms.iter().map(|(atom, factor)| Some((atom.clone(), divided(*factor)?))).collect();
    terms.filter(|terms| !terms.is_empty()).map(|terms| SumValue { constant: 0, terms })
}

fn read_table(
    explored: &Exploration,
    body: &FunctionBody,
    at: SumPosition,
    table: &JumpTable,
    is_inside: &dyn Fn(u64) -> bool,
) -> Option<ResolvedJump> {
    let size = if table.base.is_some() { 4 } else { 8 };
    let bounds = find_index_bounds(body, at, &table.index, size, MAX_TABLE_ENTRIES);
    // Constants in the index become part of the table's address. Four-byte entries are usually relative to the start of the table, and a
    // jump whose operand is an entry usually contains this address.
    let jump = &body.instructions[at as usize];
    let operand = (jump.op0_kind() == OpKind::Memory && jump.memory_base() == Register::None && table.base.is_none())
        .then(|| jump.memory_displacement64());
    let unchecked_start = table.base.filter(|base| *base != 0).or(operand).unwrap_or(table.address);
    let (start, count) = match &bounds {
        Some(IndexBounds { values, .. }) => {
            (table.address.wrapping_add(values.start().wrapping_mul(size)), values.end() - values.start() + 1)
        }
        None => (unchecked_start, MAX_TABLE_ENTRIES),
    };
    let is_proven = bounds.as_ref().is_some_and(|b| b.is_proven);
    // Without unwind information, code that only this table leads to may be outside the regions that are known to be the function's. GHC's
    // code is such code. It selects the target by three tag bits of a pointer, but a type may have fewer constructors than the bits allow.
    let is_bare = table.base.is_none() && explored.frames.index_at(jump.ip()).is_none();
    // If no check was found, but only a mask, the bounds include indices before the first entry.
    let (start, count) = match operand.filter(|operand| is_bare && start < *operand).map(|operand| (operand, (operand - start) / size)) {
        Some((operand, skipped)) if skipped < count => (operand, count - skipped),
        _ => (start, count),
    };
    let certain = is_proven && !is_bare;
    // Without a certain bound, the table ends where other data begins.
    let end = match certain {
        true => u64::MAX,
        false => explored.data.range(start + 1..).next().copied().unwrap_or(u64::MAX),
    };
    let is_target = |to: u64| (is_inside(to) || is_bare && is_unclaimed(explored, to)) && (certain || !explored.is_within_instruction(to));
    let entries = read_entries(explored, table, start..end, count, is_bare, &is_target);
    let (mut targets, functions) = (entries.targets, entries.are_functions);
    if targets.is_empty() {
        return None;
    }
    let read = targets.len() as u64 + u64::from(entries.has_null);
    let complete = bounds.is_some() && read == count;
    if functions && !complete {
        // This is probably a table of pointers to functions, unless its first target is found to be in this function.
        return Some(ResolvedJump { resolution: JumpResolution::TailCall, doubt: None, is_unbounded: true, indices: None });
    }
    targets.sort_unstable();
    targets.dedup();
    let doubt = (!complete).then_some(GraphDoubt::JumpTableWithoutBound { table: start, entries: read as u32 });
    let resolution = if functions { JumpResolution::Functions(targets) } else { JumpResolution::Within(targets) };
    let indices = bounds.filter(|bounds| bounds.is_proven).map(|bounds| bounds.values);
    Some(ResolvedJump { resolution, doubt, is_unbounded: !complete, indices })
}

/// Returns true if an address is code without unwind information that is not known to start a function.
fn is_unclaimed(explored: &Exploration, at: u64) -> bool {
    explored.code.is_code(at) && !explored.code.is_stub(at) && explored.frames.index_at(at).is_none() && !explored.is_function_start(at)
}

/// Targets in the entries of a table, up to the first entry that is not valid.
struct JumpTableTargets {
    targets: Vec<u64>,
    /// Whether the targets are entries of other functions, rather than addresses in the function of the jump.
    are_functions: bool,
    /// Whether the first entry is null, which is not a target.
    has_null: bool,
}

/// Reads the targets of a table. `may_begin_with_null` is true if the first entry may be null, as GHC's tables by tag bits are: evaluated
/// values never have tag 0.
fn read_entries(
    explored: &Exploration,
    table: &JumpTable,
    places: Range<u64>,
    count: u64,
    may_begin_with_null: bool,
    is_inside: &dyn Fn(u64) -> bool,
) -> JumpTableTargets {
    let size = if table.base.is_some() { 4 } else { 8 };
    let mut found = JumpTableTargets { targets: Vec::new(), are_functions: false, has_null: false };
    let first = places.start;
    let places = (0..count).map_while(|entry| places.start.checked_add(entry * size)).take_while(|place| *place < places.end);
    for place in places {
        let to = match table.base {
            Some(base) => explored.code.i32_at(place).map(|distance| base.wrapping_add(i64::from(distance) as u64)),
            None => match explored.code.word_at(place) {
                Some(CodeWord::Address(to)) => Some(to),
                _ => None,
            },
        };
        let Some(to) = to else { break };
        if to == 0 && place == first && may_begin_with_null {
            found.has_null = true;
            continue;
        }
        let is_function = !is_inside(to);
        if is_function && (table.base.is_some() || !explored.is_function_start(to)) {
            break;
        }
        if is_function != found.are_functions && !found.targets.is_empty() {
            break;
        }
        found.are_functions = is_function;
        found.targets.push(to);
    }
    found
}
