//! Symbols' names as the source has them.

/// A C++ or Rust symbol as it is written in the source; any other name as it is.
pub fn demangled(symbol: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return format!("{rust:#}");
    }
    if symbol.starts_with("_Z") {
        let parsed = cpp_demangle::Symbol::new(symbol).ok().and_then(|s| s.demangle().ok());
        return parsed.unwrap_or_else(|| symbol.to_owned());
    }
    symbol.to_owned()
}

#[cfg(test)]
mod tests {
    use super::demangled;

    #[test]
    fn names_of_three_languages() {
        assert_eq!(demangled("BZ2_compress"), "BZ2_compress");
        assert_eq!(demangled("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangled("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
        assert_eq!(demangled("_Z"), "_Z");
    }
}
