//! The experiment file, and the configurations defined by its factors.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trodden_hardware::processor::{DirectionPredictor, ProcessorEvent, ProcessorModel, ProcessorParameters};
use trodden_hardware::{
    CounterWidth, DetectorParameters, IndexFunction, MappingPreset, Metric, OperationMapping, ReplacementPolicy, TableParameters,
};
use trodden_trace::simulation::read_processor;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SweepExperiment {
    pub sources: Vec<PathBuf>,
    pub format: Option<String>,
    #[serde(default = "default_design")]
    pub design: String,
    metric: Option<String>,
    #[serde(default)]
    metrics: Vec<String>,
    model: Option<String>,
    #[serde(default = "default_counter_bits")]
    counter_bits: u8,
    processor: Option<PathBuf>,
    pub factors: BTreeMap<String, Vec<toml::Value>>,
}

fn default_design() -> String {
    "full-factorial".into()
}

fn default_counter_bits() -> u8 {
    8
}

#[derive(Clone, Debug, PartialEq)]
pub struct SweepConfiguration {
    pub preset: MappingPreset,
    pub extensions: u16,
    pub detector: DetectorParameters,
    pub table: TableParameters,
    pub processor: ProcessorParameters,
}

pub fn format_level(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

impl SweepExperiment {
    /// Returns the metrics to accumulate, with their names: those in `metric` and `metrics`, or frequency if there are none. Fails if a
    /// metric is unknown, or needs the reference model.
    pub fn metrics(&self) -> Result<Vec<(String, Metric)>> {
        let mut named: Vec<&str> = self.metric.iter().chain(&self.metrics).map(String::as_str).collect();
        if named.is_empty() {
            named.push("frequency");
        }
        let model = self.model()?;
        named.into_iter().map(|name| Ok((name.to_owned(), parse_metric(name, model)?))).collect()
    }

    pub fn model(&self) -> Result<ProcessorModel> {
        match self.model.as_deref() {
            None | Some("fast") => Ok(ProcessorModel::Fast),
            Some("reference") => Ok(ProcessorModel::Reference),
            Some(other) => bail!("unknown model {other:?}. Choose fast or reference"),
        }
    }

    pub fn configurations(&self, folder: &Path, combinations: &[Vec<usize>]) -> Result<Vec<SweepConfiguration>> {
        let base = base_configuration(self, folder)?;
        combinations.iter().map(|c| apply_levels(self, &base, c)).collect()
    }
}

fn parse_metric(name: &str, model: ProcessorModel) -> Result<Metric> {
    if name == "frequency" {
        return Ok(Metric::Frequency);
    }
    let event = ProcessorEvent::ALL.into_iter().find(|e| e.name() == name);
    let event = event.with_context(|| format!("unknown metric {name:?}. Choose frequency or an event of `trodden simulate --event`"))?;
    if event == ProcessorEvent::CyclePower && model == ProcessorModel::Fast {
        bail!("metric \"power-cycle\" needs the cycle-stepped model. Add model = \"reference\"");
    }
    Ok(Metric::Event(event as usize))
}

fn base_configuration(experiment: &SweepExperiment, folder: &Path) -> Result<SweepConfiguration> {
    let processor = match &experiment.processor {
        Some(file) => read_processor(&folder.join(file))?,
        None => ProcessorParameters::default(),
    };
    let mapping = OperationMapping::preset(MappingPreset::BallLarus, 1);
    let detector =
        DetectorParameters { counter_width: CounterWidth::new(experiment.counter_bits)?, ..DetectorParameters::published(mapping) };
    Ok(SweepConfiguration { preset: MappingPreset::BallLarus, extensions: 1, detector, table: TableParameters::PUBLISHED, processor })
}

fn apply_levels(experiment: &SweepExperiment, base: &SweepConfiguration, levels: &[usize]) -> Result<SweepConfiguration> {
    let mut configuration = base.clone();
    for ((name, values), level) in experiment.factors.iter().zip(levels) {
        let value = &values[*level];
        set_factor(&mut configuration, name, value)
            .with_context(|| format!("factor {name} of the experiment has the invalid value {}", format_level(value)))?;
    }
    configuration.detector.mapping = OperationMapping::preset(configuration.preset, configuration.extensions);
    configuration.detector.check()?;
    configuration.table.check()?;
    configuration.processor.check()?;
    Ok(configuration)
}

fn set_factor(configuration: &mut SweepConfiguration, name: &str, value: &toml::Value) -> Result<()> {
    let number = || value.as_integer().and_then(|n| usize::try_from(n).ok()).context("expected a number");
    let word = || value.as_str().context("expected a string");
    match name {
        "entries" => configuration.table.entries = number()?,
        "associativity" => configuration.table.associativity = number()?,
        "index" => {
            let named = IndexFunction::ALL.into_iter().find(|i| Some(i.name()) == value.as_str());
            configuration.table.index = named.context("expected start, xor, fold or mix")?;
        }
        "replacement" => {
            let named = ReplacementPolicy::ALL.into_iter().find(|r| Some(r.name()) == value.as_str());
            configuration.table.replacement = named.context("expected lfu, lru, random, space-saving, rap or decay")?;
        }
        "preset" => {
            configuration.preset =
                MappingPreset::from_name(word()?).context("expected ball-larus, whole-program, extended-loops or extended-calls")?
        }
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
                _ => bail!("expected bimodal, gshare or combined"),
            }
        }
        "branch-queue" => configuration.processor.branch_queue = number()?,
        _ => bail!(
            "unknown factor. Choose entries, associativity, index, replacement, preset, extensions, path-limit, path-stack, l2-size, \
             l2-associativity, direction or branch-queue"
        ),
    }
    Ok(())
}
