//! Rust source as the checks see it: code without comments and literals, comments without code.
//!
//! Not a parser. It knows comments (nested ones too), strings, raw strings, characters and
//! lifetimes, so that a word in a string or a comment is never taken for code.

/// One line, split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The code; every character of a literal is a blank, its quotes stay.
    pub(crate) code: String,
    /// The text of its comments with their `//`, `///` or `//!`.
    pub(crate) comment: String,
}

/// A file, split line by line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// The lines; the first is line 1 of the file.
    pub(crate) lines: Vec<Line>,
}

/// A word or a sign of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Its text: a name or number, or one sign.
    pub(crate) text: String,
    /// Its line, counted from 1.
    pub(crate) line: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Code,
    LineComment,
    BlockComment(usize),
    Text,
    RawText(usize),
}

/// What one character of a file belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// The code; the quotes of a literal too.
    Code,
    /// The inside of a text.
    Literal,
    /// A comment.
    Comment,
    /// A sign that stands for nothing by itself: of an escape, a raw string's frame, a block comment's ends.
    Frame,
}

/// What each character of a file belongs to; line ends are code.
fn classes(chars: &[char]) -> Vec<Class> {
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = Vec::with_capacity(chars.len());
    // The code of the line so far.
    let mut code = String::new();
    let mut mode = Mode::Code;
    while out.len() < chars.len() {
        let i = out.len();
        let c = at(i);
        let next = at(i.saturating_add(1));
        if c == '\n' {
            out.push(Class::Code);
            code.clear();
            if mode == Mode::LineComment {
                mode = Mode::Code;
            }
            continue;
        }
        match mode {
            Mode::Code => match (c, next) {
                ('/', '/') => {
                    mode = Mode::LineComment;
                    out.push(Class::Comment);
                }
                ('/', '*') => {
                    mode = Mode::BlockComment(1);
                    out.extend([Class::Frame; 2]);
                }
                ('"', _) => {
                    mode = Mode::Text;
                    out.push(Class::Code);
                }
                ('r', '"' | '#') if !ends_in_word(&code) || ends_in_literal_prefix(&code) => {
                    let hashes = (1..).take_while(|k| at(i.saturating_add(*k)) == '#').count();
                    let quote = i.saturating_add(hashes).saturating_add(1);
                    if at(quote) == '"' {
                        mode = Mode::RawText(hashes);
                        out.extend((i..quote).map(|_| Class::Frame));
                    }
                    out.push(Class::Code);
                }
                ('\'', _) => {
                    // A character literal ends with a quote; a lifetime has none.
                    let close = if next == '\\' {
                        (2..12).find(|k| *k > 2 && at(i.saturating_add(*k)) == '\'')
                    } else if at(i.saturating_add(2)) == '\'' {
                        Some(2_usize)
                    } else {
                        None
                    };
                    out.push(Class::Code);
                    if let Some(close) = close {
                        out.extend((1..close).map(|_| Class::Frame));
                        out.push(Class::Code);
                    }
                }
                _ => out.push(Class::Code),
            },
            Mode::LineComment => out.push(Class::Comment),
            Mode::BlockComment(depth) => match (c, next) {
                ('*', '/') => {
                    mode = if depth <= 1 {
                        Mode::Code
                    } else {
                        Mode::BlockComment(depth.saturating_sub(1))
                    };
                    out.extend([Class::Frame; 2]);
                }
                ('/', '*') => {
                    mode = Mode::BlockComment(depth.saturating_add(1));
                    out.extend([Class::Frame; 2]);
                }
                _ => out.push(Class::Comment),
            },
            Mode::Text => match c {
                // An escaped line end must not swallow the line.
                '\\' if next != '\n' => out.extend([Class::Frame; 2]),
                '"' => {
                    mode = Mode::Code;
                    out.push(Class::Code);
                }
                _ => out.push(Class::Literal),
            },
            Mode::RawText(hashes) => {
                if c == '"' && (1..=hashes).all(|k| at(i.saturating_add(k)) == '#') {
                    mode = Mode::Code;
                    out.push(Class::Code);
                    out.extend((0..hashes).map(|_| Class::Frame));
                } else {
                    out.push(Class::Literal);
                }
            }
        }
        let seen = out.get(i..).unwrap_or_default().iter().zip(chars.get(i..).unwrap_or_default());
        code.extend(seen.filter(|(class, _)| **class == Class::Code).map(|(_, c)| *c));
    }
    // The sign after a last, lone backslash is not there.
    out.truncate(chars.len());
    out
}

