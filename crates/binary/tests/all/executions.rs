//! Compares graphs with executions: each transfer of control that is executed in the image must be an edge, a call or a return, or be
//! marked as uncertain. QEMU runs system programs (stripped, built by GCC) and test programs one instruction at a time, and logs the
//! addresses.

use crate::common;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use trodden_binary::graph::{BlockEnd, BlockIndex, CallReturns, CallSite, CodeCallee, CodeEdgeKind, GraphObservation, ProgramGraph};
use trodden_binary::instruction::decode_instruction;
use trodden_binary::{Binary, recover};

/// Source and target address of a transfer of control to an instruction of the image. The source is `None` if it is outside the image.
type ExecutedTransfer = (Option<u64>, u64);

/// Runs a program. Returns the different transfers of control to instructions of its image, and the number of instructions that were
/// executed there.
fn execute(binary: &Binary, arguments: &[&str], folder: &Path) -> (HashSet<ExecutedTransfer>, u64) {
    let help = Command::new("qemu-x86_64").arg("--help").output().expect("qemu-x86_64 (package qemu-user)").stdout;
    let by_step = if String::from_utf8_lossy(&help).contains("one-insn-per-tb") { "-one-insn-per-tb" } else { "-singlestep" };
    let mut child = Command::new("qemu-x86_64")
        .args([by_step, "-d", "exec,nochain,page", "-D", "/dev/stderr"])
        .arg(binary.path())
        .args(arguments)
        .current_dir(folder)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let code: Vec<(u64, u64)> = binary.segments().iter().filter(|s| s.is_executable).map(|s| (s.address, s.address + s.size)).collect();
    let lowest = code.iter().map(|c| c.0).min().unwrap();
    let (mut bias, mut before, mut executed) = (None, None, 0);
    let mut transfers = HashSet::new();
    for line in BufReader::new(child.stderr.take().unwrap()).split(b'\n') {
        let line = line.unwrap();
        let text = String::from_utf8_lossy(&line);
        if let Some(start) =
            text.strip_prefix("start_code").and_then(|rest| u64::from_str_radix(rest.trim().trim_start_matches("0x"), 16).ok())
        {
            bias.get_or_insert(start.wrapping_sub(lowest) & !0xfff);
        }
        let Some(address) = text.strip_prefix("Trace").and_then(|rest| u64::from_str_radix(rest.split('/').nth(1)?, 16).ok()) else {
            continue;
        };
        let address = address.wrapping_sub(bias.expect("the log contains the program's load address"));
        let inside = code.iter().any(|c| (c.0..c.1).contains(&address));
        if inside {
            executed += 1;
            transfers.insert((before, address));
        }
        before = inside.then_some(address);
    }
    assert!(child.wait().is_ok());
    (transfers, executed)
}

struct AllowedTransfers<'a> {
    graph: &'a ProgramGraph,
    /// For each instruction, its function, its block and the address of the next instruction. There are several entries if blocks overlap.
    blocks: HashMap<u64, Vec<(usize, BlockIndex, u64)>>,
    calls: HashMap<u64, Vec<&'a CallSite>>,
    returned_to: HashSet<u64>,
    entries: HashSet<u64>,
    uncertain: HashSet<u64>,
}

