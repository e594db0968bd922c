//! Names and lines in traces must not depend on where the debug information is: in the program, in split DWARF, or at a debuginfod server.

use crate::traced::{Folder, errors, must};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const HEADER: &str = "\
static inline __attribute__((always_inline)) int scale(int n) { return n % 3 ? n * 7 : n ^ 9; }
static inline __attribute__((always_inline)) int twice(int n) { return scale(n) + scale(n + 1); }
int work(int n);
";
const MAIN: &str = "\
#include \"shared.h\"
int main(int count, char **arguments) {
    int sum = 0;
    for (int i = 0; i < count + 4; i++)
        sum += work(i) + twice(sum);
    return sum == 7;
}
";
const WORK: &str = "\
#include \"shared.h\"
static __attribute__((noinline)) int step(int n) { return n > 3 ? twice(n) : scale(n); }
int work(int n) { return n & 1 ? step(n) : twice(n - 1) * 3; }
";

impl Folder {
    fn with_two_sources() -> Folder {
        let folder = Folder::new();
        std::fs::create_dir(folder.path("files")).unwrap();
        for (name, text) in [("shared.h", HEADER), ("main.c", MAIN), ("work.c", WORK)] {
            std::fs::write(folder.path(name), text).unwrap();
        }
        folder
    }

    fn shell(&self, line: &str) -> String {
        must(Command::new("sh").args(["-ec", line]).current_dir(self.path(".")).output().unwrap())
    }

    fn build(&self, compiler: &str, program: &str, options: &str) {
        self.shell(&format!("{compiler} -O2 {options} -c main.c && {compiler} -O2 {options} -c work.c"));
        self.shell(&format!("{compiler} {options} -Wl,--build-id main.o work.o -o {program}"));
    }

    /// Records a program with these environment variables. Returns the recorder's output and all blocks of the trace.
    fn blocks_of(&self, program: &str, variables: &[(&str, &str)]) -> (Output, String) {
        let trodden = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_trodden"));
            command.current_dir(self.path(".")).args(arguments).env("DEBUGINFOD_CACHE_PATH", self.path("files").join(program));
            for variable in ["DEBUGINFOD_URLS", "DEBUGINFOD_TIMEOUT", "DEBUGINFOD_MAXTIME", "TRODDEN_QUIET"] {
                command.env_remove(variable);
            }
            command.envs(variables.iter().copied()).output().unwrap()
        };
        let recorded = trodden(&["trace", "record", "-o", "app.trace", "--", &format!("./{program}")]);
        assert!(recorded.status.success(), "{}", errors(&recorded));
        (recorded, must(trodden(&["show", "app.trace", "--count", "0"])))
    }
}

#[test]
fn split_dwarf_gives_the_names_and_lines_of_unsplit_dwarf() {
    for (compiler, version) in [("clang-22", 4), ("clang-22", 5), ("gcc", 4), ("gcc", 5)] {
        let folder = Folder::with_two_sources();
        folder.build(compiler, "plain", &format!("-gdwarf-{version} -g"));
        let (_, plain) = folder.blocks_of("plain", &[]);
        assert!(["shared.h:1", "work.c:3", "main.c:5", " step", " main"].iter().all(|text| plain.contains(text)), "{plain}");
        folder.build(compiler, "split", &format!("-gdwarf-{version} -g -gsplit-dwarf"));
        assert_eq!(folder.blocks_of("split", &[]).1, plain, "{compiler}, DWARF {version}");
        folder.shell("llvm-dwp-22 -e split -o split.dwp && rm *.dwo");
        assert_eq!(folder.blocks_of("split", &[]).1, plain, "{compiler}, DWARF {version}, package");
    }
}

/// A debuginfod server, which is open until the test ends.
struct DebugServer {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl DebugServer {
    /// `files` are the debug files by build ID.
    fn start(files: HashMap<String, Vec<u8>>) -> DebugServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = DebugServer { url: url_of(&listener), requests: Arc::default() };
        let requests = server.requests.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                requests.fetch_add(1, Ordering::Relaxed);
                answer(connection.unwrap(), &files);
            }
        });
        server
    }
}

