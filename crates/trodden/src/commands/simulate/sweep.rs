//! `trodden simulate sweep`: an experiment over configurations of profiler and processor.
//!
//! Each source is read once. Configurations that differ in their tables only share detectors and processor; groups that
//! share nothing are fed in parallel, batch by batch.

use super::lane::{Lane, Model};
use super::sources::open_file;
use super::sweep_page;
use super::sweep_results::{Outcome, Results, sorted};
use crate::cli::{SourceFormat, Sweep};
use crate::notes::note;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_hardware::experiment::{Design, combinations, effects};
use trodden_hardware::processor::{DirectionPredictor, ProcessorEvent, ProcessorParameters};
use trodden_hardware::{
    CounterWidth, DetectorParameters, IndexFunction, Mapping, Metric, Preset, ProfilerParameters, Repair, Replacement, TableParameters,
};
use trodden_trace::sources::{Batch, Level};

/// A file of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Experiment {
    sources: Vec<PathBuf>,
    format: Option<String>,
    #[serde(default = "full_factorial")]
    design: String,
    #[serde(default = "frequency")]
    metric: String,
    #[serde(default = "eight")]
    counter_bits: u8,
    processor: Option<PathBuf>,
    factors: BTreeMap<String, Vec<toml::Value>>,
}

fn full_factorial() -> String {
    "full-factorial".into()
}

fn frequency() -> String {
    "frequency".into()
}

fn eight() -> u8 {
    8
}

/// A configuration.
#[derive(Clone, Debug, PartialEq)]
struct Configuration {
    preset: Preset,
    extensions: u16,
    detector: DetectorParameters,
    table: TableParameters,
    processor: ProcessorParameters,
}

