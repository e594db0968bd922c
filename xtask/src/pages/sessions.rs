//! Runs the console sessions in the README, the guide and the handbook, and checks that each command prints what the page shows.
//!
//! A session is a block marked `console`. Lines that start with `$ ` are commands; the lines after a command are its output, including
//! standard error. A line `...` matches any number of lines. Dates, times, durations and the host name may differ. Percentages may differ
//! by one in the last digit, because the size of the environment influences what the dynamic loader executes. A command may fail only if
//! the next command is `echo $?`. These comments in a page control its sessions:
//!
//! | comment | meaning |
//! |---|---|
//! | `<!-- sessions: PACKAGE -->` | The page's sessions run in a copy of the sources of this corpus program or Debian package, or `none` |
//! | `<!-- file: NAME -->` | The next block is the content of a file that later sessions need |
//! | `<!-- session: slow -->` | The next session and those after it take long: `cargo xtask release-check` runs them |

mod page;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use page::{CommandStep, NO_PACKAGE, SessionPage, SessionStep};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use trodden_corpus::Corpus;
use trodden_corpus::steps;

/// A line that, in the output shown by a page, matches any number of printed lines.
const OMITTED_LINES: &str = "...";
/// Folders in whose pages sessions are run. The README's sessions are run as well.
const PAGE_FOLDERS: [&str; 2] = ["docs/guide/src/", "docs/handbook/src/"];

#[derive(Debug, Args)]
pub struct SessionOptions {
    /// Pages whose paths contain one of these texts (default: all pages).
    pages: Vec<String>,
    /// Run all sessions of the pages that have slow sessions.
    #[arg(long)]
    slow: bool,
    /// Folder with the built programs [default: `debug` in cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
}

impl SessionOptions {
    /// Returns the options that select the fast sessions of all pages.
    pub fn fast_sessions() -> SessionOptions {
        SessionOptions { pages: Vec::new(), slow: false, programs: None }
    }

    fn selects_page(&self, file: &str) -> bool {
        let is_chosen = self.pages.is_empty() || self.pages.iter().any(|part| file.contains(part));
        is_chosen && (file == "README.md" || PAGE_FOLDERS.iter().any(|folder| file.starts_with(folder)))
    }
}

/// What all sessions use: programs, folders and sources.
struct SessionEnvironment {
    /// Folders for the search path of commands: the built programs, and links to them.
    path: Vec<PathBuf>,
    /// The folder that contains the working folders of all sessions.
    folder: PathBuf,
    /// The folder in which commands create temporary files.
    temporary: PathBuf,
    /// For each package that a page names, the folder of its unpacked sources.
    sources: BTreeMap<String, PathBuf>,
}

/// Runs the sessions of several pages in parallel. Returns a message for each command whose output differs from the page. Fails if no page
/// matches the options, a page is malformed, sources cannot be fetched, or a command exits with an error that the page does not show.
pub fn check(options: &SessionOptions) -> Result<Vec<String>> {
    let texts: Vec<(String, String)> = super::read_pages()?.into_iter().filter(|(file, _)| options.selects_page(file)).collect();
    let mut pages = Vec::new();
    for (file, text) in &texts {
        let page = page::parse_sessions(text).with_context(|| format!("cannot read the sessions of {file}"))?;
        pages.extend(page.map(|page| (file.as_str(), page)));
    }
    ensure!(!pages.is_empty(), "no page with sessions has a path that contains {}", options.pages.join(" or "));
    pages.retain(|(_, page)| if options.slow { page.first_slow_step.is_some() } else { !page.steps(false).is_empty() });
    let environment = SessionEnvironment::prepare(options, &pages)?;
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<String>> {
        let mut findings = Vec::new();
        while let Some((file, page)) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            findings.extend(environment.check_page(file, page, options.slow)?);
            eprintln!("{file}: {:.1} s", started.elapsed().as_secs_f64());
        }
        Ok(findings)
    };
    let results: Vec<Result<Vec<String>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..steps::job_count()).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| bail!("a thread that runs sessions panicked"))).collect()
    });
    let mut findings: Vec<String> = results.into_iter().collect::<Result<Vec<_>>>()?.concat();
    findings.sort();
    Ok(findings)
}