fn url_of(listener: &TcpListener) -> String {
    format!("http://{}", listener.local_addr().unwrap())
}

fn answer(mut connection: TcpStream, files: &HashMap<String, Vec<u8>>) {
    let lines: Vec<String> = BufReader::new(&connection).lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    let id = lines[0].strip_prefix("GET /buildid/").and_then(|rest| rest.split_once("/debuginfo ")).unwrap().0;
    let (status, content) = files.get(id).map_or(("404 Not Found", &[][..]), |file| ("200 OK", &file[..]));
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len());
    // The client may have closed the connection.
    let _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(content));
}

#[test]
fn debug_files_come_from_debuginfod_if_the_user_names_a_server() {
    let folder = Folder::with_two_sources();
    folder.build("clang-22", "plain", "-g");
    folder.shell("objcopy --only-keep-debug plain debug && strip -o stripped plain && strip -o unknown plain");
    let notes = folder.shell("readelf --notes plain");
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
    let (_, plain) = folder.blocks_of("plain", &[]);
    let (_, stripped) = folder.blocks_of("stripped", &[]);
    assert!(plain.contains("work.c:2") && !stripped.contains("work.c"), "{stripped}");

    let server = DebugServer::start(HashMap::from([(id, std::fs::read(folder.path("debug")).unwrap())]));
    let urls = ("DEBUGINFOD_URLS", server.url.as_str());
    assert_eq!(folder.blocks_of("stripped", &[("DEBUGINFOD_URLS", " ")]).1, stripped);
    assert_eq!(server.requests.load(Ordering::Relaxed), 0);
    assert_eq!(folder.blocks_of("plain", &[urls]).1, plain);
    assert_eq!(server.requests.load(Ordering::Relaxed), 0, "the program has all that is needed");
    for _ in 0..2 {
        assert_eq!(folder.blocks_of("stripped", &[urls]).1, plain);
    }
    assert_eq!(server.requests.load(Ordering::Relaxed), 1, "debuginfod-find keeps files");

    let empty = DebugServer::start(HashMap::new());
    let (recorded, blocks) = folder.blocks_of("unknown", &[("DEBUGINFOD_URLS", &empty.url)]);
    assert_eq!((blocks, empty.requests.load(Ordering::Relaxed)), (stripped, 1));
    assert!(!errors(&recorded).contains("debuginfod") && !errors(&recorded).contains("DEBUGINFOD"), "{}", errors(&recorded));
}

#[test]
fn unreachable_debuginfod_servers_do_not_stop_a_recording() {
    let folder = Folder::with_two_sources();
    folder.build("clang-22", "plain", "-g");
    folder.shell("strip -o stripped plain");
    let (_, stripped) = folder.blocks_of("stripped", &[]);
    // One server accepts no connections, and one accepts them without answering.
    let closed = url_of(&TcpListener::bind("127.0.0.1:0").unwrap());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for (url, reason) in [(closed, "Connection refused"), (url_of(&silent), "Timer expired")] {
        let start = Instant::now();
        let (recorded, blocks) = folder.blocks_of("stripped", &[("DEBUGINFOD_URLS", &url)]);
        assert_eq!(blocks, stripped);
        let message = format!("cannot get debug files from the servers in DEBUGINFOD_URLS: Server query failed: {reason}.");
        assert!(errors(&recorded).matches(&message).count() == 1, "{}", errors(&recorded));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
    // Without `debuginfod-find`, a note says what to install.
    let variables = [("DEBUGINFOD_URLS", "http://127.0.0.1:1"), ("PATH", "/nonexistent")];
    let (recorded, blocks) = folder.blocks_of("stripped", &variables);
    assert_eq!(blocks, stripped);
    assert!(errors(&recorded).matches("Install Debian's package debuginfod").count() == 1, "{}", errors(&recorded));
}
