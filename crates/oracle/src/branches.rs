//! Paths from branches, compared with counted ones: a program is built twice from the same sources, once with counters
//! and once with addresses only, and the branches of the second are recorded step by step ([`crate::step`]).
//!
//! From the trace of all branches the same counts must come, counter by counter. From windows of branches come
//! estimates, of which it is asked how much they overlap with the counts.

use crate::check::{Build, Variant};
use crate::counts::{UnitCounts, counts_of};
use crate::error::Error;
use crate::random::RandomLanguage;
use crate::step::{record, windows};
use crate::subject::{Subject, SubjectRun};
use crate::tools::{Toolkit, run as run_tool};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use trodden_profile::Profile;
use trodden_trace::{BranchImport, import};

/// How windows are taken.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Branches in a window.
    pub size: usize,
    /// Branches from one window to the next, on average.
    pub apart: u64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct BranchFindings {
    /// Functions that were executed.
    pub executed: usize,
    /// Functions of which sequences of blocks were not understood; they are not compared.
    pub uncertain: Vec<(String, u64)>,
    /// Functions without addresses; not compared.
    pub without: Vec<String>,
    /// Counters that differ, of all other functions.
    pub differences: Vec<String>,
    /// For each sampler the overlap of its estimates with the counts: 1 if all paths have equal shares.
    pub overlaps: Vec<f64>,
    /// Branches that did not follow the one before.
    pub broken: u64,
}

/// Builds a program in both ways and compares. `kind` is clang's option for how the second is linked: `-static`, `-static-pie`.
///
/// # Errors
/// It could not be checked.
pub fn check(
    sources: &[PathBuf],
    language: RandomLanguage,
    variant: &Variant,
    kind: &str,
    samplers: &[Sampler],
    tools: &Toolkit,
    folder: &Path,
) -> Result<BranchFindings, Error> {
    // What says where counts go has no meaning where nothing is counted.
    let is_common = |setting: &&str| !["table-slots=", "array-paths=", "threads="].iter().any(|key| setting.starts_with(key));
    let parameters = variant.parameters.split_whitespace().filter(is_common).collect::<Vec<_>>().join(" ");
    let variant = &Variant { parameters, ..variant.clone() };
    let counting = Build { language, variant, tools, folder };
    let counted = folder.join("counted");
    counting.link(&counting.objects(sources, true)?, &counted, true)?;
    let subject = Subject::read(&counted, counting.link_of_units(&counted)?, folder)?;
    let run = SubjectRun { place: folder.join("subject"), arguments: vec![], input: None, directory: folder.to_owned(), limit_s: 60 };
    let (expected, counts) = subject.count_paths(&run, &[])?;
    let words = Variant { parameters: format!("{} observe=addresses", variant.parameters), ..variant.clone() };
    let marking = Build { variant: &words, ..counting };
    let probed = folder.join("addresses");
    let objects = marking.objects(sources, true)?;
    // Without the dynamic linker, which would take most of the steps.
    run_tool(tools.command(marking.driver()).args(&objects).args([kind, "-pthread", "-o"]).arg(&probed))?;
    let mut trace = Vec::new();
    let outcome = record(&probed, &[], Stdio::null(), folder, &mut trace)?;
    let read = |text: &[u8]| import(text, Path::new("branches"), std::slice::from_ref(&probed), None, trodden_profile::Run::default());
    let mut findings = compare(&subject, &counts, &read(&trace)?);
    if outcome != expected {
        findings.differences.push(format!("the program behaves differently: {outcome:?} instead of {expected:?}"));
    }
    let trace = String::from_utf8_lossy(&trace);
    for sampler in samplers {
        let text = windows(&trace, sampler.size, sampler.apart);
        let sampled = read(text.as_bytes())?.profile;
        findings.overlaps.push(overlap(&subject, &counts, &sampled));
        if sampler.apart == 0 {
            findings.differences.extend(excess(&subject, &counts, &sampled, sampler.size as u64));
        }
    }
    Ok(findings)
}

/// Compares counts with those of a trace. Units stand in the same order in both programs.
pub fn compare(subject: &Subject, counts: &[UnitCounts], traced: &BranchImport) -> BranchFindings {
    let losses = traced.profile.sampling.as_ref().and_then(|s| s.branches()).map_or_else(Default::default, |s| s.losses);
    let (uncertain, without) = (traced.uncertain.clone(), traced.without.clone());
    let mut findings = BranchFindings { uncertain, without, broken: losses.broken, ..BranchFindings::default() };
    for ((unit, counted), other) in subject.units.iter().zip(counts).zip(&traced.profile.images[0].units) {
        for function in &unit.map.functions {
            let name = function.plain_name();
            let expected: BTreeMap<u64, u64> = counts_of(function, counted).into_iter().collect();
            findings.executed += usize::from(!expected.is_empty());
            if findings.uncertain.iter().any(|(f, _)| f == name) || findings.without.iter().any(|f| f.contains(&format!("`{name}`"))) {
                continue;
            }
            let namesake = other.map.functions.iter().find(|f| f.name == function.name && f.shape == function.shape);
            let found: BTreeMap<u64, u64> = namesake.map(|f| other.counts_of(f).collect()).unwrap_or_default();
            let ids: std::collections::BTreeSet<&u64> = expected.keys().chain(found.keys()).collect();
            let number = |of: &BTreeMap<u64, u64>, id: &u64| of.get(id).copied().unwrap_or(0);
            let different = ids.into_iter().filter(|id| number(&expected, id) != number(&found, id));
            findings
                .differences
                .extend(different.map(|id| format!("{name} path {id}: counted {}, traced {}", number(&expected, id), number(&found, id))));
        }
    }
    findings
}

/// With a window behind every branch, each execution of a path that fits a window counts as often as a window has
/// branches, whatever the path's length; others do not count at all. So no estimate may be above that. Windows at the
/// very beginning are shorter, which the slack is for.
fn excess(subject: &Subject, counts: &[UnitCounts], sampled: &Profile, size: u64) -> Vec<String> {
    let mut found = Vec::new();
    for ((unit, counted), other) in subject.units.iter().zip(counts).zip(&sampled.images[0].units) {
        for (counter, estimate) in &other.counts.executions {
            let most = size * (counted.get(counter).copied().unwrap_or(0) + 1);
            if *estimate > most {
                found.push(format!("{} counter {counter}: estimated {estimate} in windows of {size}, at most {most}", unit.map.source));
            }
        }
    }
    found
}

/// Sum over all paths of the smaller of both shares of all executions.
fn overlap(subject: &Subject, counts: &[UnitCounts], sampled: &Profile) -> f64 {
    let mut weights: Vec<(f64, f64)> = Vec::new();
    for ((unit, counted), other) in subject.units.iter().zip(counts).zip(&sampled.images[0].units) {
        let estimates: BTreeMap<u64, u64> = other.counts.executions.iter().copied().collect();
        let ids: std::collections::BTreeSet<u64> = counted.keys().chain(estimates.keys()).copied().collect();
        let of = |n: Option<&u64>| n.copied().unwrap_or(0) as f64;
        weights.extend(ids.iter().map(|id| (of(counted.get(id)), of(estimates.get(id)))));
        debug_assert_eq!(unit.map.counters, other.map.counters);
    }
    let (all, sampled) = weights.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    weights.iter().map(|(x, y)| (x / f64::max(all, 1.0)).min(y / f64::max(sampled, 1.0))).sum()
}
