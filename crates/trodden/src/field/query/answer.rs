//! Answers as a table for people, CSV, JSON or Parquet. All but the first are written batch by batch; the table has a limit of rows.

use crate::cli::Query;
use crate::field::is_parquet;
use crate::field::rows::quoted;
use crate::notes::note;
use crate::reports;
use anyhow::{Context, Result};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use trodden_report::json::{SCHEMA_VERSION, number};

/// Rows of a table for people.
const MOST_SHOWN: usize = 1000;
/// Rows of a group of a Parquet file.
const GROUP: usize = 1 << 16;

/// Where an answer goes.
pub enum Sink {
    Text { rows: Vec<Vec<String>>, right: Vec<bool>, all: u64 },
    Csv { out: Box<dyn Write>, file: Option<PathBuf> },
    Json { out: Box<dyn Write>, any: bool },
    Parquet { writer: Box<ArrowWriter<File>>, file: PathBuf },
}

impl Sink {
    /// Begins the answer to a query that was understood.
    pub fn open(job: &Query, schema: &SchemaRef) -> Result<Sink> {
        let names = schema.fields().iter().map(|f| f.name().as_str());
        match &job.output {
            Some(file) if is_parquet(file) => {
                let properties = WriterProperties::builder().set_max_row_group_row_count(Some(GROUP)).build();
                let writer = ArrowWriter::try_new(create(file)?, schema.clone(), Some(properties)).with_context(|| cannot(file))?;
                Ok(Sink::Parquet { writer: Box::new(writer), file: file.clone() })
            }
            Some(file) => csv(Box::new(BufWriter::new(create(file)?)), Some(file.clone()), names),
            None if job.csv => csv(Box::new(BufWriter::new(io::stdout())), None, names),
            None if job.json => {
                let columns: Vec<Value> =
                    schema.fields().iter().map(|f| json!({"name": f.name(), "type": f.data_type().to_string()})).collect();
                let mut out = BufWriter::new(io::stdout());
                write!(
                    out,
                    "{{\n  \"schema_version\": {SCHEMA_VERSION},\n  \"kind\": \"query\",\n  \"columns\": {},\n  \"rows\": [",
                    json!(columns)
                )?;
                Ok(Sink::Json { out: Box::new(out), any: false })
            }
            None => {
                let right = schema.fields().iter().map(|f| f.data_type().is_numeric()).collect();
                Ok(Sink::Text { rows: vec![names.map(str::to_owned).collect()], right, all: 0 })
            }
        }
    }

    /// Adds rows. False: nobody reads them.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<bool> {
        match self {
            Sink::Text { rows, all, .. } => {
                let left = (MOST_SHOWN + 1).saturating_sub(rows.len());
                rows.extend(texts(&batch.slice(0, left.min(batch.num_rows())), "-")?);
                *all += batch.num_rows() as u64;
                Ok(true)
            }
            Sink::Csv { out, file } => {
                let mut lines = texts(batch, "")?.into_iter().map(|row| row.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(","));
                let written = lines.try_for_each(|line| writeln!(out, "{line}"));
                read(written, file.as_deref())
            }
            Sink::Json { out, any } => {
                let mut written = Ok(());
                for row in objects(batch)? {
                    let comma = if std::mem::replace(any, true) { "," } else { "" };
                    written = written.and_then(|()| write!(out, "{comma}\n    {row}"));
                }
                read(written, None)
            }
            Sink::Parquet { writer, file } => writer.write(batch).map(|()| true).with_context(|| cannot(file)),
        }
    }

    /// Ends the answer.
    pub fn finish(self) -> Result<()> {
        match self {
            Sink::Text { rows, right, all } => {
                reports::print_text(&aligned(&rows, &right))?;
                let shown = rows.len() as u64 - 1;
                if shown < all {
                    note(format_args!("{shown} of {all} rows are shown: --csv, --json and --output have all"));
                }
                Ok(())
            }
            Sink::Csv { mut out, file } => read(out.flush(), file.as_deref()).map(drop),
            Sink::Json { mut out, any } => {
                let end = if any { "\n  ]\n}\n" } else { "]\n}\n" };
                read(out.write_all(end.as_bytes()).and_then(|()| out.flush()), None).map(drop)
            }
            Sink::Parquet { writer, file } => writer.close().map(drop).with_context(|| cannot(&file)),
        }
    }
}

