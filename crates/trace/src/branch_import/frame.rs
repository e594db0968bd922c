//! A function under way, and the path under way in it: what each block that is seen makes of them.

use super::tally::Tally;
use trodden_binary::{Connection, NumberStep, ProbeGraph, ProbedFunction};
use trodden_flow::Edge;

/// A path under way.
#[derive(Clone, Debug)]
pub struct FramePath {
    /// The sum of the values on its edges so far.
    pub sum: i64,
    /// The stretch in which its beginning was seen.
    pub since: u64,
    /// Numbers of the paths that end at calls which it has reached.
    pub reached: Vec<i64>,
    /// Blocks of it that were seen.
    pub blocks: u64,
}

/// A function under way.
#[derive(Clone, Debug)]
pub struct BranchFrame {
    /// Its image.
    pub image: usize,
    /// Which it is.
    pub function: ProbedFunction,
    /// The last block that was seen, and in which stretch.
    pub at: Option<(u32, u64)>,
    /// It was called, and no block of it was seen yet.
    pub fresh: bool,
    /// The path under way, if its beginning was seen.
    pub path: Option<FramePath>,
    /// Its path is over, it will not go on.
    pub done: bool,
    /// Where it was left: control comes back to one of these addresses.
    pub left: Option<(u64, u64)>,
}

impl BranchFrame {
    /// One of which nothing was seen yet.
    pub fn unknown(image: usize, function: ProbedFunction) -> BranchFrame {
        BranchFrame { image, function, at: None, fresh: false, path: None, done: false, left: None }
    }

    /// Nothing is known of what follows: a path under way is lost.
    pub fn cut_off(&self, tally: &mut Tally) {
        if !self.done {
            tally.losses.cut_off += 1;
        }
    }
}

/// A function while its next block is seen.
pub struct Seeing<'a> {
    /// The function.
    pub frame: &'a mut BranchFrame,
    /// Its graph.
    pub flow: &'a mut ProbeGraph,
    /// Where paths are counted that are whole.
    pub tally: &'a mut Tally,
    /// Number of the stretch.
    pub stretch: u64,
    /// Number of records in the window; none for a trace.
    pub window: Option<u64>,
}

impl Seeing<'_> {
    /// A block begins.
    pub fn block(&mut self, block: u32) {
        match self.frame.at {
            None if self.frame.fresh && self.frame.path.is_none() => match block {
                0 => self.frame.path = Some(FramePath { sum: 0, since: self.stretch, reached: Vec::new(), blocks: 0 }),
                _ => self.lose(&Connection::None),
            },
            None => {}
            Some((before, _)) => {
                let connection = self.flow.connect(before, Some(block));
                self.follow(&connection);
            }
        }
        self.frame.fresh = false;
        self.frame.at = Some((block, self.stretch));
        self.tally.losses.blocks += 1;
        if let Some(path) = &mut self.frame.path {
            path.blocks += 1;
        }
        self.reach(block, false);
        self.end(block, false);
    }

    fn lose(&mut self, connection: &Connection) {
        *self.tally.uncertain.entry((self.frame.image, self.frame.function)).or_default() += 1;
        match connection {
            Connection::Ambiguous => self.tally.losses.ambiguous += 1,
            _ => self.tally.losses.inconsistent += 1,
        }
        self.frame.path = None;
        self.frame.done = false;
    }

    fn follow(&mut self, connection: &Connection) {
        match connection {
            Connection::Unique(edges) => self.go(edges),
            Connection::Inferred(edges) => {
                self.tally.losses.inferred += 1;
                self.go(edges);
            }
            Connection::Ambiguous | Connection::None => self.lose(connection),
        }
    }

    fn go(&mut self, edges: &[Edge]) {
        for &edge in edges {
            match self.flow.step(edge) {
                NumberStep::Add(value) => {
                    if let Some(path) = &mut self.frame.path {
                        path.sum = path.sum.wrapping_add(value);
                    }
                }
                NumberStep::End(value) => {
                    self.finish(value);
                    self.frame.done = true;
                }
                NumberStep::Cut(leave, enter) => {
                    self.finish(leave);
                    let since = self.frame.at.map_or(self.stretch, |(_, stretch)| stretch);
                    self.frame.path = Some(FramePath { sum: enter, since, reached: Vec::new(), blocks: 0 });
                }
                NumberStep::Dead => self.lose(&Connection::None),
            }
        }
    }

    /// The path is whole, if its beginning was seen.
    fn finish(&mut self, value: i64) {
        let Some(path) = self.frame.path.take() else {
            self.frame.cut_off(self.tally);
            return;
        };
        let weight = weight(self.window, self.stretch, path.since);
        let key = |id: i64| (self.frame.image, self.frame.function, id);
        self.tally.count(key(path.sum.wrapping_add(value)), weight);
        path.reached.iter().for_each(|id| self.tally.count(key(*id), weight));
        self.tally.whole += 1;
        self.tally.losses.blocks_counted += path.blocks;
    }

    /// A call is about to be made that might not come back.
    pub fn reach(&mut self, block: u32, marked: bool) {
        if let (Some(value), Some(path)) = (self.flow.reach(block, marked), &mut self.frame.path) {
            path.reached.push(path.sum.wrapping_add(value));
        }
    }

    /// The path ends before its block does.
    pub fn end(&mut self, block: u32, marked: bool) {
        if let Some(edge) = self.flow.end(block, marked).filter(|_| !self.frame.done) {
            self.go(&[edge]);
        }
    }

    /// The function returns or is replaced.
    pub fn leave(&mut self, by_condition: bool) {
        let Some((block, _)) = self.frame.at.filter(|_| !self.frame.done) else {
            self.frame.cut_off(self.tally);
            return;
        };
        let connection = match by_condition {
            true => self.flow.connect_folded(block),
            false => self.flow.connect(block, None),
        };
        self.follow(&connection);
    }
}

/// What a path stands for that spans the records from the one before its first stretch to the one behind its last.
pub fn weight(window: Option<u64>, stretch: u64, since: u64) -> f64 {
    let Some(window) = window else { return 1.0 };
    let spanned = stretch.saturating_sub(since) + 2;
    let positions = (window + 1).saturating_sub(spanned).max(1);
    window as f64 / positions as f64
}
