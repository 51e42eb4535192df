//! The functions of a program, their frames and their calls, read from a disassembly.
//!
//! A call is `call` or `bl`; a jump out of the own function is a call too (the last one of a
//! function often is). A call through a register, and a jump through one out of a table that no
//! function of ours needs, are indirect: what they reach is not known. Text of `objdump -d -C`.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a call itself takes: the return address (on aarch64 it is part of the frame).
const CALL_BYTES: u64 = if cfg!(target_arch = "aarch64") { 0 } else { 8 };

/// Instructions of floating point; moves and bit operations of vectors are none.
const FLOAT: [&str; 9] =
    ["addsd", "addss", "subsd", "mulsd", "mulss", "divsd", "cvtsi2sd", "cvttsd2si", "fadd"];

/// One function.
#[derive(Debug, Default)]
struct Function {
    name: String,
    frame: Option<u64>,
    calls: BTreeSet<u64>,
    indirect: bool,
}

/// A program as a graph.
#[derive(Debug)]
pub(super) struct Program {
    /// By the address of their first byte.
    functions: BTreeMap<u64, Function>,
    float: Option<String>,
}

/// What can happen below a function, itself included.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// The most bytes of stack that any chain of calls takes.
    pub(super) deepest: u64,
    /// Whether something unknown may be called.
    pub(super) indirect: bool,
    /// A function that calls itself, through whatever.
    pub(super) cycle: Option<String>,
    /// A function without a known frame.
    pub(super) unknown: Option<String>,
}

/// The entries of a `.stack_sizes` section: an address of eight bytes and a ULEB128 each.
pub(super) fn frames(mut bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (address, rest) = bytes.split_first_chunk::<8>()?;
        bytes = rest;
        let mut size = 0_u64;
        let mut shift = 0_u32;
        loop {
            let (byte, rest) = bytes.split_first()?;
            bytes = rest;
            size |= u64::from(byte & 0x7F).checked_shl(shift)?;
            shift = shift.checked_add(7)?;
            if byte & 0x80 == 0 {
                break;
            }
        }
        out.push((u64::from_le_bytes(*address), size));
    }
    Some(out)
}

/// Whether a function writes a value as text.
pub(super) fn is_text(name: &str) -> bool {
    name.contains("core::fmt::") && name.ends_with(">::fmt")
}

impl Program {
    /// Reads a disassembly.
    ///
    /// # Errors
    /// Words, when it is none.
    pub(super) fn read(text: &str, frames: &[(u64, u64)]) -> Result<Self, String> {
        let mut functions: BTreeMap<u64, Function> = BTreeMap::new();
        let mut code: Vec<(u64, &str)> = Vec::new();
        let mut here = 0_u64;
        for line in text.lines() {
            if let Some((address, name)) = heading(line) {
                here = address;
                functions.entry(address).or_default().name = name.to_owned();
            } else if let Some((_, instruction)) = line.split_once(":\t") {
                code.push((here, instruction));
            }
        }
        if functions.is_empty() {
            return Err("the disassembly shows no function".to_owned());
        }
        for (address, size) in frames {
            if let Some(f) = functions.get_mut(address) {
                f.frame = Some(*size);
            }
        }
        let starts: BTreeSet<u64> = functions.keys().copied().collect();
        let mut float = None;
        for (address, instruction) in code {
            let mnemonic = instruction.split_whitespace().next().unwrap_or("");
            if FLOAT.contains(&mnemonic.trim_start_matches('v')) {
                float = float.or_else(|| Some(instruction.to_owned()));
            }
            let Some(f) = functions.get_mut(&address) else {
                continue;
            };
            match kind(instruction) {
                Kind::Other => {}
                Kind::Unknown => f.indirect = true,
                Kind::Call(to) => {
                    f.calls.insert(to);
                }
                Kind::Jump(to) => {
                    let home = starts.range(..=to).next_back().copied();
                    if home != Some(address) {
                        f.calls.insert(home.unwrap_or(to));
                    }
                }
            }
        }
        Ok(Self { functions, float })
    }

    /// The first instruction of floating point.
    pub(super) fn float(&self) -> Option<&str> {
        self.float.as_deref()
    }

    /// The functions of hmc-core; those that the driver implements for its traits are left out.
    pub(super) fn entries(&self) -> impl Iterator<Item = u64> {
        self.functions
            .iter()
            .filter(|(_, f)| f.name.contains("hmc_core::") && !f.name.starts_with("<hmc_nopanic"))
            .filter(|(_, f)| !f.name.starts_with("hmc_nopanic"))
            .map(|(address, _)| *address)
    }

    /// The name of a function.
    pub(super) fn name(&self, address: u64) -> &str {
        self.functions.get(&address).map_or("?", |f| f.name.as_str())
    }

    /// The frame of a function in bytes.
    pub(super) fn frame(&self, address: u64) -> Option<u64> {
        self.functions.get(&address)?.frame
    }

    /// What can happen below a function.
    pub(super) fn reach(&self, from: u64) -> Reach {
        self.walk(from, &mut Vec::new(), &mut BTreeMap::new())
    }

