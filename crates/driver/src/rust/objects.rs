//! The objects that rustc wrote for a crate, and the bitcode from which each object is compiled again.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

pub const BITCODE_MAGIC: &[u8] = b"BC\xC0\xDE";
pub const OBJECT_SUFFIX: &str = ".rcgu.o";
/// Part of the file names of objects with a crate's own code in non-incremental builds. The object with the allocator shim has a name
/// without it.
const CODE_OBJECT_INFIX: &str = "-cgu.";
/// Part of a symbol name. Only the shim of the default allocator refers to such symbols.
const ALLOCATOR_SHIM_SYMBOL: &[u8] = b"___rdl_alloc";

/// An object that rustc wrote and that is to be replaced by an instrumented one.
pub struct RustObject {
    pub name: String,
    pub bitcode: Vec<u8>,
    /// False for the allocator shim, which is not instrumented.
    pub is_counted: bool,
}

impl RustObject {
    /// Creates the replaceable object with this name. If `content` is machine code, reads the bitcode from the file beside it in `folder`;
    /// returns `None` if there is no such file.
    pub fn new(name: &str, content: Vec<u8>, folder: &Path) -> Result<Option<RustObject>> {
        if content.starts_with(BITCODE_MAGIC) {
            let is_counted =
                name.contains(CODE_OBJECT_INFIX) || !content.windows(ALLOCATOR_SHIM_SYMBOL.len()).any(|part| part == ALLOCATOR_SHIM_SYMBOL);
            return Ok(Some(RustObject { name: name.to_owned(), bitcode: content, is_counted }));
        }
        let is_counted = name.contains(CODE_OBJECT_INFIX);
        if !is_counted {
            return Ok(None);
        }
        let Some(module) = find_bitcode_file(name, folder) else { return Ok(None) };
        let bitcode = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
        Ok(Some(RustObject { name: name.to_owned(), bitcode, is_counted }))
    }
}

/// Returns the file in `folder` that has the bitcode of an object. If the crate has only one object, the file is named after the crate.
fn find_bitcode_file(object: &str, folder: &Path) -> Option<PathBuf> {
    let crate_name = object.split('.').next().unwrap_or_default();
    let names = [format!("{}.bc", object.strip_suffix(".o")?), format!("{crate_name}.bc")];
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitcode_is_found_beside_its_object() {
        let folder = tempfile::tempdir().unwrap();
        let find = |object: &str| find_bitcode_file(object, folder.path()).map(|path| path.file_name().unwrap().to_owned());
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), None);
        fs::write(folder.path().join("x-ab12.bc"), "").unwrap();
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), Some("x-ab12.bc".into()));
        fs::write(folder.path().join("x-ab12.x.c0de-cgu.0.rcgu.bc"), "").unwrap();
        assert_eq!(find("x-ab12.x.c0de-cgu.0.rcgu.o"), Some("x-ab12.x.c0de-cgu.0.rcgu.bc".into()));
    }

    #[test]
    fn allocator_shim_is_compiled_but_not_counted() {
        let folder = Path::new("/nowhere");
        let of = |name: &str, content: &[u8]| RustObject::new(name, content.to_vec(), folder).unwrap().map(|object| object.is_counted);
        assert_eq!(of("x-ab12.x.c0de-cgu.0.rcgu.o", b"BC\xC0\xDE1"), Some(true));
        assert_eq!(of("x-ab12.7thi4.1m5ech8.rcgu.o", b"BC\xC0\xDE1"), Some(true));
        assert_eq!(of("x-ab12.7thi4.rcgu.o", b"BC\xC0\xDE_R7___rustc11___rdl_alloc"), Some(false));
        assert_eq!((of("x-ab12.7thi4.rcgu.o", b"\x7fELF"), of("x-ab12.x.c0de-cgu.0.rcgu.o", b"\x7fELF")), (None, None));
    }
}
