//! Dependencies between the modules of hmc-core: allowed imports, and the two planes that may not import each other.
//!
//! Test modules are left out: they may import any module.

use super::finding::Finding;
use super::paths::{below, without_tests};
use crate::source::Source;
use crate::tree::Tree;

const CORE: &str = "hmc-core/src/";

/// The plane of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plane {
    Base,
    Data,
    Control,
}

use Plane::{Base, Control, Data};

/// Every module, its plane, and the modules that it may import besides the base modules. The modules of a folder count as one,
/// except those of `wire` and `ctrl`.
const MODULES: [(&str, Plane, &[&str]); 35] = [
    ("limits", Base, &[]),
    ("mutant", Base, &[]),
    ("time", Base, &[]),
    ("types", Base, &[]),
    ("place", Base, &[]),
    ("range", Base, &[]),
    ("region", Data, &[]),
    ("blocks", Data, &[]),
    ("window", Data, &["region"]),
    ("work", Data, &["region", "window"]),
    ("transport", Data, &["blocks", "region", "window", "work"]),
    ("device", Data, &["region"]),
    ("chunks", Data, &["region"]),
    ("slots", Data, &["work"]),
    ("rndv", Data, &["region", "window", "work"]),
    ("queue", Data, &["region", "slots", "transport", "work"]),
    ("pipeline", Data, &["chunks", "queue", "region", "slots", "transport", "work"]),
    ("wire/cursor", Control, &[]),
    ("wire/header", Control, &["wire/cursor"]),
    ("wire/reject", Control, &["wire/cursor"]),
    ("wire/advert", Control, &["region", "wire/cursor"]),
    ("wire/hello", Control, &["wire/advert", "wire/cursor"]),
    ("wire/proof", Control, &["wire/cursor", "wire/hello"]),
    ("wire/rndv", Control, &["region", "rndv", "wire/cursor"]),
    ("wire/cxx", Control, &["wire/cursor", "wire/header"]),
    // Windows are revoked by name and epoch.
    (
        "wire/message",
        Control,
        &[
            "region",
            "rndv",
            "wire/advert",
            "wire/cursor",
            "wire/header",
            "wire/hello",
            "wire/proof",
            "wire/reject",
            "wire/rndv",
        ],
    ),
    ("wire/data", Control, &["region", "window", "wire/cursor", "work"]),
    ("wire/held", Control, &["wire/data", "wire/message"]),
    ("ctrl/framer", Control, &["wire/*"]),
    ("ctrl/state", Control, &["wire/*"]),
    ("ctrl/io", Control, &["ctrl/state", "wire/*"]),
    ("ctrl/timers", Control, &["ctrl/io", "ctrl/state", "wire/*"]),
    ("ctrl/conn", Control, &["ctrl/framer", "ctrl/io", "ctrl/state", "ctrl/timers", "wire/*"]),
    ("ctrl/commands", Control, &["ctrl/conn", "ctrl/io", "ctrl/state", "ctrl/timers", "wire/*"]),
    ("ctrl/ranks", Control, &["ctrl/state", "wire/*"]),
];

/// Conversions: these modules of the control plane may import these of the data plane. Messages that revoke name a window and
/// its epoch, as adverts do; messages of a rendezvous belong to its module.
const CONVERSIONS: [(&str, &[&str]); 4] = [
    ("wire/advert", &["region"]),
    ("wire/message", &["region", "rndv"]),
    ("wire/rndv", &["region", "rndv"]),
    ("wire/data", &["region", "window", "work"]),
];

fn module(name: &str) -> Option<&'static (&'static str, Plane, &'static [&'static str])> {
    MODULES.iter().find(|(n, ..)| *n == name)
}

