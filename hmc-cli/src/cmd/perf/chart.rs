//! The chart of a run: bandwidth and latency by size, as SVG.
//!
//! plotters writes SVG without a font or an image library: the text of an SVG is drawn by its viewer.

use std::fmt;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

use super::row::Row;
use crate::failure::{Failure, Result};
use crate::units::short;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (1200, 520);
/// Height of letters, in pixels.
const LETTERS: i32 = 16;
/// plotters estimates the width of a legend's text; the viewer's letters are wider.
const MARGIN: &str = "   ";
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

/// Why no chart can be written to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathError {
    /// The extension is not that of SVG.
    NotSvg {
        /// The path that was given.
        path: PathBuf,
        /// The same path with the extension of SVG.
        instead: PathBuf,
    },
    /// The path is a folder, or its folder does not exist.
    NoFile {
        /// The path that was given.
        path: PathBuf,
        /// The folder that the file would lie in.
        folder: PathBuf,
    },
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSvg { path, instead } => write!(
                f,
                "cannot write a chart to {}: hmc writes charts as SVG only; use --plot {} and convert the file if needed",
                path.display(),
                instead.display()
            ),
            Self::NoFile { path, folder } => write!(
                f,
                "cannot write a chart to {}: name a file in an existing folder (is {} one?)",
                path.display(),
                folder.display()
            ),
        }
    }
}

impl From<PathError> for Failure {
    fn from(e: PathError) -> Self {
        Self::new(e.to_string())
    }
}

/// The file that a chart is written to.
#[derive(Debug)]
pub(super) struct Chart {
    path: PathBuf,
}

/// A named line.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Chart {
    /// Checks the path before anything is measured.
    ///
    /// # Errors
    /// [`PathError::NotSvg`] if the name does not end in `.svg`, in any case. [`PathError::NoFile`] if no file can be
    /// created there.
    pub(super) fn at(path: &Path) -> std::result::Result<Self, PathError> {
        let path = path.to_path_buf();
        if !path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
            let instead = path.with_extension("svg");
            return Err(PathError::NotSvg { path, instead });
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.is_dir() || !folder.is_dir() {
            let folder = folder.to_path_buf();
            return Err(PathError::NoFile { path, folder });
        }
        Ok(Self { path })
    }

    /// Draws the rows and writes the file, which replaces an older one.
    ///
    /// # Errors
    /// The system's reason if the file cannot be written.
    pub(super) fn draw(&self, rows: &[Row], transport: &str) -> Result<()> {
        let text = svg(rows, transport)?;
        std::fs::write(&self.path, text)
            .map_err(|e| Failure::new(format!("cannot write {}: {e}", self.path.display())))
    }
}

fn failed(e: impl fmt::Display) -> Failure {
    Failure::new(format!("cannot draw: {e}"))
}

/// The document: bandwidth on the left, latency on the right.
fn svg(rows: &[Row], transport: &str) -> Result<String> {
    let mut text = String::new();
    compose(SVGBackend::with_string(&mut text, SIZE), rows, transport)?;
    Ok(text)
}

