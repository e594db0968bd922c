//! Reader of directed graphs in DOT, with `entry=` and `exit=` as graph attributes.
//!
//! Accepted are `digraph NAME? { ... }`, chains `a -> b -> c [weight=3]`, node statements (attributes are ignored), quoted names, `;`,
//! comments (`//`, `/* */`, `#` lines) and default statements (`node [...]`). Without `entry`, the only node without in-edges is the entry;
//! without `exit`, the only node without out-edges is the exit. Subgraphs and ports are rejected.

use super::input::{GraphInput, NodeName};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;

pub fn parse(text: &str) -> Result<GraphInput> {
    let mut reader = DotReader { tokens: tokenize(text)?, at: 0 };
    reader.parse_header()?;
    let mut graph = DotStatements::default();
    while !reader.skip_sign("}") {
        reader.parse_statement(&mut graph)?;
    }
    graph.into_graph_input()
}

#[derive(Default)]
struct DotStatements {
    entry: Option<String>,
    exit: Option<String>,
    nodes: BTreeSet<String>,
    edges: Vec<(String, String)>,
    weights: Vec<Option<f64>>,
}

impl DotStatements {
    fn into_graph_input(self) -> Result<GraphInput> {
        // Returns the only node that is not in `others`.
        let only = |what: &str, others: BTreeSet<&String>| -> Result<String> {
            let mut candidates = self.nodes.iter().filter(|node| !others.contains(node));
            match (candidates.next(), candidates.count()) {
                (Some(one), 0) => Ok(one.clone()),
                (first, more) => {
                    bail!("{} nodes could be the {what}. Choose one with `{what}=NODE;`", more + usize::from(first.is_some()))
                }
            }
        };
        let entry = self.entry.clone().map_or_else(|| only("entry", self.edges.iter().map(|e| &e.1).collect()), Ok)?;
        let exit = self.exit.clone().map_or_else(|| only("exit", self.edges.iter().map(|e| &e.0).collect()), Ok)?;
        let weights = match self.weights.iter().any(Option::is_some) {
            false => None,
            true => {
                let all: Option<Vec<f64>> = self.weights.iter().copied().collect();
                Some(all.context("only some edges have a weight. Give weights to all edges or to none")?)
            }
        };
        let edges = self.edges.into_iter().map(|(a, b)| (NodeName(a), NodeName(b))).collect();
        Ok(GraphInput { entry: NodeName(entry), exit: NodeName(exit), edges, weights, ..GraphInput::default() })
    }
}

#[derive(Debug, Clone, PartialEq)]
enum TokenKind {
    Name,
    Punctuation,
}

#[derive(Debug, Clone)]
struct DotToken {
    text: String,
    kind: TokenKind,
    line: usize,
}

struct DotReader {
    tokens: Vec<DotToken>,
    at: usize,
}

impl DotReader {
    fn parse_header(&mut self) -> Result<()> {
        let _ = self.take_name("strict");
        if !self.take_name("digraph") {
            bail!("{}: a directed graph must begin with `digraph`", self.current_line());
        }
        if !self.skip_sign("{") {
            self.parse_name()?;
            self.expect_sign("{")?;
        }
        Ok(())
    }

    fn parse_statement(&mut self, graph: &mut DotStatements) -> Result<()> {
        if self.skip_sign(";") {
            return Ok(());
        }
        if self.is_next_sign("{") {
            bail!("{}: subgraphs are not supported. Move their edges to the top level of the graph", self.current_line());
        }
        let line = self.current_line();
        let first = self.parse_name()?;
        if first == "subgraph" {
            bail!("{line}: subgraphs are not supported. Move their edges to the top level of the graph");
        }
        if self.skip_sign("=") {
            let value = self.parse_name()?;
            match first.as_str() {
                "entry" => graph.entry = Some(value),
                "exit" => graph.exit = Some(value),
                _ => {}
            }
            return Ok(());
        }
        if matches!(first.as_str(), "graph" | "node" | "edge") && self.is_next_sign("[") {
            self.parse_attributes()?;
            return Ok(());
        }
        self.parse_chain(first, graph)
    }

