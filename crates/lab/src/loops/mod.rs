//! `trodden-lab loops PROGRAM`: the machine code of the hottest loops of a recorded run, without and with counting, side by side.
//!
//! `nest` finds the loops and weighs them by the run's block counts, `compile` produces both assemblies, `machine` parses them, `pair` maps
//! machine blocks to blocks of the graph and aligns instructions, and `show` renders the result. Blocks are followed through code
//! generation by their names and by jumps. Each part of a split block is assumed to execute as often as the block. If a block was
//! duplicated into some of its predecessors, what remains of it is assumed to execute as often as its other predecessors lead to it. So
//! numbers per iteration are approximate.

mod compile;
mod machine;
mod nest;
mod pair;
mod show;

use crate::cli::LoopsArguments;
use anyhow::{Context, Result, bail};
use compile::Assembly;
use nest::WeightedLoop;
use pair::LoopCode;
use serde::{Serialize, Serializer};
use std::collections::{HashMap, hash_map::Entry};
use std::fs;
use std::process::ExitCode;
use trodden_command::laboratory::driver_context;
use trodden_console::notes::note;
use trodden_console::output::{Color, json_text, print_result, resolve_color};
use trodden_profile::{ImageProfile, Profile};
use trodden_report::{Function, ProfileView};
use trodden_stored::named;
use trodden_unit::{Frame, Identity, InstrumentedImage};

const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct LoopsDocument {
    schema_version: u32,
    program: String,
    loops: Vec<HotLoop>,
}

#[derive(Debug, Serialize)]
struct HotLoop {
    function: String,
    source: String,
    /// First source line, if known.
    line: Option<u32>,
    header: u32,
    #[serde(serialize_with = "number")]
    iterations: u64,
    /// Share of all IR instructions executed by the program.
    share: f64,
    /// Machine instructions per iteration, without and with counting.
    plain: f64,
    counted: f64,
    blocks: Vec<HotBlock>,
}

/// A block of the graph, or code on an edge, in both versions.
#[derive(Debug, Serialize)]
struct HotBlock {
    place: LoopCodePlace,
    line: Option<u32>,
    #[serde(serialize_with = "number")]
    plain_executions: u64,
    #[serde(serialize_with = "number")]
    counted_executions: u64,
    lines: Vec<pair::InstructionPair>,
}

/// The location in the graph that machine code belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
enum LoopCodePlace {
    Block(u32),
    Edge(u32, u32),
    /// The landing block through which all indirect branches to this block lead.
    Landing(u32),
}

/// Prints the hottest loops. Fails if the profile does not contain the program or counts only unknown paths, if bitcode was not kept, or if
/// a tool fails.
pub fn run(job: &LoopsArguments, color: Color) -> Result<ExitCode> {
    let bytes = fs::read(&job.program).with_context(|| format!("cannot read {}", job.program.display()))?;
    let image = InstrumentedImage::read(&bytes).with_context(|| job.program.display().to_string())?;
    let profile = named::load_profile(&job.profile)?;
    let counted = image_profile(&profile, &image, job)?;
    // Tested paths run code that counts nothing, so the loops' iterations do not follow from the counts.
    if counted.units.iter().any(|unit| unit.map.experiment.is_residual()) {
        bail!(
            "{} counts only untested paths (--residual), from which loop iterations cannot be computed. Build it without --residual, and \
             record a run of that build",
            job.program.display()
        );
    }
    let view = ProfileView::from_profile(&profile);
    let hottest = select_hottest(&view, counted, job)?;
    let mut assemblies = HashMap::new();
    let mut loops = Vec::new();
    for (function, found) in &hottest {
        let unit = function.unit.unit;
        let assembly: &Assembly = match assemblies.entry(unit) {
            Entry::Occupied(compiled) => compiled.into_mut(),
            Entry::Vacant(place) => {
                note(format_args!("compiling {} twice (with and without counting)", function.unit_map().source));
                place.insert(compile::assemble(&load_frame(&image, unit)?, &job.settings())?)
            }
        };
        loops.push(compare_versions(function, found, assembly, view.totals.instructions)?);
    }
    let answer = LoopsDocument { schema_version: SCHEMA_VERSION, program: job.program.display().to_string(), loops };
    print_result(job.json, || json_text(&answer), || Ok(show::render_loops(&answer, job.blocks, resolve_color(color))))?;
    Ok(ExitCode::SUCCESS)
}

