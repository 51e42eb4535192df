"""Tensors by rank, with shape and dtype, as torch.distributed's isend and irecv."""

from _pair import run


def here(session, peer):
    import torch

    activations = torch.empty(64, 1024, dtype=torch.bfloat16)
    session.irecv(activations, src=1).wait()
    unknown = session.recv(src=1, like="torch")
    print("received", tuple(activations.shape), activations.dtype, "and", tuple(unknown.shape), unknown.dtype)
    session.send(activations.float().sum(), dst=1)


def there(session, peer):
    import torch

    x = torch.ones(64, 1024, dtype=torch.bfloat16)
    ops = [session.isend(x, dst=0), session.isend(torch.arange(10), dst=0)]
    for op in ops:
        op.wait()
    print("sum", session.recv(src=0, like="torch").item())


if __name__ == "__main__":
    try:
        import torch  # noqa: F401
    except ImportError:
        raise SystemExit("this example needs torch: pip install torch") from None
    run(here, there)