/// Environment variables that are passed on to commands that contain `cargo`. They say where toolchains are and how registries are reached.
const TOOLCHAIN_VARIABLES: [&str; 12] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTUP_AUTO_INSTALL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

impl SessionEnvironment {
    /// Creates links to the programs, and fetches the sources that the pages need.
    fn prepare(options: &SessionOptions, pages: &[(&str, SessionPage)]) -> Result<SessionEnvironment> {
        let programs = options.programs.clone().unwrap_or_else(|| steps::target_folder().join("debug"));
        let programs = std::path::absolute(&programs).with_context(|| format!("cannot find {}", programs.display()))?;
        let folder = steps::target_folder().join("sessions");
        let links = folder.join("links");
        std::fs::create_dir_all(&links).with_context(|| format!("cannot create {}", links.display()))?;
        steps::output(Command::new(programs.join("trodden")).arg("drivers").arg(&links))?;
        let corpus = Corpus::in_folder(&folder);
        let mut sources = BTreeMap::new();
        for (_, page) in pages {
            if page.package != NO_PACKAGE && !sources.contains_key(page.package) {
                sources.insert(page.package.to_owned(), fetch_sources(&corpus, page.package)?);
            }
        }
        let temporary = folder.join("tmp");
        std::fs::create_dir_all(&temporary).with_context(|| format!("cannot create {}", temporary.display()))?;
        Ok(SessionEnvironment { path: vec![programs, links], folder, temporary, sources })
    }

    fn check_page(&self, file: &str, page: &SessionPage, with_slow: bool) -> Result<Vec<String>> {
        let mut findings = Vec::new();
        let mut folder = self.create_page_folder(file, page.package)?;
        let mut status = 0;
        let all = page.steps(with_slow);
        for (number, step) in all.iter().enumerate() {
            match step {
                SessionStep::Write { file, content } => write_file(&folder, file, content)?,
                SessionStep::Run(step) => {
                    if let Some(below) = step.command.strip_prefix("cd ") {
                        folder.push(below);
                        continue;
                    }
                    let printed;
                    (status, printed) = self.run_command(step, &folder, status)?;
                    let shows_status = matches!(all.get(number + 1), Some(SessionStep::Run(next)) if next.command == "echo $?");
                    if status != 0 && !shows_status {
                        bail!("{file}:{}: `{}` failed with status {status}:\n{printed}", step.line, step.command);
                    }
                    findings.extend(first_difference(file, step, &printed));
                }
            }
        }
        Ok(findings)
    }

