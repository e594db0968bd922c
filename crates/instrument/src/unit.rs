//! The whole of a unit: describe, plan, insert, emit.

use crate::addresses::{self, Copy, Marks, PseudoProbes};
use crate::block_properties;
use crate::calls;
use crate::counting::{Counters, Flushing};
use crate::debug::Positions;
use crate::describe::FunctionCfg;
use crate::emit;
use crate::entry;
use crate::error::Error;
use crate::events::Events;
use crate::flags::code_generation_flags;
use crate::hoisting;
use crate::identical_phis;
use crate::interesting::{self, Words};
use crate::llvm::{Module, Value, llvm};
use crate::module_context::ModuleContext;
use crate::no_return::NoReturnAnalysis;
use crate::options::{Options, Threads, Tier};
use crate::placeholders::{self, CounterKind, PlaceholderError, Placeholders, Taking};
use crate::places;
use crate::probes;
use crate::residual;
use crate::sample::{self, Planned};
use crate::shape::prepare;
use crate::stream::{self, Streams};
use crate::transform;
use indexmap::IndexSet;
use llvm_sys::LLVMLinkage;
use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyFunction};
use llvm_sys::core::*;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use trodden_flow::frequency::Frequencies;
use trodden_flow::frequency::branch_weights;
use trodden_flow::program::operation::Operation;
use trodden_flow::program::{Cells, Choices, DominantCounting, NumberedPaths, TripCounting};
use trodden_flow::residual::Known;
use trodden_flow::{Graph, Node, Plan, ProbeProgram, Residual};
use trodden_unit::events::CELLS;
use trodden_unit::{
    Counted, Frame, FunctionMap, FunctionPart, Identity, KnownFunction, LabelWords, Skipped, Storage, Table, UnitMap, UnitStore,
};
use trodden_unit::{Version, shape};
use trodden_wire::{ENTER_SHARED_SYMBOL, ENTER_SYMBOL, UNTESTED_SYMBOL};

mod choice;
mod path_sets;
mod segments;

use choice::{choose, is_emitted};

/// Why a function is not counted where only some paths are asked for.
const NOT_INTERESTING: &str = "none of its paths is interesting (--interesting)";

/// Why it is not where segments are counted.
const NO_SEGMENT: &str = "no segment that is counted runs through it (--segments)";

/// What is left to do with a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To generate its code.
    Code,
    /// Nothing.
    NoCode,
}

/// Instruments a module in place, or only writes what its blocks compute.
pub fn instrument(module: Module, machine: LLVMTargetMachineRef) -> Result<Outcome, Error> {
    let options = Options::of_environment(|name| std::env::var_os(name))?;
    if options.placeholders {
        placeholders::insert(module);
    }
    if !module.functions().any(is_emitted) && options.properties.is_none() {
        return Ok(Outcome::Code);
    }
    if let Some(plan) = &options.apply {
        let chosen: Vec<Value> = choose(module).0;
        return transform::apply(module, machine, &chosen, plan, options.reach_all).map(|()| Outcome::Code);
    }
    let bitcode = module.bitcode();
    let unit = identity(&bitcode, &options);
    if options.tier == Tier::Addresses {
        return mark_addresses(module, options, unit, bitcode).map(|()| Outcome::Code);
    }
    let mut work = Unit::begin(module, options)?;
    let (chosen, skipped) = work.choose();
    if let Some(file) = work.options.properties.clone() {
        let properties = block_properties::of(module, &chosen, &work.no_return, work.positions);
        std::fs::write(&file, properties.to_bytes()).map_err(|source| Error::Properties { file, source })?;
        return Ok(Outcome::NoCode);
    }
    work.map.skipped = skipped;
    if work.options.threads != Threads::Own {
        emit::shared_bias(module);
    }
    if work.options.tier == Tier::Sample {
        work.sample(&chosen)?;
    } else {
        for &function in &chosen {
            match work.options.segments.clone() {
                Some(set) => work.count_segments(function, &set)?,
                None => work.instrument(function)?,
            }
        }
    }
    hoisting::limit(&chosen);
    if work.options.tier == Tier::Residual {
        emit::define_direct_bias(module);
    }
    emit::forget_unused(&[work.context.bias, work.context.counters]);
    if let Some(streams) = work.streams {
        emit::forget_unused(&[work.context.enter]);
        streams.forget_unused();
        if let Some(pattern) = &work.options.recorder {
            emit::default_output(module, pattern.as_bytes());
        }
    }
    if work.options.segments.is_some() {
        emit::forget_unused(&[work.context.enter]);
        work.context_word.iter().for_each(|word| emit::forget_unused(&[*word]));
    }
    if let Some(count) = work.count {
        emit::forget_unused(&[work.context.enter, count]);
    }
    let each = match work.options.tier {
        Tier::Residual => 2,
        _ if work.options.events.is_some() => CELLS,
        _ => 1,
    };
    let words = work.map.counters.checked_mul(each).expect("a unit has fewer counters than memory has bytes");
    let map = work.finish();
    let bitcode = if map.1.keep_bitcode { bitcode } else { Vec::new() };
    let frame = store(&Frame::pack(unit, &map.0, &bitcode))?;
    emit::sections(module, unit, words, map.0.events().is_some(), &frame);
    if map.0.has_times() {
        emit::functions(module, &map.0);
    }
    Ok(Outcome::Code)
}

