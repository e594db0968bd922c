//! The JSON of a graph.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A graph as a user writes it.
#[derive(Debug, Deserialize)]
pub struct Input {
    /// Where paths begin.
    pub entry: Name,
    /// Where paths end.
    pub exit: Name,
    /// Edges as pairs of nodes; an edge's number is its place.
    pub edges: Vec<(Name, Name)>,
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
    pub through: Option<Vec<Name>>,
    /// What `trodden graph show` says besides, or nothing that is known.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// Name of a node: a string, or a number that stands for its digits.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "TextOrNumber")]
pub struct Name(pub String);

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Number(i64),
}

impl From<TextOrNumber> for Name {
    fn from(name: TextOrNumber) -> Name {
        match name {
            TextOrNumber::Text(text) => Name(text),
            TextOrNumber::Number(number) => Name(number.to_string()),
        }
    }
}

/// A path: its nodes, or where there are parallel edges, its edges.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum PathInput {
    /// By nodes.
    Nodes(Vec<Name>),
    /// By edges.
    Edges {
        /// Numbers of the edges.
        edges: Vec<u32>,
    },
}
