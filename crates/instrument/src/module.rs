//! Processes a whole module: chooses functions, instruments them, describes the unit, and emits its sections.

use crate::block_properties;
use crate::emit;
use crate::error::InstrumentError;
use crate::flags::code_generation_flags;
use crate::hoisting;
use crate::line_graphs;
use crate::llvm::{Module, OwnedModule, TargetMachine, Value};
use crate::map_only_debug_info;
use crate::module_context::ModuleContext;
use crate::observe::addresses::{self, BlockAddresses};
use crate::observe::{self, Observer, choose_functions, sleds};
use crate::options::{PluginOptions, ThreadCounters};
use crate::placeholders;
use crate::transform;
use crate::unit::{Unit, choose_instrumentable, compute_unit_identity, empty_map, is_emitted};
use crate::unoptimised;
use trodden_unit::{Identity, Observation};
use trodden_wire::{ENTER_SHARED_SYMBOL, ENTER_SYMBOL};

/// What LLVM is to do after the plugin has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitOutcome {
    Code,
    /// Nothing, because the user only requested data about the code.
    NoCode,
}

/// Instruments a module in place, or performs another action on it that the options request.
pub fn instrument(module: Module, machine: TargetMachine) -> Result<UnitOutcome, InstrumentError> {
    let options = PluginOptions::from_environment(|name| std::env::var_os(name))?;
    line_graphs::extract_line_graphs(module)?;
    if options.placeholders {
        placeholders::mark_as_placeholders(module);
    }
    if !module.functions().any(is_emitted) && options.properties.is_none() {
        return Ok(UnitOutcome::Code);
    }
    if let Some(plan) = &options.apply {
        let chosen: Vec<Value> = choose_instrumentable(module).0;
        transform::apply_transformations(module, machine, &chosen, plan, options.reach_all)?;
        map_only_debug_info::strip_map_only_debug_info(module);
        return Ok(UnitOutcome::Code);
    }
    // Programs to be traced (here and for block addresses below) keep their debug information, by which addresses are later mapped to
    // lines.
    if let Observation::TraceSleds(_) = options.experiment.observation() {
        sleds::insert_sleds(module, choose_instrumentable(module).0);
        return Ok(UnitOutcome::Code);
    }
    let bitcode = module.bitcode();
    let unit = compute_unit_identity(&bitcode, &options);
    if let Observation::BlockAddresses(kind) = options.experiment.observation() {
        return mark_block_addresses(module, options, kind.merge_tails, unit, bitcode).map(|()| UnitOutcome::Code);
    }
    let (mut work, mut observer) = begin_unit(module, options)?;
    let (chosen, skipped) = choose_functions(&mut work, &*observer);
    if let Some(file) = work.options.properties.clone() {
        let properties = block_properties::collect_unit_properties(module, &chosen, &work.no_return, work.positions);
        std::fs::write(&file, properties.to_bytes()).map_err(|source| InstrumentError::PropertiesWrite { file, source })?;
        return Ok(UnitOutcome::NoCode);
    }
    work.map.skipped = skipped;
    instrument_functions(&mut work, &mut *observer, &chosen, machine)?;
    emit::remove_unused_declarations(&[work.context.bias, work.context.counters, work.context.enter]);
    observer.remove_unused_declarations(&work);
    map_only_debug_info::strip_map_only_debug_info(module);
    if cfg!(debug_assertions) {
        work.verify()?;
    }
    work.emit_map(observer.edge_profile(), unit, bitcode)?;
    Ok(UnitOutcome::Code)
}

fn begin_unit(module: Module, options: PluginOptions) -> Result<(Unit, Box<dyn Observer>), InstrumentError> {
    let counters = emit::declare_counters(module);
    let (bias, enter) = match options.experiment.threads() {
        ThreadCounters::Own => (emit::declare_thread_bias(module), emit::declare_region_acquisition(module, ENTER_SYMBOL)),
        ThreadCounters::Atomic => (emit::declare_shared_bias(module), emit::declare_region_acquisition(module, ENTER_SHARED_SYMBOL)),
    };
    let context = ModuleContext { module, counters, bias, enter };
    let mut map = empty_map(module, &options.experiment);
    let observer = observe::create_observer(module, context, &options, &mut map.counters)?;
    Ok((Unit::new(context, options, map), observer))
}

/// Instruments the chosen functions, and defines the symbols that their probes refer to.
fn instrument_functions(
    work: &mut Unit,
    observer: &mut dyn Observer,
    chosen: &[Value],
    machine: TargetMachine,
) -> Result<(), InstrumentError> {
    if work.options.experiment.threads() != ThreadCounters::Own {
        emit::define_shared_bias(work.module);
    }
    observer.observe_functions(work, chosen, machine)?;
    unoptimised::define_helpers(work.context, work.options.experiment.threads());
    hoisting::disable_hoisting_if_too_costly(chosen);
    observer.define_referenced_symbols(work);
    Ok(())
}

/// Builds the unit's map from a clone of the module, and marks the blocks in the module itself.
fn mark_block_addresses(
    module: Module,
    options: PluginOptions,
    merge_tails: bool,
    unit: Identity,
    bitcode: Vec<u8>,
) -> Result<(), InstrumentError> {
    if code_generation_flags().iter().any(|f| f == "-fno-integrated-as") {
        return Err(InstrumentError::ForeignAssembler);
    }
    if !merge_tails {
        addresses::disable_tail_merging();
    }
    // SAFETY: the clone is declared before everything that has handles to it, so it is dropped last.
    let copy = unsafe { OwnedModule::clone_of(module) };
    let (mut work, _) = begin_unit(copy.module, options)?;
    let mut observer = BlockAddresses::default();
    let (chosen, skipped) = choose_functions(&mut work, &observer);
    work.map.skipped = skipped;
    chosen.iter().try_for_each(|function| observer.observe_function(&mut work, *function))?;
    observer.insert_pseudo_probes_into(module, unit);
    let (_, frame) = work.finish_unit_map(None, unit, bitcode)?;
    emit::emit_sections(module, unit, 0, false, &frame);
    Ok(())
}
