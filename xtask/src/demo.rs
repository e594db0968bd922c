//! `cargo xtask demo`: sets up trodden on a fresh machine and profiles bzip2 with the commands that a user would type.

use anyhow::{Context, Result};
use clap::Args;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use trodden_corpus::Corpus;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps::{self, BuildProfile};

/// The Debian source package that the demonstration profiles, built with its original Makefile.
const DEMO_PACKAGE: &str = "bzip2";
const DEMO_INPUT_FILES: &[&str] = &["sample1.ref", "sample2.ref", "sample3.ref", "manual.xml"];

/// The README's picture of a report page. The path is relative to the checkout.
const PICTURE_FILE: &str = "docs/report.webp";

#[derive(Debug, Args)]
pub struct DemoOptions {
    /// Renew the README's picture of the report page as well (needs chromium).
    #[arg(long)]
    picture: bool,
}

/// Runs the demonstration. Packages and sources from an earlier run are used again.
pub fn run(options: &DemoOptions) -> Result<()> {
    let started = Instant::now();
    steps::use_build_profile(BuildProfile::Demo);
    packages::ensure_packages_for(PackagePurpose::Demo)?;
    steps::log_headline("Building trodden");
    let programs = steps::build_trodden()?;
    steps::log_headline("Fetching the sources of bzip2");
    let folder = steps::target_folder().join("demo-files");
    let sources = Corpus::in_folder(&folder).fetch_source(DEMO_PACKAGE)?;
    let path = steps::search_path_with(&[programs])?;
    let in_sources = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(&sources).env("PATH", &path);
        command
    };

    steps::log_headline("Building bzip2 with path counting");
    steps::run(in_sources("make").arg("clean"))?;
    // The Makefile calls gcc, which `trodden build` also replaces by trodden's compiler.
    steps::run(in_sources("trodden").args(["build", "--", "make", &format!("-j{}", steps::job_count()), "bzip2"]))?;

    steps::log_headline("Running bzip2");
    steps::run(in_sources("trodden").args(["record", "--", "./bzip2", "--keep", "--force"]).args(DEMO_INPUT_FILES))?;
    check_output(&in_sources, &sources)?;

    steps::log_headline("The paths it took");
    steps::run(in_sources("trodden").arg("report"))?;
    let page = folder.join("report.html");
    steps::run(in_sources("trodden").args(["report", "--html"]).arg(&page))?;
    if options.picture {
        steps::log_headline("The picture of the report page");
        take_picture(&in_sources, &sources, &folder)?;
    }
    print_next_steps(&page, &sources, started);
    Ok(())
}

fn take_picture(in_sources: &dyn Fn(&str) -> Command, sources: &Path, folder: &Path) -> Result<()> {
    let page = folder.join("picture.html");
    steps::run(in_sources("trodden").args(["record", "--", "./bzip2", "--keep", "--force", "sample3.ref"]))?;
    steps::run(in_sources("trodden").args(["report", "--html"]).arg(&page))?;
    let text = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    // The path of the sources on this machine must not appear in the picture.
    let text = text.replace(&*sources.to_string_lossy(), "bzip2-1.0.8");
    std::fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1200,660"]);
    browser.arg(format!("--user-data-dir={}", folder.join("browser").display())).arg("--virtual-time-budget=5000");
    browser.arg(format!("--screenshot={}", steps::checkout_root().join(PICTURE_FILE).display())).arg(format!("file://{}", page.display()));
    steps::run(&mut browser)
}

/// Checks that the instrumented program works: each input file must be equal to the result of compressing and then decompressing it.
fn check_output(in_sources: &dyn Fn(&str) -> Command, sources: &Path) -> Result<()> {
    for name in DEMO_INPUT_FILES {
        let unpacked =
            in_sources("./bzip2").args(["--decompress", "--stdout", &format!("{name}.bz2")]).output().context("cannot run bzip2")?;
        let original = std::fs::read(sources.join(name)).with_context(|| format!("cannot read {name}"))?;
        anyhow::ensure!(unpacked.stdout == original, "the instrumented bzip2 is broken: {name}.bz2 does not decompress to {name}");
    }
    Ok(())
}

fn print_next_steps(page: &Path, sources: &Path, started: Instant) {
    println!("\nDone in {:.1} s. HTML report: {}", started.elapsed().as_secs_f64(), page.display());
    println!("To continue: PATH={}:$PATH; cd {}", steps::programs_folder().display(), sources.display());
    println!("  trodden annotate mainGtU       show the hottest path of a function in its source");
    println!("  trodden report --help          see what else a report can show");
    println!("  trodden info ./bzip2           show what is instrumented in the program");
    println!("This build of trodden is not optimised. The README says how to install trodden.");
}
