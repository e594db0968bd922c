//! The JSON of a graph, or of several functions that call each other, with profiles and traces, for `trodden-lab graph witnesses` and
//! `reconstruct`.
//!
//! Nodes keep the form in which they are named first: a number comes back as a number. A witness is a node, or with `--edges` the number
//! of an edge; with several functions a pair of function and it.

use super::input::{GraphInput, NodeName};
use super::{Named, dot, resolve};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use trodden_flow::{Edge, Node};
use trodden_witness::{
    EdgeWeights, Opaque, ProgramCall, ProgramStart, Weights, Witness, WitnessEdgeKind, WitnessFunction, WitnessFunctionId, WitnessKind,
    WitnessProgram, WitnessSite,
};

/// A program from a file, and what else the file has.
pub struct WitnessFile {
    /// The program.
    pub program: WitnessProgram,
    /// Costs of its witnesses.
    pub weights: Weights,
    /// The witnesses of each run.
    pub profiles: Option<Vec<Vec<Witness>>>,
    /// The partial trace of each run.
    pub traces: Option<Vec<Vec<Witness>>>,
    /// Nodes whose given weights do not obey Kirchhoff's law: less leaves them than comes, or more.
    pub unbalanced: Vec<(WitnessFunctionId, Node)>,
    names: Names,
}

/// What things are called in the file.
struct Names {
    /// One graph without a name.
    single: bool,
    kind: WitnessKind,
    functions: Vec<String>,
    nodes: Vec<Vec<Value>>,
    function_numbers: HashMap<String, WitnessFunctionId>,
    node_numbers: Vec<HashMap<String, Node>>,
}

