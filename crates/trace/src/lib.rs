//! Traces programs that are not instrumented, by ptrace(2) or from recordings that other tools made. Apart from the test oracles, no other
//! crate uses ptrace.
//!
//! | file | content |
//! |---|---|
//! | `tracer.rs`, `launcher.rs` | the tracer's own process, and the process that starts programs in the user's session |
//! | `command.rs` | a command that traces: its runs, its signals, and its end |
//! | `programs.rs` | all programs that a command runs: their processes, arguments and exit statuses |
//! | `collect.rs`, `collectors.rs`, `trial.rs` | collectors, their names, and a test which of them work on this machine |
//! | `follow/`, `followed_thread.rs` | the loop that follows a traced program with its threads, signals and children |
//! | `watch.rs`, `breakpoints.rs`, `displaced.rs`, `hardware.rs`, `single_step.rs` | the means of watching a program's code |
//! | `uprobes.rs`, `bpf.rs` | the kernel's probes |
//! | `trampolines.rs`, `block_copies.rs`, `copy_encoder.rs`, `copied_place.rs`, `patches.rs`, `sleds.rs` | blocks that record themselves |
//! | `head_code.rs` | the code that records a site, at the start of such a block |
//! | `released_copies.rs` | copies of code that the program changes |
//! | `lookups.rs`, `unknown_targets.rs` | indirect jumps in such blocks |
//! | `order_stamps.rs`, `stamping_threads.rs` | the common order of threads |
//! | `rings.rs`, `ring_layout.rs` | the buffers that such blocks write to |
//! | `folder.rs`, `fresh_folder.rs` | a copy of a folder mounted over the original; a new one for each run |
//! | `run.rs`, `sink.rs`, `error.rs` | one traced run, the consumer of its hits, and its errors |
//! | `outputs.rs` | the output of runs through pipes |
//! | `session.rs`, `injection.rs`, `journal.rs` | all changes to the traced process, and their undoing |
//! | `parked.rs` | processes that pass from one tracing thread to another |
//! | `hidden_patches.rs`, `code_guard.rs` | reads of patched code by the program itself |
//! | `kept_signals.rs`, `signal_state.rs` | the signal state that a program expects, in spite of the trace |
//! | `images.rs` | the program and the watched libraries in memory |
//! | `attach.rs`, `subject.rs`, `memory.rs`, `mappings.rs`, `stack.rs` | the traced process, its memory and its stacks |
//! | `repeat.rs`, `calls.rs` | repeatable runs, and detection of divergence |
//! | `shown_mappings.rs` | what a program reads about its own mappings |
//! | `privileged.rs` | programs whose files grant privileges |
//! | `block_file.rs`, `partial.rs`, `symbols.rs` | the file format of partial traces |
//! | `trace_file.rs`, `trace_writer.rs`, `trace_symbols.rs`, `trace_event.rs` | the file format of traces |
//! | `predicted.rs`, `numbers.rs` | compression of symbols, and numbers in files |
//! | `perf_script.rs` | the output of `perf script`: branches, mappings, ends of threads |
//! | `branch_import/` | path profiles of programs with code addresses in their maps, from hardware branch records |
//! | `hot_paths/` | the same, from the paths that the hardware path profiler's detector found |
//! | `probe_graphs.rs` | the functions' graphs, for both imports |
//! | `system.rs`, `ptrace.rs`, `process_status.rs` | system calls, and `/proc/PID/status` |
//! | `simulation/` | the hardware path profiler's model, run on a source of branches |
//! | `sources/` | sources of retired branches for that model: programs under QEMU, recordings |

mod attach;
mod block_copies;
pub mod block_file;
mod bpf;
mod branch_import;
mod breakpoints;
mod calls;
mod code_guard;
mod collect;
mod collectors;
pub mod command;
mod copied_place;
mod copy_encoder;
mod displaced;
mod error;
mod folder;
mod follow;
mod followed_thread;
mod fresh_folder;
mod hardware;
mod head_code;
mod hidden_patches;
mod hot_paths;
mod images;
mod injection;
mod journal;
mod kept_signals;
mod launcher;
mod lookups;
mod mappings;
mod memory;
mod numbers;
mod order_stamps;
mod outputs;
mod parked;
mod partial;
mod patches;
pub mod perf_script;
mod predicted;
mod privileged;
mod probe_graphs;
mod process_status;
mod programs;
mod ptrace;
mod released_copies;
mod repeat;
mod ring_layout;
mod rings;
mod run;
mod session;
mod shown_mappings;
mod signal_state;
pub mod simulation;
mod single_step;
mod sink;
mod sleds;
pub mod sources;
mod stack;
mod stamping_threads;
mod subject;
mod symbols;
mod system;
mod trace_event;
mod trace_file;
mod trace_symbols;
mod trace_writer;
mod tracer;
mod trampolines;
mod trial;
mod unknown_targets;
mod uprobes;
mod watch;

pub use attach::check_traceable;
pub use branch_import::{BranchImport, ImportError, import, programs_with_addresses};
pub use collect::{Collector, Compiled, Hardware, PtraceBreakpoints, RunOutcome, SingleStep, TrampolineCollector, UprobeCollector};
pub use collectors::CollectorKind;
pub use displaced::{DisplaceError, displace};
pub use error::CollectError;
pub use folder::{FolderBinding, close_descriptors_in_programs};
pub use follow::{FollowEnding, FollowOutcome};
pub use fresh_folder::FreshFolder;
pub use hidden_patches::has_protection_keys;
pub use hot_paths::{HotPath, HotPathExit, HotPathImport, import_hot_paths};
pub use images::Library;
pub use launcher::{InheritedSignals, Launcher, ProgramStart};
pub use mappings::{ProcessMapping, mappings};
pub use outputs::{OutputStream, drain};
pub use parked::ParkedProcess;
pub use partial::{PARTIAL_TRACE_FORMAT, PartialTrace, PartialTraceEnd, PartialTraceWriter};
pub use privileged::privileged_file;
pub use programs::{FollowRequest, ProcessEvent, ProgramId, StartedProgram, TraceError, follow};
pub use ptrace::wait_for_child;
pub use repeat::{FixedRunConditions, RepeatDivergence, RepeatedCall, RunLog};
pub use run::{ParkedReceiver, RunTarget, TraceRun};
pub use sink::{NO_ADDRESS, OrderStamp, RESUMED_FLAG, Sink, SinkFlow, StampPosition, TRANSFER_FLAG, ThreadNumber};
pub use sleds::find_first_sled;
pub use subject::Executable;
pub use symbols::Symbols;
pub use system::{cores, pin_thread_to_core, send_signal};
pub use trace_event::{TraceBlock, TraceEvent, TraceFunction};
pub use trace_file::{
    TRACE_FORMAT, ThreadStamp, TraceDescription, TraceEndRecord, TraceFile, TraceFilePiece, TraceFrameStack, TracedBlockInfo,
    TracedFunctionInfo, TracedRunInfo,
};
pub use trace_symbols::{BlockLead, BlockSymbol};
pub use trace_writer::{ThreadWriter, TraceWriter};
pub use tracer::{ClientLink, ClientMessage, TracerSplit, split_into_client_and_tracer};
pub use trial::try_collector;
