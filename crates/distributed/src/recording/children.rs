//! Recording a program together with the processes that it creates (`trodden trace record --follow`).
//!
//! Each process, and each program that a process executes, has a trace of its own. A process passes from the run that traces its parent to
//! its own run; see [`ParkedProcess`]. While a run is prepared, its process waits. If the traces are to end, all waiting processes are
//! released at once.

use super::{PreparedRecording, RecordOptions, RecordingHost, RunOptions, default_collector, shell_status};
use crate::libraries::find_libraries;
use anyhow::Result;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use trodden_text::words::reasons;
use trodden_trace::{CollectorKind, ParkedProcess, ParkedReceiver, command, wait_for_child};

enum FamilyRecordingEvent {
    /// A run passes on a process.
    Parked {
        parked: ParkedProcess,
        main: MainProgramNumber,
    },
    Ended {
        main: MainProgramNumber,
        result: Result<u8>,
    },
}

/// For the process that the command has started or attached to, the number of programs that it executed before this one; `None` for other
/// processes.
type MainProgramNumber = Option<usize>;

/// Records the program's trace, and with [`RecordOptions::family`] also those of all processes that it creates. Returns the exit
/// status of the program as a shell reports it.
///
/// # Errors
/// The program cannot be traced. A child that cannot be traced continues untraced, and a warning names it.
pub fn record(options: &RecordOptions, host: &RecordingHost) -> Result<u8> {
    if options.family.is_none() {
        return PreparedRecording::new(options, host)?.run();
    }
    record_family(options, host)
}

fn record_family(options: &RecordOptions, host: &RecordingHost) -> Result<u8> {
    let collector = |process| {
        let run = RunOptions { process, ..options.run.clone() };
        run.collector.unwrap_or_else(|| default_collector(&run, host))
    };
    let main =
        RecordOptions { run: RunOptions { collector: Some(collector(options.run.process)), ..options.run.clone() }, ..options.clone() };
    let family = RecordedFamily { options, collector: collector(None), begun: Instant::now() };
    let (sender, events) = channel();
    std::thread::scope(|scope| {
        let begin = |main: MainProgramNumber, options: RecordOptions, slot: Option<ParkedSlot>| {
            let sender = sender.clone();
            scope.spawn(move || {
                let result = record_and_pass_on_children(&options, host, slot, main, &sender);
                // The receiver waits for the ends of all runs.
                let _ = sender.send(FamilyRecordingEvent::Ended { main, result });
            });
        };
        begin(Some(0), main, None);
        let (mut programs, mut waiting) = (HashMap::<i32, usize>::new(), Vec::<ParkedSlot>::new());
        let (mut running, mut status, mut last_main) = (1, Ok(0), 0);
        while running > 0 {
            match events.recv_timeout(PARKED_POLL_INTERVAL) {
                Ok(FamilyRecordingEvent::Parked { parked, main }) => {
                    running += 1;
                    let process = parked.process();
                    let number = programs.entry(process).or_default();
                    *number += 1;
                    let slot = ParkedSlot::new(parked);
                    waiting.retain(ParkedSlot::is_full);
                    waiting.push(slot.clone());
                    begin(main, family.child_options(process, *number), Some(slot));
                }
                Ok(FamilyRecordingEvent::Ended { main, result }) => {
                    running -= 1;
                    // The run of a program may end before the run of the program that executed it.
                    if let Some(number) = main
                        && status.is_ok()
                        && (result.is_err() || number >= last_main)
                    {
                        (status, last_main) = (result, number);
                    }
                }
                Err(_) => {}
            }
            if command::stop().load(Ordering::Relaxed) {
                waiting.drain(..).for_each(|slot| drop(slot.take()));
            }
        }
        status
    })
}

