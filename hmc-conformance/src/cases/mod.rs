//! The cases, by topic.

mod bytes;
mod cancel;
mod notify;
mod queue;
mod script;
mod shutdown;
mod windows;

use super::completion_checker::CompletionChecker;
use super::report::Done;
use super::subject::Subject;

/// A rule, and the function that checks it.
#[derive(Debug)]
pub struct Case<S: Subject> {
    /// Its name, unique in the suite.
    pub name: &'static str,
    pub(super) body: fn(&mut CompletionChecker<'_, S>) -> Done,
}

/// Declares the list once, so that a case's name is the name of its function.
macro_rules! cases {
    ($($module:ident: $($name:ident),+;)+) => {
        pub(super) fn all<S: Subject>() -> Vec<Case<S>> {
            vec![$($(Case { name: stringify!($name), body: $module::$name::<S> }),+),+]
        }
    };
}

cases! {
    bytes: put_moves_exactly_the_bytes, get_moves_exactly_the_bytes, large_puts, large_gets,
        overlapping_puts_in_sequence, quiet_after_completion, local_completion,
        capabilities_are_honest;
    queue: one_completion_each, many_in_flight, busy_has_no_effect, no_credit_is_lost,
        poll_into_nothing, poll_one_at_a_time, requests_share_an_operation;
    windows: out_of_window, wrong_access, stale_epoch, unknown_window, unknown_local_region,
        foreign_local_span;
    notify: notify_follows_its_bytes, every_tag_once, refused_notify_is_silent, zero_length;
    cancel: cancel_puts, cancel_gets, cancel_of_what_is_over;
    shutdown: death_completes_everything, no_touch_after_death, revoked_window_refuses,
        revoke_is_a_fence;
    script: random_script;
}
