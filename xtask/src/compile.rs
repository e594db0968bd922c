//! `cargo xtask compile`: compares the processor time that `trodden cc` and clang need to compile a generated file with many small
//! functions and the given sources.
//!
//! The compilers run alternately, so that a slowdown of the machine affects both. The shortest time of each is reported.

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trodden_corpus::steps::{self, build_trodden};

#[derive(Debug, Args)]
pub struct CompileOptions {
    /// C sources to compile in addition to the generated unit.
    sources: Vec<PathBuf>,
    /// Number of functions in the generated unit.
    #[arg(long, default_value_t = 6000)]
    functions: u32,
    /// Levels of optimisation.
    #[arg(long, value_delimiter = ',', default_values = ["0", "2"])]
    levels: Vec<String>,
    /// Number of compilations by each compiler.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// `trodden` command to measure (default: a new release build).
    #[arg(long, value_name = "FILE")]
    trodden: Option<PathBuf>,
}

pub fn run(options: &CompileOptions) -> Result<()> {
    let trodden = match &options.trodden {
        Some(trodden) => trodden.clone(),
        None => build_trodden()?.join("trodden"),
    };
    let folder = steps::target_folder().join("compile");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let generated = folder.join(format!("functions-{}.c", options.functions));
    fs::write(&generated, generate_functions(options.functions)).with_context(|| format!("cannot write {}", generated.display()))?;
    println!("{:<28} {:>5} {:>10} {:>10} {:>7}", "source", "level", "clang", "trodden", "ratio");
    for source in std::iter::once(&generated).chain(&options.sources) {
        for level in &options.levels {
            let [plain, counting] = measure_shortest_times(&trodden, options.rounds, &folder, source, &format!("-O{level}"))?;
            let name = source.file_name().unwrap_or_default().display().to_string();
            println!("{name:<28} {:>5} {plain:>8.2} s {counting:>8.2} s {:>6.2}x", format!("-O{level}"), counting / plain);
        }
    }
    Ok(())
}

/// Compiles `source` `rounds` times with clang and with trodden. Returns the shortest processor time of each in seconds, clang's first.
fn measure_shortest_times(trodden: &Path, rounds: u32, folder: &Path, source: &Path, level: &str) -> Result<[f64; 2]> {
    let mut best = [f64::INFINITY; 2];
    for _ in 0..rounds.max(1) {
        for (at, best) in best.iter_mut().enumerate() {
            let mut command = match at {
                0 => Command::new("clang-22"),
                _ => Command::new(trodden),
            };
            command.args((at == 1).then_some("cc")).args([level, "-w", "-c"]).arg(source).arg("-o").arg(folder.join("unit.o"));
            command.env("TRODDEN_CACHE", folder.join("store"));
            let before = child_processor_seconds()?;
            let status = command.stdin(Stdio::null()).status().context("cannot run a compiler")?;
            if !status.success() {
                bail!("`{command:?}` failed: {status}");
            }
            *best = best.min(child_processor_seconds()? - before);
        }
    }
    Ok(best)
}

fn child_processor_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the processor time of child processes")?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Returns a C program with `count` functions. Each function has three paths, and `main` calls them all.
fn generate_functions(count: u32) -> String {
    let mut text = String::new();
    for i in 0..count {
        let (small, odd) = (i % 13, i % 97);
        let _ = writeln!(
            text,
            "__attribute__((noinline)) int f{i}(int x) {{ if (x & 1) return x * 3 + {i}; if (x > {odd}) return x ^ {i}; \
             return x - {small}; }}"
        );
    }
    let names: Vec<String> = (0..count).map(|i| format!("f{i}")).collect();
    let _ = writeln!(text, "static int (*const all[])(int) = {{{}}};", names.join(", "));
    text + "int main(void) { int s = 0; for (unsigned i = 0; i < sizeof all / sizeof *all; i++) s += all[i](s & 63); return s & 1; }\n"
}