/// Describes a copy of the module, and marks the blocks of the module itself.
fn mark_addresses(module: Module, options: Options, unit: Identity, bitcode: Vec<u8>) -> Result<(), Error> {
    if code_generation_flags().iter().any(|f| f == "-fno-integrated-as") {
        return Err(Error::ForeignAssembler);
    }
    if options.no_tail_merging {
        addresses::forbid_tail_merging();
    }
    let copy = Copy::of(module);
    let mut work = Unit::begin(copy.module, options)?;
    let (chosen, skipped) = work.choose();
    work.map.skipped = skipped;
    for &function in &chosen {
        work.instrument(function)?;
    }
    addresses::insert(module, unit, &std::mem::take(&mut work.marks));
    let (map, options) = work.finish();
    let bitcode = if options.keep_bitcode { bitcode } else { Vec::new() };
    let frame = store(&Frame::pack(unit, &map, &bitcode))?;
    emit::sections(module, unit, 0, false, &frame);
    Ok(())
}

/// A unit is its code and how it is instrumented, by which version.
fn identity(bitcode: &[u8], options: &Options) -> Identity {
    let mut content = Identity::of(bitcode).0.to_vec();
    content.extend(options.experiment.to_string().bytes());
    content.extend(code_generation_flags().concat().bytes());
    content.extend(env!("CARGO_PKG_VERSION").bytes());
    content.extend(trodden_unit::MAP_VERSION.to_le_bytes());
    Identity::of(&content)
}

fn store(frame: &Frame) -> Result<PathBuf, Error> {
    let folder = UnitStore::root_from(|name| std::env::var_os(name)).ok_or(Error::NoStore)?;
    let folder = std::path::absolute(&folder).map_err(|source| Error::Store { folder: folder.clone(), source })?;
    UnitStore::at(&folder).put(frame).map_err(|source| Error::Store { folder, source })
}

/// The program that counts what is not known, by the numbering by which known paths were counted: in several versions of
/// the code, if there may be any. None if the function has other paths.
fn residual_program(planned: &Planned, known: &KnownFunction, options: &Options, versions: bool) -> Option<ProbeProgram> {
    let Planned { graph, frequencies, .. } = planned;
    let (dag, numbering) = Plan::cut_at(graph, &known.cuts, options.plan.entries).ok()?;
    if numbering.paths() != known.paths {
        return None;
    }
    let excluded = planned.cfg.excluded();
    let (paths, single) = (&known.known, &residual::dispatch_blocks(&planned.cfg));
    let residual = Residual::of(&dag, &numbering, Known { paths, single, excluded: &excluded, cache_pressure: options.cache_pressure });
    let probes = residual.probes(&dag, &numbering, graph, frequencies);
    let plan = Plan { dag, numbering, probes, partial: None, share: None };
    Some(if versions { residual.versions(graph, &plan) } else { residual.with_lookups(graph, &plan) })
}

