//! Graphs in DOT: directed graphs of node and edge statements, with `entry=` and `exit=` as graph attributes.
//!
//! Read are: `digraph NAME? { ... }`, chains `a -> b -> c [weight=3]`, node statements (their attributes are passed
//! over), quoted names, `;`, comments (`//`, `/* */`, `#` lines), default statements (`node [...]`). Without `entry` or
//! `exit`, the only node without in-edges, or out-edges, is it. Subgraphs and ports are refused by name.

use super::input::{GraphInput, NodeName};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;

/// Reads a directed graph.
pub fn parse(text: &str) -> Result<GraphInput> {
    let mut reader = Reader { tokens: tokens(text)?, at: 0 };
    reader.header()?;
    let mut graph = Statements::default();
    while !reader.take("}") {
        reader.statement(&mut graph)?;
    }
    graph.finish()
}

#[derive(Default)]
struct Statements {
    entry: Option<String>,
    exit: Option<String>,
    nodes: BTreeSet<String>,
    edges: Vec<(String, String)>,
    weights: Vec<Option<f64>>,
}

impl Statements {
    fn finish(self) -> Result<GraphInput> {
        // The only node that no edge enters, or that none leaves.
        let only = |what: &str, others: BTreeSet<&String>| -> Result<String> {
            let mut candidates = self.nodes.iter().filter(|node| !others.contains(node));
            match (candidates.next(), candidates.count()) {
                (Some(one), 0) => Ok(one.clone()),
                (first, more) => bail!("{} nodes could be the {what}: say which with `{what}=NODE;`", more + usize::from(first.is_some())),
            }
        };
        let entry = self.entry.clone().map_or_else(|| only("entry", self.edges.iter().map(|e| &e.1).collect()), Ok)?;
        let exit = self.exit.clone().map_or_else(|| only("exit", self.edges.iter().map(|e| &e.0).collect()), Ok)?;
        let weights = match self.weights.iter().any(Option::is_some) {
            false => None,
            true => {
                let all: Option<Vec<f64>> = self.weights.iter().copied().collect();
                Some(all.context("some edges have a weight and some have none: give all of them one, or none")?)
            }
        };
        let edges = self.edges.into_iter().map(|(a, b)| (NodeName(a), NodeName(b))).collect();
        Ok(GraphInput { entry: NodeName(entry), exit: NodeName(exit), edges, weights, ..GraphInput::default() })
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Name,
    Sign,
}

#[derive(Debug, Clone)]
struct Token {
    text: String,
    kind: Kind,
    line: usize,
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn header(&mut self) -> Result<()> {
        let _ = self.take_name("strict");
        if !self.take_name("digraph") {
            bail!("{}: a directed graph begins with `digraph`", self.line());
        }
        if !self.take("{") {
            self.name()?;
            self.expect("{")?;
        }
        Ok(())
    }

    fn statement(&mut self, graph: &mut Statements) -> Result<()> {
        if self.take(";") {
            return Ok(());
        }
        if self.peek("{") {
            bail!("{}: subgraphs are not read: write their edges out", self.line());
        }
        let line = self.line();
        let first = self.name()?;
        if first == "subgraph" {
            bail!("{line}: subgraphs are not read: write their edges out");
        }
        if self.take("=") {
            let value = self.name()?;
            match first.as_str() {
                "entry" => graph.entry = Some(value),
                "exit" => graph.exit = Some(value),
                _ => {}
            }
            return Ok(());
        }
        if matches!(first.as_str(), "graph" | "node" | "edge") && self.peek("[") {
            self.attributes()?;
            return Ok(());
        }
        self.chain(first, graph)
    }

    fn chain(&mut self, first: String, graph: &mut Statements) -> Result<()> {
        let mut chain = vec![first];
        while self.take("->") {
            chain.push(self.name()?);
        }
        if self.peek("--") {
            bail!("{}: `--` is an undirected edge: write `->`", self.line());
        }
        graph.nodes.extend(chain.iter().cloned());
        let line = self.line();
        let mut weight = None;
        for (key, value) in self.attributes()? {
            if key == "weight" && chain.len() > 1 {
                weight = Some(value.parse().with_context(|| format!("{line}: the weight `{value}` is no number"))?);
            }
        }
        for pair in chain.windows(2) {
            graph.edges.push((pair[0].clone(), pair[1].clone()));
            graph.weights.push(weight);
        }
        Ok(())
    }

    fn attributes(&mut self) -> Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        while self.take("[") {
            while !self.take("]") {
                if self.take(",") || self.take(";") {
                    continue;
                }
                let key = self.name()?;
                self.expect("=")?;
                all.push((key, self.name()?));
            }
        }
        Ok(all)
    }

    fn name(&mut self) -> Result<String> {
        match self.tokens.get(self.at) {
            Some(Token { text, kind: Kind::Name, .. }) => {
                self.at += 1;
                Ok(text.clone())
            }
            Some(token) => bail!("{}: a name is expected, not `{}`", self.line(), token.text),
            None => bail!("{}: the graph ends too early", self.line()),
        }
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        match self.take(sign) {
            true => Ok(()),
            false => bail!("{}: `{sign}` is expected", self.line()),
        }
    }

    fn peek(&self, sign: &str) -> bool {
        self.tokens.get(self.at).is_some_and(|t| t.kind == Kind::Sign && t.text == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.peek(sign);
        self.at += usize::from(found);
        found
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|t| t.kind == Kind::Name && t.text.eq_ignore_ascii_case(name));
        self.at += usize::from(found);
        found
    }

    fn line(&self) -> String {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        format!("line {}", token.map_or(1, |t| t.line))
    }
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\n' => {
                line += 1;
                1
            }
            c if c.is_whitespace() => c.len_utf8(),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                let end = rest.find("*/").with_context(|| format!("line {line}: the comment does not end"))? + 2;
                line += rest[..end].matches('\n').count();
                end
            }
            '"' => {
                let (name, length) = quoted(rest).with_context(|| format!("line {line}: the name in quotes does not end"))?;
                tokens.push(Token { text: name, kind: Kind::Name, line });
                line += rest[..length].matches('\n').count();
                length
            }
            '-' if rest.starts_with("->") || rest.starts_with("--") => {
                tokens.push(Token { text: rest[..2].to_owned(), kind: Kind::Sign, line });
                2
            }
            '{' | '}' | '[' | ']' | '=' | ';' | ',' | ':' => {
                tokens.push(Token { text: first.to_string(), kind: Kind::Sign, line });
                1
            }
            _ => {
                let length = word_length(rest);
                if length == 0 {
                    bail!("line {line}: `{first}` has no meaning here");
                }
                tokens.push(Token { text: rest[..length].to_owned(), kind: Kind::Name, line });
                length
            }
        };
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// A word: letters, digits, underscores, or a number with sign and point.
fn word_length(text: &str) -> usize {
    let part = |(i, c): (usize, char)| c.is_alphanumeric() || c == '_' || c == '.' || (c == '-' && i == 0);
    text.char_indices().find(|c| !part(*c)).map_or(text.len(), |(i, _)| i)
}

/// The name in quotes at the beginning of the text, and its length with them.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Some((name, i + 1)),
            '\\' if text[i + 1..].starts_with('"') => {
                chars.next();
                name.push('"');
            }
            _ => name.push(c),
        }
    }
    None
}
