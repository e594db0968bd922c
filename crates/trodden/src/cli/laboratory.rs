//! Hands the options of `trodden-lab with` to the commands that they concern.

use super::{Command, FleetCommand, TraceCommand, WaitsCommand};
use anyhow::{Error, Result};
use trodden_console::arguments::laboratory::{LaboratoryChoices, LaboratoryCollector};
use trodden_trace::CollectorKind;

impl Command {
    /// Applies those choices that concern this command and ignores the others: they are meant for trodden commands that this command
    /// starts, which read them from the same environment variable. Fails if a choice conflicts with an option of the command.
    pub fn apply_laboratory_choices(&mut self, choices: &LaboratoryChoices) -> Result<()> {
        match self {
            Command::Build(job) => job.parameters.add_laboratory_choices(&choices.counting).map_err(Error::msg)?,
            Command::Instrument(job) => {
                job.parameters.add_laboratory_choices(&choices.counting).map_err(Error::msg)?;
                job.choices = choices.variant.clone();
            }
            Command::Pgo(job) => job.choices = choices.guided.clone(),
            Command::Record(job) => {
                job.copies.division = choices.division.clone();
                job.copies.choices = choices.copies.clone();
                job.stream.choices = choices.streams.clone();
            }
            Command::Fleet(FleetCommand::Copies(job)) => {
                job.strategy = choices.division.strategy.unwrap_or(job.strategy);
                job.division = choices.division.clone();
            }
            Command::Trace(TraceCommand::Record(job)) => {
                let kind = choices.tracing.collector.map(|collector| match collector {
                    LaboratoryCollector::Hardware => CollectorKind::Hardware,
                    LaboratoryCollector::Uprobes => CollectorKind::Uprobes,
                });
                job.collector = kind.or(job.collector);
                job.choices = choices.tracing.clone();
            }
            Command::Waits(WaitsCommand::Record(job)) => job.choices = choices.waiting.clone(),
            Command::Isolate(job) => job.choices = choices.isolation.clone(),
            Command::Report(job) => job.choices = choices.reporting.clone(),
            Command::Export(job) => job.choices = choices.coverage.clone(),
            Command::Coverage(job) => job.file_selection_mut().choices = choices.coverage.clone(),
            _ => {}
        }
        Ok(())
    }
}