/// Runs an experiment.
///
/// # Errors
/// The file is not understood, a source cannot be read, or results cannot be written.
pub fn run(job: &Sweep) -> Result<ExitCode> {
    let text = fs::read_to_string(&job.experiment).with_context(|| format!("cannot read {}", job.experiment.display()))?;
    let experiment: Experiment = toml::from_str(&text).with_context(|| format!("{} is not understood", job.experiment.display()))?;
    let folder = job.experiment.parent().unwrap_or(Path::new("."));
    let results = carry_out(&experiment, folder, job.window).with_context(|| job.experiment.display().to_string())?;
    let csv = csv(&results);
    match &job.output {
        Some(file) => fs::write(file, csv).with_context(|| format!("cannot write {}", file.display()))?,
        None => crate::output::text().write_all(csv.as_bytes())?,
    }
    for effect in sorted(&results.effects) {
        note(format_args!("{:2}. {:16} changes the mean overlap by {:+.2}", effect.rank, results.factors[effect.factor], effect.effect));
    }
    if let Some(file) = &job.html {
        fs::write(file, sweep_page::page(&results)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn carry_out(experiment: &Experiment, folder: &Path, window: u64) -> Result<Results> {
    let design = match experiment.design.as_str() {
        "full-factorial" => Design::FullFactorial,
        "plackett-burman" => Design::PlackettBurman { foldover: false },
        "plackett-burman-foldover" => Design::PlackettBurman { foldover: true },
        other => bail!("design = {other:?}: full-factorial, plackett-burman or plackett-burman-foldover"),
    };
    let metric = metric(&experiment.metric)?;
    let base = base(experiment, folder)?;
    let counts: Vec<usize> = experiment.factors.values().map(Vec::len).collect();
    let combinations = combinations(design, &counts)?;
    let configurations = combinations.iter().map(|c| configured(experiment, &base, c)).collect::<Result<Vec<_>>>()?;
    let needs_processor =
        !matches!(metric, Metric::Frequency | Metric::Event(0)) || configurations.iter().any(|c| c.processor.branch_queue > 0);
    let mut outcomes = Vec::new();
    for (number, source) in experiment.sources.iter().enumerate() {
        let path = folder.join(source);
        note(format_args!("{}: {} configurations", path.display(), configurations.len()));
        outcomes.extend(of_source(&path, number, experiment, &configurations, metric, needs_processor, window)?);
    }
    let mean = |configuration: usize| {
        let of_it: Vec<f64> = outcomes.iter().filter(|o| o.configuration == configuration).filter_map(|o| o.overlap).collect();
        of_it.iter().sum::<f64>() / of_it.len().max(1) as f64
    };
    let responses: Vec<f64> = (0..combinations.len()).map(mean).collect();
    Ok(Results {
        sources: experiment.sources.iter().map(|s| s.file_stem().unwrap_or_default().to_string_lossy().into_owned()).collect(),
        factors: experiment.factors.keys().cloned().collect(),
        levels: experiment.factors.values().map(|levels| levels.iter().map(text_of).collect()).collect(),
        effects: effects(&combinations, &counts, &responses),
        combinations,
        outcomes,
        metric: experiment.metric.clone(),
    })
}

/// A level as text.
fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn metric(name: &str) -> Result<Metric> {
    if name == "frequency" {
        return Ok(Metric::Frequency);
    }
    let event = ProcessorEvent::ALL.into_iter().find(|e| e.name() == name && *e != ProcessorEvent::CyclePower);
    let event = event.with_context(|| format!("metric = {name:?}: frequency, or an event of simulate --event but power-cycle"))?;
    Ok(Metric::Event(event as usize))
}

fn base(experiment: &Experiment, folder: &Path) -> Result<Configuration> {
    let processor = match &experiment.processor {
        Some(file) => {
            let path = folder.join(file);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            ProcessorParameters::from_toml(&text).with_context(|| path.display().to_string())?
        }
        None => ProcessorParameters::default(),
    };
    let mapping = Mapping::preset(Preset::BallLarus, 1);
    let detector =
        DetectorParameters { counter_width: CounterWidth::new(experiment.counter_bits)?, ..DetectorParameters::published(mapping) };
    Ok(Configuration { preset: Preset::BallLarus, extensions: 1, detector, table: TableParameters::PUBLISHED, processor })
}

fn configured(experiment: &Experiment, base: &Configuration, levels: &[usize]) -> Result<Configuration> {
    let mut configuration = base.clone();
    for ((name, values), level) in experiment.factors.iter().zip(levels) {
        let value = &values[*level];
        set(&mut configuration, name, value).with_context(|| format!("factor {name} = {}", text_of(value)))?;
    }
    configuration.detector.mapping = Mapping::preset(configuration.preset, configuration.extensions);
    configuration.detector.check()?;
    configuration.table.check()?;
    configuration.processor.check()?;
    Ok(configuration)
}

fn set(configuration: &mut Configuration, name: &str, value: &toml::Value) -> Result<()> {
    let number = || value.as_integer().and_then(|n| usize::try_from(n).ok()).context("a number is wanted");
    let word = || value.as_str().context("a word is wanted");
    match name {
        "entries" => configuration.table.entries = number()?,
        "associativity" => configuration.table.associativity = number()?,
        "index" => {
            let named = IndexFunction::ALL.into_iter().find(|i| Some(i.name()) == value.as_str());
            configuration.table.index = named.context("start, xor, fold or mix")?;
        }
        "replacement" => {
            let named = Replacement::ALL.into_iter().find(|r| Some(r.name()) == value.as_str());
            configuration.table.replacement = named.context("lfu, lru, random, space-saving, rap or decay")?;
        }
        "preset" => configuration.preset = Preset::named(word()?).context("ball-larus, whole-program, extended-loops or extended-calls")?,
        "extensions" => configuration.extensions = u16::try_from(number()?)?,
        "path-limit" => configuration.detector.length_limit = u8::try_from(number()?)?,
        "path-stack" => configuration.detector.stack_entries = number()?,
        "l2-size" => configuration.processor.l2.size = number()? as u64,
        "l2-associativity" => configuration.processor.l2.associativity = number()?,
        "direction" => {
            configuration.processor.predictor.direction = match word()? {
                "bimodal" => DirectionPredictor::Bimodal,
                "gshare" => DirectionPredictor::Gshare,
                "combined" => DirectionPredictor::Combined,
                _ => bail!("bimodal, gshare or combined"),
            }
        }
        "branch-queue" => configuration.processor.branch_queue = number()?,
        _ => bail!(
            "no factor; there are entries, associativity, index, replacement, preset, extensions, path-limit, path-stack, \
             l2-size, l2-associativity, direction, branch-queue"
        ),
    }
    Ok(())
}

/// Configurations that share a lane: places, and what they share.
struct Group {
    members: Vec<usize>,
    lane: Lane,
}

fn of_source(
    path: &Path,
    number: usize,
    experiment: &Experiment,
    configurations: &[Configuration],
    metric: Metric,
    needs_processor: bool,
    window: u64,
) -> Result<Vec<Outcome>> {
    let format = match experiment.format.as_deref() {
        None => SourceFormat::Auto,
        Some(name) => <SourceFormat as clap::ValueEnum>::from_str(name, false).map_err(anyhow::Error::msg).context("format")?,
    };
    let mut opened = open_file(path, format, &[])?;
    if needs_processor && opened.source.level() == Level::Branches {
        bail!(
            "{} holds branches only: the metric and branch-queue need whole instructions (traces of CBP2025 or ChampSim)",
            path.display()
        );
    }
    let repairs = opened.source.knows_return_addresses();
    let mut groups = groups(configurations, metric, needs_processor, window, repairs)?;
    let mut batch = Batch::default();
    let mut goes_on = true;
    while goes_on {
        batch.clear();
        goes_on = opened.source.read(&mut batch)?;
        feed(&mut groups, &batch)?;
    }
    let mut outcomes = Vec::new();
    for group in &mut groups {
        group.lane.finish(&mut |_, _| {})?;
        let timing = group.lane.timing();
        for (result, configuration) in group.lane.profiler.results(metric).iter().zip(&group.members) {
            outcomes.push(Outcome {
                source: number,
                configuration: *configuration,
                overlap: result.overlap,
                dynamic_overlap: result.dynamic_overlap,
                cycles: timing.map(|t| t.totals.cycles),
                slowdown: timing.and_then(|t| t.slowdown),
                frozen_slowdown: timing.and_then(|t| t.frozen_slowdown),
            });
        }
    }
    outcomes.sort_by_key(|o| o.configuration);
    Ok(outcomes)
}

fn groups(configurations: &[Configuration], metric: Metric, needs_processor: bool, window: u64, repairs: bool) -> Result<Vec<Group>> {
    let mut members: Vec<Vec<usize>> = Vec::new();
    // With a queue the first table's latencies matter, so each has a lane of its own.
    let shares = |one: &Configuration, other: &Configuration| {
        one.detector == other.detector && (!needs_processor || one.processor == other.processor && one.processor.branch_queue == 0)
    };
    for (number, configuration) in configurations.iter().enumerate() {
        match members.iter_mut().find(|group| shares(&configurations[group[0]], configuration)) {
            Some(group) => group.push(number),
            None => members.push(vec![number]),
        }
    }
    let group = |members: Vec<usize>| {
        let first = &configurations[members[0]];
        let mut detector = first.detector;
        if !repairs {
            detector.repair = Repair::None;
        }
        let tables = members.iter().map(|m| configurations[*m].table).collect();
        let mut metrics = vec![Metric::Frequency, metric];
        metrics.dedup();
        let parameters = ProfilerParameters { detector, tables, metrics, window };
        Ok(Group { lane: Lane::new(parameters, needs_processor.then_some((Model::Fast, first.processor)))?, members })
    };
    members.into_iter().map(group).collect()
}

/// Feeds all groups, in as many threads as there are processors.
fn feed(groups: &mut [Group], batch: &Batch) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len()).max(1);
    let chunk = groups.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let feed = |groups: &mut [Group]| groups.iter_mut().try_for_each(|group| group.lane.feed(batch, &mut |_, _| {}));
        let running: Vec<_> = groups.chunks_mut(chunk).map(|groups| scope.spawn(move || feed(groups))).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread failed")))
    })
}

fn csv(results: &Results) -> String {
    let mut text = format!("source,{},overlap,dynamic_overlap,cycles,slowdown,slowdown_frozen\n", results.factors.join(","));
    let number = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.4}"));
    for outcome in &results.outcomes {
        let levels = results.combinations[outcome.configuration].iter().zip(&results.levels).map(|(level, levels)| levels[*level].clone());
        let mut fields = vec![results.sources[outcome.source].clone()];
        fields.extend(levels);
        fields.extend([number(outcome.overlap), number(outcome.dynamic_overlap)]);
        fields.push(outcome.cycles.map_or_else(String::new, |c| c.to_string()));
        fields.extend([number(outcome.slowdown), number(outcome.frozen_slowdown)]);
        text += &fields.join(",");
        text.push('\n');
    }
    text
}
