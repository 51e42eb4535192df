//! `hmc_core::wire::hello`.

use crate::values::{any, bytes, done, hello, number, token};
use hmc_core::wire::advert::EndpointBlob;
use hmc_core::wire::hello::{Asked, EndpointList, Endpoints, Hello, LinkToken};

pub(crate) fn call() {
    let mut list = any(EndpointList::new());
    let storage = [0; 64];
    done(EndpointList::push(&mut list, EndpointBlob { kind: any(0), bytes: bytes(&storage) }));
    let mut list = any(list);
    done(&mut list);
    let endpoints = any(EndpointList::endpoints(&list));
    done(Endpoints::len(&endpoints));
    done(Endpoints::is_empty(&endpoints));
    done(Endpoints::as_bytes(&endpoints));
    Endpoints::iter(&endpoints).for_each(done);
    done(Hello::detached(hello()));
    let asked = any(Asked::new(any([0; 16]), any(0), number()));
    done((Asked::ip(&asked), Asked::port(&asked), Asked::netns(&asked)));
    done(LinkToken::matches(&token(), &token()));
}
