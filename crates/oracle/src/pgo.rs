//! The third oracle: LLVM's edge profile of the same bitcode.
//!
//! `pgo-instr-gen` counts the chords of a spanning tree, and `pgo-instr-use` derives the counts of all blocks and edges from them. Its dump
//! of raw counts is exact, unlike branch weights, which are scaled to 32 bits. The derived counts are wrong if a call does not return, so
//! functions with unfinished paths are only listed; the block counters check these functions. LLVM splits critical edges and the targets of
//! indirect branches before it instruments. trodden's probes are inserted after the split, so that both count in the same run; blocks are
//! matched by names that they got before.

use crate::counts::{UnitCounts, counts_of, decode};
use crate::error::OracleError;
use crate::probes::strip_memory_attribute;
use crate::subject::{OracleSubject, SubjectOutcome, SubjectRun, SubjectUnit};
use crate::text::TextModule;
use crate::tools::{OracleTools, run};
use crate::verdict::CountVerdict;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::FunctionPaths;
use trodden_unit::{BlockKind, FunctionMap};

/// Options that restrict the profile to edge counts, and make the counts exact when threads share counters.
const EDGE_PROFILE_OPTIONS: [&str; 3] = ["-disable-vp", "-pgo-instr-select=false", "-instrprof-atomic-counter-update-all"];

/// LLVM's counts for a function: of blocks by label, and of edges by pair of labels.
#[derive(Debug, Default)]
struct LlvmCountDump {
    blocks: HashMap<String, u64>,
    edges: HashMap<(String, String), u64>,
}

struct UnitProfileDump {
    dumps: HashMap<String, LlvmCountDump>,
    /// Functions that have a profile.
    profiled: HashSet<String>,
    /// Functions whose profile LLVM rejects as a mismatch.
    rejected: HashSet<String>,
    /// Labels of each function's blocks, in the order of the text.
    labels: HashMap<String, Vec<String>>,
}

/// Builds the program with LLVM's counters and trodden's probes, runs it once, and compares the counts of every function.
/// `left_by_tail_call` lists functions with a tail call that did not return (see [`crate::probes`]), for which LLVM's counts are wrong.
pub fn check(
    subject: &OracleSubject,
    tools: &OracleTools,
    run: &SubjectRun,
    left_by_tail_call: &[String],
) -> Result<(SubjectOutcome, CountVerdict), OracleError> {
    let both = subject.reread_program(&build_program(subject, tools)?)?;
    let raw = subject.folder.join("pgo.profraw");
    let (outcome, paths) = both.count_paths(run, &[("LLVM_PROFILE_FILE", &raw)])?;
    if fs::metadata(&raw).map_or(0, |m| m.len()) == 0 {
        let verdict = CountVerdict {
            not_checked: vec!["all: LLVM wrote no profile because of the way the program ended".into()],
            ..CountVerdict::default()
        };
        return Ok((outcome, verdict));
    }
    let profile = merge_profile(subject, tools, &raw)?;
    let profiled = profiled_functions(tools, &profile)?;
    let read = subject.units.iter().map(|unit| dump_unit(subject, unit, tools, &profile, &profiled)).collect::<Result<Vec<_>, _>>()?;
    let mut verdict = CountVerdict::default();
    let kept = count_linked_copies(&both, &paths);
    for (at, (unit, counted)) in both.units.iter().zip(&paths).enumerate() {
        for function in &unit.map.functions {
            if !function.local && kept.get(function.name.as_str()) != Some(&at) {
                continue;
            }
            let decoded = decode(function, counted)?;
            let by_tail_call = left_by_tail_call.iter().any(|l| l.starts_with(&format!("{} (", function.name)));
            verify_function(&subject.units[at], function, &decoded, &read[at], by_tail_call, &mut verdict);
        }
    }
    Ok((outcome, verdict))
}

/// Finds, for each non-local function, the unit whose copy the linker chose: the unit with counts, or else the first unit.
fn count_linked_copies<'a>(subject: &'a OracleSubject, paths: &[UnitCounts]) -> HashMap<&'a str, usize> {
    let mut kept = HashMap::new();
    for (at, (unit, counted)) in subject.units.iter().zip(paths).enumerate() {
        for function in unit.map.functions.iter().filter(|f| !f.local) {
            let counts = !counts_of(function, counted).is_empty();
            match counts {
                true => kept.insert(function.name.as_str(), at),
                false => Some(*kept.entry(function.name.as_str()).or_insert(at)),
            };
        }
    }
    kept
}

