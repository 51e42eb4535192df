//! Exhaustive exploration: every state that a model can reach, breadth first, each once.
//!
//! A model holds the real machines of the crate, one copy of each distinct one ([`Pool`]); a state names
//! them by number, so that states are small and two that look alike are one. Safety is checked at every
//! step; afterwards every state must have a way to a settled one.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "each test binary uses a part of it, and tests may panic"
)]

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher as _};

/// One copy of each distinct value; its text is its name.
pub(crate) struct Pool<T> {
    values: Vec<T>,
    by_text: HashMap<(u64, u64), u16>,
}

impl<T: Debug + Clone> Pool<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), by_text: HashMap::new() }
    }

    /// The number of a value. Its `Debug` text must show all of it.
    pub(crate) fn put(&mut self, value: T) -> u16 {
        let mut text = Text(two_hashers());
        write!(text, "{value:?}").unwrap();
        let name = (text.0.0.finish(), text.0.1.finish());
        if let Some(id) = self.by_text.get(&name) {
            return *id;
        }
        let id = u16::try_from(self.values.len()).unwrap();
        self.values.push(value);
        self.by_text.insert(name, id);
        id
    }

    /// A copy of a value, to be changed and put back.
    pub(crate) fn get(&self, id: u16) -> T {
        self.values[usize::from(id)].clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

/// A step: what it is called, and where it leads.
pub(crate) type Edge<S> = (String, S);

/// What is explored.
pub(crate) trait Model {
    type State: Clone + Hash;

    fn start(&mut self) -> Self::State;

    /// All steps from a state.
    ///
    /// # Errors
    /// A step that breaks a promise: its name, and the promise.
    fn steps(&mut self, s: &Self::State, out: &mut Vec<Edge<Self::State>>) -> Result<(), String>;

    /// Whether a step is a fault. Nothing may need one in order to settle.
    fn is_fault(name: &str) -> bool;

    /// Whether nothing is under way.
    fn is_settled(&mut self, s: &Self::State) -> bool;
}

/// What was explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) edges: usize,
    /// Steps to the farthest state.
    pub(crate) depth: u32,
    pub(crate) settled: usize,
}

/// A broken promise, and how it comes about.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) why: String,
    pub(crate) path: Vec<String>,
}

fn two_hashers() -> (DefaultHasher, DefaultHasher) {
    let (a, mut b) = (DefaultHasher::new(), DefaultHasher::new());
    b.write_u8(1);
    (a, b)
}

/// Text that is hashed as it is written.
struct Text((DefaultHasher, DefaultHasher));

impl std::fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.0.0.write(s.as_bytes());
        self.0.1.write(s.as_bytes());
        Ok(())
    }
}

/// Two hashes make a name of 128 bits: among 10^8 states two collide with a chance below 10^-22.
fn fingerprint<S: Hash>(s: &S) -> (u64, u64) {
    let (mut a, mut b) = two_hashers();
    s.hash(&mut a);
    s.hash(&mut b);
    (a.finish(), b.finish())
}

struct Search<S> {
    states: Vec<S>,
    /// The state from which each was found first.
    parents: Vec<u32>,
    /// All steps but faults.
    edges: Vec<(u32, u32)>,
}

impl<S: Clone + Hash> Search<S> {
    /// The names of the steps to a state, found by walking them again.
    fn path<M: Model<State = S>>(&self, model: &mut M, mut at: u32) -> Vec<String> {
        let mut names = Vec::new();
        while at != 0 {
            let from = self.parents[at as usize];
            let wanted = fingerprint(&self.states[at as usize]);
            let mut out = Vec::new();
            let _ = model.steps(&self.states[from as usize], &mut out);
            let step = out.into_iter().find(|(_, s)| fingerprint(s) == wanted);
            names.push(step.map_or_else(|| "?".into(), |(name, _)| name));
            at = from;
        }
        names.reverse();
        names
    }
}

/// Explores to the end: every state, however deep.
///
/// # Errors
/// The first broken promise, by the shortest way.
pub(crate) fn explore<M: Model>(model: &mut M, most: usize) -> Result<Report, Broken> {
    let first = model.start();
    let mut seen = HashMap::from([(fingerprint(&first), 0u32)]);
    let mut all = Search { states: vec![first], parents: vec![0], edges: Vec::new() };
    let (mut depth, mut layer_end, mut at, mut count) = (0, 1, 0, 0);
    let mut out = Vec::new();
    while at < all.states.len() {
        if at == layer_end {
            depth += 1;
            layer_end = all.states.len();
        }
        let state = all.states[at].clone();
        let from = at as u32;
        if let Err(why) = model.steps(&state, &mut out) {
            return Err(Broken { why, path: all.path(model, from) });
        }
        for (name, next) in out.drain(..) {
            let fresh = all.states.len() as u32;
            let to = *seen.entry(fingerprint(&next)).or_insert(fresh);
            if to == fresh {
                all.states.push(next);
                all.parents.push(from);
            }
            count += 1;
            if !M::is_fault(&name) {
                all.edges.push((from, to));
            }
        }
        assert!(all.states.len() <= most, "more than {most} states: the model has no end");
        at += 1;
    }
    let settled = settle(model, &all)?;
    Ok(Report { states: all.states.len(), edges: count, depth, settled })
}

/// Liveness: from every state there is a way to a settled one, without any fault.
fn settle<M: Model>(model: &mut M, all: &Search<M::State>) -> Result<usize, Broken> {
    let n = all.states.len();
    let mut starts = vec![0u32; n + 1];
    for (_, to) in &all.edges {
        starts[*to as usize + 1] += 1;
    }
    for i in 0..n {
        starts[i + 1] += starts[i];
    }
    let mut places = starts.clone();
    let mut sources = vec![0u32; all.edges.len()];
    for (from, to) in &all.edges {
        sources[places[*to as usize] as usize] = *from;
        places[*to as usize] += 1;
    }
    let mut good = vec![false; n];
    let mut work: Vec<u32> =
        (0..n as u32).filter(|i| model.is_settled(&all.states[*i as usize])).collect();
    let settled = work.len();
    work.iter().for_each(|i| good[*i as usize] = true);
    while let Some(to) = work.pop() {
        let (a, b) = (starts[to as usize], starts[to as usize + 1]);
        for from in &sources[a as usize..b as usize] {
            if !std::mem::replace(&mut good[*from as usize], true) {
                work.push(*from);
            }
        }
    }
    match good.iter().position(|g| !g) {
        None => Ok(settled),
        Some(at) => {
            let why = "from here nothing can ever settle".into();
            Err(Broken { why, path: all.path(model, at as u32) })
        }
    }
}