/// Records one program of one process, and sends on the processes that its run passes on. If a parked process cannot be traced, a warning
/// says so, and the process continues untraced.
fn record_and_pass_on_children(
    options: &RecordOptions,
    host: &RecordingHost,
    slot: Option<ParkedSlot>,
    main: MainProgramNumber,
    sender: &Sender<FamilyRecordingEvent>,
) -> Result<u8> {
    let pass_on = |parked: ParkedProcess| {
        let main = main.filter(|_| parked.is_successor()).map(|number| number + 1);
        // If nobody receives it, it is dropped and thereby released.
        let _ = sender.send(FamilyRecordingEvent::Parked { parked, main });
    };
    let process = options.run.process.unwrap_or(0);
    let recorded = PreparedRecording::new(options, host).and_then(|r| r.run_family(slot.clone(), ParkedReceiver(&pass_on)));
    let Some(slot) = slot else { return recorded };
    recorded.or_else(|error| {
        // The process continues now, and not only after the message.
        let registration = slot.take().and_then(|mut parked| parked.take_registration());
        let command = shorten_command(&options.run.command);
        log::warn!("process {process} (`{command}`) is not traced: {}", reasons(error.chain().map(ToString::to_string)));
        // A process that this command has started ends before the command, which reports its exit status.
        let status = main.and_then(|_| wait_for_child(process).ok());
        drop(registration);
        Ok(shell_status(status))
    })
}

/// How often to check whether the traces are to end.
const PARKED_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A parked process, until its run takes it or it is released.
#[derive(Clone)]
pub struct ParkedSlot(Arc<Mutex<Option<ParkedProcess>>>);

impl ParkedSlot {
    fn new(parked: ParkedProcess) -> Self {
        Self(Arc::new(Mutex::new(Some(parked))))
    }

    /// Takes the process, unless it was taken or released before.
    pub fn take(&self) -> Option<ParkedProcess> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Returns a command for a message, in which long commands are cut.
pub(super) fn shorten_command(words: &[OsString]) -> String {
    const MAX_COMMAND_CHARACTERS: usize = 60;
    let command = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    match command.char_indices().nth(MAX_COMMAND_CHARACTERS) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command,
    }
}

impl<'a> PreparedRecording<'a> {
    /// Records the program, or a parked process, and passes on the processes that it creates.
    fn run_family(mut self, slot: Option<ParkedSlot>, receiver: ParkedReceiver<'a>) -> Result<u8> {
        self.subject.parked = slot;
        self.subject.children = Some(receiver);
        self.run()
    }
}

/// What the recordings of all processes have in common.
struct RecordedFamily<'a> {
    options: &'a RecordOptions,
    /// The collector for processes that were passed on.
    collector: CollectorKind,
    begun: Instant,
}

impl RecordedFamily<'_> {
    /// Returns the options for the `number`-th recorded program of a process, counted from 1, apart from the command's own program.
    fn child_options(&self, process: i32, number: usize) -> RecordOptions {
        let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words = words.strip_suffix(&[0]).unwrap_or(&words).split(|byte| *byte == 0);
        let own = &self.options.run;
        let run = RunOptions {
            command: words.map(|word| OsStr::from_bytes(word).to_owned()).collect(),
            process: Some(process),
            collector: Some(self.collector),
            libraries: self.libraries_loaded_by(process),
            limit: own.limit.map(|limit| limit.saturating_sub(self.begun.elapsed())),
            ..own.clone()
        };
        let mut output = self.options.output.clone().into_os_string();
        output.push(if number == 1 { format!(".{process}") } else { format!(".{process}.{number}") });
        RecordOptions { run, output: output.into(), keep: None, ..self.options.clone() }
    }

    /// Returns the paths of those libraries to trace that the process has loaded, or will load at its start.
    fn libraries_loaded_by(&self, process: i32) -> Vec<String> {
        let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
        let find = |name: &String| {
            let found =
                [Some(process), None].into_iter().find_map(|from| find_libraries(std::slice::from_ref(name), &program, from).ok())?;
            Some(found.first()?.executable.path.to_string_lossy().into_owned())
        };
        self.options.run.libraries.iter().filter_map(find).collect()
    }
}
