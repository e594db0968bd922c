//! Counts the procedures of corpus programs that P3 considers profitable, like table 1 of the paper.

use super::CopiesOptions;
use super::table::{CopiesResults, ProfitableRow};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;
use trodden_command::laboratory::folders;
use trodden_corpus::{Corpus, CorpusVariant};
use trodden_flow::part::Measure;
use trodden_partition::{PartitionOptions, PartitionStrategy};
use trodden_profile::procedures::{add_call_sites, procedures};
use trodden_recording::copies::make::CopiedProgram;

pub fn count_profitable_procedures(corpus: &Corpus, name: &str, options: &CopiesOptions, results: &mut CopiesResults) -> Result<()> {
    corpus.fetch(name)?;
    corpus.build_once(name, &CorpusVariant::trodden())?;
    let path = corpus.program(name, &CorpusVariant::trodden());
    let program = CopiedProgram::read(&path, folders().units.as_ref())?;
    let units = program.units();
    let mut all = procedures(units, None).with_context(|| path.display().to_string())?;
    add_call_sites(units, &mut all);
    let sources: BTreeSet<&str> = units.iter().flat_map(|(_, map)| &map.files).map(String::as_str).collect();
    let lines =
        sources.iter().filter(|file| !is_system_file(file)).map(|file| count_nonblank_lines(Path::new(file))).sum::<Result<u64>>()?;
    for &copies in &options.copies {
        let plan = program.divide(&all, PartitionStrategy::P3, &PartitionOptions::new(copies as usize, Measure::All))?;
        let (procedures, profitable) = (all.len() as u64, plan.profitable as u64);
        results.add_profitable(ProfitableRow { program: name.to_owned(), copies, lines, procedures, profitable })?;
    }
    Ok(())
}

/// Returns true if a source file belongs to the compiler or to the system's libraries.
fn is_system_file(file: &str) -> bool {
    file.starts_with("/usr/") || file.is_empty()
}

/// Counts the lines that are not blank.
fn count_nonblank_lines(file: &Path) -> Result<u64> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}, a source file of the program", file.display()))?;
    Ok(text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count() as u64)
}
