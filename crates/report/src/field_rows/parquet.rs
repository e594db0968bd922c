//! Writes rows as uncompressed Parquet. The file states the sort order of its rows. With a known order, query engines can aggregate by path
//! without keeping all paths in memory.

use super::FieldTableRow;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::io;
use std::sync::Arc;

const PARQUET_ROWS_PER_GROUP: usize = 1 << 16;
const PARQUET_SCHEMA: &str = "message untested_paths {
    REQUIRED BYTE_ARRAY build (UTF8);
    REQUIRED BYTE_ARRAY unit (UTF8);
    OPTIONAL BYTE_ARRAY function (UTF8);
    OPTIONAL INT64 path;
    REQUIRED INT64 counter;
    OPTIONAL BYTE_ARRAY user (UTF8);
    REQUIRED INT64 reports;
    REQUIRED INT64 executions;
}";
/// Column indices of the sort order: build, unit, counter, user.
const SORT_COLUMN_INDICES: [i32; 4] = [0, 1, 4, 5];

pub struct ParquetTable {
    writer: SerializedFileWriter<File>,
    rows: Vec<FieldTableRow>,
}

impl ParquetTable {
    pub fn new(file: File) -> io::Result<ParquetTable> {
        let schema = Arc::new(parse_message_type(PARQUET_SCHEMA).map_err(io::Error::other)?);
        let order = SORT_COLUMN_INDICES.map(|column_idx| SortingColumn { column_idx, descending: false, nulls_first: true });
        let properties =
            WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).set_sorting_columns(Some(order.into())).build();
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(io::Error::other)?;
        Ok(ParquetTable { writer, rows: Vec::with_capacity(PARQUET_ROWS_PER_GROUP) })
    }

    pub fn add(&mut self, row: FieldTableRow) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.len() < PARQUET_ROWS_PER_GROUP { Ok(()) } else { self.flush().map_err(io::Error::other) }
    }

    pub fn finish_parquet_file(mut self) -> io::Result<()> {
        self.flush().map_err(io::Error::other)?;
        self.writer.close().map(drop).map_err(io::Error::other)
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.writer.next_row_group()?;
        let text = |t: &str| ByteArray::from(t.as_bytes().to_vec());
        let number = |n: u64| n.min(i64::MAX as u64) as i64;
        write_column::<ByteArrayType>(&mut group, rows.iter().map(|r| Some(text(&r.build))))?;
        write_column::<ByteArrayType>(&mut group, rows.iter().map(|r| Some(text(&r.unit))))?;
        write_column::<ByteArrayType>(&mut group, rows.iter().map(|r| r.function.as_deref().map(text)))?;
        write_column::<Int64Type>(&mut group, rows.iter().map(|r| r.path.map(number)))?;
        write_column::<Int64Type>(&mut group, rows.iter().map(|r| Some(number(r.counter))))?;
        write_column::<ByteArrayType>(&mut group, rows.iter().map(|r| r.user.as_deref().map(text)))?;
        write_column::<Int64Type>(&mut group, rows.iter().map(|r| Some(number(r.reports))))?;
        write_column::<Int64Type>(&mut group, rows.iter().map(|r| Some(number(r.executions))))?;
        group.close().map(drop)
    }
}

/// Writes the next column of a row group. `None` values are allowed only in optional columns.
fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("there are fewer columns than expected".into()))?;
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    #[test]
    fn sort_columns_have_the_expected_names() {
        let names: Vec<&str> =
            PARQUET_SCHEMA.lines().skip(1).filter_map(|line| line.trim_end_matches([';', '}']).split_whitespace().nth(2)).collect();
        assert_eq!(SORT_COLUMN_INDICES.map(|column| names[column as usize]), ["build", "unit", "counter", "user"]);
    }

    #[test]
    fn written_rows_can_be_read_back() {
        let row = |at: u64| FieldTableRow {
            build: format!("{at:032x}"),
            unit: "cd".repeat(16),
            function: (!at.is_multiple_of(3)).then(|| format!("operator<, \"ä\" {at}")),
            path: (!at.is_multiple_of(3)).then_some(at * 7),
            counter: at,
            user: at.is_multiple_of(2).then(|| "ef".repeat(16)),
            reports: at + 1,
            executions: if at == 5 { u64::MAX } else { at << 40 },
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.parquet");
        let count = PARQUET_ROWS_PER_GROUP as u64 + 10;
        let mut table = ParquetTable::new(File::create(&file).unwrap()).unwrap();
        (0..count).for_each(|at| table.add(row(at)).unwrap());
        table.finish_parquet_file().unwrap();
        let reader = SerializedFileReader::new(File::open(&file).unwrap()).unwrap();
        assert_eq!((reader.num_row_groups(), reader.metadata().file_metadata().num_rows()), (2, count as i64));
        let text = |t: Option<String>| t.map_or(Field::Null, Field::Str);
        let number = |n: u64| Field::Long(i64::try_from(n).unwrap_or(i64::MAX));
        for (at, read) in (0..).zip(reader.get_row_iter(None).unwrap()) {
            let row = row(at);
            let expected = [
                ("build", text(Some(row.build))),
                ("unit", text(Some(row.unit))),
                ("function", text(row.function)),
                ("path", row.path.map_or(Field::Null, number)),
                ("counter", number(row.counter)),
                ("user", text(row.user)),
                ("reports", number(row.reports)),
                ("executions", number(row.executions)),
            ];
            let read = read.unwrap();
            let read: Vec<(&str, Field)> = read.get_column_iter().map(|(name, field)| (name.as_str(), field.clone())).collect();
            assert_eq!(read, expected, "row {at}");
        }
    }
}
