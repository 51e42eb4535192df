//! The blocks of a document: fenced lines, and the commands in those of `sh` and `console`. Nothing is run here.

/// A fenced block.
#[derive(Debug)]
pub(super) struct Block {
    /// The line of its fence, from 1.
    pub(super) line: usize,
    /// The word behind the fence.
    pub(super) language: String,
    pub(super) lines: Vec<String>,
    /// Empty unless the language is `sh` or `console`.
    pub(super) commands: Vec<Command>,
}

/// A command of a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// Its first line, from 1.
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) mark: Mark,
    /// Lines that it prints, in order; `...` stands for any text.
    pub(super) output: Vec<String>,
}

/// What a comment says about running a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    /// `[needs WHAT]`: it is not run.
    Needs(String),
    /// `[takes TIME]`: only its arguments are checked.
    Takes(String),
}

/// The blocks of a document.
///
/// # Errors
/// Words: a block does not end, a block of commands has none, or lines of one belong to no command.
pub(super) fn of(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let bare = line.trim_start();
        let indent = line.len().saturating_sub(bare.len());
        open = match (open.take(), bare.strip_prefix("```")) {
            (None, Some(language)) => {
                let language = language.trim().to_owned();
                Some((indent, Block { line: number, language, lines: vec![], commands: vec![] }))
            }
            (None, None) => None,
            (Some((_, mut block)), Some(_)) => {
                block.commands = match block.language.as_str() {
                    "sh" => commands(&block, |_| true)?,
                    "console" => commands(&block, |line| line.starts_with("$ "))?,
                    _ => Vec::new(),
                };
                blocks.push(block);
                None
            }
            (Some((indent, mut block)), None) => {
                // The fence of a list's item is indented with its text.
                block.lines.push(line.get(indent..).unwrap_or_default().to_owned());
                Some((indent, block))
            }
        };
    }
    match open {
        Some((_, block)) => Err(format!("the block of line {} has no end", block.line)),
        None => Ok(blocks),
    }
}

/// The commands of a block. The other lines are output, and indented lines belong to the command before them, as does `done`.
fn commands(block: &Block, is_command: impl Fn(&str) -> bool) -> Result<Vec<Command>, String> {
    let mut commands: Vec<Command> = Vec::new();
    for (number, line) in (block.line.saturating_add(1)..).zip(&block.lines) {
        let continued = block.language == "sh" && (line.starts_with(' ') || line == "done");
        match commands.last_mut() {
            Some(last) if continued => {
                last.text.push('\n');
                last.text.push_str(line);
            }
            _ if is_command(line) => commands.push(Command {
                line: number,
                text: line.strip_prefix("$ ").unwrap_or(line).to_owned(),
                mark: mark(line),
                output: Vec::new(),
            }),
            Some(last) => last.output.push(line.clone()),
            None => return Err(format!("line {number} belongs to no command")),
        }
    }
    if commands.is_empty() {
        return Err(format!("the block of line {} has no command", block.line));
    }
    Ok(commands)
}

fn mark(line: &str) -> Mark {
    let text = line.split_once(" # ").map_or("", |(_, comment)| comment);
    let said = |word: &str| Some(text.split_once(word)?.1.split_once(']')?.0.to_owned());
    said("[needs ")
        .map(Mark::Needs)
        .or_else(|| said("[takes ").map(Mark::Takes))
        .unwrap_or(Mark::None)
}

#[cfg(test)]
mod tests {
    use super::{Mark, of};

    #[test]
    fn commands_have_their_lines_marks_and_output() {
        let text = "a\n```sh\none  # b [needs root]\nfor x in 1; do\n    two\ndone\n```\n\n1. c\n\n   ```console\n   \
                    $ three &\n   said ...\n   $ four  # [takes hours]\n   ```\n";
        let blocks = of(text).unwrap();
        let all: Vec<_> = blocks.iter().flat_map(|b| &b.commands).collect();
        let texts: Vec<_> = all.iter().map(|c| (c.line, c.text.as_str())).collect();
        assert_eq!(
            texts,
            [
                (3, "one  # b [needs root]"),
                (4, "for x in 1; do\n    two\ndone"),
                (12, "three &"),
                (14, "four  # [takes hours]")
            ]
        );
        let (needs, takes) = (Mark::Needs("root".to_owned()), Mark::Takes("hours".to_owned()));
        let marks: Vec<_> = all.iter().map(|c| c.mark.clone()).collect();
        assert_eq!(marks, [needs, Mark::None, Mark::None, takes]);
        assert_eq!(all[2].output, ["said ..."]);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for text in ["```sh\na\n", "```console\na\n```\n", "```sh\n```\n"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