/// Returns the module that a path below the crate's root leads into.
fn target(segments: &[String]) -> Option<String> {
    match segments {
        [first, second, ..] if first == "wire" || first == "ctrl" => {
            Some(format!("{first}/{second}"))
        }
        [first, ..] => Some(first.clone()),
        [] => None,
    }
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for file in tree.rust().filter(|f| f.path.starts_with(CORE)) {
        let path = file.path.trim_start_matches(CORE).trim_end_matches(".rs");
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        let Some(name) = target(&segments) else {
            continue;
        };
        // Heads of folders only declare their modules.
        if name == "lib" || path.ends_with("/mod") || name == "wire" || name == "ctrl" {
            continue;
        }
        let Some((_, plane, may)) = module(&name) else {
            out.push(Finding::new(
                &file.path,
                0,
                "this module is in no row of the table of modules",
            ));
            continue;
        };
        let source = without_tests(Source::split(&file.text));
        for path in siblings(&source, &name).into_iter().chain(below(&source, "crate")) {
            let Some(to) = target(&path.segments).filter(|to| *to != name) else {
                continue;
            };
            let Some((_, to_plane, _)) = module(&to) else {
                out.push(Finding::new(
                    &file.path,
                    path.line,
                    format!("`{to}` is no module of hmc-core"),
                ));
                continue;
            };
            let conversion =
                CONVERSIONS.iter().any(|(b, modules)| *b == name && modules.contains(&to.as_str()));
            let within =
                may.contains(&to.as_str()) || (to.starts_with("wire/") && may.contains(&"wire/*"));
            let crosses = *to_plane != Base && to_plane != plane && !conversion;
            if crosses && *plane != Base {
                out.push(Finding::new(
                    &file.path,
                    path.line,
                    format!("{name} and {to} are in different planes"),
                ));
            } else if *to_plane != Base && !within {
                out.push(Finding::new(
                    &file.path,
                    path.line,
                    format!("{name} must not import {to}"),
                ));
            }
        }
    }
    out
}

/// Returns the paths of a module in a folder that begin with `super::`, as paths from the crate's root.
fn siblings(source: &Source, name: &str) -> Vec<super::paths::Below> {
    let Some((folder, _)) = name.split_once('/') else {
        return Vec::new();
    };
    let mut found = below(source, "super");
    for path in &mut found {
        path.segments.insert(0, folder.to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    fn findings(module: &str, text: &str) -> usize {
        check(&Tree::planted(&[(&format!("hmc-core/src/{module}.rs"), text)])).len()
    }

    #[test]
    fn listed_dependencies_pass() {
        assert_eq!(
            findings("queue", "use crate::work::Failure;\nuse crate::limits::MAX_SLOTS;"),
            0
        );
        assert_eq!(
            findings("wire/advert", "use crate::region::Epoch;\nuse super::cursor::Reader;"),
            0
        );
        assert_eq!(findings("wire/data", "use crate::window::WindowFault;"), 0);
        assert_eq!(
            findings("range", "#[cfg(test)]\nmod tests {\n use crate::queue::WorkQueue;\n}"),
            0
        );
        assert_eq!(findings("lib", "pub mod range;"), 0);
        assert_eq!(findings("slots/fail", "use crate::slots::Slots;\nuse super::list::List;"), 0);
    }

    #[test]
    fn planted_violations_are_found() {
        assert_eq!(findings("queue", "use crate::wire::cursor::Reader;"), 1);
        assert_eq!(findings("ctrl/state", "use crate::work::Failure;"), 1);
        assert_eq!(findings("wire/header", "fn f(x: crate::window::WindowState) {}"), 1);
        assert_eq!(findings("range", "use crate::region::Epoch;"), 1);
        assert_eq!(findings("region", "use crate::{window::WindowState, range::ByteRange};"), 1);
        assert_eq!(findings("wire/cursor", "use super::message::Message;"), 1);
        assert_eq!(findings("slots/fail", "use crate::queue::WorkQueue;"), 1);
        assert_eq!(findings("brand_new", ""), 1);
        assert_eq!(findings("queue", "use crate::Thing;"), 1);
    }
}