fn image_profile<'a>(profile: &'a Profile, image: &InstrumentedImage, job: &LoopsArguments) -> Result<&'a ImageProfile> {
    let found = profile.images.iter().find(|i| i.identity == image.identity);
    let others: Vec<&str> = profile.images.iter().map(|i| i.path.as_str()).collect();
    found.with_context(|| {
        format!(
            "profile `{}` has no counts of this build of {}, only of: {}. Record a run with `trodden record -- {}`",
            job.profile,
            job.program.display(),
            if others.is_empty() { "nothing".to_owned() } else { others.join(", ") },
            job.program.display()
        )
    })
}

/// Returns the loops with the most executed instructions, in all functions or in the selected one.
fn select_hottest<'a, 'b>(
    view: &'b ProfileView<'a>,
    image: &ImageProfile,
    job: &LoopsArguments,
) -> Result<Vec<(&'b Function<'a>, WeightedLoop)>> {
    let of_image = || view.executed().filter(|f| f.image.identity == image.identity);
    let wanted = |f: &&Function| job.function.as_ref().is_none_or(|name| f.name.matches(name));
    if let Some(name) = job.function.as_ref().filter(|_| !of_image().any(|f| wanted(&f))) {
        bail!("no function `{name}` was executed in {}. To list the executed functions, run `trodden report`", job.program.display());
    }
    let mut all: Vec<(&Function, WeightedLoop)> =
        of_image().filter(wanted).flat_map(|f| nest::find_weighted_loops(f.map, &f.paths).into_iter().map(move |l| (f, l))).collect();
    all.sort_by_key(|(_, l)| std::cmp::Reverse(l.weight));
    all.truncate(trodden_report::select::limit(job.top));
    Ok(all)
}

/// Returns a unit with its bitcode, from the program or, if the program has none, from the store.
fn load_frame(image: &InstrumentedImage, unit: Identity) -> Result<Frame> {
    let own = image.frames.iter().find(|f| f.unit == unit);
    if let Some(frame) = own.filter(|f| f.has_bitcode()) {
        return Ok(frame.clone());
    }
    let store = driver_context().store()?;
    let found = store.get(unit)?.or_else(|| own.cloned());
    found.with_context(|| {
        format!(
            "compilation unit {unit} is neither in the program nor in the unit cache (folder {}). Rebuild the program",
            store.root().display()
        )
    })
}

fn compare_versions(function: &Function, found: &WeightedLoop, assembly: &Assembly, all: u128) -> Result<HotLoop> {
    let side = |text: &machine::MachineFunctions| -> Result<LoopCode> {
        let code = text.get(function.map.plain_name());
        let code =
            code.with_context(|| format!("the assembly of {} has no function {}", function.unit_map().source, function.name.full))?;
        Ok(LoopCode::new(code, &pair::CountedGraph::new(function.map, &function.paths, &assembly.labels), &found.part))
    };
    let (plain, counted) = (side(&assembly.plain)?, side(&assembly.counted)?);
    let block = |place: LoopCodePlace| HotBlock {
        place,
        line: line_of(function, place),
        plain_executions: plain.executions(place),
        counted_executions: counted.executions(place),
        lines: pair::align_instructions(&plain.instructions(place), &counted.instructions(place)),
    };
    let mut blocks: Vec<HotBlock> = pair::list_places(&plain, &counted).into_iter().map(block).collect();
    blocks.retain(|b| !b.lines.is_empty());
    let iterations = found.iterations.max(1) as f64;
    Ok(HotLoop {
        function: function.name.full.clone(),
        source: function.unit_map().source.clone(),
        line: line_of(function, LoopCodePlace::Block(found.header)),
        header: found.header,
        iterations: found.iterations,
        share: found.weight as f64 / all.max(1) as f64,
        plain: plain.executed_instructions() as f64 / iterations,
        counted: counted.executed_instructions() as f64 / iterations,
        blocks,
    })
}

/// Returns the first source line of a block. For an edge, returns that of the branch at which the edge starts.
fn line_of(function: &Function, place: LoopCodePlace) -> Option<u32> {
    let (block, branch) = match place {
        LoopCodePlace::Block(block) | LoopCodePlace::Landing(block) => (function.map.blocks.get(block as usize)?, None),
        LoopCodePlace::Edge(from, _) => (function.map.blocks.get(from as usize)?, function.map.blocks.get(from as usize)?.branch),
    };
    branch.iter().chain(&block.positions).map(|p| p.line).find(|line| *line > 0)
}

/// Serialises a number above 2^53 as a string, because many JSON readers store numbers as doubles.
fn number<S: Serializer>(value: &u64, out: S) -> std::result::Result<S::Ok, S::Error> {
    if *value <= 1 << 53 { out.serialize_u64(*value) } else { out.collect_str(value) }
}
