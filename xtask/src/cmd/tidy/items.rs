//! Items of a Rust file as far as checks of tests need them: modules, functions with their bodies, and on what conditions
//! they are compiled.
//!
//! Not a parser: it follows braces and attributes. What a macro makes of its arguments is not known, but functions that are
//! written out in them are seen.

use crate::source::{Source, Token};
use std::ops::Range;

/// A declaration `mod name;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// The modules within the file that it stands in, and its own name.
    pub(super) path: Vec<String>,
    /// The value of `#[path = ".."]`.
    pub(super) file: Option<String>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Its name.
    pub(super) name: String,
    /// Whether it has `#[test]`.
    pub(super) is_test: bool,
    /// The reason of an `#[ignore]`, empty if it gives none.
    pub(super) ignored: Option<String>,
    /// Whether it has `#[should_panic]`.
    pub(super) panics: bool,
    /// Its body, as a range of the tokens.
    pub(super) body: Range<usize>,
}

/// What of a file is compiled in a build of tests.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    /// All tokens of the file.
    pub(super) tokens: Vec<Token>,
    /// Modules in other files.
    pub(super) modules: Vec<Module>,
    /// Functions, also those within others.
    pub(super) functions: Vec<Function>,
}

/// A block that is open.
struct Block {
    /// Its name, for a module.
    module: Option<String>,
    /// Whether it is compiled.
    live: bool,
}

/// An attribute: its first words, and its lines.
struct Attribute {
    tokens: Range<usize>,
    lines: Range<usize>,
}

impl Items {
    /// Reads a file, for a build with `--cfg loom` or without.
    pub(super) fn of(text: &str, loom: bool) -> Self {
        let tokens = Source::split(text).tokens();
        let lines: Vec<&str> = text.lines().collect();
        let mut scan = Scan {
            tokens: &tokens,
            lines: &lines,
            loom,
            modules: Vec::new(),
            functions: Vec::new(),
        };
        scan.run();
        let Scan { modules, functions, .. } = scan;
        Self { tokens, modules, functions }
    }

    /// The words of a body.
    pub(super) fn words(&self, body: &Range<usize>) -> Vec<&str> {
        self.tokens.get(body.clone()).unwrap_or_default().iter().map(|t| t.text.as_str()).collect()
    }
}

struct Scan<'a> {
    tokens: &'a [Token],
    lines: &'a [&'a str],
    loom: bool,
    modules: Vec<Module>,
    functions: Vec<Function>,
}

