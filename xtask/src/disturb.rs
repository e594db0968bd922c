//! `cargo xtask disturb`: recorders of traces that are ended, and targets that die, at random moments.

use anyhow::Result;
use clap::Args;
use trodden_corpus::steps;

/// `cargo xtask disturb`
#[derive(Debug, Args)]
pub struct DisturbOptions {
    /// Number of recorders.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Seed of what happens, and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the test.
///
/// # Errors
/// A program did something else than without a trace, a recorder did not end, or it left temporary files; the message says in which round.
pub fn run(options: &DisturbOptions) -> Result<()> {
    let mut command = steps::cargo();
    command.args(["test", "--workspace", "--test", "trace_disturbed", "--", "--ignored", "--nocapture"]);
    steps::run(command.env("TRODDEN_ROUNDS", options.rounds.to_string()).env("TRODDEN_SEED", options.seed.to_string()))
}
