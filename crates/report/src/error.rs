//! Errors that prevent a report.

/// An error that prevents a report. A function with a corrupt map does not prevent a report, but is listed in [`crate::View::corrupt`].
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No function has the given name.
    #[error("{}", no_such_function(.name, .similar, .inlined_into))]
    NoSuchFunction {
        /// The given name.
        name: String,
        /// Functions with similar names.
        similar: Vec<String>,
        /// Functions into which the named function was inlined, each with the position of a call.
        inlined_into: Vec<(String, String)>,
    },
    /// No block has code at a position in a path expression.
    #[error("no block of these functions contains code of {place}; {}", place_hint(.place))]
    NoSuchPlace {
        /// The position as it is shown to the user.
        place: String,
    },
    /// A function pattern is not a valid regular expression.
    #[error("`{pattern}` is neither a function's name nor a regular expression: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Why the pattern is not valid.
        reason: String,
    },
    /// The function has no such path.
    #[error("function `{function}` has no complete path {path}: it has {paths} paths, numbered from 0; {}", list_executed(.known))]
    NoSuchPath {
        /// The function.
        function: String,
        /// The given path.
        path: u64,
        /// The number of possible paths.
        paths: u64,
        /// Executed paths, most frequent first.
        known: Vec<u64>,
    },
    /// Paths are to be weighted by events, but no single event is counted throughout the profile.
    #[error("the programs of this profile count different events, or none. Build all of them with the same option, such as --events tsc")]
    NoEvents,
    /// The function's map is corrupt.
    #[error(transparent)]
    Map(#[from] trodden_unit::MapError),
    /// Compression failed.
    #[error("cannot compress the profile: {0}")]
    Compress(std::io::Error),
}

fn no_such_function(name: &str, similar: &[String], inlined_into: &[(String, String)]) -> String {
    const MAX_NAMED: usize = 3;
    if let Some((first, _)) = inlined_into.first() {
        let callers: Vec<String> = inlined_into.iter().take(MAX_NAMED).map(|(name, place)| format!("`{name}` at {place}")).collect();
        let more = if inlined_into.len() > MAX_NAMED { " and others" } else { "" };
        let into = callers.join(", ");
        return format!("`{name}` was inlined into {into}{more}, and has no paths of its own: `trodden annotate {first}` shows its code");
    }
    let hint = match similar {
        [] => "; `trodden report --json` lists all functions".into(),
        some => format!("; did you mean {}?", some.iter().map(|s| format!("`{s}`")).collect::<Vec<_>>().join(" or ")),
    };
    format!("no instrumented function is called `{name}`{hint}")
}

fn list_executed(known: &[u64]) -> String {
    match known {
        [] => "none of its paths was executed".into(),
        some => {
            let first: Vec<String> = some.iter().take(8).map(u64::to_string).collect();
            let more = if some.len() > 8 { ", ..." } else { "" };
            format!("executed paths: {}{more}", first.join(", "))
        }
    }
}

/// Tells the user how to find a line or block that has code.
fn place_hint(place: &str) -> &'static str {
    match place.starts_with("line") {
        true => "a line may have no code of its own, or the optimiser moved it; `trodden annotate` shows which lines have code",
        false => "`trodden-lab graph show` shows a function's blocks",
    }
}
