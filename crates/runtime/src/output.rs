//! `TRODDEN_OUTPUT`: read from the environment the process was started with, expanded to the path of a raw file.
//!
//! Source of the environment: `/proc/self/environ` (proc(5)), which needs no libc and does not change with `setenv`. In privileged
//! programs (AT_SECURE in `/proc/self/auxv`, see getauxval(3)) the variable counts as unset.

use crate::image;
use crate::system::{self, Descriptor, O_CLOEXEC, O_RDONLY};
use crate::text::{Failure, Full, Text};
use crate::wire::{Identity, OUTPUT_VARIABLE};

const TOO_LONG: Failure = Failure::new(b"the path is too long", b"set TRODDEN_OUTPUT to at most 4095 bytes");

/// Puts the variable's value into `pattern` as an absolute path (the others are for work); false if it is unset, empty
/// or to be ignored. Where it is unset, the image itself may name a pattern, which holds as long as its folder exists.
pub fn find_pattern(pattern: &mut Text, whole: &mut Text, scratch: &mut Text) -> Result<bool, Failure> {
    pattern.clear();
    let is_set = read_variable(OUTPUT_VARIABLE, pattern, scratch)?;
    if !is_set && (!read_default(pattern)? || !has_folder(pattern, whole)) {
        return Ok(false);
    }
    if pattern.bytes().is_empty() || is_privileged() {
        return Ok(false);
    }
    if pattern.bytes().last() == Some(&b'/') {
        pattern.extend(b"%m.raw").map_err(|Full| TOO_LONG)?;
    }
    make_absolute(pattern, whole, scratch)?;
    Ok(true)
}

/// Appends the image's own pattern; false if it has none.
fn read_default(pattern: &mut Text) -> Result<bool, Failure> {
    let Some(default) = image::default_output() else { return Ok(false) };
    pattern.extend(default).map(|()| true).map_err(|Full| TOO_LONG)
}

/// Whether the folder of a pattern exists. `%%` in it is a percent sign; what other sequences stand for is not looked for.
fn has_folder(pattern: &Text, folder: &mut Text) -> bool {
    let Some(end) = pattern.bytes().iter().rposition(|&byte| byte == b'/') else { return true };
    folder.clear();
    let mut bytes = pattern.bytes().get(..=end).unwrap_or(&[]).iter().peekable();
    let mut whole = Ok(());
    while let (Ok(()), Some(&byte)) = (&whole, bytes.next()) {
        let _ = bytes.next_if(|&&next| byte == b'%' && next == b'%');
        whole = folder.push(byte);
    }
    let flags = system::O_PATH | system::O_DIRECTORY | O_CLOEXEC;
    whole.is_ok() && system::open_at(&Descriptor::CURRENT_FOLDER, folder.with_nul(0), flags, 0).is_ok()
}

/// Puts the value of a variable into `value` (`scratch` is for work); false if it is unset, too long, or to be ignored.
pub fn find_variable(name: &str, value: &mut Text, scratch: &mut Text) -> bool {
    value.clear();
    matches!(read_variable(name, value, scratch), Ok(true)) && !is_privileged()
}

/// Whether a variable's first definition has this value (`scratch` is for work). In privileged programs variables count as unset.
pub fn is_variable(name: &str, wanted: &str, scratch: &mut Text) -> bool {
    /// Where in an entry `NAME=value` the reader is.
    enum Position {
        Name(usize),
        Value(usize),
        Other,
    }
    let Ok(file) = system::open_at(&Descriptor::CURRENT_FOLDER, b"/proc/self/environ\0", O_RDONLY | O_CLOEXEC, 0) else { return false };
    let (name, wanted) = (name.as_bytes(), wanted.as_bytes());
    let mut position = Position::Name(0);
    while scratch.fill(|buffer| system::read(&file, buffer)).is_ok() && !scratch.bytes().is_empty() {
        for &byte in scratch.bytes() {
            position = match (position, byte) {
                (Position::Value(matched), 0) => return matched == wanted.len() && !is_privileged(),
                (Position::Value(matched), _) if wanted.get(matched) == Some(&byte) => Position::Value(matched + 1),
                (Position::Value(_), _) => return false,
                (_, 0) => Position::Name(0),
                (Position::Name(matched), b'=') if matched == name.len() => Position::Value(0),
                (Position::Name(matched), _) if name.get(matched) == Some(&byte) => Position::Name(matched + 1),
                _ => Position::Other,
            };
        }
    }
    false
}

