//! Finds LLVM's tools: in the folder that `TRODDEN_LLVM` names (`TRODDEN_LLVM/bin/clang`), else as `NAME-22` on the search path, else where
//! Debian's packages install them. Unversioned names on the search path are not used, because they may belong to another version of LLVM
//! with another bitcode format.

use crate::context::DriverContext;
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trodden_launch::process::find_in_search_path;

/// Variable that names the folder of an LLVM installation.
pub const LLVM_VARIABLE: &str = "TRODDEN_LLVM";
/// The major version of LLVM that trodden needs.
pub const LLVM_MAJOR: u32 = 22;
/// Folder in which the packages of Debian and LLVM install the tools.
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
    /// Returns the tool's name without version.
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

    /// Returns the command that installs the tool.
    pub fn remedy(self) -> &'static str {
        match self {
            Tool::Clang | Tool::ClangCxx => "apt-get install clang-22",
            Tool::Lld => "apt-get install lld-22",
            Tool::Profdata | Tool::Cov | Tool::Cxxfilt => "apt-get install llvm-22",
        }
    }

    /// Finds the tool.
    ///
    /// # Errors
    /// Fails if it is not installed; the message names the command that installs it.
    pub fn find(self, context: &DriverContext) -> Result<PathBuf> {
        let name = self.name();
        if let Some(folder) = context.value(LLVM_VARIABLE) {
            let path = Path::new(folder).join("bin").join(name);
            if !is_program(&path) {
                bail!(
                    "{} is not a program: set {LLVM_VARIABLE} to the folder of LLVM {LLVM_MAJOR} that contains bin/{name}",
                    path.display()
                );
            }
            return Ok(path);
        }
        let packaged = Path::new(PACKAGED).join(name);
        match on_path_except_own(context, OsStr::new(&format!("{name}-{LLVM_MAJOR}"))).or_else(|| is_program(&packaged).then_some(packaged))
        {
            Some(path) => Ok(path),
            None => bail!("{name}-{LLVM_MAJOR} is not installed: run `{}` (`trodden doctor` checks the rest)", self.remedy()),
        }
    }
}

/// Finds a program by name on the search path.
pub fn on_path(context: &DriverContext, name: &OsStr) -> Option<PathBuf> {
    find_in_search_path(name, context.variable("PATH"), is_program)
}

/// Finds a program by name on the search path, except links to this program, which `trodden build` adds under names of compilers.
pub fn on_path_except_own(context: &DriverContext, name: &OsStr) -> Option<PathBuf> {
    let is_own = |path: &Path| path.canonicalize().is_ok_and(|file| file.file_name() == Some(OsStr::new("trodden")));
    find_in_search_path(name, context.variable("PATH"), |path| is_program(path) && !is_own(path))
}

/// Whether a path is a file with any permission to execute.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
