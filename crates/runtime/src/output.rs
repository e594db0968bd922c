//! Reads the variable `TRODDEN_OUTPUT` from the process's initial environment and expands it to the path of a raw file.
//!
//! The environment is read from `/proc/self/environ` (proc(5)), which needs no libc and is not affected by `setenv`. In privileged
//! programs (AT_SECURE in `/proc/self/auxv`, see getauxval(3)), the variable counts as unset.

use crate::image;
use crate::system::{self, Descriptor, O_CLOEXEC, O_RDONLY};
use crate::text::{OutputFailure, Text, TextFull};
use crate::wire::{IdentityBytes, OUTPUT_ENVIRONMENT_VARIABLE};

const TOO_LONG_FAILURE: OutputFailure = OutputFailure::new(b"the path is too long", b"set TRODDEN_OUTPUT to at most 4095 bytes");

/// Stores the value of `TRODDEN_OUTPUT` in `pattern`, as an absolute path. If the variable is unset, uses the pattern that is built into
/// the image, provided that its folder exists. Returns false if no file is to be written. Overwrites the two buffers.
pub fn find_output_pattern(pattern: &mut Text, buffer: &mut Text, scratch: &mut Text) -> Result<bool, OutputFailure> {
    pattern.clear();
    let is_set = read_environment_variable(OUTPUT_ENVIRONMENT_VARIABLE, pattern, scratch)?;
    if !is_set && (!read_default_pattern(pattern)? || !does_pattern_folder_exist(pattern, buffer)) {
        return Ok(false);
    }
    if pattern.bytes().is_empty() || is_privileged_program() {
        return Ok(false);
    }
    if pattern.bytes().last() == Some(&b'/') {
        pattern.extend(b"%m.raw").map_err(|TextFull| TOO_LONG_FAILURE)?;
    }
    make_path_absolute(pattern, buffer, scratch)?;
    Ok(true)
}

/// Appends the pattern that is built into the image. Returns false if there is none.
fn read_default_pattern(pattern: &mut Text) -> Result<bool, OutputFailure> {
    let Some(default) = image::default_output() else { return Ok(false) };
    pattern.extend(default).map(|()| true).map_err(|TextFull| TOO_LONG_FAILURE)
}

/// Returns true if the folder of the pattern exists. The pattern is taken literally, except that `%%` stands for `%`.
fn does_pattern_folder_exist(pattern: &Text, folder: &mut Text) -> bool {
    let Some(end) = pattern.bytes().iter().rposition(|&byte| byte == b'/') else { return true };
    folder.clear();
    let mut bytes = pattern.bytes().get(..=end).unwrap_or(&[]).iter().peekable();
    let mut pushed = Ok(());
    while let (Ok(()), Some(&byte)) = (&pushed, bytes.next()) {
        let _ = bytes.next_if(|&&next| byte == b'%' && next == b'%');
        pushed = folder.push(byte);
    }
    let flags = system::O_PATH | system::O_DIRECTORY | O_CLOEXEC;
    pushed.is_ok() && system::open_at(&Descriptor::CURRENT_FOLDER, folder.with_nul(0), flags, 0).is_ok()
}

/// Stores the value of an environment variable in `value`, and overwrites `scratch`. Returns false if the variable is unset, too long, or
/// ignored because the program is privileged.
pub fn find_environment_variable(name: &str, value: &mut Text, scratch: &mut Text) -> bool {
    value.clear();
    matches!(read_environment_variable(name, value, scratch), Ok(true)) && !is_privileged_program()
}

/// Returns true if the value of an environment variable is `expected`. If the variable is defined several times, the first definition
/// counts. In privileged programs, variables count as unset. Overwrites `scratch`.
pub fn is_variable_set_to(name: &str, expected: &str, scratch: &mut Text) -> bool {
    /// How much of an entry `NAME=value` has matched so far.
    enum MatchPosition {
        Name(usize),
        Value(usize),
        Other,
    }
    let Ok(file) = system::open_at(&Descriptor::CURRENT_FOLDER, b"/proc/self/environ\0", O_RDONLY | O_CLOEXEC, 0) else { return false };
    let (name, expected) = (name.as_bytes(), expected.as_bytes());
    let mut position = MatchPosition::Name(0);
    while scratch.fill(|buffer| system::read(&file, buffer)).is_ok() && !scratch.bytes().is_empty() {
        for &byte in scratch.bytes() {
            position = match (position, byte) {
                (MatchPosition::Value(matched), 0) => return matched == expected.len() && !is_privileged_program(),
                (MatchPosition::Value(matched), _) if expected.get(matched) == Some(&byte) => MatchPosition::Value(matched + 1),
                (MatchPosition::Value(_), _) => return false,
                (_, 0) => MatchPosition::Name(0),
                (MatchPosition::Name(matched), b'=') if matched == name.len() => MatchPosition::Value(0),
                (MatchPosition::Name(matched), _) if name.get(matched) == Some(&byte) => MatchPosition::Name(matched + 1),
                _ => MatchPosition::Other,
            };
        }
    }
    false
}

