//! Errors that prevent a report.

/// The reason why a report cannot be written. A corrupt function map is not such a reason: [`crate::ProfileView::corrupt`] lists it.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No function has the given name.
    #[error("{}", describe_missing_function(.name, .similar, .inlined_into))]
    NoSuchFunction {
        /// The name as given.
        name: String,
        /// Instrumented functions with similar names.
        similar: Vec<String>,
        /// Functions into which the named function was inlined, each with the position of a call.
        inlined_into: Vec<(String, String)>,
    },
    /// No block has code at a position in a path expression.
    #[error("none of the functions' basic blocks contains code of {place}; {}", hint_for_position(.place))]
    NoSuchPlace {
        /// The position as shown to the user.
        place: String,
    },
    /// A function pattern is not a valid regular expression.
    #[error("`{pattern}` is neither a function's name nor a regular expression: {reason}")]
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// What is wrong with the pattern.
        reason: String,
    },
    /// The function has no path with this number.
    #[error(
        "function `{function}` has no complete path {path}: it has {paths} paths, numbered from 0; {}",
        list_executed_path_numbers(.known)
    )]
    NoSuchPath {
        /// Name of the function.
        function: String,
        /// The requested path number.
        path: u64,
        /// Number of possible paths.
        paths: u64,
        /// Executed paths, most frequent first.
        known: Vec<u64>,
    },
    /// Paths are to be weighted by events, but the program's parts count no event or different ones.
    #[error(
        "the programs of this profile count different processor events, or none. Build all of them with the same option, such as --events \
         tsc"
    )]
    NoEvents,
    /// The function's map is corrupt.
    #[error(transparent)]
    Map(#[from] trodden_unit::MapError),
    /// Compression failed.
    #[error("cannot compress the profile: {0}")]
    Compress(std::io::Error),
}

fn describe_missing_function(name: &str, similar: &[String], inlined_into: &[(String, String)]) -> String {
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

fn list_executed_path_numbers(known: &[u64]) -> String {
    match known {
        [] => "none of its paths was executed".into(),
        some => {
            let first: Vec<String> = some.iter().take(8).map(u64::to_string).collect();
            let more = if some.len() > 8 { ", ..." } else { "" };
            format!("executed paths: {}{more}", first.join(", "))
        }
    }
}

fn hint_for_position(place: &str) -> &'static str {
    match place.starts_with("line") {
        true => "a line may have no code of its own, or the optimiser moved it; `trodden annotate` shows which lines have code",
        false => "`trodden-lab graph show` shows a function's blocks",
    }
}
