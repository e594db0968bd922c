//! Writes the results of an experiment as Parquet, with the columns of the CSV; factors are text.

use super::results::SweepResults;
use anyhow::{Context, Result};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::sync::Arc;

pub fn to_parquet(results: &SweepResults) -> Result<Vec<u8>> {
    let mut fields = vec![text_column("source")?];
    fields.extend(results.factors.iter().map(|f| text_column(f)).collect::<Result<Vec<_>>>()?);
    fields.push(text_column("metric")?);
    for (name, physical) in [
        ("overlap", Physical::DOUBLE),
        ("dynamic_overlap", Physical::DOUBLE),
        ("windows", Physical::INT64),
        ("cycles", Physical::INT64),
        ("slowdown", Physical::DOUBLE),
        ("slowdown_frozen", Physical::DOUBLE),
    ] {
        fields.push(Arc::new(Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL).build()?));
    }
    let schema = Arc::new(Type::group_type_builder("results").with_fields(fields).build()?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::default()))?;
    let mut group = writer.next_row_group()?;
    let outcomes = &results.outcomes;
    let text = |t: &str| Some(ByteArray::from(t.as_bytes().to_vec()));
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    write_column::<ByteArrayType>(&mut group, outcomes.iter().map(|o| text(&results.sources[o.source])))?;
    for factor in 0..results.factors.len() {
        let level = |configuration: usize| &results.levels[factor][results.combinations[configuration][factor]];
        write_column::<ByteArrayType>(&mut group, outcomes.iter().map(|o| text(level(o.configuration))))?;
    }
    write_column::<ByteArrayType>(&mut group, outcomes.iter().map(|o| text(&results.metrics[o.metric])))?;
    write_column::<DoubleType>(&mut group, outcomes.iter().map(|o| o.overlap))?;
    write_column::<DoubleType>(&mut group, outcomes.iter().map(|o| o.dynamic_overlap))?;
    write_column::<Int64Type>(&mut group, outcomes.iter().map(|o| Some(number(o.windows))))?;
    write_column::<Int64Type>(&mut group, outcomes.iter().map(|o| o.cycles.map(number)))?;
    write_column::<DoubleType>(&mut group, outcomes.iter().map(|o| o.slowdown))?;
    write_column::<DoubleType>(&mut group, outcomes.iter().map(|o| o.frozen_slowdown))?;
    group.close()?;
    Ok(writer.into_inner()?)
}

fn text_column(name: &str) -> Result<Arc<Type>> {
    let builder = Type::primitive_type_builder(name, Physical::BYTE_ARRAY).with_logical_type(Some(LogicalType::String));
    Ok(Arc::new(builder.with_repetition(Repetition::OPTIONAL).build()?))
}

fn write_column<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: impl Iterator<Item = Option<T::T>>) -> Result<()> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    let mut column = group.next_column()?.context("the schema has too few columns")?;
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(column.close()?)
}

#[cfg(test)]
mod tests {
    use super::super::results::SweepOutcome;
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    fn columns_equal_those_of_the_csv() {
        let outcome = |metric: usize, overlap: Option<f64>| SweepOutcome {
            source: 0,
            configuration: 1,
            metric,
            overlap,
            dynamic_overlap: None,
            windows: 3,
            cycles: Some(7),
            slowdown: None,
            frozen_slowdown: Some(0.5),
        };
        let results = SweepResults {
            schema_version: 1,
            sources: vec!["a program".into()],
            factors: vec!["path-limit".into()],
            levels: vec![vec!["16".into(), "32".into()]],
            metrics: vec!["frequency".into(), "l2-misses".into()],
            combinations: vec![vec![0], vec![1]],
            outcomes: vec![outcome(0, Some(88.25)), outcome(1, None)],
            effects: vec![Vec::new(); 2],
            characters: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.parquet");
        std::fs::write(&file, to_parquet(&results).unwrap()).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let expected = |metric: &str, overlap: &str| {
            format!(
                "{{source: \"a program\", path-limit: \"32\", metric: \"{metric}\", overlap: {overlap}, dynamic_overlap: null, windows: 3, \
                 cycles: 7, slowdown: null, slowdown_frozen: 0.5}}"
            )
        };
        assert_eq!(rows, [expected("frequency", "88.25"), expected("l2-misses", "null")]);
        let names = results.to_csv().lines().next().unwrap().to_owned();
        let columns: Vec<String> = reader.metadata().file_metadata().schema_descr().columns().iter().map(|c| c.name().to_owned()).collect();
        assert_eq!(names, columns.join(","));
    }
}
