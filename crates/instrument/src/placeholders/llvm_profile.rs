//! LLVM's own profile instrumentation in a module: reading its tables, and taking them out.
//!
//! The layout is that of `InstrProfData.inc` of LLVM 22, raw format 10. A function with counters has two private
//! globals: `__profc_*`, an array of counters, and `__profd_*`, a structure with the hash of its name, the hash of its
//! graph, where its counters are and how many. All names of a module are in globals called `__llvm_prf_nm`. Nothing of
//! this is needed at run time by a program whose counters are gone.

use super::PlaceholderError;
use crate::emit::add_attribute;
use crate::llvm::{Builder, Module, Value, llvm};
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;
use llvm_sys::LLVMTypeKind;
use llvm_sys::core::*;
use std::collections::HashSet;
use trodden_unit::ProfiledFunction;

/// Fields of `__profd_*`.
const NAME: u32 = 0;
const HASH: u32 = 1;
const COUNTERS: u32 = 2;
const COUNTER_COUNT: u32 = 6;
const VALUE_SITES: u32 = 7;
const BITMAP: u32 = 3;
const BITMAP_BYTES: u32 = 8;
/// How records of functions in the coverage mapping are called, and their fields.
const RECORD: &str = "__covrec_";
const RECORD_NAME: u32 = 0;
const RECORD_HASH: u32 = 2;
/// Separates names in `__llvm_prf_nm`.
const SEPARATOR: u8 = 1;

/// A function's counters.
pub struct CounterTable {
    /// The structure `__profd_*`.
    pub data: Value,
    /// The array `__profc_*`.
    pub counters: Value,
    /// The bitmap `__profbm_*` of its decisions, if it has one.
    pub bitmap: Option<Value>,
    /// Whose they are.
    pub function: ProfiledFunction,
}

/// What LLVM's tables say.
pub struct ProfileTables {
    /// The word of version and flags; 0 if there is none, which is so where a compiler's front end has inserted the counters.
    pub version: u64,
    /// Names of functions.
    pub names: Vec<String>,
    /// Counters of functions.
    pub functions: Vec<CounterTable>,
}

/// Reads all tables of a module.
pub fn read(module: Module) -> Result<ProfileTables, PlaceholderError> {
    let mut tables = ProfileTables { version: 0, names: Vec::new(), functions: Vec::new() };
    for global in globals(module) {
        let name = global.name();
        let damaged = || PlaceholderError::Table(name.clone());
        let Some(content) = global.initializer() else { continue };
        if name == "__llvm_profile_raw_version" {
            tables.version = content.as_integer().ok_or_else(damaged)? as u64;
        } else if name.starts_with("__llvm_prf_nm") {
            tables.names.extend(names_in(&content.bytes().unwrap_or_default()).ok_or_else(damaged)?);
        } else if name.starts_with("__profd_") {
            tables.functions.push(table(global, content).ok_or_else(damaged)?);
        }
    }
    Ok(tables)
}

fn table(global: Value, data: Value) -> Option<CounterTable> {
    let field = |at: u32| Value::some(llvm!(LLVMGetOperand(data.0, at)));
    let number = |at: u32| field(at)?.as_integer();
    // Where the counters are, and the bitmap: their distance from the structure.
    let distant = |at: u32, prefix: &str| operand(operand(field(at)?, 0)?, 0).filter(|c| c.name().starts_with(prefix));
    let counters = distant(COUNTERS, "__profc_")?;
    let bitmap = distant(BITMAP, "__profbm_");
    let sites = field(VALUE_SITES)?;
    let element = |at| Value::some(llvm!(LLVMGetAggregateElement(sites.0, at)))?.as_integer();
    let function = ProfiledFunction {
        name: number(NAME)? as u64,
        hash: number(HASH)? as u64,
        counters: number(COUNTER_COUNT)? as u32,
        bits: 8 * number(BITMAP_BYTES)? as u32,
        value_sites: [element(0)? as u16, element(1)? as u16, element(2)? as u16],
    };
    Some(CounterTable { data: global, counters, bitmap, function })
}

fn operand(value: Value, at: u32) -> Option<Value> {
    value.operands().nth(at as usize).and_then(|operand| Value::some(operand.0))
}

