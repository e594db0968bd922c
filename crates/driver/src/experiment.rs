//! Converts the settings of a build, which come from the command line and the environment, to the file that the plugin reads.
//!
//! Settings are first parsed without touching any file, then checked for consistency, and finally resolved: the files that they name are
//! copied to the unit cache. The result is a [`PluginRequest`]. Its file is named by the hash of its content, and passed to drivers and
//! plugin in [`EXPERIMENT_VARIABLE`]. Drivers start from this request. Settings in [`SETTINGS_VARIABLE`] override it, and settings from the
//! command line override both.

use crate::context::DriverContext;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_stored::known::load_known_paths;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, InputPurpose, PluginRequest, Settings, SettingsFile, exclusions};
use trodden_unit::{Identity, KnownPaths};

/// Returns the settings from the environment: [`SETTINGS_VARIABLE`] overrides the request in [`EXPERIMENT_VARIABLE`]. Fails if the settings
/// cannot be parsed, or if the request's file is corrupt.
pub fn from_environment(context: &DriverContext) -> Result<Settings> {
    let settings = settings_variable(context).map(Settings::from_variable).transpose()?.unwrap_or_default();
    let request = context.value(EXPERIMENT_VARIABLE).map(|file| PluginRequest::read(Path::new(file))).transpose()?;
    Ok(settings.or(request.map(|(request, _)| request.settings()).unwrap_or_default()))
}

/// Returns the value of [`SETTINGS_VARIABLE`], or `None` if it is unset or blank.
pub fn settings_variable(context: &DriverContext) -> Option<&OsStr> {
    context.value(SETTINGS_VARIABLE).filter(|value| !value.to_string_lossy().trim().is_empty())
}

/// Reads the plugin request from the file that `value` names, which is the value of [`EXPERIMENT_VARIABLE`]. If there is no value, returns
/// the default request.
pub fn read_request(value: Option<&OsStr>) -> Result<PluginRequest> {
    let file = value.filter(|value| !value.is_empty());
    Ok(file.map(|file| PluginRequest::read(Path::new(file))).transpose()?.map(|(request, _)| request).unwrap_or_default())
}

/// Returns the value of [`EXPERIMENT_VARIABLE`], which the first driver process sets for the others; empty if there is none.
pub fn variable_for_plugin(context: &DriverContext) -> &OsStr {
    context.value(EXPERIMENT_VARIABLE).unwrap_or_default()
}

/// Resolves settings to a request for the plugin. Files that the settings name are copied to the unit cache. Known paths may be given as a
/// profile, a run or a suite. Fails if settings contradict each other, or if a file cannot be read or stored.
pub fn resolve(context: &DriverContext, mut settings: Settings) -> Result<PluginRequest> {
    exclusions::check(&settings)?;
    // The instrumented program may run in any folder, so the path must be absolute.
    if let Some(pattern) = &settings.recorder {
        settings.recorder = Some(
            std::path::absolute(pattern)
                .context("cannot determine the absolute path of the flight recorder's files. Change to an existing folder")?
                .into(),
        );
    }
    if let Some(SettingsFile::File(source)) = &settings.known {
        let known = load_known_paths(source.as_os_str())
            .with_context(|| format!("cannot read the list of known paths from {}", source.display()))?;
        settings.known = Some(store_known_paths(context, &known)?);
    }
    Ok(settings.request(&context.inputs()?)?)
}

/// Writes a request to the unit cache. Returns the path of its file, which is a value for [`EXPERIMENT_VARIABLE`].
pub fn write_request(context: &DriverContext, request: &PluginRequest) -> Result<PathBuf> {
    Ok(request.write(&context.inputs()?)?)
}

/// Makes a command and its child processes build with the plugin request in `file`, regardless of this process's environment.
pub fn pass_request_to_command(command: &mut Command, file: &Path) {
    command.env(EXPERIMENT_VARIABLE, file).env_remove(SETTINGS_VARIABLE);
}

/// Writes a set of paths to the unit cache.
pub fn store_known_paths(context: &DriverContext, paths: &KnownPaths) -> Result<SettingsFile> {
    Ok(SettingsFile::Stored(context.inputs()?.put(&paths.to_bytes())?))
}

/// Reads a set of paths from the unit cache.
pub fn load_stored_paths(context: &DriverContext, kind: InputPurpose, identity: Identity) -> Result<KnownPaths> {
    let folder = context.inputs()?;
    KnownPaths::from_bytes(&folder.get(kind, identity)?).with_context(|| folder.path(identity).display().to_string())
}
