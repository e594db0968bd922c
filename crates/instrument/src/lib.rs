//! The compiler plugin. clang loads it (`-fpass-plugin=`) and calls it once per module, after the optimiser and just before code
//! generation.
//!
//! [`module::instrument`] shows the order of work. This is the only crate that knows LLVM. It uses the LLVM-C API, whose functions resolve
//! at load time against the libLLVM that clang has loaded, so building the crate needs no LLVM. It makes no decisions about paths: it
//! turns functions into [`trodden_flow::Graph`]s ([`describe`]) and inserts the probes of [`trodden_flow::Plan`]s ([`probes`]). Errors end
//! the compilation with a message; no unit is silently left uninstrumented.

mod additions;
mod attributes;
mod block_properties;
mod bounds;
mod calls;
mod code;
mod counting;
mod debug;
mod describe;
mod emit;
mod entry;
mod error;
mod events;
mod flags;
mod handle_map;
mod hoisting;
mod host;
mod identical_phis;
mod interesting;
mod iterations;
mod line_graphs;
mod llvm;
mod map_only_debug_info;
mod module;
mod module_context;
mod no_return;
mod observe;
mod options;
mod passes;
mod path_end;
mod phis;
mod placeholders;
mod places;
mod planned_function;
mod probes;
mod program_passes;
mod residual;
mod sample;
mod segments;
mod shape;
mod stream;
mod supergraph;
mod task_list;
mod transform;
mod trip_count;
mod unit;
mod unoptimised;
mod values;
mod versions;
mod weights;

use llvm::{Module, TargetMachine};
use std::ffi::{c_int, c_void};
use trodden_unit::tasks::TASKS_VARIABLE;

/// Instruments the module in place. Returns false if LLVM is to generate code afterwards, true if not. LLVM calls it just before code
/// generation.
extern "C" fn before_code_generation(module: Module, machine: TargetMachine, _file_type: c_int, _out: *mut c_void) -> bool {
    let outcome = std::panic::catch_unwind(|| match std::env::var_os(TASKS_VARIABLE) {
        Some(tasks) => task_list::run_tasks(&tasks, machine),
        None => module::instrument(module, machine),
    });
    let message = match outcome {
        Ok(Ok(outcome)) => return outcome == module::UnitOutcome::NoCode,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "internal error (see the message above); please report it with the source file that is being compiled".into(),
    };
    exit_with_error(&message)
}

fn exit_with_error(message: &str) -> ! {
    eprintln!("trodden: error: {message}");
    std::process::exit(1);
}
