//! Building random programs with the plugin alone, without trodden's drivers, and running them.
#![allow(dead_code, reason = "each test file uses only a part of it")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_oracle::OracleTools;
use trodden_oracle::random::{RandomLanguage, RandomProgram};
use trodden_profile::{ProcessEnding, Profile, Run, collect, raw_files};

/// Builds a program at a level of optimisation with the given plugin settings, and links it with the objects in `more`.
pub fn build(program: &RandomProgram, level: &str, words: &str, more: &[PathBuf], tools: &OracleTools, folder: &Path) -> PathBuf {
    let (driver, name) = if program.language == RandomLanguage::C { ("clang", "subject.c") } else { ("clang++", "subject.cpp") };
    std::fs::create_dir_all(folder).unwrap();
    let path = folder.join("program");
    std::fs::write(folder.join(name), &program.text).unwrap();
    let plugin = format!("-fpass-plugin={}", tools.plugin.display());
    let mut compile = wrap_in_valgrind(tools.command(driver));
    // Compile with a relative file name, so that a unit is the same in every folder.
    compile.current_dir(folder).args([level, "-w", "-gline-tables-only", "-c"]).arg(plugin).arg(name).args(["-o", "subject.o"]);
    // Make the compiler overwrite freed memory, so that a use after free in the plugin is noticed.
    compile.env("MALLOC_PERTURB_", "165");
    let store = folder.join("store");
    let request = trodden_oracle::check::write_request(words, &store).unwrap();
    run(compile.env("TRODDEN_CACHE", store).env("TRODDEN_EXPERIMENT", request));
    let mut link = tools.command(driver);
    link.arg(folder.join("subject.o")).arg(&tools.runtime).args(more).args(["-pthread", "-o"]).arg(&path);
    run(&mut link);
    path
}

/// Runs the compiler under Valgrind if `TRODDEN_ORACLE_VALGRIND` is set, to find uses of freed memory. This is too slow by default.
/// Undefined values are ignored, since clang itself reads some.
fn wrap_in_valgrind(compiler: Command) -> Command {
    if std::env::var_os("TRODDEN_ORACLE_VALGRIND").is_none() {
        return compiler;
    }
    let mut command = Command::new("valgrind");
    command.args(["-q", "--undef-value-errors=no", "--error-exitcode=9"]).arg(compiler.get_program());
    compiler.get_envs().for_each(|(key, value)| match value {
        Some(value) => drop(command.env(key, value)),
        None => drop(command.env_remove(key)),
    });
    command
}

pub fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

pub struct Execution {
    pub outcome: (Vec<u8>, Option<i32>),
    pub profile: Profile,
}

impl Execution {
    pub fn counts(&self) -> HashMap<(String, u64), u64> {
        let mut all = HashMap::new();
        for (_, unit, function) in self.profile.functions() {
            all.extend(unit.counts_of(function).map(|(path, count)| ((function.name.clone(), path), count)));
        }
        all
    }
}

pub fn execute(program: &Path, variables: &[(&str, String)]) -> Execution {
    let raw = program.with_extension("raw");
    let _ = std::fs::remove_dir_all(&raw);
    std::fs::create_dir(&raw).unwrap();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60"]).arg(program).env("TRODDEN_OUTPUT", raw.join("%m.raw"));
    command.envs(variables.iter().map(|(k, v)| (k, v)));
    let output = command.output().unwrap();
    let run = Run { ending: Some(ProcessEnding::Exit(0)), ..Run::default() };
    let collected = collect(raw_files(&raw).unwrap(), run, None);
    assert!(collected.problems.is_empty(), "{:?}", collected.problems);
    Execution { outcome: (output.stdout, output.status.code()), profile: collected.profile }
}
