//! Finds the instruction at which each thread stopped, from a core file. Stream files do not record it for the innermost frame.

use super::event_names::SourceLine;
use crate::{DemangledName, SourceCache};
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trodden_binary::{Binary, BinaryError, CoreFile, SourceLocations};

#[derive(Clone, Debug, Default, Serialize)]
pub struct StopPosition {
    /// The short name of the function; `None` if no symbol covers the instruction.
    pub function: Option<String>,
    /// The executable or library that contains the instruction; `None` for code that is in no file.
    pub image: Option<PathBuf>,
    /// Address of the instruction in the image's file.
    pub address: u64,
    /// The instruction's line, followed by the lines of the inlined calls around it, innermost first.
    pub lines: Vec<SourceLine>,
}

pub struct CoreThreads {
    file: CoreFile,
    images: BTreeMap<PathBuf, Option<(Binary, Option<SourceLocations>)>>,
}

impl CoreThreads {
    pub fn read(path: &Path) -> Result<CoreThreads> {
        Ok(CoreThreads { file: CoreFile::read(path)?, images: BTreeMap::new() })
    }

    pub fn threads(&self) -> impl Iterator<Item = u32> + '_ {
        self.file.threads.iter().map(|t| t.thread)
    }

    /// Returns an error for each image for which a file with split debug information was needed and could not be read.
    pub fn missing_files(&self) -> Vec<BinaryError> {
        let locations = self.images.values().flatten().filter_map(|(_, locations)| locations.as_ref());
        locations.filter_map(SourceLocations::missing_file).collect()
    }

    /// Returns where a thread stopped; `None` if the thread is not in the core file.
    pub fn find_stop_position(&mut self, thread: u32, sources: &SourceCache) -> Option<StopPosition> {
        let at = self.file.threads.iter().find(|t| t.thread == thread)?.address;
        let Some(part) = self.file.file_at(at) else {
            return Some(StopPosition { address: at, ..StopPosition::default() });
        };
        let image = self.images.entry(part.path.clone()).or_insert_with_key(|path| {
            let binary = Binary::read(path).ok()?.with_debug_symbols();
            let locations = SourceLocations::read(&binary).ok().flatten();
            Some((binary, locations))
        });
        let Some((binary, locations)) = image else {
            let address = at - part.start + part.offset;
            return Some(StopPosition { image: Some(part.path.clone()), address, ..StopPosition::default() });
        };
        let address = at.wrapping_sub(binary.load_bias(part.start, part.offset).unwrap_or(0));
        let frames = locations.as_ref().map_or(Vec::new(), |locations| locations.frames(address));
        let line = |frame: trodden_binary::SourceFrame| {
            let (file, line) = (frame.file?, frame.line?);
            Some(SourceLine { text: sources.line(&file, line), file, line })
        };
        Some(StopPosition {
            function: binary.function_at(address).map(|f| DemangledName::from_linkage(&f.name).short),
            image: Some(part.path.clone()),
            address,
            lines: frames.into_iter().filter_map(line).collect(),
        })
    }
}
