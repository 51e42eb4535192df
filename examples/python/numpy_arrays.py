"""Arrays from where they lie to where they shall be: no staging copy at either end."""

import numpy as np
from _pair import run

SHAPE = (512, 512)


def here(session, peer):
    region = session.allocate(np.prod(SHAPE) * 8)  # peers of this host map it
    field = np.frombuffer(region, np.float64).reshape(SHAPE)
    with peer.expose(region, label=1, access="w"):
        step = peer.recv_notify()
        print("step", step, "mean", field.mean())
        peer.send_tag(step)


def there(session, peer):
    field = np.random.default_rng(0).standard_normal(SHAPE)
    region = session.register(field)
    peer.put_notify(region, 17, window=peer.window(1))
    assert peer.recv_tag() == 17
    print("sent  mean", field.mean())


if __name__ == "__main__":
    run(here, there)
