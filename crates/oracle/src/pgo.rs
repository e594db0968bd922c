//! The third oracle: LLVM's own edge profile of the same bitcode.
//!
//! `pgo-instr-gen` counts on chords of its own spanning tree and `pgo-instr-use` derives every block and edge from
//! that; its dump of raw counts is exact (branch weights in the code would be scaled to 32 bits). What LLVM infers is
//! wrong where a call does not come back, so functions with unfinished paths are left to the block counters, and
//! listed.
//!
//! LLVM splits critical edges and the targets of indirect branches before it counts. trodden's probes are inserted after
//! that, so both count in one run of one program, and blocks are known by the names they had been given before.

use crate::counts::{UnitCounts, counts_of, decode};
use crate::error::Error;
use crate::probes::without_memory_promise;
use crate::subject::{Subject, SubjectOutcome, SubjectRun, SubjectUnit};
use crate::text::TextModule;
use crate::tools::{Toolkit, run};
use crate::verdict::CountVerdict;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::FunctionPaths;
use trodden_unit::{BlockKind, FunctionMap};

/// What keeps the profile to edges, and exact when threads share counters.
const OPTIONS: [&str; 3] = ["-disable-vp", "-pgo-instr-select=false", "-instrprof-atomic-counter-update-all"];

/// What LLVM says of a function: counts of its blocks by label, and of its edges.
#[derive(Debug, Default)]
struct Dump {
    blocks: HashMap<String, u64>,
    edges: HashMap<(String, String), u64>,
}

/// What LLVM says of a unit.
struct ReadBack {
    dumps: HashMap<String, Dump>,
    /// Functions with a profile, by the names that profiles use.
    known: HashSet<String>,
    /// Functions whose profile does not fit.
    refused: HashSet<String>,
    /// For each function its labels, in order.
    labels: HashMap<String, Vec<String>>,
}

/// Makes the program with LLVM's counters and, after them, trodden's probes, runs it once, and compares every function.
/// `left_by_tail_call` names functions that a tail call left for good, see [`crate::probes`]; LLVM is wrong there too.
///
/// # Errors
/// A tool fails, or the program cannot be run.
pub fn check(
    subject: &Subject,
    tools: &Toolkit,
    run: &SubjectRun,
    left_by_tail_call: &[String],
) -> Result<(SubjectOutcome, CountVerdict), Error> {
    let both = subject.again(&build(subject, tools)?)?;
    let raw = subject.folder.join("pgo.profraw");
    let (outcome, paths) = both.count_paths(run, &[("LLVM_PROFILE_FILE", &raw)])?;
    if fs::metadata(&raw).map_or(0, |m| m.len()) == 0 {
        let verdict = CountVerdict {
            not_checked: vec!["all: the program ended in a way that LLVM writes no profile".into()],
            ..CountVerdict::default()
        };
        return Ok((outcome, verdict));
    }
    let profile = merge(subject, tools, &raw)?;
    let known = functions_in(tools, &profile)?;
    let read = subject.units.iter().map(|unit| read_back(subject, unit, tools, &profile, &known)).collect::<Result<Vec<_>, _>>()?;
    let mut verdict = CountVerdict::default();
    let kept = linked_copies(&both, &paths);
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

/// Which unit's copy of a function is in the program, for functions that several units may define: the one that counted.
fn linked_copies<'a>(subject: &'a Subject, paths: &[UnitCounts]) -> HashMap<&'a str, usize> {
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

fn build(subject: &Subject, tools: &Toolkit) -> Result<PathBuf, Error> {
    let mut objects = HashMap::new();
    for unit in &subject.units {
        let (named, counting, object) = (named(subject, unit), counting(subject, unit), subject.file(unit, "pgo", "o"));
        fs::write(&counting, own_name(&tools.text(&unit.bitcode)?, unit)).map_err(Error::file(&counting))?;
        run(tools.command("opt").args(["-passes=function(instnamer)", "-S"]).arg(&counting).arg("-o").arg(&named))?;
        run(tools.command("opt").args(OPTIONS).args(["-passes=pgo-instr-gen,instrprof", "-S"]).arg(&named).arg("-o").arg(&counting))?;
        subject.object(tools, unit, &counting, &object, true)?;
        objects.insert(unit.identity, object);
    }
    let program = subject.folder.join("pgo");
    let more = ["-fprofile-generate".into(), tools.runtime.clone().into(), writer(subject, tools)?.into()];
    subject.link.make(tools, &objects, &more, &program)?;
    Ok(program)
}