/// A call in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallInput {
    function: String,
    block: NodeName,
    #[serde(default)]
    callee: Option<Callees>,
    #[serde(default)]
    opaque: Option<OpaqueInput>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Callees {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OpaqueInput {
    returns: bool,
    ends_run: bool,
    unwinds: bool,
    calls_back: bool,
}

impl Default for OpaqueInput {
    fn default() -> OpaqueInput {
        OpaqueInput { returns: true, ends_run: false, unwinds: false, calls_back: false }
    }
}

/// Reads the text of a file.
pub fn parse(text: &str, kind: WitnessKind) -> Result<WitnessFile> {
    if text.trim().is_empty() {
        bail!("there is nothing in it: give a graph in JSON or DOT");
    }
    if !text.trim_start().starts_with(['{', '[']) {
        return single(resolve(dot::parse(text)?)?, Vec::new(), kind, None, None);
    }
    let Value::Object(mut file) = serde_json::from_str(text).context("not JSON")? else {
        bail!("not the JSON of a graph: it is an object such as {{\"entry\": \"a\", \"exit\": \"b\", \"edges\": [[\"a\", \"b\"]]}}");
    };
    let (profiles, traces) = (file.remove("profiles"), file.remove("traces"));
    if file.contains_key("functions") {
        return functions(file, kind, profiles, traces);
    }
    let typed = forms(&file);
    single(graph(file)?, typed, kind, profiles, traces)
}

fn graph(mut file: Map<String, Value>) -> Result<Named> {
    file.remove("unwind");
    let input: GraphInput = serde_json::from_value(Value::Object(file))
        .context("not the JSON of a graph, such as {\"entry\": \"a\", \"exit\": \"b\", \"edges\": [[\"a\", \"b\"]]}")?;
    resolve(input)
}

/// Names that stand for numbers, in the order of the file, as they are written there.
fn forms(file: &Map<String, Value>) -> Vec<Value> {
    let ends = ["entry", "exit"].iter().filter_map(|key| file.get(*key)).cloned();
    let edges = file.get("edges").and_then(Value::as_array).into_iter().flatten().flat_map(|e| e.as_array().into_iter().flatten()).cloned();
    ends.chain(edges).collect()
}

/// The nodes of a graph in the form in which they are written first.
fn node_values(named: &Named, forms: &[Value]) -> Vec<Value> {
    let mut written: HashMap<String, &Value> = HashMap::new();
    for form in forms {
        let name = form.as_str().map_or_else(|| form.to_string(), str::to_owned);
        written.entry(name).or_insert(form);
    }
    named.names.iter().map(|n| written.get(n).map_or_else(|| Value::from(n.as_str()), |v| (*v).clone())).collect()
}

fn single(named: Named, forms: Vec<Value>, kind: WitnessKind, profiles: Option<Value>, traces: Option<Value>) -> Result<WitnessFile> {
    let mut names = Names::new(true, kind);
    names.add("main", &named, &forms);
    let weights = named.weights.clone().map_or(EdgeWeights::Unknown, EdgeWeights::PerRun);
    let program = WitnessProgram::from_graph(named.graph)?;
    WitnessFile::new(program, &[weights], names, profiles, traces)
}

fn functions(mut file: Map<String, Value>, kind: WitnessKind, profiles: Option<Value>, traces: Option<Value>) -> Result<WitnessFile> {
    let Some(Value::Object(graphs)) = file.remove("functions") else {
        bail!("`functions` is no object: give {{\"functions\": {{\"main\": {{\"entry\": ..., \"exit\": ..., \"edges\": ...}}}}}}");
    };
    let (mut names, mut list, mut weights) = (Names::new(false, kind), Vec::new(), Vec::new());
    for (name, value) in graphs {
        let Value::Object(value) = value else { bail!("function `{name}` is no object: give its graph") };
        let (forms, unwind) = (forms(&value), value.get("unwind").cloned());
        let named = graph(value).with_context(|| format!("function `{name}`"))?;
        names.add(&name, &named, &forms);
        weights.push(named.weights.clone().map_or(EdgeWeights::Unknown, EdgeWeights::PerRun));
        let mut function = WitnessFunction::new(name.as_str(), named.graph);
        mark_unwinding(&mut function, unwind).with_context(|| format!("function `{name}`"))?;
        list.push(function);
    }
    for (at, call) in from_value::<Vec<CallInput>>(file.remove("calls"), "calls")?.unwrap_or_default().into_iter().enumerate() {
        add_call(&mut list, &names, call).with_context(|| format!("call {at}"))?;
    }
    let main = from_value::<String>(file.remove("main"), "main")?.unwrap_or_else(|| "main".into());
    let main = names.function(&main).context("give the function that runs start in as \"main\": NAME")?;
    let external = from_value::<Vec<String>>(file.remove("external"), "external")?.unwrap_or_default();
    let external = external.iter().map(|n| names.function(n)).collect::<Result<_>>()?;
    if let Some(key) = file.keys().next() {
        bail!("`{key}` is nothing that this file has: it has functions, calls, main, external, profiles and traces");
    }
    let program = WitnessProgram::new(list, ProgramStart::Main(main), external)?;
    WitnessFile::new(program, &weights, names, profiles, traces)
}

/// Inner nodes that weights come to and leave in different sums. Calls may end the run, so nodes with calls are not looked at.
fn unbalanced(program: &WitnessProgram, weights: &[EdgeWeights]) -> Vec<(WitnessFunctionId, Node)> {
    let mut found = Vec::new();
    for (function, weights) in program.function_ids().zip(weights) {
        let (of, EdgeWeights::PerRun(weights)) = (program.function(function), weights) else { continue };
        let sum = |edges: &[Edge]| edges.iter().map(|e| weights[e.index()]).sum::<f64>();
        let differs = |node: &Node| {
            let (comes, leaves) = (sum(of.graph.incoming(*node)), sum(of.graph.out(*node)));
            (comes - leaves).abs() > 1e-9 * comes.max(leaves)
        };
        let inner = |node: &Node| ![of.graph.entry(), of.graph.exit()].contains(node) && !of.calls.iter().any(|(at, _)| at == node);
        found.extend(of.graph.nodes().filter(inner).filter(differs).map(|node| (function, node)));
    }
    found
}

fn from_value<T: for<'a> Deserialize<'a>>(value: Option<Value>, key: &str) -> Result<Option<T>> {
    value.map(serde_json::from_value).transpose().with_context(|| format!("`{key}` is not as it must be"))
}

fn mark_unwinding(function: &mut WitnessFunction, edges: Option<Value>) -> Result<()> {
    for edge in from_value::<Vec<usize>>(edges, "unwind")?.unwrap_or_default() {
        let count = function.edges.len();
        *function.edges.get_mut(edge).with_context(|| format!("there is no edge {edge} to unwind along: there are {count}"))? =
            WitnessEdgeKind::Unwind;
    }
    Ok(())
}

fn add_call(list: &mut [WitnessFunction], names: &Names, call: CallInput) -> Result<()> {
    let caller = names.function(&call.function)?;
    let node = names.node(caller, &call.block.0)?;
    let callees = match call.callee {
        None => Vec::new(),
        Some(Callees::One(name)) => vec![names.function(&name)?],
        Some(Callees::Several(several)) => several.iter().map(|n| names.function(n)).collect::<Result<_>>()?,
    };
    let opaque = call.opaque.map(|o| Opaque { returns: o.returns, ends_run: o.ends_run, unwinds: o.unwinds, calls_back: o.calls_back });
    if callees.is_empty() && opaque.is_none() {
        bail!("it has no callee: give \"callee\": NAME");
    }
    list[caller.index()].calls.push((node, ProgramCall { callees, opaque, keeps_frame: false }));
    Ok(())
}

impl Names {
    fn new(single: bool, kind: WitnessKind) -> Names {
        Names { single, kind, functions: Vec::new(), nodes: Vec::new(), function_numbers: HashMap::new(), node_numbers: Vec::new() }
    }

    fn add(&mut self, name: &str, named: &Named, forms: &[Value]) {
        self.function_numbers.insert(name.to_owned(), WitnessFunctionId(self.functions.len() as u32));
        self.functions.push(name.to_owned());
        self.nodes.push(node_values(named, forms));
        self.node_numbers.push(named.names.iter().cloned().zip((0..).map(Node)).collect());
    }

    fn function(&self, name: &str) -> Result<WitnessFunctionId> {
        self.function_numbers.get(name).copied().with_context(|| format!("there is no function `{name}`"))
    }

    fn node(&self, function: WitnessFunctionId, name: &str) -> Result<Node> {
        let node = self.node_numbers[function.index()].get(name).copied();
        node.with_context(|| match self.single {
            true => format!("there is no node `{name}`"),
            false => format!("function `{}` has no node `{name}`", self.functions[function.index()]),
        })
    }

    /// A witness as the file has it.
    fn witness(&self, program: &WitnessProgram, value: &Value) -> Result<Witness> {
        let (function, of) = match (self.single, value) {
            (true, of) => (WitnessFunctionId(0), of),
            (false, Value::Array(pair)) if pair.len() == 2 && pair[0].is_string() => {
                (self.function(pair[0].as_str().expect("it is one"))?, &pair[1])
            }
            (false, _) => bail!("`{value}` is no witness: give [FUNCTION, {}]", self.what()),
        };
        if self.kind == WitnessKind::Edges {
            let edge = of.as_u64().with_context(|| format!("`{of}` is no edge: give its number"))?;
            let count = program.function(function).graph.edge_count();
            if edge >= count as u64 {
                bail!("there is no edge {edge}: they are numbered from 0 to {}", count as i64 - 1);
            }
            return Ok(program.edge_witness(function, Edge(edge as u32)));
        }
        let name: NodeName = serde_json::from_value(of.clone()).with_context(|| format!("`{of}` is no node: give its name"))?;
        Ok(program.node_witness(function, self.node(function, &name.0)?))
    }

    fn what(&self) -> &'static str {
        if self.kind == WitnessKind::Edges { "EDGE" } else { "NODE" }
    }

    fn lists(&self, program: &WitnessProgram, value: Option<Value>, key: &str) -> Result<Option<Vec<Vec<Witness>>>> {
        let Some(lists) = from_value::<Vec<Vec<Value>>>(value, key)? else { return Ok(None) };
        let list = |(at, list): (usize, &Vec<Value>)| -> Result<Vec<Witness>> {
            list.iter().map(|v| self.witness(program, v)).collect::<Result<_>>().with_context(|| format!("`{key}`, list {at}"))
        };
        Ok(Some(lists.iter().enumerate().map(list).collect::<Result<_>>()?))
    }
}

