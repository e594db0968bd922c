//! Options whose values are variants of a library's type: tables of command-line words and their explanations.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use trodden_unit::experiment::Spelling;

/// A value, its word on the command line, and its explanation. Help omits an explanation that equals the word.
pub type Choice<T> = (T, &'static str, &'static str);

/// Returns a parser that accepts the words of these choices.
pub fn one_of<T: Copy + Send + Sync + 'static>(choices: impl IntoIterator<Item = Choice<T>>) -> impl TypedValueParser<Value = T> {
    let choices: Vec<Choice<T>> = choices.into_iter().collect();
    let value = |(_, word, about): &Choice<T>| match about == word {
        true => PossibleValue::new(*word),
        false => PossibleValue::new(*word).help(*about),
    };
    let words = PossibleValuesParser::new(choices.iter().map(value));
    words.try_map(move |word| choices.iter().find(|choice| choice.1 == word).map(|choice| choice.0).ok_or("unknown value"))
}

/// Returns a parser that accepts the spellings of a type's values.
pub fn by_spelling<T: Spelling + Send + Sync>() -> impl TypedValueParser<Value = T> {
    one_of(T::spellings())
}

/// Returns a value's word on the command line; empty for a hidden value.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// Returns a value's word in a table; empty if the table does not contain the value.
pub fn word_for<T: PartialEq>(choices: &[Choice<T>], value: &T) -> &'static str {
    choices.iter().find(|choice| choice.0 == *value).map_or("", |choice| choice.1)
}
