//! `cargo xtask dist`: what users install, a Debian package and an archive that may lie anywhere.
//!
//! Both hold the same tree, `bin`, `lib` and `share`: the command, links of its other names, the plugin for clang, the plugin for QEMU, the
//! recorder of waits, manual pages, completions and licences. The runtime's objects are inside the command.
//!
//! | file | what |
//! |---|---|
//! | `dist/compile.rs` | the programs, without this machine's paths |
//! | `dist/tree.rs` | the tree |
//! | `dist/notices.rs` | licences of what is compiled in |
//! | `dist/package.rs` | package and archive of a tree |
//! | `dist/check.rs` | both installed and run in bare Debian systems |
//!
//! Invariant: the same commit, compiled by the same tools, gives the same files. Times are the commit's (or `SOURCE_DATE_EPOCH`), owners
//! are root, orders are by name.

mod check;
mod compile;
mod notices;
mod package;
mod tree;

use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::Command;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;

/// `cargo xtask dist`
#[derive(Debug, Args)]
pub struct DistOptions {
    /// The folder for the package and the archive [default: `dist` in cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Pack what an earlier call compiled.
    #[arg(long)]
    compiled: bool,
    /// Install both in bare systems of Debian and run them there (needs root and apt).
    #[arg(long)]
    check: bool,
    /// The releases of Debian to check in.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "bookworm,trixie", requires = "check")]
    releases: Vec<String>,
    /// Mirror of Debian's packages for the check [default: that of this machine's apt]
    #[arg(long, value_name = "URL", requires = "check")]
    mirror: Option<String>,
    /// Mirror of Debian's security updates for the check [default: that of this machine's apt]
    #[arg(long, value_name = "URL", requires = "check")]
    security_mirror: Option<String>,
}

/// The two files.
pub struct Made {
    package: PathBuf,
    archive: PathBuf,
}

/// Makes both files and, if asked, checks them.
///
/// # Errors
/// Cargo or a packing tool failed, or a check did; the message names the step.
pub fn run(options: &DistOptions) -> Result<()> {
    let output = options.output.clone().unwrap_or_else(|| steps::target().join("packages"));
    let work = steps::target().join("dist-work");
    if options.check {
        check::prepare()?;
    }
    std::fs::create_dir_all(&output).with_context(|| format!("cannot make the folder {}", output.display()))?;
    if !options.compiled {
        packages::ensure(PackagePurpose::Demo)?;
        steps::headline("Compiling trodden for users");
        compile::run()?;
    }
    steps::headline("Packing");
    let seconds = time_of_sources()?;
    let made = Made { package: package::debian(&work, &output, &seconds)?, archive: package::archive(&work, &output, &seconds)? };
    if options.check {
        check::run(options, &made)?;
    }
    println!("{}\n{}", made.package.display(), made.archive.display());
    Ok(())
}

/// The version that is packed.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Seconds since 1970 that files in package and archive bear.
fn time_of_sources() -> Result<String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => Ok(seconds),
        Err(_) => Ok(steps::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(steps::root()))?.trim().to_owned()),
    }
}
