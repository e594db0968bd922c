//! The program `trodden`. If it is called by the name of a link (`trodden-cc`, `trodden-c++`, `cargo-trodden`), it acts as that command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trodden_command::main()
}
