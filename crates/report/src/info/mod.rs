//! Summaries for `trodden info` of instrumented programs and of stored profiles. The former include the code that is not counted.

mod profile;

pub use profile::ProfileSummary;

use crate::words::{list_names, plural};
use crate::{DemangledName, escape};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write};
use std::path::Path;
use trodden_analysis::libraries::NeededLibrary;
use trodden_flow::CutReason;
use trodden_profile::exactness;
use trodden_unit::{FunctionMap, InstrumentedImage, Skipped, UnitCache, UnitMap, count_distinct_functions};

const SCHEMA_VERSION: u32 = 3;
/// Maximum number of list entries shown as text. JSON has all entries.
const MAX_SHOWN_LIST_ENTRIES: usize = 12;

/// Summary of an instrumented image.
#[derive(Debug, Default, Serialize)]
pub struct ImageSummary {
    schema_version: u32,
    path: String,
    image: String,
    build_id: Option<String>,
    units: Vec<UnitSummary>,
    /// Units whose map is neither in the image nor in the unit cache.
    units_without_map: Vec<String>,
    damage: Vec<String>,
    /// Number of functions. A function with copies in several units counts once.
    functions: usize,
    /// Number of functions, where each copy counts.
    bodies: usize,
    not_exact: Vec<String>,
    counters: u64,
    skipped: Vec<SkippedFunction>,
    /// Functions whose paths are all counted although the build requested only interesting paths.
    counted_in_full: Vec<SkippedFunction>,
    cut: Vec<CutFunction>,
    uninstrumented: Vec<String>,
    libraries: Vec<NeededLibrary>,
    libraries_unknown: Option<String>,
}

#[derive(Debug, Serialize)]
struct UnitSummary {
    unit: String,
    source: String,
    scheme: String,
    codegen: Vec<String>,
    functions: usize,
    counters: u64,
    bitcode: bool,
}

#[derive(Debug, Serialize)]
struct SkippedFunction {
    function: String,
    source: String,
    reason: String,
}

/// A function in which paths are cut, that is, end at some edge so that the next path begins there. Back edges are not included.
#[derive(Debug, Serialize)]
struct CutFunction {
    function: String,
    source: String,
    paths: u64,
    cuts: Vec<CutPlace>,
}

#[derive(Debug, Serialize)]
struct CutPlace {
    reason: &'static str,
    from_line: Option<u32>,
    to_line: Option<u32>,
}

/// Returns true if a function is part of trodden's runtime. Runtime functions that were not inlined have mangled names.
fn is_runtime_function(function: &str) -> bool {
    ["__trodden", "12trodden_wire", "15trodden_runtime"].iter().any(|name| function.contains(name))
}

impl ImageSummary {
    /// Summarises an image. Maps that are not in the image are read from the unit cache. `libraries` lists the shared libraries that the
    /// image needs, or is the reason why they are unknown. Fails if a map is corrupt or belongs to a different build.
    pub fn new(
        path: &Path,
        image: &InstrumentedImage,
        store: Option<&UnitCache>,
        libraries: Result<Vec<NeededLibrary>, String>,
    ) -> Result<ImageSummary> {
        let mut out = ImageSummary {
            schema_version: SCHEMA_VERSION,
            path: path.display().to_string(),
            image: image.identity.to_string(),
            build_id: image.build_id.clone(),
            damage: image.frame_errors.iter().map(ToString::to_string).collect(),
            counters: image.units.iter().map(|u| u.counters).sum(),
            ..ImageSummary::default()
        };
        let (mut known, mut maps) = (HashSet::new(), Vec::new());
        for placed in &image.units {
            let what = || format!("cannot read the map of unit {} in {}", placed.unit, path.display());
            match image.frame(placed.unit, store).with_context(what)? {
                None => out.units_without_map.push(placed.unit.to_string()),
                Some(frame) => {
                    let map = frame.map().with_context(what)?;
                    if map.words_per_region() != Some(placed.counters) {
                        bail!(
                            "compilation unit {} in {} is corrupt: it does not have as many counters as its map describes. Rebuild the \
                             program",
                            placed.unit,
                            path.display()
                        );
                    }
                    out.add_unit(&frame.unit.to_string(), &map, frame.has_bitcode(), &mut known);
                    maps.push(map);
                }
            }
        }
        out.functions = count_distinct_functions(maps.iter().flat_map(|m| &m.functions));
        // Names of functions that trodden added: a sampling build splits a function into itself and a version `.counted`, and a build that
        // counts segments copies callees (`.segments.N`).
        let is_version = |f: &str| f.strip_suffix(".counted").is_some_and(|f| known.contains(f));
        let is_copy = |f: &str| {
            f.rsplit_once(".segments.").is_some_and(|(f, number)| number.bytes().all(|b| b.is_ascii_digit()) && known.contains(f))
        };
        let is_ours = |f: &str| known.contains(f) || is_version(f) || is_copy(f) || is_runtime_function(f);
        out.uninstrumented = image.functions.iter().filter(|f| !is_ours(f)).cloned().collect();
        match libraries {
            Ok(found) => out.libraries = found,
            Err(reason) => out.libraries_unknown = Some(reason),
        }
        Ok(out)
    }

