//! The chart of a run: bandwidth and latency by size, as SVG or PNG. Needs no font and no library of
//! the system: an SVG names its font, a PNG is written with glyphs of our own.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

use super::png;
use super::row::Row;
use super::text::TextBackend;
use crate::failure::{Failure, Result};
use crate::units::short;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (1200, 520);
/// Height of letters, in pixels.
const LETTERS: i32 = 16;
/// The frame of a legend is measured as if letters were narrower than ours.
const MARGIN: &str = "   ";
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

#[derive(Clone, Copy, Debug)]
enum Format {
    Svg,
    Png,
}

/// A picture to be drawn.
#[derive(Debug)]
pub(super) struct Chart {
    path: PathBuf,
    format: Format,
}

/// A named line.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Chart {
    /// Checks the name, and that there is its folder, before anything is measured.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        let format = match extension.to_ascii_lowercase().as_str() {
            "svg" => Format::Svg,
            "png" => Format::Png,
            _ => {
                return Err(Failure::new(format!(
                    "{} is neither .svg nor .png; only those can be drawn",
                    path.display()
                )));
            }
        };
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.is_dir() || !folder.is_dir() {
            let (path, folder) = (path.display(), folder.display());
            return Err(Failure::new(format!(
                "cannot draw into {path}: give the name of a file, in a folder that exists (is {folder} one?)"
            )));
        }
        Ok(Self { path: path.to_path_buf(), format })
    }

    /// Draws the rows.
    pub(super) fn draw(&self, rows: &[Row], transport: &str) -> Result<()> {
        let bytes = match self.format {
            Format::Svg => {
                let mut text = String::new();
                compose(SVGBackend::with_string(&mut text, SIZE), rows, transport)?;
                text.into_bytes()
            }
            Format::Png => {
                let pixels = u64::from(SIZE.0) * u64::from(SIZE.1) * 3;
                let mut pixels = vec![0; usize::try_from(pixels).unwrap_or(0)];
                compose(TextBackend::over(&mut pixels, SIZE), rows, transport)?;
                png::encode(&pixels, SIZE.0)
            }
        };
        std::fs::write(&self.path, bytes)
            .map_err(|e| Failure::new(format!("cannot write {}: {e}", self.path.display())))
    }
}

fn failed(e: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot draw: {e}"))
}

fn compose<B: DrawingBackend>(backend: B, rows: &[Row], transport: &str) -> Result<()> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let halves = root.split_evenly((1, 2));
    let lines = |what: &str, value: fn(&Row) -> f64| -> Vec<Line> {
        let of = |op: &&'static str| Line {
            name: format!("{op}{what}"),
            points: rows
                .iter()
                .filter(|r| r.op == *op)
                .map(|r| (r.size as f64, value(r)))
                .collect(),
        };
        ["put", "get"].iter().map(of).filter(|l| !l.points.is_empty()).collect()
    };
    let mut delays = lines(" p50", |r| r.p50_us);
    delays.extend(lines(" p99", |r| r.p99_us));
    if let [left, right] = halves.as_slice() {
        panel(
            left,
            &format!("bandwidth over {transport}, GB/s by bytes"),
            &lines("", |r| r.gb_per_s),
            false,
        )?;
        panel(right, &format!("latency over {transport}, us by bytes"), &delays, true)?;
    }
    root.present().map_err(failed)
}

