//! The cache of unit frames by identity, for programs that have lost theirs (`llvm-strip`). Compilers write it, possibly in parallel and
//! for several users, so files are replaced atomically.
//!
//! Path: `ROOT/units/ab/abcdef....unit`, where ROOT is `$TRODDEN_CACHE`, else `$XDG_DATA_HOME/trodden`, else `$HOME/.local/share/trodden`.

use crate::experiment::InputFolder;
use crate::frame::{Frame, FrameError};
use crate::identity::Identity;
use crate::whole_file::write_atomically;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Environment variable that names the cache's root.
pub const CACHE_VARIABLE: &str = "TRODDEN_CACHE";

/// The cache of unit frames.
#[derive(Clone, Debug)]
pub struct UnitCache {
    root: PathBuf,
}

impl UnitCache {
    /// Refers to the cache in a folder, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> UnitCache {
        UnitCache { root: root.into() }
    }

    /// Returns the root that environment variables name; `variable` looks them up, like `std::env::var_os`. `None` if there is no home
    /// either.
    pub fn root_from(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let set = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        set(CACHE_VARIABLE)
            .or_else(|| set("XDG_DATA_HOME").map(|d| d.join("trodden")))
            .or_else(|| set("HOME").map(|d| d.join(".local/share/trodden")))
    }

    /// The root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of builds' input files.
    pub fn inputs(&self) -> InputFolder {
        InputFolder::new(self.root.join("inputs"))
    }

    /// Path of a unit's frame, which may not exist.
    pub fn path(&self, unit: Identity) -> PathBuf {
        let name = unit.to_string();
        self.root.join("units").join(&name[..2]).join(format!("{name}.unit"))
    }

    /// Stores a frame and returns its path. An existing one is kept if it has the same map, and has bitcode if the new one has.
    pub fn put(&self, frame: &Frame) -> io::Result<PathBuf> {
        let path = self.path(frame.unit);
        let known = self.get(frame.unit).ok().flatten();
        if known.is_some_and(|known| known.has_same_map(frame) && (known.has_bitcode() || !frame.has_bitcode())) {
            return Ok(path);
        }
        write_atomically(&path, &frame.to_bytes())?;
        Ok(path)
    }

    /// Reads a unit's frame; `None` if the cache does not have it.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is of another unit.
    pub fn get(&self, unit: Identity) -> io::Result<Option<Frame>> {
        let path = self.path(unit);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        };
        let damaged = |what: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}. Delete it and build the program again", path.display()))
        };
        let (frame, _) = Frame::read(&bytes, 0).map_err(|e: FrameError| damaged(e.to_string()))?;
        match frame.unit == unit {
            true => Ok(Some(frame)),
            false => Err(damaged(format!("it contains unit {}, not the one in its name", frame.unit))),
        }
    }
}