/// LLVM writes its profile when the program begins to end, and misses what destructors of static objects do. This
/// writes it again at the very end.
const WRITER: &str = "\
#include <stdlib.h>
#include <unistd.h>
int __llvm_profile_write_file(void);
/* LLVM's runtime comes behind the C library where a link names its libraries itself, and needs this. */
int (*const __oracle_atexit)(void (*)(void)) = atexit;
__attribute__((destructor(101))) static void write_at_the_end(void) {
    const char *name = getenv(\"LLVM_PROFILE_FILE\");
    if (name && truncate(name, 0) == 0) __llvm_profile_write_file();
}
";

fn writer(subject: &Subject, tools: &Toolkit) -> Result<PathBuf, Error> {
    let (source, object) = (subject.folder.join("writer.c"), subject.folder.join("writer.o"));
    fs::write(&source, WRITER).map_err(Error::file(&source))?;
    run(tools.command("clang").args(["-O2", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object))?;
    Ok(object)
}

fn merge(subject: &Subject, tools: &Toolkit, raw: &Path) -> Result<PathBuf, Error> {
    let merged = subject.folder.join("pgo.profdata");
    run(tools.command("llvm-profdata").arg("merge").arg(raw).arg("-o").arg(&merged))?;
    Ok(merged)
}

fn counting(subject: &Subject, unit: &SubjectUnit) -> PathBuf {
    subject.file(unit, "pgo", "ll")
}

fn named(subject: &Subject, unit: &SubjectUnit) -> PathBuf {
    subject.file(unit, "named", "ll")
}

/// Gives the unit a source name that no other has: local functions are distinguished by it. Functions that are not to be
/// optimised would not get names for their blocks.
fn own_name(text: &str, unit: &SubjectUnit) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.starts_with("source_filename = ") {
            true => out.push_str(&format!("source_filename = \"{}\"", unit.identity)),
            false => out.push_str(&without_memory_promise(line).replacen(" optnone ", " ", usize::from(line.starts_with("attributes #")))),
        }
        out.push('\n');
    }
    out
}

fn functions_in(tools: &Toolkit, profile: &Path) -> Result<HashSet<String>, Error> {
    let shown = run(tools.command("llvm-profdata").args(["show", "--all-functions"]).arg(profile))?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let name = |line: &str| line.strip_prefix("  ").and_then(|l| l.strip_suffix(':')).filter(|l| !l.starts_with(' ')).map(str::to_owned);
    Ok(text.lines().filter_map(name).collect())
}

fn read_back(subject: &Subject, unit: &SubjectUnit, tools: &Toolkit, profile: &Path, known: &HashSet<String>) -> Result<ReadBack, Error> {
    let named = named(subject, unit);
    let mut opt = tools.command("opt");
    opt.args(OPTIONS).args(["-passes=pgo-instr-use", "-pgo-view-raw-counts=text", "-disable-output"]);
    let mut file = std::ffi::OsString::from("-pgo-test-profile-file=");
    file.push(profile);
    let output = run(opt.arg(file).arg(&named))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let counting = counting(subject, unit);
    let text = fs::read_to_string(&counting).map_err(Error::file(&counting))?;
    let labels = TextModule::read(&text)
        .functions
        .into_iter()
        .map(|f| (f.name, f.blocks.into_iter().map(|b| b.label.unwrap_or_default()).collect()));
    let known = known.iter().map(|n| n.strip_prefix(&format!("{};", unit.identity)).unwrap_or(n).to_owned()).collect();
    let refused =
        said.lines().filter(|l| l.contains("warning") && l.contains("mismatch")).flat_map(|l| l.split(' ').map(str::to_owned)).collect();
    Ok(ReadBack { dumps: dumps(&said), known, refused, labels: labels.collect() })
}

/// Reads the dumps of all functions.
fn dumps(said: &str) -> HashMap<String, Dump> {
    let mut all = HashMap::new();
    for part in said.split("pgo-view-raw-counts: ").skip(1) {
        let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
        all.insert(name.to_owned(), dump(rest));
    }
    all
}

