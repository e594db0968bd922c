//! Names of output files and folders.

use clap::builder::{PathBufValueParser, TypedValueParser};
use std::path::PathBuf;

/// Returns a parser for the path of an output that must be a real file or folder, such as a profile or a program. The parser rejects `-`,
/// which means standard output for other options. A file named `-` must be given as `./-`.
pub fn output_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("this cannot be written to standard output. Name a file or folder (`./-` for a file named `-`)"),
        false => Ok(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    #[test]
    fn dash_is_rejected() {
        let read = |name: &str| {
            let command = Command::new("test").arg(Arg::new("output").value_parser(output_path()));
            command.try_get_matches_from(["test", "--", name]).map(|found| found.get_one::<PathBuf>("output").cloned())
        };
        assert!(read("-").unwrap_err().to_string().contains("./-"));
        assert_eq!(read("./-").unwrap(), Some(PathBuf::from("./-")));
        assert_eq!(read("a b\n").unwrap(), Some(PathBuf::from("a b\n")));
    }
}
