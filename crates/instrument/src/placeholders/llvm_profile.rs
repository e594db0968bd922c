//! Reads and removes the tables that LLVM's instrumentation adds to a module.
//!
//! The layout is that of `InstrProfData.inc` of LLVM 22, raw format 10. A function with counters has two private globals: `__profc_*`, the
//! array of counters, and `__profd_*`, a structure with hashes of its name and graph, and the position and number of its counters. All
//! names are in globals called `__llvm_prf_nm`. A program whose counters are removed needs no such table at run time.

use super::PlaceholderError;
use crate::llvm::{Builder, Module, Value};
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;
use std::collections::HashSet;
use trodden_unit::ProfiledFunction;

/// Indices of fields in `__profd_*`.
const NAME_FIELD: u32 = 0;
const HASH_FIELD: u32 = 1;
const COUNTERS_FIELD: u32 = 2;
const COUNTER_COUNT_FIELD: u32 = 6;
const VALUE_SITE_COUNTS_FIELD: u32 = 7;
const BITMAP_FIELD: u32 = 3;
const BITMAP_BYTES_FIELD: u32 = 8;
/// Prefix of the names of function records in the coverage mapping, and the indices of their fields.
const COVERAGE_RECORD_PREFIX: &str = "__covrec_";
const COVERAGE_RECORD_NAME_FIELD: u32 = 0;
const COVERAGE_RECORD_HASH_FIELD: u32 = 2;
/// Separator of names in `__llvm_prf_nm`.
const NAME_SEPARATOR: u8 = 1;

pub struct CounterTable {
    /// The structure `__profd_*`.
    pub data: Value,
    /// The array `__profc_*`.
    pub counters: Value,
    /// The bitmap `__profbm_*` for the function's decisions, if it has one.
    pub bitmap: Option<Value>,
    pub function: ProfiledFunction,
}

pub struct ProfileTables {
    /// Version and flags of the profile format; 0 if missing, as in units whose counters were inserted by a front end.
    pub version: u64,
    pub names: Vec<String>,
    pub functions: Vec<CounterTable>,
}

pub fn read(module: Module) -> Result<ProfileTables, PlaceholderError> {
    let mut tables = ProfileTables { version: 0, names: Vec::new(), functions: Vec::new() };
    for global in globals(module) {
        let name = global.name();
        let malformed = || PlaceholderError::Table(name.clone());
        let Some(content) = global.initializer() else { continue };
        if name == "__llvm_profile_raw_version" {
            tables.version = content.as_integer().ok_or_else(malformed)? as u64;
        } else if name.starts_with("__llvm_prf_nm") {
            tables.names.extend(parse_names(&content.bytes().unwrap_or_default()).ok_or_else(malformed)?);
        } else if name.starts_with("__profd_") {
            tables.functions.push(parse_table(global, content).ok_or_else(malformed)?);
        }
    }
    Ok(tables)
}

fn parse_table(global: Value, data: Value) -> Option<CounterTable> {
    let field = |at: u32| data.operand_if_any(at);
    let number = |at: u32| field(at)?.as_integer();
    // The structure contains the distances from itself to the counters and the bitmap.
    let distant = |at: u32, prefix: &str| field(at)?.operand_if_any(0)?.operand_if_any(0).filter(|c| c.name().starts_with(prefix));
    let counters = distant(COUNTERS_FIELD, "__profc_")?;
    let bitmap = distant(BITMAP_FIELD, "__profbm_");
    let sites = field(VALUE_SITE_COUNTS_FIELD)?;
    let element = |at| sites.element(at)?.as_integer();
    let function = ProfiledFunction {
        name: number(NAME_FIELD)? as u64,
        hash: number(HASH_FIELD)? as u64,
        counters: number(COUNTER_COUNT_FIELD)? as u32,
        bits: 8 * number(BITMAP_BYTES_FIELD)? as u32,
        value_sites: [element(0)? as u16, element(1)? as u16, element(2)? as u16],
    };
    Some(CounterTable { data: global, counters, bitmap, function })
}

