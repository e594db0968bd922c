//! `trodden-lab experiment pgo --short`: what `trodden pgo` makes against the build by the compiler's own edge profile, by counts
//! that a busy machine does not change.
//!
//! Of the short run, which both were trained with: instructions, jumps taken, conditional branches and those that a
//! simple predictor gets wrong. Half as many builds as the full comparison, and no times.

use super::{BUILDS, branches, by_clang, by_trodden, instructions, use_profile};
use crate::experiments::bench::instructions::Counter;
use anyhow::{Context, Result, ensure};
use std::fs;
use trodden_corpus::Variant;
use trodden_corpus::{Corpus, Input};

const PLAIN: &str = BUILDS[0];
const CLANG: &str = BUILDS[1];
const PATHS: &str = BUILDS[4];
const HEAD: &str = "\
           instructions to plain     of `trodden pgo` to the edge-guided build
program    edge-guided  trodden pgo  instructions  jumps taken  branches  mispredicted  what was changed";

/// Builds, runs, prints; a program that fails is reported and does not end the comparison.
///
/// # Errors
/// There is no counter here, or programs failed.
pub fn run(corpus: &Corpus, programs: &[String]) -> Result<()> {
    let counter = Counter::available().context("neither perf nor valgrind counts instructions here: install valgrind")?;
    println!("{HEAD}");
    let mut failed = Vec::new();
    for program in programs {
        match row(corpus, program, counter) {
            Ok(line) => println!("{line}"),
            Err(error) => {
                println!("{program:<10} failed: {error:#}");
                failed.push(program.as_str());
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn row(corpus: &Corpus, program: &str, counter: Counter) -> Result<String> {
    corpus.fetch(program)?;
    corpus.inputs(program)?;
    corpus.build_once(program, &Variant::plain())?;
    let work = corpus.folder().join("pgo").join(program);
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let clang = by_clang(corpus, program, &work)?;
    use_profile(corpus, program, &clang, CLANG)?;
    let changed = by_trodden(corpus, program, PATHS, "")?;
    let sum = |build: &str| corpus.run_as(build, program, Input::Ref, "", &[]);
    ensure!(sum(PLAIN)? == sum(PATHS)?, "what `trodden pgo` made prints something else than the plain build");
    let count = |build: &str| instructions(corpus, program, build, counter).map(|n| n as f64);
    let (plain, clang, paths) = (count(PLAIN)?, count(CLANG)?, count(PATHS)?);
    // The stripped copies that instructions were counted of.
    let jumps = |build: &str| branches::of_run(corpus, program, &format!("{build}-stripped"));
    let (before, after) = (jumps(CLANG)?, jumps(PATHS)?);
    let ratio = |of: fn(&branches::Branches) -> u64| of(&after) as f64 / of(&before) as f64;
    Ok(format!(
        "{program:<10} {:<12.4} {:<12.4} {:<13.4} {:<12.4} {:<9.4} {:<13.4} {}",
        clang / plain,
        paths / plain,
        paths / clang,
        ratio(|b| b.taken),
        ratio(|b| b.conditional),
        ratio(|b| b.mispredicted),
        if changed.is_empty() { "nothing".to_owned() } else { changed.join("; ") }
    ))
}
