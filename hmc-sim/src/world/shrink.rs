//! Makes a failing script small: takes steps away as long as the same kind of failure stays.
//!
//! Delta debugging (Zeller and Hildebrandt, 2002) over the list of steps, then the network conditions.

use super::finding::Kind;
use super::node::Cluster;
use super::outcome::run_plan;
use super::script::{Plan, Step};
use super::swarm::ChunkMode;

struct Shrink<'a, F> {
    kind: Kind,
    left: u32,
    make: &'a F,
}

impl<C: Cluster, F: Fn() -> C> Shrink<'_, F> {
    fn fails(&mut self, plan: &Plan) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let result = run_plan(plan, (self.make)(), false, None).result;
        result.is_err_and(|finding| finding.kind == self.kind)
    }

    fn try_steps(&mut self, plan: &mut Plan, steps: Vec<Step>) -> bool {
        let old = std::mem::replace(&mut plan.steps, steps);
        let fails = self.fails(plan);
        if !fails {
            plan.steps = old;
        }
        fails
    }
}

/// A plan that fails in the same way with as few steps as `runs` runs could find.
pub(crate) fn shrink<C: Cluster>(
    mut plan: Plan,
    kind: Kind,
    runs: u32,
    make: &impl Fn() -> C,
) -> Plan {
    let mut shrink = Shrink { kind, left: runs, make };
    let mut parts = 2;
    while plan.steps.len() > 1 && shrink.left > 0 {
        let size = plan.steps.len().div_ceil(parts);
        let mut smaller = false;
        let mut from = 0;
        while from < plan.steps.len() {
            let to = (from + size).min(plan.steps.len());
            let mut steps = plan.steps.clone();
            steps.drain(from..to);
            if shrink.try_steps(&mut plan, steps) {
                smaller = true;
            } else {
                from = to;
            }
        }
        if !smaller && size == 1 {
            break;
        }
        if !smaller || size > 1 {
            parts = (parts * 2).min(plan.steps.len().max(2));
        }
    }
    conditions(&mut shrink, &mut plan);
    plan
}

/// Calmer network conditions, while the failure persists.
fn conditions<C: Cluster, F: Fn() -> C>(shrink: &mut Shrink<'_, F>, plan: &mut Plan) {
    let calmer: [fn(&mut Plan); 5] = [
        |plan| plan.conditions.jitter_ns = 0,
        |plan| plan.conditions.stall_one_in = 0,
        |plan| plan.conditions.split = ChunkMode::Whole,
        |plan| plan.conditions.ns_per_kib = 0,
        |plan| plan.starts_ns.fill(0),
    ];
    for change in calmer {
        let mut next = plan.clone();
        change(&mut next);
        if shrink.fails(&next) {
            *plan = next;
        }
    }
}