struct Unit {
    module: Module,
    options: Options,
    no_return: NoReturnAnalysis,
    positions: Positions,
    context: ModuleContext,
    chosen: IndexSet<Value>,
    map: UnitMap,
    /// The runtime's function that counts, of the tier `residual`.
    count: Option<Value>,
    /// Of the tier `addresses`, for each function.
    marks: Vec<Marks>,
    placeholders: Option<Placeholders>,
    events: Option<Events>,
    /// Of stream builds.
    streams: Option<Streams>,
    /// Paths of functions that count in tables.
    in_tables: u64,
    /// The word by which callers tell callees their context, where segments are counted.
    context_word: Option<Value>,
}

impl Unit {
    fn begin(module: Module, options: Options) -> Result<Unit, Error> {
        let counters = emit::declare_counters(module);
        let (bias, enter) = match options.threads {
            Threads::Own => (emit::declare_bias(module), emit::declare_enter(module, ENTER_SYMBOL)),
            Threads::Atomic => (emit::declare_shared_bias(module), emit::declare_enter(module, ENTER_SHARED_SYMBOL)),
        };
        let context = ModuleContext { module, counters, bias, enter };
        let mut map = UnitMap {
            source: module.source(),
            producer: String::new(),
            target: module.target(),
            experiment: options.experiment.clone(),
            counted: Counted::Paths,
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
        };
        let placeholders = if options.placeholders {
            let kind = if options.coverage { CounterKind::Coverage } else { CounterKind::Edges };
            let taking = Taking { kind, shared: options.threads == Threads::Atomic };
            Some(Placeholders::take(module, context.counters, &mut map.counters, taking)?)
        } else {
            discard_placeholders(module, context.counters)?;
            None
        };
        let events = options.events.map(|source| Events::declare(module, source));
        let streams = options.stream.then(|| Streams::declare(module));
        let no_return = NoReturnAnalysis::of(module, options.reach_all).with_calls(options.reach_calls);
        let positions = Positions::new(module);
        let count = (options.tier == Tier::Residual).then(|| emit::declare_count(module));
        Ok(Unit {
            module,
            options,
            no_return,
            positions,
            context,
            count,
            chosen: IndexSet::new(),
            map,
            marks: Vec::new(),
            placeholders,
            events,
            streams,
            in_tables: 0,
            context_word: None,
        })
    }

