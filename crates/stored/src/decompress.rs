//! Reads files that may be compressed with gzip, zstd or xz. Reading a truncated compressed file always fails.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Opens a file for reading. If it is compressed, the reader decompresses it; for xz, this requires the program `xz`.
pub fn open(path: &Path) -> Result<Box<dyn Read>> {
    let cannot_read = || format!("cannot read {}", path.display());
    let mut magic = Vec::new();
    File::open(path).and_then(|file| file.take(6).read_to_end(&mut magic)).with_context(cannot_read)?;
    let file = File::open(path).with_context(cannot_read)?;
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(DecompressingReader(flate2::read::MultiGzDecoder::new(file))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(DecompressingReader(zstd::stream::read::Decoder::new(file).with_context(cannot_read)?)),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Box::new(DecompressingReader(XzProcess::new(file, path)?)),
        _ => Box::new(file),
    })
}

/// Reads a complete file, and decompresses it if necessary. Fails if the result has more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(bytes.len() as u64 <= limit, "{} is larger than {limit} bytes after decompression. Split the file", path.display());
    Ok(bytes)
}

/// A reader whose errors have the kind `InvalidData`, so that callers do not mistake a truncated compressed file for the end of the input.
struct DecompressingReader<R>(R);

impl<R: Read> Read for DecompressingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => io::Error::new(io::ErrorKind::InvalidData, format!("the compressed file is truncated or corrupt ({error})")),
        })
    }
}

struct XzProcess {
    child: Child,
    output: Option<ChildStdout>,
}

impl XzProcess {
    fn new(file: File, path: &Path) -> Result<XzProcess> {
        let spawned = Command::new("xz").arg("-dc").stdin(file).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.with_context(|| format!("cannot run `xz`, which is needed to decompress {}", path.display()))?;
        let output = child.stdout.take();
        Ok(XzProcess { child, output })
    }
}

impl Read for XzProcess {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(output) = &mut self.output else { return Ok(0) };
        match output.read(buffer)? {
            0 if !buffer.is_empty() => {
                self.output = None;
                let status = self.child.wait()?;
                if status.success() { Ok(0) } else { Err(io::Error::other(format!("`xz` failed ({status})"))) }
            }
            size => Ok(size),
        }
    }
}

impl Drop for XzProcess {
    /// Closes the pipe, whereupon `xz` exits, and waits for the process.
    fn drop(&mut self) {
        self.output = None;
        let _ = self.child.wait();
    }
}