impl Scan<'_> {
    fn word(&self, i: usize) -> &str {
        self.tokens.get(i).map_or("", |t| t.text.as_str())
    }

    fn run(&mut self) {
        let mut blocks: Vec<Block> = vec![Block { module: None, live: true }];
        let mut attributes: Vec<Attribute> = Vec::new();
        let mut i = 0_usize;
        while i < self.tokens.len() {
            let live = blocks.last().is_some_and(|block| block.live);
            let mut next = i.saturating_add(1);
            match self.word(i) {
                "#" => {
                    let inner = self.word(next) == "!";
                    let open = next.saturating_add(usize::from(inner));
                    if self.word(open) == "[" {
                        let attribute = self.attribute(open);
                        next = attribute.tokens.end.saturating_add(1);
                        if !inner {
                            attributes.push(attribute);
                        } else if !self.is_compiled(std::slice::from_ref(&attribute))
                            && let Some(block) = blocks.last_mut()
                        {
                            block.live = false;
                        }
                    }
                }
                "mod" => {
                    let (name, sign) = (self.word(next).to_owned(), next.saturating_add(1));
                    let live = live && self.is_compiled(&attributes);
                    if self.word(sign) == ";" && live {
                        let around = blocks.iter().filter_map(|block| block.module.clone());
                        let path = around.chain([name]).collect();
                        let file = self.text_of(&attributes, "path");
                        self.modules.push(Module { path, file });
                    } else if self.word(sign) == "{" {
                        blocks.push(Block { module: Some(name), live });
                        next = sign.saturating_add(1);
                    }
                    attributes.clear();
                }
                "fn" => {
                    let live = live && self.is_compiled(&attributes);
                    if live && let Some(function) = self.function(i, &attributes) {
                        self.functions.push(function);
                    }
                    // The body's own block tells what of it is compiled: the attributes are for it too.
                    if let Some(open) = self.opening(i) {
                        blocks.push(Block { module: None, live });
                        next = open.saturating_add(1);
                    }
                    attributes.clear();
                }
                "{" => {
                    let live = live && self.is_compiled(&attributes);
                    blocks.push(Block { module: None, live });
                    attributes.clear();
                }
                "}" => {
                    if blocks.len() > 1 {
                        blocks.pop();
                    }
                    attributes.clear();
                }
                ";" => attributes.clear(),
                _ => {}
            }
            i = next;
        }
    }

    /// The attribute whose `[` is at `open`.
    fn attribute(&self, open: usize) -> Attribute {
        let mut end = open.saturating_add(1);
        let mut depth = 1_usize;
        while end < self.tokens.len() {
            match self.word(end) {
                "[" => depth = depth.saturating_add(1),
                "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                break;
            }
            end = end.saturating_add(1);
        }
        let line = |i: usize| self.tokens.get(i).map_or(0, |t| t.line);
        Attribute {
            tokens: open.saturating_add(1)..end,
            lines: line(open).saturating_sub(1)..line(end),
        }
    }

    /// The text between quotes in the attribute of that name.
    fn text_of(&self, attributes: &[Attribute], name: &str) -> Option<String> {
        let one = attributes.iter().find(|a| self.word(a.tokens.start) == name)?;
        let lines = self.lines.get(one.lines.clone())?.join("\n");
        let (_, after) = lines.split_once(name)?;
        Some(after.split_once('"')?.1.split_once('"')?.0.to_owned())
    }

    /// Whether all `#[cfg(..)]` among them hold.
    fn is_compiled(&self, attributes: &[Attribute]) -> bool {
        attributes.iter().all(|a| {
            self.word(a.tokens.start) != "cfg" || self.holds(&mut a.tokens.start.saturating_add(2))
        })
    }

    /// Evaluates the condition at `i`, and leaves `i` behind it. One that is not known does not hold.
    fn holds(&self, i: &mut usize) -> bool {
        let name = self.word(*i).to_owned();
        *i = i.saturating_add(1);
        if self.word(*i) != "(" {
            if self.word(*i) == "=" {
                // `=`, and the two quotes around a text that is not kept.
                *i = i.saturating_add(3);
            }
            return match name.as_str() {
                "loom" => self.loom,
                "test" | "unix" | "feature" | "target_os" | "target_arch" | "target_env"
                | "debug_assertions" => true,
                _ => false,
            };
        }
        *i = i.saturating_add(1);
        let (mut all, mut any) = (true, false);
        while *i < self.tokens.len() && self.word(*i) != ")" {
            if self.word(*i) == "," {
                *i = i.saturating_add(1);
                continue;
            }
            let one = self.holds(i);
            all &= one;
            any |= one;
        }
        *i = i.saturating_add(1);
        match name.as_str() {
            "all" => all,
            "any" => any,
            "not" => !any,
            _ => false,
        }
    }

    /// Where the body of the function at `i` begins.
    fn opening(&self, i: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for k in i.saturating_add(1)..self.tokens.len() {
            match self.word(k) {
                "(" | "[" => depth = depth.saturating_add(1),
                ")" | "]" => depth = depth.saturating_sub(1),
                "{" if depth == 0 => return Some(k),
                ";" | "}" if depth == 0 => return None,
                _ => {}
            }
        }
        None
    }

    fn function(&self, i: usize, attributes: &[Attribute]) -> Option<Function> {
        let open = self.opening(i)?;
        let mut depth = 0_usize;
        let end = (open..self.tokens.len()).find(|k| {
            match self.word(*k) {
                "{" => depth = depth.saturating_add(1),
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0
        })?;
        let has = |name: &str| {
            attributes.iter().any(|a| {
                // `#[test]`, not `#[cfg(test)]`.
                self.word(a.tokens.start) == name && a.tokens.start < a.tokens.end
            })
        };
        let by_condition = attributes.iter().any(|a| {
            let mut at = a.tokens.start.saturating_add(2);
            self.word(a.tokens.start) == "cfg_attr"
                && self.holds(&mut at)
                && (at..a.tokens.end).any(|k| self.word(k) == "ignore")
        });
        let ignored = (has("ignore") || by_condition)
            .then(|| self.text_of(attributes, "ignore").unwrap_or_default());
        Some(Function {
            name: self.word(i.saturating_add(1)).to_owned(),
            is_test: has("test"),
            ignored,
            panics: has("should_panic"),
            body: open.saturating_add(1)..end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Items, Module};

    fn names(text: &str, loom: bool) -> Vec<String> {
        let items = Items::of(text, loom);
        items.functions.into_iter().filter(|f| f.is_test).map(|f| f.name).collect()
    }

    #[test]
    fn only_what_is_compiled_is_seen() {
        for (text, seen) in [
            ("#[test]\nfn a() {}", true),
            ("#[cfg(test)]\nmod tests {\n#[test]\nfn a() {}\n}", true),
            ("#[cfg(all(test, not(loom)))]\nmod tests { #[test] fn a() {} }", true),
            ("#![cfg(all(target_os = \"linux\", not(loom)))]\n#[test]\nfn a() {}", true),
            ("proptest! { #[test]\n #[cfg(unix)] fn a(x: [u8; 4]) {} }", true),
            ("#[cfg(not(unknown))]\n#[test]\nfn a() {}", true),
            ("#[cfg(unknown)]\nmod tests { #[test] fn a() {} }", false),
            ("#[test]\n#[cfg(any())]\nfn a() {}", false),
            ("#[cfg(not(test))]\nmod tests {\n mod deep { #[test] fn a() {} } }", false),
            ("#![cfg(loom)]\n#[test]\nfn a() {}", false),
            ("fn b() {}\n#[cfg(test)]\nfn a() {}", false),
            ("// #[test] fn a() {}\nfn a() {}", false),
        ] {
            assert_eq!(names(text, false).contains(&"a".to_owned()), seen, "{text}");
        }
        assert_eq!(names("#![cfg(loom)]\n#[test]\nfn a() {}", true), ["a"]);
    }

    #[test]
    fn an_item_after_a_block_that_is_left_out_is_seen() {
        let text = "#[cfg(unknown)]\nmod x { fn f() { if a { b } } }\n#[test]\nfn a() {}";
        assert_eq!(names(text, false), ["a"]);
    }

    #[test]
    fn modules_in_other_files_are_named_with_their_place() {
        let text = "mod a;\n#[path = \"x/y.rs\"]\npub mod b;\nmod c { mod d; }\n#[cfg(x)]\nmod e;";
        let module = |path: &[&str], file: Option<&str>| Module {
            path: path.iter().map(|s| (*s).to_owned()).collect(),
            file: file.map(str::to_owned),
        };
        let want =
            [module(&["a"], None), module(&["b"], Some("x/y.rs")), module(&["c", "d"], None)];
        assert_eq!(Items::of(text, false).modules, want);
    }

    #[test]
    fn an_ignored_test_is_known_wherever_the_attribute_stands() {
        let ignored = |text: &str| Items::of(text, false).functions[0].ignored.clone();
        assert_eq!(ignored("#[test]\nfn a() {}"), None);
        assert_eq!(ignored("#[test]\n#[ignore]\nfn a() {}"), Some(String::new()));
        assert_eq!(ignored("#[ignore = \"why: x\"]\n#[test]\nfn a() {}"), Some("why: x".into()));
        assert_eq!(ignored("#[test]\n#[cfg_attr(miri, ignore = \"x\")]\nfn a() {}"), None);
        assert_eq!(ignored("#[test]\n#[cfg_attr(unix, ignore)]\nfn a() {}"), Some(String::new()));
    }

    #[test]
    fn a_body_is_what_stands_between_its_braces() {
        let items = Items::of("fn a(x: [u8; 3]) -> u8 { if x { y } z }\nfn b();", false);
        assert_eq!(items.functions.len(), 1);
        assert_eq!(items.words(&items.functions[0].body).join(" "), "if x { y } z");
    }
}