/// Parses function names from chunks, each of which has a size (LEB128), a compressed size (0 if uncompressed) and names. Returns `None` if
/// a chunk is compressed or malformed.
fn parse_names(mut bytes: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let (size, rest) = parse_leb128(bytes)?;
        let (compressed, rest) = parse_leb128(rest)?;
        let chunk = rest.get(..size).filter(|_| compressed == 0)?;
        names.extend(chunk.split(|b| *b == NAME_SEPARATOR).filter(|n| !n.is_empty()).map(|n| String::from_utf8_lossy(n).into_owned()));
        bytes = &rest[size..];
        let padding = bytes.iter().take_while(|b| **b == 0).count();
        bytes = &bytes[padding..];
    }
    Some(names)
}

fn parse_leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.iter().take(9).position(|b| b & 0x80 == 0)? + 1;
    let value = bytes[..end].iter().rev().fold(0, |sum, b| sum << 7 | usize::from(b & 0x7f));
    Some((value, &bytes[end..]))
}

/// What to do with the tables by which `llvm-cov` maps counters to source regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverageTables {
    /// Keep these tables, and the names of functions. No code refers to them.
    Kept,
    Removed,
}

/// Removes all profile tables except the counters and, if `mapping` says so, the coverage mapping. Remaining references to a table in
/// `replacements` become the given number, as an address.
pub fn remove_tables(module: Module, replacements: &[(Value, u64)], mapping: CoverageTables) {
    let is_kept = |name: &str| mapping == CoverageTables::Kept && is_coverage_mapping(name);
    let mut doomed: IndexSet<Value> =
        globals(module).filter(|g| (is_profile_table(&g.name()) || is_coverage_mapping(&g.name())) && !is_kept(&g.name())).collect();
    doomed.extend(find_superseded_coverage_records(module));
    remove_from_used_lists(module, &doomed);
    for &(table, number) in replacements {
        let address = table.kind().pointer_from(module.constant(number as i64));
        // SAFETY: only handles to instructions and globals are used after this, not to constants.
        unsafe { table.replace_constant(address) };
    }
    for global in doomed {
        // SAFETY: nothing uses the handles in `doomed` and `replacements` after this, and no handle to a constant that contains such an
        // address is kept.
        unsafe { remove_global(global) };
    }
}

/// Returns coverage records that declare a function as never executed although another record has counters for the function.
///
/// rustc writes such a record (with hash 0) in the crate that defines the function, if all its uses were inlined into other crates. LLVM's
/// tools use the first record of a name, and would report 0 executions of a function that ran.
fn find_superseded_coverage_records(module: Module) -> Vec<Value> {
    let records: Vec<(Value, i64, i64)> = globals(module)
        .filter(|g| g.name().starts_with(COVERAGE_RECORD_PREFIX))
        .filter_map(|g| {
            let content = g.initializer()?;
            Some((
                g,
                content.operand_if_any(COVERAGE_RECORD_NAME_FIELD)?.as_integer()?,
                content.operand_if_any(COVERAGE_RECORD_HASH_FIELD)?.as_integer()?,
            ))
        })
        .collect();
    let counted: HashSet<i64> = records.iter().filter(|(_, _, hash)| *hash != 0).map(|(_, name, _)| *name).collect();
    records.into_iter().filter(|(_, name, hash)| *hash == 0 && counted.contains(name)).map(|(record, ..)| record).collect()
}

/// Returns all calls by which LLVM records values (the target of an indirect call, a size). An `invoke` among them is replaced by a call.
pub fn find_value_recording_calls(module: Module) -> Vec<Value> {
    let mut notes = Vec::new();
    for function in module.functions().filter(|f| f.name().starts_with("__llvm_profile_instrument_")).collect::<Vec<_>>() {
        // With these attributes, the calls are not treated as calls that may not return.
        for attribute in ["nounwind", "willreturn"] {
            function.add_attribute(module.context(), attribute);
        }
        for user in function.users().collect::<Vec<_>>().into_iter().filter(|u| u.is_call() && u.callee() == function) {
            notes.push(if user.is(LLVMOpcode::LLVMInvoke) { replace_invoke_by_call(module, user) } else { user });
        }
    }
    notes
}