    fn walk(&self, at: u64, path: &mut Vec<u64>, known: &mut BTreeMap<u64, Reach>) -> Reach {
        if let Some(reach) = known.get(&at) {
            return reach.clone();
        }
        // Address zero is the panic that the linker was told to forget.
        if at == 0 {
            return Reach::default();
        }
        if path.contains(&at) {
            return Reach { cycle: Some(self.name(at).to_owned()), ..Reach::default() };
        }
        let Some(f) = self.functions.get(&at) else {
            return Reach { unknown: Some(format!("address {at:#x}")), ..Reach::default() };
        };
        let mut reach = Reach { indirect: f.indirect, ..Reach::default() };
        if f.frame.is_none() {
            reach.unknown = Some(f.name.clone());
        }
        path.push(at);
        for to in &f.calls {
            let below = self.walk(*to, path, known);
            reach.deepest = reach.deepest.max(below.deepest);
            reach.indirect |= below.indirect;
            reach.cycle = reach.cycle.or(below.cycle);
            reach.unknown = reach.unknown.or(below.unknown);
        }
        path.pop();
        reach.deepest =
            reach.deepest.saturating_add(f.frame.unwrap_or(0)).saturating_add(CALL_BYTES);
        known.insert(at, reach.clone());
        reach
    }
}

/// `0000000000401000 <name>:`
fn heading(line: &str) -> Option<(u64, &str)> {
    let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

/// What an instruction does to the flow of control.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Other,
    Unknown,
    Call(u64),
    Jump(u64),
}

fn kind(instruction: &str) -> Kind {
    let mut words = instruction.split_whitespace();
    let mnemonic = words.next().unwrap_or("");
    // The target is the last operand: `cbz x0, 401000 <f>` on aarch64.
    let before_name = instruction.split_once('<').map_or(instruction, |(before, _)| before);
    let target = before_name
        .split([' ', '\t', ','])
        .rfind(|w| !w.is_empty())
        .and_then(|w| u64::from_str_radix(w, 16).ok());
    let named = instruction.contains('<') && !instruction.contains('*');
    match (mnemonic, target) {
        ("call" | "callq" | "bl", Some(to)) if named => Kind::Call(to),
        // An address without a symbol: only the panic that was defined as zero.
        ("call" | "callq" | "bl", Some(0)) => Kind::Call(0),
        ("call" | "callq" | "bl" | "blr" | "br", _) => Kind::Unknown,
        (jump, Some(to)) if named && is_jump(jump) => Kind::Jump(to),
        ("jmp" | "jmpq" | "b", Some(0)) => Kind::Jump(0),
        ("jmp" | "jmpq", _) => Kind::Unknown,
        _ => Kind::Other,
    }
}

fn is_jump(mnemonic: &str) -> bool {
    mnemonic.starts_with('j')
        || mnemonic == "b"
        || mnemonic.starts_with("b.")
        || matches!(mnemonic, "cbz" | "cbnz" | "tbz" | "tbnz")
}

#[cfg(test)]
mod tests {
    use super::{Kind, Program, frames, kind};

    #[test]
    fn sections_are_read() {
        let mut bytes = vec![0x10, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x02];
        bytes.extend([0x20, 0, 0, 0, 0, 0, 0, 0, 8]);
        assert_eq!(frames(&bytes), Some(vec![(0x10, 256), (0x20, 8)]));
        assert_eq!(frames(&bytes[..9]), None);
    }

    #[test]
    fn instructions_are_distinguished() {
        assert_eq!(kind("call   401230 <f>"), Kind::Call(0x40_1230));
        assert_eq!(kind("jne    401240 <f+0x10>"), Kind::Jump(0x40_1240));
        assert_eq!(kind("bl\t401230 <f>"), Kind::Call(0x40_1230));
        assert_eq!(kind("cbz\tx0, 401230 <f+0x4>"), Kind::Jump(0x40_1230));
        for unknown in
            ["call   *%rax", "jmp    *0x10(%rip)        # 4020 <t>", "blr\tx8", "jmp *%rcx"]
        {
            assert_eq!(kind(unknown), Kind::Unknown, "{unknown}");
        }
        for other in ["mov    %rax,0x10(%rdx)", "lea    0x10(%rip),%rax  # 401230 <f>", "ret"] {
            assert_eq!(kind(other), Kind::Other, "{other}");
        }
    }

    #[test]
    fn chains_are_added_up_and_tail_jumps_are_calls() {
        let text = "0000000000000010 <a>:\n  10:\tcall   20 <b>\n  15:\tjne    12 <a+0x2>\n  18:\tjmp    30 <c>\n\
             0000000000000020 <b>:\n  20:\tret\n0000000000000030 <c>:\n  30:\tret\n";
        let p = Program::read(text, &[(0x10, 16), (0x20, 100), (0x30, 40)]).unwrap();
        let reach = p.reach(0x10);
        let overhead = 2 * super::CALL_BYTES;
        assert_eq!(reach.deepest, 116 + overhead);
        assert!(reach.cycle.is_none() && reach.unknown.is_none() && !reach.indirect);
        assert!(Program::read("no code", &[]).is_err());
    }
}
