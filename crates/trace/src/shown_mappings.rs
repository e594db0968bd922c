//! Hides the tracer's changes from a program that reads `/proc/self/maps`.
//!
//! A collector maps memory into the program, and single-stepping changes the protection of code. A program that reads its mappings (with
//! libsigsegv or a garbage collector) could execute different blocks for that reason. So the tracer answers reads of this file: the
//! collector's mappings are left out, and code has the protection that the program expects. The size of each read is as in Linux,
//! `fs/seq_file.c`, `seq_read_iter`: whole lines up to a page, and the rest of a line that did not fit at the next read.
//!
//! Not covered: `smaps`, `map_files` and the like, `pread`, `lseek`, and children that read their parent's file.

use crate::memory::do_ranges_overlap;
use crate::ptrace::Tid;
use std::collections::HashMap;
use std::ops::Range;

/// Size of the kernel's buffer, which holds whole lines.
const READ_BUFFER_SIZE: usize = 4096;

/// What a program sees of its own mappings, and its open files that list them.
#[derive(Debug, Default)]
pub struct MappingsShownToProgram {
    hidden: Vec<Range<u64>>,
    code: Vec<MappingLine>,
    /// Pages of code that are currently not executable, because the program reads them.
    data_views: Vec<u64>,
    files: HashMap<u64, MappingsReadPosition>,
    /// True if the program may have opened a file of its memory (`/proc/self/mem`).
    has_memory: bool,
}

#[derive(Clone, Debug, Default)]
struct MappingsReadPosition {
    /// End address of the last line that was read.
    next: u64,
    /// The end of a line that did not fit.
    rest: Vec<u8>,
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MappingLine {
    range: Range<u64>,
    protection: String,
    offset: u64,
    /// Device, inode and name as in the file.
    file: String,
}

impl MappingsShownToProgram {
    /// Records the state of a stopped process. Mappings in `hidden` are not shown, and the code in the ranges `code` will always be shown
    /// as it is now.
    pub fn new(process: Tid, hidden: Vec<Range<u64>>, code: &[Range<u64>]) -> std::io::Result<Self> {
        let lines = lines(process)?;
        let is_code = |line: &MappingLine| line.protection.contains('x') && code.iter().any(|c| do_ranges_overlap(c, &line.range));
        let descriptors =
            std::fs::read_dir(format!("/proc/{process}/fd"))?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let has_memory = descriptors.into_iter().any(|descriptor| is_proc_file(process, descriptor, "mem"));
        Ok(Self { hidden, code: lines.into_iter().filter(is_code).collect(), has_memory, ..Self::default() })
    }

    /// Adds a library that has just been mapped. `code` is its code, and `hidden` is the memory that the collector has mapped for it.
    pub fn add(&mut self, process: Tid, hidden: Range<u64>, code: &[Range<u64>]) -> std::io::Result<()> {
        let more = Self::new(process, vec![hidden], code)?;
        self.hidden.extend(more.hidden);
        self.code.extend(more.code);
        self.code.sort_by_key(|line| line.range.start);
        Ok(())
    }

    pub fn forget(&mut self, hidden: &Range<u64>, code: &[Range<u64>]) {
        self.hidden.retain(|h| h != hidden);
        self.code.retain(|line| !code.iter().any(|c| do_ranges_overlap(c, &line.range)));
    }

    pub fn hide(&mut self, mapping: Range<u64>) {
        self.hidden.push(mapping);
    }

    pub fn note_pages_in_data_view(&mut self, pages: Vec<u64>) {
        self.data_views = pages;
    }

    pub fn note_descriptor_opened(&mut self, process: Tid, descriptor: u64) {
        self.has_memory |= is_proc_file(process, descriptor, "mem");
        match is_proc_file(process, descriptor, "maps") {
            true => drop(self.files.insert(descriptor, MappingsReadPosition::default())),
            false => self.note_descriptor_closed(descriptor),
        }
    }

