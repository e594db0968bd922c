//! What the plugin is asked to do with the units that a compiler hands it: a file that [`EXPERIMENT_VARIABLE`] names.
//!
//! clang gives a plugin no options of its own, and its environment holds text. So the request is a file of an
//! [`InputFolder`] under the name of its content, and the files that the experiment names lie beside it.
//!
//! Format: [`FileFormat`].

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
use trodden_container::{FileFormat, FileKind, WrongContent};

/// Variable that names the file of a request; without it units are instrumented by the default experiment.
pub const EXPERIMENT_VARIABLE: &str = "TRODDEN_EXPERIMENT";

const FORMAT: FileFormat = FileFormat { kind: FileKind::REQUEST, version: 1, remedy: "start the build again" };

/// What is asked of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRequest {
    /// What the build is to observe.
    pub experiment: Experiment,
    /// What is done with a unit.
    pub action: UnitAction,
    /// What is kept of it.
    pub keep: Keep,
    /// Where a flight recorder writes if no variable says so when the program runs: a pattern of files.
    pub recorder: Option<OsString>,
}

/// What is done with a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnitAction {
    /// It is instrumented.
    #[default]
    Instrument,
    /// What its blocks compute is written to a file, and no code is made.
    Describe {
        /// The file; its name may hold any bytes.
        output: OsString,
    },
    /// Its code is transformed by the plan of that identity, and not instrumented.
    Apply(Identity),
}

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The settings are no experiment.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A file that they name is of no use.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The file of the request cannot be read.
    #[error("{EXPERIMENT_VARIABLE} names {file}, which cannot be read ({source}): unset it, or build by trodden's drivers, which set \
        it", file = file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It is no request, or one of another version.
    #[error("{EXPERIMENT_VARIABLE} names {file}: {wrong}", file = file.display())]
    Other {
        /// The file.
        file: PathBuf,
        /// What it is instead.
        wrong: WrongContent,
    },
}

impl PluginRequest {
    /// What is asked of the plugin.
    pub fn new(experiment: Experiment, action: UnitAction, keep: Keep) -> PluginRequest {
        PluginRequest { experiment, action, keep, recorder: None }
    }

    /// Writes it into a folder; gives the value of [`EXPERIMENT_VARIABLE`].
    pub fn write(&self, folder: &InputFolder) -> Result<PathBuf, InputError> {
        Ok(folder.path(folder.put(&FORMAT.to_bytes(self))?))
    }

    /// Reads the file of a request; gives also the folder in which the files that it names lie.
    ///
    /// # Errors
    /// It cannot be read, or is another file.
    pub fn read(file: &Path) -> Result<(PluginRequest, InputFolder), RequestError> {
        let bytes = std::fs::read(file).map_err(|source| RequestError::Unreadable { file: file.to_owned(), source })?;
        let request = FORMAT.read(&bytes).map_err(|wrong| RequestError::Other { file: file.to_owned(), wrong })?;
        Ok((request, InputFolder::at(file.parent().unwrap_or(Path::new("")))))
    }

    /// The settings that make this request.
    pub fn settings(&self) -> Settings {
        let apply = match self.action {
            UnitAction::Apply(plan) => Some(SettingsFile::Stored(plan)),
            UnitAction::Instrument | UnitAction::Describe { .. } => None,
        };
        Settings { apply, keep: Some(self.keep), recorder: self.recorder.clone(), ..Settings::from(&self.experiment) }
    }

    /// Whether nothing in a program built so counts, so that it needs no runtime.
    pub fn counts_nothing(&self) -> bool {
        let counts = !matches!(self.experiment.observation(), Observation::BlockAddresses(_) | Observation::TraceSleds(_));
        !counts || self.action != UnitAction::Instrument
    }
}

impl Settings {
    /// The same settings with files by their identities: each is read, checked, and put into the folder.
    ///
    /// # Errors
    /// A file cannot be read, holds something else, or cannot be stored; or one that is named by its identity is not there.
    pub fn resolve(mut self, folder: &InputFolder) -> Result<Settings, InputError> {
        for kind in InputKind::ALL {
            let input = kind.of(&mut self);
            match input {
                Some(SettingsFile::File(file)) => *input = Some(SettingsFile::Stored(folder.put_file(kind, file)?)),
                Some(SettingsFile::Stored(identity)) => folder.check(kind, *identity)?,
                None => {}
            }
        }
        Ok(self)
    }

    /// What the plugin is asked to do, with the files in a folder. Nothing is written if the settings make no sense.
    ///
    /// # Errors
    /// The settings make no sense together, or a file cannot be read or stored.
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
