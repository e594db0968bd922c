//! Expands response files (`@file`), which contain command line arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Replaces response files by the arguments they contain. A response file that cannot be read is left for clang to report.
pub fn expand_response_files(arguments: &[OsString], response: &dyn Fn(&OsStr) -> Option<Vec<u8>>) -> Vec<OsString> {
    /// Maximum nesting depth. Without it, a response file that contains itself would be expanded forever.
    const MAX_DEPTH: usize = 16;
    fn expand_response_files_into(
        arguments: &[OsString],
        depth: usize,
        response: &dyn Fn(&OsStr) -> Option<Vec<u8>>,
        out: &mut Vec<OsString>,
    ) {
        for argument in arguments {
            let file = argument.as_bytes().strip_prefix(b"@").filter(|_| depth < MAX_DEPTH);
            match file.and_then(|f| response(OsStr::from_bytes(f))) {
                Some(text) => expand_response_files_into(&split_arguments(&text), depth + 1, response, out),
                None => out.push(argument.clone()),
            }
        }
    }
    let mut out = Vec::with_capacity(arguments.len());
    expand_response_files_into(arguments, 0, response, &mut out);
    out
}

/// Splits the text of a response file as LLVM's GNU tokenizer does: arguments are separated by whitespace, grouped by single or double
/// quotes, and a backslash escapes the next byte.
fn split_arguments(text: &[u8]) -> Vec<OsString> {
    let (mut out, mut argument, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => argument.get_or_insert_default().extend(bytes.next()),
            _ if quote == Some(byte) => quote = None,
            b'"' | b'\'' if quote.is_none() => {
                quote = Some(byte);
                argument.get_or_insert_default();
            }
            _ if byte.is_ascii_whitespace() && quote.is_none() => out.extend(argument.take().map(OsString::from_vec)),
            _ => argument.get_or_insert_default().push(byte),
        }
    }
    out.extend(argument.map(OsString::from_vec));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_response_files_are_expanded() {
        let files = |name: &OsStr| match name.to_str()? {
            "one" => Some(b"-c 'a b.c'\n@two".to_vec()),
            "two" => Some(br#"-DX=\"y\" "-o" out\ put.o ''"#.to_vec()),
            "self" => Some(b"@self".to_vec()),
            _ => None,
        };
        assert_eq!(expand_response_files(&["@one".into()], &files), ["-c", "a b.c", "-DX=\"y\"", "-o", "out put.o", ""]);
        assert_eq!(expand_response_files(&["@missing".into(), "@self".into()], &files), ["@missing", "@self"]);
    }
}
