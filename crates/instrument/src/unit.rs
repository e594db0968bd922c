//! A unit while it is observed: what its functions are planned by, where they count, and its map.

use crate::calls;
use crate::debug::Positions;
use crate::emit;
use crate::error::Error;
use crate::flags::code_generation_flags;
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

pub use choice::{choose, is_emitted};
pub use planning::{AT_PATH_ENDS, each_iteration, graph_of, verify_plan};

/// A unit is its code and how it is instrumented, by which version.
pub fn identity(bitcode: &[u8], options: &PluginOptions) -> Identity {
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
    /// The functions that are observed.
    pub chosen: IndexSet<Value>,
    /// Functions that have other code now, or were made.
    changed: Vec<Value>,
    /// Its map, as far as it is known.
    pub map: UnitMap,
    /// Paths of functions that count in tables.
    in_tables: u64,
}

impl Unit {
    /// A unit of which nothing is observed yet.
    pub fn new(context: ModuleContext, options: PluginOptions, map: UnitMap) -> Unit {
        let module = context.module;
        let no_return = NoReturnAnalysis::new(module, options.reach_all).with_calls(options.reach_calls);
        let (positions, chosen, changed) = (Positions::new(module), IndexSet::new(), Vec::new());
        Unit { module, options, no_return, positions, context, chosen, changed, map, in_tables: 0 }
    }

    /// Puts the unit's map and bitcode into sections of the module, and into the store.
    ///
    /// # Errors
    /// As of [`Unit::finish`].
    pub fn describe(self, edge_profile: Option<EdgeProfile>, unit: Identity, bitcode: Vec<u8>) -> Result<(), Error> {
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
    ///
    /// # Errors
    /// A function is not valid.
    pub fn verify(&self) -> Result<(), Error> {
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
pub fn empty_map(module: Module, experiment: &Experiment) -> UnitMap {
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
