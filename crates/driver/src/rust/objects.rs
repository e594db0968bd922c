//! The objects that rustc wrote for a crate, and the bitcode that replaces them.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// First bytes of bitcode.
pub const BITCODE: &[u8] = b"BC\xC0\xDE";
/// Ending of the names of rustc's objects.
pub const OBJECT: &str = ".rcgu.o";
/// Part of the names of objects with a crate's code, as opposed to the shim of the allocator, in builds that are not incremental.
const CODE: &str = "-cgu.";
/// Part of a symbol that only the shim of the default allocator refers to.
const SHIM: &[u8] = b"___rdl_alloc";

/// An object of rustc's that is to be replaced.
pub struct RustObject {
    pub name: String,
    pub bitcode: Vec<u8>,
    /// False for the shim of the allocator.
    pub is_counted: bool,
}

impl RustObject {
    /// Returns the object of this name in `folder`, or in an archive there. `None` if it is machine code without bitcode beside it.
    pub fn new(name: &str, content: Vec<u8>, folder: &Path) -> Result<Option<RustObject>> {
        if content.starts_with(BITCODE) {
            let is_counted = name.contains(CODE) || !content.windows(SHIM.len()).any(|part| part == SHIM);
            return Ok(Some(RustObject { name: name.to_owned(), bitcode: content, is_counted }));
        }
        let is_counted = name.contains(CODE);
        if !is_counted {
            return Ok(None);
        }
        let Some(module) = bitcode_beside(name, folder) else { return Ok(None) };
        let bitcode = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
        Ok(Some(RustObject { name: name.to_owned(), bitcode, is_counted }))
    }
}

/// Returns the file in which rustc wrote the bitcode of an object, which is named after the crate if it is the only one.
fn bitcode_beside(object: &str, folder: &Path) -> Option<PathBuf> {
    let crate_name = object.split('.').next().unwrap_or_default();
    let names = [format!("{}.bc", object.strip_suffix(".o")?), format!("{crate_name}.bc")];
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitcode_lies_beside_its_object() {
        let folder = tempfile::tempdir().unwrap();
        let find = |object: &str| bitcode_beside(object, folder.path()).map(|path| path.file_name().unwrap().to_owned());
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), None);
        fs::write(folder.path().join("x-ab12.bc"), "").unwrap();
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), Some("x-ab12.bc".into()));
        fs::write(folder.path().join("x-ab12.x.c0de-cgu.0.rcgu.bc"), "").unwrap();
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), Some("x-ab12.x.c0de-cgu.0.rcgu.bc".into()));
    }

    #[test]
    fn shim_of_the_allocator_is_compiled_but_not_counted() {
        let folder = Path::new("/nowhere");
        let of = |name: &str, content: &[u8]| RustObject::new(name, content.to_vec(), folder).unwrap().map(|object| object.is_counted);
        assert_eq!(of("x-ab12.x.c0de-cgu.0.rcgu.o", b"BC\xC0\xDE1"), Some(true));
        assert_eq!(of("x-ab12.7thi4.1m5ech8.rcgu.o", b"BC\xC0\xDE1"), Some(true));
        assert_eq!(of("x-ab12.7thi4.rcgu.o", b"BC\xC0\xDE_R7___rustc11___rdl_alloc"), Some(false));
        assert_eq!((of("x-ab12.7thi4.rcgu.o", b"\x7fELF"), of("x-ab12.x.c0de-cgu.0.rcgu.o", b"\x7fELF")), (None, None));
    }
}
