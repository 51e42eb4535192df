//! One line of the report: a figure, its reference, their ratio, what is to be reached.

use serde_json::json;

use crate::measure::Pairs;

/// A bound, and on what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// The ratio must be at least this.
    RatioAtLeast(f64),
    /// The ratio must be at most this.
    RatioAtMost(f64),
    /// The value must be at most this; there is no reference.
    ValueAtMost(f64),
    /// The value must not differ from the reference by more than this share.
    Within(f64),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RatioAtLeast(b) => write!(f, "ratio >= {b}"),
            Self::RatioAtMost(b) => write!(f, "ratio <= {b}"),
            Self::ValueAtMost(b) => write!(f, "<= {b}"),
            Self::Within(b) => write!(f, "+-{} %", b * 100.0),
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    name: String,
    value: Option<f64>,
    unit: &'static str,
    reference: Option<f64>,
    ratio: Option<f64>,
    target: Option<Target>,
    note: String,
    /// Ours one by one, in nanoseconds, and which series of the row they are: for who compares two programs.
    samples: (Option<u32>, Vec<f64>),
}

impl Line {
    /// A bandwidth in GB/s from times for `bytes`; the ratio is ours/reference, more is faster.
    pub(crate) fn bandwidth(
        name: impl Into<String>,
        bytes: u64,
        pairs: &Pairs,
        bound: Option<f64>,
    ) -> Self {
        let rate = |ns: f64| Some(bytes as f64 / ns);
        Self {
            name: name.into(),
            value: rate(pairs.ours_ns()),
            unit: "GB/s",
            reference: rate(pairs.reference_ns()),
            ratio: Some(1.0 / pairs.time_ratio()),
            target: bound.map(Target::RatioAtLeast),
            note: String::new(),
            samples: (pairs.number(), pairs.samples().to_vec()),
        }
    }

    /// A latency in microseconds; the ratio is ours/reference, less is faster. `per_ns` converts the
    /// samples: 2 where a sample is a round trip and half of it is wanted.
    pub(crate) fn latency(
        name: impl Into<String>,
        halves: f64,
        pairs: &Pairs,
        bound: Option<f64>,
    ) -> Self {
        let time = |ns: f64| Some(ns / halves / 1000.0);
        Self {
            name: name.into(),
            value: time(pairs.ours_ns()),
            unit: "us",
            reference: time(pairs.reference_ns()),
            ratio: Some(pairs.time_ratio()),
            target: bound.map(Target::RatioAtMost),
            note: String::new(),
            samples: (pairs.number(), pairs.samples().to_vec()),
        }
    }

    /// A rate in millions a second from times for one; the ratio is ours/reference, more is faster.
    pub(crate) fn rate(name: impl Into<String>, pairs: &Pairs, bound: Option<f64>) -> Self {
        Self { unit: "M/s", ..Self::bandwidth(name, 1_000, pairs, bound) }
    }

    /// A figure without a reference; `bound` is the most that it may be.
    pub(crate) fn value(
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        bound: Option<f64>,
    ) -> Self {
        Self {
            name: name.into(),
            value: Some(value),
            unit,
            reference: None,
            ratio: None,
            target: bound.map(Target::ValueAtMost),
            note: String::new(),
            samples: (None, Vec::new()),
        }
    }

    /// A time without a reference; `bound` is the most that it may be. `ns` is what the unit has of them.
    pub(crate) fn alone(
        name: impl Into<String>,
        pairs: &Pairs,
        (unit, ns): (&'static str, f64),
        bound: Option<f64>,
    ) -> Self {
        let samples = (pairs.number(), pairs.samples().to_vec());
        Self { samples, ..Self::value(name, pairs.ours_ns() / ns, unit, bound) }
    }

    /// A figure beside a stored one.
    pub(crate) fn stored(
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        stored: f64,
        within: f64,
    ) -> Self {
        Self {
            reference: Some(stored),
            ratio: Some(value / stored),
            target: Some(Target::Within(within)),
            ..Self::value(name, value, unit, None)
        }
    }

    /// A figure that was to be compared with a stored one, and why that could not be.
    pub(crate) fn not_compared(
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        within: f64,
        why: impl std::fmt::Display,
    ) -> Self {
        let target = Some(Target::Within(within));
        let note = format!("not compared: {why}");
        Self { target, note, ..Self::value(name, value, unit, None) }
    }

    /// A ratio of two figures that were taken one after the other.
    pub(crate) fn ratio(
        name: impl Into<String>,
        value: f64,
        reference: f64,
        unit: &'static str,
        target: Option<Target>,
    ) -> Self {
        Self {
            reference: Some(reference),
            ratio: Some(value / reference),
            target,
            ..Self::value(name, value, unit, None)
        }
    }

    /// A row that could not be measured, and why. Where a target was set it counts as missed.
    pub(crate) fn missing(
        name: impl Into<String>,
        unit: &'static str,
        why: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            value: None,
            unit,
            reference: None,
            ratio: None,
            target: None,
            note: format!("not measured: {}", why.into()),
            samples: (None, Vec::new()),
        }
    }

    /// The same, with a remark.
    #[must_use]
    pub(crate) fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The same, with the 95 % interval of the ratio of the pairs it was made of behind its remark. A target within the interval is neither clearly
    /// met nor clearly missed: the remark names it.
    #[must_use]
    pub(crate) fn with_interval(self, pairs: &Pairs) -> Self {
        let (low, high) = pairs.time_ratio_interval();
        // Of speeds the ratio is that of times upside down.
        let (low, high) = if self.unit == "us" { (low, high) } else { (1.0 / high, 1.0 / low) };
        let bound = match self.target {
            Some(Target::RatioAtLeast(bound) | Target::RatioAtMost(bound)) => Some(bound),
            _ => None,
        };
        let open = bound.is_some_and(|bound| (low..=high).contains(&bound));
        let remark = if open { "at the target, " } else { "" };
        let count = pairs.samples().len();
        let reference =
            if self.note.is_empty() { String::new() } else { format!("{}; ", self.note) };
        let note = format!("{reference}{remark}ratio {low:.3} to {high:.3}, {count} pairs");
        Self { note, ..self }
    }

