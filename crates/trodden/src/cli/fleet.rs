//! Syntax of `trodden fleet`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use trodden_console::arguments::laboratory::DivisionChoices;
use trodden_console::arguments::partition::parse_copies;
use trodden_console::arguments::places::output_path;
use trodden_partition::PartitionStrategy;

/// `trodden fleet`
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Make copies of a program for users; each copy counts a part of the paths.
    #[command(after_help = "\
Examples:
  trodden fleet copies ./prog -k 8 -o parts
  trodden fleet copies ./prog -k 8 --weights last -o parts     divided by the counts of a run
  trodden fleet copies ./prog -k 8 -o parts --writes '/var/tmp/counts/%m-%p.raw'")]
    Copies(FleetCopiesArguments),
    /// Write a report for sending: identities and counts of untested paths, nothing else.
    #[command(after_help = "\
Examples:
  trodden fleet pack /var/tmp/counts -o report.field
  trodden fleet pack --user \"$(cat user.id)\" -o report.field

A report contains identities of builds, units and paths, execution counts, and a hash of --user, by
which reports of the same user are recognised. It contains no command lines, no names of hosts,
files or functions, and no times. The text of --user should be random, since the hash of a
guessable text can be guessed. Keep it on the machine:
  test -s user.id || head -c 16 /dev/urandom | od -An -tx1 > user.id")]
    Pack(FleetPackArguments),
    /// Aggregate reports: show how many users took each untested path.
    #[command(after_help = "\
Examples:
  trodden fleet aggregate inbox                           a folder of reports
  cat *.field > all.field                                 reports may be concatenated
  trodden fleet aggregate all.field --rows rows.csv
  trodden fleet aggregate all.field --rows rows.parquet   if built with --features parquet
  trodden fleet aggregate inbox --copies parts            estimates for all users of copies

Memory use does not depend on the number of reports; temporary files go to TMPDIR.")]
    Aggregate(FleetAggregateArguments),
}

/// `trodden fleet copies`
#[derive(Debug, Args)]
pub struct FleetCopiesArguments {
    /// Instrumented program or shared library.
    pub program: PathBuf,
    /// Number of copies.
    #[arg(short = 'k', long, value_name = "K", default_value_t = 4, value_parser = parse_copies)]
    pub copies: usize,
    /// Profile that guides the division (file, run, suite) [default: estimates].
    #[arg(long, value_name = "PROFILE")]
    pub weights: Option<String>,
    /// New folder for the copies.
    #[arg(short, long, value_name = "FOLDER", value_parser = output_path())]
    pub output: PathBuf,
    /// File that copies write to (%m: build, %p: PID).
    ///
    /// The variable TRODDEN_OUTPUT overrides it.
    ///
    /// If the folder of this file does not exist, a copy writes nothing and prints no message: create the folder on machines whose users
    /// agreed to report.
    #[arg(long, value_name = "PATTERN")]
    pub writes: Option<String>,
    /// Strategy of the division; `trodden-lab with` can select another one.
    #[arg(skip = PartitionStrategy::Weighted)]
    pub strategy: PartitionStrategy,
    /// Options of `trodden-lab with` for the division.
    #[arg(skip)]
    pub division: DivisionChoices,
}

/// `trodden fleet pack`
#[derive(Debug, Args)]
pub struct FleetPackArguments {
    /// Profiles, as in `trodden untested`.
    pub profiles: Vec<String>,
    /// Further known paths, as in `trodden untested` (repeatable).
    #[arg(long, value_name = "PROFILE")]
    pub known: Vec<String>,
    /// Copy (from `fleet copies`) that ran; it is reported even if it counted nothing.
    #[arg(long, value_name = "PROGRAM")]
    pub copy: Option<PathBuf>,
    /// Text that identifies the user; only its hash is reported.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub user: String,
    /// File for the report.
    #[arg(short, long, value_name = "FILE", value_parser = output_path())]
    pub output: PathBuf,
}

/// `trodden fleet aggregate`
#[derive(Debug, Args)]
pub struct FleetAggregateArguments {
    /// Report files, or folders with files named *.field.
    #[arg(required = true, value_name = "FILE|FOLDER")]
    pub reports: Vec<PathBuf>,
    /// Folder from `trodden fleet copies` that the reports belong to.
    #[arg(long, value_name = "FOLDER")]
    pub copies: Option<PathBuf>,
    /// Number of users to make estimates for [default: users who reported].
    #[arg(long, value_name = "N", requires = "copies")]
    pub population: Option<u64>,
    /// Maximum paths, most users first, 0 for all [default: 10; JSON: all].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Write a row per path and user: CSV, or Parquet if the name ends in .parquet.
    #[arg(long, value_name = "FILE", value_parser = output_path())]
    pub rows: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
