//! `trodden-lab graph`: the algorithms applied to a graph from a file, and graphs of programs.
//!
//! The research handbook documents input and output (`docs/handbook/src/graphs.md`, `numberings.md`, `partitions.md`, `witnesses.md`).
//! Nodes have names, and an edge's number is its index in the list. Weights are used without normalisation. Probes are placed on the chords
//! of a maximum spanning tree.

mod dot;
mod explain;
mod extract;
mod functions;
mod input;
mod interesting;
mod model;
mod number;
mod partition;
mod reconstruct;
mod show;
mod witnesses;

use crate::cli::GraphCommand;
use anyhow::{Context, Result, bail};
use input::{GraphInput, PathInput};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use trodden_coding::CodingError;
use trodden_flow::dag::Entries;
use trodden_flow::frequency::{BranchHint, Frequencies, branch_weights};
use trodden_flow::limit::cut_to_limit_avoiding_edges;
use trodden_flow::numbering::TooManyPaths;
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Graph, Node, Numbering, Origin};
use trodden_selective::NumberingError;
use trodden_witness::WitnessKind;

/// Maximum integer that is written as a JSON number. Larger ones are written as strings, because many readers store numbers as doubles.
const MAX_EXACT_JSON_INTEGER: u64 = 1 << 53;

pub struct NamedGraph {
    pub graph: Graph,
    pub names: Vec<String>,
    pub weights: Option<Vec<f64>>,
    /// Interesting paths, as edges.
    pub interesting: Vec<Vec<Edge>>,
    pub interesting_edges: Option<Vec<Edge>>,
    /// Nodes that interesting paths pass through.
    pub through: Vec<String>,
}

pub struct AcyclicGraph {
    pub dag: Dag,
    /// The Ball-Larus numbering of all paths.
    pub all: Numbering,
    pub weights: Vec<f64>,
}

