//! `trodden-lab experiment pgo --short`: compares the program built by `trodden pgo` with the build that uses clang's edge profile, by
//! counts that are stable even on a busy machine.
//!
//! They are instructions, taken jumps, conditional branches and mispredictions of a simple predictor in the short run, on which both builds
//! were trained. This comparison needs half as many builds as the full one, and no timing.

use super::{BUILDS, branches, build_by_trodden_pgo, build_with_profile, count_instructions, profile_by_clang};
use crate::experiments::bench::instructions::InstructionCounter;
use anyhow::{Context, Result, ensure};
use std::fs;
use trodden_corpus::CorpusVariant;
use trodden_corpus::{Corpus, CorpusInput};

const PLAIN_BUILD: &str = BUILDS[0];
const CLANG_BUILD: &str = BUILDS[1];
const PGO_BY_PATHS_BUILD: &str = BUILDS[4];
const TABLE_HEAD: &str = "\
                      instructions vs. plain    `trodden pgo` relative to the edge-guided build
program    edge-guided  trodden pgo  instructions  jumps taken  branches  mispredicted  transformed";

/// Measures the programs, and prints a table. A program that fails is reported, and the others are still measured.
pub fn run(corpus: &Corpus, programs: &[String]) -> Result<()> {
    let counter = InstructionCounter::find_available()
        .context("cannot count instructions, because neither perf nor valgrind works. Install valgrind")?;
    println!("{TABLE_HEAD}");
    let mut failed = Vec::new();
    for program in programs {
        match measure_row(corpus, program, counter) {
            Ok(line) => println!("{line}"),
            Err(error) => {
                println!("{program:<10} failed: {error:#}");
                failed.push(program.as_str());
            }
        }
    }
    ensure!(failed.is_empty(), "these programs failed: {}", failed.join(", "));
    Ok(())
}

fn measure_row(corpus: &Corpus, program: &str, counter: InstructionCounter) -> Result<String> {
    corpus.fetch(program)?;
    corpus.create_inputs(program)?;
    corpus.build_once(program, &CorpusVariant::plain())?;
    let work = corpus.folder().join("pgo").join(program);
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).with_context(|| format!("cannot create folder {}", work.display()))?;
    let clang = profile_by_clang(corpus, program, &work)?;
    build_with_profile(corpus, program, &clang, CLANG_BUILD)?;
    let changed = build_by_trodden_pgo(corpus, program, PGO_BY_PATHS_BUILD, "")?;
    let sum = |build: &str| corpus.run_as(build, program, CorpusInput::Ref, "", &[]);
    ensure!(
        sum(PLAIN_BUILD)? == sum(PGO_BY_PATHS_BUILD)?,
        "the output of the `trodden pgo` build differs from the output of the plain build"
    );
    let count = |build: &str| count_instructions(corpus, program, build, counter).map(|n| n as f64);
    let (plain, clang, paths) = (count(PLAIN_BUILD)?, count(CLANG_BUILD)?, count(PGO_BY_PATHS_BUILD)?);
    // `count_instructions` has created these stripped copies.
    let jumps = |build: &str| branches::count_branches(corpus, program, &format!("{build}-stripped"));
    let (before, after) = (jumps(CLANG_BUILD)?, jumps(PGO_BY_PATHS_BUILD)?);
    let ratio = |of: fn(&branches::BranchCounts) -> u64| of(&after) as f64 / of(&before) as f64;
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
