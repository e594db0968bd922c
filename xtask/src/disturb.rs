//! `cargo xtask disturb`: tests trace recording while recorders and traced programs are killed at random moments.

use crate::suite;
use anyhow::Result;
use clap::Args;
use trodden_corpus::steps;

#[derive(Debug, Args)]
pub struct DisturbOptions {
    /// Number of recordings.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Seed of the random events and their times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the test, which prints the number of each round. Fails if a traced program behaves differently than without a recorder, if a
/// recorder hangs, or if it leaves temporary files.
pub fn run(options: &DisturbOptions) -> Result<()> {
    let mut command = suite::test_files_command(&["disturbed"]);
    command.args(["--ignored", "--nocapture"]);
    steps::run(command.env("TRODDEN_ROUNDS", options.rounds.to_string()).env("TRODDEN_SEED", options.seed.to_string()))
}
