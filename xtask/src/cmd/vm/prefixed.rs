//! An output whose lines begin with the number of a guest.

use std::io::{self, Write};

/// Writes each line with a prefix, as a whole.
pub(super) struct Prefixed<W: Write> {
    output: W,
    prefix: String,
    /// The begin of a line whose end has not been written yet.
    line: Vec<u8>,
}

impl<W: Write> Prefixed<W> {
    /// Writes to `output`.
    pub(super) fn new(output: W, prefix: String) -> Self {
        Self { output, prefix, line: Vec::new() }
    }

    /// Writes the line that has begun.
    fn write_line(&mut self) -> io::Result<()> {
        let line = [self.prefix.as_bytes(), &self.line, b"\n"].concat();
        self.line.clear();
        self.output.write_all(&line)
    }
}

impl<W: Write> Write for Prefixed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            match byte {
                b'\n' => self.write_line()?,
                byte => self.line.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl<W: Write> Drop for Prefixed<W> {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            // The reader of the output has gone.
            let _ = self.write_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Prefixed;
    use std::io::Write;

    #[test]
    fn each_line_has_the_prefix_and_an_end() {
        let mut text = Vec::new();
        let mut output = Prefixed::new(&mut text, "1: ".to_owned());
        for part in ["a", "b\n\nc", "\nd"] {
            output.write_all(part.as_bytes()).unwrap();
        }
        drop(output);
        assert_eq!(String::from_utf8(text).unwrap(), "1: ab\n1: \n1: c\n1: d\n");
    }
}
