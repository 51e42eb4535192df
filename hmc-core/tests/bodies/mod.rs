//! The bodies of the fuzz targets. Property tests and the replay of `fuzz/corpus` run the same ones.
//!
//! A body takes any bytes and panics when a promise is broken. Each can be run against a subject with
//! a bug planted in it, which must be found: a body that finds nothing proves nothing. Keep every input
//! cheap: a body allocates no more than a few times the length of its input.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a broken promise must panic here"
)]

pub mod chunks;
pub mod control;
pub mod cxx;
pub mod handshake;
pub mod mutate;
pub mod proof;
pub mod queue;
pub mod script;
pub mod subject;
pub mod window;
pub mod wire;

pub use subject::Subject;

/// A body.
pub type Body = fn(&[u8], Subject);

/// The class of an input: what is wrong with it and at which byte, or what became of it.
pub type Class = fn(&[u8]) -> String;

/// One fuzz target.
pub struct Target {
    /// Its name: that of the fuzz target and of the corpus's folder.
    pub name: &'static str,
    /// Its body.
    pub body: Body,
    /// The class of an input, for targets that tell good inputs from bad ones.
    pub class: Option<Class>,
}

/// The targets of this crate. (`config` is hmc-std's.)
pub const TARGETS: [Target; 10] = [
    Target { name: "message", body: wire::message, class: Some(wire::message_class) },
    Target { name: "advert", body: wire::advert, class: Some(wire::advert_class) },
    Target { name: "data_frame", body: wire::data_frame, class: Some(wire::data_class) },
    Target { name: "handshake", body: handshake::handshake, class: Some(handshake::class) },
    Target { name: "proof", body: proof::proof, class: Some(proof::class) },
    Target { name: "cxx_protocol", body: cxx::cxx, class: Some(cxx::class) },
    Target { name: "control_stream", body: control::control_stream, class: Some(control::class) },
    Target { name: "window", body: window::window, class: None },
    Target { name: "queue", body: queue::queue, class: None },
    Target { name: "chunks", body: chunks::chunks, class: None },
];
