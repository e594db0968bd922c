//! Counts the instructions of a run, because they vary far less than the run's time.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use trodden_corpus::CorpusVariant;
use trodden_corpus::steps;
use trodden_corpus::{Corpus, CorpusInput};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionCounter {
    /// Hardware counters, read by `perf stat`.
    Perf,
    /// Valgrind, for machines without accessible hardware counters. It makes programs about twenty times slower.
    Valgrind,
}

impl InstructionCounter {
    /// Returns the best tool that works on this machine, or `None` if no tool does.
    pub fn find_available() -> Option<InstructionCounter> {
        let counts = |line: &str| !line.contains("<not") && line.starts_with(|c: char| c.is_ascii_digit());
        let perf = Command::new("perf").args(["stat", "-x,", "-e", "instructions:u", "true"]).output();
        if perf.is_ok_and(|out| out.status.success() && String::from_utf8_lossy(&out.stderr).lines().any(counts)) {
            return Some(InstructionCounter::Perf);
        }
        steps::is_on_search_path("valgrind").then_some(InstructionCounter::Valgrind)
    }

    pub fn name(self) -> &'static str {
        match self {
            InstructionCounter::Perf => "perf",
            InstructionCounter::Valgrind => "valgrind",
        }
    }

    pub fn count_run(self, corpus: &Corpus, program: &str, variant: &CorpusVariant, input: CorpusInput) -> Result<u64> {
        let log = steps::path_for_process("trodden-lab-instructions", "log");
        let _ = std::fs::remove_file(&log);
        let runner = self.command_prefix(&log);
        match self {
            InstructionCounter::Perf => corpus.run(program, variant, input, &runner)?,
            // Stripped, because Valgrind 3.19 cannot read clang's debug information.
            InstructionCounter::Valgrind => corpus.run_stripped(program, variant, input, &runner)?,
        };
        let text = std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let _ = std::fs::remove_file(&log);
        self.total_instructions(&text)
            .with_context(|| format!("{} reported no instruction count for {program}. It printed: {}", self.name(), text.trim()))
    }

    /// Returns the words to put before a command so that its instructions are counted.
    pub fn command_prefix(self, log: &Path) -> String {
        match self {
            InstructionCounter::Perf => format!("perf stat -x, -e instructions:u -o {} --append --", log.display()),
            InstructionCounter::Valgrind => {
                format!("valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null --log-file={}", log.display())
            }
        }
    }

    /// Adds up the counts of all processes in a log. Returns `None` if there are none.
    pub fn total_instructions(self, log: &str) -> Option<u64> {
        let number = |line: &str| match self {
            InstructionCounter::Perf => {
                line.split(',').next().filter(|_| line.contains("instructions")).and_then(|n| n.parse::<u64>().ok())
            }
            InstructionCounter::Valgrind => {
                line.split_once("I   refs:").or(line.split_once("I refs:")).and_then(|(_, n)| n.trim().replace(',', "").parse().ok())
            }
        };
        log.lines().filter_map(number).reduce(|a, b| a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_processes_are_summed() {
        let perf = "# started on Monday\n\n120,,instructions:u,1,100.00,,\n30,,instructions:u,1,100.00,,\n";
        assert_eq!(InstructionCounter::Perf.total_instructions(perf), Some(150));
        assert_eq!(InstructionCounter::Valgrind.total_instructions("==1== Cachegrind\n==1== I refs:        1,234,567\n"), Some(1_234_567));
        assert_eq!(InstructionCounter::Perf.total_instructions("<not supported>,,instructions:u,0,100.00,,\n"), None);
    }
}
