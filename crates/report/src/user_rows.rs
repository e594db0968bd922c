//! A row for each path of each user, as CSV (RFC 4180), or as Parquet where that is built in.
//!
//! Columns: `build`, `unit` (hexadecimal identities), `function` (linkage name) and `path` (its number), both null
//! where the unit's map is not at hand, `counter` (the path's place in the unit, which identifies it without a map),
//! `user` (hexadecimal; null: unknown), `reports`, `executions`.

#[cfg(feature = "parquet")]
mod parquet;

use crate::users::user_name;
use std::io::{self, Write};
use trodden_analysis::field::aggregate::UserPath;
use trodden_unit::UnitMap;

/// A row of the report.
#[derive(Clone, Debug)]
struct FieldRow {
    build: String,
    unit: String,
    function: Option<String>,
    path: Option<u64>,
    counter: u64,
    user: Option<String>,
    reports: u64,
    executions: u64,
}

/// Whether rows can be written as Parquet.
pub const HAS_PARQUET: bool = cfg!(feature = "parquet");

/// A table of rows while it is written.
pub struct UserRows<W: Write + Send> {
    table: Table<W>,
}

enum Table<W: Write + Send> {
    Csv(W),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::ParquetTable<W>>),
}

impl<W: Write + Send> UserRows<W> {
    /// Begins CSV.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn csv(mut out: W) -> io::Result<UserRows<W>> {
        writeln!(out, "build,unit,function,path,counter,user,reports,executions")?;
        Ok(UserRows { table: Table::Csv(out) })
    }

    /// Begins Parquet.
    ///
    /// # Errors
    /// It cannot be written.
    #[cfg(feature = "parquet")]
    pub fn parquet(out: W) -> io::Result<UserRows<W>> {
        Ok(UserRows { table: Table::Parquet(Box::new(parquet::ParquetTable::new(out)?)) })
    }

    /// Refuses Parquet, which is not built in.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "parquet"))]
    pub fn parquet(_: W) -> io::Result<UserRows<W>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "Parquet is not built in"))
    }

    /// Adds a row; the map of its unit gives it names.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, one: &UserPath, map: Option<&UnitMap>) -> io::Result<()> {
        let place = map.and_then(|map| place(map, one.counter));
        let row = FieldRow {
            build: one.unit.image.to_string(),
            unit: one.unit.unit.to_string(),
            function: place.as_ref().map(|(name, _)| name.clone()),
            path: place.map(|(_, path)| path),
            counter: one.counter,
            user: (one.user != [0; 16]).then(|| user_name(&one.user)),
            reports: one.reports,
            executions: one.count,
        };
        match &mut self.table {
            Table::Csv(out) => csv(out, &row),
            #[cfg(feature = "parquet")]
            Table::Parquet(table) => table.add(row),
        }
    }

    /// Ends the table; gives back what it was written to.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> io::Result<W> {
        match self.table {
            Table::Csv(out) => Ok(out),
            #[cfg(feature = "parquet")]
            Table::Parquet(table) => table.finish(),
        }
    }
}

/// The function of a counter, and the number of the path there.
fn place(map: &UnitMap, counter: u64) -> Option<(String, u64)> {
    let function = map.functions.iter().find(|f| (f.first_counter..f.first_counter.saturating_add(f.counters)).contains(&counter))?;
    Some((function.plain_name().to_owned(), counter - function.first_counter))
}

/// A text as CSV has it.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn csv(out: &mut impl Write, row: &FieldRow) -> io::Result<()> {
    let function = row.function.as_deref().map_or(String::new(), quoted);
    let path = row.path.map_or(String::new(), |p| p.to_string());
    let user = row.user.as_deref().unwrap_or_default();
    writeln!(out, "{},{},{function},{path},{},{user},{},{}", row.build, row.unit, row.counter, row.reports, row.executions)
}
