//! The measures by which reports can weight paths.

/// The quantity by which paths are weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMeasure {
    /// Executed LLVM IR instructions.
    #[default]
    Instructions,
    /// Executed basic blocks.
    Blocks,
    /// Executions of the path, regardless of its length.
    Count,
    /// Events that the program counted for each path, such as cycles.
    Events,
}

trodden_unit::spell! { PathMeasure:
    PathMeasure::Instructions => "instructions", "Of executed instructions";
    PathMeasure::Blocks => "blocks", "Of executed basic blocks";
    PathMeasure::Count => "executions", "Of executions of paths";
    PathMeasure::Events => "events", "Of the events that a program built with --events sums up";
}
