//! Programs that hold a mapping of counters to source regions, and `llvm-cov` on them.
//!
//! The mapping is in sections of the program that is not loaded (`__llvm_covmap`, `__llvm_covfun`) and one that is (`__llvm_prf_names`).
//! `llvm-cov` would show a program that was built again since without a word, with whatever counts still fit; so the build id is compared
//! first.

use super::files::Files;
use super::not_executed::{Counters, NotExecuted};
use crate::cli::{Covered, CoveredFiles};
use crate::context::context;
use crate::notes::{note, warn};
use crate::temporary;
use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_driver::profdata;
use trodden_driver::toolchain::Tool;
use trodden_flow::{CutReason, Edge};
use trodden_launch::temporary::TemporaryFolder;
use trodden_profile::{Beginning, EdgeCounts, ImageProfile, PathEnd, Profile};
use trodden_report::View;
use trodden_report::view::Function;
use trodden_stored::named;

/// Sections without which there is no coverage.
const SECTIONS: [&str; 3] = ["__llvm_covmap", "__llvm_covfun", "__llvm_prf_names"];
/// Sources that belong to no project: Rust's standard library, and packages that cargo fetched.
const FOREIGN_FILES: &str = r"(/rustc/[0-9a-f]+/|/\.cargo/(registry|git)/|/\.rustup/toolchains/)";

/// Programs, the counts of a profile, and which source files are wanted.
pub struct CoverageMapping {
    folder: TemporaryFolder,
    images: Vec<PathBuf>,
    /// A regular expression of files that are not wanted.
    ignored: Option<String>,
    /// Names of the files that are, if not all others are.
    sources: Option<Vec<String>>,
}

impl CoverageMapping {
    /// The profile that the command line names, and what is wanted of it.
    ///
    /// # Errors
    /// There is no such profile; otherwise as [`CoverageMapping::new`].
    pub fn load(covered: &Covered) -> Result<(Profile, CoverageMapping)> {
        let profile = named::load(&covered.profile)?;
        let mapping = CoverageMapping::new(&profile, &covered.files)?;
        warn_of_second_returns(&profile);
        Ok((profile, mapping))
    }

    /// Of a profile.
    ///
    /// # Errors
    /// Its program was not built with `--coverage`, or is not there as it ran; no file of it is wanted.
    pub fn new(profile: &Profile, wanted: &CoveredFiles) -> Result<CoverageMapping> {
        let mut counters = profdata::coverage(profile)?;
        let mut images = images(profile, &wanted.object)?;
        let folder = temporary::folder("trodden-coverage-")?;
        if wanted.like.is_none() {
            correct(&mut images, profile, &mut counters, folder.path())?;
        }
        fs::write(folder.path().join(PROFILE), profdata::indexed_form(context(), counters)?)
            .context("cannot write into the temporary folder")?;
        let own = wanted.ignore_filename_regex.clone();
        let foreign = (!wanted.all_files).then(|| FOREIGN_FILES.to_owned());
        let ignored: Vec<String> = own.into_iter().chain(foreign).collect();
        let ignored = (!ignored.is_empty()).then(|| ignored.join("|"));
        let mut mapping = CoverageMapping { folder, images, ignored, sources: None };
        if !wanted.include.is_empty() || !wanted.exclude.is_empty() {
            mapping.sources = Some(mapping.chosen(wanted)?);
        }
        Ok(mapping)
    }

    /// Files that match the patterns.
    fn chosen(&self, wanted: &CoveredFiles) -> Result<Vec<String>> {
        let files = Files::new(&wanted.include, &wanted.exclude, None)?;
        let all = self.files()?;
        let chosen: Vec<String> = all.iter().filter(|name| files.is_wanted(Path::new(name), Path::new(name))).cloned().collect();
        ensure!(!chosen.is_empty(), "none of the {} source files matches --include and --exclude; the first is {}", all.len(), all[0]);
        Ok(chosen)
    }

