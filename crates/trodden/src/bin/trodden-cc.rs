//! `trodden-cc`: what `trodden cc` does, for build systems that want a compiler in one word. A link to it named
//! `trodden-c++` is the C++ driver.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trodden_command::main_as("trodden-cc")
}
