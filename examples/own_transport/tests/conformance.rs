//! The transport keeps the promises of the suite that those of HMC keep: all cases, without a skip.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use std::time::{Duration, Instant};

use hmc_conformance::transport::{IdleLimit, Subject, Support, cases, run};
use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::transport::Transport as _;
use hmc_core::types::{Access, Caps};
use hmc_std::Region;
use hmc_testkit::ends::{self, End};
use own_transport::domain::MemfileDomain;

/// Bytes around the window within its region, which nobody may touch.
const MARGIN: u64 = 96;
const MARGIN_BYTE: u8 = 0xA7;
const PATIENCE: Duration = Duration::from_secs(10);

/// Two ends of the transport in this process.
#[derive(Debug, Default)]
struct Pair {
    built: Option<Built>,
    tags: Vec<u64>,
}

#[derive(Debug)]
struct Built {
    near: End,
    far: Option<End>,
    near_region: Region,
    far_region: Region,
    local: LocalRegion,
    window: WindowDesc,
}

fn build(local_len: u64, window_len: u64, access: Access) -> hmc_std::Result<Built> {
    let (mut near, mut far) = ends::pair_of(&MemfileDomain, &MemfileDomain)?;
    let near_region = near.allocate(local_len)?;
    let local = near.add_memory(&near_region);
    let all = window_len + 2 * MARGIN;
    let far_region = far.allocate(all)?;
    let paint = vec![MARGIN_BYTE; usize::try_from(MARGIN).expect("small")];
    ends::write(&far_region, 0, &paint)?;
    ends::write(&far_region, all - MARGIN, &paint)?;
    let window = far.expose(&far_region, MARGIN, window_len, access)?;
    near.service();
    Ok(Built { near, far: Some(far), near_region, far_region, local, window })
}

impl Pair {
    fn built(&self) -> &Built {
        self.built.as_ref().expect("fresh was called")
    }

    fn built_mut(&mut self) -> &mut Built {
        self.built.as_mut().expect("fresh was called")
    }
}

impl Subject for Pair {
    type T = End;

    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String> {
        self.built = None;
        self.tags.clear();
        self.built = Some(build(local_len, window_len, access).map_err(|e| e.to_string())?);
        Ok(())
    }

    fn transport(&mut self) -> &mut End {
        &mut self.built_mut().near
    }

    fn local(&self) -> LocalRegion {
        self.built().local
    }

    fn remote(&self) -> WindowDesc {
        self.built().window
    }

    fn write_local(&mut self, offset: u64, bytes: &[u8]) {
        ends::write(&self.built().near_region, offset, bytes).expect("in range");
    }

    fn read_local(&mut self, offset: u64, out: &mut [u8]) {
        ends::read(&self.built().near_region, offset, out).expect("in range");
    }

    fn write_remote(&mut self, offset: u64, bytes: &[u8]) {
        ends::write(&self.built().far_region, MARGIN + offset, bytes).expect("in range");
    }

    fn read_remote(&mut self, offset: u64, out: &mut [u8]) {
        ends::read(&self.built().far_region, MARGIN + offset, out).expect("in range");
    }

    fn drive(&mut self) {
        let built = self.built_mut();
        if let Some(far) = &mut built.far {
            far.service();
        }
        built.near.service();
    }

    fn notifications(&mut self) -> Vec<u64> {
        if let Some(far) = &mut self.built_mut().far {
            let more = far.take_tags();
            self.tags.extend(more);
        }
        self.tags.clone()
    }

    fn revoke(&mut self) -> Support {
        let built = self.built_mut();
        let far = built.far.as_mut().expect("it lives");
        let passed = ends::revoke(far, &mut built.near, &built.window, PATIENCE);
        assert!(passed.expect("the window is open"), "no fence");
        Support::Done
    }

    fn kill_peer(&mut self) -> Support {
        let built = self.built_mut();
        // Dropping the end closes its connection, as the kernel does for a process that died.
        built.far = None;
        // A copy into a file needs no peer: it succeeds until the death is known.
        let limit = Instant::now() + PATIENCE;
        while !built.near.is_down() {
            built.near.service();
            assert!(Instant::now() < limit, "the death was not noticed");
        }
        Support::Done
    }

    fn check(&mut self) -> Result<(), String> {
        let region = &self.built().far_region;
        for offset in [0, region.len() - MARGIN] {
            let mut margin = [0; 96];
            ends::read(region, offset, &mut margin).map_err(|e| e.to_string())?;
            if let Some(at) = margin.iter().position(|b| *b != MARGIN_BYTE) {
                return Err(format!("byte {at} of the margin at {offset} was written"));
            }
        }
        Ok(())
    }

    fn idle_limit(&self) -> IdleLimit {
        IdleLimit { settle: 200, ..IdleLimit::REAL }
    }

    fn seed(&self) -> u64 {
        7
    }
}

#[test]
fn all_cases_pass_without_a_skip() {
    let report = run(Pair::default);
    report.assert_all_passed();
    assert_eq!(report.passed().count(), cases::<Pair>().len());
    println!("{} cases", report.passed().count());
}

#[test]
fn it_names_its_capabilities() {
    let (near, far) = ends::pair_of(&MemfileDomain, &MemfileDomain).expect("a pair");
    for end in [near, far] {
        assert_eq!(end.caps(), Caps::PUT | Caps::GET | Caps::NOTIFY | Caps::CANCEL);
    }
}

/// What can be reached is what was exposed, by a descriptor of no more rights.
#[test]
fn memory_that_has_no_file_is_not_exposed() {
    let (_near, mut far) = ends::pair_of(&MemfileDomain, &MemfileDomain).expect("a pair");
    let adopted = far.adopt(64).expect("memory");
    let refused = far.expose(&adopted, 0, 64, Access::READ).map_err(|e| e.kind());
    assert_eq!(refused, Err(hmc_std::ErrorKind::Unsupported));
    let own = far.allocate(64).expect("memory");
    let window = far.expose(&own, 0, 64, Access::READ);
    assert!(window.is_ok(), "its place is free again: {window:?}");
}
