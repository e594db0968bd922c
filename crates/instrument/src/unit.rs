//! The whole of a unit: describe, plan, insert, emit.

use crate::addresses::{self, FunctionProbes, ModuleCopy, PseudoProbes};
use crate::block_properties;
use crate::calls;
use crate::counting::Counters;
use crate::debug::Positions;
use crate::emit;
use crate::entry;
use crate::error::Error;
use crate::events::Events;
use crate::flags::code_generation_flags;
use crate::hoisting;
use crate::identical_phis;
use crate::interesting::Words;
use crate::line_graphs;
use crate::llvm::{Module, Value};
use crate::module_context::ModuleContext;
use crate::no_return::NoReturnAnalysis;
use crate::options::{CountingTier, PluginOptions, Threads};
use crate::passes::verify;
use crate::placeholders::{self, CounterKind, PlaceholderError, Placeholders, Taking};
use crate::places;
use crate::probes;
use crate::residual;
use crate::sample::{self, PlannedFunction};
use crate::segments::hand_over::ContextWords;
use crate::sleds;
use crate::stream::{self, Streams};
use crate::transform;
use crate::unasked;
use crate::unoptimised;
use indexmap::IndexSet;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use trodden_flow::program::operation::Operation;
use trodden_flow::program::{Cells, Choices};
use trodden_unit::events::CELLS;
use trodden_unit::experiment::Observation;
use trodden_unit::{CountedEvent, Experiment, Frame, Identity, Skipped, UnitCache, UnitMap};
use trodden_wire::{ENTER_SHARED_SYMBOL, ENTER_SYMBOL, UNTESTED_SYMBOL};

mod choice;
mod path_sets;
mod planning;
mod segments;
mod storage;

use choice::{choose, is_emitted};

/// Why a function is not counted where only some paths are interesting.
const NOT_INTERESTING: &str = "none of its paths is interesting (--interesting)";

/// Why it is not where segments are counted.
const NO_SEGMENT: &str = "no segment that is counted runs through it (--segments)";

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
    if options.tier == CountingTier::Sleds {
        sleds::insert(module, choose(module).0);
        return Ok(UnitOutcome::Code);
    }
    let bitcode = module.bitcode();
    let unit = identity(&bitcode, &options);
    if options.tier == CountingTier::Addresses {
        return mark_addresses(module, options, unit, bitcode).map(|()| UnitOutcome::Code);
    }
    let mut work = Unit::begin(module, options)?;
    let (chosen, skipped) = work.choose();
    if let Some(file) = work.options.properties.clone() {
        let properties = block_properties::of(module, &chosen, &work.no_return, work.positions);
        std::fs::write(&file, properties.to_bytes()).map_err(|source| Error::Properties { file, source })?;
        return Ok(UnitOutcome::NoCode);
    }
    work.map.skipped = skipped;
    work.count_all(&chosen, machine)?;
    work.forget_unused();
    unasked::strip(module);
    if cfg!(debug_assertions) {
        work.verify()?;
    }
    work.describe(unit, bitcode)?;
    Ok(UnitOutcome::Code)
}

