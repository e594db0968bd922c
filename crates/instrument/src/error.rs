//! Errors that prevent a unit from being instrumented.

use crate::options::BadOption;
use crate::placeholders::PlaceholderError;
use std::path::PathBuf;
use trodden_unit::cache::CACHE_VARIABLE;

#[derive(Debug, thiserror::Error)]
pub enum InstrumentError {
    #[error(transparent)]
    Option(#[from] BadOption),
    #[error(transparent)]
    Placeholders(#[from] PlaceholderError),
    #[error("no folder for the unit cache: set {CACHE_VARIABLE} (or HOME) to a writable folder")]
    NoCacheFolder,
    #[error("cannot write the unit cache {folder} ({source}): set {CACHE_VARIABLE} to a writable folder")]
    CacheWrite { folder: PathBuf, source: std::io::Error },
    #[error("cannot write the block properties {file} ({source}): set TMPDIR to a writable folder")]
    PropertiesWrite { file: PathBuf, source: std::io::Error },
    #[error("cannot process the units in {file}: {what}; set TMPDIR to a writable folder with free space")]
    Tasks { file: PathBuf, what: String },
    #[error("function `{0}` has too many partial paths (up to calls) to stream: build with a smaller max-paths=N in TRODDEN_INSTRUMENT")]
    TooManyEvents(String),
    #[error("--addresses needs clang's integrated assembler: compile without -fno-integrated-as")]
    ForeignAssembler,
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
    #[error("function `{0}` differs from the one that was partitioned among copies: rebuild the program and partition it again")]
    PartMismatch(String),
    #[error("function `{function}`: LLVM cannot run the passes {passes} ({what}); please report it with the version of clang")]
    Passes {
        function: String,
        passes: &'static str,
        /// LLVM's message.
        what: String,
    },
    #[error("cannot read the source module that clang embedded: compile without -fembed-bitcode")]
    UnreadableEmbeddedModule,
    #[error("function `{0}` is invalid after instrumentation; please report it with the source file that is being compiled")]
    InvalidFunction(String),
}
