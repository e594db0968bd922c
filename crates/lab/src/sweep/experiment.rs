//! The file of an experiment, and the configurations that its factors make.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trodden_hardware::processor::{DirectionPredictor, ProcessorEvent, ProcessorModel, ProcessorParameters};
use trodden_hardware::{CounterWidth, DetectorParameters, IndexFunction, Metric, OperationMapping, Preset, Replacement, TableParameters};
use trodden_trace::simulation::processor_of_file;

/// A file of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    pub sources: Vec<PathBuf>,
    pub format: Option<String>,
    #[serde(default = "full_factorial")]
    pub design: String,
    metric: Option<String>,
    #[serde(default)]
    metrics: Vec<String>,
    model: Option<String>,
    #[serde(default = "eight")]
    counter_bits: u8,
    processor: Option<PathBuf>,
    pub factors: BTreeMap<String, Vec<toml::Value>>,
}

fn full_factorial() -> String {
    "full-factorial".into()
}

fn eight() -> u8 {
    8
}

/// A configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    pub preset: Preset,
    pub extensions: u16,
    pub detector: DetectorParameters,
    pub table: TableParameters,
    pub processor: ProcessorParameters,
}

/// A level as text.
pub fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

impl Experiment {
    /// What is accumulated, with its names; `metric` and `metrics` are added up.
    ///
    /// # Errors
    /// One is not known, or known to the other model only.
    pub fn metrics(&self) -> Result<Vec<(String, Metric)>> {
        let mut named: Vec<&str> = self.metric.iter().chain(&self.metrics).map(String::as_str).collect();
        if named.is_empty() {
            named.push("frequency");
        }
        let model = self.model()?;
        named.into_iter().map(|name| Ok((name.to_owned(), metric(name, model)?))).collect()
    }

    /// Which model of the processor.
    ///
    /// # Errors
    /// It is not known.
    pub fn model(&self) -> Result<ProcessorModel> {
        match self.model.as_deref() {
            None | Some("fast") => Ok(ProcessorModel::Fast),
            Some("reference") => Ok(ProcessorModel::Reference),
            Some(other) => bail!("model = {other:?}: fast or reference"),
        }
    }

    /// The configurations of levels.
    ///
    /// # Errors
    /// A factor or a level is not known, or a configuration cannot be.
    pub fn configurations(&self, folder: &Path, combinations: &[Vec<usize>]) -> Result<Vec<Configuration>> {
        let base = base(self, folder)?;
        combinations.iter().map(|c| configured(self, &base, c)).collect()
    }
}

fn metric(name: &str, model: ProcessorModel) -> Result<Metric> {
    if name == "frequency" {
        return Ok(Metric::Frequency);
    }
    let event = ProcessorEvent::ALL.into_iter().find(|e| e.name() == name);
    let event = event.with_context(|| format!("metric {name:?}: frequency, or an event of simulate --event"))?;
    if event == ProcessorEvent::CyclePower && model == ProcessorModel::Fast {
        bail!("metric \"power-cycle\" is known to the cycle-stepped model only: add model = \"reference\"");
    }
    Ok(Metric::Event(event as usize))
}

fn base(experiment: &Experiment, folder: &Path) -> Result<Configuration> {
    let processor = match &experiment.processor {
        Some(file) => processor_of_file(&folder.join(file))?,
        None => ProcessorParameters::default(),
    };
    let mapping = OperationMapping::preset(Preset::BallLarus, 1);
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
    configuration.detector.mapping = OperationMapping::preset(configuration.preset, configuration.extensions);
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
