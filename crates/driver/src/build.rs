//! `trodden build -- COMMAND`: runs a build that uses the drivers as its compilers, and reports what was instrumented.

use crate::assets;
use crate::cc::LTO_VARIABLE;
use crate::context::DriverContext;
use crate::events::{self, DriverEvent, LOG_VARIABLE};
use crate::experiment;
use crate::toolchain::{CLANG_VARIABLE, LlvmTool, LlvmToolchain};
use crate::variant::OUTPUT_HINT;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use trodden_launch::process::cannot_run_error;
use trodden_text::words::{list_names, plural};
use trodden_unit::Settings;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::{Observe, exclusions};

const MAX_LISTED_FILES: usize = 8;

/// Input of [`run`].
#[derive(Debug)]
pub struct BuildJob {
    /// True to optimise each program as a whole (link-time optimisation) before it is instrumented.
    pub lto: bool,
    /// True if the drivers are announced only by variables such as `CC`; false if they are also put on the search path.
    pub only_variables: bool,
    /// The user's settings, which override those from the environment.
    pub settings: Settings,
    /// The build command and its arguments.
    pub command: Vec<OsString>,
    /// Additional environment variables for the build command.
    pub variables: Vec<(&'static str, OsString)>,
}

/// The result of a build.
#[derive(Debug)]
pub struct BuildResult {
    /// Exit status of the build command.
    pub status: ExitStatus,
    /// The executables and libraries with instrumented code that the build linked.
    pub images: Vec<PathBuf>,
    /// True if the build called a compiler through one of trodden's drivers.
    pub compiled: bool,
}

/// Runs the build and logs a summary of its results. A build command that exits with an error is not an error of this function.
pub fn run(context: &DriverContext, build: &BuildJob) -> Result<BuildResult> {
    let settings = build.settings.clone().or(experiment::from_environment(context)?);
    exclusions::check(&settings)?;
    let llvm = LlvmToolchain::find(context)?;
    assets::check_plugin(context, &llvm)?;
    let store = context.store()?;
    let drivers = assets::create_driver_links(context, &store)?;
    let folder = context.folder("trodden-build-")?;
    let log = folder.path().join("build.log");
    fs::write(&log, "").with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(&build.command[0]);
    command.args(&build.command[1..]).envs(build.variables.iter().map(|(name, value)| (name, value)));
    if let Some(clang) = LlvmToolchain::from_environment(context)? {
        // `CC` is overwritten below, so the clang that it names is passed on in a variable of its own. Without one, the driver chooses a
        // clang by the name under which the build calls the driver.
        command.env(CLANG_VARIABLE, std::path::absolute(clang.clang())?);
    }
    command.env("CC", drivers.join("trodden-cc")).env("CXX", drivers.join("trodden-c++"));
    command.env(CACHE_VARIABLE, store.root()).env(LOG_VARIABLE, &log);
    let is_for_traces = settings.observe == Some(Observe::Trace);
    experiment::pass_request_to_command(&mut command, &experiment::write_request(context, &experiment::resolve(context, settings)?)?);
    let mut path_prefix = Vec::new();
    if !build.only_variables {
        path_prefix.push(drivers.join("path"));
    }
    if build.lto {
        path_prefix.extend(prepare_lto(context, &llvm, &mut command)?);
    }
    command.env("PATH", build_search_path(context, path_prefix)?);
    let status = command.status().map_err(|e| cannot_run_error(&build.command[0], e))?;
    let events = events::read(&log)?;
    let images = log_summary(context, &events, status.success(), is_for_traces);
    if build.settings.known.is_some() && !images.is_empty() {
        log::info!("{OUTPUT_HINT}");
    }
    Ok(BuildResult { status, images, compiled: !events.is_empty() })
}

/// Makes the build use archiver tools that can read bitcode, because it may put bitcode into archives. Returns folders to prepend to the
/// search path.
fn prepare_lto(context: &DriverContext, llvm: &LlvmToolchain, command: &mut Command) -> Result<Vec<PathBuf>> {
    llvm.tool(context, LlvmTool::Lld)?;
    command.env(LTO_VARIABLE, "1");
    let mut folder = None;
    for (variable, tool) in [("AR", LlvmTool::Ar), ("NM", LlvmTool::Nm), ("RANLIB", LlvmTool::Ranlib)] {
        let path = llvm.tool(context, tool)?;
        folder = path.parent().map(Path::to_owned);
        command.env(variable, path);
    }
    Ok(folder.into_iter().collect())
}

fn build_search_path(context: &DriverContext, mut path_prefix: Vec<PathBuf>) -> Result<OsString> {
    path_prefix.extend(context.search_path());
    Ok(env::join_paths(path_prefix)?)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct BuildOutcome {
    /// Number of object files with instrumented code that exist after the build.
    objects: usize,
    /// The instrumented compilation units that were linked into images.
    units: BTreeSet<String>,
    images: Vec<PathBuf>,
    plain: Vec<PathBuf>,
}

/// Collects the results of a build from the drivers' events. Ignores files that no longer exist, such as those of configure checks, and the
/// files of CMake's compiler checks.
fn collect_outcome(events: &[DriverEvent], exists: &dyn Fn(&Path) -> bool) -> BuildOutcome {
    let mut objects = BTreeSet::new();
    let mut linked = BTreeMap::new();
    for event in events {
        match event {
            DriverEvent::Compile { output: Some(output), .. } | DriverEvent::Link { output, .. }
                if is_compiler_check(Path::new(output)) => {}
            DriverEvent::Compile { output: Some(output), .. } => _ = objects.insert(PathBuf::from(output)),
            DriverEvent::Compile { output: None, .. } => {}
            DriverEvent::Link { output, units, .. } => _ = linked.insert(PathBuf::from(output), units),
        }
    }
    let mut out = BuildOutcome { objects: objects.into_iter().filter(|o| exists(o)).count(), ..BuildOutcome::default() };
    for (image, units) in linked.into_iter().filter(|(image, _)| exists(image)) {
        out.units.extend(units.iter().cloned());
        if units.is_empty() { out.plain.push(image.clone()) } else { out.images.push(image.clone()) }
    }
    out
}

/// Returns true if a file belongs to one of CMake's compiler checks, such as `CMakeFiles/3.25.1/CompilerIdC`, `CMakeFiles/CMakeScratch` or
/// `CMakeFiles/CMakeTmp`. The project's own objects are below `CMakeFiles`, too.
fn is_compiler_check(path: &Path) -> bool {
    let Some(folder) = path.parent() else { return false };
    let mut names = folder.iter().filter_map(|name| name.to_str()).skip_while(|name| *name != "CMakeFiles").skip(1);
    match (names.next(), names.next()) {
        (Some("CMakeScratch" | "CMakeTmp"), _) => true,
        (Some(version), Some(folder)) => !version.ends_with(".dir") && folder.starts_with("CompilerId"),
        _ => false,
    }
}

/// Logs what the build produced. Returns the instrumented images, except those built for traces, which count nothing.
fn log_summary(context: &DriverContext, events: &[DriverEvent], has_succeeded: bool, is_for_traces: bool) -> Vec<PathBuf> {
    let found = collect_outcome(events, &|path| path.is_file());
    let images = found.images.iter().map(|i| display_name(context, i)).collect::<Vec<_>>();
    match (found.images.len(), found.objects) {
        // The build's own messages explain why it failed.
        (0, 0) if events.is_empty() && !has_succeeded => {}
        (0, 0) if events.is_empty() => log::warn!(
            "the build called neither $CC nor $CXX, nor a compiler on the search path. If everything was up to date, clean the build \
                first; if it calls its compiler by an absolute path, pass it $CC and $CXX, as in `sh -c 'make CC=\"$CC\" CXX=\"$CXX\"'`"
        ),
        (0, _) if is_for_traces => {
            let images: Vec<String> = found.plain.iter().map(|i| display_name(context, i)).collect();
            match images.is_empty() {
                true => log::info!("the build linked no program with space for tracing jumps (witness sleds)"),
                false => log::info!(
                    "these programs have space for a tracing jump (witness sled) in each basic block: {}",
                    list_names(&images, MAX_LISTED_FILES)
                ),
            }
        }
        (0, 0) => log::warn!("the build produced no instrumented object file and no instrumented program"),
        (0, objects) => log::info!("{} instrumented, but no program was linked", plural(objects as u128, "object", "objects")),
        (count, _) => {
            let units = plural(found.units.len() as u128, "unit", "units");
            log::info!("{units} instrumented in {}: {}", plural(count as u128, "image", "images"), list_names(&images, MAX_LISTED_FILES));
        }
    }
    if !found.plain.is_empty() && !found.images.is_empty() {
        let plain = found.plain.iter().map(|i| display_name(context, i)).collect::<Vec<_>>();
        log::info!(
            "some linked files are not instrumented, because trodden compiled no part of them: {}",
            list_names(&plain, MAX_LISTED_FILES)
        );
    }
    found.images
}

fn display_name(context: &DriverContext, path: &Path) -> String {
    let here = context.directory().unwrap_or(Path::new(""));
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_ignores_removed_files_and_uses_last_link_of_image() {
        let link = |output: &str, units: &[&str]| DriverEvent::Link {
            output: output.into(),
            image: None,
            units: units.iter().map(|u| (*u).to_owned()).collect(),
        };
        let compile = |output: &str| DriverEvent::Compile { source: "a.c".into(), output: Some(output.into()) };
        let events = [
            compile("/a.o"),
            compile("/a.o"),
            compile("/gone.o"),
            link("/p", &[]),
            link("/p", &["1", "2"]),
            link("/q", &["2"]),
            link("/conftest", &["3"]),
            link("/r", &[]),
        ];
        let found = collect_outcome(&events, &|p| !p.ends_with("gone.o") && !p.ends_with("conftest"));
        assert_eq!(found.objects, 1);
        assert_eq!(found.units.len(), 2);
        assert_eq!(found.images, [PathBuf::from("/p"), "/q".into()]);
        assert_eq!(found.plain, [PathBuf::from("/r")]);
    }

    #[test]
    fn compiler_checks_of_cmake_do_not_count() {
        let link = |output: &str| DriverEvent::Link { output: output.into(), image: None, units: vec!["1".into()] };
        let compile = |output: &str| DriverEvent::Compile { source: "a.c".into(), output: Some(output.into()) };
        let events = [
            link("/b/CMakeFiles/3.25.1/CompilerIdC/a.out"),
            link("/b/CMakeFiles/CMakeScratch/TryCompile-x/cmTC_1"),
            link("/b/CMakeFiles/CMakeTmp/cmTC_2"),
            compile("/b/CMakeFiles/CMakeScratch/TryCompile-x/CMakeFiles/cmTC_1.dir/t.c.o"),
            compile("/b/CMakeFiles/app.dir/CompilerIdC/a.c.o"),
            compile("/b/CMakeFiles/app.dir/CompilerIdC.c.o"),
            link("/b/CompilerIdC/a.out"),
            link("/b/CMakeFiles/CompilerIdC"),
            link("/b/CMakeTmp/app"),
        ];
        let found = collect_outcome(&events, &|_| true);
        assert_eq!(found.objects, 2);
        assert_eq!(found.images, ["/b/CMakeFiles/CompilerIdC", "/b/CMakeTmp/app", "/b/CompilerIdC/a.out"].map(PathBuf::from));
    }
}
