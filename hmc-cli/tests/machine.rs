//! `hmc doctor` and `hmc perf` on the machine that runs the tests.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use common::{Process, Scratch, hmc, names, run};

#[test]
fn the_doctor_finds_the_transports_working() {
    let s = Scratch::new();
    let uds = s.path("uds");
    let args = [OsStr::new("doctor"), "--json".as_ref(), "--uds".as_ref(), uds.as_os_str()];
    let report = run(args).well().json();
    assert_eq!(report["healthy"], true);
    let findings = report["findings"].as_array().unwrap();
    for name in ["environment", "loopback", "shm", "tcp", "memfd", "uds"] {
        let finding = findings.iter().find(|f| f["name"] == name).unwrap();
        assert_eq!(finding["state"], "works", "{finding}");
    }
    assert!(findings.iter().any(|f| f["state"] == "absent" && f["name"] == "gpus"));
    let opencl = findings.iter().find(|f| f["name"] == "opencl").unwrap();
    assert_ne!(opencl["what"].as_str().unwrap(), "", "{opencl}");
    assert_eq!(names(&s.path("")), [""; 0], "something was left");
    let text = run([OsStr::new("doctor"), "--uds".as_ref(), uds.as_os_str()]).well().stdout;
    assert!(text.contains("shm") && text.contains("not in this version"), "{text}");
    // What proves the same user, and what does without.
    for said in ["by the secret in", "C++ HMC", "any local user claim a free rank"] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

/// The doctor tries the OpenCL that is named and no other.
#[test]
fn the_doctor_says_why_there_is_no_opencl() {
    let mut command = hmc();
    let out =
        command.args(["doctor", "--json"]).env("HMC_OPENCL_LIB", "/nowhere").output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let opencl = findings.iter().find(|f| f["name"] == "opencl").unwrap();
    assert_eq!(opencl["state"], "without", "{opencl}");
    for said in ["/nowhere", "apt install", "HMC_OPENCL_LIB"] {
        assert!(opencl["what"].as_str().unwrap().contains(said), "{opencl}");
    }
}

#[test]
fn the_doctor_fails_where_something_needed_fails() {
    let s = Scratch::new();
    let open = s.dir("open");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ran = run([OsStr::new("doctor"), "--uds".as_ref(), open.as_os_str()]).badly(&["uds"]);
    assert!(ran.stdout.contains("FAILS") && ran.stdout.contains("to do"), "{}", ran.stdout);
}

/// Without a secret nothing goes over loopback TCP: the doctor says where that is mended.
#[test]
fn the_doctor_names_the_secret_that_cannot_be_had() {
    let s = Scratch::new();
    let secret = s.path("secret");
    std::fs::write(&secret, [1; 32]).unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let mut command = hmc();
    let out = command.arg("doctor").env("HMC_SECRET_FILE", &secret).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let text = String::from_utf8(out.stdout).unwrap();
    for said in ["chmod 600", secret.to_str().unwrap(), "see secret below", "HMC_SECRET_FILE"] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

/// Where the folder for trials cannot be made, shared memory fails, and what mends that is said; the rest is tried all the same.
#[test]
fn the_doctor_tries_the_rest_when_a_trial_fails() {
    let s = Scratch::new();
    let mut command = hmc();
    command.arg("doctor").arg("--uds").arg(s.path("uds")).env("TMPDIR", s.path("none/at/all"));
    let ran = Process::start(&mut command).ran().badly(&["does not work here: shm"]);
    for said in ["FAILS shm", "/tmp must be writable", "ok    loopback", "ok    tcp"] {
        assert!(ran.stdout.contains(said), "{said}: {}", ran.stdout);
    }
}

/// Limits of the process, as a shell sets them before it runs the doctor.
#[test]
fn the_doctor_names_limits_that_are_low() {
    let s = Scratch::new();
    let finding = |limit: &str, name: &str| {
        let mut shell = Command::new("sh");
        let program = hmc();
        shell.arg("-c").arg(format!("ulimit {limit} && exec \"$@\"")).arg("sh");
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.arg(program.get_program()).args(["doctor", "--json", "--uds"]).arg(s.path("uds"));
        let report = Process::start(&mut shell).ran().well().json();
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("{report}")).clone()
    };
    let files = |limit| finding(limit, "open files");
    assert_eq!(
        (&files("-Sn 1023")["state"], &files("-Sn 1024")["state"]),
        (&"without".into(), &"works".into())
    );
    let locked = finding("-Sl 64", "memlock")["what"].clone();
    assert!(locked.as_str().unwrap().starts_with("64.0 KiB "), "{locked}");
    assert_eq!(finding("-Sn 1024", "memory")["state"], "works");
}

/// A variable of the environment that makes no sense is not passed over: no command runs, and the doctor says why.
#[test]
fn a_variable_that_makes_no_sense_is_named() {
    let s = Scratch::new();
    for (name, given, form) in [
        ("HMC_TIMEOUT", "soon", "seconds"),
        ("HMC_TIMEOUT", "", "seconds"),
        ("HMC_SPIN_US", "-1", "whole microseconds"),
        ("HMC_NO_CMA", "yes", "1 (yes) or 0 (no)"),
    ] {
        let said = format!("{name}={given:?}: give {form}");
        let doctor = Process::start(hmc().arg("doctor").env(name, given)).ran();
        assert!(doctor.badly(&["environment"]).stdout.contains(&said), "{said}");
        let mut serve = hmc();
        serve.args(["serve", "--once", "--into"]).arg(s.path("")).arg("--uds").arg(s.path("u"));
        Process::start(serve.env(name, given)).ran().badly(&[&said]);
    }
}

#[test]
fn perf_measures_both_transports_and_draws() {
    let s = Scratch::new();
    for via in ["shm", "tcp"] {
        let args = ["perf", "--sizes", "8,64K,3M", "--iters", "20", "--via", via, "--depth", "4"];
        let report = run(args.into_iter().chain(["--json"])).well().json();
        assert_eq!(report["transport"], via);
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 6);
        for row in rows {
            let (p50, p99) = (row["p50_us"].as_f64().unwrap(), row["p99_us"].as_f64().unwrap());
            assert!(p50 > 0.0 && p99 >= p50 && row["gb_per_s"].as_f64().unwrap() > 0.0, "{row}");
        }
        let csv = run(args.into_iter().chain(["--csv", "--op", "get"])).well().stdout;
        assert_eq!(csv.lines().count(), 4, "{csv}");
        let columns = csv.lines().next().unwrap().split(',').count();
        for (line, size) in csv.lines().skip(1).zip(["8", "65536", "3145728"]) {
            let row: Vec<&str> = line.split(',').collect();
            assert_eq!(row.len(), columns, "{csv}");
            assert_eq!((row[0], row[1], row[columns - 1]), ("get", size, via), "{csv}");
            assert!(row[2..columns - 1].iter().all(|n| n.parse::<f64>().unwrap() > 0.0), "{csv}");
        }
        let path = s.path("a.svg");
        let plot = ["--plot", path.to_str().unwrap()];
        let table = run(args.into_iter().chain(plot)).well().stdout;
        assert!(table.contains("p99 us"), "{table}");
        let drawn = std::fs::read_to_string(&path).unwrap();
        let document = roxmltree::Document::parse(&drawn).unwrap();
        // A point for each size in the lines of bandwidth, p50 and p99 of puts and of gets.
        let points =
            |n: roxmltree::Node<'_, '_>| Some(n.attribute("points")?.split_whitespace().count());
        let lines = document.descendants().filter_map(points).filter(|count| *count == 3);
        assert_eq!(lines.count(), 6, "{drawn}");
        assert!(drawn.contains(&format!("bandwidth over {via}")), "{drawn}");
    }
    // Before minutes of measuring are lost.
    for other in ["a.png", "a.pdf"] {
        let ran = run(["perf", "--plot", other]).badly(&[other, "SVG only", "--plot a.svg"]);
        assert_eq!(ran.stdout, "", "nothing was measured");
    }
    for nowhere in [s.path("none/a.svg"), s.dir("b.svg")] {
        let plot = nowhere.to_str().unwrap();
        let ran = run(["perf", "--plot", plot]).badly(&[plot, "existing folder"]);
        assert_eq!(ran.stdout, "", "nothing was measured");
    }
    assert_eq!(run(["perf", "--sizes", "4X"]).code, Some(2));
    run(["perf", "--sizes", "0"]).badly(&["0 bytes"]);
}

