//! What each kind of observation does to the code of a unit: one module for each, under the name that it has in [`trodden_unit::observe`].
//!
//! An [`Observer`] says which functions are observed, by which paths they are planned, which passes their programs admit, and what is done
//! at a function's entry. Of that, [`PathEnd`] says what is done where a path ends. What a method does by default is right for counts of all
//! paths. A new kind is a module, and a line of [`begin`]; if it does something else where paths end, also a variant of [`PathEnd`].

pub mod addresses;
pub mod bursts;
pub mod coverage;
pub mod edge_profile;
pub mod every_path;
pub mod interesting;
pub mod part;
pub mod segments;
pub mod sleds;
pub mod stream;
pub mod sums;
pub mod unknown;
pub mod watched;

use crate::counting::{Lookup, Unknown};
use crate::describe::FunctionCfg;
use crate::error::Error;
use crate::llvm::{Block, Builder, Module, Value};
use crate::module_context::ModuleContext;
use crate::options::PluginOptions;
use crate::places;
use crate::probes::{self, ProbeCode, Register};
use crate::sample::PlannedFunction;
use crate::segments::SegmentCode;
use crate::unit::Unit;
use interesting::Words;
use llvm_sys::prelude::LLVMMetadataRef;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use stream::StreamCode;
use sums::BegunEvents;
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::{Choices, DominantCounting, TripCounting};
use trodden_flow::{Graph, Plan, ProbeProgram};
use trodden_unit::{BlockKind, CountTable, EdgeProfile, Observation};

/// Begins the observation of a unit: declares what its code refers to.
///
/// # Errors
/// LLVM's counters, of which an edge profile or coverage is made, are not as they should be.
pub fn begin(module: Module, context: ModuleContext, options: &PluginOptions, next: &mut u64) -> Result<Box<dyn Observer>, Error> {
    let observation = options.experiment.observation();
    if !matches!(observation, Observation::EdgeProfileCounts(_) | Observation::CoverageCounts(_)) {
        edge_profile::discard(module, context.counters)?;
    }
    Ok(match observation {
        Observation::EveryPath(_) => Box::new(every_path::EveryPath),
        Observation::InterestingPaths(_) => Box::new(interesting::InterestingPaths),
        Observation::EventSums(sums) => Box::new(sums::EventSums::begin(module, sums)),
        Observation::EdgeProfileCounts(_) => Box::new(edge_profile::EdgeProfileCounts::begin(module, context, options, next)?),
        Observation::CoverageCounts(_) => Box::new(coverage::CoverageCounts::begin(module, context, options, next)?),
        Observation::PathStream(_) => Box::new(stream::PathStream::begin(module, options)),
        Observation::BlockAddresses(_) => Box::new(addresses::BlockAddresses::default()),
        // Such a unit has no probes: see [`sleds`].
        Observation::TraceSleds(_) => Box::new(every_path::EveryPath),
        Observation::CountsInBursts(_) => Box::new(bursts::CountsInBursts),
        Observation::SegmentCounts(_) => Box::new(segments::SegmentCounts::default()),
        Observation::UnknownPaths(_) => Box::new(unknown::UnknownPaths::begin(module)),
        Observation::WatchedPaths(_) => Box::new(watched::begin(module)),
        Observation::CopyPart(part) => part::begin(module, part),
    })
}

/// What a kind of observation does to a unit's code.
pub trait Observer {
    /// Why a function is not observed although its graph can be described.
    fn reason_to_skip(&self, _unit: &Unit, _function: Value) -> Option<&'static str> {
        None
    }

    /// Makes the code that observes all these functions.
    ///
    /// # Errors
    /// A plan or a map that was given is of other code, or there are too many events.
    fn observe_all(&mut self, unit: &mut Unit, functions: &[Value], _machine: LLVMTargetMachineRef) -> Result<(), Error> {
        functions.iter().try_for_each(|function| self.observe(unit, *function))
    }

    /// The same, of one function.
    ///
    /// # Errors
    /// As of [`Observer::observe_all`].
    fn observe(&mut self, unit: &mut Unit, function: Value) -> Result<(), Error> {
        let mut planned = unit.plan(self.as_dyn(), function)?;
        self.insert(unit, &mut planned);
        unit.finish_code(&[function]);
        unit.enter(planned);
        Ok(())
    }

    /// A function is about to be described: its blocks are as the compiler made them.
    fn before_description(&mut self, _unit: &Unit, _function: Value) {}

    /// Whether a thread may come to a function without having acquired a region.
    fn may_be_first(&self, unit: &Unit, function: Value) -> bool {
        unit.may_be_first(function)
    }

    /// A function, the next one of the map, is described.
    fn described(&mut self, _unit: &mut Unit, _function: Value, _cfg: &FunctionCfg) {}

    /// How often each edge of a function was executed, if what was given with the kind says it.
    fn measured_edges<'u>(&self, _unit: &'u Unit, _name: &str, _cfg: &FunctionCfg) -> Option<&'u [u64]> {
        None
    }

    /// The plan of a function's paths.
    ///
    /// # Errors
    /// What was given with the kind is of another function.
    fn plan(&self, unit: &Unit, _name: &str, cfg: &FunctionCfg, graph: &Graph, frequencies: &Frequencies) -> Result<Plan, Error> {
        Ok(unit.plan_of_all(cfg, graph, frequencies))
    }

    /// Plans again where the paths that were given with the kind decide.
    ///
    /// # Errors
    /// They are of another function, or their numbers are wrong.
    fn plan_again(
        &mut self,
        _unit: &mut Unit,
        planned: PlannedFunction,
        _prepared: &[(Block, BlockKind)],
    ) -> Result<PlannedFunction, Error> {
        Ok(planned)
    }

    /// The passes that a function's program admits, of those that were chosen.
    fn passes(&self, unit: &Unit, planned: &PlannedFunction) -> Choices {
        unit.passes(planned)
    }

    /// Rewrites a program after the passes.
    fn rewrite(&self, _program: &mut ProbeProgram, _cfg: &FunctionCfg) {}

    /// Makes the code at a function's entry. Gives the address behind which it counts, and what is done where its paths end.
    fn enter<'p>(&self, unit: &Unit, planned: &'p PlannedFunction, location: Option<LLVMMetadataRef>) -> (Value, PathEnd<'p>) {
        (unit.counters_of_thread(planned, location), unit.in_array_or_table(planned))
    }

    /// A function has its probes.
    fn inserted(&mut self, _planned: &PlannedFunction, _base: Value, _at_end: PathEnd, _location: Option<LLVMMetadataRef>) {}

    /// Makes the code that observes a function's paths.
    fn insert(&mut self, unit: &Unit, planned: &mut PlannedFunction) {
        insert_probes(self.as_dyn(), unit, planned);
    }

    /// All code is there: defines what it refers to.
    fn define(&self, _unit: &Unit) {}

    /// Takes declarations out again that no function came to need.
    fn forget_unused(&self, _unit: &Unit) {}

    /// What turns the unit's paths into LLVM's edge profile, if it was built to be optimised by that.
    fn edge_profile(&mut self) -> Option<EdgeProfile> {
        None
    }

    /// This one, for functions that take any.
    fn as_dyn(&mut self) -> &mut dyn Observer;
}

