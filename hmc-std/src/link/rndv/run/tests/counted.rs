//! Direct messages of which the receiver counts the bytes that are put.

use hmc_core::rndv::{RndvId, RndvMsg, RndvRole};

use super::{bytes_of, pattern, result, run_until_idle, two};
use crate::link::rndv::note::Note;

const LEN: usize = 9000;

#[test]
fn a_counted_message_ends_when_its_bytes_are_there_and_its_memory_at_the_fence() {
    let (mut near, mut far) = two();
    (near.host.counts, far.host.counts) = (true, true);
    let message = pattern(LEN);
    let len = u64::try_from(LEN).expect("small");
    let (received, region) = far.receive(LEN, false);
    let sent = near.send(&message);
    near.host.end = None;
    run_until_idle(&mut near, &mut far);
    let [(window, count)] = far.host.counted[..] else { panic!("{:?}", far.host.counted) };
    assert_eq!((count, result(&received)), (len, None));
    // Nothing follows the receiver's END: neither this end's, nor a word for a put that has passed its fence.
    far.host.all_put.push(window);
    far.poll();
    let end = RndvMsg::End { id: RndvId(0), from: RndvRole::Receiver, how: Ok(()) };
    assert_eq!(far.host.sent, [Note::Step(end)]);
    assert_eq!((result(&received), bytes_of(&region)), (Some(Ok(len)), message));
    run_until_idle(&mut near, &mut far);
    assert_eq!(result(&sent), None, "its put may still read the memory");
    near.host.end = Some(Ok(()));
    near.poll();
    near.poll();
    assert_eq!((result(&sent), near.host.sent.len()), (Some(Ok(len)), 0));
    assert!(near.state.is_empty() && far.state.is_empty());
}

/// The halves of these are reported one by one.
#[test]
fn a_message_through_halves_is_not_counted() {
    let (mut near, mut far) = two();
    (near.host.counts, far.host.counts) = (true, true);
    let (received, _) = far.receive(LEN, true);
    let sent = near.send(&pattern(LEN));
    run_until_idle(&mut near, &mut far);
    let want = Some(Ok(u64::try_from(LEN).expect("small")));
    assert_eq!((result(&sent), result(&received)), (want, want));
    assert!(far.host.counted.is_empty());
}
