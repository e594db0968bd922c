//! The engine: DataFusion, with a table of the files, in bounded memory.
//!
//! What a query holds on to, as groups and rows to be sorted, is counted against a limit, and goes to temporary files beyond it. Rows of a file come in the order that the file says they
//! have, so that groups of one path need not be kept until the end.

use super::answer::Sink;
use super::table;
use crate::cli::Query;
use crate::notes::warn;
use anyhow::{Context, Result, anyhow, bail};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use futures::StreamExt;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// Name of the table, as in the query of the guide.
const TABLE: &str = "untested";
/// The dialect in which `user` is a column, and names may stand between double quotes.
const DIALECT: &str = "duckdb";
/// Queries are walked by recursion, and there is no limit to their length. Only what is used takes memory.
const STACK: usize = 1 << 27;

/// Answers a query, and writes the answer as was asked for.
pub fn run(job: &Query, files: &[PathBuf], sql: &str) -> Result<()> {
    if let Some(output) = job.output.as_deref() {
        is_none_of(output, files)?;
    }
    for column in table::check(files)?.into_iter().filter(|_| sql.to_lowercase().contains("sum")) {
        warn(format_args!("sums of `{column}` may be wrong, since they may not fit 64 bits: write sum(CAST({column} AS DECIMAL(38)))"));
    }
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).thread_stack_size(STACK).build();
    let runtime = runtime.context("cannot start threads")?;
    let answered = thread::scope(|scope| {
        let work = || runtime.block_on(answer(job, files, sql, threads));
        let worker = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).context("cannot start a thread")?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    answered.map_err(|error| explained(error, job, files))
}

fn is_none_of(output: &Path, files: &[PathBuf]) -> Result<()> {
    let same = |file: &&PathBuf| fs::canonicalize(file).is_ok_and(|file| fs::canonicalize(output).is_ok_and(|output| output == file));
    match files.iter().find(same) {
        Some(file) => bail!("{} is read by the query: write the answer to another file", file.display()),
        None => Ok(()),
    }
}

async fn answer(job: &Query, files: &[PathBuf], sql: &str, threads: usize) -> Result<()> {
    let session = session(job, threads)?;
    session.register_table(TABLE, Arc::new(table_of(&session, files).await?))?;
    let frame = understood(&session, sql).await?;
    let mut batches = frame.execute_stream().await?;
    let mut sink = Sink::open(job, &batches.schema())?;
    while let Some(batch) = batches.next().await {
        if !sink.add(&batch?)? {
            break;
        }
    }
    sink.finish()
}

fn session(job: &Query, threads: usize) -> Result<SessionContext> {
    let config = SessionConfig::new().with_target_partitions(threads).set_str("datafusion.sql_parser.dialect", DIALECT);
    let pool = Arc::new(FairSpillPool::new((job.memory as usize) << 20));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
    Ok(SessionContext::new_with_config_rt(config, runtime))
}

async fn table_of(session: &SessionContext, files: &[PathBuf]) -> Result<ListingTable> {
    let urls: Vec<ListingTableUrl> = files.iter().map(|file| url(file)).collect::<Result<_>>()?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension("").with_collect_stat(true);
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options);
    Ok(ListingTable::try_new(config.infer_schema(&session.state()).await?)?)
}

/// Of a file whose name may have any characters; none of them is a pattern.
fn url(file: &Path) -> Result<ListingTableUrl> {
    let whole = fs::canonicalize(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = whole.to_str().with_context(|| format!("{} has a name that is no Unicode text: rename it", file.display()))?;
    let escaped: String = text
        .bytes()
        .map(|b| if b.is_ascii_alphanumeric() || b"/._-".contains(&b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect();
    Ok(ListingTableUrl::parse(format!("file://{escaped}"))?)
}

/// Only what asks is allowed.
async fn understood(session: &SessionContext, sql: &str) -> Result<DataFrame> {
    let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    session.sql_with_options(sql, options).await.map_err(|error| match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => error.into(),
        _ => anyhow!("this query cannot be answered: {}", error.strip_backtrace()),
    })
}

/// What to do about an error.
fn explained(error: anyhow::Error, job: &Query, files: &[PathBuf]) -> anyhow::Error {
    let Some(cause) = error.downcast_ref::<DataFusionError>() else { return error };
    match cause.find_root() {
        DataFusionError::ResourcesExhausted(what) => anyhow!("the query takes more than --memory {}: {what}", job.memory),
        _ => match table::damaged(files) {
            Some((file, why)) => anyhow!("{} is damaged: {why}", file.display()),
            None => anyhow!("the query failed: {}", cause.strip_backtrace()),
        },
    }
}
