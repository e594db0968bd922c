//! Options whose values are those of a library's type, described by a table.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use trodden_unit::experiment::Spelling;

/// A value, its word on the command line, and its help text. A help text equal to the word is not shown.
pub type Choice<T> = (T, &'static str, &'static str);

/// A parser that accepts the words of the given choices.
pub fn one_of<T: Copy + Send + Sync + 'static>(choices: impl IntoIterator<Item = Choice<T>>) -> impl TypedValueParser<Value = T> {
    let choices: Vec<Choice<T>> = choices.into_iter().collect();
    let value = |(_, word, about): &Choice<T>| match about == word {
        true => PossibleValue::new(*word),
        false => PossibleValue::new(*word).help(*about),
    };
    let words = PossibleValuesParser::new(choices.iter().map(value));
    words.try_map(move |word| choices.iter().find(|choice| choice.1 == word).map(|choice| choice.0).ok_or("there is no such value"))
}

/// A parser that accepts the spellings of a type.
pub fn spelled<T: Spelling + Send + Sync>() -> impl TypedValueParser<Value = T> {
    one_of(T::spellings())
}

/// The word of a `ValueEnum`'s value on the command line.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// The word of a value in a table of choices; empty if it is missing.
pub fn word_for<T: PartialEq>(choices: &[Choice<T>], value: &T) -> &'static str {
    choices.iter().find(|choice| choice.0 == *value).map_or("", |choice| choice.1)
}