/// Describes a copy of the module, and marks the blocks of the module itself.
fn mark_addresses(module: Module, options: PluginOptions, unit: Identity, bitcode: Vec<u8>) -> Result<(), Error> {
    if code_generation_flags().iter().any(|f| f == "-fno-integrated-as") {
        return Err(Error::ForeignAssembler);
    }
    if options.experiment.observation() == (Observation::Addresses { merge_tails: false }) {
        addresses::forbid_tail_merging();
    }
    let copy = ModuleCopy::from_module(module);
    let mut work = Unit::begin(copy.module, options)?;
    let (chosen, skipped) = work.choose();
    work.map.skipped = skipped;
    for &function in &chosen {
        work.instrument(function)?;
    }
    addresses::insert(module, unit, &std::mem::take(&mut work.probes));
    let (_, frame) = work.finish(unit, bitcode)?;
    emit::sections(module, unit, 0, false, &frame);
    Ok(())
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

struct Unit {
    module: Module,
    options: PluginOptions,
    no_return: NoReturnAnalysis,
    /// The same, where streams have events.
    no_return_of_events: Option<NoReturnAnalysis>,
    positions: Positions,
    context: ModuleContext,
    chosen: IndexSet<Value>,
    /// Functions that have other code now, or were made.
    changed: Vec<Value>,
    map: UnitMap,
    /// The runtime's function that counts, of the tier `residual`.
    count: Option<Value>,
    /// Of the tier `addresses`, for each function.
    probes: Vec<FunctionProbes>,
    placeholders: Option<Placeholders>,
    events: Option<Events>,
    /// Of stream builds.
    streams: Option<Streams>,
    /// Paths of functions that count in tables.
    in_tables: u64,
    /// The words by which callers give callees their context, where segments are counted.
    context_words: Option<ContextWords>,
}

impl Unit {
    fn begin(module: Module, options: PluginOptions) -> Result<Unit, Error> {
        let counters = emit::declare_counters(module);
        let (bias, enter) = match options.experiment.threads() {
            Threads::Own => (emit::declare_bias(module), emit::declare_enter(module, ENTER_SYMBOL)),
            Threads::Atomic => (emit::declare_shared_bias(module), emit::declare_enter(module, ENTER_SHARED_SYMBOL)),
        };
        let context = ModuleContext { module, counters, bias, enter };
        let mut map = empty_map(module, &options.experiment);
        let placeholders = if options.placeholders {
            let kind = if options.experiment.has_coverage() { CounterKind::Coverage } else { CounterKind::Edges };
            let taking = Taking { kind, shared: options.experiment.threads() == Threads::Atomic };
            Some(Placeholders::take(module, context.counters, &mut map.counters, taking)?)
        } else {
            discard_placeholders(module, context.counters)?;
            None
        };
        let events = options.experiment.events().map(|source| Events::declare(module, source));
        let streams = options.stream.then(|| Streams::declare(module));
        let no_return = NoReturnAnalysis::new(module, options.reach_all).with_calls(options.reach_calls);
        let no_return_of_events = options.reach_events.then(|| no_return.clone().with_calls(true));
        let positions = Positions::new(module);
        let count = (options.tier == CountingTier::Residual).then(|| emit::declare_count(module));
        Ok(Unit {
            module,
            options,
            no_return,
            no_return_of_events,
            positions,
            context,
            count,
            chosen: IndexSet::new(),
            changed: Vec::new(),
            map,
            probes: Vec::new(),
            placeholders,
            events,
            streams,
            in_tables: 0,
            context_words: None,
        })
    }

    /// The functions to instrument, and those that cannot be, with the reasons.
    fn choose(&mut self) -> (Vec<Value>, Vec<Skipped>) {
        let (chosen, mut skipped) = choose(self.module);
        let doubles = self.options.tier == CountingTier::Sample;
        let reason = |f: &Value| doubles.then(|| sample::reason_not_to_double(*f)).flatten();
        let (refused, chosen): (Vec<Value>, Vec<Value>) = chosen.into_iter().partition(|f| reason(f).is_some());
        // Where a copy has no part it counts nothing, and no code is put in.
        let (chosen, absent): (Vec<Value>, Vec<Value>) =
            chosen.into_iter().partition(|f| self.options.parts.is_none() || self.part_of(&f.name()).is_some());
        // It would be reported itself.
        let is_callback = |f: &Value| self.options.tier == CountingTier::Residual && f.name() == UNTESTED_SYMBOL;
        let (callbacks, chosen): (Vec<Value>, Vec<Value>) = chosen.into_iter().partition(is_callback);
        skipped.extend(callbacks.iter().map(|f| Skipped { name: f.name(), reason: "it is called at untested paths".into() }));
        skipped.extend(absent.iter().map(|f| Skipped { name: f.name(), reason: "other copies of the program count its paths".into() }));
        skipped.extend(refused.iter().filter_map(|f| Some(Skipped { name: f.name(), reason: reason(f)?.into() })));
        let (chosen, not_interesting): (Vec<Value>, Vec<Value>) = chosen.into_iter().partition(|f| self.is_interesting(*f));
        let reason = if self.options.segments.is_some() { NO_SEGMENT } else { NOT_INTERESTING };
        skipped.extend(not_interesting.iter().map(|f| Skipped { name: f.name(), reason: reason.into() }));
        self.chosen = chosen.iter().copied().collect();
        (chosen, skipped)
    }

    /// Makes the code that counts what each of these functions does.
    fn count_all(&mut self, chosen: &[Value], machine: LLVMTargetMachineRef) -> Result<(), Error> {
        if self.options.experiment.threads() != Threads::Own {
            emit::shared_bias(self.module);
        }
        if self.options.tier == CountingTier::Sample {
            self.sample(chosen)?;
        } else if let Some(set) = self.options.segments.clone() {
            self.count_segments(chosen, &set, machine)?;
        } else {
            for &function in chosen {
                self.instrument(function)?;
            }
        }
        unoptimised::define(self.context, self.options.experiment.threads());
        hoisting::limit(chosen);
        if self.options.tier == CountingTier::Residual {
            emit::define_direct_bias(self.module);
        }
        Ok(())
    }

    /// Takes declarations out again that no function came to need.
    fn forget_unused(&self) {
        emit::forget_unused(&[self.context.bias, self.context.counters, self.context.enter]);
        if let Some(streams) = self.streams {
            streams.forget_unused();
            if let Some(pattern) = &self.options.recorder {
                emit::default_output(self.module, pattern.as_bytes());
            }
        }
        if self.options.segments.is_some() {
            self.context_words.iter().for_each(|words| emit::forget_unused(&[words.0]));
        }
        if let Some(count) = self.count {
            emit::forget_unused(&[count]);
        }
    }

    /// Puts the unit's map and bitcode into sections of the module, and into the store.
    fn describe(self, unit: Identity, bitcode: Vec<u8>) -> Result<(), Error> {
        let module = self.module;
        let each = match self.options.tier {
            CountingTier::Residual => 2,
            _ if self.options.experiment.events().is_some() => CELLS,
            _ => 1,
        };
        let words = self.map.counters.checked_mul(each).expect("a unit has fewer counters than memory has bytes");
        let (map, frame) = self.finish(unit, bitcode)?;
        emit::sections(module, unit, words, map.events().is_some(), &frame);
        if map.has_times() {
            emit::functions(module, &map);
        }
        Ok(())
    }

    fn instrument(&mut self, function: Value) -> Result<(), Error> {
        let pseudo_probes = (self.options.tier == CountingTier::Addresses).then(|| PseudoProbes::from_function(function));
        let mut planned = self.plan(function)?;
        let choices = self.choices(&planned);
        match pseudo_probes {
            Some(pseudo_probes) => self.probes.push(pseudo_probes.probes(function, &planned.cfg)),
            None if let Some(count) = self.count => residual::insert(self.context, count, &planned, self.map.counters, choices),
            None => self.insert(&mut planned, choices),
        }
        self.finish_code(&[function]);
        self.enter(planned);
        Ok(())
    }

    /// Makes the code that counts a function's paths, or writes them to a stream.
    fn insert(&mut self, planned: &mut PlannedFunction, choices: Choices) {
        let PlannedFunction { function, cfg, graph, program, frequencies, .. } = planned;
        let function = *function;
        probes::run_passes(program, frequencies, &places::block_properties(cfg, graph), choices);
        if self.options.count_hits {
            program.count_hits();
        }
        if self.streams.is_some() {
            probes::write_stream(program, stream::edges(cfg));
        }
        let location = crate::debug::no_line(self.module, function);
        let entry = function.entry();
        let enters = program.at_entry().contains(&Operation::EnterCall);
        let stream = self.streams.filter(|_| enters);
        let stream = stream.map(|s| s.enter(function, self.map.counters, self.context.counters, location));
        let base = match stream {
            Some(_) => self.context.counters,
            // Events are read between the two.
            None if self.events.is_none() && unoptimised::is_unoptimised(function) => {
                unoptimised::counters_of_thread(self.module, function, location)
            }
            None => entry::counters_of_thread(self.context, function, location, planned.open),
        };
        let events = self.events.map(|e| e.begin(self.module, entry, location));
        let PlannedFunction { cfg, program, .. } = &*planned;
        let words = match program.cells() {
            Cells::Interesting(cells) => Some(Words::declare(self.module, &function.name(), &cells.ending)),
            Cells::Paths | Cells::Labels { .. } | Cells::Preferential(_) => None,
        };
        let counters = Counters { events, words, stream, ..self.counters(base, planned) };
        probes::insert(self.context, function, cfg, program, counters);
        if let Some(placeholders) = &mut self.placeholders {
            placeholders.resolve(base);
        }
        if let Some(stream) = stream {
            stream.resume_where_control_comes_back(function, cfg, location);
        }
    }

    /// The sample tier: what becomes of a function depends on the others, so all are planned first.
    fn sample(&mut self, functions: &[Value]) -> Result<(), Error> {
        let planned = functions.iter().map(|f| self.plan(*f)).collect::<Result<Vec<_>, _>>()?;
        let tier = sample::SampleTier::new(self.context, &planned, self.options.choices.trip_counts);
        for mut planned in planned {
            let function = planned.function;
            tier.insert(&mut planned, self.map.counters).map_err(|what| Error::Probes { function: function.name(), what })?;
            self.finish_code(&tier.parts(function));
            self.enter(planned);
        }
        emit::switch(self.module);
        Ok(())
    }

    /// Keeps code generation from mistaking what was made of a function.
    fn finish_code(&mut self, parts: &[Value]) {
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
    fn finish(mut self, unit: Identity, bitcode: Vec<u8>) -> Result<(UnitMap, PathBuf), Error> {
        // Behind the words come the paths of functions whose words are not one for each path.
        for function in self.map.functions.iter_mut().filter(|f| f.counts_elsewhere()) {
            function.first_counter = self.map.counters;
            self.map.counters += function.counters;
        }
        self.map.files = self.positions.files;
        self.map.scopes = self.positions.scopes;
        self.map.edge_profile = self.placeholders.map(Placeholders::finish);
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

/// Takes counters out that an earlier variant of the unit had for its placeholders.
fn discard_placeholders(module: Module, counters: Value) -> Result<(), PlaceholderError> {
    if placeholders::has_placeholders(module) {
        Placeholders::take(module, counters, &mut 0, Taking { kind: CounterKind::Discarded, shared: false })?.finish();
    }
    Ok(())
}
