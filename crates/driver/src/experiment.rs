//! From what people ask of a build to the file that the plugin reads: settings of the command line and of the
//! environment, resolved in the unit cache.
//!
//! Three steps, in this order: read settings (no file is touched), check that they make sense together, resolve the
//! files that they name. What is resolved is a [`PluginRequest`]; its file is named by its content and goes down to drivers
//! and plugin in [`EXPERIMENT_VARIABLE`]. Drivers take that over, and settings in [`SETTINGS_VARIABLE`] or options over it.

use crate::context::DriverContext;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_stored::known::known_paths;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, InputKind, PluginRequest, Settings, SettingsFile, exclusions};
use trodden_unit::{Identity, KnownPaths};

/// What the environment asks of builds: the settings in it over the request in it.
///
/// # Errors
/// The settings cannot be read, or the request's file is damaged.
pub fn of_environment(context: &DriverContext) -> Result<Settings> {
    let said = settings_variable(context).map(Settings::from_variable).transpose()?.unwrap_or_default();
    let request = context.value(EXPERIMENT_VARIABLE).map(|file| PluginRequest::read(Path::new(file))).transpose()?;
    Ok(said.over(request.map(|(request, _)| request.settings()).unwrap_or_default()))
}

/// The value of [`SETTINGS_VARIABLE`], if it says anything.
pub fn settings_variable(context: &DriverContext) -> Option<&OsStr> {
    context.value(SETTINGS_VARIABLE).filter(|value| !value.to_string_lossy().trim().is_empty())
}

/// What a process with this value of [`EXPERIMENT_VARIABLE`] is asked to do.
///
/// # Errors
/// The file cannot be read, or is of another version.
pub fn request_in(value: Option<&OsStr>) -> Result<PluginRequest> {
    let file = value.filter(|value| !value.is_empty());
    Ok(file.map(|file| PluginRequest::read(Path::new(file))).transpose()?.map(|(request, _)| request).unwrap_or_default())
}

/// The value of [`EXPERIMENT_VARIABLE`], which the driver's first process has set.
pub fn variable_for_plugin(context: &DriverContext) -> &OsStr {
    context.value(EXPERIMENT_VARIABLE).unwrap_or_default()
}

/// What the plugin is asked to do: the settings, with the files that they name put into the store. The name of known
/// paths may be that of a profile, a run or a suite.
///
/// # Errors
/// The settings make no sense together, or a file cannot be read or stored.
pub fn resolve(context: &DriverContext, mut settings: Settings) -> Result<PluginRequest> {
    exclusions::check(&settings)?;
    // Programs run in any folder.
    if let Some(pattern) = &settings.recorder {
        settings.recorder = Some(std::path::absolute(pattern).context("the files of the flight recorder")?.into());
    }
    if let Some(SettingsFile::File(wanted)) = &settings.known {
        let known = known_paths(wanted.as_os_str()).with_context(|| format!("known paths: {}", wanted.display()))?;
        settings.known = Some(stored(context, &known)?);
    }
    Ok(settings.request(&context.inputs()?)?)
}

/// The file of a request, in the store: the value of [`EXPERIMENT_VARIABLE`].
///
/// # Errors
/// It cannot be written.
pub fn file(context: &DriverContext, request: &PluginRequest) -> Result<PathBuf> {
    Ok(request.write(&context.inputs()?)?)
}

/// Lets a command and what it runs build by a request's file, whatever this process's environment says.
pub fn set(command: &mut Command, file: &Path) {
    command.env(EXPERIMENT_VARIABLE, file).env_remove(SETTINGS_VARIABLE);
}

/// A set of paths as a file in the store.
///
/// # Errors
/// It cannot be written.
pub fn stored(context: &DriverContext, paths: &KnownPaths) -> Result<SettingsFile> {
    Ok(SettingsFile::Stored(context.inputs()?.put(&paths.to_bytes())?))
}

/// The set of paths that a build was given.
///
/// # Errors
/// It is not in the store, or damaged.
pub fn paths_of(context: &DriverContext, kind: InputKind, identity: Identity) -> Result<KnownPaths> {
    let folder = context.inputs()?;
    KnownPaths::from_bytes(&folder.get(kind, identity)?).with_context(|| folder.path(identity).display().to_string())
}
