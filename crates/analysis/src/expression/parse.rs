//! The parser of path expressions.

use super::{AllowedBlocksBetween, ExpressionPlace, ExpressionSequence, PathExpression, RequiredPathBegin, RequiredPathEnd};
use std::fmt;
use std::str::FromStr;

/// A syntax error of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionParseError {
    /// The expression.
    pub text: String,
    /// Position in characters, from 0.
    pub at: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl std::error::Error for ExpressionParseError {}

impl fmt::Display for ExpressionParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one_line: String = self.text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
        write!(f, "{}\n  {one_line}\n  {:2$}^", self.what, "", self.at)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpressionToken {
    Gap,
    Not,
    And,
    Or,
    Word(String),
}

impl FromStr for PathExpression {
    type Err = ExpressionParseError;

    fn from_str(text: &str) -> Result<PathExpression, ExpressionParseError> {
        let characters: Vec<char> = text.chars().collect();
        let (function, from) = split_function(&characters);
        let mut parser = ExpressionParser { text, tokens: tokenize(&characters, from), at: 0, end: characters.len() };
        if function.as_deref() == Some("") {
            return Err(parser.error_at(0, "expected the name of a function before the colon"));
        }
        let mut patterns = vec![parser.parse_pattern()?];
        while parser.consume_token(&ExpressionToken::Or) {
            patterns.push(parser.parse_pattern()?);
        }
        match parser.peek() {
            None => Ok(PathExpression { function, patterns }),
            Some(_) => Err(parser.error("expected | or & or nothing more: the end of a path (exit, back, call) and !PLACE come last")),
        }
    }
}

/// Splits off the function name, which ends at the first colon before white space; names may contain other colons. Also returns the
/// position where the rest begins.
fn split_function(text: &[char]) -> (Option<String>, usize) {
    let ends = |at: &usize| text[*at] == ':' && text.get(at + 1).is_none_or(|c| c.is_whitespace());
    match (0..text.len()).find(ends) {
        Some(at) => (Some(text[..at].iter().collect::<String>().trim().to_owned()), at + 1),
        None => (None, 0),
    }
}

fn tokenize(text: &[char], mut at: usize) -> Vec<(usize, ExpressionToken)> {
    let mut out = Vec::new();
    let is_gap = |at: usize| text.get(at) == Some(&'.') && text.get(at + 1) == Some(&'.') && text.get(at + 2) != Some(&'/');
    while let Some(character) = text.get(at) {
        let single = match character {
            '!' => Some(ExpressionToken::Not),
            '&' => Some(ExpressionToken::And),
            '|' => Some(ExpressionToken::Or),
            _ => None,
        };
        if character.is_whitespace() {
            at += 1;
        } else if let Some(token) = single {
            out.push((at, token));
            at += 1;
        } else if is_gap(at) {
            out.push((at, ExpressionToken::Gap));
            at += 2;
        } else {
            let ends = |at: &usize| text[*at].is_whitespace() || "!&|".contains(text[*at]) || is_gap(*at);
            let end = (at + 1..text.len()).find(ends).unwrap_or(text.len());
            out.push((at, ExpressionToken::Word(text[at..end].iter().collect())));
            at = end;
        }
    }
    out
}

struct ExpressionParser<'a> {
    text: &'a str,
    tokens: Vec<(usize, ExpressionToken)>,
    at: usize,
    end: usize,
}

