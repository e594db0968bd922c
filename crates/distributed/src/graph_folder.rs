//! A folder with the recovered graphs of binary files, so that the graph of a file is recovered only once. Recovering that of a compiler
//! takes half a minute.
//!
//! A file's name is a hash of everything that the graph depends on: the content of the binary file, the symbols of its debug file, and
//! trodden's own executable. (A build ID does not suffice, because stripped and patched files keep it.) What cannot be read or written here
//! is recovered again, so errors are only logged.

use anyhow::Result;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use trodden_binary::Binary;
use trodden_binary::graph::ProgramGraph;
use trodden_container::{FileFormat, FileKind};
use trodden_profile::temporary::TemporaryFile;
use trodden_unit::Identity;

const FORMAT: FileFormat = FileFormat { kind: FileKind::GRAPHS, version: 1, remedy: "Remove the file" };
const EXTENSION: &str = "graphs";
const TEMPORARY_PREFIX: &str = ".graphs-";
/// Number of blocks from which on a graph is stored. Smaller ones are recovered in 0.2 s.
const MIN_STORED_BLOCKS: usize = 1 << 14;
/// Maximum size in bytes of all graphs. The ones used least recently are removed.
const MAX_FOLDER_SIZE: u64 = 512 << 20;

/// A folder for the graphs that one build of trodden recovers.
#[derive(Clone, Debug)]
pub struct GraphFolder {
    folder: PathBuf,
    /// Identifies trodden's executable, since another one may recover other graphs.
    own_program: Vec<u8>,
    max_size: u64,
}

impl GraphFolder {
    /// Returns the folder at this path, which need not exist. `own_program` is trodden's executable.
    ///
    /// # Errors
    /// The executable does not exist.
    pub fn new(folder: PathBuf, own_program: &Path) -> io::Result<Self> {
        let own = own_program.metadata()?;
        let identity = [own.dev(), own.ino(), own.len(), own.mtime() as u64, own.mtime_nsec() as u64];
        Ok(Self { folder, own_program: identity.iter().flat_map(|word| word.to_le_bytes()).collect(), max_size: MAX_FOLDER_SIZE })
    }

    /// Returns the graphs of a file. If they are not in the folder, recovers and stores them.
    ///
    /// # Errors
    /// Fails if `recover` does.
    pub fn find_or_recover(&self, binary: &Binary, recover: impl FnOnce() -> Result<ProgramGraph>) -> Result<ProgramGraph> {
        let name = self.file_name(binary);
        if let Some(found) = self.find(&name) {
            return Ok(found);
        }
        let graphs = recover()?;
        if graphs.functions.iter().map(|f| f.blocks.len()).sum::<usize>() >= MIN_STORED_BLOCKS {
            let stored = self.store(&name, &graphs);
            stored.unwrap_or_else(|error| log::debug!("cannot store graphs in the folder {}: {error}", self.folder.display()));
        }
        Ok(graphs)
    }

    fn file_name(&self, binary: &Binary) -> String {
        let mut known = [&Identity::from_content(binary.data()).0[..], &self.own_program].concat();
        for function in binary.functions() {
            known.extend([function.address, function.size, u64::from(function.is_global)].iter().flat_map(|word| word.to_le_bytes()));
            known.extend(function.name.as_bytes());
            known.push(0);
        }
        format!("{}.{EXTENSION}", Identity::from_content(&known))
    }

    fn find(&self, name: &str) -> Option<ProgramGraph> {
        let path = self.folder.join(name);
        let (mut file, mut bytes) = (File::open(&path).ok()?, Vec::new());
        // A process with more rights must not trust the files of others.
        if !is_own(&file.metadata().ok()?) {
            return None;
        }
        file.read_to_end(&mut bytes).ok()?;
        match FORMAT.read(&bytes) {
            Ok(graphs) => {
                // Without this, the file is only removed earlier than others.
                let _ = file.set_modified(SystemTime::now());
                Some(graphs)
            }
            Err(error) => {
                log::debug!("{}: {error}", path.display());
                None
            }
        }
    }

    fn store(&self, name: &str, graphs: &ProgramGraph) -> io::Result<()> {
        let bytes = FORMAT.to_bytes(graphs);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let file = TemporaryFile::create_in(&self.folder, TEMPORARY_PREFIX, 0o600)?;
        file.as_file().write_all(&bytes)?;
        file.rename(&self.folder.join(name))?;
        self.remove_least_recently_used(name)
    }

