//! Every transport of hmc-std keeps the promises of the suite that the simulated one keeps.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::transport::Transport as _;
use hmc_core::types::{Access, Caps};
use hmc_sim::conformance::transport::{IdleLimit, Subject, Support, run};
use hmc_std::Region;
use hmc_testkit::ends::{self, End};
use hmc_testkit::wire::Wire;
use hmc_tests::fake_ibv::{self, FakeIbv};
use hmc_tests::links;

/// Bytes around the window within its region, which nobody may touch.
const MARGIN: u64 = 96;
const MARGIN_BYTE: u8 = 0xA7;

/// Two ends of a transport of hmc-std in this process.
#[derive(Debug)]
struct Pair {
    wire: Wire,
    /// Whether the target's memory is adopted instead of allocated, which cannot be mapped.
    adopted: bool,
    /// The library of RDMA verbs, if it is not the installed one.
    library: Option<PathBuf>,
    built: Option<Built>,
    tags: Vec<u64>,
}

#[derive(Debug)]
struct Built {
    wire: Wire,
    near: End,
    far: Option<End>,
    near_region: Region,
    far_region: Region,
    local: LocalRegion,
    window: WindowDesc,
}

impl Pair {
    const fn new(wire: Wire, adopted: bool) -> Self {
        Self { wire, adopted, library: None, built: None, tags: Vec::new() }
    }

    fn built(&self) -> &Built {
        self.built.as_ref().expect("fresh was called")
    }

    fn built_mut(&mut self) -> &mut Built {
        self.built.as_mut().expect("fresh was called")
    }

    fn build(&self, local_len: u64, window_len: u64, access: Access) -> hmc_std::Result<Built> {
        let (mut near, mut far) = match &self.library {
            None => ends::pair(self.wire)?,
            Some(library) => {
                let (near, far) = ends::rdma_pair(Some(library))?;
                (near, Some(far))
            }
        };
        let near_region = near.allocate(local_len)?;
        let local = near.add_memory(&near_region);
        let owner = far.as_mut().unwrap_or(&mut near);
        let all = window_len + 2 * MARGIN;
        let far_region = if self.adopted {
            owner.adopt(usize::try_from(all).expect("small"))?
        } else {
            owner.allocate(all)?
        };
        let paint = vec![MARGIN_BYTE; usize::try_from(MARGIN).expect("small")];
        ends::write(&far_region, 0, &paint)?;
        ends::write(&far_region, all - MARGIN, &paint)?;
        let window = owner.expose(&far_region, MARGIN, window_len, access)?;
        // What it told of the window.
        near.service();
        let limit = Instant::now() + Duration::from_secs(5);
        let mappable = matches!(self.wire, Wire::Shm { .. }) && !self.adopted;
        while mappable && !near.is_settled(&window) {
            near.service();
            if let Some(far) = &mut far {
                far.service();
            }
            assert!(Instant::now() < limit, "the window was not mapped");
        }
        Ok(Built { wire: self.wire, near, far, near_region, far_region, local, window })
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        if self.wire == Wire::Rdma {
            links::moved("rdma", self.near.bytes_offloaded());
        }
    }
}

impl Subject for Pair {
    type T = End;

    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String> {
        self.built = None;
        self.tags.clear();
        self.built = Some(self.build(local_len, window_len, access).map_err(|e| e.to_string())?);
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
        let built = self.built_mut();
        let more = built.far.as_mut().unwrap_or(&mut built.near).take_tags();
        self.tags.extend(more);
        self.tags.clone()
    }

    fn revoke(&mut self) -> Support {
        let built = self.built_mut();
        let window = built.window;
        let limit = Duration::from_secs(5);
        let passed = match &mut built.far {
            None => built.near.revoke(&window, limit),
            Some(far) => ends::revoke(far, &mut built.near, &window, limit),
        };
        let passed = passed.expect("the window is open");
        assert!(passed, "no fence");
        Support::Done
    }