    /// Names of all files, of which there is one at least.
    fn files(&self) -> Result<Vec<String>> {
        let summary = self.export(&["-summary-only"])?;
        let names = summary["files"].as_array().into_iter().flatten().filter_map(|f| f["filename"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        ensure!(
            !names.is_empty(),
            "no source file is left to show: all are ignored (--ignore-filename-regex; --all-files shows also those of cargo's packages)"
        );
        Ok(names)
    }

    /// What `llvm-cov export` says, as JSON: its element `data`.
    ///
    /// # Errors
    /// `llvm-cov` is missing or fails.
    pub fn export(&self, options: &[&str]) -> Result<Value> {
        let arguments: Vec<OsString> = options.iter().map(OsString::from).collect();
        let mut all: Value = serde_json::from_slice(&self.llvm_cov("export", &arguments)?).context("what llvm-cov exports is no JSON")?;
        Ok(all["data"][0].take())
    }

    /// Runs `llvm-cov`, and gives what it prints.
    ///
    /// # Errors
    /// It is missing or fails.
    pub fn llvm_cov(&self, verb: &str, options: &[OsString]) -> Result<Vec<u8>> {
        let tool = Tool::Cov.find(context())?;
        let Some((first, others)) = self.images.split_first() else { bail!("the profile has no program") };
        let mut command = Command::new(&tool);
        command.arg(verb).arg(first).arg("-instr-profile").arg(self.folder.path().join(PROFILE)).args(options);
        others.iter().for_each(|image| _ = command.arg("-object").arg(image));
        command.args(self.ignored.iter().map(|regex| format!("-ignore-filename-regex={regex}")));
        if let Some(sources) = &self.sources {
            command.arg("-sources").args(sources);
        }
        let output = command.output().with_context(|| format!("cannot run {}", tool.display()))?;
        if !output.status.success() {
            let named: Vec<String> = self.images.iter().map(|i| i.display().to_string()).collect();
            let said = String::from_utf8_lossy(&output.stderr);
            // It colours its errors wherever they go.
            let mut pieces = said.split('\u{1b}');
            let first = pieces.next().into_iter();
            let said: String = first.chain(pieces.filter_map(|piece| Some(piece.split_once('m')?.1))).collect();
            let remedy = match said.contains("malformed") || said.contains("oad coverage") {
                true => ": the file is damaged; build it again with --coverage, and record again",
                false => "",
            };
            bail!("{} fails on {}: {}{remedy}", tool.display(), named.join(", "), said.trim().trim_end_matches('.'));
        }
        Ok(output.stdout)
    }
}

/// Replaces images by copies of their mappings in which code behind calls that did not return has its own counts, if there is such code.
fn correct(images: &mut [PathBuf], profile: &Profile, counts: &mut EdgeCounts, folder: &Path) -> Result<()> {
    let Some(mut not_executed) = NotExecuted::from_view(&View::from_profile(profile)) else { return Ok(()) };
    let mut counters = Counters::new(&mut counts.functions);
    let read = |image: &Path| fs::read(image).with_context(|| format!("cannot read {}", image.display()));
    let damaged = |image: &Path| format!("{}: build it again, and record again", image.display());
    for image in images.iter() {
        not_executed.note_rests(&read(image)?, &counters).with_context(|| damaged(image))?;
    }
    for (number, image) in images.iter_mut().enumerate() {
        if let Some(corrected) = not_executed.correct(&read(image)?, &mut counters).with_context(|| damaged(image))? {
            *image = folder.join(format!("mapping-{number}"));
            fs::write(&image, corrected).context("cannot write into the temporary folder")?;
        }
    }
    Ok(())
}

/// Name of the indexed profile in the temporary folder.
const PROFILE: &str = "coverage.profdata";

/// The files of the images with counters of coverage, each as it ran; and those named that did not run.
fn images(profile: &Profile, moved: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let moved: Vec<(PathBuf, Option<String>)> = moved.iter().map(|path| Ok((path.clone(), build_id(path)?))).collect::<Result<_>>()?;
    let counted = |image: &&ImageProfile| image.units.iter().any(|u| u.map.edge_profile.as_ref().is_some_and(|e| !e.functions.is_empty()));
    let images: Vec<&ImageProfile> = profile.images.iter().filter(counted).collect();
    let is_of = |id: &Option<String>, image: &ImageProfile| id.is_some() && *id == image.build_id;
    let (_, others): (Vec<_>, Vec<_>) = moved.iter().partition(|(_, id)| images.iter().any(|image| is_of(id, image)));
    for (path, _) in &others {
        ensure!(
            !images.iter().any(|image| Path::new(&image.path).file_name() == path.file_name()),
            "{} is not the program that was recorded: its build id is that of no image of the profile",
            path.display()
        );
        check_mapping(&fs::read(path)?, path)?;
        note(format_args!("{} did not run: all of it counts as not executed", path.display()));
    }
    let others = others.into_iter().map(|(path, _)| Ok(path.clone()));
    let found = images.into_iter().map(|image| {
        let named = moved.iter().find(|(_, id)| is_of(id, image));
        let path = named.map_or_else(|| PathBuf::from(&image.path), |(path, _)| path.clone());
        check(&path, image)?;
        Ok(path)
    });
    found.chain(others).collect()
}

/// Whether a file is the image that ran, with its mapping.
fn check(path: &Path, image: &ImageProfile) -> Result<()> {
    if path.as_os_str().is_empty() {
        bail!("the profile does not say which file the program was: name it by --object");
    }
    if !path.is_file() {
        bail!("{} is not there any more, and the mapping of its source regions is in it: name its new place by --object", path.display());
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let damaged = || format!("{} is damaged: build it again with --coverage, and record again", path.display());
    let file = object::File::parse(&*bytes).with_context(damaged)?;
    let id = file.build_id().with_context(damaged)?.map(hexadecimal);
    ensure!(
        id == image.build_id,
        "{} was built again since it ran: record it again, or name the file that ran by --object",
        path.display()
    );
    check_mapping(&bytes, path)
}

/// Whether a program has its mapping.
fn check_mapping(bytes: &[u8], path: &Path) -> Result<()> {
    let file = object::File::parse(bytes).with_context(|| format!("{} is no program", path.display()))?;
    for section in SECTIONS {
        let size = file.section_by_name(section).map_or(0, |s| s.size());
        ensure!(
            size > 0,
            "{} has no section {section}, without which there is no coverage: a tool removed it; give the file that the linker \
                wrote by --object",
            path.display()
        );
    }
    Ok(())
}

fn build_id(path: &Path) -> Result<Option<String>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = object::File::parse(&*bytes).with_context(|| format!("{} is no program: --object names what ran", path.display()))?;
    Ok(file.build_id().ok().flatten().map(hexadecimal))
}

fn hexadecimal(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether programs of a profile have a mapping.
pub fn is_mapped(profile: &Profile) -> bool {
    let mut edges = profile.images.iter().flat_map(|i| &i.units).filter_map(|u| u.map.edge_profile.as_ref());
    edges.any(|e| e.is_coverage() && !e.functions.is_empty())
}

/// Says which functions have a call that returned more often than it was made, in one process (`setjmp`). LLVM computes regions as
/// differences of counters, as if each call returned once, so executed code behind it may have 0.
fn warn_of_second_returns(profile: &Profile) {
    let view = View::from_profile(profile);
    let names: BTreeSet<&str> = view.functions.iter().filter(|f| returned_again(f)).map(|f| f.name.short.as_str()).collect();
    let Some(first) = names.first() else { return };
    let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
    warn(format_args!(
        "a call in {first}{more} returned twice (setjmp, vfork): LLVM computes the executions of some regions by subtraction, so code that \
        ran behind the call may be shown as not executed; `trodden report` has its paths"
    ));
}

fn returned_again(function: &Function) -> bool {
    let forks = || {
        Some((function.unit.map.edge_profile.as_ref()?, function.unit.map.functions.iter().position(|f| std::ptr::eq(f, function.map))?))
    };
    let is_fork = |edge: &Edge| forks().is_some_and(|(edges, number)| edges.forks_of(number).any(|fork| fork == *edge));
    let cuts = function.map.cuts.iter().filter(|(_, reason)| *reason == CutReason::ReturnsTwice);
    let again: BTreeSet<Edge> = cuts.map(|(edge, _)| *edge).filter(|edge| !is_fork(edge)).collect();
    let returned = |beginning: &Beginning| matches!(beginning, Beginning::After(edge) if again.contains(edge));
    let complete = &function.paths.complete;
    let begun: i128 = complete.iter().filter(|p| returned(&p.beginning)).map(|p| i128::from(p.count)).sum();
    let unfinished: i128 = function.paths.unfinished.iter().filter(|u| returned(&u.beginning)).map(|u| i128::from(u.count)).sum();
    let made: i128 =
        complete.iter().filter(|p| matches!(p.end, PathEnd::Cut(edge) if again.contains(&edge))).map(|p| i128::from(p.count)).sum();
    begun + unfinished > made
}