    /// Removes the files that were used least recently, until the folder is small enough. The file `kept` stays.
    fn remove_least_recently_used(&self, kept: &str) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in self.folder.read_dir()? {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours = name.to_str().is_some_and(|name| name.starts_with(TEMPORARY_PREFIX) || is_graph_file_name(name));
            if is_ours && name != kept {
                // Another process may have removed the file meanwhile.
                let Ok(metadata) = entry.metadata() else { continue };
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort_unstable();
        let mut size = self.folder.join(kept).metadata()?.len() + files.iter().map(|(_, size, _)| size).sum::<u64>();
        for (_, freed, path) in files {
            if size <= self.max_size {
                break;
            }
            std::fs::remove_file(path).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
            size -= freed;
        }
        Ok(())
    }
}

fn is_graph_file_name(name: &str) -> bool {
    name.strip_suffix(EXTENSION).and_then(|stem| stem.strip_suffix('.')).is_some_and(|stem| Identity::parse(stem).is_some())
}

fn is_own(file: &Metadata) -> bool {
    file.uid() == nix::unistd::geteuid().as_raw() && file.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use trodden_binary::graph::{
        BlockEnd, BlockIndex, CallKind, CallReturns, CallSite, CodeBlock, CodeCallee, CompilerFrequencies, FunctionGraph, GraphDoubt,
        GraphSource, Uncertainty,
    };

    /// Returns graphs with the given number of blocks.
    fn graphs_with_blocks(count: usize) -> ProgramGraph {
        let start = u64::MAX - 4 * count as u64;
        let starts = (0..count as u64).map(|block| start + 4 * block);
        let blocks = starts.map(|start| CodeBlock { start, size: 4, last: start + 2, end: BlockEnd::Conditional }).collect();
        let call = CallSite {
            block: BlockIndex(1),
            address: start + 6,
            return_address: None,
            callee: CodeCallee::OneOf(vec![start, 0]),
            kind: CallKind::TailCall,
            returns: CallReturns::Twice,
            landing_pad: Some(start),
            always_lands: true,
        };
        let function = FunctionGraph {
            name: "f".to_owned(),
            has_symbol: true,
            entry: start,
            other_entries: Vec::new(),
            ranges: vec![start..start + 1, start + 1..u64::MAX],
            blocks,
            edges: Vec::new(),
            calls: vec![call],
            landing_pads: vec![start],
            source: GraphSource::AddressMap { version: 5 },
            uncertain: vec![Uncertainty { address: start, doubt: GraphDoubt::Unreached { size: 1 } }],
            is_address_taken: true,
            returns: false,
            frequencies: Some(CompilerFrequencies { entry_count: None, blocks: vec![1], edges: vec![0.1] }),
        };
        ProgramGraph { functions: vec![function], ..ProgramGraph::default() }
    }

    fn folder_in(path: &Path, own_program: &Path) -> GraphFolder {
        GraphFolder::new(path.join("cache/graphs"), own_program).unwrap()
    }

    #[test]
    fn graphs_are_recovered_once_for_each_build_of_trodden() {
        let place = tempfile::tempdir().unwrap();
        let (own, other) = (place.path().join("own"), place.path().join("other"));
        std::fs::write(&own, "1").unwrap();
        std::fs::write(&other, "2").unwrap();
        let (binary, recovered) = (Binary::read(&std::env::current_exe().unwrap()).unwrap(), Cell::new(0));
        let graphs = graphs_with_blocks(MIN_STORED_BLOCKS);
        let find = |program: &Path| {
            let recover = || {
                recovered.set(recovered.get() + 1);
                Ok(graphs.clone())
            };
            assert_eq!(folder_in(place.path(), program).find_or_recover(&binary, recover).unwrap(), graphs);
            recovered.get()
        };
        assert_eq!([find(&own), find(&own), find(&other), find(&other), find(&own)], [1, 1, 2, 2, 2]);
        // A corrupt file, and one that others may write to, are not used.
        let files = || std::fs::read_dir(place.path().join("cache/graphs")).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(files().count(), 2);
        for file in files() {
            let mut bytes = std::fs::read(&file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
        assert_eq!([find(&own), find(&own)], [3, 3]);
        for file in files() {
            let mut permissions = std::fs::metadata(&file).unwrap().permissions();
            std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o622);
            std::fs::set_permissions(&file, permissions).unwrap();
        }
        assert_eq!([find(&own), find(&own)], [4, 4]);
    }

    #[test]
    fn least_recently_used_graphs_are_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let name = |number: u32| format!("{number:032x}.{EXTENSION}");
        let file = |name: &str| place.path().join(name);
        let now = SystemTime::now();
        let others = ["notes.graphs".to_owned(), format!("{}.bak", name(1)), "graphs".to_owned()];
        let age = |name: &str, seconds: u64| {
            std::fs::write(file(name), vec![0; 100]).unwrap();
            File::options().write(true).open(file(name)).unwrap().set_modified(now - std::time::Duration::from_secs(seconds)).unwrap();
        };
        others.iter().for_each(|name| age(name, 9000));
        (0..4).for_each(|number| age(&name(number), [10, 400, 20, 300][number as usize]));
        age(&format!("{TEMPORARY_PREFIX}left"), 8000);
        let folder = GraphFolder { max_size: 350, ..GraphFolder::new(place.path().to_owned(), &std::env::current_exe().unwrap()).unwrap() };
        folder.remove_least_recently_used(&name(1)).unwrap();
        let left: Vec<u32> = (0..4).filter(|number| file(&name(*number)).exists()).collect();
        assert_eq!(left, [0, 1, 2]);
        assert!(others.iter().all(|name| file(name).exists()) && !file(&format!("{TEMPORARY_PREFIX}left")).exists());
    }
}
