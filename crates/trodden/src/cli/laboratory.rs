//! Choices of the laboratory, which have no options here: where they go.

use super::{Command, Fleet, Trace};
use anyhow::Result;
use trodden_console::arguments::laboratory::{LaboratoryChoices, LaboratoryCollector};
use trodden_trace::CollectorKind;

impl Command {
    /// Takes over what concerns this command.
    ///
    /// # Errors
    /// A choice does not concern it. Commands that trodden starts itself read the choices of the one that started them.
    pub fn take_choices(&mut self, mut choices: LaboratoryChoices) -> Result<()> {
        match self {
            Command::Build(job) => job.parameters.scheme = choices.scheme.take(),
            Command::Instrument(job) => job.parameters.scheme = choices.scheme.take(),
            Command::Record(job) => {
                let copies = &mut job.copies;
                copies.strategy = choices.strategy.take().unwrap_or(copies.strategy);
                copies.hits = choices.hits.take().unwrap_or(copies.hits);
                copies.all_procedures = std::mem::take(&mut choices.all_procedures);
                copies.count_hits = std::mem::take(&mut choices.count_hits);
            }
            Command::Fleet(Fleet::Copies(job)) => {
                job.strategy = choices.strategy.take().unwrap_or(job.strategy);
                job.all_procedures = std::mem::take(&mut choices.all_procedures);
            }
            Command::Trace(Trace::Record(job)) => {
                let kind = choices.collector.take().map(|collector| match collector {
                    LaboratoryCollector::Hardware => CollectorKind::Hardware,
                    LaboratoryCollector::Uprobes => CollectorKind::Uprobes,
                });
                job.collector = kind.or(job.collector);
            }
            Command::Copy { .. } | Command::Trace(Trace::Work { .. }) => return Ok(()),
            _ => {}
        }
        choices.all_taken()
    }
}