/// Names, from chunks of: size (LEB128), size when compressed (0: it is not), names. `None` if they are compressed, or damaged.
fn names_in(mut bytes: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let (size, rest) = leb128(bytes)?;
        let (compressed, rest) = leb128(rest)?;
        let chunk = rest.get(..size).filter(|_| compressed == 0)?;
        names.extend(chunk.split(|b| *b == SEPARATOR).filter(|n| !n.is_empty()).map(|n| String::from_utf8_lossy(n).into_owned()));
        bytes = &rest[size..];
        let padding = bytes.iter().take_while(|b| **b == 0).count();
        bytes = &bytes[padding..];
    }
    Some(names)
}

fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.iter().take(9).position(|b| b & 0x80 == 0)? + 1;
    let value = bytes[..end].iter().rev().fold(0, |sum, b| sum << 7 | usize::from(b & 0x7f));
    Some((value, &bytes[end..]))
}

/// What becomes of the tables by which `llvm-cov` turns counters into regions of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverageTables {
    /// They stay, with the names of functions: they are constants that no code refers to.
    Kept,
    /// They are taken out with the others.
    Removed,
}

/// Takes out all tables but the counters themselves. What still refers to one that has a stand-in, gets that number as an address.
pub fn remove_tables(module: Module, stand_ins: &[(Value, u64)], mapping: CoverageTables) {
    let is_kept = |name: &str| mapping == CoverageTables::Kept && is_mapping(name);
    let mut doomed: IndexSet<Value> =
        globals(module).filter(|g| (is_table(&g.name()) || is_mapping(&g.name())) && !is_kept(&g.name())).collect();
    doomed.extend(superseded_records(module));
    leave_out_of_lists(module, &doomed);
    for &(table, number) in stand_ins {
        let address = llvm!(LLVMConstIntToPtr(module.constant(number as i64).0, table.kind()));
        table.replace_uses(Value(address));
    }
    doomed.into_iter().for_each(remove);
}

/// Records that say of a function that it is not executed, where another record has its counters.
///
/// rustc writes such a record (its hash is 0) in the crate that has the function, if all its uses were inlined into other crates. LLVM's
/// tools take the first record of a name that they meet: that would be 0 executions of a function that ran.
fn superseded_records(module: Module) -> Vec<Value> {
    let records: Vec<(Value, i64, i64)> = globals(module)
        .filter(|g| g.name().starts_with(RECORD))
        .filter_map(|g| {
            let content = g.initializer()?;
            Some((g, operand(content, RECORD_NAME)?.as_integer()?, operand(content, RECORD_HASH)?.as_integer()?))
        })
        .collect();
    let counted: HashSet<i64> = records.iter().filter(|(_, _, hash)| *hash != 0).map(|(_, name, _)| *name).collect();
    records.into_iter().filter(|(_, name, hash)| *hash == 0 && counted.contains(name)).map(|(record, ..)| record).collect()
}

/// All calls that note values (the target of an indirect call, a size), as calls that do not end their blocks.
pub fn value_notes(module: Module) -> Vec<Value> {
    let mut notes = Vec::new();
    for function in module.functions().filter(|f| f.name().starts_with("__llvm_profile_instrument_")).collect::<Vec<_>>() {
        // So that LLVM takes it that control comes back from them.
        for attribute in ["nounwind", "willreturn"] {
            add_attribute(module, function, attribute);
        }
        for user in function.users().collect::<Vec<_>>().into_iter().filter(|u| u.is_call() && u.callee() == function) {
            notes.push(if user.is(LLVMOpcode::LLVMInvoke) { note_of_invoke(module, user) } else { user });
        }
    }
    notes
}

/// Makes a call of a call that ends its block.
fn note_of_invoke(module: Module, invoke: Value) -> Value {
    let builder = Builder::before(module, invoke, invoke.location());
    let kind = llvm!(LLVMGetCalledFunctionType(invoke.0));
    let call = builder.call_as(kind, invoke.callee(), &invoke.arguments().collect::<Vec<_>>());
    invoke_nothing(module, invoke);
    // SAFETY: the caller keeps the call in its place.
    unsafe { invoke.erase() };
    call
}

