//! The address space of a process, read from `/proc/PID/maps`.

use std::io;

/// A mapping in the address space of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessMapping {
    /// First address.
    pub start: u64,
    /// End address (exclusive).
    pub end: u64,
    /// True if the mapping is executable.
    pub executable: bool,
    /// The mapping's protection, as for mprotect(2).
    pub protection: i32,
    /// Offset in the file.
    pub offset: u64,
    /// The device of the file, as the kernel prints it.
    pub device: String,
    /// The file's inode on that device; 0 if no file is mapped.
    pub inode: u64,
    /// The file's path, or the kernel's name for the mapping; may be empty.
    pub name: String,
}

impl ProcessMapping {
    /// Returns true if a file is mapped.
    pub fn is_file(&self) -> bool {
        self.name.starts_with('/')
    }

    /// Parses a line of `/proc/PID/maps`; `None` if it is malformed.
    pub fn parse(line: &str) -> Option<ProcessMapping> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let protection = fields.next()?;
        let offset = fields.next()?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        Some(ProcessMapping {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            executable: protection.contains('x'),
            protection: [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)]
                .into_iter()
                .filter(|(letter, _)| protection.contains(*letter))
                .fold(libc::PROT_NONE, |all, (_, one)| all | one),
            offset: hexadecimal(offset)?,
            device: fields.next()?.to_owned(),
            inode: fields.next()?.parse().ok()?,
            name: fields.next().unwrap_or("").trim_start().to_owned(),
        })
    }
}

/// Returns the mappings of a process. A name that is not UTF-8 has replacement characters.
///
/// # Errors
/// The process has ended, or belongs to a different user.
pub fn mappings(process: i32) -> io::Result<Vec<ProcessMapping>> {
    let text = std::fs::read(format!("/proc/{process}/maps"))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(ProcessMapping::parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_is_found_in_a_mapping() {
        let mappings = mappings(std::process::id() as i32).unwrap();
        let here = own_code_is_found_in_a_mapping as *const () as u64;
        let mapping = mappings.iter().find(|m| (m.start..m.end).contains(&here)).unwrap();
        assert!(mapping.executable && mapping.name.starts_with('/'));
    }
}
