//! `trodden graph number`: the numbering algorithms alone, on a small graph from a file.
//!
//! Input and output are documented in the user guide (`docs/book/src/graph.md`). Nodes have names; an edge's number is its place in the list. Weights are
//! used as they are given: the chords are those of a maximum spanning tree under them.

mod dot;
mod input;
mod show;

use crate::cli::Scheme;
use anyhow::{Context, Result, bail};
use input::{Input, PathInput};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use trodden_flow::dag::Entries;
use trodden_flow::frequency::{Frequencies, Hint, branch_weights};
use trodden_flow::limit::cut_to_limit;
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Graph, Node, Numbering, Origin, Probes};

/// Numbers larger than this are written as strings: JSON readers keep numbers as floats.
const EXACT_IN_JSON: u64 = 1 << 53;

/// A graph with names, as read from a file.
pub struct Named {
    /// The graph.
    pub graph: Graph,
    /// Names of its nodes.
    pub names: Vec<String>,
    /// Weights of its edges, if given.
    pub weights: Option<Vec<f64>>,
    /// Paths that the user is interested in, as edges.
    pub interesting: Vec<Vec<Edge>>,
}

/// Runs a subcommand of `trodden graph`.
pub fn run(job: &crate::cli::Graph) -> Result<ExitCode> {
    match job {
        crate::cli::Graph::Number { file, scheme: Scheme::BallLarus, list } => number(file, *list)?,
        crate::cli::Graph::Number { scheme, .. } => {
            anyhow::bail!(
                "scheme {scheme:?} goes by a program's loops and frequencies, not by a graph alone: use it with `trodden instrument`"
            )
        }
        crate::cli::Graph::Show { program, function, json } => show::show(program, function, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a graph in JSON or DOT (`-`: from standard input) and prints the numbering of its paths as JSON.
fn number(file: &Path, list: u64) -> Result<()> {
    let text = match file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?,
        _ => std::fs::read_to_string(file).with_context(|| format!("graph file {} cannot be read", file.display()))?,
    };
    let named = parse(&text).with_context(|| format!("graph file {}", file.display()))?;
    let answer = ball_larus(&named, list)?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&answer)?)?;
    Ok(())
}

/// Reads JSON if the text begins like JSON, else DOT.
fn parse(text: &str) -> Result<Named> {
    let input = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).context("not the JSON of a graph")?,
        false => dot::parse(text)?,
    };
    resolve(input)
}

/// Gives nodes numbers, in the order in which they are first named: entry, exit, then along the edges.
fn resolve(input: Input) -> Result<Named> {
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
            bail!("there are {} weights for {} edges: give one for each edge", weights.len(), edges.len());
        }
        if let Some(at) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            bail!("the weight of edge {at} is {}: weights are numbers from 0", weights[at]);
        }
    }
    let graph = Graph::new(names.len() as u32, Node(entry), Node(exit), edges)?;
    let interesting = input.interesting.iter().enumerate();
    let interesting = interesting.map(|(i, p)| edges_of(&graph, &numbers, p).with_context(|| format!("interesting path {i}")));
    let interesting = interesting.collect::<Result<_>>()?;
    Ok(Named { graph, names, weights: input.weights, interesting })
}

/// The edges of a path given by its nodes or by its edges.
fn edges_of(graph: &Graph, numbers: &HashMap<String, u32>, path: &PathInput) -> Result<Vec<Edge>> {
    let edges: Vec<Edge> = match path {
        PathInput::Edges { edges } => edges.iter().map(|e| Edge(*e)).collect(),
        PathInput::Nodes(nodes) => {
            let node = |name: &str| numbers.get(name).map(|n| Node(*n)).with_context(|| format!("there is no node `{name}`"));
            let step = |pair: &[input::Name]| -> Result<Edge> {
                let (from, to) = (node(&pair[0].0)?, node(&pair[1].0)?);
                let between: Vec<Edge> = graph.out(from).iter().copied().filter(|e| graph.to(*e) == to).collect();
                match between.as_slice() {
                    [edge] => Ok(*edge),
                    [] => bail!("no edge leads from `{}` to `{}`", pair[0].0, pair[1].0),
                    _ => {
                        bail!("{} edges lead from `{}` to `{}`: give the path as {{\"edges\":[...]}}", between.len(), pair[0].0, pair[1].0)
                    }
                }
            };
            nodes.windows(2).map(step).collect::<Result<_>>()?
        }
    };
    if let Some(bad) = edges.iter().find(|e| e.index() >= graph.edge_count()) {
        bail!("there is no edge {}: they are numbered from 0 to {}", bad.0, graph.edge_count() as i64 - 1);
    }
    if edges.windows(2).any(|pair| graph.to(pair[0]) != graph.from(pair[1])) {
        bail!("its edges do not join");
    }
    Ok(edges)
}