/// A session of a command takes part in UCX only where that is asked for: without UCX it could not start.
#[test]
fn other_transports_need_no_ucx() {
    let perf = |via| {
        let mut command = hmc();
        command.args(["perf", "--sizes", "8", "--iters", "5", "--via", via]);
        Process::start(command.env("HMC_UCX_LIB", "/nowhere")).ran()
    };
    for via in ["auto", "shm", "tcp"] {
        perf(via).well();
    }
    perf("ucx").badly(&["/nowhere"]);
}

#[test]
fn perf_measures_against_a_peer_that_runs_already() {
    let s = Scratch::new();
    let uds = s.path("uds");
    let mut command = common::hmc();
    command.args(["perf", "--serve", "--json", "--buffer", "64K", "--uds"]).arg(&uds);
    let mut peer = common::Process::start(&mut command);
    let mut first = String::new();
    let mut out = std::io::BufReader::new(peer.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut first).unwrap();
    let uds = uds.to_str().unwrap();
    run(["perf", "--uds", uds, "--sizes", "8,64K", "--iters", "5"]).well();
    run(["perf", "--uds", uds, "--sizes", "128K", "--iters", "5"]).badly(&["65536", "--buffer"]);
    peer.signal(rustix::process::Signal::TERM);
    assert_eq!(peer.ended().code(), Some(130));
}

#[test]
fn help_names_units_and_every_command() {
    let help = run(["--help"]).well().stdout;
    for word in ["doctor", "serve", "put", "get", "perf", "GB/s", "Exit status"] {
        assert!(help.contains(word), "{word}");
    }
    for command in ["doctor", "serve", "put", "get", "perf"] {
        let help = run([command, "--help"]).well().stdout;
        assert!(help.contains("--json"), "{command}");
    }
    assert!(run(["--version"]).well().stdout.starts_with("hmc "));
}
