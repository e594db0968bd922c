//! Atomic writing of files to the unit cache, to which several compilers may write at the same time.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writes a file under a temporary name and then renames it. Creates missing parent folders.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);
    let (folder, name) = path.parent().zip(path.file_name()).expect("a file in a folder");
    std::fs::create_dir_all(folder)?;
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{}.{}.{number}", name.display(), std::process::id()));
    let written = std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    written.inspect_err(|_| _ = std::fs::remove_file(&temporary))
}