    /// The ratio, for the self-test.
    pub(crate) fn ratio_value(&self) -> Option<f64> {
        self.ratio
    }

    /// Whether the target was reached; `None` where there is none, or no number to compare.
    pub(crate) fn met(&self) -> Option<bool> {
        let ratio = || self.ratio.filter(|ratio| ratio.is_finite());
        Some(match self.target? {
            Target::RatioAtLeast(b) => ratio()? >= b,
            Target::RatioAtMost(b) => ratio()? <= b,
            Target::ValueAtMost(b) => self.value.filter(|value| value.is_finite())? <= b,
            Target::Within(b) => (ratio()? - 1.0).abs() <= b,
        })
    }

    /// Whether it has its number, and what its target is about.
    pub(crate) fn was_measured(&self) -> bool {
        let has_number = self.value.is_some_and(f64::is_finite);
        has_number && (self.target.is_none() || self.met().is_some())
    }

    /// The first line of the table.
    pub(crate) fn heading() -> String {
        format!(
            "{:<52} {:>9} {:>9} {:<6} {:>7}  {:<14} met",
            "what", "value", "reference", "unit", "ratio", "target"
        )
    }

    /// As the table has it.
    pub(crate) fn table(&self) -> String {
        let met = match self.met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        format!(
            "{:<52} {:>9} {:>9} {:<6} {:>7}  {:<14} {:<3} {}",
            self.name,
            short(self.value),
            short(self.reference),
            self.unit,
            short(self.ratio),
            self.target.map(|t| t.to_string()).unwrap_or_default(),
            met,
            self.note
        )
    }

    /// As the report has it.
    pub(crate) fn json(&self, row: &str) -> serde_json::Value {
        let mut json = json!({
            "row": row,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "reference": self.reference,
            "ratio": self.ratio,
            "target": self.target.map(|t| t.to_string()),
            "met": self.met(),
            "note": self.note,
        });
        if let (Some(number), samples) = &self.samples
            && let Some(fields) = json.as_object_mut()
        {
            fields.insert("series".to_owned(), json!(number));
            fields.insert("samples".to_owned(), json!(samples));
        }
        json
    }
}

/// Three significant digits, without exponents.
fn short(v: Option<f64>) -> String {
    match v {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(v) => {
            let digits = (2.0 - v.abs().log10().floor()).clamp(0.0, 4.0);
            format!("{v:.*}", digits as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Target, short};
    use crate::measure::interleave;

    #[test]
    fn a_target_is_checked_on_what_it_names() {
        let at = |t, value, reference| Line::ratio("x", value, reference, "us", Some(t)).met();
        assert_eq!(at(Target::RatioAtLeast(0.95), 95.0, 100.0), Some(true));
        assert_eq!(at(Target::RatioAtLeast(0.95), 94.0, 100.0), Some(false));
        assert_eq!(at(Target::RatioAtMost(1.2), 121.0, 100.0), Some(false));
        assert_eq!(at(Target::Within(0.02), 103.0, 100.0), Some(false));
        assert_eq!(at(Target::Within(0.02), 99.0, 100.0), Some(true));
        assert_eq!(Line::value("x", 41.0, "ns", Some(40.0)).met(), Some(false));
        assert_eq!(Line::value("x", 41.0, "ns", None).met(), None);
        assert_eq!(Line::missing("x", "ns", "no reason").met(), None);
    }

    #[test]
    fn the_remark_names_a_target_within_the_interval() {
        // Seven times 1 to 7 ns beside 2 ns: with so few pairs the interval is all of them.
        let mut ours = 0.0;
        let next = || {
            ours += 1.0;
            Ok(ours - 1.0)
        };
        let pairs = interleave(7, next, || Ok(2.0)).expect("samples");
        let note = |line: Line| line.with_interval(&pairs).json("row")["note"].to_string();
        let time = |bound| note(Line::latency("x", 1.0, &pairs, bound));
        assert_eq!(time(Some(1.5)), "\"at the target, ratio 0.500 to 3.500, 7 pairs\"");
        assert_eq!(time(Some(0.4)), "\"ratio 0.500 to 3.500, 7 pairs\"");
        assert_eq!(time(None), "\"ratio 0.500 to 3.500, 7 pairs\"");
        let rate = |bound| note(Line::bandwidth("x", 8, &pairs, bound));
        assert_eq!(rate(Some(0.3)), "\"at the target, ratio 0.286 to 2.000, 7 pairs\"");
        assert_eq!(rate(Some(3.0)), "\"ratio 0.286 to 2.000, 7 pairs\"");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(short(Some(12.345)), "12.3");
        assert_eq!(short(Some(0.0512)), "0.0512");
        assert_eq!(short(Some(1234.5)), "1234");
        assert_eq!(short(None), "-");
    }

    #[test]
    fn json_has_the_fields_of_the_report() {
        let v = Line::ratio("x", 1.0, 2.0, "us", Some(Target::RatioAtMost(1.0))).json("row");
        for key in ["name", "value", "unit", "reference", "ratio", "target", "met"] {
            assert!(v.get(key).is_some_and(|v| !v.is_null()), "{key}");
        }
    }
}
