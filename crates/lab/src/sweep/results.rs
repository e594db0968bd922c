//! The results of an experiment, as CSV and JSON.

use serde::Serialize;
use trodden_hardware::character::PathCharacteristics;
use trodden_hardware::experiment::FactorEffect;

#[derive(Clone, Debug, Serialize)]
pub struct SweepOutcome {
    pub source: usize,
    pub configuration: usize,
    pub metric: usize,
    /// Overlap of the simulated profile with the complete profile, in percent.
    pub overlap: Option<f64>,
    /// Mean of the overlaps in all windows of the run, in percent.
    pub dynamic_overlap: Option<f64>,
    pub windows: u64,
    /// Number of cycles, if a processor was modelled.
    pub cycles: Option<u64>,
    /// Slowdown that the profiler causes, in percent, if there is a branch queue.
    pub slowdown: Option<f64>,
    /// The same slowdown if branch predictions are those of the run without the profiler, in percent.
    pub frozen_slowdown: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct SweepResults {
    pub schema_version: u32,
    pub sources: Vec<String>,
    pub factors: Vec<String>,
    pub levels: Vec<Vec<String>>,
    pub metrics: Vec<String>,
    /// For each configuration, the index of each factor's level.
    pub combinations: Vec<Vec<usize>>,
    /// One result for each source, configuration and metric.
    pub outcomes: Vec<SweepOutcome>,
    /// Effects of the factors on the mean overlap of all sources, by metric.
    #[serde(serialize_with = "effects_json")]
    pub effects: Vec<Vec<FactorEffect>>,
    /// Characteristics of each source's paths, according to the first configuration's detector.
    pub characters: Vec<PathCharacteristics>,
}

fn effects_json<S: serde::Serializer>(effects: &[Vec<FactorEffect>], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct EffectRow {
        factor: usize,
        effect: f64,
        rank: usize,
    }
    let one = |e: &FactorEffect| EffectRow { factor: e.factor, effect: e.effect, rank: e.rank };
    to.collect_seq(effects.iter().map(|of_metric| of_metric.iter().map(one).collect::<Vec<_>>()))
}

impl SweepResults {
    pub fn levels_of(&self, configuration: usize) -> impl Iterator<Item = &str> {
        self.combinations[configuration].iter().zip(&self.levels).map(|(level, levels)| levels[*level].as_str())
    }

    /// Returns a row for each source, configuration and metric.
    pub fn to_csv(&self) -> String {
        let mut text =
            format!("source,{},metric,overlap,dynamic_overlap,windows,cycles,slowdown,slowdown_frozen\n", self.factors.join(","));
        let number = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.4}"));
        for outcome in &self.outcomes {
            let mut fields = vec![quote_field(&self.sources[outcome.source])];
            fields.extend(self.levels_of(outcome.configuration).map(quote_field));
            fields.push(self.metrics[outcome.metric].clone());
            fields.extend([number(outcome.overlap), number(outcome.dynamic_overlap), outcome.windows.to_string()]);
            fields.push(outcome.cycles.map_or_else(String::new, |c| c.to_string()));
            fields.extend([number(outcome.slowdown), number(outcome.frozen_slowdown)]);
            text += &(fields.join(",") + "\n");
        }
        text
    }

    /// Returns a row for each point of the sources' distributions: skew of path frequencies, lengths of paths, and overlap of events with
    /// frequency.
    pub fn distributions_to_csv(&self) -> String {
        let mut text = String::from("source,what,of,percent\n");
        for (source, character) in self.sources.iter().zip(&self.characters) {
            let source = quote_field(source);
            for skew in &character.skew {
                skew.points.iter().for_each(|p| text += &format!("{source},paths-{},{},{:.4}\n", skew.metric, p.paths, p.percent));
            }
            character.lengths.iter().for_each(|p| text += &format!("{source},branches,{},{:.4}\n", p.branches, p.percent));
            for event in &character.events {
                let overlap = event.overlap_with_frequency.map_or_else(String::new, |v| format!("{v:.4}"));
                text += &format!("{source},overlap-with-frequency,{},{overlap}\n", event.metric);
            }
            if let Some(agreement) = &character.power_models {
                let rank = agreement.rank_correlation.map_or_else(String::new, |r| format!("{:.4}", 100.0 * r));
                let overlap = agreement.overlap.map_or_else(String::new, |v| format!("{v:.4}"));
                text += &format!("{source},power-models,rank-correlation,{rank}\n{source},power-models,overlap,{overlap}\n");
            }
        }
        text
    }
}

/// Quotes a CSV field if necessary (RFC 4180).
fn quote_field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

pub fn sort_by_rank(effects: &[FactorEffect]) -> Vec<FactorEffect> {
    let mut effects = effects.to_vec();
    effects.sort_by_key(|e| e.rank);
    effects
}