fn dump(text: &str) -> Dump {
    let mut names = HashMap::new();
    let mut blocks = HashMap::new();
    let mut edges: Vec<(u32, u32, u64)> = Vec::new();
    for line in text.lines() {
        if let Some((name, rest)) = line.strip_prefix("  BB: ").and_then(|l| l.rsplit_once("  Index=")) {
            let index: u32 = rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX);
            names.insert(index, name.to_owned());
            if let Some(count) = count_in(rest) {
                blocks.insert(index, count);
            }
        } else if let Some((from, rest)) = line.strip_prefix("  Edge ").and_then(|l| l.split_once(": ")?.1.split_once("-->")) {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if let (Ok(from), Ok(to), Some(count)) = (from.parse(), rest[..digits].parse(), count_in(rest)) {
                edges.push((from, to, count));
            }
        }
    }
    assemble(&names, &blocks, &edges)
}

fn count_in(text: &str) -> Option<u64> {
    text.split_once("Count=")?.1.trim().parse().ok()
}

fn assemble(names: &HashMap<u32, String>, blocks: &HashMap<u32, u64>, edges: &[(u32, u32, u64)]) -> Dump {
    let blocks = blocks.iter().filter_map(|(i, count)| Some((names.get(i)?.clone(), *count))).collect();
    let mut sums = HashMap::new();
    for (from, to, count) in edges {
        if let (Some(from), Some(to)) = (names.get(from), names.get(to)) {
            *sums.entry((from.clone(), to.clone())).or_default() += count;
        }
    }
    Dump { blocks, edges: sums }
}

fn verify_function(
    unit: &SubjectUnit,
    function: &FunctionMap,
    paths: &FunctionPaths,
    read: &ReadBack,
    left: bool,
    verdict: &mut CountVerdict,
) {
    let executed = paths.blocks.iter().any(|c| *c > 0);
    if let Some(reason) = why_not(function, paths, read, left) {
        if executed {
            let list = if paths.all_finished() { &mut verdict.not_checked } else { &mut verdict.unfinished };
            list.push(format!("{} ({}): {reason}", function.name, unit.map.source));
        }
        return;
    }
    verdict.functions += 1;
    verdict.executed += usize::from(executed);
    let nothing = Dump::default();
    let dump = read.dumps.get(&function.name).unwrap_or(&nothing);
    let labels = &read.labels[&function.name];
    let name = |node: u32| &labels[node as usize];
    for node in 0..labels.len() as u32 {
        let oracle = dump.blocks.get(name(node)).copied().unwrap_or(0);
        verdict.compare(&function.name, || format!("block {node}"), paths.blocks[node as usize], oracle);
    }
    for (edge, flow) in function.edges.iter().enumerate().filter(|(_, e)| e.to != function.exit()) {
        if function.blocks[flow.from.index()].kind == BlockKind::Code && function.blocks[flow.to.index()].kind == BlockKind::Code {
            let oracle = dump.edges.get(&(name(flow.from.0).clone(), name(flow.to.0).clone())).copied().unwrap_or(0);
            verdict.compare(&function.name, || format!("edge {edge}"), paths.edges[edge], oracle);
        }
    }
}

/// Why LLVM cannot check a function.
fn why_not(function: &FunctionMap, paths: &FunctionPaths, read: &ReadBack, left_by_tail_call: bool) -> Option<String> {
    if !paths.all_finished() {
        let count: i64 = paths.unfinished.iter().map(|u| u.count).chain(paths.lost.iter().map(|l| l.count)).sum();
        return Some(format!("{count} unfinished paths"));
    }
    if function.blocks.iter().any(|b| b.kind == BlockKind::Continuation) {
        return Some("a call in it returns twice".into());
    }
    if left_by_tail_call {
        return Some("it was left for good by a tail call".into());
    }
    let name = function.name.as_str();
    if read.refused.contains(name) {
        return Some("LLVM refuses its own profile of it".into());
    }
    if read.dumps.contains_key(name) || read.known.contains(name) {
        return None;
    }
    Some("LLVM does not profile it".into())
}
