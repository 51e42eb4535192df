//! `cargo xtask bench --against COMMIT`: the same measurements of this tree and of a commit, in turns.
//!
//! Four programs stand beside each other: old code, old code again, old code with a planted delay of 10 %, and new code. Each
//! takes one sample of a series at a time, and who is first changes. What old code loses against itself, or where the delay does
//! not show, cannot be measured here: such lines are held by their instructions. The measuring program is this tree's, over the
//! libraries of each: what it changed by itself is no difference.

use super::options::{Options, PATIENCE};
use super::profile::instructions;
use super::ratios::{Assessment, Kind, Ratio, assess};
use super::taker::{Line, Taker, Word};
use crate::shell;
use crate::tree;
use crate::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The share of its time that the third program wastes.
const DELAY: f64 = 0.10;
/// The fewest pairs of samples, and how many the same processes take.
const FEWEST: usize = 21;
const EACH_LIFE: usize = 3;
/// What instructions may grow by, and by how much code may differ from itself: those of a waiter that spins differ by more.
const MORE: f64 = 1.05;
const SAME: f64 = 1.01;
/// Rows that count by themselves, once for old and new.
const COUNTED: [&str; 1] = ["ucx-ops"];

/// A line that was compared.
struct Compared {
    name: String,
    lost: bool,
    /// Whether time could be measured, and the delay showed.
    timed: bool,
    /// Whether anything could be said.
    known: bool,
    words: String,
}

/// Builds both and compares them.
pub(crate) fn run(commit: &str, options: &Options) -> Verdict {
    match compare(commit, options) {
        Ok(lines) => conclude(&lines),
        Err(why) => Verdict::Failed(why),
    }
}

fn compare(commit: &str, options: &Options) -> Result<Vec<Compared>, String> {
    let (old, new) = match options.programs.as_deref() {
        Some([old, new]) => (old.clone(), new.clone()),
        _ => {
            let root = tree::root();
            let new = build(&root, &root.join("target"), &options.profile)?;
            (build_commit(&root, commit, &options.profile)?, new)
        }
    };
    let pairs = options.pairs.max(FEWEST);
    println!(
        "\n{commit} against itself, with a delay of {:.0} %, and against this tree: {pairs} samples each, in turns; median \
         [95 % interval] of the neighbours' ratios\n",
        DELAY * 100.0
    );
    let mut all = Vec::new();
    for row in rows(&new)? {
        if options.only.as_ref().is_some_and(|only| !row.contains(only.as_str())) {
            continue;
        }
        let counted = COUNTED.contains(&row.as_str());
        let programs: &[(&PathBuf, f64)] = if counted {
            &[(&old, 0.0), (&new, 0.0)]
        } else {
            &[(&old, 0.0), (&new, 0.0), (&old, 0.0), (&old, DELAY)]
        };
        let lines = match in_turns(&row, programs, pairs) {
            Ok(answers) => lines_of(&row, &answers, (&old, &new)),
            Err(why) => vec![Compared {
                name: row.clone(),
                lost: false,
                timed: false,
                known: false,
                words: format!("not measured: {why}"),
            }],
        };
        for line in lines {
            println!("{:<52} {}", line.name, line.words);
            all.push(line);
        }
    }
    if let Some(path) = &options.json {
        let text: String = all.iter().map(|l| format!("{}\n", json(l))).collect();
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(all)
}

fn json(line: &Compared) -> serde_json::Value {
    serde_json::json!({
        "name": line.name, "lost": line.lost, "timed": line.timed, "known": line.known, "words": line.words,
    })
}

/// The measuring program of a tree.
fn build(source: &Path, target: &Path, profile: &str) -> Result<PathBuf, String> {
    let mut command = shell::cargo();
    command.current_dir(source).args(["build", "--profile", profile, "-p", "hmc-cli", "-p"]);
    command.args(["hmc-benches", "--target-dir"]).arg(target);
    let done = shell::stream(&mut command, PATIENCE)?;
    if !done.success {
        return Err(format!(
            "`{}` in {}: {}",
            shell::shown(&command),
            source.display(),
            done.why()
        ));
    }
    Ok(target.join(profile).join("hmc-bench"))
}

/// The measuring program of this tree over the libraries of a commit, in a folder of its own under `target`.
fn build_commit(root: &Path, commit: &str, profile: &str) -> Result<PathBuf, String> {
    let run = |command: &mut Command| -> Result<String, String> {
        let out = shell::capture(command.current_dir(root))?;
        let why = || format!("`{}`: {} {}", shell::shown(command), out.why(), out.stderr.trim());
        if out.success { Ok(out.stdout.trim().to_owned()) } else { Err(why()) }
    };
    let asked = format!("{commit}^{{commit}}");
    let id = run(Command::new("git").args(["rev-parse", "--verify", "--quiet", &asked]))?;
    let home = root.join("target/against").join(&id);
    let source = home.join("source");
    // What an earlier run left may be half of it; what it built is kept.
    let _ = std::fs::remove_dir_all(&source);
    std::fs::create_dir_all(&source).map_err(|e| format!("{}: {e}", source.display()))?;
    let tar = home.join("source.tar");
    run(Command::new("git").arg("archive").arg("-o").arg(&tar).arg(&id))?;
    // The files' times are the commit's: what was built from them before is not built again.
    run(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&source))?;
    let own = source.join("benches");
    run(Command::new("mv").arg(&own).arg(source.join("its-own-benches")))?;
    run(Command::new("cp").arg("-rp").arg(root.join("benches")).arg(&own))?;
    let target = home.join("target");
    let built = build(&source, &target, profile);
    let its_own = source.join("its-own-benches");
    if built.is_ok() || !its_own.join("src/turns.rs").exists() {
        return built;
    }
    println!(
        "this tree's measuring program does not fit the libraries of {commit}: its own is taken"
    );
    std::fs::remove_dir_all(&own).map_err(|e| format!("{}: {e}", own.display()))?;
    run(Command::new("mv").arg(&its_own).arg(&own))?;
    build(&source, &target, profile)
}

