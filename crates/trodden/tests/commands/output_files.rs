//! Output files of commands. Links must be followed, pipes must be written to, and an existing file must remain intact if the disk is full.

use crate::place::{Disk, Place, must, program_of, with_choices};
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::{Output, Stdio};

const PROGRAM: &str = "
    #include <stdio.h>
    __attribute__((noinline)) int step(int n) { return n & 1 ? n * 3 : n / 2; }
    int main(void) { int sum = 0; for (int i = 0; i < 100; i++) sum += step(i); printf(\"%d\\n\", sum); return 0; }
";

const EXPERIMENT_FILE: &str = "sources = [\"branches\"]\n[factors]\npreset = [\"ball-larus\", \"extended-loops\"]\n";

/// Commands that write a file. `OUT` stands for the file's name.
const COMMANDS: [&str; 26] = [
    "record -o OUT -- ./prog",
    "record --no-store --copies 2 --costs OUT -o costly.trodden -- ./prog",
    "merge run.trodden -o OUT",
    "import --no-store raw -o OUT",
    "export html run.trodden -o OUT",
    "export json run.trodden -o OUT",
    "export pprof run.trodden -o OUT",
    "report run.trodden --html OUT",
    "advise run.trodden --sarif OUT",
    "untested run.trodden --known run.trodden --sarif OUT",
    "export llvm-json covered.trodden -o OUT",
    "segments 1 --sarif OUT",
    "patterns phases 1 --html OUT",
    "fleet pack run.trodden --known run.trodden -o OUT",
    "fleet aggregate report.field --rows OUT",
    "instrument prog -o OUT",
    "trace record --runs 1 -o OUT -- ./prog",
    "import whole.trace --no-store -o OUT",
    "simulate --from branches --record OUT",
    "simulate --from branches --sequence OUT",
    "simulate --from branches -o OUT",
    "simulate --from branches --json -o OUT",
    "sweep experiment.toml -o OUT",
    "sweep experiment.toml --json OUT",
    "sweep experiment.toml --distributions OUT",
    "sweep experiment.toml --html OUT",
];

fn create_place() -> Place {
    let place = Place::with(&[("prog.c", PROGRAM), ("experiment.toml", EXPERIMENT_FILE)]);
    place.cc("-O1 -g prog.c -o prog");
    place.cc("--trodden=coverage -O1 -g prog.c -o covered");
    place.cc("--trodden=stream -O1 -g prog.c -o streamed");
    fs::create_dir(place.path("raw")).unwrap();
    must(place.command(place.path("prog")).env("TRODDEN_OUTPUT", place.path("raw/a.raw")));
    for arguments in [
        "record --whole-program -- ./streamed",
        "record --no-store -o run.trodden -- ./prog",
        "record --no-store -o covered.trodden -- ./covered",
        "fleet pack run.trodden --known run.trodden -o report.field",
        "trace record --runs 1 -o whole.trace -- ./prog",
        "simulate --record branches -- ./prog",
    ] {
        place.trodden(arguments);
    }
    place
}

fn run_command(place: &Place, command: &str, file: &str) -> Output {
    let arguments = command.split(' ').map(|word| if word == "OUT" { file } else { word });
    let program = program_of(command);
    with_choices(&mut place.command(program), arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn commands_follow_links_and_write_into_pipes() {
    let place = create_place();
    for (at, command) in COMMANDS.into_iter().enumerate() {
        let [target, link, pipe] = ["target", "link", "pipe"].map(|name| format!("{name}-{at}"));
        symlink(&target, place.path(&link)).unwrap();
        let output = run_command(&place, command, &link);
        assert!(output.status.success(), "{command}: {output:?}");
        assert!(place.path(&link).is_symlink() && place.path(&target).is_file(), "{command}");
        let written = fs::read(place.path(&target)).unwrap();
        assert!(!written.is_empty(), "{command}");
        place.tool("mkfifo", &pipe);
        let path = place.path(&pipe);
        let reader = std::thread::spawn(move || fs::read(path).unwrap());
        let output = run_command(&place, command, &pipe);
        assert!(fs::metadata(place.path(&pipe)).unwrap().file_type().is_fifo(), "{command}");
        // Unblocks the reader if the command never opened the pipe.
        drop(fs::File::options().read(true).write(true).open(place.path(&pipe)).unwrap());
        let piped = reader.join().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        // Some outputs contain times and names that differ between runs.
        assert_eq!(piped.get(..4), written.get(..4), "{command}");
        assert!(piped.len() * 2 > written.len(), "{command}: {} and {} bytes", piped.len(), written.len());
    }
}

#[test]
fn existing_file_remains_if_the_disk_is_full() {
    let place = create_place();
    let Some(disk) = Disk::mount(place.path("disk"), "64k") else { return };
    place.write("disk/old", "an older file");
    disk.fill();
    for command in COMMANDS {
        for file in ["disk/old", "disk/new"] {
            let output = run_command(&place, command, file);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command}: {said}");
            assert!(said.contains(file) && said.contains("No space left"), "{command}: {said}");
            assert_eq!(fs::read_to_string(place.path("disk/old")).unwrap(), "an older file", "{command}");
            let mut names: Vec<_> = fs::read_dir(place.path("disk")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["filler", "old"], "{command} {file}");
        }
    }
}

#[test]
fn manual_pages_follow_links() {
    let place = Place::new();
    fs::create_dir(place.path("pages")).unwrap();
    symlink("../page", place.path("pages/trodden.1")).unwrap();
    place.laboratory("man pages");
    assert!(place.path("pages/trodden.1").is_symlink() && fs::read_to_string(place.path("page")).unwrap().contains("trodden"));
    assert!(place.path("pages/trodden-record.1").is_file() && !place.path("pages/trodden-help.1").exists());
}
