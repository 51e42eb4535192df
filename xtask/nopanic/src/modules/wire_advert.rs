//! `hmc_core::wire::advert`.

use crate::values::{any, bytes, done, small};
use hmc_core::wire::advert::{EndpointDesc, EndpointBlob, RegionAdvert, UcxKey};
use hmc_core::wire::cursor::{Reader, Writer};

pub(crate) fn call() {
    if let Ok(advert) = RegionAdvert::parse(&any([0; 48]), small()) {
        done(RegionAdvert::to_bytes(&any(advert)));
        let (key, mut place) = ([7; 64], [0; 128]);
        let key = bytes(&key);
        if let Some(key) = UcxKey::compose(&any(advert.region), any(1), key, any(&mut place[..])) {
            done(UcxKey::content(&any(key)));
        }
    }
    let storage = [0; 64];
    let endpoint = any(EndpointDesc::tcp(any(1)));
    done(EndpointDesc::port(&endpoint));
    let blob = any(EndpointDesc::blob(&endpoint));
    done(EndpointBlob::decode(&blob));
    done(EndpointBlob::emitted_len(&blob));
    done(EndpointBlob::parse(&mut Reader::new(bytes(&storage), small())));
    let mut target = [0; 64];
    done(EndpointBlob::emit(&blob, &mut Writer::new(any(&mut target[..]))));
}
