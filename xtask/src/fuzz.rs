//! `cargo xtask fuzz`: feeds mutated inputs to all readers of file formats. The mutations start from the files in `crates/fuzz/corpus`.

use anyhow::Result;
use clap::Args;
use trodden_corpus::steps;

#[derive(Debug, Args)]
pub struct FuzzOptions {
    /// Target to fuzz, a folder of `crates/fuzz/corpus` (default: all).
    target: Option<String>,
    /// Time for each target, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seed of the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Builds the workspace and runs the fuzz targets. Fails if an input makes a reader panic, or use too much time or memory. The fuzzer then
/// prints where it has saved this input.
pub fn run(options: &FuzzOptions) -> Result<()> {
    steps::run(steps::cargo_command().args(["build", "--workspace", "--all-targets"]))?;
    run_targets(options.target.as_deref(), options.seconds, options.seed)
}

/// Runs the fuzz targets. The workspace must have been built.
pub fn run_targets(target: Option<&str>, seconds: u64, seed: u64) -> Result<()> {
    let mut command = std::process::Command::new(steps::target_folder().join("debug/trodden-fuzz"));
    steps::run(command.args(target).args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string()]))
}
