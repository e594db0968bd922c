//! What the drivers of all languages share: source languages, command lines, and additions to them.

use crate::cc::arguments::{CommandLine, CompilerInputKind};
use crate::toolchain::Tool;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// Source language that determines the name under which clang is called.
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
    /// Returns the tool that compiles and links this language.
    pub fn tool(self) -> Tool {
        match self {
            SourceLanguage::C => Tool::Clang,
            SourceLanguage::Cxx => Tool::ClangCxx,
        }
    }
}

/// Variable that passes the code-generation options to the plugin, which stores them; separated by [`CODEGEN_SEPARATOR`].
pub const CODEGEN_VARIABLE: &str = "TRODDEN_CODEGEN";

/// Separator of arguments in [`CODEGEN_VARIABLE`].
pub const CODEGEN_SEPARATOR: &str = "\u{1f}";

/// Parses a command line, including its response files.
pub fn parse_command_line(arguments: &[OsString]) -> CommandLine {
    CommandLine::read(arguments, &|file| fs::read(Path::new(file)).ok())
}

/// Appends arguments to the user's options, before a `--`, after which all arguments are inputs.
pub fn with_added(arguments: &[OsString], added: &[OsString]) -> Vec<OsString> {
    let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    [&arguments[..end], added, &arguments[end..]].concat()
}

/// Returns the name of the first source, for messages.
pub fn first_source(line: &CommandLine) -> &OsStr {
    line.inputs_of(CompilerInputKind::Source).next().unwrap_or(OsStr::new("-"))
}
