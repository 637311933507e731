//! Prints the tables of docs/reference/export.md. After a change of the elements, copy the printed tables between the
//! markers of that page.

fn main() {
    print!("{}", netgrain_export::document::tables());
}
