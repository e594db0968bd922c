//! Where in which image an address of a process lies.

use super::image::AddressImage;
use super::text::Mapping;
use super::walk::Place;
use crate::error::ProfileError;
use std::collections::HashMap;

/// An image in the memory of a process.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    start: u64,
    end: u64,
    image: usize,
    bias: u64,
}

/// The memory of all processes, as far as it holds images with addresses.
#[derive(Debug)]
pub struct Space<'a> {
    images: &'a [AddressImage],
    by_process: HashMap<u32, Vec<Mapped>>,
    /// Where an address was found that no mapping of its own process explains.
    of_any: Vec<Mapped>,
}

impl<'a> Space<'a> {
    /// Images that are loaded where their files say are there; others need a mapping.
    pub fn new(images: &'a [AddressImage]) -> Space<'a> {
        let fixed = images.iter().enumerate().filter(|(_, image)| image.fixed);
        let whole = |(number, _): (usize, &AddressImage)| Mapped { start: 0, end: u64::MAX, image: number, bias: 0 };
        Space { images, by_process: HashMap::new(), of_any: fixed.map(whole).collect() }
    }

    /// A process maps a file.
    ///
    /// # Errors
    /// The file is an image of this name and another build.
    pub fn map(&mut self, mapping: &Mapping) -> Result<(), ProfileError> {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        for (number, image) in self.images.iter().enumerate() {
            if image.fixed || image.path.file_name().is_none_or(|n| n != name) {
                continue;
            }
            if let (Some(ran), Some(here)) = (&mapping.build_id, &image.image.build_id)
                && ran != here
            {
                let what = format!("it is build {here}, and build {ran} ran ({}): name the file that ran", mapping.path);
                return Err(ProfileError::Addresses { image: image.path.clone(), what });
            }
            if let Some(bias) = image.bias(mapping.start, mapping.offset) {
                let mapped = Mapped { start: mapping.start, end: mapping.start.saturating_add(mapping.length), image: number, bias };
                self.by_process.entry(mapping.process).or_default().push(mapped);
                self.of_any.push(mapped);
            }
        }
        Ok(())
    }

    /// A process has the mappings of the one that made it.
    pub fn fork(&mut self, process: u32, parent: u32) {
        if process != parent {
            let inherited = self.by_process.get(&parent).cloned().unwrap_or_default();
            self.by_process.insert(process, inherited);
        }
    }

    /// What lies at an address of a process.
    pub fn place(&self, process: u32, address: Option<u64>) -> Place {
        let Some(address) = address else { return Place::Outside };
        let own = self.by_process.get(&process).into_iter().flatten();
        // The latest mapping counts, and one of another process only if this one has none there.
        let here = own.rev().chain(self.of_any.iter().rev()).filter(|m| (m.start..m.end).contains(&address));
        let found = here.filter_map(|m| {
            let in_file = address.wrapping_sub(m.bias);
            Some(Place::Code(m.image, self.images[m.image].range_at(in_file)?, in_file))
        });
        found.into_iter().next().unwrap_or(Place::Elsewhere)
    }
}
