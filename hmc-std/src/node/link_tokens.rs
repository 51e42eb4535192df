//! Tokens by which secondary connections find their links.
//!
//! A token opens its link once. It is compared with every known token up to the last byte, so the time of a refusal
//! reveals nothing about them.

use hmc_core::wire::hello::LinkToken;

/// Tokens that were given out and have opened nothing yet, with the serial numbers of their links.
#[derive(Debug, Default)]
pub(crate) struct LinkTokens(Vec<(LinkToken, u32)>);

impl LinkTokens {
    /// Notes the token of a link.
    pub(crate) fn insert(&mut self, token: LinkToken, serial: u32) {
        self.0.push((token, serial));
    }

    /// The link of a token, which is used up by this.
    pub(crate) fn take(&mut self, token: &LinkToken) -> Option<u32> {
        let mut hit = None;
        for (at, (known, _)) in self.0.iter().enumerate() {
            if known.matches(token) {
                hit = Some(at);
            }
        }
        hit.map(|at| self.0.swap_remove(at).1)
    }

    /// A link is over: its token opens nothing any more.
    pub(crate) fn remove(&mut self, serial: u32) {
        self.0.retain(|(_, s)| *s != serial);
    }
}

#[cfg(test)]
mod tests {
    use super::LinkTokens;
    use hmc_core::wire::hello::LinkToken;

    #[test]
    fn a_token_opens_its_link_once() {
        let token = |n| LinkToken([n; 16]);
        let mut tokens = LinkTokens::default();
        for n in 0..5 {
            tokens.insert(token(n), u32::from(n) + 10);
        }
        assert_eq!(tokens.take(&token(9)), None);
        assert_eq!(tokens.take(&token(2)), Some(12));
        assert_eq!(tokens.take(&token(2)), None, "used up");
        tokens.remove(13);
        assert_eq!(tokens.take(&token(3)), None, "its link is over");
        assert_eq!((tokens.take(&token(0)), tokens.take(&token(4))), (Some(10), Some(14)));
    }
}
