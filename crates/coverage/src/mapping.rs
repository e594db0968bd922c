//! Runs `llvm-cov` on programs that contain LLVM's mapping of counters to source regions.
//!
//! The mapping is in two sections that are not loaded (`__llvm_covmap`, `__llvm_covfun`) and a loaded one (`__llvm_prf_names`). If a
//! program was rebuilt after the run, `llvm-cov` does not fail but shows the counts that still match, so build IDs are compared first.

use crate::caveats::{CaveatReason, CoverageCaveat, mark_page, mark_sources};
use crate::demangled;
use crate::file_names::FileNames;
use crate::files::FilePatterns;
use crate::instances::FunctionInstances;
use crate::not_executed::NotExecutedCode;
use crate::sections::ImageCoverageMapping;
use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_analysis::changes::normalize;
use trodden_launch::temporary::{TemporaryFolder, create_folder_in};
use trodden_profile::edges::FunctionEdges;
use trodden_profile::{EdgeCounts, ImageProfile, Profile};
use trodden_report::ProfileView;
use trodden_report::words::plural;
use trodden_unit::EdgeProfile;

const MAPPING_SECTIONS: [&str; 3] = ["__llvm_covmap", "__llvm_covfun", "__llvm_prf_names"];
/// A regular expression for source files outside the project, which are those of Rust's standard library and of packages that cargo
/// downloaded.
const FOREIGN_FILES_PATTERN: &str = r"(/rustc/[0-9a-f]+/|/\.cargo/(registry|git)/|/\.rustup/toolchains/)";

/// Which source files and counts to show.
#[derive(Clone, Debug, Default)]
pub struct CoveredSources {
    /// Additional program files: files that were moved after the run, and programs that did not run.
    pub objects: Vec<PathBuf>,
    /// Patterns for the files to include. An empty list includes all files.
    pub include: Vec<String>,
    /// Patterns for the files to exclude, even if `include` matches them.
    pub exclude: Vec<String>,
    /// True to include files outside the project.
    pub all_files: bool,
    /// True to show the counts that LLVM's own profiling would yield. They assume that all calls return.
    pub llvm_cov_counts: bool,
}

/// LLVM's tools, and the folder for temporary files.
pub struct CoverageTools<'t> {
    /// The path of `llvm-cov`.
    pub llvm_cov: &'t Path,
    /// Converts counter values to a profile in LLVM's indexed format.
    pub index: &'t dyn Fn(EdgeCounts) -> Result<Vec<u8>>,
    /// Folder in which temporary folders are created.
    pub temporary: &'t Path,
}

/// Input for `llvm-cov`: programs, an indexed profile, and the selected source files.
pub struct CoverageMapping {
    folder: TemporaryFolder,
    llvm_cov: PathBuf,
    is_llvm_output: bool,
    images: Vec<PathBuf>,
    /// A regular expression for the source files to omit, if any.
    ignored: Option<&'static str>,
    /// Names of the selected files; `None` selects all.
    sources: Option<Vec<String>>,
    /// Translates file names between the coverage mapping and debug information.
    pub(crate) names: FileNames,
    /// Functions for which some of LLVM's counts could not be corrected.
    pub(crate) caveats: Vec<CoverageCaveat>,
}

impl CoverageMapping {
    /// Prepares the input for `llvm-cov`. `counters` has the edge counts of the profile.
    ///
    /// # Errors
    /// A program is missing or was rebuilt after the run, no source file is selected, or LLVM's tools fail.
    pub fn new(profile: &Profile, mut counters: EdgeCounts, wanted: &CoveredSources, tools: &CoverageTools) -> Result<CoverageMapping> {
        let mut images = check_images(profile, &wanted.objects)?;
        let folder = create_folder_in(tools.temporary, "trodden-coverage-")?;
        let mut caveats = Vec::new();
        let view = ProfileView::from_profile(profile);
        let mappings: Vec<ImageCoverageMapping> = images.iter().map(|image| read_mapping(image)).collect::<Result<_>>()?;
        let names = FileNames::new(&view, counted_images(profile).into_iter().zip(&mappings))?;
        if !wanted.llvm_cov_counts {
            let corrected = write_corrected_profile(&view, &images, &mappings, &names, folder.path())?;
            (counters.functions, images, caveats) = (corrected.functions, corrected.images, corrected.caveats);
        }
        fs::write(folder.path().join(PROFILE_FILE_NAME), (tools.index)(counters)?)
            .context("cannot write files for llvm-cov to the temporary folder")?;
        let ignored = (!wanted.all_files).then_some(FOREIGN_FILES_PATTERN);
        let llvm_cov = tools.llvm_cov.to_owned();
        let mut mapping =
            CoverageMapping { folder, llvm_cov, is_llvm_output: wanted.llvm_cov_counts, images, ignored, sources: None, names, caveats };
        if !wanted.include.is_empty() || !wanted.exclude.is_empty() {
            mapping.sources = Some(mapping.selected_files(wanted)?);
        }
        Ok(mapping)
    }