/// Runs the passes on a function's program, and inserts what it says.
fn insert_probes(observer: &mut dyn Observer, unit: &Unit, planned: &mut PlannedFunction) {
    let passes = observer.passes(unit, planned);
    let PlannedFunction { function, cfg, graph, program, frequencies, .. } = &mut *planned;
    let function = *function;
    probes::run_passes(program, frequencies, &places::block_properties(cfg, graph), passes);
    observer.rewrite(program, cfg);
    let location = crate::debug::no_line(unit.module, function);
    let (base, at_end) = observer.enter(unit, planned, location);
    probes::insert(unit.context, function, &planned.cfg, &planned.program, unit.counters(base, at_end));
    observer.inserted(planned, base, at_end, location);
}

/// What is done where a path ends.
#[derive(Clone, Copy)]
pub enum PathEnd<'a> {
    /// Its word in an array is incremented.
    Word,
    /// Its cell in a table is incremented, which is looked for.
    Table(CountTable),
    /// Events are charged to its cells in an array, and its count is incremented.
    Sums(BegunEvents),
    /// The word of an interesting path, or that of all others, is incremented; events are charged to it, if any are summed up.
    Interesting(Words<'a>, Option<BegunEvents>),
    /// It is counted if it is unknown.
    Unknown(Unknown<'a>),
    /// It is appended to a stream.
    Stream(StreamCode),
    /// The context that it is for callees is passed on, and the segment that ends with it is counted.
    Segment(SegmentCode<'a>),
    /// Its word in an array is incremented; the unit's first of two words in which hits of probes are counted, if they are.
    Part(Option<u64>),
}

impl PathEnd<'_> {
    /// Counts a path: its number is the sum of register and increment.
    pub fn count(&self, code: &ProbeCode, builder: &Builder, register: Register, increment: i64, by: Value) {
        match *self {
            PathEnd::Word | PathEnd::Stream(_) | PathEnd::Part(_) => {
                let address = code.address(builder, builder.module.i64(), register, increment);
                code.counters.add(builder, address, by);
            }
            PathEnd::Table(_) | PathEnd::Unknown(_) => code.defer_count(builder, register, increment, by, Lookup::Decided),
            PathEnd::Sums(events) => {
                let address = code.address(builder, events.cells, register, increment);
                events.count(code, builder, address, by);
            }
            PathEnd::Interesting(words, events) => interesting::count(words, events, code, builder, register, increment, by),
            PathEnd::Segment(segments) => segments::count(segments, code, builder, register, increment),
        }
    }

    /// Whether a path that is counted often may have code of its own: where that is an addition to a word.
    pub fn may_count_split(&self) -> bool {
        !matches!(self, PathEnd::Table(_) | PathEnd::Sums(_) | PathEnd::Interesting(..))
    }

    /// Whether events are charged to paths.
    pub fn has_events(&self) -> bool {
        matches!(self, PathEnd::Sums(_) | PathEnd::Interesting(_, Some(_)))
    }

    /// The stream to which it is appended.
    pub fn stream(&self) -> StreamCode {
        match self {
            PathEnd::Stream(stream) => *stream,
            _ => unreachable!("a program that appends paths is of a stream build"),
        }
    }
}

/// Passes after which each iteration of a loop is counted when it ends.
pub fn each_iteration(choices: Choices) -> Choices {
    Choices { trip_counts: TripCounting::Off, dominant: choices.dominant.min(DominantCounting::Split), ..choices }
}

/// Counts are made where paths end, each by itself.
pub const AT_PATH_ENDS: Choices = Choices { trip_counts: TripCounting::Off, early: false, dominant: DominantCounting::Shared };