    /// If a descriptor is a file of the program's memory (`/proc/self/mem`), returns its position.
    pub fn position_in_memory(&self, process: Tid, descriptor: u64) -> Option<u64> {
        if !self.has_memory || !is_proc_file(process, descriptor, "mem") {
            return None;
        }
        let information = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).ok()?;
        information.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok())
    }

    pub fn note_descriptor_closed(&mut self, descriptor: u64) {
        self.files.remove(&descriptor);
    }

    /// Returns true if the tracer answers reads of a descriptor.
    pub fn is_answered(&self, descriptor: u64) -> bool {
        self.files.contains_key(&descriptor)
    }

    /// Answers a read of up to `size` bytes from a file that lists the mappings.
    pub fn read(&mut self, process: Tid, descriptor: u64, size: usize) -> std::io::Result<Vec<u8>> {
        let shown = self.visible_lines(lines(process)?);
        Ok(self.files.get_mut(&descriptor).map(|position| position.read(&shown, size)).unwrap_or_default())
    }

    fn visible_lines(&self, lines: Vec<MappingLine>) -> Vec<MappingLine> {
        let visible = lines.into_iter().filter(|line| !self.hidden.iter().any(|h| do_ranges_overlap(h, &line.range)));
        self.join_code_lines(visible.flat_map(|line| self.split_code_line(line)))
    }

    /// Joins the lines of a code mapping that has pages with different protection because they show data views.
    fn join_code_lines(&self, lines: impl Iterator<Item = MappingLine>) -> Vec<MappingLine> {
        let mut joined: Vec<MappingLine> = Vec::new();
        for mut line in lines {
            let is_inside = |code: &&MappingLine| code.range.start <= line.range.start && line.range.end <= code.range.end;
            let Some(code) = self.code.iter().find(is_inside).filter(|code| code.file == line.file) else {
                joined.push(line);
                continue;
            };
            if self.data_views.iter().any(|page| line.range.contains(page)) {
                line.protection.clone_from(&code.protection);
            }
            match joined.last_mut() {
                Some(last)
                    if code.range.contains(&last.range.start)
                        && last.range.end == line.range.start
                        && last.protection == line.protection =>
                {
                    last.range.end = line.range.end;
                }
                _ => joined.push(line),
            }
        }
        joined
    }

    /// Splits a line at code whose protection was changed, and shows the code with its own protection. The kernel may have merged such code
    /// with adjacent mappings.
    fn split_code_line(&self, line: MappingLine) -> Vec<MappingLine> {
        let mut shown = Vec::new();
        let mut rest = line;
        for code in &self.code {
            let inside = rest.range.start <= code.range.start && code.range.end <= rest.range.end;
            if !inside || rest.file != code.file || rest.protection.contains('x') {
                continue;
            }
            let before = MappingLine { range: rest.range.start..code.range.start, ..rest.clone() };
            shown.extend((!before.range.is_empty()).then_some(before));
            shown.push(code.clone());
            rest.offset += code.range.end - rest.range.start;
            rest.range.start = code.range.end;
        }
        shown.extend((!rest.range.is_empty()).then_some(rest));
        shown
    }
}

impl MappingsReadPosition {
    fn read(&mut self, lines: &[MappingLine], size: usize) -> Vec<u8> {
        let left = self.rest.len().min(size);
        let mut read: Vec<u8> = self.rest.drain(..left).collect();
        if !self.rest.is_empty() || read.len() == size {
            return read;
        }
        let mut piece = Vec::new();
        let from = self.next;
        for line in lines.iter().filter(|line| line.range.start >= from) {
            let text = line.text();
            if !piece.is_empty() && (piece.len() >= size - read.len() || piece.len() + text.len() >= READ_BUFFER_SIZE) {
                break;
            }
            piece.extend(text.into_bytes());
            self.next = line.range.end;
        }
        let fits = piece.len().min(size - read.len());
        self.rest = piece.split_off(fits);
        read.extend(piece);
        read
    }
}

