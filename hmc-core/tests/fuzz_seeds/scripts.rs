//! Scripts of steps: a few by hand, the others from a fixed seed.

use super::Seed;
use crate::bodies::mutate::Rng;

/// Scripts from the generator for each target.
const DRAWN: usize = 24;

/// Scripts of the targets that run machines.
pub(crate) fn all() -> Vec<Seed> {
    let mut seeds = vec![
        // Expose 100 bytes at 8 for reading and writing; touch them; revoke, fence; touch again.
        Seed::plain(
            "window",
            "life",
            vec![0, 0, 8, 100, 3, 3, 0, 1, 0, 0, 5, 9, 1, 3, 0, 0, 0, 3, 0, 0, 1, 1, 0, 0, 5, 9, 1],
        ),
        // The same place twice under one name: the old epoch is refused.
        Seed::plain(
            "window",
            "stale_epoch",
            vec![
                0, 0, 0, 50, 1, 3, 0, 3, 0, 0, 1, 0, 0, 60, 1, 3, 0, 1, 0, 0, 0, 9, 1, 1, 1, 0, 0,
                9, 1,
            ],
        ),
        // Revoke, pass the deadline, fence after all.
        Seed::plain(
            "window",
            "quarantine",
            vec![1, 0, 0, 50, 1, 3, 0, 3, 0, 0, 0, 3, 0, 0, 2, 1, 0, 0, 0, 1, 1, 3, 0, 0, 1],
        ),
        // Revoke, close, touch in vain, open again, touch, revoke, fence.
        Seed::plain(
            "window",
            "reopened",
            vec![
                0, 0, 8, 100, 3, 3, 0, 3, 0, 0, 0, 3, 0, 0, 3, 1, 0, 0, 5, 9, 1, 3, 0, 0, 4, 1, 0,
                0, 5, 9, 1, 3, 0, 0, 0, 3, 0, 0, 1,
            ],
        ),
        // Post, finish, progress, take, events.
        Seed::plain("queue", "one", vec![0, 0, 1, 50, 6, 0, 0, 9, 10, 0, 15]),
        // Post, cancel while it runs, finish, progress, events.
        Seed::plain("queue", "cancelled", vec![1, 0, 1, 50, 11, 0, 0, 6, 0, 0, 9, 15, 10, 0]),
        // A batch of three, fed in parts, whose peer goes away.
        Seed::plain(
            "queue",
            "batch",
            vec![2, 3, 3, 50, 4, 0, 2, 5, 0, 4, 0, 1, 5, 0, 14, 255, 1, 15],
        ),
        Seed::plain("chunks", "even", vec![64, 64, 3, 5, 10, 16, 4, 8]),
        Seed::plain("chunks", "short_tail", vec![65, 65, 3, 5, 10, 16, 4, 8]),
        Seed::plain("chunks", "unequal", vec![64, 65]),
        Seed::plain("chunks", "empty", vec![0, 0, 3, 5, 10, 16, 4, 8]),
        Seed::plain("chunks", "whole_space", vec![0xE0, 0xE0, 0, 0, 1, 0xE0, 4, 0xE0]),
        Seed::plain("chunks", "beyond", vec![0xE0, 0xE0, 1, 0, 1, 0xE0, 4, 0xE0]),
    ];
    let mut rng = Rng::new(0x5EED);
    for target in ["window", "queue", "chunks"] {
        for i in 0..DRAWN {
            let n = if target == "chunks" { 12 } else { 20 + 8 * i };
            let bytes = (0..n).map(|_| rng.next_u64() as u8).collect();
            seeds.push(Seed::plain(target, format!("drawn_{i:02}"), bytes));
        }
    }
    seeds
}
