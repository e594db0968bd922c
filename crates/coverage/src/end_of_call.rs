//! Finds the end of a call in C or C++ source.
//!
//! Debug information has only the start of a call. Whether a later line belongs to the call's arguments or comes after the call can only be
//! seen in the source: the optimiser may have moved code of later lines before the call, and a line may have no code.

/// Returns the last line of the call that begins at a line and column (from 1); `None` if the call is not recognised. A call ends at the
/// parenthesis that closes its arguments, and an expression without parentheses, such as `throw x`, at the end of its statement.
pub fn end_of_call(lines: &[String], (line, column): (u64, u64)) -> Option<u64> {
    let first = usize::try_from(line.checked_sub(1)?).ok()?;
    let skipped = usize::try_from(column.checked_sub(1)?).ok()?;
    let (mut depth, mut comment) = (0u32, false);
    for (at, text) in lines.iter().enumerate().skip(first).take(MAX_CALL_LINES) {
        let mut rest = text.get(if at == first { skipped } else { 0 }..)?;
        while !rest.is_empty() {
            if comment {
                let Some((_, after)) = rest.split_once("*/") else { break };
                (rest, comment) = (after, false);
                continue;
            }
            if rest.starts_with("//") {
                break;
            }
            if let Some(after) = rest.strip_prefix("/*") {
                (rest, comment) = (after, true);
                continue;
            }
            let character = rest.chars().next()?;
            let length = match character {
                '"' | '\'' => literal_length(rest, character)?,
                _ => character.len_utf8(),
            };
            match character {
                '(' | '[' => depth += 1,
                ')' | ']' => {
                    // If the expression itself is in parentheses, it ends at the closing one.
                    depth = depth.saturating_sub(1);
                    if depth == 0 && character == ')' {
                        return Some(at as u64 + 1);
                    }
                }
                // The call of a destructor has the position of its block's closing brace.
                '}' if depth == 0 => return (at == first && rest.len() == text.len() - skipped).then_some(line),
                ';' if depth == 0 => return Some(at as u64 + 1),
                '{' | '#' if depth == 0 => return None,
                _ => {}
            }
            rest = &rest[length..];
        }
    }
    None
}

const MAX_CALL_LINES: usize = 500;

/// Returns the length of a string or character literal in bytes; `None` if it does not end on its line.
fn literal_length(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_end(text: &str, position: (u64, u64)) -> Option<u64> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        end_of_call(&lines, position)
    }

    #[test]
    fn calls_end_with_their_closing_parentheses() {
        assert_eq!(find_end("f(1);\ng();", (1, 1)), Some(1));
        assert_eq!(find_end("  f(g(1),\n  \")\", ')', // )\n  /* ) */ a[1]);\nh();", (1, 3)), Some(3));
        assert_eq!(find_end("throw 1\n  + 2;\nh();", (1, 1)), Some(2));
        assert_eq!(find_end("x = {\n", (1, 5)), None);
        assert_eq!(
            (find_end("  }\n", (1, 3)), find_end("a }\n", (1, 1)), find_end("f(", (1, 1)), find_end("", (4, 1))),
            (Some(1), None, None, None)
        );
    }
}
