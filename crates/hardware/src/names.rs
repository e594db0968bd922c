//! Enumerations with named variants, for options, files and reports.

/// Implements `ALL`, `name` and `from_name` for an enumeration. Variants must be listed in the order of their declaration.
macro_rules! names {
    ($type:ident { $($variant:ident $name:literal),* }) => {
        impl $type {
            /// All variants, in the order of their declaration.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// Returns the name used in options, files and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),*
                }
            }

            /// Returns the variant with the given name; `None` if there is none.
            pub fn from_name(name: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}
pub(crate) use names;
