//! Compiles or summarises several units of a Rust crate in one process, because most units take less time than starting clang.
//!
//! clang compiles a module without code, and its target machine then generates code for each unit. LLVM options that the plugin sets apply
//! to all units of the process, so the driver uses task lists only for unoptimised code, where these options have no effect.

use crate::error::InstrumentError;
use crate::llvm::{Module, OwnedModule, TargetMachine};
use crate::module::{UnitOutcome, instrument};
use crate::no_return;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use trodden_unit::tasks::{
    CallSummary, RETURNS_ATTRIBUTE, UnitTask, UnitTaskOutput, UnitTasks, find_returning_functions, tasks_from_bytes, to_bytes,
};

/// Executes the tasks listed in a file. The module that clang passed to the plugin is not compiled.
///
/// # Errors
/// Fails if a file cannot be read or written, or if a unit cannot be instrumented.
pub fn run_tasks(file: &OsStr, machine: TargetMachine) -> Result<UnitOutcome, InstrumentError> {
    let file = Path::new(file);
    let bytes = fs::read(file).map_err(|error| task_list_error(file, &error))?;
    let UnitTasks { others, tasks } = tasks_from_bytes(&bytes).map_err(|error| task_list_error(file, &error))?;
    let mut summarized = Vec::new();
    for task in &tasks {
        match &task.work {
            UnitTaskOutput::Summarize => _ = summarize_calls(parse_unit(task)?.module, &task.output)?,
            UnitTaskOutput::Compile { returning } => compile_unit(task, &parse_unit(task)?, returning, machine)?,
            UnitTaskOutput::SummarizeAndCompile { summary } => {
                let unit = parse_unit(task)?;
                let summary = summarize_calls(unit.module, summary)?;
                summarized.push((task, unit, summary));
            }
            UnitTaskOutput::CompilePlain => write_object(task, parse_unit(task)?.module, machine)?,
        }
    }
    let summaries: Vec<&CallSummary> = summarized.iter().map(|(.., summary)| summary).chain(&others).collect();
    let known = find_returning_functions(&summaries);
    summarized.iter().try_for_each(|(task, unit, summary)| compile_unit(task, unit, &summary.called_functions_among(&known), machine))?;
    Ok(UnitOutcome::NoCode)
}

fn parse_unit(task: &UnitTask) -> Result<OwnedModule, InstrumentError> {
    let bitcode = Path::new(&task.bitcode);
    let bytes = fs::read(bitcode).map_err(|error| task_list_error(bitcode, &error))?;
    // SAFETY: `run_tasks` drops each unit only after the functions that use handles to it have returned, and these return no handle.
    unsafe { OwnedModule::parse(&bytes) }.ok_or_else(|| task_list_error(bitcode, &"LLVM cannot read its bitcode"))
}

fn summarize_calls(unit: Module, file: &str) -> Result<CallSummary, InstrumentError> {
    let summary = no_return::summarise_calls(unit);
    fs::write(file, to_bytes(&summary)).map_err(|error| task_list_error(Path::new(file), &error))?;
    Ok(summary)
}

/// Instruments a unit and writes its object file. `returning` lists the functions of other units whose calls always return.
fn compile_unit(task: &UnitTask, unit: &OwnedModule, returning: &[String], machine: TargetMachine) -> Result<(), InstrumentError> {
    returning.iter().for_each(|name| mark_as_always_returning(unit.module, name));
    instrument(unit.module, machine)?;
    write_object(task, unit.module, machine)
}

fn write_object(task: &UnitTask, unit: Module, machine: TargetMachine) -> Result<(), InstrumentError> {
    unit.write_object(machine, &task.output).map_err(|error| task_list_error(Path::new(&task.output), &error))
}

/// Marks a declared function as one whose calls always return. The mark is part of the stored bitcode, so that all variants of the unit
/// number paths alike.
fn mark_as_always_returning(module: Module, name: &str) {
    let Some(function) = module.function(name) else { return };
    function.add_text_attribute(module.context(), RETURNS_ATTRIBUTE);
}

fn task_list_error(file: &Path, what: &dyn std::fmt::Display) -> InstrumentError {
    InstrumentError::Tasks { file: file.to_owned(), what: what.to_string() }
}