impl ExpressionParser<'_> {
    fn peek(&self) -> Option<&ExpressionToken> {
        self.tokens.get(self.at).map(|t| &t.1)
    }

    fn consume_token(&mut self, token: &ExpressionToken) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn consume_word<T>(&mut self, known: impl Fn(&str) -> Option<T>) -> Option<T> {
        let Some(ExpressionToken::Word(word)) = self.peek() else { return None };
        let found = known(word);
        self.at += usize::from(found.is_some());
        found
    }

    fn error(&self, what: &str) -> ExpressionParseError {
        self.error_at(self.tokens.get(self.at).map_or(self.end, |t| t.0), what)
    }

    fn error_at(&self, at: usize, what: &str) -> ExpressionParseError {
        ExpressionParseError { text: self.text.to_owned(), at, what: what.to_owned() }
    }

    fn parse_pattern(&mut self) -> Result<Vec<ExpressionSequence>, ExpressionParseError> {
        let mut sequences = vec![self.parse_sequence()?];
        while self.consume_token(&ExpressionToken::And) {
            sequences.push(self.parse_sequence()?);
        }
        Ok(sequences)
    }

    fn parse_sequence(&mut self) -> Result<ExpressionSequence, ExpressionParseError> {
        let started = self.at;
        let begin = self.consume_word(|word| match word {
            "entry" => Some(RequiredPathBegin::Entry),
            "head" => Some(RequiredPathBegin::Head),
            _ => None,
        });
        let mut sequence = ExpressionSequence { begin, before: self.parse_gap()?, ..ExpressionSequence::default() };
        if begin.is_none() && sequence.before == AllowedBlocksBetween::Nothing {
            sequence.before = AllowedBlocksBetween::Without(Vec::new());
        }
        while let Some(ExpressionToken::Word(word)) = self.peek() {
            if parse_end(word).is_some() {
                break;
            }
            let place = self.parse_place()?;
            let gap = self.parse_gap()?;
            sequence.steps.push((place, gap));
        }
        sequence.end = self.consume_word(parse_end);
        if sequence.end.is_none() {
            // Without an explicit end, such as `exit`, the path may continue after the last place.
            match sequence.steps.last_mut() {
                Some((_, gap)) if *gap == AllowedBlocksBetween::Nothing => *gap = AllowedBlocksBetween::Without(Vec::new()),
                _ => {}
            }
            if sequence.steps.is_empty() && sequence.before == AllowedBlocksBetween::Nothing {
                sequence.before = AllowedBlocksBetween::Without(Vec::new());
            }
        }
        while self.consume_token(&ExpressionToken::Not) {
            sequence.never.push(self.parse_place()?);
        }
        match self.at == started {
            true => Err(self.error(
                "expected a place: a line (12, 12-15, file.c:12), a block (b7), inlined code (name()), any block (_); or entry, head, \
                exit, back, call, .., !",
            )),
            false => Ok(sequence),
        }
    }

    fn parse_gap(&mut self) -> Result<AllowedBlocksBetween, ExpressionParseError> {
        if !self.consume_token(&ExpressionToken::Gap) {
            return Ok(AllowedBlocksBetween::Nothing);
        }
        let mut without = Vec::new();
        while self.consume_token(&ExpressionToken::Not) {
            without.push(self.parse_place()?);
        }
        match self.peek() {
            Some(ExpressionToken::Gap) => Err(self.error("expected a place between two gaps")),
            _ => Ok(AllowedBlocksBetween::Without(without)),
        }
    }

    fn parse_place(&mut self) -> Result<ExpressionPlace, ExpressionParseError> {
        let Some(ExpressionToken::Word(word)) = self.peek() else {
            return Err(
                self.error("expected a place: a line (12, 12-15, file.c:12), a block (b7), inlined code (name()), or any block (_)")
            );
        };
        let place = parse_place(word).map_err(|what| self.error(&what))?;
        self.at += 1;
        Ok(place)
    }
}

fn parse_end(word: &str) -> Option<RequiredPathEnd> {
    match word {
        "exit" => Some(RequiredPathEnd::Exit),
        "back" => Some(RequiredPathEnd::Back),
        "call" => Some(RequiredPathEnd::Call),
        _ => None,
    }
}

