//! `cargo xtask documents`: runs each command block of the documents, word by word.
//!
//! The language of a fence says where its commands run: `sh` at the root of the repository, `console` in a folder that is empty at
//! the start of the document, with the command `hmc` in the path. The comment of a command may end in `[needs WHAT]`: it is not
//! run, and the reason is printed; or in `[takes TIME]`: only its arguments are checked, by `--help`, which is printed, too. Other
//! programs have checks of their own: a `rust` block must be a doctest, `python` blocks are run by `hmc-py/tests/test_docs.py`,
//! `json` must parse, and no other fence may hold commands.


#[cfg(test)]
mod blocks;
#[cfg(test)]
mod terminal;
