//! `trodden info`: describes an instrumented program, or a profile and its streams. Without a file, says where data is stored.

use crate::cli::InfoArguments;
use crate::context::driver_context;
use crate::last_store;
use crate::output::{json_text, print, print_result, print_text};
use crate::surroundings::{SOURCES_VARIABLE, folders, source_folders};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_analysis::libraries;
use trodden_profile::store::{self, RUNS_VARIABLE};
use trodden_profile::{Profile, RunStore};
use trodden_report::info::{ImageSummary, ProfileSummary};
use trodden_report::input_kind::{InputKind, require_utf8_name};
use trodden_report::streams::StreamStatistics;
use trodden_report::words::plural;
use trodden_stored::named;
use trodden_stored::streams::list_logs_of_run;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::{ImageError, InstrumentedImage};

/// Describes a file. Returns status 1 if the file is a corrupt profile.
pub fn run(info: &InfoArguments) -> Result<ExitCode> {
    let Some(file) = &info.file else {
        let found = StorageLocations::find_storage_locations()?;
        print_result(info.json, || json_text(&found), || Ok(found.to_text()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let kind = InputKind::detect(file)?;
    match kind {
        InputKind::Program => return describe_program(info, file),
        InputKind::Profile | InputKind::StreamLogs => {}
        other => return Err(other.not_accepted_error(file, "info")),
    }
    if kind == InputKind::Profile {
        return describe_profile(info, require_utf8_name(file)?);
    }
    let report = StreamStatistics::read(require_utf8_name(file)?, &folders())?;
    print_result(info.json, || json_text(&report), || Ok(report.text()))?;
    Ok(ExitCode::SUCCESS)
}

const SCHEMA_VERSION: u32 = 1;

/// Where data is stored. `trodden info` without a file prints this.
#[derive(Debug, Serialize)]
struct StorageLocations {
    schema_version: u32,
    version: &'static str,
    /// Folder with the maps, bitcode and link recipes of builds; `None` if neither the environment nor a home folder determines it.
    unit_cache: Option<PathBuf>,
    /// Run store in the current folder or in a parent folder.
    run_store: Option<PathBuf>,
    runs: usize,
    new_runs: PathBuf,
    /// Run store of the last run, if it differs from `run_store`.
    last_run_store: Option<PathBuf>,
    /// Folders to which source files have been moved.
    sources: Vec<PathBuf>,
    temporary: PathBuf,
}

impl StorageLocations {
    fn find_storage_locations() -> Result<StorageLocations> {
        let here = Path::new(".");
        let run_store = store::locate(here);
        let runs = if run_store.is_some() { RunStore::find(here)?.list()?.len() } else { 0 };
        Ok(StorageLocations {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            unit_cache: driver_context().store().ok().map(|units| units.root().to_owned()),
            runs,
            new_runs: std::path::absolute(store::store_folder(Path::new("")))?,
            last_run_store: last_store::find_last_store().filter(|last| Some(last) != run_store.as_ref()),
            run_store,
            sources: source_folders(),
            temporary: env::temp_dir(),
        })
    }

    fn to_text(&self) -> String {
        let is_set =
            |variable: &str| if env::var_os(variable).is_some_and(|v| !v.is_empty()) { format!(", by {variable}") } else { String::new() };
        let units = self.unit_cache.as_ref().map_or_else(
            || format!("none: set {CACHE_VARIABLE} (or HOME)"),
            |folder| format!("{}{}; `trodden cache` shows and prunes it", folder.display(), is_set(CACHE_VARIABLE)),
        );
        let runs = match &self.run_store {
            Some(folder) => {
                format!("{}{}, with {}", folder.display(), is_set(RUNS_VARIABLE), plural(self.runs as u128, "run", "runs"))
            }
            None => {
                format!("none here or in a parent folder; `trodden record` creates {}{}", self.new_runs.display(), is_set(RUNS_VARIABLE))
            }
        };
        let last = self.last_run_store.as_ref().map(|folder| format!("last run     in {}\n", folder.display())).unwrap_or_default();
        let sources = match self.sources.as_slice() {
            [] => format!("where they were compiled (set {SOURCES_VARIABLE} to folders that they have moved to)"),
            folders => {
                let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
                format!("where they were compiled, and in {}", folders.join(", "))
            }
        };
        format!(
            "trodden      {}\nunit cache   {units}\nrun store    {runs}\n{last}sources      {sources}\ntemporary    {} (TMPDIR)\n",
            self.version,
            self.temporary.display()
        )
    }
}

fn describe_profile(info: &InfoArguments, name: &str) -> Result<ExitCode> {
    let files = named::list_profile_files(name)?;
    let [file] = files.as_slice() else {
        bail!("`{name}` is a suite of {}, but one run is needed. Name one of its runs", plural(files.len() as u128, "run", "runs"))
    };
    let bytes = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    let recovered = Profile::recover(file)?;
    let summary = ProfileSummary::new(&recovered);
    let streams = list_logs_of_run(name).map(|logs| StreamStatistics::of_logs(&logs, &folders())).transpose()?;
    if info.json {
        let mut document = serde_json::to_value(&summary)?;
        if let Some(streams) = streams {
            document["streams"] = serde_json::to_value(streams)?;
        }
        print(&json_text(&document)?)?;
    } else {
        let streams = streams.map(|streams| format!("\n{}", streams.text())).unwrap_or_default();
        print_text(&(summary.text(file, bytes) + &streams))?;
    }
    Ok(if summary.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe_program(info: &InfoArguments, file: &Path) -> Result<ExitCode> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let image = match InstrumentedImage::read(&bytes) {
        Err(ImageError::NotInstrumented) => bail!("{}: {}", file.display(), ImageError::NotInstrumented),
        other => other.with_context(|| file.display().to_string())?,
    };
    let summary = ImageSummary::new(file, &image, folders().units.as_ref(), libraries::needed_libraries(file, &bytes))?;
    match info.json {
        true => print(&json_text(&summary)?)?,
        false => print_text(&summary.text())?,
    }
    Ok(ExitCode::SUCCESS)
}