    /// Logs the functions whose counts could not be corrected. If `has_marks` is true, the output itself marks functions, so only functions
    /// without a known line are logged.
    pub fn log_inexact_functions(&self, has_marks: bool) {
        log_caveats(&self.caveats.iter().filter(|caveat| !has_marks || caveat.line == 0).collect::<Vec<_>>());
    }

    /// Returns true if the counts of any function could not be corrected.
    pub fn has_caveats(&self) -> bool {
        !self.caveats.is_empty()
    }

    /// Marks functions whose counts could not be corrected on the pages that `llvm-cov show` wrote to `folder`. Logs the functions that are
    /// on no page.
    pub fn mark_pages(&self, folder: &Path) -> Result<()> {
        let mut by_file: BTreeMap<&str, Vec<&CoverageCaveat>> = BTreeMap::new();
        self.caveats.iter().for_each(|caveat| by_file.entry(&caveat.file).or_default().push(caveat));
        let mut unmarked = Vec::new();
        for (file, caveats) in by_file {
            let path = folder.join(format!("coverage/{}.html", file.trim_start_matches('/')));
            if !path.is_file() {
                unmarked.extend(caveats);
                continue;
            }
            let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let (page, left) = mark_page(&page, &caveats);
            fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
            unmarked.extend(left);
        }
        log_caveats(&unmarked);
        Ok(())
    }

    fn selected_files(&self, wanted: &CoveredSources) -> Result<Vec<String>> {
        let files = FilePatterns::new(&wanted.include, &wanted.exclude, None)?;
        let all = self.list_files()?;
        let chosen: Vec<String> = all.iter().filter(|name| files.is_selected(Path::new(name), Path::new(name))).cloned().collect();
        ensure!(
            !chosen.is_empty(),
            "--include and --exclude select none of {}, such as {}. Change the patterns",
            plural(all.len() as u128, "source file", "source files"),
            all[0]
        );
        Ok(chosen)
    }

    /// Returns the name of the source file if there is only one. Returns `None` if there are several, or if no function needs to be marked.
    fn find_only_file(&self) -> Result<Option<String>> {
        if self.caveats.is_empty() {
            return Ok(None);
        }
        let files = self.list_files()?;
        Ok(if let [only] = &files[..] { Some(normalize(only)) } else { None })
    }

    /// Marks functions whose counts could not be corrected in the output of `llvm-cov show`.
    pub fn mark_output(&self, shown: &str) -> Result<String> {
        Ok(mark_sources(shown, self.find_only_file()?.as_deref(), &self.caveats))
    }

    /// Demangles the names in a tracefile from `llvm-cov export`, unless LLVM's own output was requested.
    pub fn lcov(&self, exported: Vec<u8>) -> Vec<u8> {
        match self.is_llvm_output {
            true => exported,
            false => demangled::demangle_lcov(&String::from_utf8_lossy(&exported)).into_bytes(),
        }
    }

    /// Demangles the names in JSON from `llvm-cov export` and adds caveats, unless LLVM's own output was requested.
    pub fn json(&self, exported: Vec<u8>) -> Result<Vec<u8>> {
        if self.is_llvm_output {
            return Ok(exported);
        }
        let mut export = serde_json::from_slice(&exported).context("llvm-cov's export is not valid JSON")?;
        demangled::demangle_json(&mut export);
        export["not_exact"] = self.caveats.iter().map(CoverageCaveat::json).collect();
        serde_json::to_vec(&export).context("cannot convert the exported coverage to JSON")
    }