/// The least and the greatest of some values, never equal.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    if low < high { (low, high) } else { (low.min(1.0) / 2.0, high.max(1.0) * 2.0) }
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    lines: &[Line],
    by_ratio: bool,
) -> Result<()> {
    let points = || lines.iter().flat_map(|l| l.points.iter());
    let (x0, x1) = range(points().map(|p| p.0));
    let (y0, y1) = range(points().map(|p| p.1));
    let mut builder = ChartBuilder::on(area);
    builder
        .margin(20)
        .caption(title, ("sans-serif", LETTERS))
        .x_label_area_size(36)
        .y_label_area_size(80);
    let xs = (x0..x1).log_scale().base(2.0);
    // A function for each kind of axis would have to name plotters' types.
    macro_rules! plot {
        ($ys:expr) => {{
            let mut chart = builder.build_cartesian_2d(xs, $ys).map_err(failed)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .x_labels(9)
                .y_labels(9)
                .x_label_formatter(&|x| short(x.round() as u64))
                .y_label_formatter(&|y| label(*y))
                .label_style(("sans-serif", LETTERS))
                .draw()
                .map_err(failed)?;
            for (line, colour) in lines.iter().zip(COLOURS) {
                let style = colour.stroke_width(2);
                chart
                    .draw_series(LineSeries::new(line.points.iter().copied(), style))
                    .map_err(failed)?
                    .label(line.name.clone() + MARGIN)
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE)
                .border_style(BLACK)
                .label_font(("sans-serif", LETTERS))
                .draw()
                .map_err(failed)?;
        }};
    }
    if by_ratio {
        plot!((y0..y1).log_scale());
    } else {
        plot!(0.0..y1 * 1.05);
    }
    Ok(())
}

/// A number on an axis: three digits say enough.
fn label(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Chart, SIZE, label, range};
    use crate::cmd::perf::row::Row;

    fn rows() -> Vec<Row> {
        let row = |op, n: u32| Row {
            op,
            size: 8 << (2 * n),
            latency_iters: 10,
            p50_us: 0.1 * f64::from(1 << n),
            p99_us: 0.3 * f64::from(1 << n),
            bandwidth_iters: 10,
            depth: 16,
            gb_per_s: f64::from(n) * 0.9,
        };
        (0..11).map(|n| row("put", n)).chain((0..11).map(|n| row("get", n))).collect()
    }

    #[test]
    fn three_digits_stand_on_an_axis() {
        let labels = [1234.0, 100.0, 99.9, 1.0, 0.99, 0.5].map(label);
        assert_eq!(labels, ["1234", "100", "99.9", "1.0", "0.99", "0.50"]);
    }

    #[test]
    fn an_axis_spans_a_range_where_all_values_are_equal() {
        assert_eq!(range([3.0, 2.0, 5.0].into_iter()), (2.0, 5.0));
        // Without a range it reaches from half to twice of them, and 1 lies in it.
        for (values, want) in [(vec![4.0, 4.0], (0.5, 8.0)), (vec![0.25], (0.125, 2.0))] {
            assert_eq!(range(values.into_iter()), want);
        }
    }

    #[test]
    fn what_was_not_measured_has_no_line() {
        let dir = std::env::temp_dir().join(format!("hmc-lines-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a.svg");
        for (op, other) in [("put", "get"), ("get", "put")] {
            let rows: Vec<Row> = rows().into_iter().filter(|r| r.op == op).collect();
            Chart::at(&path).unwrap().draw(&rows, "shm").unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(&format!("{op} p50")) && !text.contains(other), "{op}");
            assert!(text.contains("bandwidth over shm") && text.contains("latency over shm"));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn both_formats_are_drawn_and_others_are_refused() {
        let dir = std::env::temp_dir().join(format!("hmc-chart-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let svg = dir.join("a.svg");
        Chart::at(&svg).unwrap().draw(&rows(), "shm").unwrap();
        let text = std::fs::read_to_string(&svg).unwrap();
        assert!(text.starts_with("<svg") && text.contains("put p99"), "{text:.200}");
        let png = dir.join("a.PNG");
        Chart::at(&png).unwrap().draw(&rows(), "shm").unwrap();
        let bytes = std::fs::read(&png).unwrap();
        assert_eq!(bytes.get(..8), Some(&b"\x89PNG\r\n\x1a\n"[..]));
        assert_eq!(bytes.get(16..20), Some(&SIZE.0.to_be_bytes()[..]));
        // One row only: no range to speak of.
        Chart::at(&svg).unwrap().draw(&rows()[..1], "tcp").unwrap();
        Chart::at(&dir.join("a.pdf")).unwrap_err();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
