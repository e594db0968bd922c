//! `trodden build -- COMMAND`: runs a build with the drivers as its compilers, and says what was instrumented.

use crate::assets;
use crate::cc::LTO_VARIABLE;
use crate::context::DriverContext;
use crate::events::{self, DriverEvent, LOG_VARIABLE};
use crate::experiment;
use crate::toolchain::Tool;
use crate::variant::WRITES_NOTHING;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use trodden_launch::process::not_run;
use trodden_text::words::{listed, plural};
use trodden_unit::Settings;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::{Observe, exclusions};

/// Files that a note names.
const SHOWN: usize = 8;

/// A build to run.
#[derive(Debug)]
pub struct BuildJob {
    /// Whether to optimise each program as a whole, and count its paths then.
    pub lto: bool,
    /// Whether to leave the search path alone.
    pub only_variables: bool,
    /// What the user asks for, over what the environment says.
    pub settings: Settings,
    /// The build command.
    pub command: Vec<OsString>,
    /// Further variables for it.
    pub variables: Vec<(&'static str, OsString)>,
}

/// What a build did.
#[derive(Debug)]
pub struct Built {
    /// How it ended.
    pub status: ExitStatus,
    /// Images with instrumented units that it linked.
    pub images: Vec<PathBuf>,
    /// Whether it called a compiler that trodden stands in for.
    pub compiled: bool,
}

/// Runs the build, and reports what it made.
///
/// # Errors
/// The command cannot be run, or a part of trodden is missing.
pub fn run(context: &DriverContext, build: &BuildJob) -> Result<Built> {
    let settings = build.settings.clone().over(experiment::of_environment(context)?);
    exclusions::check(&settings)?;
    Tool::Clang.find(context)?;
    assets::PLUGIN.find(context)?;
    let store = context.store()?;
    let drivers = assets::drivers(context, &store)?;
    let folder = context.folder("trodden-build-")?;
    let log = folder.path().join("build.log");
    fs::write(&log, "").with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(&build.command[0]);
    command.args(&build.command[1..]).envs(build.variables.iter().map(|(name, value)| (name, value)));
    command.env("CC", drivers.join("trodden-cc")).env("CXX", drivers.join("trodden-c++"));
    command.env(CACHE_VARIABLE, store.root()).env(LOG_VARIABLE, &log);
    let is_for_traces = settings.observe == Some(Observe::Trace);
    experiment::set(&mut command, &experiment::file(context, &experiment::resolve(context, settings)?)?);
    let mut first = Vec::new();
    if !build.only_variables {
        first.push(drivers.join("path"));
    }
    if build.lto {
        first.extend(prepare_lto(context, &mut command)?);
    }
    command.env("PATH", search_path(context, first)?);
    let status = command.status().map_err(|e| not_run(&build.command[0], e))?;
    let events = events::read(&log)?;
    let images = summary(context, &events, status.success(), is_for_traces);
    if build.settings.known.is_some() && !images.is_empty() {
        log::info!("of these programs: {WRITES_NOTHING}");
    }
    Ok(Built { status, images, compiled: !events.is_empty() })
}

/// Tools that read bitcode, for builds that make archives of it.
fn prepare_lto(context: &DriverContext, command: &mut Command) -> Result<Vec<PathBuf>> {
    Tool::Lld.find(context)?;
    command.env(LTO_VARIABLE, "1");
    let clang = fs::canonicalize(Tool::Clang.find(context)?)?;
    let folder = clang.parent().unwrap_or(Path::new("/")).to_owned();
    for (variable, tool) in [("AR", "llvm-ar"), ("NM", "llvm-nm"), ("RANLIB", "llvm-ranlib")] {
        let path = folder.join(tool);
        ensure!(path.is_file(), "{} is missing: run `apt-get install llvm-22`", path.display());
        command.env(variable, path);
    }
    Ok(vec![folder])
}

fn search_path(context: &DriverContext, mut first: Vec<PathBuf>) -> Result<OsString> {
    first.extend(context.search_path());
    Ok(env::join_paths(first)?)
}

/// What a build left behind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Objects with instrumented units that are still there.
    objects: usize,
    /// Units of the images.
    units: BTreeSet<String>,
    /// Images with instrumented units.
    images: Vec<PathBuf>,
    /// Images without any.
    plain: Vec<PathBuf>,
}