/// The names of the rows.
fn rows(program: &Path) -> Result<Vec<String>, String> {
    let out = shell::capture(Command::new(program).arg("--list"))?;
    let names = out.stdout.lines().filter_map(|l| l.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

/// The lines of a row of each program, whose samples were taken in turns. Processes are started again every few samples: where
/// the system lays their memory moves a program by some percent, and that belongs to the interval.
fn in_turns(
    row: &str,
    programs: &[(&PathBuf, f64)],
    pairs: usize,
) -> Result<Vec<Vec<Line>>, String> {
    let mut all: Vec<Vec<Line>> = Vec::new();
    let mut lives = 0_usize;
    for begun in (0..pairs).step_by(EACH_LIFE) {
        let wanted = pairs.saturating_sub(begun).min(EACH_LIFE);
        // Who starts first changes, too.
        lives = lives.saturating_add(1);
        let lines = one_life(row, programs, wanted, lives)?;
        if all.is_empty() {
            all = lines;
            if !all.iter().flatten().any(|line| line.series.is_some()) {
                break;
            }
            continue;
        }
        for (line, more) in all.iter_mut().flatten().zip(lines.into_iter().flatten()) {
            if line.name != more.name {
                return Err("the row has other lines each time".to_owned());
            }
            line.samples.extend(more.samples);
        }
    }
    Ok(all)
}

/// All of `n` things, from another one each turn.
fn in_order<T>(turn: usize, n: usize, all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut all: std::collections::VecDeque<T> = all.collect();
    all.rotate_left(turn.checked_rem(n).unwrap_or_default());
    all.into_iter()
}

fn one_life(
    row: &str,
    programs: &[(&PathBuf, f64)],
    pairs: usize,
    life: usize,
) -> Result<Vec<Vec<Line>>, String> {
    let mut started = Vec::new();
    for (place, (program, delay)) in in_order(life, programs.len(), programs.iter().enumerate()) {
        let mut taker = Taker::start(program, *delay)?;
        let word = taker.request(&format!("row {row}"))?;
        started.push((place, taker, word));
    }
    started.sort_by_key(|(place, ..)| *place);
    let (mut takers, mut words): (Vec<_>, Vec<_>) =
        started.into_iter().map(|(_, taker, word)| (taker, word)).unzip();
    while words.iter().all(|word| matches!(word, Word::Turn)) {
        for round in 0..pairs {
            let turn = life.saturating_add(round);
            let mut order: Vec<_> = in_order(turn, takers.len(), takers.iter_mut()).collect();
            if (life / 2).saturating_add(round) % 2 == 1 {
                order.reverse();
            }
            for taker in order {
                match taker.request("go")? {
                    Word::Turn => {}
                    Word::Over(Err(why)) => return Err(why),
                    Word::Over(Ok(_)) => return Err("a series ended by itself".to_owned()),
                }
            }
        }
        for (taker, word) in takers.iter_mut().zip(&mut words) {
            *word = taker.request("enough")?;
        }
    }
    let answers = words.into_iter().map(|word| match word {
        Word::Over(answer) => answer,
        Word::Turn => Err("the programs have other series".to_owned()),
    });
    answers.collect()
}

fn lines_of(row: &str, answers: &[Vec<Line>], (old, new): (&Path, &Path)) -> Vec<Compared> {
    let Some((first, others)) = answers.split_first() else { return Vec::new() };
    let find = |place: usize, name: &str| -> Option<&Line> {
        others.get(place)?.iter().find(|line| line.name == name)
    };
    first
        .iter()
        .map(|line| {
            let ours = find(0, &line.name);
            let (again, delayed) = (find(1, &line.name), find(2, &line.name));
            match (ours, again.zip(delayed)) {
                (Some(ours), Some((again, delayed))) if line.series.is_some() => {
                    by_time(row, [line, ours, again, delayed], (old, new))
                }
                (Some(ours), _) => by_value(line, ours),
                (None, _) => known(line, false, false, "the other program has no such line".into()),
            }
        })
        .collect()
}

fn known(line: &Line, lost: bool, timed: bool, words: String) -> Compared {
    Compared { name: line.name.clone(), lost, timed, known: true, words }
}

/// Figures that need no time: counts are compared, others shown.
fn by_value(old: &Line, new: &Line) -> Compared {
    let Some((a, b)) = old.value.zip(new.value) else {
        let note = if old.note().is_empty() { new.note() } else { old.note() };
        return Compared { known: false, ..known(old, false, false, note.to_owned()) };
    };
    let counts = old.unit.is_empty();
    let lost = counts && b > a * MORE;
    let said = if lost {
        "LOST"
    } else if counts {
        "held"
    } else {
        "one value each, not compared"
    };
    known(old, lost, false, format!("{said}: {b:.4} {}, was {a:.4}", old.unit))
}

fn by_time(
    row: &str,
    [old, new, again, delayed]: [&Line; 4],
    programs: (&Path, &Path),
) -> Compared {
    let kind = Kind::of(&old.unit);
    let ratio = |line: &Line| Ratio::of(kind, &line.samples, &old.samples);
    let ((Some(control), Some(planted)), Some(ratio)) =
        ((ratio(again), ratio(delayed)), ratio(new))
    else {
        return Compared { known: false, ..known(old, false, false, "too few samples".to_owned()) };
    };
    let what = if kind == Kind::Rate { "rate" } else { "time" };
    let words = format!("{what} {ratio}; old against old {control}, with the delay {planted}");
    match assess(kind, control, planted, ratio) {
        Assessment::Held => known(old, false, true, format!("held: {words}")),
        Assessment::Lost => known(old, true, true, format!("LOST: {words}")),
        Assessment::NotMeasurable(why) => {
            let words = format!("not measurable here ({why}), {what} {ratio}");
            by_instructions(row, old, words, programs)
        }
    }
}

/// What cannot be timed: the instructions of one sample, if they are the same each time.
fn by_instructions(row: &str, line: &Line, words: String, (old, new): (&Path, &Path)) -> Compared {
    let series = line.series.unwrap_or_default();
    let twice = |program| -> Result<[f64; 2], String> {
        Ok([instructions(program, row, series)?, instructions(program, row, series)?])
    };
    let unknown = |why: String| Compared {
        known: false,
        ..known(line, false, false, format!("{words}; its instructions: {why}"))
    };
    match twice(old).and_then(|old| Ok(growth(old, twice(new)?))) {
        Err(why) => unknown(format!("not counted: {why}")),
        Ok(Err(why)) => unknown(why),
        Ok(Ok(ratio)) => {
            let said = if ratio > MORE { "LOST" } else { "held" };
            known(line, ratio > MORE, false, format!("{said} by instructions {ratio:.3}: {words}"))
        }
    }
}

/// By how much instructions that were counted twice have grown, or why that cannot be said.
fn growth(old: [f64; 2], new: [f64; 2]) -> Result<f64, String> {
    for ([a, b], code) in [(old, "old"), (new, "new")] {
        if a <= 0.0 || b <= 0.0 || a / b > SAME || b / a > SAME {
            return Err(format!("{a:.0} and {b:.0} for {code} code: they say nothing"));
        }
    }
    let mean = |[a, b]: [f64; 2]| f64::midpoint(a, b);
    Ok(mean(new) / mean(old))
}

fn conclude(lines: &[Compared]) -> Verdict {
    let of = |what: fn(&Compared) -> bool| lines.iter().filter(|l| what(l)).count();
    println!(
        "\n{} lines: {} by time (a delay of 10 % showed in each), {} by instructions and counts, {} of which nothing can be said \
         here; {} lost",
        lines.len(),
        of(|l| l.timed),
        of(|l| l.known && !l.timed),
        of(|l| !l.known),
        of(|l| l.lost)
    );
    let lost: Vec<&str> = lines.iter().filter(|l| l.lost).map(|l| l.name.as_str()).collect();
    if !lost.is_empty() {
        return Verdict::failed(format!("lost: {}", lost.join("; ")));
    }
    if of(|l| l.known) == 0 {
        return Verdict::failed("nothing could be compared");
    }
    Verdict::Passed
}

#[cfg(test)]
mod tests {
    use super::{Compared, MORE, conclude, growth, in_order};
    use crate::verdict::Verdict;

    #[test]
    fn everybody_is_first_in_turn() {
        let firsts: Vec<usize> = (0..4).filter_map(|turn| in_order(turn, 4, 0..4).next()).collect();
        assert_eq!(firsts, [0, 1, 2, 3]);
        assert_eq!(in_order(5, 3, 0..3).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(in_order(5, 0, 0..0).count(), 0);
    }

    #[test]
    fn instructions_that_differ_between_two_counts_say_nothing() {
        assert_eq!(growth([100.0, 100.5], [108.0, 108.0]).map(|r| r > MORE), Ok(true));
        assert_eq!(growth([100.0, 100.5], [101.0, 101.0]).map(|r| r > MORE), Ok(false));
        for (old, new, code) in [
            ([100.0, 102.0], [108.0, 108.0], "old"),
            ([100.0, 100.0], [110.0, 108.0], "new"),
            ([100.0, 100.0], [0.0, 0.0], "new"),
        ] {
            let why = growth(old, new).expect_err("they differ");
            assert!(why.contains(&format!("for {code} code")), "{why}");
        }
    }

    #[test]
    fn a_lost_line_and_an_empty_comparison_fail() {
        let line = |lost, known| Compared {
            name: "a put".to_owned(),
            lost,
            timed: false,
            known,
            words: String::new(),
        };
        assert_eq!(conclude(&[line(false, true), line(false, false)]), Verdict::Passed);
        let lost = conclude(&[line(false, true), line(true, true)]);
        assert!(matches!(lost, Verdict::Failed(why) if why.contains("a put")));
        assert!(matches!(conclude(&[line(false, false)]), Verdict::Failed(_)));
        assert!(matches!(conclude(&[]), Verdict::Failed(_)));
    }
}
