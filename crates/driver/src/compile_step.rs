//! Parts that the compiler drivers for all languages share: the source languages, parsing of command lines, and insertion of arguments.

use crate::cc::arguments::{CompilerCommandLine, CompilerInputKind};
use crate::toolchain::LlvmTool;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// A source language, which determines by which name clang is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceLanguage {
    /// C; clang is called `clang`.
    #[serde(rename = "clang")]
    C,
    /// C++; clang is called `clang++`.
    #[serde(rename = "clang++")]
    Cxx,
}

impl SourceLanguage {
    /// Returns the tool that compiles and links this language.
    pub fn tool(self) -> LlvmTool {
        match self {
            SourceLanguage::C => LlvmTool::Clang,
            SourceLanguage::Cxx => LlvmTool::ClangCxx,
        }
    }
}

/// Environment variable that passes code generation options to the plugin, which stores them with the unit. The options are separated by
/// [`CODEGEN_SEPARATOR`].
pub const CODEGEN_VARIABLE: &str = "TRODDEN_CODEGEN";

/// Separates the options in [`CODEGEN_VARIABLE`].
pub const CODEGEN_SEPARATOR: &str = "\u{1f}";

/// Parses a command line and reads its response files.
pub fn parse_command_line(arguments: &[OsString]) -> CompilerCommandLine {
    CompilerCommandLine::read(arguments, &|file| fs::read(Path::new(file)).ok())
}

/// Inserts arguments after the user's options, but before a `--`, because all arguments after `--` are inputs.
pub fn insert_arguments(arguments: &[OsString], added: &[OsString]) -> Vec<OsString> {
    let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    [&arguments[..end], added, &arguments[end..]].concat()
}

/// Returns the first source file, for messages. Returns `-` if there is none.
pub fn first_source(line: &CompilerCommandLine) -> &OsStr {
    line.inputs_of(CompilerInputKind::Source).next().unwrap_or(OsStr::new("-"))
}
