//! `trodden export profdata`: converts a path profile to an LLVM profile format. Depending on how the program was built, the result
//! contains edge counts for clang and rustc (`-fprofile-use`, `-Cprofile-use`), or region counts for `llvm-cov`.
//!
//! This module writes the text format, which the `llvm-profdata` of the compilers' LLVM version converts to the indexed format.

mod raw;
mod text;

use crate::context::DriverContext;
use crate::other_programs::checked_stdout;
use crate::toolchain::{LlvmTool, find_for_profile};
use anyhow::{Context, Result, bail};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_profile::{CallTarget, CallTargetsByOffset, EdgeCounts, EdgeError, ImageProfile, Profile};
use trodden_text::words::list_names;
use trodden_unit::EdgeProfile;

/// Converts a profile to LLVM's text format for profiles.
pub fn to_text_format(profile: &Profile) -> Result<Vec<u8>> {
    Ok(text::encode_text_profile(&edge_counts(profile)?).into_bytes())
}

fn edge_counts(profile: &Profile) -> Result<EdgeCounts> {
    let edges = EdgeCounts::new(profile, &collect_call_targets)?;
    if !edges.without_placeholders.is_empty() {
        let sources = list_names(&edges.without_placeholders, 1);
        log::info!("skipping source files that were compiled without LLVM's counters: {sources}");
    }
    Ok(edges)
}

/// Computes the values of LLVM's coverage counters, for `llvm-cov`.
pub fn coverage_counts(profile: &Profile) -> Result<EdgeCounts> {
    let of_edges = |e: &EdgeProfile| !e.functions.is_empty() && !e.is_coverage();
    let mut all = profile.images.iter().flat_map(|i| &i.units).filter_map(|u| u.map.edge_profile.as_ref());
    if all.any(of_edges) {
        bail!("the program was built with --pgo, which counts edges. Build it with --coverage instead, and record again");
    }
    match edge_counts(profile) {
        Err(error) if matches!(error.downcast_ref(), Some(EdgeError::NoPlaceholders)) => {
            bail!(
                "the program was built without coverage. Build it with `trodden build --coverage -- ...`, `trodden cc \
                --trodden=coverage` or `cargo trodden build --coverage`, and record again"
            )
        }
        other => other,
    }
}

/// Converts a profile to LLVM's indexed format. Fails if the program was built without LLVM's counters, if `llvm-profdata` is missing, or
/// if it fails.
pub fn to_indexed_format(context: &DriverContext, profile: &Profile) -> Result<Vec<u8>> {
    encode_indexed_profile(context, &find_tool_for(context, LlvmTool::Profdata, profile)?, edge_counts(profile)?)
}

/// Finds an LLVM tool that supports the file formats of the newest compiler that built a part of the profiled program.
pub fn find_tool_for(context: &DriverContext, tool: LlvmTool, profile: &Profile) -> Result<PathBuf> {
    let units = profile.images.iter().flat_map(|image| &image.units);
    let newest = units.max_by_key(|unit| unit.map.llvm).map_or(("", 0), |unit| (&*unit.map.source, unit.map.llvm));
    find_for_profile(context, tool, newest.1, &format!("{} was compiled by", newest.0))
}

/// Converts counter values to LLVM's indexed format. `tool` is the path of `llvm-profdata`.
pub fn encode_indexed_profile(context: &DriverContext, tool: &Path, mut edges: EdgeCounts) -> Result<Vec<u8>> {
    let folder = context.folder("trodden-profdata-")?;
    let to = folder.path().join("prog.profdata");
    let (in_raw, rest) = std::mem::take(&mut edges.functions).into_iter().partition::<Vec<_>, _>(raw::needs_raw_format);
    edges.functions = rest;
    let mut parts = vec![("prog.proftext", text::encode_text_profile(&edges).into_bytes())];
    if !in_raw.is_empty() {
        parts.push(("prog.profraw", raw::encode_raw_profile(&in_raw, edges.version)));
        // If all functions are in the raw file, the text file is omitted, because `llvm-profdata` rejects a text file without functions.
        parts.retain(|(name, _)| *name == "prog.profraw" || !edges.functions.is_empty());
    }
    let mut command = Command::new(tool);
    command.arg("merge");
    for (name, content) in parts {
        let from = folder.path().join(name);
        fs::write(&from, content).with_context(|| format!("cannot write {}", from.display()))?;
        command.arg(from);
    }
    let made = command.arg("-o").arg(&to).output().with_context(|| format!("cannot run {}", tool.display()))?;
    checked_stdout(made, format_args!("{} rejects the profile", tool.display()))?;
    fs::read(&to).with_context(|| format!("cannot read {}", to.display()))
}