/// Appends the value of the first definition to `value`; false if there is none.
fn read_variable(name: &str, value: &mut Text, chunk: &mut Text) -> Result<bool, Failure> {
    /// Where in an entry `NAME=value` the reader is.
    enum At {
        Name(usize),
        Value,
        Other,
    }
    let Ok(file) = system::open_at(&Descriptor::CURRENT_FOLDER, b"/proc/self/environ\0", O_RDONLY | O_CLOEXEC, 0) else { return Ok(false) };
    let name = name.as_bytes();
    let mut at = At::Name(0);
    while chunk.fill(|buffer| system::read(&file, buffer)).is_ok() && !chunk.bytes().is_empty() {
        for &byte in chunk.bytes() {
            at = match (at, byte) {
                (At::Value, 0) => return Ok(true),
                (At::Value, _) => {
                    value.push(byte).map_err(|Full| TOO_LONG)?;
                    At::Value
                }
                (_, 0) => At::Name(0),
                (At::Name(matched), b'=') if matched == name.len() => At::Value,
                (At::Name(matched), _) if name.get(matched) == Some(&byte) => At::Name(matched + 1),
                _ => At::Other,
            };
        }
    }
    Ok(matches!(at, At::Value))
}

/// Whether the kernel started this program with privileges that its caller has not. What cannot be read counts as yes.
fn is_privileged() -> bool {
    const AT_SECURE: u64 = 23;
    auxiliary(AT_SECURE) != Some(0)
}

/// A value that the kernel has given to the process (getauxval(3)).
pub fn auxiliary(wanted: u64) -> Option<u64> {
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

/// Puts the current folder before a relative path, once for all: the subject may change it before the next thread opens the file.
fn make_absolute(path: &mut Text, whole: &mut Text, folder: &mut Text) -> Result<(), Failure> {
    if path.bytes().first() == Some(&b'/') {
        return Ok(());
    }
    let nowhere = Failure::new(b"the current folder has no path", b"set TRODDEN_OUTPUT to an absolute path");
    if folder.fill(system::current_folder).is_err() || folder.bytes().first() != Some(&b'/') {
        return Err(nowhere);
    }
    whole.clear();
    // The current folder's own percent signs stand for themselves.
    let escaped = folder.bytes().iter().try_for_each(|&byte| if byte == b'%' { whole.extend(b"%%") } else { whole.push(byte) });
    escaped.and_then(|()| whole.push(b'/')).and_then(|()| whole.extend(path.bytes())).map_err(|Full| TOO_LONG)?;
    path.clear();
    path.extend(whole.bytes()).map_err(|Full| TOO_LONG)?;
    whole.clear();
    Ok(())
}

/// Whether each process has a file of its own: there is a `%p`.
pub fn is_per_process(pattern: &Text) -> bool {
    let mut bytes = pattern.bytes().iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'%' && bytes.next() == Some(&b'p') {
            return true;
        }
    }
    false
}

/// Expands `pattern` into `path`. Returns how many bytes at the path's start the user wrote out: before the first sequence that stands for
/// something else.
pub fn expand(pattern: &Text, image: &Identity, path: &mut Text) -> Result<usize, Failure> {
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
                Some(b'h') => extend_host(path),
                Some(b'm') => extend_identity(path, image),
                _ => {
                    return Err(Failure::new(b"unknown % sequence", b"use %p, %h, %m or %% in TRODDEN_OUTPUT"));
                }
            }
        };
        pushed.map_err(|Full| TOO_LONG)?;
    }
    Ok(literal.unwrap_or(path.bytes().len()))
}

/// The host's name, which must not lead into another folder.
fn extend_host(path: &mut Text) -> Result<(), Full> {
    let name = system::host_name();
    let mut name = name.iter().take_while(|&&byte| byte != 0).peekable();
    if name.peek().is_none_or(|&&first| first == b'.') {
        path.push(b'_')?;
    }
    name.try_for_each(|&byte| path.push(if byte == b'/' { b'_' } else { byte }))
}

fn extend_identity(path: &mut Text, image: &Identity) -> Result<(), Full> {
    image
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .try_for_each(|digit| path.push(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit }))
}
