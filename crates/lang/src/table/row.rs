//! Defines the notation for the rows of the function table.

/// A row: name, names in other versions of the language, type, effects, description, evaluation.
macro_rules! row {
    (
        $name:literal $([$($alias:literal),*])?, $signature:literal, $effects:expr, $description:literal, $meaning:expr
    ) => {
        Function {
            name: $name,
            aliases: &[$($($alias),*)?],
            signature: $signature,
            effects: $effects,
            description: $description,
            meaning: $meaning,
        }
    };
}
pub(super) use row;
