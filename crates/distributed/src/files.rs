//! The traced binary files: the program, and the shared libraries that the user has selected.

use crate::graph_folder::GraphFolder;
use crate::imports::ImportingImage;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;
use trodden_binary::graph::{GraphObservation, ProgramGraph};
use trodden_binary::instruction::decode_instruction;
use trodden_binary::linked::{base_address, split_address};
use trodden_binary::{AddressMap, Binary, SourceLocations, recover};
use trodden_trace::TraceFile;

/// The traced files, indexed by file number; the program is number 0.
pub struct TracedFiles(Vec<TracedFile>);

struct TracedFile {
    binary: Binary,
    map: Option<AddressMap>,
}

impl TracedFiles {
    /// Reads the files from which a trace was recorded.
    pub fn from_trace(trace: &TraceFile) -> Result<TracedFiles> {
        // The trace contains the names of functions.
        let about = trace.description();
        TracedFiles::read_files([&about.image].into_iter().chain(&about.libraries).map(Path::new), |binary| binary)
    }

    /// Reads binary files to trace them. The first is the program. The names of functions may come from separate debug files.
    pub fn read<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<Self> {
        TracedFiles::read_files(paths, Binary::with_debug_symbols)
    }

    fn read_files<'a>(paths: impl Iterator<Item = &'a Path>, add_symbols: fn(Binary) -> Binary) -> Result<Self> {
        let read = |path: &Path| {
            let binary = add_symbols(Binary::read(path)?);
            let map = AddressMap::read(&binary)?;
            Ok(TracedFile { binary, map })
        };
        Ok(Self(paths.map(read).collect::<Result<_>>()?))
    }

    /// Returns the graphs of all files as one program. Jumps that runs have `observed` are added to the graphs. Graphs of files without
    /// such jumps are taken from `known`, if it has them.
    pub fn graphs(&self, image: &ImportingImage, observed: &[GraphObservation], known: Option<&GraphFolder>) -> Result<ProgramGraph> {
        let mut graphs = Vec::new();
        for (number, file) in self.0.iter().enumerate() {
            // A jump into another file is not an edge of this file's graph.
            let own = observed.iter().filter(|o| split_address(o.from).0 == number && split_address(o.to).0 == number);
            let own: Vec<GraphObservation> =
                own.map(|o| GraphObservation { from: split_address(o.from).1, to: split_address(o.to).1 }).collect();
            let recover = || Ok(recover(&file.binary, file.map.as_ref(), &own)?);
            graphs.push(match known.filter(|_| own.is_empty()) {
                Some(known) => known.find_or_recover(&file.binary, recover)?,
                None => recover()?,
            });
        }
        if graphs.len() == 1 {
            return Ok(graphs.remove(0));
        }
        Ok(ProgramGraph::link_files(graphs, &image.exports))
    }

    /// Returns the file name of a file, without its folders.
    pub fn name(&self, number: usize) -> String {
        let path = self.0.get(number).map_or(Path::new(""), |file| file.binary.path());
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the entry points and exports of all files together, and whether any file raises exceptions or leaves functions by `longjmp`.
    pub fn image(&self) -> Result<ImportingImage> {
        let mut all = ImportingImage::default();
        for (number, file) in self.0.iter().enumerate() {
            let image = ImportingImage::read(&file.binary)?;
            let moved = |address: u64| address + base_address(number);
            // A library has no entry point, and its header contains 0.
            all.starts.extend(image.starts.into_iter().filter(|s| *s != 0).map(moved));
            for (name, address) in image.exports {
                all.exports.entry(name).or_insert(moved(address));
            }
            all.raises |= image.raises;
            all.jumps |= image.jumps;
            all.replaces_allocation |= image.replaces_allocation;
            all.replaces_new_or_delete |= image.replaces_new_or_delete;
        }
        Ok(all)
    }

    /// Returns a hash of the contents of all files. Traces with the same hash are of the same build.
    pub fn hash(&self) -> u64 {
        let hashes: Vec<u64> = self.0.iter().map(|f| trodden_trace::block_file::hash_file_contents(f.binary.data())).collect();
        match hashes.as_slice() {
            [own] => *own,
            all => trodden_trace::block_file::hash_file_contents(&all.iter().flat_map(|h| h.to_le_bytes()).collect::<Vec<u8>>()),
        }
    }

    /// Returns a table of source locations for each file; `None` for a file without line information.
    pub fn sources(&self) -> Result<Vec<Option<SourceLocations>>> {
        self.0.iter().map(|file| Ok(SourceLocations::read(&file.binary)?)).collect()
    }

    /// Returns true if the traced code may call the vDSO: if it includes the C library, or is a static program.
    pub fn may_call_vdso(&self) -> bool {
        let is_static = self.0.first().is_some_and(|program| program.binary.section(".interp").is_none());
        let names = self.0.iter().skip(1).filter_map(|file| file.binary.path().file_name()?.to_str());
        is_static || names.into_iter().any(|name| name.starts_with("libc.so") || name.starts_with("ld-"))
    }

    /// Returns the return addresses of calls whose target is the next instruction. Position-independent code finds its own address with
    /// such a call, which never returns and is therefore a jump. The calls are found by their encoding.
    pub fn return_addresses_of_get_pc_calls(&self, graphs: &ProgramGraph) -> BTreeSet<u64> {
        const CALL_OF_NEXT_INSTRUCTION: [u8; 5] = [0xe8, 0, 0, 0, 0];
        let mut found = BTreeSet::new();
        for block in graphs.functions.iter().flat_map(|f| &f.blocks) {
            let (binary, at) = self.locate(block.start);
            let bytes = binary.code_at(at).and_then(|bytes| bytes.get(..block.size as usize)).unwrap_or_default();
            let places =
                (block.start..).zip(bytes.windows(CALL_OF_NEXT_INSTRUCTION.len())).filter(|(_, bytes)| *bytes == CALL_OF_NEXT_INSTRUCTION);
            found.extend(places.map(|(place, _)| place + CALL_OF_NEXT_INSTRUCTION.len() as u64));
        }
        found
    }

    /// Returns the address of the instruction that follows the one at `address`.
    pub fn next_instruction(&self, address: u64) -> Option<u64> {
        let (binary, at) = self.locate(address);
        Some(address + decode_instruction(binary.code_at(at)?, at)?.len() as u64)
    }

    /// Splits an address of the linked program into the file that contains it, and the address within that file.
    pub fn locate(&self, address: u64) -> (&Binary, u64) {
        let (file, at) = split_address(address);
        (&self.0[file].binary, at)
    }
}