fn build_program(subject: &OracleSubject, tools: &OracleTools) -> Result<PathBuf, OracleError> {
    let mut objects = HashMap::new();
    for unit in &subject.units {
        let (named, counting, object) =
            (named_module_path(subject, unit), counting_module_path(subject, unit), subject.derived_file(unit, "pgo", "o"));
        fs::write(&counting, prepare_module(&tools.disassemble(&unit.bitcode)?, unit)).map_err(OracleError::file(&counting))?;
        run(tools.command("opt").args(["-passes=function(instnamer)", "-S"]).arg(&counting).arg("-o").arg(&named))?;
        run(tools
            .command("opt")
            .args(EDGE_PROFILE_OPTIONS)
            .args(["-passes=pgo-instr-gen,instrprof", "-S"])
            .arg(&named)
            .arg("-o")
            .arg(&counting))?;
        subject.compile_unit(tools, unit, &counting, &object, true)?;
        objects.insert(unit.identity, object);
    }
    let program = subject.folder.join("pgo");
    let more = ["-fprofile-generate".into(), tools.runtime.clone().into(), build_profile_writer(subject, tools)?.into()];
    subject.link.build(tools, &objects, &more, &program)?;
    Ok(program)
}

/// Writes LLVM's profile again in the last destructor, since LLVM writes it before the destructors of static objects run.
const PROFILE_WRITER_SOURCE: &str = "\
#include <stdlib.h>
#include <unistd.h>
int __llvm_profile_write_file(void);
/* LLVM's runtime needs this symbol, and comes after the C library if the link names its libraries itself. */
int (*const __oracle_atexit)(void (*)(void)) = atexit;
__attribute__((destructor(101))) static void write_at_the_end(void) {
    const char *name = getenv(\"LLVM_PROFILE_FILE\");
    if (name && truncate(name, 0) == 0) __llvm_profile_write_file();
}
";

fn build_profile_writer(subject: &OracleSubject, tools: &OracleTools) -> Result<PathBuf, OracleError> {
    let (source, object) = (subject.folder.join("writer.c"), subject.folder.join("writer.o"));
    fs::write(&source, PROFILE_WRITER_SOURCE).map_err(OracleError::file(&source))?;
    run(tools.command("clang").args(["-O2", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object))?;
    Ok(object)
}

fn merge_profile(subject: &OracleSubject, tools: &OracleTools, raw: &Path) -> Result<PathBuf, OracleError> {
    let merged = subject.folder.join("pgo.profdata");
    run(tools.command("llvm-profdata").arg("merge").arg(raw).arg("-o").arg(&merged))?;
    Ok(merged)
}

fn counting_module_path(subject: &OracleSubject, unit: &SubjectUnit) -> PathBuf {
    subject.derived_file(unit, "pgo", "ll")
}

fn named_module_path(subject: &OracleSubject, unit: &SubjectUnit) -> PathBuf {
    subject.derived_file(unit, "named", "ll")
}

/// Gives the module a unique source name, which distinguishes local functions in the profile. Removes `optnone`, since blocks of functions
/// with that attribute would not be named, and `memory(...)`, since counters write memory.
fn prepare_module(text: &str, unit: &SubjectUnit) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.starts_with("source_filename = ") {
            true => out.push_str(&format!("source_filename = \"{}\"", unit.identity)),
            false => out.push_str(&strip_memory_attribute(line).replacen(" optnone ", " ", usize::from(line.starts_with("attributes #")))),
        }
        out.push('\n');
    }
    out
}

fn profiled_functions(tools: &OracleTools, profile: &Path) -> Result<HashSet<String>, OracleError> {
    let shown = run(tools.command("llvm-profdata").args(["show", "--all-functions"]).arg(profile))?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let name = |line: &str| line.strip_prefix("  ").and_then(|l| l.strip_suffix(':')).filter(|l| !l.starts_with(' ')).map(str::to_owned);
    Ok(text.lines().filter_map(name).collect())
}

fn dump_unit(
    subject: &OracleSubject,
    unit: &SubjectUnit,
    tools: &OracleTools,
    profile: &Path,
    profiled: &HashSet<String>,
) -> Result<UnitProfileDump, OracleError> {
    let named = named_module_path(subject, unit);
    let mut opt = tools.command("opt");
    opt.args(EDGE_PROFILE_OPTIONS).args(["-passes=pgo-instr-use", "-pgo-view-raw-counts=text", "-disable-output"]);
    let mut file = std::ffi::OsString::from("-pgo-test-profile-file=");
    file.push(profile);
    let output = run(opt.arg(file).arg(&named))?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let counting = counting_module_path(subject, unit);
    let text = fs::read_to_string(&counting).map_err(OracleError::file(&counting))?;
    let labels = TextModule::read(&text)
        .functions
        .into_iter()
        .map(|f| (f.name, f.blocks.into_iter().map(|b| b.label.unwrap_or_default()).collect()));
    let profiled = profiled.iter().map(|n| n.strip_prefix(&format!("{};", unit.identity)).unwrap_or(n).to_owned()).collect();
    let mismatches = messages.lines().filter(|l| l.contains("warning") && l.contains("mismatch"));
    let rejected = mismatches.flat_map(|l| l.split(' ').map(str::to_owned)).collect();
    Ok(UnitProfileDump { dumps: parse_dumps(&messages), profiled, rejected, labels: labels.collect() })
}

