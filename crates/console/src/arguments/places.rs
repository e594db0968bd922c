//! Names of output files and folders.

use clap::builder::{PathBufValueParser, TypedValueParser};
use std::path::PathBuf;

/// Returns a parser for the name of an output file or folder that cannot be standard output, such as a profile or a program. It refuses
/// `-`, which other options take for standard output; `./-` names a file of that name.
pub fn output_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("this cannot go to standard output: name a file or folder (`./-` for one named `-`)"),
        false => Ok(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    #[test]
    fn dash_is_refused() {
        let read = |name: &str| {
            let command = Command::new("test").arg(Arg::new("output").value_parser(output_path()));
            command.try_get_matches_from(["test", "--", name]).map(|found| found.get_one::<PathBuf>("output").cloned())
        };
        assert!(read("-").unwrap_err().to_string().contains("./-"));
        assert_eq!(read("./-").unwrap(), Some(PathBuf::from("./-")));
        assert_eq!(read("a b\n").unwrap(), Some(PathBuf::from("a b\n")));
    }
}
