//! Errors that prevent a unit from being instrumented.

use crate::options::PluginOptionsError;
use crate::placeholders::PlaceholderError;
use std::path::PathBuf;
use trodden_unit::cache::CACHE_VARIABLE;

#[derive(Debug, thiserror::Error)]
pub enum InstrumentError {
    #[error(transparent)]
    Option(#[from] PluginOptionsError),
    #[error(transparent)]
    Placeholders(#[from] PlaceholderError),
    #[error("cannot determine the folder of the unit cache. Set {CACHE_VARIABLE} (or HOME) to a writable folder")]
    NoCacheFolder,
    #[error("cannot write to the unit cache (folder {folder}): {source}. Set {CACHE_VARIABLE} to a writable folder")]
    CacheWrite { folder: PathBuf, source: std::io::Error },
    #[error("cannot write the properties of basic blocks to {file}: {source}. Set TMPDIR to a writable folder")]
    PropertiesWrite { file: PathBuf, source: std::io::Error },
    #[error("cannot process the compilation units in {file}: {what}. Set TMPDIR to a writable folder with free space")]
    Tasks { file: PathBuf, what: String },
    #[error(
        "function `{0}` has too many paths that end at a call to record them in a stream. Build with a smaller max-paths=N in \
         TRODDEN_INSTRUMENT"
    )]
    TooManyEvents(String),
    #[error("--addresses needs clang's integrated assembler. Compile without -fno-integrated-as")]
    ForeignAssembler,
    #[error("function `{function}`: {what}. Please report this bug with the source file")]
    Probes { function: String, what: String },
    #[error(
        "function `{0}` does not match the file of known paths: its paths or their numbers differ. Record the runs again with a program \
         built with default options"
    )]
    KnownPathsMismatch(String),
    #[error(
        "function `{function}`: trodden numbered its paths wrongly ({what}), so nothing was written. Please report this bug with the \
         source file"
    )]
    InvalidNumbering {
        function: String,
        /// The verifier's finding.
        what: String,
    },
    #[error(
        "function `{0}` has changed since its paths were divided among copies of the program. Rebuild the program, and divide it again"
    )]
    PartMismatch(String),
    #[error("function `{function}`: LLVM cannot run the passes {passes} ({what}). Please report this bug with the version of clang")]
    Passes {
        function: String,
        passes: &'static str,
        /// LLVM's message.
        what: String,
    },
    #[error("cannot read the LLVM module that clang embedded in the object file. Compile without -fembed-bitcode")]
    UnreadableEmbeddedModule,
    #[error("function `{0}` is invalid after instrumentation, which is a bug in trodden. Please report the bug with the source file")]
    InvalidFunction(String),
}