/// Appends the value of an environment variable to `value`. If the variable is defined several times, the first definition counts. Returns
/// false if it is unset.
fn read_environment_variable(name: &str, value: &mut Text, chunk: &mut Text) -> Result<bool, OutputFailure> {
    /// The part of an entry `NAME=value` that is being read.
    enum EntryPosition {
        Name(usize),
        Value,
        Other,
    }
    let Ok(file) = system::open_at(&Descriptor::CURRENT_FOLDER, b"/proc/self/environ\0", O_RDONLY | O_CLOEXEC, 0) else { return Ok(false) };
    let name = name.as_bytes();
    let mut position = EntryPosition::Name(0);
    while chunk.fill(|buffer| system::read(&file, buffer)).is_ok() && !chunk.bytes().is_empty() {
        for &byte in chunk.bytes() {
            position = match (position, byte) {
                (EntryPosition::Value, 0) => return Ok(true),
                (EntryPosition::Value, _) => {
                    value.push(byte).map_err(|TextFull| TOO_LONG_FAILURE)?;
                    EntryPosition::Value
                }
                (_, 0) => EntryPosition::Name(0),
                (EntryPosition::Name(matched), b'=') if matched == name.len() => EntryPosition::Value,
                (EntryPosition::Name(matched), _) if name.get(matched) == Some(&byte) => EntryPosition::Name(matched + 1),
                _ => EntryPosition::Other,
            };
        }
    }
    Ok(matches!(position, EntryPosition::Value))
}

/// Returns true if the kernel gave this program more privileges than its caller has, or if this cannot be determined.
fn is_privileged_program() -> bool {
    const AT_SECURE: u64 = 23;
    auxiliary_value(AT_SECURE) != Some(0)
}

/// Returns the value of an entry of the auxiliary vector (getauxval(3)); `None` if the entry is missing or unreadable.
pub fn auxiliary_value(wanted: u64) -> Option<u64> {
    let file = system::open_at(&Descriptor::CURRENT_FOLDER, b"/proc/self/auxv\0", O_RDONLY | O_CLOEXEC, 0).ok()?;
    let mut pair = [0; 16];
    while let Ok(16) = system::read(&file, &mut pair) {
        let (key, value) = (u128::from_le_bytes(pair) as u64, (u128::from_le_bytes(pair) >> 64) as u64);
        if key == wanted {
            return Some(value);
        }
    }
    None
}

/// Makes a path absolute by prepending the current folder. Must be called when the image starts, because the program may change its folder
/// before another thread opens the file.
fn make_path_absolute(path: &mut Text, buffer: &mut Text, folder: &mut Text) -> Result<(), OutputFailure> {
    if path.bytes().first() == Some(&b'/') {
        return Ok(());
    }
    let no_folder = OutputFailure::new(b"the current folder has no path", b"set TRODDEN_OUTPUT to an absolute path");
    if folder.fill(system::current_folder).is_err() || folder.bytes().first() != Some(&b'/') {
        return Err(no_folder);
    }
    buffer.clear();
    // Percent signs in the name of the current folder must not start a sequence.
    let escaped = folder.bytes().iter().try_for_each(|&byte| if byte == b'%' { buffer.extend(b"%%") } else { buffer.push(byte) });
    escaped.and_then(|()| buffer.push(b'/')).and_then(|()| buffer.extend(path.bytes())).map_err(|TextFull| TOO_LONG_FAILURE)?;
    path.clear();
    path.extend(buffer.bytes()).map_err(|TextFull| TOO_LONG_FAILURE)?;
    buffer.clear();
    Ok(())
}

/// Returns true if the pattern contains `%p`, so that each process gets a file of its own.
pub fn is_pattern_per_process(pattern: &Text) -> bool {
    let mut bytes = pattern.bytes().iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'%' && bytes.next() == Some(&b'p') {
            return true;
        }
    }
    false
}

/// Expands the `%` sequences of `pattern` into `path`. Returns the length of the literal prefix, which ends at the first sequence other
/// than `%%`.
pub fn expand_pattern(pattern: &Text, image: &IdentityBytes, path: &mut Text) -> Result<usize, OutputFailure> {
    path.clear();
    let mut literal = None;
    let mut bytes = pattern.bytes().iter();
    while let Some(&byte) = bytes.next() {
        let pushed = if byte != b'%' {
            path.push(byte)
        } else {
            let sequence = bytes.next();
            if sequence != Some(&b'%') {
                literal.get_or_insert(path.bytes().len());
            }
            match sequence {
                Some(b'%') => path.push(b'%'),
                Some(b'p') => path.extend_number(system::process_id()),
                Some(b'h') => append_host_name(path),
                Some(b'm') => append_image_identity(path, image),
                _ => {
                    return Err(OutputFailure::new(b"unknown % sequence", b"use %p, %h, %m or %% in TRODDEN_OUTPUT"));
                }
            }
        };
        pushed.map_err(|TextFull| TOO_LONG_FAILURE)?;
    }
    Ok(literal.unwrap_or(path.bytes().len()))
}

/// Appends the host name, with characters replaced that would change the folder.
fn append_host_name(path: &mut Text) -> Result<(), TextFull> {
    let name = system::host_name();
    let mut name = name.iter().take_while(|&&byte| byte != 0).peekable();
    if name.peek().is_none_or(|&&first| first == b'.') {
        path.push(b'_')?;
    }
    name.try_for_each(|&byte| path.push(if byte == b'/' { b'_' } else { byte }))
}

fn append_image_identity(path: &mut Text, image: &IdentityBytes) -> Result<(), TextFull> {
    image
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .try_for_each(|digit| path.push(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit }))
}
