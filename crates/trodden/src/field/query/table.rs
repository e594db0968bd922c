//! The files of a query: whether they are rows of reports, and what to say where one is damaged.

use anyhow::{Context, Result, bail, ensure};
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::basic::Type;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};
use datafusion::parquet::file::statistics::Statistics;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What every file has; it may have more columns.
const COLUMNS: [(&str, Type); 8] = [
    ("build", Type::BYTE_ARRAY),
    ("unit", Type::BYTE_ARRAY),
    ("function", Type::BYTE_ARRAY),
    ("path", Type::INT64),
    ("counter", Type::INT64),
    ("user", Type::BYTE_ARRAY),
    ("reports", Type::INT64),
    ("executions", Type::INT64),
];

/// Columns that are added up.
const SUMMED: [&str; 2] = ["reports", "executions"];

/// Holds all files to the columns. Returns those of which a sum might not fit 64 bits.
pub fn check(files: &[PathBuf]) -> Result<Vec<&'static str>> {
    let mut most = [0u128; SUMMED.len()];
    for file in files {
        let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        let reader = SerializedFileReader::new(opened).with_context(|| format!("{} is no Parquet file, or is damaged", file.display()))?;
        has_columns(file, reader.metadata())?;
        for (most, column) in most.iter_mut().zip(SUMMED) {
            *most = most.saturating_add(at_most(reader.metadata(), column));
        }
    }
    Ok(SUMMED.into_iter().zip(most).filter(|(_, most)| *most > i64::MAX as u128).map(|(column, _)| column).collect())
}

fn has_columns(file: &Path, metadata: &ParquetMetaData) -> Result<()> {
    let there = metadata.file_metadata().schema_descr().columns();
    for (name, kind) in COLUMNS {
        let Some(column) = there.iter().find(|c| c.path().parts() == [name]) else {
            bail!("{} has no column `{name}`: it is not what `trodden field aggregate --rows` writes", file.display());
        };
        let found = column.physical_type();
        ensure!(
            found == kind,
            "column `{name}` of {} is {found}, not {kind}: it is not what `trodden field aggregate --rows` writes",
            file.display()
        );
    }
    Ok(())
}

/// A bound of the sum of a column, from what the file says of its greatest values.
fn at_most(metadata: &ParquetMetaData, column: &str) -> u128 {
    let of_group = |group: &datafusion::parquet::file::metadata::RowGroupMetaData| {
        let column = group.columns().iter().find(|c| c.column_path().parts() == [column]);
        let greatest = match column.and_then(|c| c.statistics()) {
            Some(Statistics::Int64(statistics)) => statistics.max_opt().map(|most| most.unsigned_abs()),
            _ => None,
        };
        u128::from(greatest.unwrap_or(i64::MAX as u64)) * u128::from(group.num_rows().unsigned_abs())
    };
    metadata.row_groups().iter().map(of_group).fold(0, u128::saturating_add)
}

/// The first file whose rows cannot be read, and why. Reads them all: for when something went wrong.
pub fn damaged(files: &[PathBuf]) -> Option<(&Path, String)> {
    files.iter().find_map(|file| read_all(file).err().map(|why| (file.as_path(), why.to_string())))
}

fn read_all(file: &Path) -> Result<()> {
    for batch in ParquetRecordBatchReaderBuilder::try_new(File::open(file)?)?.build()? {
        batch?;
    }
    Ok(())
}
