//! The JSON form of a graph.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
pub struct GraphInput {
    pub entry: NodeName,
    pub exit: NodeName,
    /// Edges as pairs of nodes. An edge's number is its index in this list.
    pub edges: Vec<(NodeName, NodeName)>,
    /// Execution count of each edge.
    #[serde(default)]
    pub weights: Option<Vec<f64>>,
    #[serde(default)]
    pub interesting: Option<Vec<PathInput>>,
    /// Numbers of interesting edges. A path is interesting if it takes no other edges.
    #[serde(default)]
    pub interesting_edges: Option<Vec<u32>>,
    /// Interesting nodes. A path is interesting if it passes through all of them.
    #[serde(default)]
    pub through: Option<Vec<NodeName>>,
    /// All other keys of the file. Those that `trodden-lab graph show` writes are allowed.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// Name of a node: a string or, equivalently, an integer.
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

/// A path, given by its nodes or, if there are parallel edges, by its edges.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum PathInput {
    Nodes(Vec<NodeName>),
    Edges { edges: Vec<u32> },
}
