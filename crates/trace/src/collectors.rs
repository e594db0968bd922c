//! The list of all collectors, by the names they have in options and jobs.

use crate::collect::{Collector, Compiled, Hardware, PtraceBreakpoints, SingleStep, TrampolineCollector, UprobeCollector};
use serde::{Deserialize, Serialize};

/// A way to observe that a program reaches a site, that is, an address whose executions are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectorKind {
    /// Jumps, written into the program in memory, to copies of blocks that record themselves.
    Trampolines,
    /// Jumps in sleds that were compiled into the program.
    Compiled,
    /// Breakpoints by ptrace, with displaced instructions.
    Ptrace,
    /// Single-stepping every instruction by ptrace.
    SingleStep,
    /// The four debug registers.
    Hardware,
    /// Uprobes of the kernel with a BPF program.
    Uprobes,
}

impl CollectorKind {
    /// All collectors.
    pub const ALL: [Self; 6] = [Self::Trampolines, Self::Compiled, Self::Ptrace, Self::SingleStep, Self::Hardware, Self::Uprobes];

    /// Returns the collector itself.
    pub fn collector(self) -> &'static dyn Collector {
        match self {
            Self::Trampolines => &TrampolineCollector,
            Self::Compiled => &Compiled,
            Self::Ptrace => &PtraceBreakpoints,
            Self::SingleStep => &SingleStep,
            Self::Hardware => &Hardware,
            Self::Uprobes => &UprobeCollector,
        }
    }
}
