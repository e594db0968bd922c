//! The whole of a unit: describe, plan, insert, emit.

use crate::block_properties;
use crate::calls;
use crate::debug::Positions;
use crate::emit;
use crate::error::Error;
use crate::flags::code_generation_flags;
use crate::hoisting;
use crate::identical_phis;
use crate::line_graphs;
use crate::llvm::{Module, Value};
use crate::module_context::ModuleContext;
use crate::no_return::NoReturnAnalysis;
use crate::observe::{self, Observer, addresses, sleds};
use crate::options::{PluginOptions, Threads};
use crate::passes::verify;
use crate::placeholders;
use crate::transform;
use crate::unasked;
use crate::unoptimised;
use indexmap::IndexSet;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use std::path::PathBuf;
use trodden_unit::{CountedEvent, EdgeProfile, Experiment, Frame, Identity, Observation, Skipped, UnitCache, UnitMap};
use trodden_wire::{ENTER_SHARED_SYMBOL, ENTER_SYMBOL};

mod choice;
mod planning;
mod storage;

use choice::{choose, is_emitted};
pub use planning::{graph_of, verify_plan};

/// What is left to do with a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitOutcome {
    /// To generate its code.
    Code,
    /// Nothing.
    NoCode,
}

/// Instruments a module in place, or only writes what its blocks compute.
pub fn instrument(module: Module, machine: LLVMTargetMachineRef) -> Result<UnitOutcome, Error> {
    let options = PluginOptions::from_environment(|name| std::env::var_os(name))?;
    line_graphs::take(module)?;
    if options.placeholders {
        placeholders::insert(module);
    }
    if !module.functions().any(is_emitted) && options.properties.is_none() {
        return Ok(UnitOutcome::Code);
    }
    if let Some(plan) = &options.apply {
        let chosen: Vec<Value> = choose(module).0;
        transform::apply(module, machine, &chosen, plan, options.reach_all)?;
        unasked::strip(module);
        return Ok(UnitOutcome::Code);
    }
    // Lines of programs that are traced, here and for addresses, are looked up in their debug information.
    if let Observation::TraceSleds(_) = options.experiment.observation() {
        sleds::insert(module, choose(module).0);
        return Ok(UnitOutcome::Code);
    }
    let bitcode = module.bitcode();
    let unit = identity(&bitcode, &options);
    if let Observation::BlockAddresses(kind) = options.experiment.observation() {
        return addresses::mark(module, options, kind.merge_tails, unit, bitcode).map(|()| UnitOutcome::Code);
    }
    let (mut work, mut observer) = Unit::begin(module, options)?;
    let (chosen, skipped) = work.choose(&*observer);
    if let Some(file) = work.options.properties.clone() {
        let properties = block_properties::of(module, &chosen, &work.no_return, work.positions);
        std::fs::write(&file, properties.to_bytes()).map_err(|source| Error::Properties { file, source })?;
        return Ok(UnitOutcome::NoCode);
    }
    work.map.skipped = skipped;
    work.observe_all(&mut *observer, &chosen, machine)?;
    work.forget_unused(&*observer);
    unasked::strip(module);
    if cfg!(debug_assertions) {
        work.verify()?;
    }
    work.describe(observer.edge_profile(), unit, bitcode)?;
    Ok(UnitOutcome::Code)
}

/// A unit is its code and how it is instrumented, by which version.
fn identity(bitcode: &[u8], options: &PluginOptions) -> Identity {
    let mut content = Identity::from_content(bitcode).0.to_vec();
    content.extend(options.experiment.to_string().bytes());
    content.extend(code_generation_flags().concat().bytes());
    content.extend(env!("CARGO_PKG_VERSION").bytes());
    content.extend(trodden_unit::MAP_VERSION.to_le_bytes());
    Identity::from_content(&content)
}

fn store(frame: &Frame) -> Result<PathBuf, Error> {
    let folder = UnitCache::root_from(|name| std::env::var_os(name)).ok_or(Error::NoStore)?;
    let folder = std::path::absolute(&folder).map_err(|source| Error::Store { folder: folder.clone(), source })?;
    UnitCache::at(&folder).put(frame).map_err(|source| Error::Store { folder, source })
}

/// A unit that is observed.
pub struct Unit {
    /// Its module.
    pub module: Module,
    /// How it is instrumented.
    pub options: PluginOptions,
    /// Which calls may not come back.
    pub no_return: NoReturnAnalysis,
    /// Source positions.
    pub positions: Positions,
    /// What all of the code refers to.
    pub context: ModuleContext,
    chosen: IndexSet<Value>,
    /// Functions that have other code now, or were made.
    changed: Vec<Value>,
    /// Its map, as far as it is known.
    pub map: UnitMap,
    /// Paths of functions that count in tables.
    in_tables: u64,
}