impl WitnessFile {
    fn new(
        program: WitnessProgram,
        weights: &[EdgeWeights],
        names: Names,
        profiles: Option<Value>,
        traces: Option<Value>,
    ) -> Result<WitnessFile> {
        let unbalanced = unbalanced(&program, weights);
        let weights = Weights::new(&program, weights);
        let profiles = names.lists(&program, profiles, "profiles")?;
        let traces = names.lists(&program, traces, "traces")?;
        Ok(WitnessFile { program, weights, profiles, traces, unbalanced, names })
    }

    /// A node as the file has it.
    pub fn node(&self, function: WitnessFunctionId, node: Node) -> Value {
        self.of(function, self.names.nodes[function.index()][node.index()].clone())
    }

    /// A witness as the file has it.
    pub fn witness(&self, witness: Witness) -> Value {
        match self.program.site(self.names.kind, witness) {
            WitnessSite::Node(function, node) => self.node(function, node),
            WitnessSite::Edge(function, edge) => self.of(function, Value::from(edge.0)),
        }
    }

    /// The entry of a function.
    pub fn entry(&self, function: WitnessFunctionId) -> Value {
        self.node(function, self.program.function(function).graph.entry())
    }

    /// A function's name.
    pub fn function(&self, function: WitnessFunctionId) -> &str {
        &self.names.functions[function.index()]
    }

    fn of(&self, function: WitnessFunctionId, what: Value) -> Value {
        match self.names.single {
            true => what,
            false => Value::from(vec![Value::from(self.function(function)), what]),
        }
    }
}
