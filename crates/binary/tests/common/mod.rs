//! Helpers that compile programs for the tests.
#![allow(dead_code, reason = "each test uses only some of them")]

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use trodden_binary::Binary;

/// Options with which clang writes its address map, including frequencies.
pub const MAP_OPTIONS: [&str; 3] = ["-fbasic-block-address-map", "-mllvm", "-pgo-analysis-map=func-entry-count,bb-freq,br-prob"];

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Runs a command, and panics with its output if it fails.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles a program and returns its path.
pub fn compile(folder: &TempDir, compiler: &str, name: &str, options: &[&str]) -> PathBuf {
    let program = folder.path().join("program");
    let mut command = Command::new(compiler);
    command.arg(source(name)).args(options).arg("-o").arg(&program);
    if compiler != "rustc" {
        command.arg("-lm");
    }
    run(&mut command);
    program
}

/// Makes a copy of a program without symbols and address map, and returns its path.
pub fn strip_program(program: &Path) -> PathBuf {
    let stripped = program.with_extension("stripped");
    run(Command::new("objcopy").args(["--strip-all", "--remove-section=.llvm_bb_addr_map"]).arg(program).arg(&stripped));
    stripped
}

pub fn read(path: &Path) -> Binary {
    Binary::read(path).unwrap_or_else(|e| panic!("{e}"))
}