impl Unit {
    /// Begins a unit, and its observation.
    ///
    /// # Errors
    /// As of [`observe::begin`].
    pub fn begin(module: Module, options: PluginOptions) -> Result<(Unit, Box<dyn Observer>), Error> {
        let counters = emit::declare_counters(module);
        let (bias, enter) = match options.experiment.threads() {
            Threads::Own => (emit::declare_bias(module), emit::declare_enter(module, ENTER_SYMBOL)),
            Threads::Atomic => (emit::declare_shared_bias(module), emit::declare_enter(module, ENTER_SHARED_SYMBOL)),
        };
        let context = ModuleContext { module, counters, bias, enter };
        let mut map = empty_map(module, &options.experiment);
        let observer = observe::begin(module, context, &options, &mut map.counters)?;
        let no_return = NoReturnAnalysis::new(module, options.reach_all).with_calls(options.reach_calls);
        let (positions, chosen, changed) = (Positions::new(module), IndexSet::new(), Vec::new());
        Ok((Unit { module, options, no_return, positions, context, chosen, changed, map, in_tables: 0 }, observer))
    }

    /// The functions to instrument, and those that cannot be, with the reasons.
    pub fn choose(&mut self, observer: &dyn Observer) -> (Vec<Value>, Vec<Skipped>) {
        let (described, mut skipped) = choose(self.module);
        let mut chosen = Vec::new();
        for function in described {
            match observer.reason_to_skip(self, function) {
                None => chosen.push(function),
                Some(reason) => skipped.push(Skipped { name: function.name(), reason: reason.into() }),
            }
        }
        self.chosen = chosen.iter().copied().collect();
        (chosen, skipped)
    }

    /// Makes the code that observes what each of these functions does.
    fn observe_all(&mut self, observer: &mut dyn Observer, chosen: &[Value], machine: LLVMTargetMachineRef) -> Result<(), Error> {
        if self.options.experiment.threads() != Threads::Own {
            emit::shared_bias(self.module);
        }
        observer.observe_all(self, chosen, machine)?;
        unoptimised::define(self.context, self.options.experiment.threads());
        hoisting::limit(chosen);
        observer.define(self);
        Ok(())
    }

    /// Takes declarations out again that no function came to need.
    fn forget_unused(&self, observer: &dyn Observer) {
        emit::forget_unused(&[self.context.bias, self.context.counters, self.context.enter]);
        observer.forget_unused(self);
    }

    /// Puts the unit's map and bitcode into sections of the module, and into the store.
    fn describe(self, edge_profile: Option<EdgeProfile>, unit: Identity, bitcode: Vec<u8>) -> Result<(), Error> {
        let module = self.module;
        let each = self.options.experiment.observation().observed().words().each();
        let words = self.map.counters.checked_mul(each).expect("a unit has fewer counters than memory has bytes");
        let (map, frame) = self.finish(edge_profile, unit, bitcode)?;
        emit::sections(module, unit, words, map.events().is_some(), &frame);
        if map.has_times() {
            emit::functions(module, &map);
        }
        Ok(())
    }

    /// Keeps code generation from mistaking what was made of a function.
    pub fn finish_code(&mut self, parts: &[Value]) {
        for &part in parts {
            identical_phis::split(self.module, part);
            // It writes memory now.
            part.remove_attribute("memory");
        }
        self.changed.extend(parts);
    }

    /// Has LLVM check what was made of the functions. Without debug information that takes less time.
    fn verify(&self) -> Result<(), Error> {
        self.changed.iter().try_for_each(|function| verify(*function))
    }

    /// Completes the map, and stores it; gives it and its file.
    ///
    /// # Errors
    /// There is no store, or it cannot be written.
    pub fn finish(mut self, edge_profile: Option<EdgeProfile>, unit: Identity, bitcode: Vec<u8>) -> Result<(UnitMap, PathBuf), Error> {
        // Behind the words come the paths of functions whose words are not one for each path.
        for function in self.map.functions.iter_mut().filter(|f| f.counts_elsewhere()) {
            function.first_counter = self.map.counters;
            self.map.counters += function.counters;
        }
        self.map.files = self.positions.files;
        self.map.scopes = self.positions.scopes;
        self.map.edge_profile = edge_profile;
        let bitcode = if self.options.keep_bitcode { bitcode } else { Vec::new() };
        let frame = store(&Frame::pack(unit, &self.map, &bitcode))?;
        Ok((self.map, frame))
    }
}

/// The map of a unit none of whose functions is described yet.
fn empty_map(module: Module, experiment: &Experiment) -> UnitMap {
    UnitMap {
        source: module.source(),
        producer: String::new(),
        target: module.target(),
        experiment: experiment.clone(),
        counted: CountedEvent::Paths,
        codegen: code_generation_flags(),
        files: Vec::new(),
        scopes: Vec::new(),
        functions: Vec::new(),
        skipped: Vec::new(),
        instead: Vec::new(),
        counters: 0,
        edge_profile: None,
        calls: calls::of(module),
        aliases: calls::aliases(module),
        line_graphs: line_graphs::of(module),
    }
}