fn ball_larus(named: &Named, list: u64) -> Result<Value> {
    let graph = &named.graph;
    let frequencies = match &named.weights {
        Some(weights) => Frequencies::measured(graph, weights.clone()),
        None => Frequencies::estimate(graph, &branch_weights(graph, &vec![Hint::None; graph.edge_count()])),
    };
    let limited = cut_to_limit(graph, &[], &frequencies, i64::MAX as u64, Entries::PerEdge);
    let (dag, numbering) = (limited.dag, limited.numbering);
    let weight = |id: DagEdgeId| match dag.edge(id).origin {
        Origin::Real(e) | Origin::Enter(e) | Origin::Leave(e) => frequencies.edge(e),
        Origin::Stop(n) => frequencies.node(n),
    };
    let weights: Vec<f64> = dag.edge_ids().map(weight).collect();
    let probes = Probes::on_chords(&dag, numbering.values(), &weights);
    let marked = interesting_ids(named, &dag, &numbering)?;
    let mut answer = json!({
        "scheme": "ball-larus",
        "paths": number_json(numbering.paths()),
        "edges": edges_json(named, &dag, &numbering, &probes),
        "ids": ids_json(named, &dag, &numbering, &marked, list),
    });
    let cut: Vec<u32> = dag.cuts().iter().filter(|c| c.reason == CutReason::Limit).map(|c| c.edge.0).collect();
    if !cut.is_empty() {
        // More than 2^63 paths: these edges were cut although they close no cycle.
        answer["cut"] = json!(cut);
    }
    Ok(answer)
}

/// The identities of the interesting paths.
fn interesting_ids(named: &Named, dag: &Dag, numbering: &Numbering) -> Result<Vec<u64>> {
    let id = |(i, path): (usize, &Vec<Edge>)| -> Result<u64> {
        let ends = (path.first().map(|e| named.graph.from(*e)), path.last().map(|e| named.graph.to(*e)));
        if ends != (Some(named.graph.entry()), Some(named.graph.exit())) {
            bail!("interesting path {i} does not lead from the entry to the exit");
        }
        let edges: Option<Vec<DagEdgeId>> = path.iter().map(|e| dag.real(*e)).collect();
        let edges = edges.with_context(|| format!("interesting path {i} takes an edge that is cut: paths end there"))?;
        Ok(numbering.id(&edges))
    };
    named.interesting.iter().enumerate().map(id).collect()
}

fn number_json(number: u64) -> Value {
    if number > EXACT_IN_JSON { json!(number.to_string()) } else { json!(number) }
}

fn signed_json(number: i64) -> Value {
    if number.unsigned_abs() > EXACT_IN_JSON { json!(number.to_string()) } else { json!(number) }
}

fn edges_json(named: &Named, dag: &Dag, numbering: &Numbering, probes: &Probes) -> Vec<Value> {
    let one = |id: DagEdgeId| {
        let edge = dag.edge(id);
        let increment = probes.increment(id);
        let mut row = json!({
            "edge": dag.underlying(id).map(|e| e.0),
            "from": named.names[edge.from.index()],
            "to": named.names[edge.to.index()],
            "value": signed_json(numbering.values()[id.index()]),
            "probe": increment != 0,
            "probe_value": signed_json(increment),
        });
        if !matches!(edge.origin, Origin::Real(_)) {
            row["dummy"] = json!(true);
        }
        row
    };
    // Edges that no path takes: they begin at a node that cannot be reached, or lead from the exit back to the entry.
    let unused = |e: Edge| {
        let (from, to) = (named.graph.from(e), named.graph.to(e));
        json!({
            "edge": e.0, "from": named.names[from.index()], "to": named.names[to.index()],
            "value": 0, "probe": false, "probe_value": 0, "unused": true,
        })
    };
    let used: HashSet<Edge> = dag.edge_ids().filter_map(|id| dag.underlying(id)).collect();
    let rest = named.graph.edges().filter(|e| !used.contains(e)).map(unused);
    dag.edge_ids().map(one).chain(rest).collect()
}

