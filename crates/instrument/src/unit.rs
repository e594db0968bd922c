//! A unit while it is being instrumented: plans its functions, assigns their counters, and builds its map.

use crate::calls;
use crate::debug::SourcePositionCollector;
use crate::emit;
use crate::error::InstrumentError;
use crate::flags::code_generation_flags;
use crate::host;
use crate::identical_phis;
use crate::line_graphs;
use crate::llvm::{Module, Value};
use crate::module_context::ModuleContext;
use crate::no_return::NoReturnAnalysis;
use crate::options::PluginOptions;
use crate::passes::verify;
use indexmap::IndexSet;
use std::path::PathBuf;
use trodden_unit::{CountedEvent, EdgeProfile, Experiment, Frame, Identity, UnitCache, UnitMap};

mod choice;
mod planning;
mod storage;

pub use choice::{choose_instrumentable, is_emitted};
pub use planning::{count_each_iteration, verify_plan};

/// Returns the unit's identity: a hash of its code, its experiment, the code generation flags, and the versions of trodden and its
/// maps.
pub fn compute_unit_identity(bitcode: &[u8], options: &PluginOptions) -> Identity {
    let mut content = Identity::from_content(bitcode).0.to_vec();
    content.extend(options.experiment.to_string().bytes());
    content.extend(code_generation_flags().concat().bytes());
    content.extend(env!("CARGO_PKG_VERSION").bytes());
    content.extend(trodden_unit::MAP_VERSION.to_le_bytes());
    Identity::from_content(&content)
}

fn store_frame(frame: &Frame) -> Result<PathBuf, InstrumentError> {
    let folder = UnitCache::root_from_environment(|name| std::env::var_os(name)).ok_or(InstrumentError::NoCacheFolder)?;
    let folder = std::path::absolute(&folder).map_err(|source| InstrumentError::CacheWrite { folder: folder.clone(), source })?;
    UnitCache::new(&folder).put(frame).map_err(|source| InstrumentError::CacheWrite { folder, source })
}

pub struct Unit {
    pub module: Module,
    pub options: PluginOptions,
    pub no_return: NoReturnAnalysis,
    pub positions: SourcePositionCollector,
    pub context: ModuleContext,
    pub chosen: IndexSet<Value>,
    /// Functions whose code was changed or generated.
    changed: Vec<Value>,
    pub map: UnitMap,
    /// Number of paths of all functions so far that count in hash tables.
    paths_in_tables: u64,
}

impl Unit {
    /// Creates a unit whose functions are not instrumented yet.
    pub fn new(context: ModuleContext, options: PluginOptions, map: UnitMap) -> Unit {
        let module = context.module;
        let no_return = NoReturnAnalysis::new(module, options.reach_all).with_calls_to_defined_functions(options.reach_calls);
        let (positions, chosen, changed) = (SourcePositionCollector::new(module), IndexSet::new(), Vec::new());
        Unit { module, options, no_return, positions, context, chosen, changed, map, paths_in_tables: 0 }
    }

    /// Stores the unit's map and bitcode in the unit cache, and emits the sections of the object file, which include them.
    pub fn emit_map(self, edge_profile: Option<EdgeProfile>, unit: Identity, bitcode: Vec<u8>) -> Result<(), InstrumentError> {
        let module = self.module;
        let each = self.options.experiment.observation().observation_properties().counter_words().words_per_counter();
        let words = self.map.counters.checked_mul(each).expect("a unit has fewer counters than memory has bytes");
        let (map, frame) = self.finish_unit_map(edge_profile, unit, bitcode)?;
        emit::emit_sections(module, unit, words, map.events().is_some(), &frame);
        if map.has_times() {
            emit::emit_function_records(module, &map);
        }
        Ok(())
    }

    /// Keeps LLVM from transforming a function's instrumented code in ways that would falsify its counts.
    pub fn protect_instrumented_code(&mut self, parts: &[Value]) {
        for &part in parts {
            identical_phis::split_edges_with_identical_phis(self.module, part);
            // The function may have been known not to write memory, but its counters do.
            part.remove_attribute("memory");
        }
        self.changed.extend(parts);
    }

    /// Runs LLVM's verifier on the changed functions. It is faster once debug information has been stripped.
    pub fn verify(&self) -> Result<(), InstrumentError> {
        self.changed.iter().try_for_each(|function| verify(*function))
    }

    /// Completes the map and stores it. Returns the map and the path of its file.
    ///
    /// # Errors
    /// Fails if no folder is configured for the unit cache, or if it cannot be written.
    pub fn finish_unit_map(
        mut self,
        edge_profile: Option<EdgeProfile>,
        unit: Identity,
        bitcode: Vec<u8>,
    ) -> Result<(UnitMap, PathBuf), InstrumentError> {
        // In functions whose counter words do not correspond one to one to paths, path numbers start after the last word of the unit.
        for function in self.map.functions.iter_mut().filter(|f| f.has_separate_words()) {
            function.first_counter = self.map.counters;
            self.map.counters += function.counters;
        }
        self.map.files = self.positions.files;
        self.map.scopes = self.positions.scopes;
        self.map.edge_profile = edge_profile;
        let bitcode = if self.options.keep_bitcode { bitcode } else { Vec::new() };
        let frame = store_frame(&Frame::compress(unit, &self.map, &bitcode))?;
        Ok((self.map, frame))
    }
}

pub fn empty_map(module: Module, experiment: &Experiment) -> UnitMap {
    UnitMap {
        source: module.source(),
        producer: String::new(),
        llvm: host::llvm_major_version(),
        target: module.target(),
        experiment: experiment.clone(),
        counted: CountedEvent::Paths,
        codegen: code_generation_flags(),
        files: Vec::new(),
        scopes: Vec::new(),
        functions: Vec::new(),
        skipped: Vec::new(),
        fully_counted: Vec::new(),
        counters: 0,
        edge_profile: None,
        calls: calls::callees_of_module(module),
        aliases: calls::aliases_of_module(module),
        line_graphs: line_graphs::read_line_graphs(module),
    }
}