/// A file's characters, those of comments and literals as blanks: each place means the same in both.
pub(crate) fn masked(chars: &[char]) -> Vec<char> {
    let blank = |(class, c): (Class, &char)| match class {
        Class::Code => *c,
        Class::Literal | Class::Comment | Class::Frame => ' ',
    };
    classes(chars).into_iter().zip(chars).map(blank).collect()
}

impl Source {
    /// Splits a file.
    pub(crate) fn split(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut lines = Vec::new();
        let mut line = Line::default();
        for (class, &c) in classes(&chars).into_iter().zip(&chars) {
            match class {
                _ if c == '\n' => lines.push(std::mem::take(&mut line)),
                Class::Code => line.code.push(c),
                Class::Literal => line.code.push(' '),
                Class::Comment => line.comment.push(c),
                Class::Frame => {}
            }
        }
        lines.push(line);
        Self { lines }
    }

    /// The code as tokens.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let mut out: Vec<Token> = Vec::new();
        for (line, number) in self.lines.iter().zip(1_usize..) {
            let mut word = String::new();
            for c in line.code.chars().chain(std::iter::once(' ')) {
                if is_word(c) {
                    word.push(c);
                    continue;
                }
                if !word.is_empty() {
                    out.push(Token { text: std::mem::take(&mut word), line: number });
                }
                if !c.is_whitespace() {
                    out.push(Token { text: c.to_string(), line: number });
                }
            }
        }
        out
    }

    /// The code alone, one line after the other.
    pub(crate) fn code(&self) -> String {
        self.lines.iter().map(|l| l.code.as_str()).collect::<Vec<_>>().join("\n")
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_in_word(code: &str) -> bool {
    code.chars().next_back().is_some_and(is_word)
}

/// `b` of `br"..."` and `c` of `cr"..."`, standing alone.
fn ends_in_literal_prefix(code: &str) -> bool {
    let mut back = code.chars().rev();
    matches!(back.next(), Some('b' | 'c')) && !back.next().is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::{Source, masked};

    #[test]
    fn words_in_literals_and_comments_are_no_code() {
        let s = Source::split(
            "let a = \"unsafe // no\"; // unsafe here\nlet b = r#\"x \"unsafe\" y\"#; /* unsafe\n /* deep */ more */ let c = '\"';\nlet d: &'static str = b'\\''; f(br\"q\");",
        );
        assert!(!s.code().contains("unsafe"), "{}", s.code());
        assert_eq!(s.lines[0].comment, "// unsafe here");
        assert!(s.lines[2].code.contains("let c = ''"), "{:?}", s.lines[2]);
        assert!(s.lines[3].code.contains("&'static str"), "{:?}", s.lines[3]);
        assert!(s.lines[3].code.contains("f("), "{:?}", s.lines[3]);
    }

    #[test]
    fn a_text_over_lines_keeps_the_count_of_lines() {
        let s = Source::split("let a = \"one \\\n two\n three\";\nunsafe {}");
        assert_eq!(s.lines.len(), 4);
        let unsafe_at = s.tokens().iter().find(|t| t.text == "unsafe").map(|t| t.line);
        assert_eq!(unsafe_at, Some(4));
    }

    #[test]
    fn tokens_are_words_and_single_signs() {
        let texts: Vec<String> = Source::split("pub fn f<'a>(x: &'a u8) {}")
            .tokens()
            .into_iter()
            .map(|t| t.text)
            .collect();
        assert_eq!(texts.join(" "), "pub fn f < ' a > ( x : & ' a u8 ) { }");
    }

    #[test]
    fn a_mask_keeps_every_place() {
        let text = "let a = \"{ \\\" {\"; /* { */ let b = '{'; // {\nlet c = r#\"{\"#; fn d() {}\n";
        let chars: Vec<char> = text.chars().collect();
        let mask: String = masked(&chars).into_iter().collect();
        assert_eq!(mask.chars().count(), chars.len());
        let open: Vec<usize> = mask.match_indices('{').map(|(at, _)| at).collect();
        assert_eq!(open, [text.len() - 3], "{mask}");
        assert!(mask.contains("let b = ' ';") && mask.contains("let c =   \" \" ;"), "{mask}");
    }
}
