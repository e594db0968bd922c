//! The measures by which reports weight paths.

/// Determines the weight of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMeasure {
    /// Executed LLVM IR instructions.
    #[default]
    Instructions,
    /// Executed basic blocks.
    Blocks,
    /// Executions of the path, regardless of its length.
    Count,
    /// Events counted for each path, such as cycles.
    Events,
}

trodden_unit::spell! { PathMeasure:
    PathMeasure::Instructions => "instructions", "Of executed instructions";
    PathMeasure::Blocks => "blocks", "Of executed basic blocks";
    PathMeasure::Count => "executions", "Of executions of paths";
    PathMeasure::Events => "events", "Of the events that a program built with --events sums up";
}
