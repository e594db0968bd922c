//! `cargo xtask demo`: from a fresh machine to the path profile of a real program, by the commands that a user would type.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use trodden_corpus::Corpus;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;

/// The program: bzip2, built by its own Makefile.
const PACKAGE: &str = "bzip2";
/// Files of its source package that it compresses.
const FILES: &[&str] = &["sample1.ref", "sample2.ref", "sample3.ref", "manual.xml"];

/// Runs the demonstration. It may be run again: what is fetched and installed already stays.
///
/// # Errors
/// A step failed; the message names it.
pub fn run() -> Result<()> {
    let started = Instant::now();
    packages::ensure(PackagePurpose::Demo)?;
    steps::headline("Building trodden");
    let programs = steps::build_trodden()?;
    steps::headline("Fetching the sources of bzip2");
    let folder = steps::target().join("demo");
    let sources = Corpus::at(&folder).source(PACKAGE)?;
    let path = steps::path_with(&[programs])?;
    let in_sources = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(&sources).env("PATH", &path);
        command
    };

    steps::headline("Building bzip2 so that its paths are counted");
    steps::run(in_sources("make").arg("clean"))?;
    // Its Makefile names gcc; `trodden build` stands in for that, too.
    steps::run(in_sources("trodden").args(["build", "--", "make", &format!("-j{}", steps::jobs()), "bzip2"]))?;

    steps::headline("Running it");
    steps::run(in_sources("trodden").args(["record", "--", "./bzip2", "--keep", "--force"]).args(FILES))?;
    check_its_work(&in_sources, &sources)?;

    steps::headline("The paths it trod");
    steps::run(in_sources("trodden").arg("report"))?;
    let page = folder.join("report.html");
    steps::run(in_sources("trodden").args(["report", "--html"]).arg(&page))?;
    closing_words(&page, &sources, started);
    Ok(())
}

/// Counting changes nothing: what the program wrote unpacks to what it read.
fn check_its_work(in_sources: &dyn Fn(&str) -> Command, sources: &Path) -> Result<()> {
    for name in FILES {
        let unpacked =
            in_sources("./bzip2").args(["--decompress", "--stdout", &format!("{name}.bz2")]).output().context("cannot run bzip2")?;
        let original = std::fs::read(sources.join(name)).with_context(|| format!("cannot read {name}"))?;
        anyhow::ensure!(unpacked.stdout == original, "{name}.bz2 does not unpack to {name}: the instrumented bzip2 is wrong");
    }
    Ok(())
}

fn closing_words(page: &Path, sources: &Path, started: Instant) {
    let target = steps::target();
    println!("\nDone in {:.1} s. The page: {}", started.elapsed().as_secs_f64(), page.display());
    println!("To go on: PATH={}:$PATH; cd {}", target.join("release").display(), sources.display());
    println!("  trodden annotate mainGtU       one function's hottest path over its source");
    println!("  trodden report --help          what else a report can show");
    println!("  trodden info ./bzip2           what of the program is instrumented");
}