    /// The functions to instrument, and those that cannot be, with the reasons.
    fn choose(&mut self) -> (Vec<Value>, Vec<Skipped>) {
        let (chosen, mut skipped) = choose(self.module);
        let doubles = self.options.tier == Tier::Sample;
        let reason = |f: &Value| doubles.then(|| sample::reason_not_to_double(*f)).flatten();
        let (refused, chosen): (Vec<Value>, Vec<Value>) = chosen.into_iter().partition(|f| reason(f).is_some());
        // Where a copy has no part it counts nothing, and no code is put in.
        let (chosen, absent): (Vec<Value>, Vec<Value>) =
            chosen.into_iter().partition(|f| self.options.parts.is_none() || self.part_of(&f.name()).is_some());
        // It would be reported itself.
        let is_callback = |f: &Value| self.options.tier == Tier::Residual && f.name() == UNTESTED_SYMBOL;
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

    fn instrument(&mut self, function: Value) -> Result<(), Error> {
        let pseudo_probes = (self.options.tier == Tier::Addresses).then(|| PseudoProbes::of(function));
        let mut planned = self.plan(function)?;
        let choices = self.choices(&planned);
        match pseudo_probes {
            Some(pseudo_probes) => self.marks.push(pseudo_probes.marks(function, &planned.cfg)),
            None if let Some(count) = self.count => residual::insert(self.context, count, &planned, self.map.counters, choices),
            None => self.insert(&mut planned, choices),
        }
        self.finish_code(function, &[function])?;
        self.enter(planned);
        Ok(())
    }

    /// Makes the code that counts a function's paths, or writes them to a stream.
    fn insert(&mut self, planned: &mut Planned, choices: Choices) {
        let Planned { function, cfg, graph, program, frequencies, .. } = planned;
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
            None => entry::counters_of_thread(self.context, function, location, planned.open),
        };
        let events = self.events.map(|e| e.begin(self.module, entry, location));
        let Planned { cfg, program, .. } = &*planned;
        let words = match program.cells() {
            Cells::Interesting(cells) => Some(Words::declare(self.module, &function.name(), &cells.ending)),
            Cells::Paths | Cells::Labels { .. } => None,
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
        let tier = sample::Tier::of(self.context, &planned, self.options.choices.trip_counts);
        for mut planned in planned {
            let function = planned.function;
            tier.insert(&mut planned, self.map.counters).map_err(|what| Error::Probes { function: function.name(), what })?;
            self.finish_code(function, &tier.parts(function))?;
            self.enter(planned);
        }
        emit::switch(self.module);
        Ok(())
    }

    /// Describes a function and plans its probes.
    fn plan(&mut self, function: Value) -> Result<Planned, Error> {
        if self.map.producer.is_empty() {
            self.map.producer = self.positions.producer(function).unwrap_or_default();
        }
        let position = self.positions.of_function(function);
        let versions = sample::reason_not_to_double(function).is_none();
        // Before the function's blocks change: whether its callers have all claimed regions.
        // Those that count unknown paths only claim none.
        let open = self.options.tier == Tier::Residual || self.may_be_first(function);
        if let Some(placeholders) = &mut self.placeholders {
            placeholders.count_computed(function, self.context.counters);
        }
        let prepared = prepare(self.module, function);
        let cfg = FunctionCfg::of(function, &prepared, &self.no_return, &mut self.positions);
        if let Some(placeholders) = &mut self.placeholders {
            placeholders.note(function, &cfg, &self.no_return, self.map.functions.len(), &mut self.map.counters);
        }
        let edges = cfg.edges.iter().map(|e| (e.from, e.to)).collect();
        let nodes = cfg.nodes.len() as u32;
        let graph =
            Graph::new(nodes + 1, Node(0), Node(nodes), edges).map_err(|source| Error::Graph { function: function.name(), source })?;
        let (frequencies, measured) = self.frequencies(&function.name(), &cfg, &graph);
        // A copy of a residual build has whole functions, each as the build itself has it.
        let is_part = self.options.parts.is_some() && self.options.tier != Tier::Residual;
        let plan = match is_part {
            true => self.plan_of_part(&function.name(), &cfg, &graph)?,
            false => self.plan_of_all(&cfg, &graph, &frequencies),
        };
        let mut planned =
            Planned { program: ProbeProgram::of_plan(&graph, &plan), function, position, cfg, graph, frequencies, measured, open };
        if !is_part {
            self.plan_for_paths(&mut planned, versions)?;
        }
        path_sets::verify(&planned)?;
        Ok(planned)
    }

    /// What is known of a function's paths, if that is the tier's business and anything is.
    fn known_of(&self, name: &str, cfg: &FunctionCfg) -> Option<&KnownFunction> {
        let known = self.options.known.as_ref()?;
        let version = Version { shape: shape(&cfg.blocks, &cfg.edges), code: cfg.code };
        known.of(&self.map.source, name, version).filter(|k| k.edges.len() == cfg.edges.len())
    }

    fn part_of(&self, name: &str) -> Option<&FunctionPart> {
        self.options.parts.as_ref()?.of(self.options.origin?, name)
    }

    /// The plan of this copy's part of a function.
    fn plan_of_part(&self, name: &str, cfg: &FunctionCfg, graph: &Graph) -> Result<Plan, Error> {
        let other = || Error::OtherParts(name.to_owned());
        let known = self.part_of(name).filter(|k| k.shape == shape(&cfg.blocks, &cfg.edges)).ok_or_else(other)?;
        let (dag, numbering) = Plan::cut_at(graph, &known.cuts, self.options.plan.entries).map_err(|_| other())?;
        let plan = if numbering.paths() == known.paths { Plan::of_part(dag, known.part.clone()) } else { None };
        plan.ok_or_else(other)
    }

    fn plan_of_all(&self, cfg: &FunctionCfg, graph: &Graph, frequencies: &Frequencies) -> Plan {
        Plan::ball_larus(graph, &cfg.forced, frequencies, &self.options.plan_of(self.in_tables))
    }

    /// Keeps code generation from mistaking what was made of a function, and checks it.
    fn finish_code(&self, function: Value, parts: &[Value]) -> Result<(), Error> {
        for &part in parts {
            identical_phis::split(self.module, part);
            // It writes memory now.
            part.remove_attribute("memory");
            if llvm!(LLVMVerifyFunction(part.0, LLVMVerifierFailureAction::LLVMPrintMessageAction)) != 0 {
                return Err(Error::Invalid(function.name()));
            }
        }
        Ok(())
    }

    /// Enters a function into the map.
    fn enter(&mut self, planned: Planned) {
        let storage = self.storage(&planned);
        self.enter_with(planned, storage);
    }

    /// The same, where it counts there.
    fn enter_with(&mut self, planned: Planned, storage: Storage) {
        let Planned { function, position, cfg, program, .. } = planned;
        let NumberedPaths { dag, numbering } = program.paths();
        let counters = numbering.paths();
        let words = match &storage {
            Storage::Array => counters,
            Storage::Table(table) => Table::words(table.slots),
            Storage::Interesting(chosen) => chosen.words,
            Storage::Labels(labels) => labels.range().end - labels.range().start,
            Storage::Segments(segments) => segments.words,
        };
        if let Storage::Table(_) = &storage {
            self.in_tables += counters;
        }
        self.map.functions.push(FunctionMap {
            name: function.name(),
            local: is_local(function),
            position,
            shape: shape(&cfg.blocks, &cfg.edges),
            code: cfg.code,
            first_counter: self.map.counters,
            counters,
            storage,
            blocks: cfg.blocks,
            edges: cfg.edges,
            dag: dag.edges().to_vec(),
            values: numbering.values().to_vec(),
            cuts: program.dag().cuts().iter().map(|c| (c.edge, c.reason)).collect(),
            by_trip_count: program.by_trip_count(),
            calls: cfg.calls,
        });
        self.map.counters += words;
    }

    /// Where the next function's counts are kept.
    fn storage(&self, planned: &Planned) -> Storage {
        match planned.program.cells() {
            Cells::Interesting(cells) => Storage::Interesting(interesting::described(cells, self.map.counters)),
            Cells::Labels { labels, cells, .. } => Storage::Labels(LabelWords {
                first_word: self.map.counters,
                words: *cells,
                with_hits: self.options.count_hits,
                labels: labels.clone(),
            }),
            Cells::Paths if self.options.in_table(planned.program.paths().numbering.paths()) => {
                Storage::Table(Table { first_word: self.map.counters, slots: self.options.table_slots })
            }
            Cells::Paths => Storage::Array,
        }
    }

    /// Where and how the next function counts, for the probes.
    fn counters(&self, base: Value, planned: &Planned) -> Counters<'static> {
        let (table, hits) = match self.storage(planned) {
            Storage::Array | Storage::Interesting(_) | Storage::Segments(_) => (None, None),
            Storage::Labels(labels) => (None, labels.hits()),
            Storage::Table(table) => (Some(table), None),
        };
        Counters {
            base,
            first: self.map.counters,
            table,
            atomic: self.options.threads == Threads::Atomic,
            events: None,
            unknown: None,
            words: None,
            hits,
            flushing: Flushing::Jumping,
            stream: None,
            segments: None,
        }
    }

