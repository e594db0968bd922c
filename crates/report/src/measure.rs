//! Measures that paths are weighted by.

/// A measure of a path's weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Executed instructions of LLVM IR.
    #[default]
    Instructions,
    /// Executed basic blocks.
    Blocks,
    /// Executions of the path, regardless of its length.
    Count,
    /// Events counted for each path, such as cycles.
    Events,
}

trodden_unit::spell! { Measure:
    Measure::Instructions => "instructions", "Of executed instructions";
    Measure::Blocks => "blocks", "Of executed basic blocks";
    Measure::Count => "executions", "Of executions of paths";
    Measure::Events => "events", "Of the events that a program built with --events sums up";
}