/// Returns the possible targets of indirect calls in an image: the functions in its symbol table whose names occur in the profile. The
/// result is empty if the image has changed or no longer exists.
fn collect_call_targets(image: &ImageProfile) -> CallTargetsByOffset {
    let edges = || image.units.iter().filter_map(|u| u.map.edge_profile.as_ref());
    // Coverage needs no call targets.
    if edges().all(EdgeProfile::is_coverage) {
        return CallTargetsByOffset::new();
    }
    let changed = || {
        let path = if image.path.is_empty() { "an image without a path" } else { &image.path };
        log::info!("{path} was changed or removed after it ran, so the profile lacks the targets of its indirect calls");
        CallTargetsByOffset::new()
    };
    let Ok(bytes) = fs::read(&image.path) else { return changed() };
    let Ok(file) = object::File::parse(&*bytes) else { return changed() };
    let build_id = file.build_id().ok().flatten().map(|id| id.iter().map(|b| format!("{b:02x}")).collect::<String>());
    if build_id != image.build_id {
        return changed();
    }
    let Some(start) = file.segments().map(|s| s.address()).min() else { return changed() };
    let names = ProfdataNames::new(edges().flat_map(|e| e.names.iter().map(String::as_str)));
    let mut targets = CallTargetsByOffset::new();
    let mut source = String::new();
    for symbol in file.symbols() {
        let Ok(name) = symbol.name() else { continue };
        match symbol.kind() {
            SymbolKind::File => source = name.to_owned(),
            SymbolKind::Text if symbol.address() >= start => {
                if let Some(own) = names.find(name, symbol.is_local(), &source) {
                    targets.entry(symbol.address() - start).or_insert(CallTarget { symbol: name.to_owned(), name: own.to_owned() });
                }
            }
            _ => {}
        }
    }
    targets
}

/// Function names in an LLVM profile. The name of a local function is preceded by its source file (`file.c;name`).
#[derive(Default)]
struct ProfdataNames<'a> {
    global: HashSet<&'a str>,
    local: HashMap<&'a str, HashSet<&'a str>>,
}

impl<'a> ProfdataNames<'a> {
    fn new(all: impl Iterator<Item = &'a str>) -> ProfdataNames<'a> {
        let mut names = ProfdataNames::default();
        for name in all {
            match name.rsplit_once(';') {
                Some((_, end)) => _ = names.local.entry(end).or_default().insert(name),
                None => _ = names.global.insert(name),
            }
        }
        names
    }

    /// Returns the name that the profile uses for a symbol; `None` unless exactly one name matches. `source` distinguishes local symbols
    /// with the same name.
    fn find(&self, symbol: &str, local: bool, source: &str) -> Option<&'a str> {
        if let Some(name) = self.global.get(symbol) {
            return Some(name);
        }
        let all = self.local.get(symbol).filter(|_| local)?;
        let base = |path: &str| Path::new(path).file_name().map(ToOwned::to_owned);
        let is_of_source = |name: &&&str| name.rsplit_once(';').is_some_and(|(file, _)| base(file) == base(source));
        let matching: Vec<&&str> = if all.len() > 1 { all.iter().filter(is_of_source).collect() } else { all.iter().collect() };
        if let [name] = matching[..] { Some(name) } else { None }
    }
}
