//! The order of associated types in declarations, which differs from build to build.

/// A declaration with the bindings of each list of generic arguments (`A = B`) behind its other arguments, sorted.
pub(super) fn sorted(text: &str) -> String {
    let Some((before, rest)) = text.split_once('<') else { return text.to_owned() };
    let end = end_of_list(rest);
    let (list, after) = rest.split_at(end);
    let (mut bindings, mut others) = (Vec::new(), Vec::new());
    for argument in arguments(list) {
        let argument = sorted(argument);
        if is_binding(&argument) { bindings.push(argument) } else { others.push(argument) }
    }
    bindings.sort_unstable();
    others.append(&mut bindings);
    format!("{before}<{}{}", others.join(", "), sorted(after))
}

/// Where the list of arguments ends that begins at the beginning of a text: at its `>`, or at the end.
fn end_of_list(text: &str) -> usize {
    depths(text).find(|(_, depth)| *depth < 0).map_or(text.len(), |(at, _)| at)
}

/// Each place of a text, with the number of brackets that are open behind it. The `>` of `->` closes nothing.
fn depths(text: &str) -> impl Iterator<Item = (usize, i32)> {
    let (mut depth, mut before) = (0_i32, ' ');
    text.char_indices().map(move |(at, c)| {
        let change = match c {
            '<' | '(' | '[' => 1,
            '>' if before == '-' => 0,
            '>' | ')' | ']' => -1,
            _ => 0,
        };
        before = c;
        depth = depth.saturating_add(change);
        (at, depth)
    })
}

fn arguments(list: &str) -> Vec<&str> {
    let is_comma = |(at, depth): &(usize, i32)| *depth == 0 && list[*at..].starts_with(", ");
    let mut begin = 0;
    let mut all = Vec::new();
    for (at, _) in depths(list).filter(is_comma) {
        all.push(&list[begin..at]);
        begin = at.saturating_add(2);
    }
    all.push(&list[begin..]);
    all
}

fn is_binding(argument: &str) -> bool {
    depths(argument).any(|(at, depth)| depth == 0 && argument[at..].starts_with(" = "))
}

#[cfg(test)]
mod tests {
    use super::sorted;

    #[test]
    fn bindings_are_sorted_and_nothing_else() {
        for (text, expected) in [
            ("pub fn f(&self) -> bool", "pub fn f(&self) -> bool"),
            ("fn f<T, A>(t: T) -> Vec<A>", "fn f<T, A>(t: T) -> Vec<A>"),
            (
                "type T = dyn X<B = Y<D = u8, C>, A = u64>",
                "type T = dyn X<A = u64, B = Y<C, D = u8>>",
            ),
            (
                "X<'a, fn(u8) -> u8, Z = (u8, u8), M = [u8; 2]>::f",
                "X<'a, fn(u8) -> u8, M = [u8; 2], Z = (u8, u8)>::f",
            ),
            (
                "impl<T: I<Z = u8, Item = T>> A<T> for B<T>",
                "impl<T: I<Item = T, Z = u8>> A<T> for B<T>",
            ),
            ("fn open(", "fn open("),
        ] {
            assert_eq!(sorted(text), expected);
        }
    }
}
