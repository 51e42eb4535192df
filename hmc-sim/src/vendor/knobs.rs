//! Faults of the functions of a fake library (call and error code), and its settings.
//!
//! A text holds entries between `;`:
//! - `name=code`: every call of the function returns `code` and has no effect.
//! - `name=code@n`: the `n`-th call does (the first is 1); `name=code@n+`: it and all after it.
//! - `.setting=number`: a setting, such as `.capacity_bytes=65536`.
//!
//! Codes are the API's own numbers.

use std::collections::BTreeMap;

/// Which calls of a function fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    code: i32,
    from: u64,
    /// The last call that fails.
    to: u64,
}

/// Faults by function, and settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    rules: BTreeMap<String, Rule>,
    settings: BTreeMap<String, u64>,
    calls: BTreeMap<&'static str, u64>,
}

impl Knobs {
    /// Adds the entries of a text. Calls are counted from the beginning for functions that it names.
    ///
    /// # Errors
    /// The invalid entry; those before it were added.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let wrong =
                || format!("{entry:?} is not name=code, name=code@n, name=code@n+ or .name=n");
            let (name, value) = entry.split_once('=').ok_or_else(wrong)?;
            if let Some(setting) = name.strip_prefix('.') {
                self.settings.insert(setting.to_owned(), value.parse().map_err(|_| wrong())?);
                continue;
            }
            let (code, when) = value.split_once('@').unwrap_or((value, "1+"));
            let (from, on) = when.strip_suffix('+').map_or((when, false), |from| (from, true));
            let from = from.parse().map_err(|_| wrong())?;
            let to = if on { u64::MAX } else { from };
            let rule = Rule { code: code.parse().map_err(|_| wrong())?, from, to };
            self.rules.insert(name.to_owned(), rule);
            self.calls.retain(|function, _| *function != name);
        }
        Ok(())
    }

    /// Counts a call. Returns the code that the call must return without any effect.
    pub fn count(&mut self, function: &'static str) -> Option<i32> {
        let nth = self.calls.entry(function).or_default();
        *nth = nth.saturating_add(1);
        let rule = self.rules.get(function)?;
        (rule.from..=rule.to).contains(nth).then_some(rule.code)
    }

    /// Calls so far.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        self.calls.get(function).copied().unwrap_or(0)
    }

    /// Returns a setting, or its default.
    #[must_use]
    pub fn setting(&self, name: &str, default: u64) -> u64 {
        self.settings.get(name).copied().unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::Knobs;

    #[test]
    fn rules_hit_the_calls_that_they_name() {
        let mut knobs = Knobs::default();
        knobs.set("a=2; b=-7@3 ;c=9@2+;.depth=12;").expect("entries");
        let calls = |knobs: &mut Knobs, name| [(); 4].map(|()| knobs.count(name));
        assert_eq!(calls(&mut knobs, "a"), [Some(2); 4]);
        assert_eq!(calls(&mut knobs, "b"), [None, None, Some(-7), None]);
        assert_eq!(calls(&mut knobs, "c"), [None, Some(9), Some(9), Some(9)]);
        assert_eq!(calls(&mut knobs, "d"), [None; 4]);
        assert_eq!((knobs.calls("d"), knobs.calls("e")), (4, 0));
        assert_eq!((knobs.setting("depth", 3), knobs.setting("depths", 3)), (12, 3));
        knobs.set("b=1@1").expect("an entry");
        assert_eq!(calls(&mut knobs, "b"), [Some(1), None, None, None]);
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["a", "a=", "a=x", "a=1@", "a=1@+", "a=1@x", ".a=-1", "a=99999999999"] {
            let err = Knobs::default().set(text).expect_err("nonsense");
            assert!(err.contains(text), "{err}");
        }
    }
}
