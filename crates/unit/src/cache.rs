//! The unit cache: copies of unit frames, which contain a compilation unit's map and bitcode. It is used for programs whose own frames were
//! stripped (`llvm-strip`). Several compilers may write to the cache at the same time, so files are replaced atomically.
//!
//! The path of a frame is `ROOT/units/ab/abcdef....unit`, where the name is the unit's identity. ROOT is the first of `$TRODDEN_CACHE`,
//! `$XDG_DATA_HOME/trodden` and `$HOME/.local/share/trodden` whose variable is set.

use crate::atomic_file::write_atomically;
use crate::experiment::InputFolder;
use crate::frame::{Frame, FrameError};
use crate::identity::Identity;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Environment variable with the path of the cache's root folder.
pub const CACHE_VARIABLE: &str = "TRODDEN_CACHE";

/// The cache of unit frames.
#[derive(Clone, Debug)]
pub struct UnitCache {
    root: PathBuf,
}

impl UnitCache {
    /// Creates a handle to the cache in a folder, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> UnitCache {
        UnitCache { root: root.into() }
    }

    /// Returns the root folder of the cache according to the environment; `None` if none of the variables is set. `variable` looks up an
    /// environment variable, like `std::env::var_os`.
    pub fn root_from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let folder = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        folder(CACHE_VARIABLE)
            .or_else(|| folder("XDG_DATA_HOME").map(|d| d.join("trodden")))
            .or_else(|| folder("HOME").map(|d| d.join(".local/share/trodden")))
    }

    /// Returns the root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder that contains the input files of builds.
    pub fn inputs(&self) -> InputFolder {
        InputFolder::new(self.root.join("inputs"))
    }

    /// Returns the path under which a unit's frame is stored. The file may not exist.
    pub fn path(&self, unit: Identity) -> PathBuf {
        let name = unit.to_string();
        self.root.join("units").join(&name[..2]).join(format!("{name}.unit"))
    }

    /// Stores a frame and returns its path. A frame that is already stored and has the same map is kept, unless it has no bitcode and the
    /// new one does.
    pub fn put(&self, frame: &Frame) -> io::Result<PathBuf> {
        let path = self.path(frame.unit);
        let known = self.get(frame.unit).ok().flatten();
        if known.is_some_and(|known| known.has_same_packed_map(frame) && (known.has_bitcode() || !frame.has_bitcode())) {
            return Ok(path);
        }
        write_atomically(&path, &frame.to_bytes())?;
        Ok(path)
    }

    /// Reads the frame of a unit; `None` if it is not in the cache. Fails if the file cannot be read, is corrupt, or contains a different
    /// unit.
    pub fn get(&self, unit: Identity) -> io::Result<Option<Frame>> {
        let path = self.path(unit);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        };
        let corrupt = |what: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}. Delete the file and rebuild the program", path.display()))
        };
        let (frame, _) = Frame::read(&bytes, 0).map_err(|e: FrameError| corrupt(e.to_string()))?;
        match frame.unit == unit {
            true => Ok(Some(frame)),
            false => Err(corrupt(format!("it contains unit {}, which does not match its name", frame.unit))),
        }
    }
}