    /// How often each edge is executed, and whether that was measured. Where it was, what was never executed is still
    /// distinguished by what is likely.
    fn frequencies(&self, name: &str, cfg: &FunctionCfg, graph: &Graph) -> (Frequencies, bool) {
        const UNSEEN: f64 = 1e-3;
        let estimate = Frequencies::estimate(graph, &branch_weights(graph, &cfg.hints));
        let known = self.options.weights.as_ref().and_then(|w| w.of(name, shape(&cfg.blocks, &cfg.edges), cfg.edges.len()));
        let of_paths = || {
            let known = self.known_of(name, cfg).or_else(|| self.interesting_of(name, cfg)).map(|k| k.edges.as_slice());
            known.or_else(|| self.segments_of(name, cfg).map(|(_, function)| function.edges.as_slice()))
        };
        // Interesting paths may never have been executed.
        match known.or_else(of_paths).filter(|edges| edges.iter().any(|n| *n > 0)) {
            None => (estimate, false),
            Some(counts) => {
                let edges = counts.iter().zip(estimate.edges()).map(|(count, guess)| *count as f64 + guess * UNSEEN).collect();
                (Frequencies::measured(graph, edges), true)
            }
        }
    }

    /// Iterations pay in loops that are known to iterate often, in tight ones, and where the program counts them; most
    /// loops do not iterate often. Where events are summed up, they are read when a path ends, and then only.
    fn choices(&self, planned: &Planned) -> Choices {
        let Planned { program, measured, .. } = planned;
        let is_interesting = matches!(program.cells(), Cells::Interesting(_));
        let choices = self.options.choices;
        if self.streams.is_some() {
            return stream::PLAIN;
        }
        if self.events.is_some() {
            return Choices { trip_counts: TripCounting::Off, early: false, dominant: DominantCounting::Shared };
        }
        if self.options.in_table(program.paths().numbering.paths()) || is_interesting || self.options.count_hits {
            // An exit edge would count what was not seen, or look for paths that were not taken; and each iteration has hits of its own.
            return Choices { trip_counts: TripCounting::Off, dominant: choices.dominant.min(DominantCounting::Split), ..choices };
        }
        let choices = match self.options.threads {
            Threads::Atomic => Choices { dominant: DominantCounting::Shared, ..choices },
            Threads::Own => choices,
        };
        if self.options.watches {
            // A watch for paths is notified of each at once.
            return Choices { trip_counts: TripCounting::Off, dominant: choices.dominant.min(DominantCounting::Split), ..choices };
        }
        // To count an unknown path takes a comparison besides.
        if *measured || self.options.tier == Tier::Residual { choices.in_registers() } else { choices }
    }

