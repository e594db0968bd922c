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

trodden_unit::spell! { Measure:
    Measure::Instructions => "instructions", "Of executed instructions";
    Measure::Blocks => "blocks", "Of executed basic blocks";
    Measure::Count => "executions", "Of executions of paths";
    Measure::Events => "events", "Of the events that a program built with --events sums up";
}
