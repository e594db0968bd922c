//! Errors that prevent a unit from being instrumented.

use crate::options::BadOption;
use crate::placeholders::PlaceholderError;
use std::path::PathBuf;
use trodden_unit::cache::CACHE_VARIABLE;

/// An error that prevents a unit from being instrumented.
#[derive(Debug, thiserror::Error)]
pub enum InstrumentError {
    #[error(transparent)]
    Option(#[from] BadOption),
    /// LLVM's edge counters cannot be removed from the unit.
    #[error(transparent)]
    Placeholders(#[from] PlaceholderError),
    /// No folder is configured for the unit cache.
    #[error("cannot determine the folder of the unit cache. Set {CACHE_VARIABLE} (or HOME) to a writable folder")]
    NoCacheFolder,
    /// The unit cache cannot be written.
    #[error("cannot write the unit cache {folder}: {source}. Set {CACHE_VARIABLE} to a writable folder")]
    CacheWrite { folder: PathBuf, source: std::io::Error },
    /// The file of block properties cannot be written.
    #[error("cannot write the block properties {file}: {source}. Set TMPDIR to a writable folder")]
    PropertiesWrite { file: PathBuf, source: std::io::Error },
    /// The plugin's task list, or a file that it names, cannot be read or written.
    #[error("cannot process the units in {file}: {what}. Set TMPDIR to a writable folder with free space")]
    Tasks { file: PathBuf, what: String },
    /// A stream needs a number for each partial path that ends at a call, and the function has too many of them.
    #[error(
        "function `{0}` has too many partial paths (paths up to a call) for a stream. Build with a smaller max-paths=N in \
         TRODDEN_INSTRUMENT"
    )]
    TooManyEvents(String),
    /// The unit is assembled by an assembler that does not support pseudo probes.
    #[error("--addresses needs clang's integrated assembler. Compile without -fno-integrated-as")]
    ForeignAssembler,
    /// The sample tier cannot insert the function's probes.
    #[error("function `{function}`: {what}. Please report this bug with the source file")]
    Probes { function: String, what: String },
    #[error(
        "function `{0}` has different paths than in the file of known paths, or different numbers for them. Record the runs again with \
         a program built with default options"
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
    /// The partition was computed for a different graph of the function.
    #[error("function `{0}` differs from the function that was divided among copies. Rebuild the program, and divide it again")]
    PartMismatch(String),
    /// LLVM cannot run a pass pipeline.
    #[error("function `{function}`: LLVM cannot run the passes {passes} ({what}). Please report this bug with the version of clang")]
    Passes {
        function: String,
        passes: &'static str,
        /// LLVM's message.
        what: String,
    },
    /// The source module that clang embedded for the line graphs is unreadable.
    #[error("cannot read the source module that clang embedded. Compile without -fembed-bitcode")]
    UnreadableEmbeddedModule,
    /// LLVM's verifier rejects an instrumented function.
    #[error("function `{0}` is invalid after instrumentation, which is a bug in trodden. Please report the bug with the source file")]
    InvalidFunction(String),
}
