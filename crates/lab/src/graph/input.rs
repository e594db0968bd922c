//! The JSON of a graph.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A graph as a user writes it.
#[derive(Debug, Default, Deserialize)]
pub struct GraphInput {
    /// Where paths begin.
    pub entry: NodeName,
    /// Where paths end.
    pub exit: NodeName,
    /// Edges as pairs of nodes; an edge's number is its place.
    pub edges: Vec<(NodeName, NodeName)>,
    /// Executions of each edge.
    #[serde(default)]
    pub weights: Option<Vec<f64>>,
    /// Paths of interest.
    #[serde(default)]
    pub interesting: Option<Vec<PathInput>>,
    /// Edges of interest: all paths over them are.
    #[serde(default)]
    pub interesting_edges: Option<Vec<u32>>,
    /// Nodes of interest: all paths through all of them are.
    #[serde(default)]
    pub through: Option<Vec<NodeName>>,
    /// What `trodden-lab graph show` says besides, or nothing that is known.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// Name of a node: a string, or a number that stands for its digits.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "TextOrNumber")]
pub struct NodeName(pub String);

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Number(i64),
}

impl From<TextOrNumber> for NodeName {
    fn from(name: TextOrNumber) -> NodeName {
        match name {
            TextOrNumber::Text(text) => NodeName(text),
            TextOrNumber::Number(number) => NodeName(number.to_string()),
        }
    }
}

/// A path: its nodes, or where there are parallel edges, its edges.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum PathInput {
    /// By nodes.
    Nodes(Vec<NodeName>),
    /// By edges.
    Edges {
        /// Numbers of the edges.
        edges: Vec<u32>,
    },
}