/// Puts a call that does nothing in front of one that ends its block, to go on where that goes on.
fn invoke_nothing(module: Module, invoke: Value) {
    let nothing = module.intrinsic("llvm.donothing", &mut []).0;
    let kind = llvm!(LLVMGlobalGetValueType(nothing));
    let builder = Builder::before(module, invoke, invoke.location());
    let (normal, unwind) = (llvm!(LLVMGetNormalDest(invoke.0)), llvm!(LLVMGetUnwindDest(invoke.0)));
    llvm!(LLVMBuildInvoke2(builder.raw(), kind, nothing, std::ptr::null_mut(), 0, normal, unwind, c"".as_ptr()));
}

/// Takes out a global that has no real use any more.
pub fn remove(global: Value) {
    global.replace_uses(Value(llvm!(LLVMConstNull(global.kind()))));
    llvm!(LLVMDeleteGlobal(global.0));
}

fn is_table(name: &str) -> bool {
    ["__profd_", "__profvp_", "__llvm_prf_", "__llvm_profile_"].iter().any(|p| name.starts_with(p))
}

/// Records of functions, names of files, names of functions: the sections `__llvm_covfun`, `__llvm_covmap`, `__llvm_prf_names`.
fn is_mapping(name: &str) -> bool {
    [RECORD, "__llvm_coverage_mapping", "__llvm_prf_nm"].iter().any(|p| name.starts_with(p))
}

fn globals(module: Module) -> impl Iterator<Item = Value> {
    let first = llvm!(LLVMGetFirstGlobal(module.raw));
    std::iter::successors(Value::some(first), |g| Value::some(llvm!(LLVMGetNextGlobal(g.0)))).collect::<Vec<_>>().into_iter()
}

/// Takes globals out of a module, and of LLVM's lists of globals to keep.
pub fn forget_globals(module: Module, doomed: &IndexSet<Value>) {
    leave_out_of_lists(module, doomed);
    doomed.iter().copied().for_each(remove);
}

fn leave_out_of_lists(module: Module, doomed: &IndexSet<Value>) {
    ["llvm.used", "llvm.compiler.used"].iter().for_each(|list| leave_out(module, list, doomed));
}

/// Makes one of LLVM's lists of globals again without some of them.
fn leave_out(module: Module, list: &str, doomed: &IndexSet<Value>) {
    let Some(old) = module.global(list) else { return };
    let Some(content) = old.initializer() else { return };
    let all: Vec<Value> = content.operands().collect();
    let mut kept: Vec<_> = all.iter().filter(|g| !doomed.contains(*g)).map(|g| g.0).collect();
    if kept.len() == all.len() {
        return;
    }
    llvm!(LLVMDeleteGlobal(old.0));
    if kept.is_empty() {
        return;
    }
    let pointer = llvm!(LLVMPointerTypeInContext(module.context(), 0));
    let array = Value(llvm!(LLVMConstArray2(pointer, kept.as_mut_ptr(), kept.len() as u64)));
    let new = module.add_global(list, array.kind());
    llvm!(LLVMSetInitializer(new.0, array.0));
    llvm!(LLVMSetLinkage(new.0, llvm_sys::LLVMLinkage::LLVMAppendingLinkage));
    llvm!(LLVMSetSection(new.0, c"llvm.metadata".as_ptr()));
}

/// If an address is a fixed one in an array of elements of so many bytes: the array, and the number of the element.
pub fn fixed_element(address: Value, bytes: i64) -> Option<(Value, u32)> {
    if address.is_global_variable() {
        return Some((address, 0));
    }
    if llvm!(LLVMIsAConstantExpr(address.0)).is_null() || llvm!(LLVMGetConstOpcode(address.0)) != LLVMOpcode::LLVMGetElementPtr {
        return None;
    }
    let last = address.operand_count() - 1;
    let offset = address.operand(last).as_integer()?;
    let element = llvm!(LLVMGetGEPSourceElementType(address.0));
    let index = match (llvm!(LLVMGetTypeKind(element)), last) {
        (LLVMTypeKind::LLVMIntegerTypeKind, 1) => match i64::from(llvm!(LLVMGetIntTypeWidth(element))) {
            8 if offset % bytes == 0 => offset / bytes,
            bits if bits == 8 * bytes => offset,
            _ => return None,
        },
        (LLVMTypeKind::LLVMArrayTypeKind, 2) if address.operand(1).as_integer() == Some(0) => offset,
        _ => return None,
    };
    let base = Some(address.operand(0)).filter(|base| base.is_global_variable());
    base.zip(u32::try_from(index).ok())
}
