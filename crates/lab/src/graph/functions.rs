//! Input of `trodden-lab graph witnesses` and `reconstruct`: a graph, or several functions that call each other, with profiles and traces.
//!
//! Output spells each node as at its first occurrence in the file, as a string or a number. A witness is a node or, with `--edges`, the
//! number of an edge. With several functions, it is a pair of the function and the node or edge.

use super::input::{GraphInput, NodeName};
use super::{NamedGraph, dot, number_nodes};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use trodden_flow::{Edge, Node};
use trodden_witness::{
    EdgeWeights, Opaque, ProgramCall, StartPoint, Weights, Witness, WitnessEdgeKind, WitnessFunction, WitnessFunctionId, WitnessKind,
    WitnessProgram, WitnessSite,
};

pub struct WitnessFile {
    pub program: WitnessProgram,
    pub weights: Weights,
    pub profiles: Option<Vec<Vec<Witness>>>,
    pub traces: Option<Vec<Vec<Witness>>>,
    /// Nodes whose weights violate Kirchhoff's law: the sum over the in-edges differs from the sum over the out-edges.
    pub unbalanced: Vec<(WitnessFunctionId, Node)>,
    names: GraphNames,
}

struct GraphNames {
    /// True if the file has a single graph without a function name.
    is_single: bool,
    kind: WitnessKind,
    functions: Vec<String>,
    nodes: Vec<Vec<Value>>,
    function_numbers: HashMap<String, WitnessFunctionId>,
    node_numbers: Vec<HashMap<String, Node>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallInput {
    function: String,
    block: NodeName,
    #[serde(default)]
    callee: Option<CalleesInput>,
    #[serde(default)]
    opaque: Option<OpaqueCallInput>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CalleesInput {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OpaqueCallInput {
    returns: bool,
    ends_run: bool,
    unwinds: bool,
    calls_back: bool,
}

impl Default for OpaqueCallInput {
    fn default() -> OpaqueCallInput {
        OpaqueCallInput { returns: true, ends_run: false, unwinds: false, calls_back: false }
    }
}

pub fn parse(text: &str, kind: WitnessKind) -> Result<WitnessFile> {
    if text.trim().is_empty() {
        bail!("the input is empty: expected a graph in JSON or DOT");
    }
    if !text.trim_start().starts_with(['{', '[']) {
        return single_graph(number_nodes(dot::parse(text)?)?, Vec::new(), kind, None, None);
    }
    let Value::Object(mut file) = serde_json::from_str(text).context("cannot parse the graph file as JSON")? else {
        bail!("the JSON is not a graph: expected an object such as {{\"entry\": \"a\", \"exit\": \"b\", \"edges\": [[\"a\", \"b\"]]}}");
    };
    let (profiles, traces) = (file.remove("profiles"), file.remove("traces"));
    if file.contains_key("functions") {
        return parse_functions(file, kind, profiles, traces);
    }
    let spellings = node_spellings(&file);
    single_graph(parse_graph(file)?, spellings, kind, profiles, traces)
}

fn parse_graph(mut file: Map<String, Value>) -> Result<NamedGraph> {
    file.remove("unwind");
    let input: GraphInput = serde_json::from_value(Value::Object(file))
        .context("the JSON is not a graph: expected an object such as {\"entry\": \"a\", \"exit\": \"b\", \"edges\": [[\"a\", \"b\"]]}")?;
    number_nodes(input)
}

/// Lists the node names in file order, as they are written in the file (strings or numbers).
fn node_spellings(file: &Map<String, Value>) -> Vec<Value> {
    let ends = ["entry", "exit"].iter().filter_map(|key| file.get(*key)).cloned();
    let edges = file.get("edges").and_then(Value::as_array).into_iter().flatten().flat_map(|e| e.as_array().into_iter().flatten()).cloned();
    ends.chain(edges).collect()
}

/// Returns the names of all nodes, each spelled as at its first occurrence.
fn node_values(named: &NamedGraph, spellings: &[Value]) -> Vec<Value> {
    let mut written: HashMap<String, &Value> = HashMap::new();
    for spelling in spellings {
        let name = spelling.as_str().map_or_else(|| spelling.to_string(), str::to_owned);
        written.entry(name).or_insert(spelling);
    }
    named.names.iter().map(|n| written.get(n).map_or_else(|| Value::from(n.as_str()), |v| (*v).clone())).collect()
}

fn single_graph(
    named: NamedGraph,
    spellings: Vec<Value>,
    kind: WitnessKind,
    profiles: Option<Value>,
    traces: Option<Value>,
) -> Result<WitnessFile> {
    let mut names = GraphNames::new(true, kind);
    names.add("main", &named, &spellings);
    let weights = named.weights.clone().map_or(EdgeWeights::Unknown, EdgeWeights::PerRun);
    let program = WitnessProgram::from_graph(named.graph)?;
    WitnessFile::new(program, &[weights], names, profiles, traces)
}

fn parse_functions(mut file: Map<String, Value>, kind: WitnessKind, profiles: Option<Value>, traces: Option<Value>) -> Result<WitnessFile> {
    let Some(Value::Object(graphs)) = file.remove("functions") else {
        bail!("`functions` must be an object: {{\"functions\": {{\"main\": {{\"entry\": ..., \"exit\": ..., \"edges\": ...}}}}}}");
    };
    let (mut names, mut list, mut weights) = (GraphNames::new(false, kind), Vec::new(), Vec::new());
    for (name, value) in graphs {
        let Value::Object(value) = value else {
            bail!("function `{name}` must be an object that describes its graph: {{\"entry\": ..., \"exit\": ..., \"edges\": ...}}")
        };
        let (spellings, unwind) = (node_spellings(&value), value.get("unwind").cloned());
        let named = parse_graph(value).with_context(|| format!("cannot use function `{name}`"))?;
        names.add(&name, &named, &spellings);
        weights.push(named.weights.clone().map_or(EdgeWeights::Unknown, EdgeWeights::PerRun));
        let mut function = WitnessFunction::new(name.as_str(), named.graph);
        mark_unwinding(&mut function, unwind).with_context(|| format!("cannot use function `{name}`"))?;
        list.push(function);
    }
    for (at, call) in parse_key::<Vec<CallInput>>(file.remove("calls"), "calls")?.unwrap_or_default().into_iter().enumerate() {
        add_call(&mut list, &names, call).with_context(|| format!("cannot use call {at} (counted from 0)"))?;
    }
    let main = parse_key::<String>(file.remove("main"), "main")?.unwrap_or_else(|| "main".into());
    let main = names.function(&main).context("`main` must name an existing function, in which runs start")?;
    let external = parse_key::<Vec<String>>(file.remove("external"), "external")?.unwrap_or_default();
    let external = external.iter().map(|n| names.function(n)).collect::<Result<_>>()?;
    if let Some(key) = file.keys().next() {
        bail!("unknown key `{key}`: expected functions, calls, main, external, profiles or traces");
    }
    let program = WitnessProgram::new(list, StartPoint::Main(main), external)?;
    WitnessFile::new(program, &weights, names, profiles, traces)
}

/// Lists the nodes, except entry and exit, whose in-edges and out-edges have different sums of weights. Nodes with calls are skipped,
/// because a call may end the run.
fn find_unbalanced_nodes(program: &WitnessProgram, weights: &[EdgeWeights]) -> Vec<(WitnessFunctionId, Node)> {
    let mut found = Vec::new();
    for (function, weights) in program.function_ids().zip(weights) {
        let (of, EdgeWeights::PerRun(weights)) = (program.function(function), weights) else { continue };
        let sum = |edges: &[Edge]| edges.iter().map(|e| weights[e.index()]).sum::<f64>();
        let differs = |node: &Node| {
            let (incoming, outgoing) = (sum(of.graph.incoming(*node)), sum(of.graph.out(*node)));
            (incoming - outgoing).abs() > 1e-9 * incoming.max(outgoing)
        };
        let inner = |node: &Node| ![of.graph.entry(), of.graph.exit()].contains(node) && !of.calls.iter().any(|(at, _)| at == node);
        found.extend(of.graph.nodes().filter(inner).filter(differs).map(|node| (function, node)));
    }
    found
}

fn parse_key<T: for<'a> Deserialize<'a>>(value: Option<Value>, key: &str) -> Result<Option<T>> {
    value.map(serde_json::from_value).transpose().with_context(|| format!("cannot parse `{key}`"))
}

fn mark_unwinding(function: &mut WitnessFunction, edges: Option<Value>) -> Result<()> {
    for edge in parse_key::<Vec<usize>>(edges, "unwind")?.unwrap_or_default() {
        let count = function.edges.len();
        *function
            .edges
            .get_mut(edge)
            .with_context(|| format!("`unwind` names edge {edge}, but the graph has {count} edges, numbered from 0"))? =
            WitnessEdgeKind::Unwind;
    }
    Ok(())
}

fn add_call(list: &mut [WitnessFunction], names: &GraphNames, call: CallInput) -> Result<()> {
    let caller = names.function(&call.function)?;
    let node = names.node(caller, &call.block.0)?;
    let callees = match call.callee {
        None => Vec::new(),
        Some(CalleesInput::One(name)) => vec![names.function(&name)?],
        Some(CalleesInput::Several(several)) => several.iter().map(|n| names.function(n)).collect::<Result<_>>()?,
    };
    let opaque = call.opaque.map(|o| Opaque { returns: o.returns, ends_run: o.ends_run, unwinds: o.unwinds, calls_back: o.calls_back });
    if callees.is_empty() && opaque.is_none() {
        bail!("the call has no callee. Add \"callee\": NAME");
    }
    list[caller.index()].calls.push((node, ProgramCall { callees, opaque, keeps_frame: false }));
    Ok(())
}

impl GraphNames {
    fn new(is_single: bool, kind: WitnessKind) -> GraphNames {
        GraphNames { is_single, kind, functions: Vec::new(), nodes: Vec::new(), function_numbers: HashMap::new(), node_numbers: Vec::new() }
    }

    fn add(&mut self, name: &str, named: &NamedGraph, spellings: &[Value]) {
        self.function_numbers.insert(name.to_owned(), WitnessFunctionId(self.functions.len() as u32));
        self.functions.push(name.to_owned());
        self.nodes.push(node_values(named, spellings));
        self.node_numbers.push(named.names.iter().cloned().zip((0..).map(Node)).collect());
    }

    fn function(&self, name: &str) -> Result<WitnessFunctionId> {
        self.function_numbers.get(name).copied().with_context(|| format!("function `{name}` does not exist"))
    }

    fn node(&self, function: WitnessFunctionId, name: &str) -> Result<Node> {
        let node = self.node_numbers[function.index()].get(name).copied();
        node.with_context(|| match self.is_single {
            true => format!("node `{name}` does not exist"),
            false => format!("function `{}` has no node `{name}`", self.functions[function.index()]),
        })
    }

    fn parse_witness(&self, program: &WitnessProgram, value: &Value) -> Result<Witness> {
        let (function, of) = match (self.is_single, value) {
            (true, of) => (WitnessFunctionId(0), of),
            (false, Value::Array(pair)) if pair.len() == 2 && pair[0].is_string() => {
                (self.function(pair[0].as_str().expect("checked by the pattern's guard"))?, &pair[1])
            }
            (false, _) => bail!("cannot parse witness `{value}`. Write it as [FUNCTION, {}]", self.site_name()),
        };
        if self.kind == WitnessKind::Edges {
            let edge = of.as_u64().with_context(|| format!("invalid edge number `{of}`"))?;
            let count = program.function(function).graph.edge_count();
            if edge >= count as u64 {
                bail!("no edge has number {edge}: edges are numbered from 0 to {}", count as i64 - 1);
            }
            return Ok(program.edge_witness(function, Edge(edge as u32)));
        }
        let name: NodeName = serde_json::from_value(of.clone()).with_context(|| format!("invalid node name `{of}`"))?;
        Ok(program.node_witness(function, self.node(function, &name.0)?))
    }

    fn site_name(&self) -> &'static str {
        if self.kind == WitnessKind::Edges { "EDGE" } else { "NODE" }
    }

    fn parse_witness_lists(&self, program: &WitnessProgram, value: Option<Value>, key: &str) -> Result<Option<Vec<Vec<Witness>>>> {
        let Some(lists) = parse_key::<Vec<Vec<Value>>>(value, key)? else { return Ok(None) };
        let list = |(at, list): (usize, &Vec<Value>)| -> Result<Vec<Witness>> {
            list.iter()
                .map(|v| self.parse_witness(program, v))
                .collect::<Result<_>>()
                .with_context(|| format!("cannot parse list {at} of `{key}` (counted from 0)"))
        };
        Ok(Some(lists.iter().enumerate().map(list).collect::<Result<_>>()?))
    }
}

impl WitnessFile {
    fn new(
        program: WitnessProgram,
        weights: &[EdgeWeights],
        names: GraphNames,
        profiles: Option<Value>,
        traces: Option<Value>,
    ) -> Result<WitnessFile> {
        let unbalanced = find_unbalanced_nodes(&program, weights);
        let weights = Weights::new(&program, weights);
        let profiles = names.parse_witness_lists(&program, profiles, "profiles")?;
        let traces = names.parse_witness_lists(&program, traces, "traces")?;
        Ok(WitnessFile { program, weights, profiles, traces, unbalanced, names })
    }

    pub fn node(&self, function: WitnessFunctionId, node: Node) -> Value {
        self.qualify_with_function(function, self.names.nodes[function.index()][node.index()].clone())
    }

    pub fn witness(&self, witness: Witness) -> Value {
        match self.program.site(self.names.kind, witness) {
            WitnessSite::Node(function, node) => self.node(function, node),
            WitnessSite::Edge(function, edge) => self.qualify_with_function(function, Value::from(edge.0)),
        }
    }

    pub fn entry(&self, function: WitnessFunctionId) -> Value {
        self.node(function, self.program.function(function).graph.entry())
    }

    pub fn function(&self, function: WitnessFunctionId) -> &str {
        &self.names.functions[function.index()]
    }

    fn qualify_with_function(&self, function: WitnessFunctionId, site: Value) -> Value {
        match self.names.is_single {
            true => site,
            false => Value::from(vec![Value::from(self.function(function)), site]),
        }
    }
}
