//! Requests to the plugin, in a file that [`EXPERIMENT_VARIABLE`] names. clang passes no options to such a plugin, and environment
//! variables hold only text, so the request is a file of an [`InputFolder`], beside the files that the experiment names. Format:
//! [`FileFormat`].

use super::exclusions;
use super::inputs::{InputError, InputFolder, InputKind};
use super::settings::{Keep, Settings, SettingsFile};
use super::{Experiment, ExperimentError};
use crate::Identity;
use crate::observe::Observation;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use trodden_container::{ContentError, FileFormat, FileKind};

/// Environment variable that names the request's file. Without it, units are instrumented by the default experiment.
pub const EXPERIMENT_VARIABLE: &str = "TRODDEN_EXPERIMENT";

const FORMAT: FileFormat = FileFormat { kind: FileKind::REQUEST, version: 1, remedy: "start the build again" };

/// A request to the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRequest {
    /// What the build is to observe.
    pub experiment: Experiment,
    /// What to do with a unit.
    pub action: UnitAction,
    /// What to keep of it.
    pub keep: Keep,
    /// Default pattern for the files of a flight recorder, unless a variable overrides it when the program runs.
    pub recorder: Option<OsString>,
}

/// What to do with a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnitAction {
    /// Instrument it.
    #[default]
    Instrument,
    /// Write what its blocks compute to a file, and generate no code.
    Describe {
        /// The file; its name may contain any bytes.
        output: OsString,
    },
    /// Transform its code by the plan with this identity, without instrumenting it.
    Apply(Identity),
}

/// Reason why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The settings do not describe an experiment.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// An input file cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The file of the request cannot be read.
    #[error("{EXPERIMENT_VARIABLE} names {file}, which cannot be read ({source}): unset it, or build with trodden, which sets \
        it", file = file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is not a request, or one of another version.
    #[error("{EXPERIMENT_VARIABLE} names {file}: {wrong}", file = file.display())]
    Other {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        wrong: ContentError,
    },
}

impl PluginRequest {
    /// Creates a request without a flight recorder.
    pub fn new(experiment: Experiment, action: UnitAction, keep: Keep) -> PluginRequest {
        PluginRequest { experiment, action, keep, recorder: None }
    }

    /// Writes the request into a folder, and returns the value for [`EXPERIMENT_VARIABLE`].
    pub fn write(&self, folder: &InputFolder) -> Result<PathBuf, InputError> {
        Ok(folder.path(folder.put(&FORMAT.to_bytes(self))?))
    }

    /// Reads a request, and returns also the folder of the files that it names.
    ///
    /// # Errors
    /// The file cannot be read, or is not a request.
    pub fn read(file: &Path) -> Result<(PluginRequest, InputFolder), RequestError> {
        let bytes = std::fs::read(file).map_err(|source| RequestError::Unreadable { file: file.to_owned(), source })?;
        let request = FORMAT.read(&bytes).map_err(|wrong| RequestError::Other { file: file.to_owned(), wrong })?;
        Ok((request, InputFolder::new(file.parent().unwrap_or(Path::new("")))))
    }

    /// The settings that give this request.
    pub fn settings(&self) -> Settings {
        let apply = match self.action {
            UnitAction::Apply(plan) => Some(SettingsFile::Stored(plan)),
            UnitAction::Instrument | UnitAction::Describe { .. } => None,
        };
        Settings { apply, keep: Some(self.keep), recorder: self.recorder.clone(), ..Settings::from(&self.experiment) }
    }

    /// Returns whether a program built by this request counts nothing, and so needs no runtime.
    pub fn counts_nothing(&self) -> bool {
        let counts = !matches!(self.experiment.observation(), Observation::BlockAddresses(_) | Observation::TraceSleds(_));
        !counts || self.action != UnitAction::Instrument
    }
}

impl Settings {
    /// Replaces files by their identities, after each was read, checked and put into the folder.
    ///
    /// # Errors
    /// A file cannot be read or stored, or has the wrong content; or one that is named by its identity is not in the folder.
    pub fn resolve(mut self, folder: &InputFolder) -> Result<Settings, InputError> {
        for kind in InputKind::ALL {
            let input = kind.setting(&mut self);
            match input {
                Some(SettingsFile::File(file)) => *input = Some(SettingsFile::Stored(folder.put_file(kind, file)?)),
                Some(SettingsFile::Stored(identity)) => folder.check(kind, *identity)?,
                None => {}
            }
        }
        Ok(self)
    }

    /// Creates the request, and stores its files in a folder. Nothing is stored if the settings cannot be combined.
    ///
    /// # Errors
    /// The settings cannot be combined, or a file cannot be read or stored.
    pub fn request(self, folder: &InputFolder) -> Result<PluginRequest, RequestError> {
        exclusions::check(&self).map_err(ExperimentError::from)?;
        let settings = self.resolve(folder)?;
        let action = match settings.apply.as_ref().and_then(SettingsFile::stored) {
            Some(plan) => UnitAction::Apply(plan),
            None => UnitAction::Instrument,
        };
        let request = PluginRequest::new(Experiment::new(&settings)?, action, settings.keep.unwrap_or_default());
        Ok(PluginRequest { recorder: settings.recorder, ..request })
    }
}