pub fn run(job: &GraphCommand) -> Result<ExitCode> {
    match job {
        GraphCommand::Number(job) => {
            let named = read(&job.file)?;
            print_answer(&number::number(&named, job).map_err(|error| replace_node_numbers_in_error(&named, error))?)?;
        }
        GraphCommand::Model(job) => {
            let named = read(&job.file)?;
            print_answer(&model::model(&named, job).map_err(|error| replace_node_numbers_in_error(&named, error))?)?;
        }
        GraphCommand::Partition { file, copies, strategy, fold_again, hits, explain } => {
            let (copies, strategy, fold_again, hits, explain) = (*copies, *strategy, *fold_again, *hits, *explain);
            let request = partition::PartitionRequest { copies, strategy, fold_again, hits, explain };
            print_answer(&partition::partition(&read(file)?, &request)?)?;
        }
        GraphCommand::Witnesses(job) => {
            let file = read_functions(&job.file, job.edges)?;
            return print_check(witnesses::plan_or_check_witnesses(&file, job)?);
        }
        GraphCommand::Reconstruct(job) => {
            let file = read_functions(&job.file, job.edges)?;
            return print_check(reconstruct::reconstruct_executions(&file, job)?);
        }
        GraphCommand::Extract(job) => extract::extract(job)?,
        GraphCommand::Show { program, function, json } => show::show(program, function, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_answer(answer: &Value) -> Result<()> {
    writeln!(trodden_console::output::json_writer(), "{}", serde_json::to_string(answer)?)?;
    Ok(())
}

/// Replaces the node numbers in an error by the names in the user's graph.
fn replace_node_numbers_in_error(named: &NamedGraph, error: anyhow::Error) -> anyhow::Error {
    let name = |node: &u32| format!("`{}`", named.names.get(*node as usize).map_or("?", String::as_str));
    let many = |paths: &TooManyPaths| paths.message_with_node_name(&name(&paths.0));
    let known = error.chain().find_map(|cause| match (cause.downcast_ref(), cause.downcast_ref(), cause.downcast_ref()) {
        (Some(NumberingError::TooManyPaths(paths)), ..) | (_, Some(paths), _) => Some(many(paths)),
        (Some(NumberingError::NoPathThrough { nodes }), ..) => {
            let nodes: Vec<String> = nodes.iter().map(name).collect();
            Some(NumberingError::no_path_through(&nodes))
        }
        (.., Some(CodingError::NoWeight(node))) => Some(CodingError::no_weight_message(&name(node))),
        (.., Some(CodingError::Overlap(node))) => Some(CodingError::overlap_message(&name(node))),
        _ => None,
    });
    known.map_or(error, anyhow::Error::msg)
}

/// Prints the answer of a check. Returns exit status 0 if the check succeeded, else 1.
fn print_check((answer, succeeded): (Value, bool)) -> Result<ExitCode> {
    print_answer(&answer)?;
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Reads a graph in JSON or DOT; `-` is standard input.
fn read(file: &Path) -> Result<NamedGraph> {
    parse(&read_input(file)?).with_context(|| format!("cannot use graph file {}", file.display()))
}

fn read_functions(file: &Path, edges: bool) -> Result<functions::WitnessFile> {
    let kind = if edges { WitnessKind::Edges } else { WitnessKind::Nodes };
    functions::parse(&read_input(file)?, kind).with_context(|| format!("cannot use graph file {}", file.display()))
}

fn read_input(file: &Path) -> Result<String> {
    match file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()).context("cannot read standard input"),
        _ => std::fs::read_to_string(file).with_context(|| format!("cannot read graph file {}", file.display())),
    }
}

fn parse(text: &str) -> Result<NamedGraph> {
    if text.trim().is_empty() {
        bail!("the input is empty: expected a graph in JSON or DOT");
    }
    let input = match text.trim_start().starts_with(['{', '[']) {
        true => serde_json::from_str(text).context(
            "the JSON is not a graph: expected an object such as {\"entry\": \"a\", \"exit\": \"b\", \"edges\": [[\"a\", \"b\"]]}",
        )?,
        false => dot::parse(text)?,
    };
    number_nodes(input)
}

/// Additional keys written by `trodden-lab graph show --json`.
const SHOW_KEYS: [&str; 6] = ["schema_version", "function", "linkage_name", "kinds", "blocks", "paths"];

/// Numbers the nodes in the order of their first occurrence: entry, exit, then along the edges.
fn number_nodes(input: GraphInput) -> Result<NamedGraph> {
    if let Some(key) = input.others.keys().find(|key| !SHOW_KEYS.contains(&key.as_str())) {
        bail!("unknown key `{key}`: expected entry, exit, edges, weights, interesting, interesting_edges or through");
    }
    let empty = [
        ("interesting", input.interesting.as_ref().is_some_and(Vec::is_empty)),
        ("interesting_edges", input.interesting_edges.as_ref().is_some_and(Vec::is_empty)),
        ("through", input.through.as_ref().is_some_and(Vec::is_empty)),
    ];
    if let Some((key, _)) = empty.iter().find(|(_, is)| *is) {
        bail!("`{key}` is empty, so no path would be interesting. Add an entry, or omit `{key}` to select all paths");
    }
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let mut names: Vec<String> = Vec::new();
    let mut number = |name: &str| {
        *numbers.entry(name.to_owned()).or_insert_with(|| {
            names.push(name.to_owned());
            names.len() as u32 - 1
        })
    };
    let (entry, exit) = (number(&input.entry.0), number(&input.exit.0));
    let edges: Vec<(Node, Node)> = input.edges.iter().map(|(from, to)| (Node(number(&from.0)), Node(number(&to.0)))).collect();
    if let Some(weights) = &input.weights {
        if weights.len() != edges.len() {
            bail!("`weights` needs one value per edge: expected {}, found {}", edges.len(), weights.len());
        }
        if let Some(at) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            bail!("the weight of edge {at} is {}, but weights must be finite and not negative", weights[at]);
        }
    }
    if entry == exit {
        bail!("node `{}` is both entry and exit. Add a separate exit node", input.entry.0);
    }
    let graph = Graph::new(names.len() as u32, Node(entry), Node(exit), edges)?;
    let interesting = input.interesting.iter().flatten().enumerate();
    let interesting =
        interesting.map(|(i, p)| path_edges(&graph, &numbers, p).with_context(|| format!("invalid interesting path {i} (counted from 0)")));
    let interesting = interesting.collect::<Result<_>>()?;
    let interesting_edges: Option<Vec<Edge>> = input.interesting_edges.map(|edges| edges.into_iter().map(Edge).collect());
    if let Some(bad) = interesting_edges.iter().flatten().find(|e| e.index() >= graph.edge_count()) {
        bail!("interesting edge {} does not exist: edges are numbered from 0 to {}", bad.0, graph.edge_count() as i64 - 1);
    }
    let through = input.through.into_iter().flatten().map(|n| n.0).collect();
    Ok(NamedGraph { graph, names, weights: input.weights, interesting, interesting_edges, through })
}

fn path_edges(graph: &Graph, numbers: &HashMap<String, u32>, path: &PathInput) -> Result<Vec<Edge>> {
    let edges: Vec<Edge> = match path {
        PathInput::Edges { edges } => edges.iter().map(|e| Edge(*e)).collect(),
        PathInput::Nodes(nodes) => {
            let node = |name: &str| numbers.get(name).map(|n| Node(*n)).with_context(|| format!("node `{name}` does not exist"));
            let step = |pair: &[input::NodeName]| -> Result<Edge> {
                let (from, to) = (node(&pair[0].0)?, node(&pair[1].0)?);
                let between: Vec<Edge> = graph.out(from).iter().copied().filter(|e| graph.to(*e) == to).collect();
                match between.as_slice() {
                    [edge] => Ok(*edge),
                    [] => bail!("no edge leads from `{}` to `{}`", pair[0].0, pair[1].0),
                    _ => {
                        bail!(
                            "{} edges lead from `{}` to `{}`, so the path is ambiguous. Write it as {{\"edges\":[...]}}",
                            between.len(),
                            pair[0].0,
                            pair[1].0
                        )
                    }
                }
            };
            nodes.windows(2).map(step).collect::<Result<_>>()?
        }
    };
    if let Some(bad) = edges.iter().find(|e| e.index() >= graph.edge_count()) {
        bail!("no edge has number {}: edges are numbered from 0 to {}", bad.0, graph.edge_count() as i64 - 1);
    }
    if edges.windows(2).any(|pair| graph.to(pair[0]) != graph.from(pair[1])) {
        bail!("the edges of the path are not consecutive: each must start where the previous edge ends");
    }
    Ok(edges)
}

/// Returns the frequencies of nodes and edges, which are estimated if the file has no weights.
fn frequencies_of(named: &NamedGraph) -> Frequencies {
    let graph = &named.graph;
    match &named.weights {
        Some(weights) => Frequencies::from_measured_counts(graph, weights.clone()),
        None => Frequencies::estimate(graph, &branch_weights(graph, &vec![BranchHint::None; graph.edge_count()])),
    }
}

fn frequency_of(dag: &Dag, frequencies: &Frequencies, id: DagEdgeId) -> f64 {
    match dag.edge(id).origin {
        Origin::Real(e) | Origin::Enter(e) | Origin::Leave(e) => frequencies.edge(e),
        Origin::Stop(n) => frequencies.node(n),
    }
}

/// Returns the acyclic version of a graph. If that has 2^63 paths or more, cuts further edges, preferably none of `of_interest`.
pub fn cut_cycles(named: &NamedGraph, of_interest: &[Edge]) -> AcyclicGraph {
    let graph = &named.graph;
    let frequencies = frequencies_of(named);
    let limited = cut_to_limit_avoiding_edges(graph, &[], &frequencies, i64::MAX as u64, Entries::PerEdge, of_interest);
    let weights = limited.dag.edge_ids().map(|id| frequency_of(&limited.dag, &frequencies, id)).collect();
    AcyclicGraph { dag: limited.dag, all: limited.numbering, weights }
}

fn number_json(number: u128) -> Value {
    if number > MAX_EXACT_JSON_INTEGER.into() { json!(number.to_string()) } else { json!(number as u64) }
}

fn signed_integer_json(number: i64) -> Value {
    if number.unsigned_abs() > MAX_EXACT_JSON_INTEGER { json!(number.to_string()) } else { json!(number) }
}

/// Adds to the answer the edges that were cut because there are 2^63 paths or more.
fn add_cut_edges(dag: &Dag, answer: &mut Value) {
    let cut: Vec<u32> = dag.cuts().iter().filter(|c| c.reason == CutReason::Limit).map(|c| c.edge.0).collect();
    if !cut.is_empty() {
        answer["cut"] = json!(cut);
    }
}

fn nodes_json(named: &NamedGraph, dag: &Dag, path: &[DagEdgeId]) -> Value {
    let nodes = std::iter::once(dag.entry()).chain(path.iter().map(|e| dag.edge(*e).to));
    json!(nodes.map(|n| named.names[n.index()].as_str()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::GraphNumberArguments;

    fn number_graph(text: &str) -> Value {
        number_graph_by(text, trodden_flow::NumberingScheme::BallLarus)
    }

    fn number_graph_by(text: &str, scheme: trodden_flow::NumberingScheme) -> Value {
        number::number(&parse(text).unwrap(), &GraphNumberArguments { scheme, list: 100, ..GraphNumberArguments::default() }).unwrap()
    }

    /// Figure 3.4 (a) of the thesis, with six paths; sacdt, sact and sbct have the numbers 0, 1 and 5.
    const MOTIVATING_EXAMPLE: &str = r#"{"entry":"s","exit":"t",
        "edges":[["s","a"],["a","c"],["c","d"],["d","t"],["c","t"],["a","b"],["b","c"],["s","b"]],
        "interesting":[["s","a","c","d","t"],["s","a","c","t"],["s","b","c","t"]]}"#;

    #[test]
    fn motivating_example_has_the_published_numbers() {
        let answer = number_graph(MOTIVATING_EXAMPLE);
        assert_eq!(answer["paths"], 6);
        let marked: Vec<u64> =
            answer["ids"].as_array().unwrap().iter().filter(|r| r["interesting"] == true).map(|r| r["id"].as_u64().unwrap()).collect();
        assert_eq!(marked, [0, 1, 5]);
    }

    #[test]
    fn dot_and_json_give_the_same_numbering() {
        let dot = "digraph { entry=s; exit=t; s -> a -> c -> d -> t; c -> t; a -> b -> c; s -> b; }";
        assert_eq!(
            number_graph(dot)["edges"],
            number_graph(&MOTIVATING_EXAMPLE.replace(",\n        \"interesting\"", ",\"interesting\""))["edges"]
        );
    }

    #[test]
    fn dummy_edges_name_the_cut_edge() {
        let answer = number_graph(r#"{"entry":"s","exit":"t","edges":[["s","h"],["h","b"],["b","h"],["h","t"]]}"#);
        let dummies: Vec<&Value> = answer["edges"].as_array().unwrap().iter().filter(|e| e["dummy"] == true).collect();
        assert_eq!(dummies.len(), 2);
        assert!(dummies.iter().all(|d| d["edge"] == 2));
        assert_eq!(answer["paths"], 4);
    }

    #[test]
    fn unused_edges_are_marked() {
        let answer = number_graph(r#"{"entry":"s","exit":"t","edges":[["s","t"],["x","t"],["t","s"]]}"#);
        let rows = answer["edges"].as_array().unwrap();
        let unused: Vec<u64> = rows.iter().filter(|e| e["unused"] == true).map(|e| e["edge"].as_u64().unwrap()).collect();
        assert_eq!((rows.len(), unused), (3, vec![1, 2]));
    }

    #[test]
    fn large_numbers_are_strings() {
        let mut edges = Vec::new();
        for d in 0..60 {
            edges.push(format!(r#"["n{d}","n{}"],["n{d}","n{}"]"#, d + 1, d + 1));
        }
        let text = format!(r#"{{"entry":"n0","exit":"n60","edges":[{}]}}"#, edges.join(","));
        assert_eq!(number_graph(&text)["paths"], (1u64 << 60).to_string());
    }

    #[test]
    fn edges_cut_because_of_too_many_paths_are_reported() {
        let edges: Vec<String> = (0..80).map(|d| format!(r#"["n{d}","n{}"],["n{d}","n{}"]"#, d + 1, d + 1)).collect();
        let answer = number_graph(&format!(r#"{{"entry":"n0","exit":"n80","edges":[{}]}}"#, edges.join(",")));
        assert!(!answer["cut"].as_array().unwrap().is_empty());
    }

    /// Returns a chain in which two parallel edges connect each node to the next, with additional JSON keys.
    fn chain_graph(pairs: u32, more: &str) -> String {
        let edges: Vec<String> = (0..pairs).map(|d| format!(r#"["n{d}","n{}"],["n{d}","n{}"]"#, d + 1, d + 1)).collect();
        format!(r#"{{"entry":"n0","exit":"n{pairs}","edges":[{}]{more}}}"#, edges.join(","))
    }

    #[test]
    fn edges_of_interesting_paths_are_cut_last() {
        let first: Vec<u32> = (0..80).map(|d| 2 * d).collect();
        let cut = |answer: &Value| -> Vec<u32> { serde_json::from_value(answer["cut"].clone()).unwrap() };
        let with = |paths: &str| {
            number_graph_by(&chain_graph(80, &format!(r#","interesting":[{paths}]"#)), trodden_flow::NumberingScheme::KnownTable)
        };
        let answer = with(&format!(r#"{{"edges":{first:?}}}"#));
        assert!(!cut(&answer).is_empty() && cut(&answer).iter().all(|e| e % 2 == 1), "{answer}");
        let job = |edges: &[u32]| {
            let interesting = crate::cli::InterestingPathsArguments { interesting_edges: Some(edges.to_vec()), ..Default::default() };
            GraphNumberArguments { scheme: trodden_flow::NumberingScheme::Pspp, interesting, ..GraphNumberArguments::default() }
        };
        let answer = number::number(&parse(&chain_graph(80, "")).unwrap(), &job(&first)).unwrap();
        assert!(!cut(&answer).is_empty() && cut(&answer).iter().all(|e| e % 2 == 1), "{answer}");
        // If all edges are interesting, the graph cannot be cut without cutting some of them, which is an error.
        let second: Vec<u32> = (0..80).map(|d| 2 * d + 1).collect();
        let named = parse(&chain_graph(80, &format!(r#","interesting":[{{"edges":{first:?}}},{{"edges":{second:?}}}]"#))).unwrap();
        let error = number::number(&named, &GraphNumberArguments::default()).unwrap_err();
        assert!(format!("{error:#}").contains("2^63 paths"), "{error:#}");
    }

    #[test]
    fn errors_use_the_names_of_nodes() {
        let error = |text: &str, job: &GraphNumberArguments| {
            let named = parse(text).unwrap();
            format!("{:#}", replace_node_numbers_in_error(&named, number::number(&named, job).unwrap_err()))
        };
        let through =
            r#"{"entry":"s","exit":"t","edges":[["s","left"],["s","right"],["left","t"],["right","t"]],"through":["left","right"]}"#;
        assert!(error(through, &GraphNumberArguments::default()).contains("nodes `left`, `right`"));
        let weights = r#"{"entry":"s","exit":"t","edges":[["s","fork"],["fork","t"],["fork","t"]],"weights":[5,0,0]}"#;
        let named = parse(weights).unwrap();
        let measured = crate::cli::GraphModelArguments { scheme: crate::cli::ModelScheme::Measured, ..Default::default() };
        let error = model::model(&named, &measured).unwrap_err();
        assert!(format!("{:#}", replace_node_numbers_in_error(&named, error)).contains("out of node `fork`"));
    }

    #[test]
    fn preferential_numbers_have_a_check_number() {
        let answer = number_graph_by(MOTIVATING_EXAMPLE, trodden_flow::NumberingScheme::Ppp);
        assert_eq!((&answer["spread"], &answer["delta"], &answer["aliases"]), (&json!(3), &json!(1.0), &json!(0)));
        let rows = answer["ids"].as_array().unwrap();
        let of = |path: &str| {
            rows.iter().find(|r| r["path"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect::<String>() == path).unwrap()
        };
        assert_eq!(["sacdt", "sact", "sbct", "sbcdt"].map(|p| of(p)["id"].as_i64().unwrap()), [0, 1, 2, 1]);
        assert_eq!((&of("sbcdt")["ball_larus"], of("sbcdt").get("slot")), (&json!(4), None));
    }

    #[test]
    fn every_scheme_accepts_every_kind_of_set() {
        let graph = &MOTIVATING_EXAMPLE[..MOTIVATING_EXAMPLE.find(",\n        \"interesting\"").unwrap()];
        for set in ["", r#","interesting_edges":[0,1,4,6,7]"#, r#","through":["b"]"#, r#","interesting":[["s","b","c","t"]]"#] {
            for scheme in trodden_flow::NumberingScheme::ALL {
                let answer = number_graph_by(&format!("{graph}{set}}}"), scheme);
                assert_eq!(answer["scheme"], scheme.name());
                assert_eq!(answer["verified"], "enumerated");
                assert_eq!(answer.get("bound").is_some(), scheme == trodden_flow::NumberingScheme::PppOptimal);
            }
        }
        let two = format!(r#"{graph},"interesting_edges":[0],"through":["b"]}}"#);
        let job = GraphNumberArguments { scheme: trodden_flow::NumberingScheme::Pspp, ..GraphNumberArguments::default() };
        assert!(number::number(&parse(&two).unwrap(), &job).unwrap_err().to_string().contains("more than one of"));
    }

    #[test]
    fn paths_between_cut_edges_can_be_interesting() {
        let text = r#"{"entry":"s","exit":"t","edges":[["s","h"],["h","b"],["b","h"],["h","t"]],"interesting":[{"edges":[2,1,2]}]}"#;
        let answer = number_graph_by(text, trodden_flow::NumberingScheme::KnownTable);
        assert_eq!(answer["interesting"], 1);
        let rows = answer["ids"].as_array().unwrap();
        let marked: Vec<&Value> = rows.iter().filter(|r| r["interesting"] == true).map(|r| &r["edges"]).collect();
        assert_eq!(marked, [&json!([2, 1, 2])]);
    }

    #[test]
    fn models_encode_paths_as_their_numbers() {
        use crate::cli::ModelScheme;
        let ids = |scheme| {
            let job = crate::cli::GraphModelArguments { scheme, ..Default::default() };
            let answer = model::model(&parse(MOTIVATING_EXAMPLE).unwrap(), &job).unwrap();
            answer["ids"].as_array().unwrap().iter().map(|r| r["id"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(ids(ModelScheme::BallLarus), [0, 1, 2, 3, 4, 5]);
        assert_eq!(ids(ModelScheme::Ppp), [0, 1, 2]);
    }

    /// After the two paths over `a`, `c` is followed once by `d` and once by `t`. After the path over `b`, it is followed by `t`.
    #[test]
    fn models_of_executed_paths_depend_on_the_context() {
        use crate::cli::{GraphModelArguments, ModelScheme};
        let answer = |order, executions: &[u64]| {
            let scheme = ModelScheme::Executed;
            let job =
                GraphModelArguments { scheme, order, executions: executions.to_vec(), explain: true, ..GraphModelArguments::default() };
            model::model(&parse(MOTIVATING_EXAMPLE).unwrap(), &job)
        };
        let rows = |order, executions: &[u64]| answer(order, executions).unwrap()["ids"].as_array().unwrap().clone();
        let probabilities = |order, executions: &[u64]| {
            rows(order, executions).iter().map(|row| row["probability"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        // The paths are sacdt, sact, sabcdt, sabct, sbcdt and sbct; sacdt, sact and sbct are executed.
        assert_eq!(probabilities(0, &[]), ["2/9", "4/9", "0", "0", "1/9", "2/9"]);
        assert_eq!(probabilities(1, &[]), ["1/3", "1/3", "0", "0", "0", "1/3"]);
        assert_eq!(probabilities(1, &[6, 3, 1]), ["3/5", "3/10", "0", "0", "0", "1/10"]);
        for row in rows(1, &[6, 3, 1]).iter().filter(|row| row["probability"] != "0") {
            assert_eq!(row["decoded"], row["path"]);
            assert_eq!(row["steps"].as_array().unwrap().len() + 1, row["path"].as_array().unwrap().len());
        }
        assert_eq!(rows(1, &[])[0]["steps"][2]["range"], json!(["0", "1/2"]));
        assert!(answer(1, &[1, 2]).unwrap_err().to_string().contains("one value for each interesting path: expected 3, found 2"));
    }

    #[test]
    fn errors_describe_invalid_graphs() {
        let error = |text: &str| format!("{:#}", parse(text).err().expect("it is bad"));
        assert!(
            error(r#"{"entry":"s","exit":"t","edges":[["s","t"]],"weights":[1,2]}"#).contains("one value per edge: expected 1, found 2")
        );
        assert!(error(r#"{"entry":"s","exit":"s","edges":[]}"#).contains("`s` is both entry and exit"));
        assert!(error(r#"{"entry":"s","exit":"t","edges":[["s","t"],["s","t"]],"interesting":[["s","t"]]}"#).contains("2 edges lead"));
        assert!(error(r#"{"entry":"s","exit":"t","edges":[["s","t"]],"interesting":[["s","x"]]}"#).contains("node `x` does not exist"));
        assert!(error("digraph { a -> }").contains("line 1"));
        assert!(error("[]").contains("the JSON is not a graph"));
    }
}
