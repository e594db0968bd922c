//! Parser of clang's assembly: functions, blocks and instructions.
//!
//! A comment after each label names the IR block that the code comes from: `.LBB0_3:  # %bb14`. Blocks that are not jump targets have a
//! comment instead of a label: `# %bb.1:  # %bb2`. Blocks created by the plugin or the code generator have no name.

use std::collections::HashMap;

pub type MachineFunctions = HashMap<String, Vec<MachineBlock>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineBlock {
    /// Label of the block, if it is a jump target.
    pub label: Option<String>,
    /// Name of the IR block that the code comes from.
    pub name: Option<String>,
    pub instructions: Vec<String>,
    /// Indices of the successors. If the block ends with an indirect branch, these are all targets of the function's jump tables.
    pub next: Vec<usize>,
}

pub fn parse(text: &str) -> MachineFunctions {
    let mut functions = MachineFunctions::new();
    let tables = parse_jump_tables(text);
    let mut lines = without_inline_assembly(text);
    let mut function_type = None;
    while let Some(line) = lines.next() {
        if let Some(name) = line.trim().strip_prefix(".type").and_then(|rest| rest.trim().rsplit_once(',')) {
            function_type = name.1.trim_start_matches(['@', '%']).starts_with("function").then(|| unquote(name.0).to_owned());
        } else if let Some(name) = parse_label(line).filter(|l| function_type.as_deref() == Some(unquote(l))) {
            let name = unquote(name).to_owned();
            let mut blocks = parse_blocks(&mut lines);
            connect_blocks(&mut blocks, &tables);
            functions.insert(name, blocks);
            function_type = None;
        }
    }
    functions
}

/// Skips file-scope inline assembly, whose functions lack the label that marks their end.
fn without_inline_assembly(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inline = false;
    text.lines().filter(move |line| {
        is_inline |= line.contains("Start of file scope inline assembly");
        let is_compiled = !is_inline;
        is_inline &= !line.contains("End of file scope inline assembly");
        is_compiled
    })
}