impl MappingLine {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.splitn(4, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let protection = fields.next()?.to_owned();
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let offset = hexadecimal(fields.next()?)?;
        Some(Self { range: hexadecimal(start)?..hexadecimal(end)?, protection, offset, file: fields.next()?.to_owned() })
    }

    fn text(&self) -> String {
        format!("{:08x}-{:08x} {} {:08x} {}\n", self.range.start, self.range.end, self.protection, self.offset, self.file)
    }
}

fn lines(process: Tid) -> std::io::Result<Vec<MappingLine>> {
    Ok(String::from_utf8_lossy(&std::fs::read(format!("/proc/{process}/maps"))?).lines().filter_map(MappingLine::parse).collect())
}

/// Returns true if a descriptor refers to the file `name` in the `/proc` folder of the process or of one of its threads.
fn is_proc_file(process: Tid, descriptor: u64, name: &str) -> bool {
    let path = std::fs::read_link(format!("/proc/{process}/fd/{descriptor}")).unwrap_or_default();
    let path = path.to_string_lossy();
    let Some(rest) = path.strip_prefix(&format!("/proc/{process}/")) else { return false };
    let task = rest.strip_prefix("task/").and_then(|rest| rest.strip_suffix(name)?.strip_suffix('/'));
    rest == name || task.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    fn own_process() -> Tid {
        std::process::id() as Tid
    }

    #[test]
    fn formatted_lines_match_those_of_the_kernel() {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(text.lines().all(|line| MappingLine::parse(line).unwrap().text().trim_end_matches('\n') == line), "{text}");
    }

    /// Starts a process that sleeps, so that its mappings do not change.
    fn sleeping_process() -> std::process::Child {
        let child = std::process::Command::new("/usr/bin/sleep").arg("100").spawn().unwrap();
        while !std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default().contains("nanosleep") {
            std::thread::sleep(std::time::Duration::from_millis(5));
            if std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).is_ok_and(|s| s.starts_with("230 ")) {
                break;
            }
        }
        child
    }

    #[test]
    fn read_sizes_match_those_of_the_kernel() {
        let mut child = sleeping_process();
        let process = child.id() as Tid;
        for size in [1, 7, 100, 1000, 4095, 4096, 5000, 1 << 16] {
            let mut file = std::fs::File::open(format!("/proc/{process}/maps")).unwrap();
            let mut shown = MappingsShownToProgram::new(process, Vec::new(), &[]).unwrap();
            shown.files.insert(3, MappingsReadPosition::default());
            let mut buffer = vec![0; size];
            loop {
                let read = file.read(&mut buffer).unwrap();
                assert_eq!(shown.read(process, 3, size).unwrap(), &buffer[..read], "{size} bytes a read");
                if read == 0 {
                    break;
                }
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn maps_files_are_recognised_under_all_names() {
        let mut shown = MappingsShownToProgram::default();
        for (path, is) in
            [("/proc/self/maps", true), ("/proc/thread-self/maps", true), ("/proc/self/status", false), ("/proc/1/maps", false)]
        {
            let Ok(file) = std::fs::File::open(path) else { continue };
            let descriptor = file.as_raw_fd() as u64;
            shown.note_descriptor_opened(own_process(), descriptor);
            assert_eq!(shown.is_answered(descriptor), is, "{path}");
        }
    }

    #[test]
    fn hidden_mappings_are_omitted_and_code_is_restored() {
        let line = |text: &str| MappingLine::parse(text).unwrap();
        let code = line("1000-3000 r-xp 00001000 fe:00 12        /bin/x");
        let shown = MappingsShownToProgram {
            hidden: Vec::from([0x8000..0x9000; 1]),
            code: vec![code.clone()],
            ..MappingsShownToProgram::default()
        };
        let now = vec![line("0000-5000 r--p 00000000 fe:00 12        /bin/x"), line("8000-9000 r-xp 00000000 00:00 0 ")];
        let expected =
            [line("0000-1000 r--p 00000000 fe:00 12        /bin/x"), code, line("3000-5000 r--p 00003000 fe:00 12        /bin/x")];
        assert_eq!(shown.visible_lines(now), expected);
    }
}
