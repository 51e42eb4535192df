//! Both ends on one single-threaded executor: no future waits in its poll (hmc-std panics in test builds where one does), so that
//! each makes way for what it waits for.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Access, ErrorKind, Message, Piece, want::Wanted};
use hmc_tests::executor::{Task, Yield, run};
use hmc_tests::pair::{Pair, pattern, transports};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(20);
/// Tasks of each kind: more than a session has slots.
const TASKS: u64 = 48;

#[test]
fn transfers_of_both_ends_make_way_for_each_other() {
    for conn in transports() {
        let pair = Pair::with(conn, 64 * MIB, |builder| builder.slots(8));
        let ends = [(pair.sender(), &pair.a), (pair.receiver(), &pair.b)];
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for (side, (session, peer)) in ends.into_iter().enumerate() {
            let base = if side == 0 { 0 } else { 32 * MIB };
            for n in 0..TASKS {
                tasks.push(Box::pin(async move {
                    let at = base + n * 256 * KIB;
                    // Of one copy, and of a message that needs the other end.
                    let sent = pattern(if n % 2 == 0 { 64 } else { 200 * KIB }, n);
                    let remote = peer.buffer().unwrap();
                    remote.put(at, &sent).notify(n).await.unwrap();
                    let mut got = vec![0; sent.len()];
                    remote.get(at, &mut got).await.unwrap();
                    assert!(got == sent, "{conn:?}: lent bytes {n}");
                    let len = got.len().try_into().unwrap();
                    let mut span = session.memory().allocate(len).unwrap().take_all().unwrap();
                    span.write_at(0, &sent).unwrap();
                    let done = remote.put(at, span).await.unwrap();
                    let range = session.buffer().range(at, len).unwrap();
                    let pieces = [Piece::new(range, at)];
                    remote.get_list(&pieces).await.unwrap();
                    assert_eq!(done.bytes, len);
                }));
            }
        }
        // A window that the other task exposes later.
        let far = &pair.b;
        tasks.push(Box::pin(async {
            let window = pair.a.window(7).await.unwrap();
            window.put(0, b"found").await.unwrap();
            pair.a.send(Message::Tag(1)).await.unwrap();
        }));
        tasks.push(Box::pin(async {
            let span = pair.receiver().memory().allocate(8).unwrap().take_all().unwrap();
            let window = far.expose(span, Access::all(), 7).map_err(|(e, _)| e).unwrap();
            let never = pair.a.window(8).within(Duration::from_millis(10)).await.map(drop);
            assert_eq!(never.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
            // Dropped only when its bytes have come.
            let mut got = [0; 5];
            while &got != b"found" {
                window.read_at(0, &mut got).unwrap();
                Yield::default().await;
            }
        }));
        run(tasks);
        for tag in 0..TASKS {
            let _ = pair.b.recv(Wanted::ThisTag(tag)).within(LONG).wait().unwrap();
        }
    }
}
