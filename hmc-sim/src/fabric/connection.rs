//! Connections of a fabric: between which ends, and what cuts them.

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
            checker.died(end_number(host));
        }
        let latest_ns = self.now_ns.saturating_add(self.faults.delay_max_ns);
        for port in self.ports.iter_mut().filter(|p| p.host == host || p.peer_host == host) {
            for request in &mut port.in_flight {
                request.due_ns = request.due_ns.min(latest_ns);
            }
        }
    }

    pub(super) fn both_live(&mut self, port: usize) -> bool {
        let (here, there) = (self.port(port).host, self.port(port).peer_host);
        self.host(here).alive && self.host(there).alive
    }

    /// Destroys the queue: its requests neither access memory nor complete. This is a fence.
    pub(crate) fn destroy(&mut self, port: usize) {
        let in_flight = core::mem::take(&mut self.port(port).in_flight);
        if let Some(checker) = &mut self.checker {
            for request in &in_flight {
                checker.completed(self.now_ns, request.ticket, request.actor);
            }
        }
        let port = self.port(port);
        while port.done.pop().is_some() {}
        port.polled.clear();
        port.dies_ns = u64::MAX;
        port.queue = Queue::Destroyed;
    }
}