/// Parses the dumps of all functions in the output of `opt`.
fn parse_dumps(messages: &str) -> HashMap<String, LlvmCountDump> {
    let mut all = HashMap::new();
    for part in messages.split("pgo-view-raw-counts: ").skip(1) {
        let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
        all.insert(name.to_owned(), parse_dump(rest));
    }
    all
}

fn parse_dump(text: &str) -> LlvmCountDump {
    let mut names = HashMap::new();
    let mut blocks = HashMap::new();
    let mut edges: Vec<(u32, u32, u64)> = Vec::new();
    for line in text.lines() {
        if let Some((name, rest)) = line.strip_prefix("  BB: ").and_then(|l| l.rsplit_once("  Index=")) {
            let index: u32 = rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX);
            names.insert(index, name.to_owned());
            if let Some(count) = parse_count(rest) {
                blocks.insert(index, count);
            }
        } else if let Some((from, rest)) = line.strip_prefix("  Edge ").and_then(|l| l.split_once(": ")?.1.split_once("-->")) {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if let (Ok(from), Ok(to), Some(count)) = (from.parse(), rest[..digits].parse(), parse_count(rest)) {
                edges.push((from, to, count));
            }
        }
    }
    assemble_dump(&names, &blocks, &edges)
}

fn parse_count(text: &str) -> Option<u64> {
    text.split_once("Count=")?.1.trim().parse().ok()
}

fn assemble_dump(names: &HashMap<u32, String>, blocks: &HashMap<u32, u64>, edges: &[(u32, u32, u64)]) -> LlvmCountDump {
    let blocks = blocks.iter().filter_map(|(i, count)| Some((names.get(i)?.clone(), *count))).collect();
    let mut sums = HashMap::new();
    for (from, to, count) in edges {
        if let (Some(from), Some(to)) = (names.get(from), names.get(to)) {
            *sums.entry((from.clone(), to.clone())).or_default() += count;
        }
    }
    LlvmCountDump { blocks, edges: sums }
}

fn verify_function(
    unit: &SubjectUnit,
    function: &FunctionMap,
    paths: &FunctionPaths,
    read: &UnitProfileDump,
    left_by_tail_call: bool,
    verdict: &mut CountVerdict,
) {
    let executed = paths.blocks.iter().any(|c| *c > 0);
    if let Some(reason) = explain_why_not_compared(function, paths, read, left_by_tail_call) {
        if executed {
            let list = if paths.are_all_paths_finished() { &mut verdict.not_checked } else { &mut verdict.unfinished };
            list.push(format!("{} ({}): {reason}", function.name, unit.map.source));
        }
        return;
    }
    verdict.functions += 1;
    verdict.executed += usize::from(executed);
    let nothing = LlvmCountDump::default();
    let dump = read.dumps.get(&function.name).unwrap_or(&nothing);
    let labels = &read.labels[&function.name];
    let name = |node: u32| &labels[node as usize];
    for node in 0..labels.len() as u32 {
        let oracle = dump.blocks.get(name(node)).copied().unwrap_or(0);
        verdict.compare(&function.name, || format!("block {node}"), paths.blocks[node as usize], oracle);
    }
    for (edge, flow) in function.graph.flow_edges().enumerate().filter(|(_, e)| e.to != function.exit()) {
        if function.blocks[flow.from.index()].kind == BlockKind::Code && function.blocks[flow.to.index()].kind == BlockKind::Code {
            let oracle = dump.edges.get(&(name(flow.from.0).clone(), name(flow.to.0).clone())).copied().unwrap_or(0);
            verdict.compare(&function.name, || format!("edge {edge}"), paths.edges[edge], oracle);
        }
    }
}

/// Returns why LLVM's counts of a function cannot be compared; `None` if they can.
fn explain_why_not_compared(
    function: &FunctionMap,
    paths: &FunctionPaths,
    read: &UnitProfileDump,
    left_by_tail_call: bool,
) -> Option<String> {
    if !paths.are_all_paths_finished() {
        let count: i64 = paths.unfinished.iter().map(|u| u.count).chain(paths.lost.iter().map(|l| l.count)).sum();
        return Some(format!("{count} unfinished path{}", if count == 1 { "" } else { "s" }));
    }
    if function.blocks.iter().any(|b| b.kind == BlockKind::Continuation) {
        return Some("the function contains a call that returns twice".into());
    }
    if left_by_tail_call {
        return Some("the function ended with a tail call that did not return".into());
    }
    let name = function.name.as_str();
    if read.rejected.contains(name) {
        return Some("LLVM rejects the profile that it made of the function".into());
    }
    if read.dumps.contains_key(name) || read.profiled.contains(name) {
        return None;
    }
    Some("LLVM does not profile the function".into())
}
