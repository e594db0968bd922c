//! What the drivers of all languages share about a compile step: the language, the command line, and what is added to it.

use crate::cc::arguments::{CommandLine, InputKind};
use crate::toolchain::Tool;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// The language whose driver clang is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceLanguage {
    /// `clang`
    #[serde(rename = "clang")]
    C,
    /// `clang++`
    #[serde(rename = "clang++")]
    Cxx,
}

impl SourceLanguage {
    /// Clang under the name for that language.
    pub fn tool(self) -> Tool {
        match self {
            SourceLanguage::C => Tool::Clang,
            SourceLanguage::Cxx => Tool::ClangCxx,
        }
    }
}

/// Variable with the options by which machine code is made, for the plugin to keep; separated by [`CODEGEN_SEPARATOR`].
pub const CODEGEN_VARIABLE: &str = "TRODDEN_CODEGEN";

/// Separates arguments in [`CODEGEN_VARIABLE`].
pub const CODEGEN_SEPARATOR: &str = "\u{1f}";

/// Reads a command line, with its response files.
pub fn read(arguments: &[OsString]) -> CommandLine {
    CommandLine::read(arguments, &|file| fs::read(Path::new(file)).ok())
}

/// Puts arguments behind the user's options, but before a `--` that makes inputs of all that follows.
pub fn with_added(arguments: &[OsString], added: &[OsString]) -> Vec<OsString> {
    let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    [&arguments[..end], added, &arguments[end..]].concat()
}

/// The name of the source that a compile step is about, for notes.
pub fn first_source(line: &CommandLine) -> &OsStr {
    line.inputs_of(InputKind::Source).next().unwrap_or(OsStr::new("-"))
}
