//! Enumerations whose variants have names, in options, files and reports.

/// Gives an enumeration the names of its variants, which are listed in the order of their declaration.
macro_rules! names {
    ($type:ident { $($variant:ident $name:literal),* }) => {
        impl $type {
            /// All, in the order of their declaration.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// Its name in options, files and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),*
                }
            }

            /// That of a name.
            pub fn named(name: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}
pub(crate) use names;
