//! Prints the tables of docs/reference/export.md, to be put between its markers after a change of the elements.

fn main() {
    print!("{}", netgrain_export::document::tables());
}