    fn add_unit(&mut self, unit: &str, map: &UnitMap, bitcode: bool, known: &mut HashSet<String>) {
        self.not_exact.extend(exactness::inexactness_of_units(std::iter::once(map)).iter().map(|i| format!("{}: {i}", map.source)));
        self.bodies += map.functions.len();
        for function in &map.functions {
            known.insert(function.plain_name().to_owned());
            self.cut.extend(find_cuts(map, function));
        }
        let named = |function: &Skipped| SkippedFunction {
            function: DemangledName::from_linkage(&function.name).full,
            source: map.source.clone(),
            reason: function.reason.clone(),
        };
        known.extend(map.skipped.iter().map(|s| s.name.trim_start_matches('\u{1}').to_owned()));
        self.skipped.extend(map.skipped.iter().map(named));
        self.counted_in_full.extend(map.fully_counted.iter().map(named));
        // A unit's counters may include those of an edge profile. Only path counters are shown.
        let paths = map.functions.iter().fold(0, |sum: u64, f| sum.saturating_add(f.counters));
        self.counters = self.counters.saturating_sub(map.words_per_region().unwrap_or_default()).saturating_add(paths);
        self.units.push(UnitSummary {
            unit: unit.to_owned(),
            source: map.source.clone(),
            scheme: map.experiment.to_string(),
            codegen: map.codegen.clone(),
            functions: map.functions.len(),
            counters: paths,
            bitcode,
        });
    }

