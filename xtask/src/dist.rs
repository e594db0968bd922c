//! `cargo xtask dist`: makes the Debian package, the rpm package and the relocatable archive that users install.
//!
//! All three contain the same files in `bin`, `lib` and `share`: the programs and the links that give them additional names, the plugins
//! for clang and QEMU, the recorder for waiting times, manual pages, shell completions and licences. The runtime's object files are
//! embedded in the program `trodden`.
//!
//! | file | what |
//! |---|---|
//! | `dist/compile.rs` | compiling the programs without leaving paths of this machine in them |
//! | `dist/tree.rs` | the folder of files to pack |
//! | `dist/notices.rs` | licences of third-party crates, and the bill of materials |
//! | `dist/package.rs` | making packages and the archive from the folder |
//! | `dist/check.rs` | installing and running the packages and the archive in minimal Debian systems; publishing of the crates |
//! | `dist/image.rs` | the container image |
//!
//! Invariant: builds are reproducible. All files in packages and archives have the commit's time (or `SOURCE_DATE_EPOCH`), belong to root
//! and are sorted by name.

mod check;
mod compile;
mod image;
mod notices;
mod package;
mod tree;

use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;

#[derive(Debug, Args)]
pub struct DistOptions {
    /// Folder for the packages and the archive [default: `packages` in cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Pack the programs compiled by an earlier call.
    #[arg(long)]
    compiled: bool,
    /// Install and run the packages and the archive in minimal Debian systems (needs root and apt).
    #[arg(long)]
    check: bool,
    /// Debian releases to check in.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "bookworm,trixie", requires = "check")]
    releases: Vec<String>,
    /// Debian mirror for the check [default: that of this machine's apt]
    #[arg(long, value_name = "URL", requires = "check")]
    mirror: Option<String>,
    /// Debian mirror of security updates for the check [default: that of this machine's apt]
    #[arg(long, value_name = "URL", requires = "check")]
    security_mirror: Option<String>,
}

pub struct BuiltPackages {
    package: PathBuf,
    archive: PathBuf,
}

/// Makes the packages and the archive, and checks them if `--check` is given. Fails if cargo, a packaging tool or a check fails; the error
/// names the step.
pub fn run(options: &DistOptions) -> Result<()> {
    let output = options.output.clone().unwrap_or_else(|| steps::target_folder().join("packages"));
    let work = steps::target_folder().join("dist-work");
    if options.check {
        check::install_requirements()?;
    }
    std::fs::create_dir_all(&output).with_context(|| format!("cannot create the folder {}", output.display()))?;
    if !options.compiled {
        packages::ensure_packages_for(PackagePurpose::Demo)?;
        steps::log_headline("Compiling trodden for users");
        compile::run()?;
    }
    steps::log_headline("Packing");
    let seconds = source_date_seconds()?;
    let made = BuiltPackages {
        package: package::make_debian_package(&work, &output, &seconds)?,
        archive: package::make_archive(&work, &output, &seconds)?,
    };
    if options.check {
        check::run(options, &made)?;
    }
    let mut files = vec![made.package, made.archive];
    match package::make_rpm_package(&work, &output, &seconds)? {
        Some(rpm) => files.push(rpm),
        None => println!("no rpm package, since rpmbuild is not installed (Debian: apt install rpm)"),
    }
    let bill = output.join(format!("trodden-{PACKAGE_VERSION}.cdx.json"));
    std::fs::write(&bill, notices::render_bill_of_materials(PACKAGE_VERSION)?)
        .with_context(|| format!("cannot write {}", bill.display()))?;
    files.push(bill);
    files.push(write_checksums(&output, &files)?);
    files.iter().for_each(|file| println!("{}", file.display()));
    Ok(())
}

fn write_checksums(output: &Path, files: &[PathBuf]) -> Result<PathBuf> {
    let names = files.iter().filter_map(|file| file.file_name());
    let sums = steps::output(Command::new("sha256sum").args(names).current_dir(output))?;
    let list = output.join("SHA256SUMS");
    std::fs::write(&list, sums).with_context(|| format!("cannot write {}", list.display()))?;
    Ok(list)
}

const PACKAGE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the modification time for all files in packages and archives, in seconds since 1970.
fn source_date_seconds() -> Result<String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => Ok(seconds),
        Err(_) => Ok(steps::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(steps::checkout_root()))?
            .trim()
            .to_owned()),
    }
}