/// Replaces an `invoke` with a call, followed by an `invoke` that does nothing. Returns the call.
fn replace_invoke_by_call(module: Module, invoke: Value) -> Value {
    let builder = Builder::before(module, invoke, invoke.location());
    let kind = invoke.called_type();
    let call = builder.call_as(kind, invoke.callee(), &invoke.arguments().collect::<Vec<_>>());
    insert_empty_invoke(module, invoke);
    // SAFETY: the caller keeps a handle to the call only, not to the `invoke`.
    unsafe { invoke.erase() };
    call
}

/// Inserts an `invoke` of `llvm.donothing` before an `invoke`, with the same destinations.
fn insert_empty_invoke(module: Module, invoke: Value) {
    let nothing = module.intrinsic("llvm.donothing", &[]);
    let builder = Builder::before(module, invoke, invoke.location());
    builder.invoke(nothing, &[], invoke.normal_destination(), invoke.unwind_destination());
}

/// Deletes a global, after replacing its remaining uses with null.
///
/// # Safety
/// No handle to the global, or to a constant that contains its address, may be used afterwards.
pub unsafe fn remove_global(global: Value) {
    // SAFETY: the caller keeps no handle to the global or to a constant with its address. After the replacement, nothing uses the global.
    unsafe {
        global.replace_constant(global.kind().null());
        global.delete_variable();
    }
}

fn is_profile_table(name: &str) -> bool {
    ["__profd_", "__profvp_", "__llvm_prf_", "__llvm_profile_"].iter().any(|p| name.starts_with(p))
}

/// Returns true for globals of the sections `__llvm_covfun`, `__llvm_covmap` and `__llvm_prf_names`.
fn is_coverage_mapping(name: &str) -> bool {
    [COVERAGE_RECORD_PREFIX, "__llvm_coverage_mapping", "__llvm_prf_nm"].iter().any(|p| name.starts_with(p))
}

fn globals(module: Module) -> impl Iterator<Item = Value> {
    module.variables().collect::<Vec<_>>().into_iter()
}

/// Deletes a global, and removes it from LLVM's lists of used globals.
///
/// # Safety
/// No handle to the global, or to a constant that contains its address, may be used afterwards.
pub unsafe fn remove_used_global(module: Module, global: Value) {
    remove_from_used_lists(module, &IndexSet::from([global]));
    // SAFETY: this function requires of its caller what `remove_global` requires.
    unsafe { remove_global(global) };
}

fn remove_from_used_lists(module: Module, doomed: &IndexSet<Value>) {
    ["llvm.used", "llvm.compiler.used"].iter().for_each(|list| remove_from_used_list(module, list, doomed));
}

/// Rebuilds one of LLVM's lists of used globals without the ones that will be deleted.
fn remove_from_used_list(module: Module, list: &str, doomed: &IndexSet<Value>) {
    let Some(old) = module.global(list) else { return };
    let Some(content) = old.initializer() else { return };
    let all: Vec<Value> = content.operands().collect();
    let kept: Vec<Value> = all.iter().filter(|global| !doomed.contains(*global)).copied().collect();
    if kept.len() == all.len() {
        return;
    }
    // SAFETY: no code refers to the list, and only this function has a handle to it.
    unsafe { old.delete_variable() };
    if kept.is_empty() {
        return;
    }
    let array = module.pointer().constant_array(&kept);
    let new = module.add_global(list, array.kind());
    new.set_initializer(array);
    new.set_linkage(llvm_sys::LLVMLinkage::LLVMAppendingLinkage);
    new.set_section(c"llvm.metadata");
}

/// Returns the array and the index, if an address is that of a constant element of an array. Elements have `bytes` bytes.
pub fn find_constant_element_index(address: Value, bytes: i64) -> Option<(Value, u32)> {
    if address.is_global_variable() {
        return Some((address, 0));
    }
    if address.constant_opcode() != Some(LLVMOpcode::LLVMGetElementPtr) {
        return None;
    }
    let last = address.operand_count() - 1;
    let offset = address.operand(last).as_integer()?;
    let element = address.element_type();
    let index = match (element.width().map(i64::from), last) {
        (Some(8), 1) if offset % bytes == 0 => offset / bytes,
        (Some(bits), 1) if bits == 8 * bytes => offset,
        (None, 2) if element.is_array() && address.operand(1).as_integer() == Some(0) => offset,
        _ => return None,
    };
    let base = Some(address.operand(0)).filter(|base| base.is_global_variable());
    base.zip(u32::try_from(index).ok())
}
