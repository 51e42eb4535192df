//! Every path that the code of a crate has, and where it leads.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, VisRestricted};

use super::load::{Bound, Program, imports, is_test};
use super::names::Target;

/// One name of another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The file that names, as an index of [`Graph::files`](super::Graph::files).
    pub(crate) from: usize,
    /// The file that defines.
    pub(crate) to: usize,
    /// The line of the name, from 1.
    pub(crate) line: usize,
    /// The name as it is written.
    pub(crate) name: String,
}

/// The names of other files, in the order of the files and their lines.
pub(super) fn edges(program: &Program) -> Vec<Edge> {
    let mut out = Vec::new();
    for (number, file) in program.files.iter().enumerate() {
        let mut visitor = Visitor { program, file: number, module: file.module, out: &mut out };
        for item in &file.items {
            visitor.visit_item(item);
        }
    }
    out
}

struct Visitor<'a> {
    program: &'a Program,
    file: usize,
    /// The module whose code is visited.
    module: usize,
    out: &'a mut Vec<Edge>,
}

impl Visitor<'_> {
    /// Notes where a path leads. A lone name of a module is none: it may be a variable's.
    fn path(&mut self, segments: &[String], line: usize, is_import: bool) {
        let Some(target) = self.program.resolve(self.module, segments) else {
            return;
        };
        if let Some(to) = self.program.file_of(target)
            && to != self.file
            && (is_import || segments.len() > 1 || matches!(target, Target::Item(_)))
        {
            self.out.push(Edge { from: self.file, to, line, name: segments.join("::") });
        }
    }

    /// A macro that another file defines.
    fn called(&mut self, segments: &[String], line: usize) {
        let to = segments.last().and_then(|name| self.program.macros.get(name));
        if let (Some(to), true) = (to, self.program.resolve(self.module, segments).is_none())
            && *to != self.file
        {
            self.out.push(Edge { from: self.file, to: *to, line, name: segments.join("::") });
        }
    }

    /// The paths among the tokens of a macro.
    fn tokens(&mut self, tokens: &TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons, mut dot) = (0, 0_u8, false);
        for token in tokens.clone() {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 && !path.is_empty() {
                        self.path(&std::mem::take(&mut path), line, false);
                    }
                    // `x.name` is a field or a method.
                    if !dot {
                        if path.is_empty() {
                            line = name.span().start().line;
                        }
                        path.push(name.to_string());
                    }
                    (colons, dot) = (0, false);
                }
                TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() && colons < 2 => {
                    colons = colons.saturating_add(1);
                }
                other => {
                    if !path.is_empty() {
                        self.path(&std::mem::take(&mut path), line, false);
                    }
                    dot = matches!(&other, TokenTree::Punct(p) if p.as_char() == '.');
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(&group.stream());
                    }
                }
            }
        }
        if !path.is_empty() {
            self.path(&path, line, false);
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let child = self.program.modules.get(self.module).and_then(|m| {
            m.names.get(&item.ident.to_string())?.iter().find_map(|b| match b {
                Bound::Module(child) => Some(*child),
                Bound::Item | Bound::Import(_) => None,
            })
        });
        if let (Some(child), Some((_, items))) = (child, &item.content) {
            let outer = std::mem::replace(&mut self.module, child);
            for item in items {
                self.visit_item(item);
            }
            self.module = outer;
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for (path, _) in imports(&mut Vec::new(), &item.tree) {
            self.path(&path, item.span().start().line, true);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.path(&segments, path.span().start().line, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let segments: Vec<String> =
            call.path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.called(&segments, call.span().start().line);
        self.tokens(&call.tokens);
        visit::visit_macro(self, call);
    }

    /// What derives and documentation name is no dependency of the code.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    /// Nor is the module up to which something is visible.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}
