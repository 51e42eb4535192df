//! The Python package borrows no bytes of Python objects: other Python threads may write them while a call of ours waits, and a
//! slice over bytes that somebody writes is undefined. They are reached by views (`SharedBytes`), which copy.

use super::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// What makes a slice of an address, or of an object that others have.
const BORROWS: [&str; 6] = [
    "from_raw_parts",
    "from_ptr_range",
    "from_mut_ptr_range",
    "PyBuffer::",
    "PyBuffer<",
    ".as_bytes_mut(",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in tree.rust().filter(|f| f.path.starts_with("hmc-py/src/")) {
        for (line, number) in Source::split(&file.text).lines.iter().zip(1_usize..) {
            for word in BORROWS.iter().filter(|word| line.code.contains(**word)) {
                let what = format!(
                    "`{}` borrows memory that Python code may write: use a view (`data::Bytes::view`), or read value by value",
                    word.trim_matches(['.', '(', '<', ':'])
                );
                out.push(Finding::new(&file.path, number, what));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    #[test]
    fn planted_borrows_are_found_in_the_python_package_alone() {
        for (line, count) in [
            ("let s = unsafe { std::slice::from_raw_parts(start, len) };", 1),
            ("let s = unsafe { slice::from_raw_parts_mut(start, len) };", 1),
            ("let b = PyBuffer::<u8>::get(obj)?;", 1),
            ("fn all(b: &PyBuffer<u8>) {}", 1),
            ("let s = unsafe { array.as_bytes_mut() };", 1),
            ("let v = bytes.view();", 0),
            ("unsafe { ffi::PyBuffer_Release(view) };", 0),
            ("// from_raw_parts would be wrong", 0),
        ] {
            assert_eq!(check(&Tree::planted(&[("hmc-py/src/a.rs", line)])).len(), count, "{line}");
            assert_eq!(check(&Tree::planted(&[("hmc-std/src/a.rs", line)])).len(), 0, "{line}");
        }
    }
}
