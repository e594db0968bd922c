//! The command `trodden`. Under another name (`trodden-cc`, `trodden-c++`, `cargo-trodden`, by a link) it is that command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trodden_command::main()
}
