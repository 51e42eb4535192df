//! Samples on request: a program of old code and one of new code take the same series, one sample each at a time.
//!
//! The caller (`cargo xtask bench --against`) writes `row NAME`, and after each `turn` either `go` or `enough`; the program
//! replies to a row with one line of JSON. Neither measures a reference: each is the reference of the other. With `--count` a series has a
//! fixed number of samples instead, whose instructions callgrind counts.

use std::process::ExitCode;

use serde_json::json;

use crate::context::Context;
use crate::error::Res;
use crate::row::Row;
use crate::series::{self, Direction, read_line, write_line};

/// Runs the rows that are named, until there are no more lines.
pub(crate) fn serve(rows: &[Box<dyn Row>], context: &Context, delay: f64) -> Res<ExitCode> {
    series::take(Direction::OnRequest, delay);
    while let Some(line) = read_line()? {
        let name = line.strip_prefix("row ").unwrap_or_default();
        let row = rows.iter().find(|row| row.name() == name);
        series::begin_row();
        let answer = match row.map(|row| row.run(context)) {
            Some(Ok(lines)) => {
                let lines: Vec<_> = lines.iter().map(|line| line.json(name)).collect();
                json!({ "lines": lines })
            }
            Some(Err(why)) => json!({ "error": why }),
            None => json!({ "error": format!("no row `{name}`") }),
        };
        write_line(&answer.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does `samples` samples of one series of a row, and says which the row has.
pub(crate) fn count(row: &dyn Row, context: &Context, series: u32, samples: u32) -> Res<ExitCode> {
    series::take(Direction::Fixed { series, samples }, 0.0);
    row.run(context)?;
    Ok(ExitCode::SUCCESS)
}
