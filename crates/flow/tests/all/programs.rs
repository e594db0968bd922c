//! Golden files: a graph and, after a line of dashes, the probe program that a scheme and the passes make from it.
//!
//! `TRODDEN_BLESS=1` rewrites the programs. Every program is verified as well.
//!
//! | line | meaning |
//! |---|---|
//! | `; text` | a comment |
//! | `0 -> 1 x100` | an edge with 100 executions (default 1). The node with the greatest number is the exit |
//! | `loud 3`, `early 3` | node 3 makes a call; its count must be made on the edges into it |
//! | `closed e2` | edge 2 cannot contain code |
//! | `trip-count e3 16`, `counted e3` | for the loop with back edge 3: its trip count; the program counts its iterations |
//! | `scheme all`, `interesting pspp 0 2`, `part` (first of two), `versions 0 2`, `lookups 0 2` | what is counted |
//! | `stream`, `leaves e2`, `calls e3` | a stream is written; the call ends on edge 2; edge 3 leads to a call |
//! | `passes all early register` | trip counts `tight` or `all`; early counts; dominant iterations `split` or `register` |

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trodden_flow::dag::Entries;
use trodden_flow::frequency::Frequencies;
use trodden_flow::part::Measure;
use trodden_flow::plan::{Plan, PlanOptions};
use trodden_flow::program::verify::{WalkBudget, verify_counts, verify_numbering};
use trodden_flow::program::{BlockProperties, DominantCounting, EarlyCounting, PassChoices, StreamEdges, TripCounting};
use trodden_flow::residual::ResidualInput;
use trodden_flow::{Edge, EdgeSet, Graph, Node, NodeSet, NumberingScheme, ProbeProgram, ResidualPlan};
use trodden_partition::{PartitionOptions, PartitionStrategy, Procedure, ProfitableProcedures};
use trodden_selective::NumberOptions;
use trodden_selective::plan::{InterestingInput, plan_interesting};
use trodden_selective::verify::VerifyBudget;

use crate::passes;

const DASHES: &str = "----\n";

#[derive(Default)]
struct Case {
    edges: Vec<(u32, u32)>,
    weights: Vec<f64>,
    loud: BTreeSet<u32>,
    early: BTreeSet<u32>,
    closed: BTreeSet<u32>,
    counted: BTreeSet<Edge>,
    trip_counts: BTreeMap<Edge, u64>,
    scheme: Vec<String>,
    passes: Vec<String>,
    stream: bool,
    leaves: BTreeSet<u32>,
    calls: BTreeSet<u32>,
}