    fn parse_chain(&mut self, first: String, graph: &mut DotStatements) -> Result<()> {
        let mut chain = vec![first];
        while self.skip_sign("->") {
            chain.push(self.parse_name()?);
        }
        if self.is_next_sign("--") {
            bail!("{}: undirected edges are not supported. Write `->` instead of `--`", self.current_line());
        }
        graph.nodes.extend(chain.iter().cloned());
        let line = self.current_line();
        let mut weight = None;
        for (key, value) in self.parse_attributes()? {
            if key == "weight" && chain.len() > 1 {
                weight = Some(value.parse().with_context(|| format!("{line}: weight `{value}` is not a number"))?);
            }
        }
        for pair in chain.windows(2) {
            graph.edges.push((pair[0].clone(), pair[1].clone()));
            graph.weights.push(weight);
        }
        Ok(())
    }

    fn parse_attributes(&mut self) -> Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        while self.skip_sign("[") {
            while !self.skip_sign("]") {
                if self.skip_sign(",") || self.skip_sign(";") {
                    continue;
                }
                let key = self.parse_name()?;
                self.expect_sign("=")?;
                all.push((key, self.parse_name()?));
            }
        }
        Ok(all)
    }

    fn parse_name(&mut self) -> Result<String> {
        match self.tokens.get(self.at) {
            Some(DotToken { text, kind: TokenKind::Name, .. }) => {
                self.at += 1;
                Ok(text.clone())
            }
            Some(token) => bail!("{}: expected a name, found `{}`", self.current_line(), token.text),
            None => bail!("{}: the graph ends unexpectedly", self.current_line()),
        }
    }

    fn expect_sign(&mut self, sign: &str) -> Result<()> {
        match self.skip_sign(sign) {
            true => Ok(()),
            false => bail!("{}: expected `{sign}`", self.current_line()),
        }
    }

    fn is_next_sign(&self, sign: &str) -> bool {
        self.tokens.get(self.at).is_some_and(|t| t.kind == TokenKind::Punctuation && t.text == sign)
    }

    fn skip_sign(&mut self, sign: &str) -> bool {
        let found = self.is_next_sign(sign);
        self.at += usize::from(found);
        found
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|t| t.kind == TokenKind::Name && t.text.eq_ignore_ascii_case(name));
        self.at += usize::from(found);
        found
    }

    fn current_line(&self) -> String {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        format!("line {}", token.map_or(1, |t| t.line))
    }
}

fn tokenize(text: &str) -> Result<Vec<DotToken>> {
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
                let end = rest.find("*/").with_context(|| format!("line {line}: unterminated comment"))? + 2;
                line += rest[..end].matches('\n').count();
                end
            }
            '"' => {
                let (name, length) = parse_quoted_name(rest).with_context(|| format!("line {line}: unterminated quoted name"))?;
                tokens.push(DotToken { text: name, kind: TokenKind::Name, line });
                line += rest[..length].matches('\n').count();
                length
            }
            '-' if rest.starts_with("->") || rest.starts_with("--") => {
                tokens.push(DotToken { text: rest[..2].to_owned(), kind: TokenKind::Punctuation, line });
                2
            }
            '{' | '}' | '[' | ']' | '=' | ';' | ',' | ':' => {
                tokens.push(DotToken { text: first.to_string(), kind: TokenKind::Punctuation, line });
                1
            }
            _ => {
                let length = word_length(rest);
                if length == 0 {
                    bail!("line {line}: unexpected character `{first}`");
                }
                tokens.push(DotToken { text: rest[..length].to_owned(), kind: TokenKind::Name, line });
                length
            }
        };
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// Returns the length of the word at the start of the text (letters, digits, underscores), or of the number (with sign and point).
fn word_length(text: &str) -> usize {
    let part = |(i, c): (usize, char)| c.is_alphanumeric() || c == '_' || c == '.' || (c == '-' && i == 0);
    text.char_indices().find(|c| !part(*c)).map_or(text.len(), |(i, _)| i)
}

/// Returns the quoted name at the start of the text, and its length including the quotes. `None` if the closing quote is missing.
fn parse_quoted_name(text: &str) -> Option<(String, usize)> {
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
