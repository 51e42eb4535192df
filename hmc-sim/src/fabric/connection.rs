//! Connections of a fabric: between which ends, and what cuts them.

use hmc_core::window::WindowEntry;

use super::end_number;
use super::port::{Path, Port, Queue};
use super::timed::Fabric;

impl Fabric {
    /// Connects two ends; `None` when there are no such two.
    pub(crate) fn connect(&mut self, a: usize, b: usize) -> Option<(usize, usize)> {
        if a == b || a.max(b) >= self.hosts.len() {
            return None;
        }
        let at = self.ports.len();
        let ports = (at, at.checked_add(1)?);
        let path =
            Path { latency_ns: self.faults.latency_ns, bytes_per_us: self.faults.bytes_per_us };
        let places = self.faults.completion_depth.unwrap_or(self.depth);
        self.ports.push(Port::new((a, b), ports.1, self.depth, places, path));
        self.ports.push(Port::new((b, a), ports.0, self.depth, places, path));
        Some(ports)
    }

    /// The process dies. Its requests in flight move no further byte; the requests of all ports that use it complete.
    pub(crate) fn kill(&mut self, host: usize) {
        if !self.host(host).alive {
            return;
        }
        self.host(host).alive = false;
        self.counts.deaths = self.counts.deaths.saturating_add(1);
        if let Some(checker) = &mut self.checker {
            checker.process_exited(end_number(host));
        }
        self.hasten(|port| port.host == host || port.peer_host == host);
    }

    fn hasten(&mut self, is_cut: impl Fn(&Port) -> bool) {
        let latest_ns = self.now_ns.saturating_add(self.faults.delay_max_ns);
        for port in self.ports.iter_mut().filter(|port| is_cut(port)) {
            for request in &mut port.in_flight {
                request.due_ns = request.due_ns.min(latest_ns);
            }
        }
    }

    /// An end closes its connection. Its requests move no further byte; those of the other end do until the windows are fenced.
    pub(crate) fn close(&mut self, port: usize) {
        self.port(port).closed = true;
        let peer = self.port(port).peer;
        self.hasten(|p| p.peer == peer);
        let in_use = self.port(port).windows.in_use().map(WindowEntry::describe);
        for window in in_use.collect::<Vec<_>>() {
            self.begin_revoke(port, (window.window, window.epoch));
        }
    }

    /// Returns `true` if the port has closed the connection and each of its windows is fenced.
    fn is_shut(&mut self, port: usize) -> bool {
        self.port(port).closed && self.port(port).closing.is_empty()
    }

    /// Returns `true` if requests of the port can move bytes: both processes live, and neither end has closed the connection.
    pub(crate) fn is_up(&mut self, port: usize) -> bool {
        let (here, there) = (self.port(port).host, self.port(port).peer_host);
        let peer = self.port(port).peer;
        let is_open = !self.port(port).closed && !self.is_shut(peer);
        is_open && self.host(here).alive && self.host(there).alive
    }

    /// The address by which the other end of a port knows it.
    pub(crate) fn address(port: usize) -> u32 {
        u32::try_from(port).unwrap_or(u32::MAX)
    }

    /// The address of the other end has come. Returns `false` if it is another end's.
    pub(crate) fn receive_address(&mut self, port: usize, address: u32) -> bool {
        let port = self.port(port);
        let is_known = address == Self::address(port.peer);
        if is_known && port.queue == Queue::Init {
            port.queue = Queue::Ready;
        }
        is_known
    }

    /// Destroys the queue: its requests neither access memory nor complete. This is a fence.
    pub(crate) fn destroy(&mut self, port: usize) {
        let in_flight = core::mem::take(&mut self.port(port).in_flight);
        if let Some(checker) = &mut self.checker {
            for request in &in_flight {
                checker.completed(self.now_ns, request.number, request.actor);
            }
        }
        let port = self.port(port);
        while port.done.pop().is_some() {}
        port.polled.clear();
        port.dies_ns = u64::MAX;
        port.queue = Queue::Destroyed;
    }
}
