//! A bitmap that can write: plotters' bitmap backend with letters of our own, so that no font has to
//! be found on the system.

use plotters::prelude::BitMapBackend;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use super::glyphs::{self, HEIGHT, WIDTH};

/// Pixels of a letter's dot.
const DOT: i32 = 2;
/// From one letter to the next, in pixels.
const ADVANCE: i32 = (WIDTH + 1) * DOT;

/// The backend.
pub(super) struct TextBackend<'a>(BitMapBackend<'a>);

type Failed<'a> = <BitMapBackend<'a> as DrawingBackend>::ErrorType;
type Drawn<'a> = Result<(), DrawingErrorKind<Failed<'a>>>;

impl<'a> TextBackend<'a> {
    /// Draws into RGB pixels.
    pub(super) fn over(pixels: &'a mut [u8], size: (u32, u32)) -> Self {
        Self(BitMapBackend::with_buffer(pixels, size))
    }
}

fn width(text: &str) -> i32 {
    i32::try_from(text.chars().count()).unwrap_or(0) * ADVANCE
}

impl<'a> DrawingBackend for TextBackend<'a> {
    type ErrorType = Failed<'a>;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Drawn<'a> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Drawn<'a> {
        self.0.present()
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn<'a> {
        self.0.draw_pixel(point, color)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn<'a> {
        self.0.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn<'a> {
        self.0.draw_rect(upper_left, bottom_right, style, fill)
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        _style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Failed<'a>>> {
        Ok((width(text).unsigned_abs(), (HEIGHT * DOT).unsigned_abs()))
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Drawn<'a> {
        let anchor = style.anchor();
        let x = match anchor.h_pos {
            HPos::Left => x,
            HPos::Center => x - width(text) / 2,
            HPos::Right => x - width(text),
        };
        let y = match anchor.v_pos {
            VPos::Top => y,
            VPos::Center => y - HEIGHT * DOT / 2,
            VPos::Bottom => y - HEIGHT * DOT,
        };
        let color = style.color();
        let (columns, rows) = self.0.get_size();
        let (columns, rows) =
            (i32::try_from(columns).unwrap_or(0), i32::try_from(rows).unwrap_or(0));
        for (place, c) in (0..).zip(text.chars()) {
            for (column, bits) in (0..).zip(glyphs::of(c)) {
                for row in (0..HEIGHT).filter(|row| bits >> row & 1 == 1) {
                    let left = x + place * ADVANCE + column * DOT;
                    let top = y + row * DOT;
                    for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                        let at = (left + dx, top + dy);
                        if (0..columns).contains(&at.0) && (0..rows).contains(&at.1) {
                            self.0.draw_pixel(at, color)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{DOT, TextBackend};
    use plotters_backend::text_anchor::{HPos, Pos, VPos};
    use plotters_backend::{BackendColor, BackendTextStyle, DrawingBackend, FontFamily};

    const SIZE: (u32, u32) = (80, 60);

    /// White, anchored somewhere.
    struct Style(Pos);

    impl BackendTextStyle for Style {
        type FontError = std::io::Error;

        fn color(&self) -> BackendColor {
            BackendColor { alpha: 1.0, rgb: (255, 255, 255) }
        }

        fn anchor(&self) -> Pos {
            Pos::new(self.0.h_pos, self.0.v_pos)
        }

        fn family(&self) -> FontFamily<'_> {
            FontFamily::Monospace
        }

        fn layout_box(&self, _text: &str) -> Result<((i32, i32), (i32, i32)), Self::FontError> {
            Ok(((0, 0), (0, 0)))
        }

        fn draw<E, F: FnMut(i32, i32, BackendColor) -> Result<(), E>>(
            &self,
            _text: &str,
            _pos: (i32, i32),
            _draw: F,
        ) -> Result<Result<(), E>, Self::FontError> {
            Ok(Ok(()))
        }
    }

    /// Draws at a point, and says which dots of the grid that begins at `origin` are lit; no other pixel may be.
    fn drawn(at: (i32, i32), anchor: Pos, origin: (i32, i32)) -> Vec<String> {
        let mut pixels = vec![0; 80 * 60 * 3];
        TextBackend::over(&mut pixels, SIZE).draw_text("1!", &Style(anchor), at).unwrap();
        let lit = |x: i32, y: i32| {
            let inside = (0..80).contains(&x) && (0..60).contains(&y);
            inside && pixels[usize::try_from((y * 80 + x) * 3).unwrap()] == 255
        };
        let corner = |column: i32, row: i32| (origin.0 + column * DOT, origin.1 + row * DOT);
        let mut count = 0;
        let mut dot = |column: i32, row: i32| {
            let (x, y) = corner(column, row);
            let whole = [(0, 0), (1, 0), (0, 1), (1, 1)].iter().all(|(dx, dy)| lit(x + dx, y + dy));
            count += usize::from(whole);
            if whole { '#' } else { '.' }
        };
        let art = (0..8).map(|row| (0..11).map(|column| dot(column, row)).collect()).collect();
        assert_eq!(pixels.iter().filter(|p| **p != 0).count(), count * 4 * 3, "at {at:?}");
        art
    }

    #[test]
    fn letters_stand_where_their_anchor_says() {
        let art = [
            "..#.....#..",
            ".##.....#..",
            "..#.....#..",
            "..#.....#..",
            "..#.....#..",
            "..#........",
            ".###....#..",
            "...........",
        ];
        let at = |h_pos, v_pos, origin| drawn((40, 30), Pos::new(h_pos, v_pos), origin);
        assert_eq!(at(HPos::Left, VPos::Top, (40, 30)), art);
        assert_eq!(at(HPos::Center, VPos::Center, (28, 22)), art);
        assert_eq!(at(HPos::Right, VPos::Bottom, (16, 14)), art);
        // What lies beyond an edge is left out.
        let cut = drawn((-4, -2), Pos::new(HPos::Left, VPos::Top), (-4, -2));
        assert_eq!(cut[1], "..#.....#..");
        assert_eq!(cut[0], "...........");
        let end = drawn((76, 58), Pos::new(HPos::Left, VPos::Top), (76, 58));
        assert_eq!(end.concat().trim_matches('.'), "");
    }

    #[test]
    fn the_backend_reports_the_sizes_of_the_picture_and_of_texts() {
        let mut pixels = vec![0; 80 * 60 * 3];
        let letters = TextBackend::over(&mut pixels, SIZE);
        assert_eq!(letters.get_size(), SIZE);
        // A letter has 5 columns and 8 rows of dots, and one column between it and the next.
        let style = Style(Pos::new(HPos::Left, VPos::Top));
        assert_eq!(letters.estimate_text_size("abc", &style).unwrap(), (3 * 12, 16));
    }
}