    /// Creates the working folder for a page's sessions. If the page names a package, the folder contains a copy of the package's sources;
    /// otherwise it is empty.
    fn create_page_folder(&self, file: &str, package: &str) -> Result<PathBuf> {
        let folder = self.folder.join("pages").join(file.replace('/', "-"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        if let Some(sources) = self.sources.get(package) {
            steps::output(Command::new("cp").arg("-a").arg(sources.join(".")).arg(&folder))?;
        }
        Ok(folder)
    }

    /// Runs a command in which `$?` is `status`, the exit status of the previous command. Returns the command's own exit status, and what
    /// it wrote to standard output and standard error in the order of writing.
    fn run_command(&self, step: &CommandStep, folder: &Path, status: i32) -> Result<(i32, String)> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec 2>&1; (exit {status}); {}", step.command)]).current_dir(folder).stdin(Stdio::null());
        // All commands get the same environment, because the C library executes different paths if there are more variables. In particular,
        // commands must not see the variables that cargo sets for this program.
        let inherited = if step.command.contains("cargo") { &TOOLCHAIN_VARIABLES[..] } else { &[] };
        command.env_clear().envs(inherited.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env("HOME", std::env::var_os("HOME").unwrap_or_else(|| "/".into())).env("TMPDIR", &self.temporary);
        command.env("PATH", steps::search_path_with(&self.path)?).env("LC_ALL", "C.UTF-8");
        command.env("TRODDEN_CACHE", self.folder.join("store")).env("CCACHE_DIR", folder.join(".ccache"));
        let output = command.output().with_context(|| format!("cannot run `{}`", step.command))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((output.status.code().unwrap_or(-1), text))
    }
}

/// Fetches the unmodified sources of a Debian source package or a corpus program, as users would unpack them. Returns their folder.
fn fetch_sources(corpus: &Corpus, package: &str) -> Result<PathBuf> {
    if corpus.programs(&[package.to_owned()]).is_err() {
        return corpus.fetch_source(package);
    }
    let about = corpus.describe_programs()?;
    let about = about.lines().find_map(|line| line.strip_prefix(package)?.strip_prefix(": "));
    if let Some(source) = about.and_then(|about| about.strip_prefix("source package ")?.split(' ').next()) {
        return corpus.fetch_source(source);
    }
    corpus.fetch(package)?;
    Ok(corpus.folder().join("src").join(package))
}

fn write_file(folder: &Path, name: &str, content: &str) -> Result<()> {
    let is_inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_inside, "the session file `{name}` is not in the session's folder");
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Describes the first difference between what a command printed and what the page shows. Returns `None` if they match.
fn first_difference(file: &str, step: &CommandStep, printed: &str) -> Option<String> {
    // Empty lines at the end of the shown or printed output are ignored.
    let actual: Vec<String> = printed.trim_end().lines().map(replace_varying_words).collect();
    let shown = step.expected.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    let expected: Vec<String> = step.expected[..shown].iter().map(|line| replace_varying_words(line)).collect();
    let parts: Vec<&[String]> = expected.split(|line| line == OMITTED_LINES).collect();
    let (mut at, mut line) = (0, step.line);
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        let start = match (number, is_last) {
            (0, _) => at,
            (_, true) => actual.len().saturating_sub(part.len()).max(at),
            _ => (at..actual.len()).find(|start| starts_with_shown_lines(part, &actual[*start..])).unwrap_or(at),
        };
        let differs = (0..part.len()).find(|n| actual.get(start + n).is_none_or(|line| !matches_line(&part[*n], line)));
        if let Some(n) = differs {
            let prints = actual.get(start + n).map_or("nothing more".to_owned(), |line| format!("`{line}`"));
            return Some(format!("{file}:{}: `{}` prints {prints} instead of `{}`", line + 1 + n, step.command, part[n]));
        }
        at = start + part.len();
        line += part.len() + 1;
    }
    // More lines may be printed after the last shown line only if the page ends with `...`.
    let more = actual.get(at)?;
    Some(format!("{file}:{}: `{}` also prints `{more}`", step.line, step.command))
}

fn starts_with_shown_lines(shown: &[String], output: &[String]) -> bool {
    output.len() >= shown.len() && shown.iter().zip(output).all(|(shown, line)| matches_line(shown, line))
}

/// Returns true if a printed line matches the line that the page shows. Percentages may differ by one in the last digit.
fn matches_line(shown: &str, printed: &str) -> bool {
    let (shown, printed): (Vec<&str>, Vec<&str>) = (shown.split(' ').collect(), printed.split(' ').collect());
    let has_sign = |at: usize| shown[at].ends_with('%') || shown.get(at + 1).is_some_and(|next| *next == "%");
    let is_close = |at: usize| {
        let digits = |word: &str| (word.find('.'), word.replacen('.', "", 1).trim_end_matches('%').parse::<u64>());
        let ((shown_point, shown_digits), (printed_point, printed_digits)) = (digits(shown[at]), digits(printed[at]));
        let difference = shown_digits.and_then(|shown| Ok(shown.abs_diff(printed_digits?)));
        shown_point == printed_point && difference.is_ok_and(|difference| difference <= 1)
    };
    shown.len() == printed.len() && (0..shown.len()).all(|at| shown[at] == printed[at] || has_sign(at) && is_close(at))
}

/// Replaces words that vary from run to run by placeholders: dates, times, durations and the host name.
fn replace_varying_words(line: &str) -> String {
    const TIME_UNITS: [&str; 5] = ["ns", "us", "ms", "s", "min"];
    let words: Vec<&str> = line.split(' ').collect();
    let is_run = line.trim_start().starts_with("run ");
    let is_number = |word: &str| {
        let digits = word.trim_start_matches('(');
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
    };
    // Numbers with three decimal places are durations in tables, which are printed without a unit.
    let is_seconds = |word: &str| is_number(word) && word.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 3);
    let is_moment = |word: &str| {
        word.len() >= 8
            && word.chars().all(|c| c.is_ascii_digit() || c == '-' || c == ':')
            && word.contains(['-', ':'])
            && word != "--------"
    };
    let is_unit = |word: Option<&&str>| word.is_some_and(|word| TIME_UNITS.contains(&word.trim_end_matches([',', '.', ';', ':', ')'])));
    let replaced = words.iter().enumerate().map(|(at, word)| match *word {
        word if is_moment(word) => "MOMENT".to_owned(),
        word if is_number(word) && is_unit(words.get(at + 1)) => "NUMBER".to_owned(),
        word if is_seconds(word) => "SECONDS".to_owned(),
        word if is_unit(Some(&word)) && at > 0 && is_number(words[at - 1]) => format!("UNIT{}", if word.ends_with(',') { "," } else { "" }),
        _ if is_run && at > 0 && at + 1 == words.len() && words[at - 1] == "on" => "HOST".to_owned(),
        word => word.to_owned(),
    });
    replaced.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_host_names_and_last_digits_of_percentages_may_differ() {
        let step =
            |line, command: &str, expected: &[&'static str]| CommandStep { line, command: command.to_owned(), expected: expected.to_vec() };
        let make = step(2, "make", &["...", "done"]);
        for printed in ["done\n", "cc a.c\ncc b.c\ndone\n\n"] {
            assert_eq!(first_difference("a.md", &make, printed), None);
        }
        for printed in ["", "done\nmore\n", "cc a.c\n"] {
            assert!(first_difference("a.md", &make, printed).is_some_and(|d| d.contains("a.md:4: ")), "{printed}");
        }
        let report = step(5, "report", &["  run   2026-11-21 10:42:49 UTC, 210 ms, exit status 0, on vm", "  paths 528"]);
        let other = |paths: &str| format!("  run   2030-01-02 00:00:00 UTC, 1.5 s, exit status 0, on other\n  paths {paths}\n");
        assert_eq!(first_difference("a.md", &report, &other("528")), None);
        let said = first_difference("a.md", &report, &other("529")).unwrap();
        assert_eq!(said, "a.md:7: `report` prints `  paths 529` instead of `  paths 528`");
        assert!(first_difference("a.md", &report, &other("528").replace("status 0", "status 1")).is_some());
        let list = step(1, "list", &["2 tests (0.124 s):", "passed  0.023  1,635  fast"]);
        assert_eq!(first_difference("a.md", &list, "2 tests (1.5 s):\npassed  0.102  1,635  fast\n"), None);
        assert!(first_difference("a.md", &list, "2 tests (1.5 s):\npassed  0.102  1,636  fast\n").is_some());
        let share = step(1, "share", &["1.  25.18 %  633,211  main", "2. 99.9% of 7"]);
        assert_eq!(
            first_difference("a.md", &share, "1.  25.17 %  633,211  main\n2. 100.0% of 7\n").as_deref(),
            Some("a.md:3: `share` prints `2. 100.0% of 7` instead of `2. 99.9% of 7`")
        );
        assert_eq!(first_difference("a.md", &share, "1.  25.17 %  633,211  main\n2. 99.8% of 7\n"), None);
        for printed in ["1.  25.16 %  633,211  main\n2. 99.9% of 7\n", "1.  25.18 %  633,212  main\n2. 99.9% of 7\n"] {
            assert!(first_difference("a.md", &share, printed).is_some(), "{printed}");
        }
        let more = format!("{}more\n", other("528"));
        assert!(first_difference("a.md", &report, &more).is_some_and(|d| d.contains("also prints `more`")));
    }

    #[test]
    fn files_of_sessions_must_be_inside_the_page_folder() {
        for name in ["/tmp/a", "../a", "a/../../b"] {
            assert!(write_file(Path::new("/nowhere"), name, "").unwrap_err().to_string().contains("is not in the session"), "{name}");
        }
    }
}
