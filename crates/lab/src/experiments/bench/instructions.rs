//! Counting the instructions of a run: times depend on the machine's mood, these hardly.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use trodden_corpus::Variant;
use trodden_corpus::steps;
use trodden_corpus::{Corpus, Input};

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// The processor, asked by `perf stat`.
    Perf,
    /// Valgrind, which runs a program some twenty times slower: for machines that keep their counters to themselves.
    Valgrind,
}

impl Counter {
    /// The best one that works here.
    pub fn available() -> Option<Counter> {
        let counts = |line: &str| !line.contains("<not") && line.starts_with(|c: char| c.is_ascii_digit());
        let perf = Command::new("perf").args(["stat", "-x,", "-e", "instructions:u", "true"]).output();
        if perf.is_ok_and(|out| out.status.success() && String::from_utf8_lossy(&out.stderr).lines().any(counts)) {
            return Some(Counter::Perf);
        }
        steps::on_path("valgrind").then_some(Counter::Valgrind)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Counter::Perf => "perf",
            Counter::Valgrind => "valgrind",
        }
    }

    /// Instructions of a program's run.
    ///
    /// # Errors
    /// The run failed, or the counter wrote no number.
    pub fn of_run(self, corpus: &Corpus, program: &str, variant: &Variant, input: Input) -> Result<u64> {
        let log = steps::own_file("trodden-lab-instructions", "log");
        let _ = std::fs::remove_file(&log);
        let runner = self.runner(&log);
        match self {
            Counter::Perf => corpus.run(program, variant, input, &runner)?,
            // Valgrind 3.19 gives up on clang's debug information.
            Counter::Valgrind => corpus.run_stripped(program, variant, input, &runner)?,
        };
        let text = std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let _ = std::fs::remove_file(&log);
        self.total(&text).with_context(|| format!("{} counted no instructions of {program}; it says: {}", self.name(), text.trim()))
    }

    /// The arguments before the command whose instructions are counted.
    pub fn runner(self, log: &Path) -> String {
        match self {
            Counter::Perf => format!("perf stat -x, -e instructions:u -o {} --append --", log.display()),
            Counter::Valgrind => {
                format!("valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null --log-file={}", log.display())
            }
        }
    }

    /// What was counted, all processes together.
    pub fn total(self, log: &str) -> Option<u64> {
        let number = |line: &str| match self {
            Counter::Perf => line.split(',').next().filter(|_| line.contains("instructions")).and_then(|n| n.parse::<u64>().ok()),
            Counter::Valgrind => {
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
    fn logs_are_read() {
        let perf = "# started on Monday\n\n120,,instructions:u,1,100.00,,\n30,,instructions:u,1,100.00,,\n";
        assert_eq!(Counter::Perf.total(perf), Some(150));
        assert_eq!(Counter::Valgrind.total("==1== Cachegrind\n==1== I refs:        1,234,567\n"), Some(1_234_567));
        assert_eq!(Counter::Perf.total("<not supported>,,instructions:u,0,100.00,,\n"), None);
    }
}