/// Sums a build up. What does not exist any more (the trials of `configure`) does not count, nor do the trials that CMake keeps.
fn outcome(events: &[DriverEvent], exists: &dyn Fn(&Path) -> bool) -> Outcome {
    let mut objects = BTreeSet::new();
    let mut linked = BTreeMap::new();
    for event in events {
        match event {
            DriverEvent::Compile { output: Some(output), .. } | DriverEvent::Link { output, .. } if is_trial(Path::new(output)) => {}
            DriverEvent::Compile { output: Some(output), .. } => _ = objects.insert(PathBuf::from(output)),
            DriverEvent::Compile { output: None, .. } => {}
            DriverEvent::Link { output, units, .. } => _ = linked.insert(PathBuf::from(output), units),
        }
    }
    let mut out = Outcome { objects: objects.into_iter().filter(|o| exists(o)).count(), ..Outcome::default() };
    for (image, units) in linked.into_iter().filter(|(image, _)| exists(image)) {
        out.units.extend(units.iter().cloned());
        if units.is_empty() { out.plain.push(image.clone()) } else { out.images.push(image.clone()) }
    }
    out
}

/// Whether CMake made a file to try a compiler: in `CMakeFiles/3.25.1/CompilerIdC`, `CMakeFiles/CMakeScratch`, `CMakeFiles/CMakeTmp`.
/// The objects of a project lie below `CMakeFiles` as well.
fn is_trial(path: &Path) -> bool {
    let Some(folder) = path.parent() else { return false };
    let mut names = folder.iter().filter_map(|name| name.to_str()).skip_while(|name| *name != "CMakeFiles").skip(1);
    match (names.next(), names.next()) {
        (Some("CMakeScratch" | "CMakeTmp"), _) => true,
        (Some(version), Some(folder)) => !version.ends_with(".dir") && folder.starts_with("CompilerId"),
        _ => false,
    }
}

/// Says what the build made; gives its instrumented images. Those that are built for traces have nothing that counts.
fn summary(context: &DriverContext, events: &[DriverEvent], has_succeeded: bool, is_for_traces: bool) -> Vec<PathBuf> {
    let found = outcome(events, &|path| path.is_file());
    let images = found.images.iter().map(|i| name(context, i)).collect::<Vec<_>>();
    match (found.images.len(), found.objects) {
        // The build's own messages say why.
        (0, 0) if events.is_empty() && !has_succeeded => {}
        (0, 0) if events.is_empty() => log::warn!(
            "the build called neither $CC nor $CXX, nor a compiler on the search path: nothing was compiled (is it up to date? clean it \
                first), or it names its compiler by its whole path (then hand it these, as in `sh -c 'make CC=\"$CC\" CXX=\"$CXX\"'`)"
        ),
        (0, _) if is_for_traces => {
            let images: Vec<String> = found.plain.iter().map(|i| name(context, i)).collect();
            let made = if images.is_empty() { "nothing that was linked".to_owned() } else { listed(&images, SHOWN) };
            log::info!("sleds for witnesses are in {made}");
        }
        (0, 0) => log::warn!("nothing that the build made is instrumented"),
        (0, objects) => log::info!("{objects} objects compiled to be counted; nothing was linked"),
        (count, _) => {
            let units = plural(found.units.len() as u128, "unit", "units");
            log::info!("{units} instrumented in {}: {}", plural(count as u128, "image", "images"), listed(&images, SHOWN));
        }
    }
    if !found.plain.is_empty() && !found.images.is_empty() {
        let plain = found.plain.iter().map(|i| name(context, i)).collect::<Vec<_>>();
        log::info!("linked without any instrumented unit: {}", listed(&plain, SHOWN));
    }
    found.images
}

fn name(context: &DriverContext, path: &Path) -> String {
    let here = context.directory().unwrap_or(Path::new(""));
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_does_not_count_and_the_last_link_does() {
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
        let found = outcome(&events, &|p| !p.ends_with("gone.o") && !p.ends_with("conftest"));
        assert_eq!(found.objects, 1);
        assert_eq!(found.units.len(), 2);
        assert_eq!(found.images, [PathBuf::from("/p"), "/q".into()]);
        assert_eq!(found.plain, [PathBuf::from("/r")]);
    }

    #[test]
    fn trials_of_cmake_do_not_count() {
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
        let found = outcome(&events, &|_| true);
        assert_eq!(found.objects, 2);
        assert_eq!(found.images, ["/b/CMakeFiles/CompilerIdC", "/b/CMakeTmp/app", "/b/CompilerIdC/a.out"].map(PathBuf::from));
    }
}
