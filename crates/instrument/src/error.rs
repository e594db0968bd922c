//! Why a unit cannot be instrumented.

use crate::options::BadOption;
use crate::placeholders::PlaceholderError;
use std::path::PathBuf;
use trodden_flow::GraphError;
use trodden_unit::cache::CACHE_VARIABLE;

/// Why a unit cannot be instrumented.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bad parameters.
    #[error(transparent)]
    Option(#[from] BadOption),
    /// LLVM's edge counters cannot be taken out.
    #[error(transparent)]
    Placeholders(#[from] PlaceholderError),
    /// There is no place for the unit cache.
    #[error("there is no folder for the unit cache: set {CACHE_VARIABLE} (or HOME) to one that can be written")]
    NoStore,
    /// The unit cache cannot be written.
    #[error("the unit cache {folder} cannot be written ({source}): set {CACHE_VARIABLE} to a folder that can")]
    Store {
        /// Its folder.
        folder: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// The file for block properties cannot be written.
    #[error("the file {file} for block properties cannot be written ({source}): set TMPDIR to a folder that can")]
    Properties {
        /// The file.
        file: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// The function's graph could not be built.
    #[error("function `{function}`: {source}; please report it with the source file")]
    Graph {
        /// The function.
        function: String,
        /// What is wrong.
        source: GraphError,
    },
    /// Streams have an event for each path up to each call, and these are more than can be numbered.
    #[error("function `{0}` has too many paths up to calls for a stream: build with a smaller max-paths=N in TRODDEN_INSTRUMENT")]
    TooManyEvents(String),
    /// The unit is assembled by an assembler that knows no pseudo probes.
    #[error("--addresses needs clang's own assembler: compile without -fno-integrated-as")]
    ForeignAssembler,
    /// Probes that the sample tier cannot work with.
    #[error("function `{function}`: {what}; please report it with the source file")]
    Probes {
        /// The function.
        function: String,
        /// What is wrong.
        what: String,
    },
    /// Known paths are those of another graph.
    #[error(
        "function `{0}` has other paths than those in the file of known paths, or numbers them otherwise: record the runs again with a \
            program built with default parameters"
    )]
    OtherPaths(String),
    /// The verifier of numberings refutes one.
    #[error(
        "function `{function}`: the numbering of its paths does not hold ({what}); nothing is written, please report it with the source \
            file"
    )]
    Wrong {
        /// The function.
        function: String,
        /// What is wrong.
        what: String,
    },
    /// The parts of a copy are those of another graph.
    #[error(
        "function `{0}` has other paths than in the program that is divided among copies: build that program again, and divide it again"
    )]
    OtherParts(String),
    /// LLVM refuses to run passes.
    #[error("function `{function}`: LLVM does not run the passes {passes} ({what}); please report it with the version of clang")]
    Passes {
        /// The function.
        function: String,
        /// Their names.
        passes: &'static str,
        /// LLVM's message.
        what: String,
    },
    /// What clang put into the module for the graphs of lines.
    #[error("the source module that clang embedded cannot be read: compile with the clang of LLVM 22, and without -fembed-bitcode")]
    Embedded,
    /// LLVM's verifier refuses what was made.
    #[error("function `{0}` is not valid any more after instrumentation; please report it with the source file that is being compiled")]
    Invalid(String),
}
