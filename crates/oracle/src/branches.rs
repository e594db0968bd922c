//! Compares paths reconstructed from branches with counted paths. A program is built twice from the same sources, once with counters and
//! once with addresses only; single-stepping ([`crate::step`]) records the branches of the second build.
//!
//! The trace of all branches must give the same value for every counter. Windows of branches give estimates, whose overlap with the counts
//! is measured.

use crate::check::{CheckBuild, CheckVariant};
use crate::counts::{UnitCounts, counts_of};
use crate::error::OracleError;
use crate::random::RandomLanguage;
use crate::step::{record, sample_windows};
use crate::subject::{OracleSubject, SubjectRun};
use crate::tools::{OracleTools, run as run_tool};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use trodden_profile::Profile;
use trodden_trace::{BranchImport, import};

/// How windows of branches are sampled.
#[derive(Clone, Copy, Debug)]
pub struct BranchSampler {
    /// Number of branches in a window.
    pub size: usize,
    /// Average number of branches that are skipped between windows.
    pub interval: u64,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, Default)]
pub struct BranchFindings {
    /// Number of functions that were executed.
    pub executed: usize,
    /// Functions with block sequences that could not be decoded, each with the number of such sequences. These functions are not compared.
    pub uncertain: Vec<(String, u64)>,
    /// Functions whose addresses are unknown, each with the reason. These functions are not compared.
    pub without_addresses: Vec<String>,
    /// Descriptions of the counters that differ in the compared functions.
    pub differences: Vec<String>,
    /// For each sampler, the overlap of its estimates with the counts, from 0 to 1. It is 1 if every path has the same share in both.
    pub overlaps: Vec<f64>,
    /// Number of branches that do not start where the previous branch leads.
    pub broken: u64,
}

/// Builds a program both ways and compares the paths. `kind` is clang's option for linking the build without counters: `-static` or
/// `-static-pie`.
///
/// # Errors
/// The program cannot be built, run or traced.
pub fn check(
    sources: &[PathBuf],
    language: RandomLanguage,
    variant: &CheckVariant,
    kind: &str,
    samplers: &[BranchSampler],
    tools: &OracleTools,
    folder: &Path,
) -> Result<BranchFindings, OracleError> {
    // Settings of the counters' storage are invalid for a build without counters.
    let is_common = |setting: &&str| !["table-slots=", "array-paths=", "threads="].iter().any(|key| setting.starts_with(key));
    let parameters = variant.parameters.split_whitespace().filter(is_common).collect::<Vec<_>>().join(" ");
    let variant = &CheckVariant { parameters, ..variant.clone() };
    let counting = CheckBuild { language, variant, tools, folder };
    let counted = folder.join("counted");
    counting.link(&counting.compile_objects(sources, true)?, &counted, true)?;
    let subject = OracleSubject::read(&counted, counting.link_command_of_units(&counted)?, folder)?;
    let run = SubjectRun { place: folder.join("subject"), arguments: vec![], input: None, directory: folder.to_owned(), limit_s: 60 };
    let (expected, counts) = subject.count_paths(&run, &[])?;
    let addresses = CheckVariant { parameters: format!("{} observe=addresses", variant.parameters), ..variant.clone() };
    let marking = CheckBuild { variant: &addresses, ..counting };
    let probed = folder.join("addresses");
    let objects = marking.compile_objects(sources, true)?;
    // A static link saves steps: otherwise, most steps would be those of the dynamic linker.
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
        let text = sample_windows(&trace, sampler.size, sampler.interval);
        let sampled = read(text.as_bytes())?.profile;
        findings.overlaps.push(profile_overlap(&subject, &counts, &sampled));
        if sampler.interval == 0 {
            findings.differences.extend(list_estimates_above_bound(&subject, &counts, &sampled, sampler.size as u64));
        }
    }
    Ok(findings)
}

/// Compares the counts of a program's counters with those reconstructed from a trace. Both programs must have their units in the same
/// order.
pub fn compare(subject: &OracleSubject, counts: &[UnitCounts], traced: &BranchImport) -> BranchFindings {
    let losses = traced.profile.sampling.as_ref().and_then(|s| s.branches()).map_or_else(Default::default, |s| s.losses);
    let (uncertain, without_addresses) = (traced.uncertain.clone(), traced.functions_without_addresses.clone());
    let mut findings = BranchFindings { uncertain, without_addresses, broken: losses.broken, ..BranchFindings::default() };
    for ((unit, counted), other) in subject.units.iter().zip(counts).zip(&traced.profile.images[0].units) {
        for function in &unit.map.functions {
            let name = function.plain_name();
            let expected: BTreeMap<u64, u64> = counts_of(function, counted).into_iter().collect();
            findings.executed += usize::from(!expected.is_empty());
            let is_unaddressed = findings.without_addresses.iter().any(|f| f.contains(&format!("`{name}`")));
            if is_unaddressed || findings.uncertain.iter().any(|(f, _)| f == name) {
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

/// Finds counters whose estimate, from windows taken after every branch, exceeds an upper bound. Each execution of a path adds `size` to
/// the estimate if the path fits into a window, and nothing otherwise. The bound allows one more execution, because windows at the start of
/// the trace are shorter.
fn list_estimates_above_bound(subject: &OracleSubject, counts: &[UnitCounts], sampled: &Profile, size: u64) -> Vec<String> {
    let mut found = Vec::new();
    for ((unit, counted), other) in subject.units.iter().zip(counts).zip(&sampled.images[0].units) {
        for (counter, estimate) in &other.counts.executions {
            let limit = size * (counted.get(counter).copied().unwrap_or(0) + 1);
            if *estimate > limit {
                let source = &unit.map.source;
                found.push(format!("{source} counter {counter}: estimated {estimate} in windows of {size}, expected at most {limit}"));
            }
        }
    }
    found
}

/// Returns the overlap of two distributions: the sum over all paths of the smaller of the path's two shares of executions.
fn profile_overlap(subject: &OracleSubject, counts: &[UnitCounts], sampled: &Profile) -> f64 {
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
