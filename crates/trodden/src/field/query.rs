//! `trodden field query`: SQL over the rows of many users' reports, by an engine inside this program where it was built with one (feature `query`).
//!
//! The table is `untested`, and has the columns that `trodden field aggregate --rows` writes, so one text of a query serves this engine, Spark and DuckDB. The query that is asked where
//! none is given stands in the guide only, and is taken from there.

#[cfg(feature = "query")]
mod answer;
#[cfg(feature = "query")]
mod engine;
#[cfg(feature = "query")]
mod table;

use crate::cli::Query;
use anyhow::Result;
use std::process::ExitCode;

/// Answers a query.
///
/// # Errors
/// Files cannot be read or are not such rows, the query cannot be understood or takes too much memory, or this program was built without an engine.
#[cfg(feature = "query")]
pub fn query(job: &Query) -> Result<ExitCode> {
    let files = super::files_of(&job.rows, "parquet", "Parquet files", "`trodden field aggregate --rows rows.parquet` makes them")?;
    let sql = job.sql.as_deref().unwrap_or(ranking());
    engine::run(job, &files, sql)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "query"))]
pub fn query(_: &Query) -> Result<ExitCode> {
    anyhow::bail!(
        "this trodden was built without an engine for SQL: install one that has it with `cargo install --path crates/trodden --features query` (it takes long to compile), or ask Spark or \
         DuckDB: the guide's page on untested paths of many users (docs/book/src/field.md) has a query"
    )
}

/// The query of the guide: which untested paths did most users take?
#[cfg(any(test, feature = "query"))]
fn ranking() -> &'static str {
    const GUIDE: &str = include_str!("../../../../docs/book/src/field.md");
    let (_, rest) = GUIDE.split_once("spark.sql(\"\"\"").expect("a test holds the guide to it");
    rest.split_once("\"\"\"").expect("a test holds the guide to it").0
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_guide_has_the_query() {
        let query = super::ranking();
        assert!(
            query.trim_start().starts_with("SELECT build,") && query.contains("FROM untested") && query.trim_end().ends_with("LIMIT 20"),
            "{query}"
        );
    }
}