    /// Whether a thread may come to this function without having counted anywhere before. A local function that only
    /// instrumented functions call, directly, finds the region claimed.
    fn may_be_first(&self, function: Value) -> bool {
        let called_by_us = |user: Value| {
            let is_callee = user.is_call() && user.callee() == function && !passes(user, function);
            is_callee && self.chosen.contains(&Value(llvm!(LLVMGetBasicBlockParent(user.block().0))))
        };
        let is_instruction = |v: &Value| !llvm!(LLVMIsAInstruction(v.0)).is_null();
        !is_local(function) || !function.users().all(|u| is_instruction(&u) && called_by_us(u))
    }

    fn finish(mut self) -> (UnitMap, Options) {
        // Behind the words come the paths of functions whose words are not one for each path.
        for function in self.map.functions.iter_mut().filter(|f| f.counts_elsewhere()) {
            function.first_counter = self.map.counters;
            self.map.counters += function.counters;
        }
        self.map.files = self.positions.files;
        self.map.scopes = self.positions.scopes;
        self.map.edge_profile = self.placeholders.map(Placeholders::finish);
        (self.map, self.options)
    }
}

/// Takes counters out that an earlier variant of the unit had for its markers.
fn discard_placeholders(module: Module, counters: Value) -> Result<(), PlaceholderError> {
    if placeholders::has_placeholders(module) {
        Placeholders::take(module, counters, &mut 0, Taking { kind: CounterKind::Discarded, shared: false })?.finish();
    }
    Ok(())
}

/// Whether a call passes a function as an argument (as well).
fn passes(call: Value, function: Value) -> bool {
    let arguments = llvm!(LLVMGetNumArgOperands(call.0));
    (0..arguments).any(|i| Value(llvm!(LLVMGetOperand(call.0, i))) == function)
}

fn is_local(function: Value) -> bool {
    matches!(llvm!(LLVMGetLinkage(function.0)), LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage)
}
