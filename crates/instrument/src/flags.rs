//! What the driver says of the compilation that the plugin cannot ask LLVM.

/// The flags of the compilation that shape code generation, as the driver passes them on: words separated by U+001F.
pub fn code_generation_flags() -> Vec<String> {
    let words = std::env::var("TRODDEN_CODEGEN").unwrap_or_default();
    words.split('\u{1f}').filter(|w| !w.is_empty()).map(str::to_owned).collect()
}
