//! Reads the parts of LLVM's textual IR that the oracles need: functions, blocks, the first lines of instructions, and callees.
//!
//! Only the output of LLVM's printer can be read, which has a fixed layout. A definition extends from a line that starts with `define` to a
//! line `}`. Labels start in the first column, instructions after two blanks. Lines that are indented further, and the `]` that closes a
//! switch, continue the previous instruction.

use std::collections::{HashMap, HashSet};

/// The text of a module.
pub struct TextModule<'a> {
    /// All lines.
    pub lines: Vec<&'a str>,
    /// The functions that the module defines.
    pub functions: Vec<TextFunction>,
    /// The attribute groups of each function, by its name.
    attributes: HashMap<String, Vec<u32>>,
    /// Attribute groups that contain `returns_twice`.
    twice: HashSet<u32>,
    /// Attribute groups that contain `noreturn`.
    noreturn: HashSet<u32>,
}

/// A defined function.
pub struct TextFunction {
    /// The function's name, as in a unit's map.
    pub name: String,
    /// The function's basic blocks, in the order of the text.
    pub blocks: Vec<TextBlock>,
}

/// A basic block.
#[derive(Default)]
pub struct TextBlock {
    /// The block's label; the entry block may have none.
    pub label: Option<String>,
    /// Indices of the first lines of the block's instructions.
    pub instructions: Vec<usize>,
}

/// Functions that create a process and therefore return twice.
const FORK_FUNCTIONS: [&str; 8] = ["fork", "_Fork", "__fork", "__libc_fork", "forkpty", "vfork", "__vfork", "daemon"];
const CODELESS_INTRINSICS: [&str; 6] =
    ["llvm.lifetime.", "llvm.dbg.", "llvm.assume", "llvm.fake.use", "llvm.pseudoprobe", "llvm.invariant."];

impl<'a> TextModule<'a> {
    /// Parses the printer's output.
    pub fn read(text: &'a str) -> TextModule<'a> {
        let mut module = TextModule {
            lines: text.lines().collect(),
            functions: Vec::new(),
            attributes: HashMap::new(),
            twice: HashSet::new(),
            noreturn: HashSet::new(),
        };
        let mut inside = false;
        for at in 0..module.lines.len() {
            let line = module.lines[at];
            if inside {
                inside = line != "}";
                module.parse_body_line(at, line);
            } else if line.starts_with("define ") {
                let name = callee_of(line).unwrap_or_default();
                module.attributes.insert(name.clone(), attribute_groups_of(line));
                module.functions.push(TextFunction { name, blocks: vec![TextBlock::default()] });
                inside = true;
            } else if line.starts_with("declare ") {
                module.attributes.insert(callee_of(line).unwrap_or_default(), attribute_groups_of(line));
            } else if let Some(rest) = line.strip_prefix("attributes #") {
                module.parse_attribute_group(rest);
            }
        }
        module
    }

    fn parse_body_line(&mut self, at: usize, line: &str) {
        let blocks = &mut self.functions.last_mut().expect("inside a function").blocks;
        let bytes = line.as_bytes();
        match bytes {
            [] | [b'}', ..] | [b';', ..] => {}
            [b' ', b' ', b' ' | b']' | b'}', ..] => {}
            [b' ', b' ', ..] => blocks.last_mut().expect("a body has a block").instructions.push(at),
            _ => {
                let label = label_of(line);
                match blocks.last_mut().expect("a body has a block") {
                    first if first.label.is_none() && first.instructions.is_empty() => first.label = Some(label),
                    _ => blocks.push(TextBlock { label: Some(label), instructions: Vec::new() }),
                }
            }
        }
    }

    fn parse_attribute_group(&mut self, rest: &str) {
        let Some(number) = rest.split(' ').next().and_then(|n| n.parse().ok()) else { return };
        let has = |word: &str| rest.split(' ').any(|w| w == word);
        if has("returns_twice") {
            self.twice.insert(number);
        }
        if has("noreturn") {
            self.noreturn.insert(number);
        }
    }

    /// Returns true if a call may return twice.
    pub fn returns_twice(&self, call: &str) -> bool {
        self.has_attribute(call, &self.twice) || callee_of(call).is_some_and(|name| FORK_FUNCTIONS.contains(&name.as_str()))
    }

    /// Returns true if a call is known not to return.
    pub fn never_returns(&self, call: &str) -> bool {
        self.has_attribute(call, &self.noreturn)
    }

    fn has_attribute(&self, call: &str, groups: &HashSet<u32>) -> bool {
        let own = attribute_groups_of(call);
        let named = callee_of(call).and_then(|name| self.attributes.get(&name));
        own.iter().chain(named.into_iter().flatten()).any(|g| groups.contains(g))
    }
}

/// Returns the operation of an instruction: its first word after `%result = `.
pub fn opcode(line: &str) -> &str {
    let operation = operation(line);
    let end = operation.find([' ', ',']).unwrap_or(operation.len());
    &operation[..end]
}

/// Returns an instruction without `%result = `.
fn operation(line: &str) -> &str {
    let line = line.trim_start();
    match line.starts_with('%') {
        true => line.find(" = ").map_or(line, |at| &line[at + 3..]),
        false => line,
    }
}

/// Returns the name of an instruction's result, with its `%`.
pub fn result_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.starts_with('%').then(|| line.split(" = ").next()).flatten()
}

