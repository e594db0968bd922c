//! Options whose values are variants of a library's type. For each such type, a table lists the command-line words and their explanations.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use trodden_unit::experiment::Spelling;

/// A value, its word on the command line, and its explanation for help texts. The explanation is omitted in help if it equals the word.
pub type ArgumentChoice<T> = (T, &'static str, &'static str);

/// Returns a parser that accepts the words of these choices.
pub fn parser_of_choices<T: Copy + Send + Sync + 'static>(
    choices: impl IntoIterator<Item = ArgumentChoice<T>>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<ArgumentChoice<T>> = choices.into_iter().collect();
    let value = |(_, word, about): &ArgumentChoice<T>| match about == word {
        true => PossibleValue::new(*word),
        false => PossibleValue::new(*word).help(*about),
    };
    let words = PossibleValuesParser::new(choices.iter().map(value));
    words.try_map(move |word| choices.iter().find(|choice| choice.1 == word).map(|choice| choice.0).ok_or("unknown value"))
}

/// Returns a parser that accepts the words which [`Spelling`] defines for a type's values.
pub fn parser_by_spelling<T: Spelling + Send + Sync>() -> impl TypedValueParser<Value = T> {
    parser_of_choices(T::spellings())
}

/// Returns the command-line word of a value, or an empty string if help hides the value.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// Returns the word of a value in a table of choices, or an empty string if the table does not contain the value.
pub fn word_of_choice<T: PartialEq>(choices: &[ArgumentChoice<T>], value: &T) -> &'static str {
    choices.iter().find(|choice| choice.0 == *value).map_or("", |choice| choice.1)
}
