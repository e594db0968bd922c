//! The syntax of `trodden fleet`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use trodden_console::arguments::laboratory::DivisionChoices;
use trodden_console::arguments::partition::copies;
use trodden_console::arguments::places::place;
use trodden_partition::PartitionStrategy;

/// `trodden fleet`
#[derive(Debug, Subcommand)]
pub enum Fleet {
    /// Make copies of a program for users, each of which counts a part of the paths.
    #[command(after_help = "\
Examples:
  trodden fleet copies ./prog -k 8 -o parts
  trodden fleet copies ./prog -k 8 --profile last -o parts     divided by what a run took
  trodden fleet copies ./prog -k 8 -o parts --writes '/var/tmp/counts/%m-%p.raw'")]
    Copies(FleetCopies),
    /// Write a report to send: identities and counts of untested paths, and nothing else.
    #[command(after_help = "\
Examples:
  trodden fleet pack /var/tmp/counts -o report.field
  trodden fleet pack --user \"$(cat user.id)\" -o report.field      a hash of it, so that reports of one user count as one user's

The text of --user should be random, and kept on the machine: `test -s user.id || head -c 16 /dev/urandom | od -An -tx1 > user.id`. A \
hash of what can be guessed can be guessed.

What stands in a report: identities of builds, units and paths, executions, and that hash. No command lines, no names of hosts, files or \
functions, no times.")]
    Pack(Pack),
    /// Aggregate the reports of many users: who took which untested path.
    #[command(after_help = "\
Examples:
  trodden fleet aggregate inbox                  a folder of reports; in one file, too: cat *.field > all.field
  trodden fleet aggregate all.field --rows rows.csv
  trodden fleet aggregate inbox --copies parts       of copies that `trodden fleet copies` made: estimates for all users
  trodden fleet aggregate all.field --rows rows.parquet      if trodden was built with --features parquet

Memory use is bounded, however many reports there are; temporary files lie in TMPDIR.")]
    Aggregate(Aggregate),
}

/// `trodden fleet copies`
#[derive(Debug, Args)]
pub struct FleetCopies {
    /// An instrumented program or shared library.
    pub program: PathBuf,
    /// Number of copies.
    #[arg(short = 'k', long, value_name = "K", default_value_t = 4, value_parser = copies)]
    pub copies: usize,
    /// A profile of the program: a file, a run or a suite. Without one, frequencies are estimated.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// The new folder that the copies go to.
    #[arg(short, long, value_name = "FOLDER", value_parser = place())]
    pub output: PathBuf,
    /// The file to which copies write what they count, unless TRODDEN_OUTPUT says otherwise; as in TRODDEN_OUTPUT, %m
    /// stands for the build, %p for the process. Where its folder does not exist, a copy writes nothing and does not
    /// complain: make the folder on machines whose users agreed to report.
    #[arg(long, value_name = "PATTERN")]
    pub writes: Option<String>,
    /// How to divide the counting; only the laboratory chooses another way.
    #[arg(skip = PartitionStrategy::Weighted)]
    pub strategy: PartitionStrategy,
    /// How the laboratory divides.
    #[arg(skip)]
    pub division: DivisionChoices,
}

/// `trodden fleet pack`
#[derive(Debug, Args)]
pub struct Pack {
    /// Profiles: as of `trodden untested`.
    pub profiles: Vec<String>,
    /// More known paths, as of `trodden untested`.
    #[arg(long, value_name = "PROFILE")]
    pub known: Vec<String>,
    /// Of a copy that watches a part of the paths (`trodden fleet copies`): the program, so that the report says that it
    /// ran even if nothing came up of what it watches.
    #[arg(long, value_name = "PROGRAM")]
    pub copy: Option<PathBuf>,
    /// What distinguishes users; only its hash is in the report. By default reports say nothing of users.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub user: String,
    /// The report. Files of reports may be joined by `cat`.
    #[arg(short, long, value_name = "FILE", value_parser = place())]
    pub output: PathBuf,
}

/// `trodden fleet aggregate`
#[derive(Debug, Args)]
pub struct Aggregate {
    /// Files of reports, or folders of files whose names end in .field.
    #[arg(required = true, value_name = "FILE|FOLDER")]
    pub reports: Vec<PathBuf>,
    /// The reports are of copies that watch a part of the paths each, which `trodden fleet copies` made in this folder.
    #[arg(long, value_name = "FOLDER")]
    pub copies: Option<PathBuf>,
    /// How many users there are in all, for whom estimates are made; by default those who reported.
    #[arg(long, value_name = "N", requires = "copies")]
    pub population: Option<u64>,
    /// At most this many paths, those that most users took; 0 for all. [default: 10, of JSON all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Write a row for each path of each user, ordered by path: CSV, or Parquet if the name ends in .parquet.
    #[arg(long, value_name = "FILE", value_parser = place())]
    pub rows: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
