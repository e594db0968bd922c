//! Where LLVM's tools are. Only versioned names are asked for: the unversioned ones may belong to another LLVM, which reads other bitcode.
//!
//! `TRODDEN_LLVM` names the folder of an LLVM elsewhere (`TRODDEN_LLVM/bin/clang`). Otherwise `NAME-22` on the search
//! path, then Debian's place.

use crate::context::DriverContext;
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Variable that names the folder of an LLVM.
pub const LLVM_VARIABLE: &str = "TRODDEN_LLVM";
/// The major version of LLVM that trodden works with.
pub const LLVM_MAJOR: u32 = 22;
/// Where Debian and LLVM's own packages put it.
const PACKAGED: &str = "/usr/lib/llvm-22/bin";

/// A tool of LLVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The C compiler.
    Clang,
    /// The C++ compiler.
    ClangCxx,
    /// The linker `ld.lld`.
    Lld,
    /// The tool for LLVM's profiles.
    Profdata,
    /// The tool for coverage.
    Cov,
    /// The demangler.
    Cxxfilt,
}

impl Tool {
    /// Its name without a version.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Clang => "clang",
            Tool::ClangCxx => "clang++",
            Tool::Lld => "ld.lld",
            Tool::Profdata => "llvm-profdata",
            Tool::Cov => "llvm-cov",
            Tool::Cxxfilt => "llvm-cxxfilt",
        }
    }

    /// The command that installs it.
    pub fn remedy(self) -> &'static str {
        match self {
            Tool::Clang | Tool::ClangCxx => "apt-get install clang-22",
            Tool::Lld => "apt-get install lld-22",
            Tool::Profdata | Tool::Cov | Tool::Cxxfilt => "apt-get install llvm-22",
        }
    }

    /// Finds it.
    ///
    /// # Errors
    /// It is not there; the message names the command that installs it.
    pub fn find(self, context: &DriverContext) -> Result<PathBuf> {
        let name = self.name();
        if let Some(folder) = context.value(LLVM_VARIABLE) {
            let path = Path::new(folder).join("bin").join(name);
            if !is_program(&path) {
                bail!("{} is no program: {LLVM_VARIABLE} must name the folder of LLVM {LLVM_MAJOR} that holds bin/{name}", path.display());
            }
            return Ok(path);
        }
        let packaged = Path::new(PACKAGED).join(name);
        match other_on_path(context, OsStr::new(&format!("{name}-{LLVM_MAJOR}"))).or_else(|| is_program(&packaged).then_some(packaged)) {
            Some(path) => Ok(path),
            None => bail!("{name}-{LLVM_MAJOR} is not installed: run `{}` (`trodden doctor` checks the rest)", self.remedy()),
        }
    }
}

/// Finds a program by name on the search path.
pub fn on_path(context: &DriverContext, name: &OsStr) -> Option<PathBuf> {
    context.search_path().map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// The same, but no link to this program: within a build the search path begins with links to it under the names of compilers.
fn other_on_path(context: &DriverContext, name: &OsStr) -> Option<PathBuf> {
    let is_own = |path: &Path| path.canonicalize().is_ok_and(|file| file.file_name() == Some(OsStr::new("trodden")));
    context.search_path().map(|folder| folder.join(name)).find(|path| is_program(path) && !is_own(path))
}

/// Whether a file is there and may be executed by someone.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
