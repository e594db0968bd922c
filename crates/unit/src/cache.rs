//! The folder of unit frames by identity, beside the copies that programs carry.
//!
//! A program loses its frames when `llvm-strip` removes them; the allocated records still name its units, and this folder has them. The
//! compiler writes it, in parallel and from several users of one machine at most: files appear by renaming, whole or not at all.
//!
//! `ROOT/units/ab/abcdef....unit`; ROOT is `$TRODDEN_CACHE`, else `$XDG_DATA_HOME/trodden`, else `$HOME/.local/share/trodden`.

use crate::experiment::InputFolder;
use crate::frame::{Frame, FrameError};
use crate::identity::Identity;
use crate::whole_file::write_whole;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Variable that names the cache's root.
pub const CACHE_VARIABLE: &str = "TRODDEN_CACHE";

/// A folder of unit frames.
#[derive(Clone, Debug)]
pub struct UnitCache {
    root: PathBuf,
}

impl UnitCache {
    /// The cache in a given folder, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> UnitCache {
        UnitCache { root: root.into() }
    }

    /// The root that the environment names, by a look-up function such as `std::env::var_os`. `None` if there is not even a home.
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

    /// The folder of files that builds read.
    pub fn inputs(&self) -> InputFolder {
        InputFolder::at(self.root.join("inputs"))
    }

    /// Where a unit's frame lies, or would.
    pub fn path(&self, unit: Identity) -> PathBuf {
        let name = unit.to_string();
        self.root.join("units").join(&name[..2]).join(format!("{name}.unit"))
    }

    /// Stores a frame and says where. One that is there already stays, unless its map is another or it lacks the
    /// bitcode that the new one has.
    pub fn put(&self, frame: &Frame) -> io::Result<PathBuf> {
        let path = self.path(frame.unit);
        let known = self.get(frame.unit).ok().flatten();
        if known.is_some_and(|known| known.has_map_of(frame) && (known.has_bitcode() || !frame.has_bitcode())) {
            return Ok(path);
        }
        write_whole(&path, &frame.to_bytes())?;
        Ok(path)
    }

    /// Reads a unit's frame; `None` if the cache does not have it.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is that of another unit.
    pub fn get(&self, unit: Identity) -> io::Result<Option<Frame>> {
        let path = self.path(unit);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        };
        let damaged = |what: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}: remove it, and build the program again", path.display()))
        };
        let (frame, _) = Frame::read(&bytes, 0).map_err(|e: FrameError| damaged(e.to_string()))?;
        match frame.unit == unit {
            true => Ok(Some(frame)),
            false => Err(damaged(format!("it holds unit {}, not the one of its name", frame.unit))),
        }
    }
}
