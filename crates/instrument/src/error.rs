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
    #[error("no folder for the unit cache: set {CACHE_VARIABLE} (or HOME) to a writable folder")]
    NoCacheFolder,
    /// The unit cache cannot be written.
    #[error("cannot write the unit cache {folder} ({source}): set {CACHE_VARIABLE} to a writable folder")]
    CacheWrite { folder: PathBuf, source: std::io::Error },
    /// The file of block properties cannot be written.
    #[error("cannot write the block properties {file} ({source}): set TMPDIR to a writable folder")]
    PropertiesWrite { file: PathBuf, source: std::io::Error },
    /// The plugin's task list, or a file that it names, cannot be read or written.
    #[error("cannot process the units in {file}: {what}; set TMPDIR to a writable folder with free space")]
    Tasks { file: PathBuf, what: String },
    /// A stream needs a number for each partial path that ends at a call, and the function has too many of them.
    #[error("function `{0}` has too many partial paths (up to calls) to stream: build with a smaller max-paths=N in TRODDEN_INSTRUMENT")]
    TooManyEvents(String),
    /// The unit is assembled by an assembler that does not support pseudo probes.
    #[error("--addresses needs clang's integrated assembler: compile without -fno-integrated-as")]
    ForeignAssembler,
    /// The sample tier cannot insert the function's probes.
    #[error("function `{function}`: {what}; please report it with the source file")]
    Probes { function: String, what: String },
    #[error(
        "function `{0}` has different paths than in the file of known paths, or numbers them differently: record the runs again with a \
             program built with default parameters"
    )]
    KnownPathsMismatch(String),
    #[error(
        "function `{function}`: the numbering of its paths is wrong ({what}); nothing was written. Please report it with the source \
             file"
    )]
    InvalidNumbering {
        function: String,
        /// The verifier's finding.
        what: String,
    },
    /// The partition was computed for a different graph of the function.
    #[error("function `{0}` differs from the one that was partitioned among copies: rebuild the program and partition it again")]
    PartMismatch(String),
    /// LLVM cannot run a pass pipeline.
    #[error("function `{function}`: LLVM cannot run the passes {passes} ({what}); please report it with the version of clang")]
    Passes {
        function: String,
        passes: &'static str,
        /// LLVM's message.
        what: String,
    },
    /// The source module that clang embedded for the line graphs is unreadable.
    #[error("cannot read the source module that clang embedded: compile without -fembed-bitcode")]
    UnreadableEmbeddedModule,
    /// LLVM's verifier rejects an instrumented function.
    #[error("function `{0}` is invalid after instrumentation; please report it with the source file that is being compiled")]
    InvalidFunction(String),
}
