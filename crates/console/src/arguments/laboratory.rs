//! Choices that only the laboratory offers: published methods that exist to be compared with trodden's own.
//!
//! `trodden-lab with` takes them as options and hands them to `trodden` in [`LABORATORY_VARIABLE`], spelled as there. `trodden` itself has
//! no options for them.

use super::choices::{one_of, spelled};
use super::partition::{COPY_STRATEGIES, HITS};
use clap::{Args, Parser, ValueEnum};
use std::env;
use trodden_flow::part::Measure;
use trodden_partition::PartitionStrategy;
use trodden_unit::experiment::ExperimentScheme;

/// Variable that holds choices, in the syntax of their options.
pub const LABORATORY_VARIABLE: &str = "TRODDEN_LABORATORY";

/// Choices for a command of `trodden`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct LaboratoryChoices {
    /// Numbering of paths (cc, c++, build, instrument).
    #[arg(long, value_parser = spelled::<ExperimentScheme>())]
    pub scheme: Option<ExperimentScheme>,
    /// How to divide the counting among copies (record --copies, field copies).
    #[arg(long, value_parser = one_of(COPY_STRATEGIES))]
    pub strategy: Option<PartitionStrategy>,
    /// What copies are to execute little of (record --copies).
    #[arg(long, value_parser = one_of(HITS))]
    pub hits: Option<Measure>,
    /// Divide functions that are called from several places as well, with strategy p3 (record --copies, field copies).
    #[arg(long)]
    pub all_procedures: bool,
    /// Count executions of probes in the copies as well, which slows them down: to check the computed hits (record --copies).
    #[arg(long)]
    pub count_hits: bool,
    /// Another way to see that a program comes to a place (trace record).
    #[arg(long, value_enum)]
    pub collector: Option<LaboratoryCollector>,
}

/// Collectors of traces that exist to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LaboratoryCollector {
    /// The four debug registers, which leave the code untouched: many runs.
    Hardware,
    /// Probes of the kernel with a BPF program; takes root.
    Uprobes,
}

#[derive(Parser)]
#[command(name = LABORATORY_VARIABLE, no_binary_name = true, disable_help_flag = true)]
struct OfVariable {
    #[command(flatten)]
    choices: LaboratoryChoices,
}

impl LaboratoryChoices {
    /// The choices of the environment; none by default.
    ///
    /// # Errors
    /// The variable holds something else; the message is clap's.
    pub fn from_environment() -> Result<LaboratoryChoices, clap::Error> {
        let text = env::var_os(LABORATORY_VARIABLE).unwrap_or_default();
        LaboratoryChoices::parse(&text.to_string_lossy())
    }

    fn parse(text: &str) -> Result<LaboratoryChoices, clap::Error> {
        Ok(OfVariable::try_parse_from(text.split_whitespace())?.choices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_spelled_as_options() {
        assert_eq!(LaboratoryChoices::parse("").unwrap(), LaboratoryChoices::default());
        let choices = LaboratoryChoices::parse("--scheme ppp --strategy p3 --all-procedures --collector uprobes").unwrap();
        assert_eq!((choices.strategy, choices.collector), (Some(PartitionStrategy::P3), Some(LaboratoryCollector::Uprobes)));
        assert!(choices.all_procedures && !choices.count_hits && choices.scheme.is_some());
        let error = LaboratoryChoices::parse("--strategy p4").unwrap_err().to_string();
        assert!(error.contains("p4"), "{error}");
        assert!(LaboratoryChoices::parse("p3").is_err());
    }
}
