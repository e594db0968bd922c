//! Turns the settings of a build, from the command line and the environment, into the file that the plugin reads.
//!
//! Settings are first read without touching any file, then checked for consistency, and finally resolved: the files that they name are
//! copied to the unit cache. The result is a [`PluginRequest`], whose file is named by its content and passed to drivers and plugin in
//! [`EXPERIMENT_VARIABLE`]. Drivers start from it; settings in [`SETTINGS_VARIABLE`] override it, and options override both.

use crate::context::DriverContext;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_stored::known::load_known_paths;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, InputPurpose, PluginRequest, Settings, SettingsFile, exclusions};
use trodden_unit::{Identity, KnownPaths};

/// Returns the settings in the environment, which override the request in the environment.
///
/// # Errors
/// Fails if the settings cannot be parsed, or the request's file is corrupt.
pub fn from_environment(context: &DriverContext) -> Result<Settings> {
    let settings = settings_variable(context).map(Settings::from_variable).transpose()?.unwrap_or_default();
    let request = context.value(EXPERIMENT_VARIABLE).map(|file| PluginRequest::read(Path::new(file))).transpose()?;
    Ok(settings.or(request.map(|(request, _)| request.settings()).unwrap_or_default()))
}

/// Returns the value of [`SETTINGS_VARIABLE`] unless it is blank.
pub fn settings_variable(context: &DriverContext) -> Option<&OsStr> {
    context.value(SETTINGS_VARIABLE).filter(|value| !value.to_string_lossy().trim().is_empty())
}

/// Reads the request that a value of [`EXPERIMENT_VARIABLE`] names. Without a value, returns the default request.
pub fn read_request(value: Option<&OsStr>) -> Result<PluginRequest> {
    let file = value.filter(|value| !value.is_empty());
    Ok(file.map(|file| PluginRequest::read(Path::new(file))).transpose()?.map(|(request, _)| request).unwrap_or_default())
}

/// Returns the value of [`EXPERIMENT_VARIABLE`], which the driver's first process has set.
pub fn variable_for_plugin(context: &DriverContext) -> &OsStr {
    context.value(EXPERIMENT_VARIABLE).unwrap_or_default()
}

/// Resolves settings to a request to the plugin, and copies the files that they name to the store. Known paths may be named by a profile,
/// a run or a suite.
///
/// # Errors
/// Fails if the settings exclude each other, or a file cannot be read or stored.
pub fn resolve(context: &DriverContext, mut settings: Settings) -> Result<PluginRequest> {
    exclusions::check(&settings)?;
    // Made absolute, because the program may run in any folder.
    if let Some(pattern) = &settings.recorder {
        settings.recorder = Some(
            std::path::absolute(pattern)
                .context("cannot determine the absolute path of the flight recorder's files. Change to an existing folder")?
                .into(),
        );
    }
    if let Some(SettingsFile::File(source)) = &settings.known {
        let known = load_known_paths(source.as_os_str()).with_context(|| format!("cannot read known paths from {}", source.display()))?;
        settings.known = Some(store_paths(context, &known)?);
    }
    Ok(settings.request(&context.inputs()?)?)
}

/// Writes a request to the store, and returns its file, which is the value for [`EXPERIMENT_VARIABLE`].
pub fn write_request(context: &DriverContext, request: &PluginRequest) -> Result<PathBuf> {
    Ok(request.write(&context.inputs()?)?)
}

/// Makes a command and its children build according to a request's file, regardless of this process's environment.
pub fn pass_request(command: &mut Command, file: &Path) {
    command.env(EXPERIMENT_VARIABLE, file).env_remove(SETTINGS_VARIABLE);
}

/// Writes a set of paths to the store.
pub fn store_paths(context: &DriverContext, paths: &KnownPaths) -> Result<SettingsFile> {
    Ok(SettingsFile::Stored(context.inputs()?.put(&paths.to_bytes())?))
}

/// Reads a set of paths from the store.
pub fn stored_paths(context: &DriverContext, kind: InputPurpose, identity: Identity) -> Result<KnownPaths> {
    let folder = context.inputs()?;
    KnownPaths::from_bytes(&folder.get(kind, identity)?).with_context(|| folder.path(identity).display().to_string())
}
