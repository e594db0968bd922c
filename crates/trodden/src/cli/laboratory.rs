//! Choices of the laboratory, which have no options here: where they go.

use super::{Command, Fleet, Trace};
use trodden_console::arguments::laboratory::{LaboratoryChoices, LaboratoryCollector};
use trodden_trace::CollectorKind;

impl Command {
    /// Takes over what concerns this command. Commands that it runs read the same choices, so the others are left to them.
    pub fn take_choices(&mut self, choices: &LaboratoryChoices) {
        match self {
            Command::Build(job) => job.parameters.scheme = choices.scheme,
            Command::Instrument(job) => job.parameters.scheme = choices.scheme,
            Command::Record(job) => {
                let copies = &mut job.copies;
                copies.strategy = choices.strategy.unwrap_or(copies.strategy);
                copies.hits = choices.hits.unwrap_or(copies.hits);
                copies.all_procedures = choices.all_procedures;
                copies.count_hits = choices.count_hits;
            }
            Command::Fleet(Fleet::Copies(job)) => {
                job.strategy = choices.strategy.unwrap_or(job.strategy);
                job.all_procedures = choices.all_procedures;
            }
            Command::Trace(Trace::Record(job)) => {
                let kind = choices.collector.map(|collector| match collector {
                    LaboratoryCollector::Hardware => CollectorKind::Hardware,
                    LaboratoryCollector::Uprobes => CollectorKind::Uprobes,
                });
                job.collector = kind.or(job.collector);
            }
            _ => {}
        }
    }
}
