//! Readable names of symbols.

/// Demangles the symbol of a C++ or Rust function. Returns any other name unchanged.
pub fn demangle(symbol: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return format!("{rust:#}");
    }
    if symbol.starts_with("_Z") {
        let parsed = cpp_demangle::Symbol::new(symbol).ok().and_then(|s| s.demangle().ok());
        return parsed.unwrap_or_else(|| symbol.to_owned());
    }
    symbol.to_owned()
}

/// Returns the name that a Fortran procedure has in the source code. The symbol of an external procedure ends with an underscore; that of a
/// module procedure begins with the module (`__fields_MOD_relax` by gfortran, `_QMfieldsPrelax` by flang).
pub fn restore_fortran_name(symbol: &str) -> String {
    if let Some((module, name)) = symbol.strip_prefix("__").and_then(|rest| rest.split_once("_MOD_")) {
        return format!("{module}::{name}");
    }
    if let Some(rest) = symbol.strip_prefix("_QM")
        && let Some((module, name)) = rest.split_once('P')
    {
        return format!("{module}::{name}");
    }
    match symbol.strip_prefix("_QP") {
        Some(name) => name.to_owned(),
        None if symbol.starts_with('_') => symbol.to_owned(),
        None => symbol.strip_suffix('_').unwrap_or(symbol).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{demangle, restore_fortran_name};

    #[test]
    fn fortran_names_are_restored() {
        assert_eq!(restore_fortran_name("conj_grad_"), "conj_grad");
        assert_eq!(restore_fortran_name("conj_grad"), "conj_grad");
        assert_eq!(restore_fortran_name("__fields_MOD_relax"), "fields::relax");
        assert_eq!(restore_fortran_name("_QMfieldsPrelax"), "fields::relax");
        assert_eq!(restore_fortran_name("_QPconj_grad"), "conj_grad");
        assert_eq!(restore_fortran_name("_start"), "_start");
    }

    #[test]
    fn c_cpp_and_rust_names_are_demangled() {
        assert_eq!(demangle("BZ2_compress"), "BZ2_compress");
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
        assert_eq!(demangle("_Z"), "_Z");
    }
}
