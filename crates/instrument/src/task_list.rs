//! Compiling or summarising several units of a Rust crate in one process, because most units take less time than starting clang.
//!
//! clang passes a module without code, and the target machine that then generates code for each unit. LLVM options that the plugin sets
//! apply to all units of the process, so the driver uses task lists only for unoptimised code, where these options have no effect.

use crate::error::Error;
use crate::llvm::{Module, llvm};
use crate::module::{UnitOutcome, instrument};
use crate::no_return;
use llvm_sys::LLVMAttributeFunctionIndex;
use llvm_sys::core::{LLVMAddAttributeAtIndex, LLVMCreateStringAttribute};
use llvm_sys::target_machine::LLVMTargetMachineRef;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use trodden_unit::tasks::{RETURNS_ATTRIBUTE, UnitTask, UnitWork, tasks_from_bytes, to_bytes};

/// Executes the tasks in a file. The module that clang passed is not compiled.
///
/// # Errors
/// A file cannot be read or written, or a unit cannot be instrumented.
pub fn run(file: &OsStr, machine: LLVMTargetMachineRef) -> Result<UnitOutcome, Error> {
    let file = Path::new(file);
    let bytes = fs::read(file).map_err(|error| in_file(file, &error))?;
    let tasks = tasks_from_bytes(&bytes).map_err(|error| in_file(file, &error))?;
    tasks.iter().try_for_each(|task| execute(task, machine))?;
    Ok(UnitOutcome::NoCode)
}

fn execute(task: &UnitTask, machine: LLVMTargetMachineRef) -> Result<(), Error> {
    let (bitcode, output) = (Path::new(&task.bitcode), Path::new(&task.output));
    let bytes = fs::read(bitcode).map_err(|error| in_file(bitcode, &error))?;
    let unit = Module::parse(&bytes).map_err(|error| in_file(bitcode, &error))?;
    match &task.work {
        UnitWork::Summarize => fs::write(output, to_bytes(&no_return::summary(unit.module))).map_err(|error| in_file(output, &error)),
        UnitWork::Compile { returning } => {
            returning.iter().for_each(|name| mark_returning(unit.module, name));
            instrument(unit.module, machine)?;
            unit.module.write_object(machine, &task.output).map_err(|error| in_file(output, &error))
        }
    }
}

/// Marks a declared function as one whose calls return. The mark is part of the unit's stored bitcode, so that variants number paths alike.
fn mark_returning(module: Module, name: &str) {
    let Some(function) = module.function(name) else { return };
    let (text, length) = (RETURNS_ATTRIBUTE.as_ptr().cast(), RETURNS_ATTRIBUTE.len() as u32);
    let attribute = llvm!(LLVMCreateStringAttribute(module.context(), text, length, c"".as_ptr(), 0));
    llvm!(LLVMAddAttributeAtIndex(function.0, LLVMAttributeFunctionIndex, attribute));
}

fn in_file(file: &Path, what: &dyn std::fmt::Display) -> Error {
    Error::Tasks { file: file.to_owned(), what: what.to_string() }
}