impl Case {
    fn read(text: &str) -> Case {
        let mut case = Case::default();
        let edge = |word: &str| Edge(word.strip_prefix('e').expect("an edge is eNUMBER").parse().unwrap());
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with(';')) {
            let words: Vec<&str> = line.split(' ').collect();
            let owned = || words[1..].iter().map(|w| (*w).to_owned()).collect();
            match words[..] {
                [from, "->", to, ref times @ ..] => {
                    case.edges.push((from.parse().unwrap(), to.parse().unwrap()));
                    case.weights.push(times.first().map_or(1.0, |t| t[1..].parse().unwrap()));
                }
                ["loud", node] => drop(case.loud.insert(node.parse().unwrap())),
                ["early", node] => drop(case.early.insert(node.parse().unwrap())),
                ["closed", it] => drop(case.closed.insert(edge(it).0)),
                ["counted", it] => drop(case.counted.insert(edge(it))),
                ["stream"] => case.stream = true,
                ["leaves", it] => drop(case.leaves.insert(edge(it).0)),
                ["calls", it] => drop(case.calls.insert(edge(it).0)),
                ["trip-count", it, count] => drop(case.trip_counts.insert(edge(it), count.parse().unwrap())),
                ["scheme", ..] => case.scheme = owned(),
                ["passes", ..] => case.passes = owned(),
                _ => panic!("what is `{line}`?"),
            }
        }
        case
    }

    fn graph(&self) -> Graph {
        let exit = self.edges.iter().map(|(from, to)| *from.max(to)).max().unwrap();
        Graph::new(exit + 1, Node(0), Node(exit), self.edges.iter().map(|(a, b)| (Node(*a), Node(*b))).collect()).unwrap()
    }

    fn choices(&self) -> PassChoices {
        let has = |word: &str| self.passes.iter().any(|p| p == word);
        let either = |names: [&str; 2]| names.iter().position(|n| has(n));
        let trip_counts = either(["tight", "all"]).map_or(TripCounting::Off, |i| [TripCounting::Tight, TripCounting::On][i]);
        let dominant =
            either(["split", "register"]).map_or(DominantCounting::Shared, |i| [DominantCounting::Split, DominantCounting::Register][i]);
        let early = if has("early") { EarlyCounting::IfProfitable } else { EarlyCounting::IfNecessary };
        PassChoices { trip_counts, early, dominant }
    }

    /// Returns the properties of the program's graph, which may have several versions of the function.
    fn blocks(&self, program: &ProbeProgram) -> BlockProperties {
        let graph = program.graph();
        let node = |n: Node| program.places().map_or(n.0, |places| places.get(n.index()).map_or(u32::MAX, |p| p.node.0));
        let closed = |e: Edge| self.closed.contains(&program.origin(e).0);
        BlockProperties {
            quiet: NodeSet::from_fn(graph.node_count(), |n| !self.loud.contains(&node(n))),
            must_count_early: NodeSet::from_fn(graph.node_count(), |n| self.early.contains(&node(n))),
            can_carry_code: EdgeSet::from_fn(graph.edge_count(), |e| !closed(e)),
            carries_code_for_free: EdgeSet::from_fn(graph.edge_count(), |e| graph.incoming(graph.to(e)).len() == 1),
            sizes: vec![2; graph.node_count()],
            changes_version: BTreeSet::new(),
            trip_counts: self.trip_counts.clone(),
            counted: self.counted.clone(),
        }
    }

    fn numbers(&self, from: usize) -> Vec<u64> {
        self.scheme[from..].iter().map(|w| w.parse().unwrap()).collect()
    }

    fn program(&self, graph: &Graph, frequencies: &Frequencies) -> ProbeProgram {
        let options = PlanOptions { max_paths: 1 << 20, entries: Entries::Shared, chords: true, hot_first: false };
        let plan = Plan::ball_larus(graph, &[], frequencies, &options);
        let none = EdgeSet::empty(graph.edge_count());
        match self.scheme[0].as_str() {
            "all" => ProbeProgram::from_plan(graph, &plan),
            "interesting" => {
                let scheme = NumberingScheme::ALL.into_iter().find(|s| s.name() == self.scheme[1]).expect("a scheme");
                let (input, numbers) = (self.numbers(2), NumberOptions::default());
                let input = InterestingInput { scheme, ids: &input, marks_call: &none };
                let planned = plan_interesting(graph, (plan.dag, plan.numbering), &input, frequencies, &numbers, &VerifyBudget::default());
                ProbeProgram::from_interesting(graph, planned.unwrap())
            }
            "part" => {
                let dag = plan.dag;
                let frequencies = vec![1; dag.edges().len()];
                let procedure = Procedure { dag: dag.clone(), frequencies, paths: Vec::new(), call_sites: None, unit: 0 };
                let options =
                    PartitionOptions { copies: 2, profitable: ProfitableProcedures::ALL, fold_again: true, measure: Measure::All };
                let mut first = trodden_partition::plan(&[procedure], PartitionStrategy::P3, &options).copies.remove(0);
                let part = first.parts.remove(0).expect("the first copy counts something");
                ProbeProgram::from_plan(graph, &Plan::from_part(dag, part).unwrap())
            }
            what @ ("versions" | "lookups") => {
                let known: Vec<(u64, u64)> = self.numbers(1).into_iter().map(|id| (id, 1_000_000)).collect();
                let known = ResidualInput { paths: &known, uncopied: &[], marks_call: &none };
                let residual = ResidualPlan::new(&plan.dag, &plan.numbering, known);
                let probes = residual.probes(&plan.dag, &plan.numbering, graph, frequencies);
                let plan = Plan { probes, ..plan };
                if what == "versions" { residual.program_with_versions(graph, &plan) } else { residual.program_with_lookups(graph, &plan) }
            }
            other => panic!("what is the scheme `{other}`?"),
        }
    }
}

#[test]
fn programs_match_their_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let bless = std::env::var_os("TRODDEN_BLESS").is_some();
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let (given, expected) = text.split_once(DASHES).unwrap_or((&text, ""));
        let case = Case::read(given);
        let graph = case.graph();
        let frequencies = Frequencies::estimate(&graph, &case.weights);
        let mut program = case.program(&graph, &frequencies);
        verify_numbering(&program).unwrap();
        let blocks = case.blocks(&program);
        let choices = case.choices().limited_to(passes::allowed_passes(&program));
        program.run_verified_passes(&frequencies, &blocks, choices, &WalkBudget::default()).unwrap();
        if case.stream {
            let are = |set: &BTreeSet<u32>| EdgeSet::from_fn(graph.edge_count(), |e| set.contains(&e.0));
            program.write_stream(StreamEdges { leaves: are(&case.leaves), calls: are(&case.calls) });
            verify_counts(&program, &WalkBudget::default()).unwrap();
        }
        let made = program.to_string();
        if bless {
            std::fs::write(file, format!("{given}{DASHES}{made}")).unwrap();
        } else if made != expected {
            wrong.push(format!("{}:\n{made}", file.file_name().unwrap().display()));
        }
    }
    assert!(files.len() >= 40 && wrong.is_empty(), "TRODDEN_BLESS=1 rewrites the files:\n{}", wrong.join("\n"));
}