fn parse_blocks<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<MachineBlock> {
    let mut blocks = vec![MachineBlock::default()];
    for line in lines.take_while(|line| !line.starts_with(".Lfunc_end")) {
        let (code, comment) = split_comment(line);
        if let Some(name) = parse_label(line).filter(|l| l.starts_with(".LBB")) {
            blocks.push(MachineBlock { label: Some(name.to_owned()), name: block_name(comment), ..MachineBlock::default() });
        } else if let Some(rest) = comment.strip_prefix("%bb.").filter(|_| code.is_empty()) {
            let (_, comment) = split_comment(rest);
            blocks.push(MachineBlock { name: block_name(comment), ..MachineBlock::default() });
        } else if is_instruction(code) {
            blocks.last_mut().expect("starts with one block").instructions.push(code.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    // Removes the block for code before the first label if there is no such code.
    if blocks[0].instructions.is_empty() && blocks.len() > 1 {
        blocks.remove(0);
    }
    blocks
}

/// Splits a line into code and comment. A `#` that is not followed by a space may be an AArch64 operand.
fn split_comment(line: &str) -> (&str, &str) {
    let own_line = line.trim_start().starts_with('#').then_some(0);
    match own_line.or_else(|| line.find("# ")).or_else(|| line.find("// ")) {
        Some(at) => (line[..at].trim(), line[at..].trim_start().trim_start_matches(['#', '/']).trim()),
        None => (line.trim(), ""),
    }
}

/// Extracts the name from a comment such as `%bb14` or `%"a name"`, which may be followed by a description of loops.
fn block_name(comment: &str) -> Option<String> {
    let name = comment.strip_prefix('%')?;
    match name.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().map(str::to_owned),
        None => name.split_whitespace().next().map(str::to_owned),
    }
}

fn parse_label(line: &str) -> Option<&str> {
    let (code, _) = split_comment(line);
    code.strip_suffix(':').filter(|_| !line.starts_with([' ', '\t']))
}

pub fn unquote(name: &str) -> &str {
    name.strip_prefix('"').and_then(|n| n.strip_suffix('"')).unwrap_or(name)
}

fn is_instruction(code: &str) -> bool {
    !code.is_empty() && !code.starts_with('.') && !code.ends_with(':')
}

/// Returns the targets of jump tables by function number (`.LJTI3_0` belongs to the function whose blocks are `.LBB3_...`).
fn parse_jump_tables(text: &str) -> HashMap<String, Vec<String>> {
    let mut tables: HashMap<String, Vec<String>> = HashMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = parse_label(line) {
            current = name.strip_prefix(".LJTI").and_then(|n| n.split('_').next()).map(str::to_owned);
        } else if let Some(function) = &current {
            let (code, _) = split_comment(line);
            tables.entry(function.clone()).or_default().extend(find_block_labels(code).map(str::to_owned));
        }
    }
    tables
}

/// Returns the block labels in an instruction or an entry of a jump table.
fn find_block_labels(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_')).filter(|word| word.starts_with(".LBB"))
}

fn connect_blocks(blocks: &mut [MachineBlock], tables: &HashMap<String, Vec<String>>) {
    let places: HashMap<String, usize> = blocks.iter().enumerate().filter_map(|(at, b)| Some((b.label.clone()?, at))).collect();
    let number = blocks.iter().find_map(|b| b.label.as_deref()?.strip_prefix(".LBB")?.split('_').next());
    let table = number.and_then(|n| tables.get(n)).cloned().unwrap_or_default();
    let count = blocks.len();
    for (at, block) in blocks.iter_mut().enumerate() {
        let mut next: Vec<usize> = block
            .instructions
            .iter()
            .filter(|i| is_jump(i))
            .flat_map(|i| find_block_labels(i))
            .filter_map(|t| places.get(t).copied())
            .collect();
        let last = block.instructions.last().map_or("", String::as_str);
        if is_computed_jump(last) {
            next.extend(table.iter().filter_map(|t| places.get(t).copied()));
        } else if !never_falls_through(last) && at + 1 < count {
            next.push(at + 1);
        }
        next.sort_unstable();
        next.dedup();
        block.next = next;
    }
}

fn mnemonic(instruction: &str) -> &str {
    instruction.split_whitespace().next().unwrap_or_default()
}

fn is_jump(instruction: &str) -> bool {
    let word = mnemonic(instruction);
    word.starts_with('j') || word == "b" || word.starts_with("b.") || ["cbz", "cbnz", "tbz", "tbnz"].contains(&word)
}

fn is_computed_jump(instruction: &str) -> bool {
    mnemonic(instruction) == "br" || (mnemonic(instruction).starts_with("jmp") && instruction.contains('*'))
}

fn never_falls_through(instruction: &str) -> bool {
    let word = mnemonic(instruction);
    word.starts_with("jmp") || word.starts_with("ret") || ["ud2", "b", "br", "brk", "int3", "hlt"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE_ASSEMBLY: &str = "\t.type\tf,@function\nf:                                      # @f\n.Lfunc_begin0:\n\t.cfi_startproc\n\
        # %bb.0:\n\tmovq\t%fs:x@TPOFF, %rax\n\
        \tje\t.LBB0_2\n# %bb.1:                                # %bb2\n\tmovl\t$1, %eax                       # imm = 0x1\n\tjmpq\t*%rax\n\
        .LBB0_2:                                # %\"a b\"\n                                        # =>This Inner Loop Header: \
        Depth=1\n\t#APP\n\tnop\n\t#NO_APP\n\t#DEBUG_VALUE: f:x <- $edi\n\
        \tjne\t.LBB0_2\n.LBB0_3:\n\tretq\n.Lfunc_end0:\n\t.size\tf, \
        .Lfunc_end0-f\n.LJTI0_0:\n\t.long\t.LBB0_2-.LJTI0_0\n\t.long\t.LBB0_3-.LJTI0_0\n\
        \t.type\tdata,@object\ndata:\n\t.long\t1\n";

    #[test]
    fn file_scope_inline_assembly_is_skipped() {
        let own =
            "\t# Start of file scope inline assembly\n\t.type\tplace,@function\nplace:\n\tret\n\t# End of file scope inline assembly\n";
        assert_eq!(parse(&format!("{own}{EXAMPLE_ASSEMBLY}")), parse(EXAMPLE_ASSEMBLY));
    }

    #[test]
    fn blocks_and_names_are_parsed() {
        let functions = parse(EXAMPLE_ASSEMBLY);
        assert_eq!(functions.keys().collect::<Vec<_>>(), ["f"]);
        let blocks = &functions["f"];
        let names: Vec<Option<&str>> = blocks.iter().map(|b| b.name.as_deref()).collect();
        assert_eq!(names, [None, Some("bb2"), Some("a b"), None]);
        assert_eq!(blocks[0].instructions, ["movq %fs:x@TPOFF, %rax", "je .LBB0_2"]);
        assert_eq!(blocks[1].instructions, ["movl $1, %eax", "jmpq *%rax"]);
        assert_eq!(blocks[2].instructions, ["nop", "jne .LBB0_2"]);
    }

    #[test]
    fn successors_come_from_jumps_tables_and_fall_through() {
        let blocks = &parse(EXAMPLE_ASSEMBLY)["f"];
        let next: Vec<&[usize]> = blocks.iter().map(|b| b.next.as_slice()).collect();
        assert_eq!(next, [&[1, 2][..], &[2, 3], &[2, 3], &[]]);
    }
}
