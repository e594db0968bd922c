//! A cache for the graphs of probed functions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use trodden_binary::{BinaryError, ProbeGraph, ProbedFunction, ProbedImage};

#[derive(Debug)]
pub struct ProbeGraphs<'a> {
    pub images: &'a [ProbedImage],
    known: HashMap<(usize, ProbedFunction), ProbeGraph>,
}

impl<'a> ProbeGraphs<'a> {
    pub fn new(images: &'a [ProbedImage]) -> ProbeGraphs<'a> {
        ProbeGraphs { images, known: HashMap::new() }
    }

    /// Returns a function's graph, which is built at the first request.
    pub fn graph_of(&mut self, function: (usize, ProbedFunction)) -> Result<&mut ProbeGraph, BinaryError> {
        match self.known.entry(function) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let image = &self.images[function.0];
                let graph = ProbeGraph::new(image, function.1);
                Ok(new.insert(graph.map_err(|e| BinaryError::NoBlockAddresses { image: image.path.clone(), what: e.to_string() })?))
            }
        }
    }
}
