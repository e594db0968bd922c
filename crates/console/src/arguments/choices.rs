//! Options whose values are those of a library's type: a table says the word of each and what it means.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use trodden_unit::experiment::Spelling;

/// A value, the word for it, and what help says of it; help says nothing if that is the word itself.
pub type Choice<T> = (T, &'static str, &'static str);

/// Reads one of these values by its word.
pub fn one_of<T: Copy + Send + Sync + 'static>(choices: impl IntoIterator<Item = Choice<T>>) -> impl TypedValueParser<Value = T> {
    let choices: Vec<Choice<T>> = choices.into_iter().collect();
    let value = |(_, word, about): &Choice<T>| match about == word {
        true => PossibleValue::new(*word),
        false => PossibleValue::new(*word).help(*about),
    };
    let words = PossibleValuesParser::new(choices.iter().map(value));
    words.try_map(move |word| choices.iter().find(|choice| choice.1 == word).map(|choice| choice.0).ok_or("there is no such value"))
}

/// Reads a value by its spelling.
pub fn spelled<T: Spelling + Send + Sync>() -> impl TypedValueParser<Value = T> {
    one_of(T::spellings())
}

/// The word for a value of an option's own type.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// The word for a value.
pub fn word_for<T: PartialEq>(choices: &[Choice<T>], value: &T) -> &'static str {
    choices.iter().find(|choice| choice.0 == *value).map_or("", |choice| choice.1)
}
