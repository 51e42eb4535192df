//! Compares `sys` and `functions` with the installed header of OpenCL, by a C compiler.

mod faults;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use super::sys::CONSTANTS;

const FUNCTIONS: &str = include_str!("functions.rs");

/// C's name of a type that is declared in Rust.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(to));
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(to));
    }
    match rust {
        "c_void" => "void".to_owned(),
        "usize" => "size_t".to_owned(),
        "Notify" => "void (*)(const char *, const void *, size_t, void *)".to_owned(),
        name => name.to_owned(),
    }
}

/// The declared functions as assertions in C: `clFlush` has the type `cl_int (*)(cl_command_queue)`.
fn assertions() -> (usize, String) {
    let mut text = String::new();
    for part in FUNCTIONS.split("            fn ").skip(1) {
        let declared = part.split(';').next().unwrap();
        let (name, rest) = declared.split_once('(').unwrap();
        let (arguments, result) = rest.split_once(") -> ").unwrap();
        let arguments: Vec<_> = arguments
            .split(',')
            .filter_map(|argument| argument.split_once(':'))
            .map(|(_, kind)| c_type(kind))
            .collect();
        let kind = format!("{} (*)({})", c_type(result), arguments.join(", "));
        writeln!(
            text,
            "_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {kind}), \"{name}\");"
        )
        .unwrap();
    }
    let count = text.lines().count();
    for (name, value) in CONSTANTS {
        writeln!(
            text,
            "_Static_assert((unsigned long long)(long long){name} == {value}ull, \"{name}\");"
        )
        .unwrap();
    }
    (count, text)
}

fn compile(text: &str) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("hmc-opencl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("declared.c");
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").args(["-fsyntax-only", "-w"]).arg(&source).output();
    std::fs::remove_dir_all(&folder).unwrap();
    match compiled {
        Err(e) => Err(format!("no C compiler (cc: {e})")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn everything_is_as_in_the_installed_header() {
    const HEAD: &str =
        "#define CL_TARGET_OPENCL_VERSION 300\n#include <stddef.h>\n#include <CL/cl.h>\n";
    let (count, text) = assertions();
    assert_eq!(count, FUNCTIONS.matches("fn cl").count());
    if let Err(why) = compile(HEAD) {
        let is_missing = why.contains("CL/cl.h: No such file") || why.contains("no C compiler");
        assert!(is_missing, "the header does not compile: {why}");
        // The way of `hmc_tests::env::skipped`: a line that people and scripts see.
        let line = "\nSKIPPED: CL/cl.h is not installed (apt install opencl-c-headers), or no C compiler\n";
        return std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
    assert_eq!(compile(&format!("{HEAD}{text}")), Ok(()));
    // It finds a wrong type, and a wrong value.
    for (right, wrong, what) in [
        ("cl_bool, size_t, size_t, void *", "cl_bool, cl_uint, size_t, void *", "clEnqueueRead"),
        ("CL_DEVICE_GLOBAL_MEM_SIZE == 4127", "CL_DEVICE_GLOBAL_MEM_SIZE == 4128", "GLOBAL_MEM"),
    ] {
        let planted = text.replace(right, wrong);
        assert_ne!(planted, text, "{right}");
        let said = compile(&format!("{HEAD}{planted}")).unwrap_err();
        assert!(said.contains(what), "{said}");
    }
}