/// Returns the marker of a call instruction: `tail`, `musttail`, `notail` or an empty string. `None` if the line is not a call.
pub fn call_kind(line: &str) -> Option<&str> {
    let operation = operation(line);
    match opcode(line) {
        "call" => Some(""),
        kind @ ("tail" | "musttail" | "notail") if operation[kind.len()..].starts_with(" call ") => Some(kind),
        _ => None,
    }
}

/// Returns true if a line calls an intrinsic.
pub fn is_intrinsic(line: &str) -> bool {
    callee_of(line).is_some_and(|name| name.starts_with("llvm."))
}

/// Returns true if a line calls an intrinsic that generates no code.
pub fn is_codeless(line: &str) -> bool {
    call_kind(line).is_some() && callee_of(line).is_some_and(|name| CODELESS_INTRINSICS.iter().any(|m| name.starts_with(m)))
}

/// Returns the function that a line calls, declares or defines: the first name followed by a parenthesis. `None` for indirect calls and
/// inline assembly.
pub fn callee_of(line: &str) -> Option<String> {
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            sigil @ (b'@' | b'%') => {
                let (name, end) = parse_name_at(bytes, at + 1);
                if bytes.get(end) == Some(&b'(') {
                    return (sigil == b'@').then_some(name);
                }
                at = end.max(at + 1);
            }
            b'"' => at = closing_quote(bytes, at) + 1,
            _ => at += 1,
        }
    }
    None
}

/// Returns the name that starts at an index, without quotes, and the index of its end.
fn parse_name_at(bytes: &[u8], start: usize) -> (String, usize) {
    if bytes.get(start) == Some(&b'"') {
        let end = closing_quote(bytes, start);
        return (unescape(&bytes[start + 1..end]), end + 1);
    }
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'$' | b'.' | b'_');
    let end = start + bytes[start..].iter().take_while(|b| plain(b)).count();
    (String::from_utf8_lossy(&bytes[start..end]).into_owned(), end)
}

fn closing_quote(bytes: &[u8], open: usize) -> usize {
    bytes[open + 1..].iter().position(|b| *b == b'"').map_or(bytes.len() - 1, |n| open + 1 + n)
}

/// Replaces escapes such as `\41` by their bytes (here `A`).
fn unescape(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok());
        match (bytes[at], digits.and_then(|d| u8::from_str_radix(d, 16).ok())) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn label_of(line: &str) -> String {
    match line.as_bytes().first() {
        Some(b'"') => parse_name_at(line.as_bytes(), 0).0,
        _ => line.split(':').next().unwrap_or(line).to_owned(),
    }
}

fn attribute_groups_of(line: &str) -> Vec<u32> {
    line.split(' ').filter_map(|word| word.strip_prefix('#')?.trim_end_matches(',').parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callees_are_found() {
        let of = |line: &str| callee_of(line);
        assert_eq!(of("  %3 = tail call i32 (ptr, ...) @printf(ptr @.str, i32 %2)").as_deref(), Some("printf"));
        assert_eq!(of("  call void %4(ptr @f)"), None);
        assert_eq!(of("  call %\"class.@x\" @\"\\01name\"(ptr %1)").as_deref(), Some("\u{1}name"));
        assert_eq!(of("  %1 = call i64 asm sideeffect \"syscall(@)\", \"=r\"(i64 1)"), None);
        assert_eq!(of("define internal fastcc range(i32 0, 2) i32 @go(ptr %0) #3 {").as_deref(), Some("go"));
    }

    #[test]
    fn bodies_are_split_into_blocks_and_instructions() {
        let text = "define i32 @f(i32 %0) #0 {\n  switch i32 %0, label %3 [\n    i32 1, label %2\n  ]\n\n2:                ; preds = %1\n  \
                    br label %3\n\n\"a b\":\n    #dbg_value(i32 0)\n  ret i32 0\n}\ndeclare i32 @setjmp(ptr) #1\nattributes #1 = { \
                    nounwind returns_twice }\n";
        let module = TextModule::read(text);
        let blocks = &module.functions[0].blocks;
        assert_eq!(blocks.iter().map(|b| b.label.as_deref()).collect::<Vec<_>>(), [None, Some("2"), Some("a b")]);
        assert_eq!(blocks.iter().map(|b| b.instructions.len()).collect::<Vec<_>>(), [1, 1, 1]);
        assert!(module.returns_twice("  %1 = call i32 @setjmp(ptr %0)"));
        assert!(!module.returns_twice("  %1 = call i32 @other(ptr %0)"));
    }
}