impl<'a> AllowedTransfers<'a> {
    fn new(binary: &Binary, graph: &'a ProgramGraph) -> AllowedTransfers<'a> {
        let mut all = AllowedTransfers {
            graph,
            blocks: HashMap::new(),
            calls: HashMap::new(),
            returned_to: HashSet::new(),
            entries: HashSet::new(),
            uncertain: HashSet::new(),
        };
        for (place, function) in graph.functions.iter().enumerate() {
            all.entries.extend(function.other_entries.iter().chain([&function.entry]));
            all.uncertain.extend(function.uncertain.iter().map(|u| u.address));
            all.returned_to.extend(&function.landing_pads);
            for (number, block) in function.blocks.iter().enumerate() {
                let mut at = block.start;
                while at < block.end_address() {
                    let next = decode_instruction(binary.code_at(at).unwrap(), at).expect("an instruction").next_ip();
                    all.blocks.entry(at).or_default().push((place, BlockIndex(number as u32), next));
                    at = next;
                }
            }
            for call in &function.calls {
                all.calls.entry(call.address).or_default().push(call);
                all.returned_to.extend(call.return_address.filter(|_| call.returns != CallReturns::Never));
            }
        }
        all
    }

    fn allows(&self, (from, to): ExecutedTransfer) -> bool {
        if self.graph.is_stub(to) || from.is_some_and(|from| self.graph.is_stub(from)) {
            return true;
        }
        let from = match from {
            _ if !self.blocks.contains_key(&to) => return false,
            None => return self.entries.contains(&to) || self.returned_to.contains(&to),
            // An instruction with a `rep` prefix is logged once per iteration.
            Some(from) if from == to => return true,
            Some(from) => from,
        };
        self.blocks.get(&from).into_iter().flatten().any(|&(function, block, next)| self.leads_to(from, function, block, next, to))
    }

    fn leads_to(&self, from: u64, function: usize, index: BlockIndex, next: u64, to: u64) -> bool {
        let function = &self.graph.functions[function];
        let block = function.block(index);
        let is_last = from == block.last;
        let is_edge =
            function.successors(index).iter().any(|e| function.block(e.to).start == to && (is_last || e.kind == CodeEdgeKind::Unwind));
        let is_call = self.calls.get(&from).into_iter().flatten().any(|call| match &call.callee {
            CodeCallee::Function(entry) => *entry == to,
            CodeCallee::OneOf(entries) => entries.contains(&to),
            CodeCallee::Indirect | CodeCallee::Import(_) => self.entries.contains(&to),
        });
        let is_return = is_last && block.end == BlockEnd::Return && self.returned_to.contains(&to);
        (!is_last && to == next) || is_edge || is_call || is_return
    }
}

/// Executes a program, and asserts that its graph allows each transfer of control or marks it as uncertain.
fn assert_graph_allows_execution(program: &Path, arguments: &[&str], folder: &Path) {
    let binary = common::read(program);
    let graph = recover(&binary, None, &[]).unwrap();
    let (transfers, executed) = execute(&binary, arguments, folder);
    let allowed = AllowedTransfers::new(&binary, &graph);
    let unknown: Vec<ExecutedTransfer> = transfers.iter().copied().filter(|t| !allowed.allows(*t)).collect();
    let (marked, wrong): (Vec<ExecutedTransfer>, Vec<ExecutedTransfer>) =
        unknown.into_iter().partition(|(from, _)| from.is_some_and(|f| allowed.uncertain.contains(&f)));
    println!(
        "{}: {executed} instructions, {} different transfers, {} uncertain, {} wrong",
        program.display(),
        transfers.len(),
        marked.len(),
        wrong.len()
    );
    assert!(executed > 300, "{}: too few instructions executed", program.display());
    assert!(wrong.is_empty(), "{}: {wrong:x?}", program.display());
    // The graph must allow an uncertain transfer once it has been added as an observation.
    let mut amended = graph.clone();
    for (from, to) in marked.into_iter().filter_map(|(from, to)| Some((from?, to))) {
        assert!(amended.add_observation(&binary, None, GraphObservation { from, to }).unwrap(), "{from:#x} to {to:#x} changes nothing");
    }
    let allowed = AllowedTransfers::new(&binary, &amended);
    // `longjmp` leads to a block after a call in another function. No edge leads to this block.
    let lands = |(from, to): ExecutedTransfer| {
        from.is_some_and(|from| amended.observations.contains(&GraphObservation { from, to }))
            && amended.functions.iter().any(|function| function.blocks.iter().any(|block| block.start == to))
    };
    assert!(transfers.iter().all(|t| allowed.allows(*t) || lands(*t)), "the graph lacks an observed transfer that was added to it");
}

#[test]
fn graphs_of_system_programs_allow_their_executions() {
    let folder = TempDir::new().unwrap();
    let text: String = (1..12).map(|n| format!("{n} line of text {}\n", n * n)).collect();
    std::fs::write(folder.path().join("text"), text).unwrap();
    let programs: [(&str, &[&str]); 5] = [
        ("/usr/bin/gzip", &["-kf", "text"]),
        ("/usr/bin/sed", &["-n", "s/1\\(.\\)/x\\1/gp;3d;$!N;P;D", "text"]),
        ("/usr/bin/bzip2", &["-kf", "text"]),
        ("/usr/bin/xz", &["-kf", "text"]),
        (
            "/usr/bin/mawk",
            &["{s += $1; a[$1 % 3] = a[$1 % 3] $2} END {printf \"%d %s\\n\", s, toupper(a[1]); print substr(a[2], 2, 3) ~ /5/}", "text"],
        ),
    ];
    let mut checked = 0;
    for (program, arguments) in programs {
        if Path::new(program).exists() {
            assert_graph_allows_execution(Path::new(program), arguments, folder.path());
            checked += 1;
        } else {
            eprintln!("{program} is not installed: not checked");
        }
    }
    assert!(checked >= 3, "install gzip, sed and bzip2");
}

#[test]
fn graphs_of_gcc_programs_allow_their_executions() {
    for options in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-no-pie"],
        &["-Os", "-fcf-protection=full", "-fno-plt"],
        &["-O2", "-fno-asynchronous-unwind-tables"],
    ] {
        let folder = TempDir::new().unwrap();
        let program = common::strip_program(&common::compile(&folder, "gcc", "interpreter.c", options));
        assert_graph_allows_execution(&program, &[], folder.path());
    }
}

#[test]
fn graph_of_static_program_allows_its_execution() {
    let folder = TempDir::new().unwrap();
    let program = common::strip_program(&common::compile(&folder, "gcc", "interpreter.c", &["-O2", "-static"]));
    assert_graph_allows_execution(&program, &[], folder.path());
}

#[test]
fn graphs_allow_exceptions_and_panics() {
    let folder = TempDir::new().unwrap();
    let program = common::strip_program(&common::compile(&folder, "g++", "shapes.cpp", &["-O2", "-std=c++17"]));
    assert_graph_allows_execution(&program, &[], folder.path());
    let program = common::strip_program(&common::compile(&folder, "rustc", "evaluator.rs", &["-O"]));
    assert_graph_allows_execution(&program, &[], folder.path());
}

#[test]
fn main_is_found_in_stripped_programs() {
    let folder = TempDir::new().unwrap();
    for options in [&["-O2"][..], &["-O2", "-no-pie"], &["-O2", "-static"]] {
        let program = common::compile(&folder, "gcc", "interpreter.c", options);
        let expected = common::read(&program).functions().iter().find(|f| f.name == "main").unwrap().address;
        let graph = ProgramGraph::from_binary(&common::read(&common::strip_program(&program))).unwrap();
        let main = graph.functions_named("main").next().expect("main");
        assert_eq!((main.entry, main.has_symbol), (expected, false));
        // Recovery recognises `exit` and `setjmp` by their names among the imports, and a static program has no imports.
        let is_known = !main.returns && main.calls.iter().any(|c| c.returns == CallReturns::Twice);
        assert!(is_known || options.contains(&"-static"), "main ends with exit, and calls setjmp");
        let by_name: BTreeMap<&str, usize> = BTreeMap::from([("_start", 1), ("main", 1)]);
        assert!(by_name.iter().all(|(name, count)| graph.functions_named(name).count() == *count));
    }
}