    /// Renders the summary as text. Long lists are truncated.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let shown = MAX_SHOWN_LIST_ENTRIES;
        writeln!(out, "{}", escape::escape_line(&self.path))?;
        writeln!(out, "  image      {}", self.image)?;
        writeln!(out, "  build id   {}", self.build_id.as_deref().unwrap_or("none"))?;
        let copies = match self.bodies - self.functions {
            0 => String::new(),
            copies => format!(", {} of them", plural(copies as u128, "more copy", "more copies")),
        };
        let (functions, paths) = (plural(self.functions as u128, "function", "functions"), plural(self.counters.into(), "path", "paths"));
        let units = plural(self.units.len() as u128, "unit", "units");
        writeln!(out, "  counted    {functions}{copies} in {units}, {paths}")?;
        for (scheme, count) in self.count_units_by_scheme() {
            writeln!(out, "  experiment {scheme} ({})", plural(count as u128, "unit", "units"))?;
        }
        let lines = self.units.iter().map(|u| {
            let bitcode = if u.bitcode { "" } else { ", no bitcode" };
            let functions = plural(u.functions as u128, "function", "functions");
            format!("{}  {functions}, {}{bitcode}", u.source, plural(u.counters.into(), "path", "paths"))
        });
        write_list(out, "Units", lines.collect(), shown)?;
        write_list(
            out,
            "Units whose map is neither in the file nor in the unit cache (rebuild the program, or set TRODDEN_CACHE)",
            self.units_without_map.clone(),
            shown,
        )?;
        write_list(out, "Not exact", self.not_exact.clone(), shown)?;
        write_list(out, "Corrupt parts", self.damage.clone(), shown)?;
        let lines = self.skipped.iter().map(|s| format!("{}  {}  ({})", s.function, s.reason, s.source));
        write_list(out, "Excluded from counting", lines.collect(), shown)?;
        let lines = self.counted_in_full.iter().map(|s| format!("{}  {}  ({})", s.function, s.reason, s.source));
        write_list(out, "All paths counted, not only the interesting ones", lines.collect(), shown)?;
        let lines = self.cut.iter().map(|c| {
            format!("{}  {}, cut at {}  ({})", c.function, plural(c.paths.into(), "path", "paths"), describe_cuts(&c.cuts), c.source)
        });
        write_list(out, "Paths cut at edges other than back edges", lines.collect(), shown)?;
        let lines = self.uninstrumented.iter().map(|f| DemangledName::from_linkage(f).full);
        write_list(out, "Not counted: compiled without trodden", lines.collect(), shown)?;
        self.write_libraries(out)
    }

    fn write_libraries(&self, out: &mut String) -> fmt::Result {
        let lines = self.libraries.iter().map(|l| match (&l.path, l.units) {
            (None, _) => format!("{}  not found", l.name),
            (Some(path), 0) => format!("{}  not counted  ({})", l.name, path.display()),
            (Some(path), units) => format!("{}  {}  ({})", l.name, plural(units as u128, "unit", "units"), path.display()),
        });
        write_list(out, "Shared libraries", lines.collect(), usize::MAX)?;
        match &self.libraries_unknown {
            Some(reason) => writeln!(out, "\nShared libraries: unknown ({})", escape::escape_line(reason)),
            None => Ok(()),
        }
    }

    fn count_units_by_scheme(&self) -> BTreeMap<&str, usize> {
        let mut out = BTreeMap::new();
        for unit in &self.units {
            *out.entry(unit.scheme.as_str()).or_default() += 1;
        }
        out
    }
}

/// Describes the edges at which a function's paths are cut (one path ends and the next begins), except for back edges. Returns `None` if
/// there are none.
fn find_cuts(map: &UnitMap, function: &FunctionMap) -> Option<CutFunction> {
    let line = |node: trodden_flow::Node, first: bool| {
        let block = function.blocks.get(node.0 as usize)?;
        let position = if first { block.positions.first() } else { block.branch.as_ref().or(block.positions.last()) };
        position.map(|p| p.line).filter(|l| *l > 0)
    };
    let cuts: Vec<CutPlace> = function
        .cuts
        .iter()
        .filter_map(|(edge, reason)| {
            let edge = function.graph.get_edge(*edge)?;
            Some(CutPlace { reason: cut_reason(*reason)?, from_line: line(edge.from, false), to_line: line(edge.to, true) })
        })
        .collect();
    let name = DemangledName::from_linkage(function.plain_name()).full;
    (!cuts.is_empty()).then(|| CutFunction { function: name, source: map.source.clone(), paths: function.counters, cuts })
}

/// Returns the reason for a cut, or `None` for cuts that are not worth listing: those that every loop has, and those of edge profiles.
fn cut_reason(reason: CutReason) -> Option<&'static str> {
    match reason {
        CutReason::Back | CutReason::FromExit | CutReason::EachEdge => None,
        CutReason::ReturnsTwice => Some("a call returns twice"),
        CutReason::Unsplittable => Some("indirect branch"),
        CutReason::Limit => Some("too many paths"),
    }
}

fn describe_cuts(cuts: &[CutPlace]) -> String {
    let line = |l: Option<u32>| l.map_or("?".to_owned(), |l| l.to_string());
    let texts: Vec<String> = cuts.iter().map(|c| format!("line {} -> {} ({})", line(c.from_line), line(c.to_line), c.reason)).collect();
    list_names(&texts, 3)
}

fn write_list(out: &mut String, title: &str, lines: Vec<String>, shown: usize) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title} ({})", lines.len())?;
    for line in lines.iter().take(shown) {
        writeln!(out, "  {}", escape::escape_line(line))?;
    }
    match lines.len().saturating_sub(shown) {
        0 => Ok(()),
        more => writeln!(out, "  ... and {more} more (--json)"),
    }
}
