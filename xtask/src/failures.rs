//! The failed tests in the output of a test runner, and what each said: a run's last lines name them.

/// Lines shown of one failed test.
const LINES: usize = 12;

/// Failed tests shown of one run.
const TESTS: usize = 12;

/// Characters shown of one line.
const WIDTH: usize = 300;

/// The failed tests of a `cargo test` or a pytest, indented, with the first lines of what each printed; empty where none is named.
pub(crate) fn of(text: &str) -> String {
    let shown: Vec<String> = [of_harness(text), of_pytest(text)].concat();
    let more = match shown.len().saturating_sub(TESTS) {
        0 => String::new(),
        n => format!("\n  and {n} more"),
    };
    shown.iter().take(TESTS).map(|test| format!("\n  {test}")).collect::<String>() + &more
}

/// Blocks such as `---- a_test stdout ----`, which Rust's harness prints after the last test of a program.
fn of_harness(text: &str) -> Vec<String> {
    let mut tests = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" stdout ----"))
        else {
            continue;
        };
        let block: Vec<&str> =
            std::iter::from_fn(|| lines.next_if(|l| !l.starts_with("---- ") && *l != "failures:"))
                .collect();
        let said = block.iter().filter(|l| !l.trim().is_empty()).take(LINES);
        let test = said.fold(name.to_owned(), |test, line| format!("{test}\n    {}", cut(line)));
        tests.push(test);
    }
    tests
}

/// The lines `FAILED tests/test_a.py::test_b - why` and `ERROR ..` of pytest's short summary.
fn of_pytest(text: &str) -> Vec<String> {
    let is_failure = |line: &&str| {
        ["FAILED ", "ERROR "].iter().any(|word| line.starts_with(word)) && line.contains("::")
    };
    text.lines().filter(is_failure).map(cut).collect()
}

fn cut(line: &str) -> String {
    line.chars().take(WIDTH).collect()
}

#[cfg(test)]
mod tests {
    use super::{LINES, TESTS, of};

    const HARNESS: &str = "test a ... FAILED\ntest b ... ok\ntest c ... FAILED\n\nfailures:\n\n---- a stdout ----\n\n\
        thread 'a' panicked at tests/a.rs:3:5:\nleft: 1\n\n---- c stdout ----\nError: Timeout\n\n\nfailures:\n    a\n    c\n\n\
        test result: FAILED. 1 passed; 2 failed; 0 ignored\n";

    #[test]
    fn the_failed_tests_of_the_harness_are_named_with_their_output() {
        let wanted = "\n  a\n    thread 'a' panicked at tests/a.rs:3:5:\n    left: 1\n  c\n    Error: Timeout";
        assert_eq!(of(HARNESS), wanted);
        assert_eq!(of("test b ... ok\ntest result: ok. 1 passed; 0 failed\n"), "");
    }

    #[test]
    fn the_failed_tests_of_pytest_are_named_with_why() {
        let line = "FAILED tests/test_a.py::test_b[int8] - assert 1 == 2";
        assert_eq!(
            of(&format!("...F\n{line}\n1 failed, 3 passed in 0.1s\n")),
            format!("\n  {line}")
        );
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let long = "x".repeat(1000) + "\n";
        let block = |n: usize| format!("---- t{n} stdout ----\n{}\n", long.repeat(LINES * 2));
        let text: String = (0..TESTS + 5).map(block).collect();
        let shown = of(&text);
        assert!(shown.ends_with("\n  and 5 more"), "{}", &shown[shown.len() - 40..]);
        assert!(shown.lines().count() <= 2 + TESTS * (LINES + 1));
        assert!(shown.lines().all(|line| line.len() <= 310));
    }
}
