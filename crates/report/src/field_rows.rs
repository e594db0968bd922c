//! Writes field reports as tables with a row for each path and user, in CSV (RFC 4180) or Parquet format.
//!
//! The columns are `build` and `unit` (hexadecimal identities); `function` (linkage name) and `path` (number), both null if the unit's map
//! is not available; `counter` (the path's index in the unit, which identifies the path without a map); `user` (hexadecimal, null if
//! unknown); `reports`; and `executions`.

#[cfg(feature = "parquet")]
mod parquet;

use crate::users::user_name;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use trodden_analysis::field::aggregate::UserPath;
use trodden_analysis::field::maps::UnitMaps;
use trodden_profile::atomic_file::AtomicFile;
use trodden_unit::UnitMap;

#[derive(Clone, Debug)]
struct FieldTableRow {
    pub build: String,
    pub unit: String,
    pub function: Option<String>,
    pub path: Option<u64>,
    pub counter: u64,
    pub user: Option<String>,
    pub reports: u64,
    pub executions: u64,
}

/// Writes a table to a temporary file. The file gets its final name when the table is complete.
pub struct FieldTable {
    table: TableFormatWriter,
    destination: AtomicFile,
}

enum TableFormatWriter {
    Csv(BufWriter<File>),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::ParquetTable>),
}

impl FieldTable {
    /// Creates a temporary file whose name starts with `temporary_prefix`. [`FieldTable::finish_table`] renames it to `file`. Fails if the
    /// file cannot be created, or if it is a Parquet file and this program was built without Parquet support.
    pub fn create(file: &Path, temporary_prefix: &str) -> Result<FieldTable> {
        if is_parquet(file) && !cfg!(feature = "parquet") {
            anyhow::bail!(
                "this build of trodden cannot write Parquet. Build trodden with `cargo build --release --features parquet`, or name a \
                 file that ends in .csv"
            );
        }
        let destination = AtomicFile::create(file, temporary_prefix).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(FieldTable { table: create_table(file, destination.file().try_clone()?)?, destination })
    }

    /// Adds a row for a path and user.
    pub fn add(&mut self, user_path: &UserPath, maps: &mut UnitMaps) -> io::Result<()> {
        let map = maps.load_unit_map(user_path.unit);
        let place = map.as_deref().and_then(|map| locate_path(map, user_path.counter));
        let row = FieldTableRow {
            build: user_path.unit.image.to_string(),
            unit: user_path.unit.unit.to_string(),
            function: place.as_ref().map(|(name, _)| name.clone()),
            path: place.map(|(_, path)| path),
            counter: user_path.counter,
            user: (user_path.user != [0; 16]).then(|| user_name(&user_path.user)),
            reports: user_path.reports,
            executions: user_path.count,
        };
        match &mut self.table {
            TableFormatWriter::Csv(out) => write_csv_row(out, &row),
            #[cfg(feature = "parquet")]
            TableFormatWriter::Parquet(table) => table.add(row),
        }
    }

    /// Completes the file and renames it.
    pub fn finish_table(self) -> io::Result<()> {
        match self.table {
            TableFormatWriter::Csv(mut out) => out.flush()?,
            #[cfg(feature = "parquet")]
            TableFormatWriter::Parquet(table) => table.finish_parquet_file()?,
        }
        self.destination.finish()
    }
}

#[cfg(feature = "parquet")]
fn create_table(file: &Path, to: File) -> Result<TableFormatWriter> {
    Ok(if is_parquet(file) { TableFormatWriter::Parquet(Box::new(parquet::ParquetTable::new(to)?)) } else { create_csv(to)? })
}

#[cfg(not(feature = "parquet"))]
fn create_table(_: &Path, to: File) -> Result<TableFormatWriter> {
    Ok(create_csv(to)?)
}

fn create_csv(to: File) -> io::Result<TableFormatWriter> {
    let mut out = BufWriter::new(to);
    writeln!(out, "build,unit,function,path,counter,user,reports,executions")?;
    Ok(TableFormatWriter::Csv(out))
}

fn is_parquet(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "parquet")
}

/// Returns the linkage name of the function that a counter belongs to, and the number of the path that the counter counts.
fn locate_path(map: &UnitMap, counter: u64) -> Option<(String, u64)> {
    let function = map.functions.iter().find(|f| (f.first_counter..f.first_counter.saturating_add(f.counters)).contains(&counter))?;
    Some((function.plain_name().to_owned(), counter - function.first_counter))
}

/// Quotes a CSV field if necessary.
pub fn quote_csv_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn write_csv_row(out: &mut impl Write, row: &FieldTableRow) -> io::Result<()> {
    let function = row.function.as_deref().map_or(String::new(), quote_csv_field);
    let path = row.path.map_or(String::new(), |p| p.to_string());
    let user = row.user.as_deref().unwrap_or_default();
    writeln!(out, "{},{},{function},{path},{},{user},{},{}", row.build, row.unit, row.counter, row.reports, row.executions)
}