fn compose(backend: SVGBackend<'_>, rows: &[Row], transport: &str) -> Result<()> {
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

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
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
    use super::{Chart, PathError, SIZE, label, range, svg};
    use crate::cmd::perf::row::Row;
    use crate::failure::Failure;
    use roxmltree::{Document, Node};
    use std::path::{Path, PathBuf};

    const PUT: &str = "#1F77B4";
    const GET: &str = "#D62728";
    const PUT_P99: &str = "#2CA02C";
    const GET_P99: &str = "#9467BD";

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

    /// The polylines of a colour that lie left of the middle, or right of it, by their points. That of the legend comes last.
    fn lines(document: &Document<'_>, colour: &str, left: bool) -> Vec<Vec<(f64, f64)>> {
        let middle = f64::from(SIZE.0) / 2.0;
        let points = |node: Node<'_, '_>| -> Vec<(f64, f64)> {
            let numbers: Vec<f64> = node
                .attribute("points")
                .expect("points")
                .split([' ', ','])
                .filter(|word| !word.is_empty())
                .map(|word| word.parse().expect("a number"))
                .collect();
            numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
        };
        let of_colour = |node: &Node<'_, '_>| {
            node.has_tag_name(("http://www.w3.org/2000/svg", "polyline"))
                && node.attribute("stroke") == Some(colour)
        };
        let all = document.descendants().filter(of_colour).map(points);
        all.filter(|points| points.iter().all(|(x, _)| (*x < middle) == left)).collect()
    }

    fn texts<'a>(document: &'a Document<'_>) -> Vec<&'a str> {
        let nodes = document.descendants().filter(|n| n.tag_name().name() == "text");
        nodes.filter_map(|n| n.text()).map(str::trim).collect()
    }

    #[test]
    fn the_lines_have_the_points_of_the_rows() {
        let text = svg(&rows(), "shm").unwrap();
        let document = Document::parse(&text).unwrap();
        let root = document.root_element();
        assert_eq!(root.tag_name().name(), "svg");
        assert_eq!(root.attribute("width"), Some(&*SIZE.0.to_string()));
        assert_eq!(root.attribute("height"), Some(&*SIZE.1.to_string()));
        let mut middles = Vec::new();
        for (colour, left) in [
            (PUT, true),
            (GET, true),
            (PUT, false),
            (GET, false),
            (PUT_P99, false),
            (GET_P99, false),
        ] {
            let lines = lines(&document, colour, left);
            let [line, legend] = lines.as_slice() else { panic!("{colour}: {lines:?}") };
            assert_eq!((line.len(), legend.len()), (11, 2), "{colour}");
            // Sizes grow by the same factor: on an axis of logarithms they have equal distances. So have the bandwidths on
            // their even axis, and the latencies, which double, on theirs. More is higher up.
            for (a, b) in line.iter().zip(&line[1..]) {
                let (dx, dy) = (line[10].0 - line[0].0, line[10].1 - line[0].1);
                assert!(dx > 400.0 && dy < -200.0, "{colour}: {line:?}");
                assert!((b.0 - a.0 - dx / 10.0).abs() <= 1.0, "{colour}: {line:?}");
                assert!((b.1 - a.1 - dy / 10.0).abs() <= 1.0, "{colour}: {line:?}");
            }
            middles.push(line[5].1);
        }
        // p99 is three times p50.
        let (p50, p99) = (middles[2], middles[4]);
        assert!(p99 < p50 - 20.0, "p50 at {p50}, p99 at {p99}");
        let texts = texts(&document);
        for want in [
            "bandwidth over shm, GB/s by bytes",
            "latency over shm, us by bytes",
            "put",
            "get",
            "put p50",
            "get p50",
            "put p99",
            "get p99",
        ] {
            assert!(texts.contains(&want), "{want}: {texts:?}");
        }
    }

    #[test]
    fn an_operation_that_was_not_measured_has_no_line() {
        for (op, other) in [("put", "get"), ("get", "put")] {
            let rows: Vec<Row> = rows().into_iter().filter(|r| r.op == op).collect();
            let text = svg(&rows, "tcp").unwrap();
            let document = Document::parse(&text).unwrap();
            // The first colours are taken: by bandwidth on the left, by p50 and p99 on the right.
            let counts = [(PUT, true), (GET, true), (PUT, false), (GET, false), (PUT_P99, false)]
                .map(|(colour, left)| lines(&document, colour, left).len());
            assert_eq!(counts, [2, 0, 2, 2, 0], "{op}");
            let texts = texts(&document);
            assert!(texts.contains(&op) && texts.contains(&&*format!("{op} p99")), "{texts:?}");
            assert!(!texts.iter().any(|text| text.starts_with(other)), "{texts:?}");
        }
    }

    #[test]
    fn a_chart_without_rows_has_axes_and_no_line() {
        let text = svg(&[], "shm").unwrap();
        let document = Document::parse(&text).unwrap();
        for (colour, left) in [(PUT, true), (PUT, false), (GET, false)] {
            assert_eq!(lines(&document, colour, left), [[]; 0]);
        }
        assert!(texts(&document).contains(&"latency over shm, us by bytes"));
        // One row has no range: it is a point in the frame.
        let text = svg(&rows()[..1], "shm").unwrap();
        let document = Document::parse(&text).unwrap();
        let all = lines(&document, PUT, false);
        let [point, _] = all.as_slice() else { panic!("{all:?}") };
        let frame = (600.0..1200.0, 0.0..520.0);
        assert!(point.iter().all(|(x, y)| frame.0.contains(x) && frame.1.contains(y)), "{point:?}");
    }

    #[test]
    fn a_path_of_another_format_is_refused_with_the_name_to_use() {
        for (path, instead) in [
            ("a.png", "a.svg"),
            ("b/a.PNG", "b/a.svg"),
            ("a.pdf", "a.svg"),
            ("a", "a.svg"),
            (".svg", ".svg.svg"),
        ] {
            let e = Chart::at(Path::new(path)).unwrap_err();
            let want = PathError::NotSvg { path: PathBuf::from(path), instead: instead.into() };
            assert_eq!(e, want);
            let said = Failure::from(e).to_string();
            assert!(
                said.contains("SVG only") && said.contains(&format!("--plot {instead} ")),
                "{said}"
            );
        }
    }

    #[test]
    fn a_path_where_no_file_can_be_is_refused() {
        let dir = std::env::temp_dir().join(format!("hmc-chart-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("b.svg")).unwrap();
        let no_file = |path: &Path, folder: &Path| {
            let (path, folder) = (path.to_path_buf(), folder.to_path_buf());
            PathError::NoFile { path, folder }
        };
        let missing = dir.join("none/a.svg");
        assert_eq!(Chart::at(&missing).unwrap_err(), no_file(&missing, &dir.join("none")));
        let folder = dir.join("b.svg");
        assert_eq!(Chart::at(&folder).unwrap_err(), no_file(&folder, &dir));
        // The folder may go while it is measured: that is told, too.
        let chart = Chart::at(&dir.join("b.svg/c.SVG")).unwrap();
        chart.draw(&rows(), "shm").unwrap();
        let written = std::fs::read_to_string(dir.join("b.svg/c.SVG")).unwrap();
        assert_eq!(written, svg(&rows(), "shm").unwrap());
        std::fs::remove_dir_all(&dir).unwrap();
        let said = chart.draw(&rows(), "shm").unwrap_err().to_string();
        assert!(said.starts_with("cannot write ") && said.contains("c.SVG"), "{said}");
    }
}