fn create(file: &Path) -> Result<File> {
    File::create(file).with_context(|| cannot(file))
}

fn cannot(file: &Path) -> String {
    format!("cannot write {}", file.display())
}

fn csv<'a>(mut out: Box<dyn Write>, file: Option<PathBuf>, names: impl Iterator<Item = &'a str>) -> Result<Sink> {
    let head: Vec<_> = names.map(quoted).collect();
    read(writeln!(out, "{}", head.join(",")), file.as_deref())?;
    Ok(Sink::Csv { out, file })
}

/// Whether somebody still reads what was written. A reader that has seen enough is no failure.
fn read(written: io::Result<()>, file: Option<&Path>) -> Result<bool> {
    match (written, file) {
        (Err(error), None) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        (written, Some(file)) => written.map(|()| true).with_context(|| cannot(file)),
        (written, None) => written.map(|()| true).context("cannot write the answer"),
    }
}

/// Rows of texts.
fn texts(batch: &RecordBatch, null: &str) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::default().with_null(null);
    let columns: Vec<ArrayFormatter> = batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options)).collect::<Result<_, _>>()?;
    let cell = |row: usize| columns.iter().map(|c| Ok(c.value(row).try_to_string()?)).collect::<Result<Vec<String>>>();
    (0..batch.num_rows()).map(cell).collect()
}

/// Rows as objects by column.
fn objects(batch: &RecordBatch) -> Result<Vec<Value>> {
    let mut rows = vec![Map::new(); batch.num_rows()];
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        for (row, value) in rows.iter_mut().zip(values(column)?) {
            row.insert(field.name().clone(), value);
        }
    }
    Ok(rows.into_iter().map(Value::Object).collect())
}

/// Numbers and truths as such; all else as text.
fn values(column: &dyn Array) -> Result<Vec<Value>> {
    let kind = column.data_type();
    let wide = |to: DataType| cast(column, &to);
    Ok(match kind {
        DataType::Boolean => column.as_boolean().iter().map(|v| json!(v)).collect(),
        kind if kind.is_unsigned_integer() => {
            wide(DataType::UInt64)?.as_primitive::<UInt64Type>().iter().map(|v| v.map_or(Value::Null, number)).collect()
        }
        kind if kind.is_signed_integer() => {
            wide(DataType::Int64)?.as_primitive::<Int64Type>().iter().map(|v| v.map_or(Value::Null, signed)).collect()
        }
        kind if kind.is_floating() => wide(DataType::Float64)?.as_primitive::<Float64Type>().iter().map(|v| json!(v)).collect(),
        _ => {
            let options = FormatOptions::default();
            let text = ArrayFormatter::try_new(column, &options)?;
            let value = |row: usize| -> Result<Value> {
                Ok(if column.is_null(row) { Value::Null } else { Value::String(text.value(row).try_to_string()?) })
            };
            (0..column.len()).map(value).collect::<Result<_>>()?
        }
    })
}

fn signed(value: i64) -> Value {
    match u64::try_from(value) {
        Ok(value) => number(value),
        Err(_) if value >= -(1 << 53) => json!(value),
        Err(_) => json!(value.to_string()),
    }
}

/// Columns under each other, numbers at the right.
fn aligned(rows: &[Vec<String>], right: &[bool]) -> String {
    let plain = |cell: &String| cell.replace(char::is_control, " ");
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..right.len()).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().map(plain).zip(&widths).zip(right);
        let line: Vec<String> =
            cells.map(|((cell, &width), right)| if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }).collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    out
}