    fn kill_peer(&mut self) -> Support {
        let shm = matches!(self.wire, Wire::Shm { .. });
        let built = self.built_mut();
        // Dropping the end closes its socket, as the kernel does for a process that died.
        if built.far.take().is_none() {
            return Support::Unsupported("one process cannot outlive itself");
        }
        // A copy into mapped pages needs no peer: it succeeds until the death is known.
        let limit = Instant::now() + Duration::from_secs(5);
        while shm && !built.near.is_down() {
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
        IdleLimit { turns: u64::MAX, time: Duration::from_secs(10), settle: 200 }
    }

    fn seed(&self) -> u64 {
        7
    }
}

fn passes(wire: Wire, adopted: bool, skipped: &[&str]) {
    run(|| Pair::new(wire, adopted)).assert_passed_but(&format!("{wire:?}"), skipped);
}

#[test]
fn loopback_passes() {
    let mortal = ["death_completes_everything", "no_touch_after_death"];
    passes(Wire::Loopback, false, &mortal);
}

#[test]
fn tcp_passes() {
    passes(Wire::Tcp, false, &[]);
}

#[test]
fn tcp_over_a_local_socket_passes() {
    passes(Wire::TcpOverUds, true, &[]);
}

#[test]
fn shm_passes() {
    passes(Wire::Shm { cma: true }, false, &[]);
}

#[test]
fn shm_into_adopted_memory_passes() {
    passes(Wire::Shm { cma: true }, true, &[]);
}

#[test]
fn shm_into_adopted_memory_without_cma_passes() {
    passes(Wire::Shm { cma: false }, true, &[]);
}

#[test]
fn rdma_over_the_fake_library_passes() {
    let fake = FakeIbv::take();
    fake.set("devices", 4);
    // A device goes on by itself.
    fake.set("ticker_us", 20);
    for adopted in [false, true] {
        let library = Some(fake_ibv::file());
        run(|| Pair { library: library.clone(), ..Pair::new(Wire::Rdma, adopted) })
            .assert_passed_but("the fake libibverbs", &[]);
    }
    fake.assert_clean();
    let used = ["bytes_0", "bytes_1"].map(|name| fake.count(name) != 0);
    assert_eq!(used, [true, fake_ibv::named_nics().is_some()]);
    fake_ibv::run_without_windows(&["rdma_over_the_fake_library_passes"]);
}

#[test]
fn rdma_over_two_nics_of_the_fake_library_passes() {
    fake_ibv::run_over("fake_0,fake_1", &["rdma_over_the_fake_library_passes"]);
}

#[test]
#[ignore = "needs an RDMA device: `cargo xtask test-hw --vm`"]
fn rdma_passes() {
    passes(Wire::Rdma, false, &[]);
}

#[test]
#[ignore = "needs an RDMA device: `cargo xtask test-hw --vm`"]
fn rdma_into_adopted_memory_passes() {
    passes(Wire::Rdma, true, &[]);
}

/// NIC i of the one end is connected to NIC i of the other, which is the same device here. What the other process says is not printed: the
/// suite reads this one's lines.
#[test]
#[ignore = "needs an RDMA device: `cargo xtask test-hw --vm`"]
fn rdma_over_all_devices_passes() {
    let list = std::fs::read_dir("/sys/class/infiniband").expect("RDMA devices");
    let mut names: Vec<_> = list.map(|d| d.expect("a device").file_name()).collect();
    names.sort();
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    let program = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new(program);
    command.args(["--exact", "--include-ignored", "--nocapture", "rdma_passes"]);
    let out = command.env("HMC_RDMA_PORT", names.join(",")).output().expect("it runs");
    let (said, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && said.contains(" 1 passed"), "{names:?}: {said}{errors}");
}

/// What a transport says that it can do, and nothing else.
#[test]
fn each_transport_names_its_capabilities() {
    let stream = Caps::all();
    let shm = stream - Caps::TARGET_CHECKED;
    let cases = [
        (Wire::Loopback, stream),
        (Wire::Tcp, stream),
        (Wire::TcpOverUds, stream),
        (Wire::Shm { cma: true }, shm),
        (Wire::Shm { cma: false }, shm),
    ];
    for (wire, caps) in cases {
        let (near, far) = ends::pair(wire).expect("a pair");
        assert_eq!(near.caps(), caps, "{wire:?}");
        assert!(far.is_none_or(|far| far.caps() == caps), "{wire:?}");
    }
}
