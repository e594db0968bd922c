//! A test program with enumerations, closures, iterators, results and caught panics.
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Clone)]
enum Token {
    Number(f64),
    Plus,
    Minus,
    Times,
    Over,
    Open,
    Close,
    Name(String),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(&letter) = letters.peek() {
        if letter.is_ascii_digit() || letter.is_alphabetic() {
            let mut word = String::new();
            while let Some(&more) = letters.peek().filter(|c| c.is_alphanumeric() || **c == '.') {
                word.push(more);
                letters.next();
            }
            found.push(word.parse().map(Token::Number).unwrap_or(Token::Name(word)));
            continue;
        }
        letters.next();
        found.push(match letter {
            ' ' => continue,
            '+' => Token::Plus,
            '-' => Token::Minus,
            '*' => Token::Times,
            '/' => Token::Over,
            '(' => Token::Open,
            ')' => Token::Close,
            other => return Err(format!("unexpected {other}")),
        });
    }
    Ok(found)
}

fn value(tokens: &[Token], at: &mut usize, names: &HashMap<String, f64>, level: u32) -> Result<f64, String> {
    let first = tokens[*at].clone();
    *at += 1;
    let mut result = match first {
        Token::Number(number) => number,
        Token::Name(name) => *names.get(&name).ok_or("unknown name")?,
        Token::Open => {
            let inner = value(tokens, at, names, 0)?;
            *at += 1;
            inner
        }
        Token::Minus => -value(tokens, at, names, 2)?,
        other => return Err(format!("unexpected {other:?}")),
    };
    loop {
        let (strength, apply): (u32, fn(f64, f64) -> f64) = match tokens.get(*at) {
            Some(Token::Plus) => (1, |a, b| a + b),
            Some(Token::Minus) => (1, |a, b| a - b),
            Some(Token::Times) => (2, |a, b| a * b),
            Some(Token::Over) => (2, |a, b| a / b),
            _ => return Ok(result),
        };
        if strength <= level {
            return Ok(result);
        }
        *at += 1;
        result = apply(result, value(tokens, at, names, strength)?);
    }
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let names: HashMap<String, f64> = [("x".to_string(), 3.0), ("y".to_string(), 4.0)].into();
    let mut results = BTreeMap::new();
    for text in ["1+2*x", "(y-1)*2", "?", "z", "", "-(4/y)+1"] {
        let result = std::panic::catch_unwind(|| tokens(text).and_then(|t| value(&t, &mut 0, &names, 0)));
        results.insert(text, format!("{result:?}").len());
    }
    println!("{results:#?}");
}
