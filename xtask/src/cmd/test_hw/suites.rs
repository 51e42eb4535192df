//! The programs of tests that run over hardware, and which of their tests do not run over which transport.

/// Tests with real processes that run over UCX and RDMA verbs as they do over our own transports.
pub(super) const PROCESS_TESTS: [&str; 8] = [
    "peer_failure",
    "messages",
    "messages_abort",
    "revoke",
    "bindings",
    "sessions",
    "visibility",
    "strided_lists",
];

/// Those of them that are about another transport by name, or about none: `test-sim` has them.
pub(super) const ELSEWHERE: [&str; 33] = [
    "messages::a_long_message_over_tcp_needs_no_half_buffers",
    "peer_failure::a_peer_that_dialed_first_is_dialed_again",
    "peer_failure::a_stopped_peer_is_dead_by_its_silence_on_shm",
    "peer_failure::a_stopped_peer_is_dead_by_its_silence_on_tcp",
    "peer_failure::shm_the_dialer_is_killed_before_it_copies",
    "peer_failure::shm_the_dialer_is_killed_under_a_copy",
    "peer_failure::shm_the_listener_is_killed_before_it_copies",
    "peer_failure::shm_the_listener_is_killed_under_a_copy",
    "peer_failure::tcp_the_dialer_is_killed_with_its_buffers_full",
    "peer_failure::tcp_the_listener_is_killed_with_its_buffers_full",
    "peer_failure::the_higher_rank_waits_to_be_dialed",
    "peer_failure::who_does_not_listen_dials_again",
    "revoke::no_late_byte_over_shm",
    "revoke::no_late_byte_over_shm_into_adopted_memory",
    "revoke::no_late_byte_over_tcp",
    "revoke::pages_that_a_stopped_peer_may_touch_are_quarantined_until_its_death",
    "revoke::shared_bytes_that_a_stopped_peer_may_touch_are_quarantined_until_its_death",
    "revoke::whole_pages_come_back_from_a_stopped_peer_at_once",
    "revoke::windows_over_one_region_share_a_mapping",
    "bindings::memory_stays_until_what_uses_it_is_over",
    "bindings::the_address_is_that_of_the_bytes",
    "bindings::what_can_be_done_at_once_is_done_and_nothing_else",
    "sessions::a_bye_without_a_reply_is_reported",
    "sessions::a_named_transport_is_not_replaced_by_another",
    "sessions::a_thousand_peers_need_no_threads",
    "sessions::explain_reports_a_slower_path",
    "sessions::manual_progress_moves_bytes_only_when_called",
    "sessions::two_sessions_in_one_process_share_nothing",
    "visibility::loopback",
    "visibility::shm_put_notify",
    "visibility::shm_put_then_tag",
    "visibility::tcp_put_notify",
    "visibility::tcp_put_then_tag",
];

/// Those of them that are about UCX by name.
pub(super) const OF_UCX: [&str; 3] =
    ["revoke::no_late_byte_over_ucx", "visibility::ucx_put_notify", "visibility::ucx_put_then_tag"];

/// Those of them that are about RDMA verbs by name.
pub(super) const OF_RDMA: [&str; 3] = [
    "revoke::no_late_byte_over_rdma",
    "visibility::rdma_put_notify",
    "visibility::rdma_put_then_tag",
];

/// Those of them that the short form of the suites over RDMA verbs runs: the peer is killed under puts, and windows are revoked
/// under puts.
pub(super) const SHORT: [&str; 2] = [
    "peer_failure::the_target_survives_the_death_of_an_initiator",
    "revoke::no_late_byte_over_rdma",
];

/// Those of them that soft-RoCE cannot serve, each with the reason: none so far.
pub(super) const NOT_BY_SOFT_ROCE: &[(&str, &str)] = &[];

/// Other tests that are ignored elsewhere since they need an RDMA device.
pub(super) const RDMA_TESTS: [&str; 2] = [CONFORMANCE, SOAK];
pub(super) const CONFORMANCE: &str = "conformance";
pub(super) const SOAK: &str = "soak_rdma";

/// Tests that are ignored elsewhere since they need UCX.
pub(super) const UCX_TESTS: [&str; 9] = [
    "beside",
    "ucx_lanes",
    "ucx_sessions",
    "ucx_fences",
    "ucx_quiet",
    "ucx_kill_mid_send",
    "ucx_exits",
    "ucx_failed_sends",
    "partition",
];

/// Those of them that look at what UCX says or refuses, and move nothing over it.
pub(super) const WITHOUT_BYTES: [&str; 4] = [
    "ucx_exits::a_forked_child_of_a_process_that_uses_ucx_is_refused",
    "ucx_sessions::an_explanation_names_lanes_and_who_is_trusted",
    "ucx_sessions::auto_prefers_what_checks_by_itself",
    "ucx_sessions::ucx_log_lines_go_to_the_handler",
];

/// Whether the ignored tests of a program of hmc-tests are among those that this command runs.
pub(crate) fn runs(program: &str) -> bool {
    let own = UCX_TESTS.iter().chain(&RDMA_TESTS).chain(&["soak"]);
    own.chain(&PROCESS_TESTS).any(|name| *name == program)
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn every_test_that_needs_ucx_or_rdma_is_run_by_this_command() {
        let folder = crate::tree::root().join("tests/tests");
        let mut found = 0;
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            let is_rust = file.extension().is_some_and(|e| e == "rs");
            let text =
                if is_rust { std::fs::read_to_string(&file).unwrap() } else { String::new() };
            let needs = |what| text.contains(what);
            if needs("needs UCX: cargo xtask") || needs("needs an RDMA device: `cargo xtask") {
                found += 1;
                assert!(runs(&name), "{name} has a test that needs hardware, and no list names it");
            }
        }
        assert!(found >= 11, "{found} files");
    }
}