fn ids_json(named: &Named, dag: &Dag, numbering: &Numbering, marked: &[u64], list: u64) -> Vec<Value> {
    let one = |id: u64| {
        let path = numbering.path(dag, id).expect("identities are below the number of paths");
        let nodes = std::iter::once(dag.entry()).chain(path.iter().map(|e| dag.edge(*e).to));
        let mut row = json!({
            "path": nodes.map(|n| named.names[n.index()].as_str()).collect::<Vec<_>>(),
            "edges": path.iter().map(|e| dag.underlying(*e).map(|e| e.0)).collect::<Vec<_>>(),
            "id": number_json(id),
        });
        if marked.contains(&id) {
            row["interesting"] = json!(true);
        }
        row
    };
    let listed = 0..list.min(numbering.paths());
    let mut beyond: Vec<u64> = marked.iter().copied().filter(|id| *id >= listed.end).collect();
    beyond.sort_unstable();
    beyond.dedup();
    listed.chain(beyond).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(text: &str) -> Value {
        ball_larus(&parse(text).unwrap(), 100).unwrap()
    }

    /// Figure 3.4 (a) of the thesis: six paths; sacdt, sact and sbct have the numbers 0, 1 and 5.
    const MOTIVATING: &str = r#"{"entry":"s","exit":"t",
        "edges":[["s","a"],["a","c"],["c","d"],["d","t"],["c","t"],["a","b"],["b","c"],["s","b"]],
        "interesting":[["s","a","c","d","t"],["s","a","c","t"],["s","b","c","t"]]}"#;

    #[test]
    fn the_motivating_example_has_the_published_numbers() {
        let answer = numbered(MOTIVATING);
        assert_eq!(answer["paths"], 6);
        let marked: Vec<u64> =
            answer["ids"].as_array().unwrap().iter().filter(|r| r["interesting"] == true).map(|r| r["id"].as_u64().unwrap()).collect();
        assert_eq!(marked, [0, 1, 5]);
    }

    #[test]
    fn dot_and_json_agree() {
        let dot = "digraph { entry=s; exit=t; s -> a -> c -> d -> t; c -> t; a -> b -> c; s -> b; }";
        assert_eq!(numbered(dot)["edges"], numbered(&MOTIVATING.replace(",\n        \"interesting\"", ",\"interesting\""))["edges"]);
    }

    #[test]
    fn cut_edges_are_dummies_with_their_number() {
        let answer = numbered(r#"{"entry":"s","exit":"t","edges":[["s","h"],["h","b"],["b","h"],["h","t"]]}"#);
        let dummies: Vec<&Value> = answer["edges"].as_array().unwrap().iter().filter(|e| e["dummy"] == true).collect();
        assert_eq!(dummies.len(), 2);
        assert!(dummies.iter().all(|d| d["edge"] == 2));
        assert_eq!(answer["paths"], 4);
    }

    #[test]
    fn edges_that_no_path_takes_are_listed_as_such() {
        let answer = numbered(r#"{"entry":"s","exit":"t","edges":[["s","t"],["x","t"],["t","s"]]}"#);
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
        assert_eq!(numbered(&text)["paths"], (1u64 << 60).to_string());
    }

    #[test]
    fn more_than_two_to_the_sixty_third_paths_are_cut_and_said() {
        let edges: Vec<String> = (0..80).map(|d| format!(r#"["n{d}","n{}"],["n{d}","n{}"]"#, d + 1, d + 1)).collect();
        let answer = numbered(&format!(r#"{{"entry":"n0","exit":"n80","edges":[{}]}}"#, edges.join(",")));
        assert!(!answer["cut"].as_array().unwrap().is_empty());
    }

    #[test]
    fn bad_graphs_are_named() {
        let error = |text: &str| format!("{:#}", parse(text).err().expect("it is bad"));
        assert!(error(r#"{"entry":"s","exit":"t","edges":[["s","t"]],"weights":[1,2]}"#).contains("2 weights for 1 edges"));
        assert!(error(r#"{"entry":"s","exit":"s","edges":[]}"#).contains("both entry and exit"));
        assert!(error(r#"{"entry":"s","exit":"t","edges":[["s","t"],["s","t"]],"interesting":[["s","t"]]}"#).contains("2 edges lead"));
        assert!(error(r#"{"entry":"s","exit":"t","edges":[["s","t"]],"interesting":[["s","x"]]}"#).contains("no node `x`"));
        assert!(error("digraph { a -> }").contains("line 1"));
    }
}
