//! Measures of paths.

/// A measure of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Executed instructions of the intermediate code.
    #[default]
    Instructions,
    /// Executed basic blocks.
    Blocks,
    /// Executions of the path, however long it is.
    Count,
    /// Events that were summed for each path.
    Events,
}

impl Measure {
    /// The measure's name in options, JSON and headings.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Instructions => "instructions",
            Measure::Blocks => "blocks",
            Measure::Count => "executions",
            Measure::Events => "events",
        }
    }

    /// The measure that a user means: `instructions`, `blocks`, `executions` (or `count`), `events`.
    pub fn parse(text: &str) -> Option<Measure> {
        match text {
            "instructions" => Some(Measure::Instructions),
            "blocks" => Some(Measure::Blocks),
            "executions" | "count" => Some(Measure::Count),
            "events" => Some(Measure::Events),
            _ => None,
        }
    }
}
