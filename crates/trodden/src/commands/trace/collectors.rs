//! Collectors of traces by the name that options and jobs have: the one list.

use crate::cli::CollectorKind;
use anyhow::{Context, Result};
use trodden_trace::{Collector, Compiled, Hardware, PtraceBreakpoints, SingleStep, Trampolines, Uprobes};

/// All collectors.
pub const COLLECTORS: [&dyn Collector; 6] = [&Trampolines, &Compiled, &PtraceBreakpoints, &SingleStep, &Hardware, &Uprobes];

/// The collector of a name.
///
/// # Errors
/// There is none.
pub fn collector_named(name: &str) -> Result<&'static dyn Collector> {
    COLLECTORS.into_iter().find(|c| c.name() == name).with_context(|| format!("there is no collector `{name}`"))
}

/// The collector that an option names.
pub fn collector(kind: CollectorKind) -> &'static dyn Collector {
    match kind {
        CollectorKind::Trampolines => &Trampolines,
        CollectorKind::Compiled => &Compiled,
        CollectorKind::Ptrace => &PtraceBreakpoints,
        CollectorKind::SingleStep => &SingleStep,
        CollectorKind::Hardware => &Hardware,
        CollectorKind::Uprobes => &Uprobes,
    }
}
