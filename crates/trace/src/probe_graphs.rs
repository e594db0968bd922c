//! Graphs of probed functions, made when they are first needed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use trodden_binary::{BinaryError, ProbeGraph, ProbedFunction, ProbedImage};

/// The graphs of the functions of some images.
#[derive(Debug)]
pub struct ProbeGraphs<'a> {
    /// The images.
    pub images: &'a [ProbedImage],
    known: HashMap<(usize, ProbedFunction), ProbeGraph>,
}

impl<'a> ProbeGraphs<'a> {
    /// None so far.
    pub fn new(images: &'a [ProbedImage]) -> ProbeGraphs<'a> {
        ProbeGraphs { images, known: HashMap::new() }
    }

    /// The graph of a function of an image.
    ///
    /// # Errors
    /// Its map is damaged.
    pub fn of(&mut self, function: (usize, ProbedFunction)) -> Result<&mut ProbeGraph, BinaryError> {
        match self.known.entry(function) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let image = &self.images[function.0];
                let graph = ProbeGraph::new(image, function.1);
                Ok(new.insert(graph.map_err(|e| BinaryError::Addresses { image: image.path.clone(), what: e.to_string() })?))
            }
        }
    }
}
