//! Tests of the oracles themselves: they agree on difficult programs, and they notice a wrong count.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use trodden_oracle::check::{CheckVariant, check_sources};
use trodden_oracle::random::RandomLanguage;
use trodden_oracle::{OracleSubject, OracleTools, SubjectRun, counts, log};

/// The tools that all tests share, since cargo holds a lock while it builds the plugin.
static TOOLS: LazyLock<OracleTools> =
    LazyLock::new(|| OracleTools::prepare(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracles")).unwrap());

struct Workspace {
    folder: tempfile::TempDir,
    tools: &'static OracleTools,
}

impl Workspace {
    fn new() -> Workspace {
        Workspace { folder: tempfile::tempdir().unwrap(), tools: &TOOLS }
    }

    fn source(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Checks a program of `tests/subjects`, and that it has functions with unfinished paths if and only if `unfinished` is true.
    fn verify_file(&self, name: &str, unfinished: bool) {
        let language = if name.ends_with(".c") { RandomLanguage::C } else { RandomLanguage::Cxx };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/subjects").join(name);
        let found = self.check(&[path], language);
        // Only the unoptimised variant is checked, since the optimiser may remove the calls in which paths stop.
        assert_eq!(found[0] > 0, unfinished, "{found:?}");
    }

    /// Checks a program with all oracles in several variants and returns the number of functions with unfinished paths in each.
    fn check(&self, sources: &[PathBuf], language: RandomLanguage) -> Vec<usize> {
        let mut unfinished = Vec::new();
        for level in ["-O0", "-O2"] {
            for parameters in ["", "max-paths=2 chords=off"] {
                let folder = self.folder.path().join(format!("{level}{}", parameters.len()));
                fs::create_dir(&folder).unwrap();
                let mut options = vec![level.to_owned()];
                options.extend((language == RandomLanguage::Cxx).then(|| "-std=c++20".to_owned()));
                let variant = CheckVariant { options, parameters: parameters.into(), helper: None };
                let findings = check_sources(sources, language, &variant, self.tools, &folder).unwrap();
                assert!(findings.differences.is_empty(), "{level} {parameters}: {:#?}", findings.differences);
                unfinished.push(findings.unfinished);
                fs::remove_dir_all(&folder).unwrap();
            }
        }
        unfinished
    }
}

#[test]
fn tail_calls_that_never_return_are_counted() {
    let workspace = Workspace::new();
    let other = workspace.source("b.c", "#include <stdlib.h>\nint end(int x) { if (x > 5) exit(0); return x * 3; }\n");
    let text = "int end(int); int mid(int x) { if (x % 2) return end(x); if (x % 3) return end(x + 1) + 1; return 7; }
        int last(int x) { int y; switch (x) { case 1: y = end(2); break; case 2: y = 5; break; default: y = end(x); } return y; }
        int main(void) { int s = 0; for (int i = 0; i < 100; i++) s += mid(i % 5) + last(i); return s; }";
    workspace.check(&[workspace.source("a.c", text), other], RandomLanguage::C);
}

#[test]
fn exits_deep_in_the_stack_leave_paths_unfinished() {
    let workspace = Workspace::new();
    let text = "#include <stdlib.h>
        __attribute__((noinline)) int f(int n) { if (n == 0) exit(0); int r = f(n - 1); return r + n % 2 ? 3 : 4; }
        int main(void) { for (int i = 0; i < 3; i++) f(20); return 1; }";
    let unfinished = workspace.check(&[workspace.source("a.c", text)], RandomLanguage::C);
    assert!(unfinished.iter().all(|n| *n > 0), "{unfinished:?}");
}

#[test]
fn longjmp_over_two_frames_leaves_paths_unfinished() {
    let workspace = Workspace::new();
    let text = "#include <setjmp.h>
        static jmp_buf here; static volatile int rounds;
        __attribute__((noinline)) static void inner(int n) { if (n % 3 == 0) longjmp(here, n % 5 + 1); rounds++; }
        __attribute__((noinline)) static int outer(int n) { inner(n); if (n & 1) inner(n * 2); return n; }
        int main(void) { volatile int sum = 0; for (volatile int i = 0; i < 40; i++) {
            switch (setjmp(here)) { case 0: sum += outer(i); break; case 1: sum++; break; case 3: sum += 3; i++; break; default: sum--; } }
            return sum & 63; }";
    let unfinished = workspace.check(&[workspace.source("a.c", text)], RandomLanguage::C);
    assert!(unfinished.iter().all(|n| *n > 0), "{unfinished:?}");
}

#[test]
fn exceptions_through_frames_with_and_without_cleanups_are_counted() {
    let workspace = Workspace::new();
    let text = "#include <cstdio>
        struct G { int &n; G(int &m) : n(m) { n++; } ~G() { n--; } };
        static int level; 
        __attribute__((noinline)) static int deep(int n) { if (n % 7 == 3) throw n; if (n % 5 == 1) throw 2.5; return n; }
        __attribute__((noinline)) static int plain(int n) { int r = deep(n); return r & 1 ? r : deep(r + 1); }
        __attribute__((noinline)) static int guarded(int n) { G g(level); G h(level); int r = plain(n); return r + level; }
        __attribute__((noinline)) static int again(int n) { try { return guarded(n); } catch (int x) { if (x % 2) throw; return x; } }
        int main() { int s = 0; for (int i = 0; i < 60; i++) { try { s += again(i); } catch (int x) { s ^= x; } catch (...) { s++; } }
            std::printf(\"%d %d\\n\", s, level); }";
    let unfinished = workspace.check(&[workspace.source("a.cpp", text)], RandomLanguage::Cxx);
    assert!(unfinished.iter().all(|n| *n > 0), "{unfinished:?}");
}

#[test]
fn indirect_branches_to_a_shared_block_are_counted() {
    let workspace = Workspace::new();
    let text = "#include <stdio.h>
        static int run(const unsigned char *p, int a) { static void *const to[] = {&&add, &&twice, &&skip, &&end};
            goto *to[*p++ & 3];
            add: a++; if (a % 5 == 0) goto twice; goto *to[*p++ & 3];
            twice: a *= 2; if (a > 1000) a = 1; goto *to[*p++ & 3];
            skip: p++; if (a & 1) goto add;
            end: return a; }
        int main(void) { unsigned x = 1; unsigned char code[64]; int s = 0;
            for (int i = 0; i < 50; i++) { for (int k = 0; k < 63; k++) { x = x * 1664525 + 1013904223; code[k] = x >> 24; } code[62] = \
            code[63] = code[61] = 3; s += run(code, i); }
            printf(\"%d\\n\", s); return 0; }";
    workspace.check(&[workspace.source("a.c", text)], RandomLanguage::C);
}

#[test]
fn coroutines_signals_and_switches_are_counted() {
    let workspace = Workspace::new();
    workspace.verify_file("coroutines.cpp", false);
    workspace.verify_file("signals.c", true);
    workspace.verify_file("switches.c", false);
}

#[test]
fn exceptions_from_destructors_and_handlers_are_counted() {
    Workspace::new().verify_file("exceptions.cpp", true);
}

#[test]
fn both_processes_of_a_fork_are_counted() {
    let workspace = Workspace::new();
    let text = "#include <sys/wait.h>\n#include <unistd.h>
        __attribute__((noinline)) static int f(int x) { int s = 0; for (int i = 0; i < x; i++) s += i % 3 ? i : -i; return s; }
        int main(void) { int s = 0; for (int i = 0; i < 4; i++) { pid_t child = fork(); if (child == 0) { s += f(i * 5); if (i % 2) \
        _exit(s & 63); return s & 31; }
            int status; waitpid(child, &status, 0); s += status > 9 ? f(3) : f(1); } return s & 63; }";
    let (subject, run) = small_subject(&workspace, &workspace.source("a.c", text));
    let (_, verdict) = counts::verify_in_one_run(&subject, workspace.tools, &run).unwrap();
    assert!(verdict.is_equal(), "{:#?}", verdict.differences);
    assert_eq!(verdict.executed, 2);
}

#[test]
fn a_wrong_count_is_noticed() {
    let workspace = Workspace::new();
    let text = "int g(int); int main(void) { int s = 0; for (int i = 0; i < 9; i++) s += g(i); return s & 1; }
        __attribute__((noinline)) int g(int x) { return x % 3 ? x : -x; }";
    let (subject, run) = small_subject(&workspace, &workspace.source("a.c", text));
    let (_, mut paths) = subject.count_paths(&run, &[]).unwrap();
    let (_, probed, blocks) = counts::count_blocks(&subject, workspace.tools, &run).unwrap();
    let (_, replay) = log::replay_log(&subject, workspace.tools, &run).unwrap();
    assert!(counts::check(&subject, &paths, &probed, &blocks).unwrap().is_equal());
    assert!(replay.check(&subject, &paths).unwrap().is_equal());
    let counted: &mut HashMap<u64, u64> = &mut paths[0];
    *counted.values_mut().next().unwrap() += 1;
    assert!(!counts::check(&subject, &paths, &probed, &blocks).unwrap().is_equal());
    assert!(!replay.check(&subject, &paths).unwrap().is_equal());
}

fn small_subject(workspace: &Workspace, source: &Path) -> (OracleSubject, SubjectRun) {
    let folder = workspace.folder.path();
    let (object, program) = (folder.join("a.o"), folder.join("a"));
    let mut plugin = std::ffi::OsString::from("-fpass-plugin=");
    plugin.push(&workspace.tools.plugin);
    let mut clang = workspace.tools.command("clang");
    clang.args(["-O0", "-c"]).arg(source).arg(plugin).arg("-o").arg(&object).env("TRODDEN_CACHE", folder.join("store"));
    assert!(clang.status().unwrap().success());
    assert!(
        workspace.tools.command("clang").arg(&object).arg(&workspace.tools.runtime).arg("-o").arg(&program).status().unwrap().success()
    );
    let image = trodden_unit::InstrumentedImage::read(&fs::read(&program).unwrap()).unwrap();
    let arguments = image.units.iter().map(|u| trodden_oracle::LinkArgument::Unit(u.unit)).collect();
    let link = trodden_oracle::LinkCommand { driver: "clang", directory: folder.to_owned(), arguments };
    let run = SubjectRun { place: folder.join("run/a"), arguments: vec![], input: None, directory: folder.to_owned(), limit_s: 60 };
    (OracleSubject::read(&program, link, folder).unwrap(), run)
}