fn parse_place(word: &str) -> Result<ExpressionPlace, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if word == "_" {
        return Ok(ExpressionPlace::Any);
    }
    if let Some(number) = word.strip_prefix('b').filter(|n| is_number(n)) {
        return number.parse().map(ExpressionPlace::Block).map_err(|_| format!("block number {number} is too large"));
    }
    if let Some(name) = word.strip_suffix("()").filter(|n| !n.is_empty()) {
        return Ok(ExpressionPlace::Inlined(name.to_owned()));
    }
    if word == "entry" || word == "head" {
        return Err(format!("`{word}` must come first, because it states how a path begins"));
    }
    let (file, lines) = match word.rsplit_once(':') {
        Some((file, lines)) => (Some(file.to_owned()), lines),
        None => (None, word),
    };
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    if !is_number(first) || !is_number(last) || file.as_deref() == Some("") {
        return Err(format!("`{word}` is not a place. Write a line (12, 12-15, file.c:12), a block (b7), inlined code ({word}()) or _"));
    }
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last && first > 0 => Ok(ExpressionPlace::Lines { file, first, last }),
        _ => Err(format!("`{lines}` is not a range of line numbers")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PathExpression {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    fn line(n: u32) -> ExpressionPlace {
        ExpressionPlace::Lines { file: None, first: n, last: n }
    }

    fn anything() -> AllowedBlocksBetween {
        AllowedBlocksBetween::Without(Vec::new())
    }

    #[test]
    fn sequences_are_parsed() {
        let found = read("ns::f(int): entry 12 .. 34-36 !56");
        assert_eq!(found.function.as_deref(), Some("ns::f(int)"));
        let range = ExpressionPlace::Lines { file: None, first: 34, last: 36 };
        let expected = ExpressionSequence {
            begin: Some(RequiredPathBegin::Entry),
            before: AllowedBlocksBetween::Nothing,
            steps: vec![(line(12), anything()), (range, anything())],
            end: None,
            never: vec![line(56)],
        };
        assert_eq!(found.patterns, [[expected]]);
        // A `!` after a gap excludes a place from that gap only.
        let between = &read("b1..!b2!a.c:3 _ back | g()&!7").patterns;
        let file = ExpressionPlace::Lines { file: Some("a.c".into()), first: 3, last: 3 };
        assert_eq!(
            between[0][0].steps,
            [
                (ExpressionPlace::Block(1), AllowedBlocksBetween::Without(vec![ExpressionPlace::Block(2), file])),
                (ExpressionPlace::Any, AllowedBlocksBetween::Nothing)
            ]
        );
        assert_eq!((between[0][0].end, between[0][0].before.clone()), (Some(RequiredPathEnd::Back), anything()));
        assert_eq!((between[1].len(), between[1][0].steps[0].0.clone()), (2, ExpressionPlace::Inlined("g".into())));
        assert_eq!(between[1][1], ExpressionSequence { before: anything(), never: vec![line(7)], ..ExpressionSequence::default() });
        assert_eq!(read("../a.c:3").patterns[0][0].steps[0].0, ExpressionPlace::Lines { file: Some("../a.c".into()), first: 3, last: 3 });
        assert_eq!(read("12..34"), read("12 .. 34"));
    }

    #[test]
    fn errors_have_position_and_reason() {
        for (text, at, what) in [
            ("", 0, "expected a place"),
            ("f:", 2, "expected a place"),
            (": 12", 0, "name of a function"),
            ("12 .. .. 13", 6, "between two gaps"),
            ("12 | ", 5, "expected a place"),
            ("f: 12 nonsense", 6, "`nonsense` is not a place"),
            ("12 !", 4, "expected a place"),
            ("12 exit 13", 8, "nothing more"),
            ("12 !13 14", 7, "nothing more"),
            ("13 entry", 3, "must come first"),
            ("15-12", 0, "`15-12` is not a range"),
            ("ü 0", 0, "`ü` is not a place"),
            ("_ b99999999999", 2, "is too large"),
        ] {
            let error = text.parse::<PathExpression>().unwrap_err();
            assert!(error.at == at && error.what.contains(what), "{text}: {error:?}");
        }
        let shown = "f: 12 x".parse::<PathExpression>().unwrap_err().to_string();
        assert!(shown.ends_with("\n  f: 12 x\n        ^"), "{shown}");
    }
}