    fn list_files(&self) -> Result<Vec<String>> {
        let summary = self.export(&["-summary-only"])?;
        let names = summary["files"].as_array().into_iter().flatten().filter_map(|f| f["filename"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        ensure!(
            !names.is_empty(),
            "there is no source file to show, because all belong to downloaded packages or the standard library. To show these, pass \
             --include '*'"
        );
        Ok(names)
    }

    /// Returns the first element of `data` in the JSON that `llvm-cov export` writes.
    pub fn export(&self, options: &[&str]) -> Result<Value> {
        let arguments: Vec<OsString> = options.iter().map(OsString::from).collect();
        let mut all: Value =
            serde_json::from_slice(&self.llvm_cov("export", &arguments)?).context("llvm-cov's export is not valid JSON")?;
        Ok(all["data"][0].take())
    }

    /// Runs a subcommand of `llvm-cov` and returns its output.
    pub fn llvm_cov(&self, verb: &str, options: &[OsString]) -> Result<Vec<u8>> {
        let tool = &self.llvm_cov;
        let Some((first, others)) = self.images.split_first() else {
            bail!("cannot show coverage, because the profile has counts of no program")
        };
        let mut command = Command::new(tool);
        command.arg(verb).arg(first).arg("-instr-profile").arg(self.folder.path().join(PROFILE_FILE_NAME)).args(options);
        others.iter().for_each(|image| _ = command.arg("-object").arg(image));
        command.args(self.ignored.iter().map(|regex| format!("-ignore-filename-regex={regex}")));
        if let Some(sources) = &self.sources {
            command.arg("-sources").args(sources);
        }
        let output = command.output().with_context(|| format!("cannot run {}", tool.display()))?;
        if !output.status.success() {
            let named: Vec<String> = self.images.iter().map(|i| i.display().to_string()).collect();
            let stderr = String::from_utf8_lossy(&output.stderr);
            // `llvm-cov` colours its errors even if they do not go to a terminal. The escape sequences are removed.
            let mut pieces = stderr.split('\u{1b}');
            let first = pieces.next().into_iter();
            let stderr: String = first.chain(pieces.filter_map(|piece| Some(piece.split_once('m')?.1))).collect();
            let advice = match stderr.contains("malformed") || stderr.contains("oad coverage") {
                true => ". The file is corrupt: rebuild it with --coverage and record again",
                false => "",
            };
            bail!("{} failed on {}: {}{advice}", tool.display(), named.join(", "), stderr.trim().trim_end_matches('.'));
        }
        Ok(output.stdout)
    }
}

fn log_caveats(caveats: &[&CoverageCaveat]) {
    let Some(first) = caveats.first() else { return };
    let more = match caveats.len() {
        1 => String::new(),
        all => format!(" (and {} more; `trodden coverage report` lists them)", all - 1),
    };
    log::info!("coverage of {}: {}{more}", first.name(), first.remark());
}

/// Computes the counters of all functions. An image is replaced by copies with a corrected mapping if calls did not return, or if
/// `llvm-cov` would confuse functions of several programs.
fn write_corrected_profile(
    view: &ProfileView,
    images: &[PathBuf],
    mappings: &[ImageCoverageMapping],
    names: &FileNames,
    folder: &Path,
) -> Result<CorrectedCounts> {
    let executed = counted_images(view.profile);
    let counters = executed.iter().map(|image| match has_counters(image) {
        true => Ok(EdgeCounts::from_image(image)?.functions),
        false => Ok(Vec::new()),
    });
    let counters = counters.collect::<Result<_>>()?;
    let mut instances = FunctionInstances::new(mappings, counters)?;
    let mut not_executed = NotExecutedCode::from_view(view, &executed, names);
    for (image, mapping) in mappings.iter().enumerate() {
        not_executed.record_parts_after_stops(image, mapping, &instances).with_context(|| corrupt_image_message(&images[image]))?;
    }
    let mut corrected = Vec::new();
    for (image, mapping) in mappings.iter().enumerate() {
        let Some(parts) =
            not_executed.write_corrected_objects(image, mapping, &mut instances).with_context(|| corrupt_image_message(&images[image]))?
        else {
            corrected.push(images[image].clone());
            continue;
        };
        for part in parts {
            let file = folder.join(format!("mapping-{}", corrected.len()));
            fs::write(&file, part).context("cannot write files for llvm-cov to the temporary folder")?;
            corrected.push(file);
        }
    }
    let mut caveats: Vec<CoverageCaveat> = not_executed.into_caveats().into_iter().collect();
    let not_shown = std::mem::take(&mut instances.not_shown).into_iter();
    caveats.extend(not_shown.map(|function| CoverageCaveat { file: String::new(), line: 0, function, reason: CaveatReason::NotShown }));
    // Each crate has its own instances of a generic or inlined function, whose caveats would otherwise be repeated.
    let mut known = HashSet::new();
    caveats.retain(|caveat| known.insert((caveat.file.clone(), caveat.line, caveat.name(), caveat.reason)));
    Ok(CorrectedCounts { functions: instances.into_function_edges(), images: corrected, caveats })
}

struct CorrectedCounts {
    functions: Vec<FunctionEdges>,
    images: Vec<PathBuf>,
    caveats: Vec<CoverageCaveat>,
}

fn read_mapping(image: &Path) -> Result<ImageCoverageMapping> {
    let bytes = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    ImageCoverageMapping::read(&bytes).with_context(|| corrupt_image_message(image))
}

fn corrupt_image_message(image: &Path) -> String {
    format!("{} is corrupt. Rebuild it and record again", image.display())
}

fn counted_images(profile: &Profile) -> Vec<&ImageProfile> {
    let has_regions = |e: &EdgeProfile| !(e.functions.is_empty() && e.names.is_empty());
    let is_counted = |image: &&ImageProfile| image.units.iter().any(|u| u.map.edge_profile.as_ref().is_some_and(has_regions));
    profile.images.iter().filter(is_counted).collect()
}

fn has_counters(image: &ImageProfile) -> bool {
    image.units.iter().any(|unit| unit.map.edge_profile.as_ref().is_some_and(|edges| !edges.functions.is_empty()))
}

const PROFILE_FILE_NAME: &str = "coverage.profdata";

/// Returns the program files to show. The files of executed images that count coverage come first, and are checked against the profile.
/// They are followed by the files in `moved` that were not executed.
fn check_images(profile: &Profile, moved: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let moved: Vec<(PathBuf, Option<String>)> = moved.iter().map(|path| Ok((path.clone(), build_id(path)?))).collect::<Result<_>>()?;
    let images = counted_images(profile);
    let is_of = |id: &Option<String>, image: &ImageProfile| id.is_some() && *id == image.build_id;
    let (_, others): (Vec<_>, Vec<_>) = moved.iter().partition(|(_, id)| images.iter().any(|image| is_of(id, image)));
    for (path, _) in &others {
        ensure!(
            !images.iter().any(|image| Path::new(&image.path).file_name() == path.file_name()),
            "{} is not the recorded program: the profile has no program or library with this build ID. Pass the file that ran",
            path.display()
        );
        check_mapping(&fs::read(path)?, path)?;
        log::info!("{} did not run, so all of its code is shown as not executed", path.display());
    }
    let others = others.into_iter().map(|(path, _)| Ok(path.clone()));
    let found = images.into_iter().map(|image| {
        let named = moved.iter().find(|(_, id)| is_of(id, image));
        let path = named.map_or_else(|| PathBuf::from(&image.path), |(path, _)| path.clone());
        check_image(&path, image)?;
        Ok(path)
    });
    found.chain(others).collect()
}

fn check_image(path: &Path, image: &ImageProfile) -> Result<()> {
    if path.as_os_str().is_empty() {
        bail!("the profile does not name the program's file. Pass the file with --object");
    }
    if !path.is_file() {
        bail!(
            "cannot read the source mapping of {}, because the file no longer exists. If it was moved, pass its new path with --object",
            path.display()
        );
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let corrupt = || format!("{} is corrupt (rebuild it with --coverage and record again)", path.display());
    let file = object::File::parse(&*bytes).with_context(corrupt)?;
    let id = file.build_id().with_context(corrupt)?.map(format_hexadecimal);
    ensure!(
        id == image.build_id,
        "{} was rebuilt after it ran, so its source mapping does not match the counts. Record again, or pass the file that ran with \
         --object",
        path.display()
    );
    check_mapping(&bytes, path)
}

fn check_mapping(bytes: &[u8], path: &Path) -> Result<()> {
    let file = object::File::parse(bytes).with_context(|| format!("{} is not an ELF program", path.display()))?;
    for section in MAPPING_SECTIONS {
        let size = file.section_by_name(section).map_or(0, |s| s.size());
        ensure!(
            size > 0,
            "{} has no section {section}, which coverage needs. If the file was stripped, pass the unstripped file with --object",
            path.display()
        );
    }
    Ok(())
}

pub(crate) fn build_id(path: &Path) -> Result<Option<String>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = object::File::parse(&*bytes)
        .with_context(|| format!("{} is not an ELF program. Pass the program that ran with --object", path.display()))?;
    Ok(file.build_id().ok().flatten().map(format_hexadecimal))
}

fn format_hexadecimal(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns true if any program of the profile has a coverage mapping.
pub fn has_coverage_mapping(profile: &Profile) -> bool {
    let mut edges = profile.images.iter().flat_map(|i| &i.units).filter_map(|u| u.map.edge_profile.as_ref());
    edges.any(|e| e.is_coverage() && !e.functions.is_empty())
}
