//! Two processes over the transport.

#[path = "processes/faults.rs"]
mod faults;
#[path = "processes/other.rs"]
mod other;
#[path = "processes/sessions.rs"]
mod sessions;
