"""What the Python package costs: each figure beside its reference, measured in the same run.

Run by ``cargo xtask bench --python``, which checks what ``--json`` writes. Medians of several rounds; the two of a pair take
turns.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import hmc

MIB = 1 << 20

#: A Python that has the module that is measured, and no other.
PYTHON = [sys.executable, "-I"]

#: What was measured, for ``--json``.
measured = []


def pairs(rounds, one, other):
    """Medians of both, and of their ratios, taken in turns; who is first changes. Each gives a time."""
    times = [(one(), other()) if i % 2 else (other(), one())[::-1] for i in range(rounds)]
    return (statistics.median(t[0] for t in times), statistics.median(t[1] for t in times),
            statistics.median(t[0] / t[1] for t in times))


def per_call(call, count):
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count


def row(what, value, reference, unit, ratio, target, met):
    measured.append({"name": what, "value": value, "reference": reference, "unit": unit, "met": bool(met)})
    shown = "-" if reference is None else f"{reference:.3g}"
    print(f"{what:<58} {value:>9.3g} {shown:>9} {unit:<6} {ratio:>7} {target:>16}  {'yes' if met else 'NO'}")
    return met


PEER = """
import sys, hmc
folder, port = sys.argv[1], int(sys.argv[2])
with hmc.create_session() as s:
    s.init_server(bind_ip="127.0.0.1", ucx_port=2025, ctrl_tcp_port=port, self_id=1, ctrl_uds_dir=folder)
    print("up", flush=True)
    sys.stdin.readline()
"""


def transfers(rounds):
    met = []
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        other = subprocess.Popen([*PYTHON, "-c", PEER, folder, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        other.stdout.readline()
        try:
            session = hmc.create_session()
            session.set_local_ip("127.0.0.1")
            os.environ["CTRL_TRANSPORT"] = "uds"
            session.connect(peer_id=1, self_id=0, peer_ip="127.0.0.1", data_port=2025, ctrl_tcp_port=port, uds_dir=folder,
                            conn=hmc.ConnType.SHM)
            peer, shm, count = session.peer(1), hmc.ConnType.SHM, 100_000
            put = session.put_remote
            python, rust, _ = pairs(
                rounds,
                lambda: per_call(lambda: put("127.0.0.1", 2025, 0, 0, 8, shm), count),
                lambda: peer._time_put(8, count),
            )
            loop = per_call(lambda: None, count)
            over = (python - loop - rust) * 1e9
            met.append(row("put_remote of 8 B over shm, beyond the Rust call", over, rust * 1e9, "ns", "-", "<= 300 ns", over <= 300))

            data = np.random.default_rng(0).integers(0, 256, 64 * MIB, np.uint8)
            warm = np.zeros_like(data)
            session.buf.put(data)
            many = rounds * 5  # each takes some milliseconds, in which much can come between
            ours, copy, ratio = pairs(many, lambda: per_call(lambda: session.buf.put(data), 3),
                                      lambda: per_call(lambda: np.copyto(warm, data), 3))
            met.append(row("buf.put(numpy 64 MiB), numpy.copyto into warm memory", 64 * MIB / ours / 1e9, 64 * MIB / copy / 1e9,
                           "GB/s", f"{1 / ratio:.3g}", "ratio >= 0.95", 1 / ratio >= 0.95))

            region = session.register(data)
            peer.put(region)
            ours, rust, ratio = pairs(many, lambda: per_call(lambda: peer.put(region), 3),
                                      lambda: peer._time_put(64 * MIB, 3, region))
            met.append(row("put of a registered 64 MiB array over shm, the Rust put", 64 * MIB / ours / 1e9,
                           64 * MIB / rust / 1e9, "GB/s", f"{1 / ratio:.3g}", "ratio >= 0.95", 1 / ratio >= 0.95))
            small = np.zeros(8, np.uint8)
            python, rust, _ = pairs(rounds, lambda: per_call(lambda: peer.put(small), count), lambda: peer._time_put(8, count))
            over = (python - loop - rust) * 1e9
            met.append(row("put of an 8 B array over shm, beyond the Rust call", over, rust * 1e9, "ns", "-", "<= 400 ns", over <= 400))

            for what, size, calls in (("put of a 1 MiB array over shm, the Rust put", MIB, 50),
                                      ("put of a 16 MiB array over shm, the Rust put", 16 * MIB, 5)):
                part = data[:size]
                held = session.register(part)
                ours, rust, ratio = pairs(many, lambda: per_call(lambda: peer.put(part), calls), lambda: peer._time_put(size, calls, held))
                met.append(row(what, size / ours / 1e9, size / rust / 1e9, "GB/s", f"{1 / ratio:.3g}", "ratio >= 0.95", 1 / ratio >= 0.95))
            session.close()
        finally:
            other.communicate("\n")
    return met


def starts(rounds):
    def process(code):
        begun = time.perf_counter()
        subprocess.run([*PYTHON, "-c", code], check=True)
        return time.perf_counter() - begun

    with_it, without, _ = pairs(max(rounds, 9), lambda: process("import hmc"), lambda: process("pass"))
    taken = (with_it - without) * 1e3
    met = [row("import hmc, beyond a bare interpreter", taken, without * 1e3, "ms", "-", "<= 50 ms", taken <= 50)]
    created = statistics.median(per_call(lambda: hmc.create_session().close(), 1) for _ in range(max(rounds, 9))) * 1e3
    met.append(row("create_session() with its 128 MiB, and close", created, None, "ms", "-", "<= 100 ms", created <= 100))
    return met


class Tensor:
    """An array that is reached by DLPack alone."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def exchanges(rounds):
    buf = hmc.IOBuffer.create(buffer_size=4096)
    region, array = buf.region, np.zeros(8, np.uint8)
    tensor, count = Tensor(array), 20_000
    write, nothing = region.write, b""
    loop = per_call(lambda: write(nothing), count)
    rows = [
        ("NumPy in (write of 8 B, beyond an empty one)", lambda: write(array), loop),
        ("DLPack in (the same, by DLPack alone)", lambda: write(tensor), loop + per_call(lambda: tensor.__dlpack__(max_version=(1, 0)), count)),
        ("NumPy out (numpy.frombuffer)", lambda: np.frombuffer(region, np.uint8), 0.0),
        ("DLPack out (the capsule)", lambda: region.__dlpack__(max_version=(1, 0)), 0.0),
    ]
    met = []
    for what, call, less in rows:
        took = statistics.median(per_call(call, count) - less for _ in range(rounds)) * 1e6
        met.append(row(what, took, None, "us", "-", "<= 1 us", took <= 1))
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", metavar="FILE", help="write the modules and all rows to FILE, one JSON object a line")
    options = parser.parse_args()
    rounds = 3 if options.quick else 7
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}, hmc {hmc.__version__}, {os.cpu_count()} processors, "
          f"load {os.getloadavg()[0]:.2f}")
    print(f"{'what':<58} {'value':>9} {'reference':>9} {'unit':<6} {'ratio':>7} {'target':>16}  met")
    met = transfers(rounds) + starts(rounds) + exchanges(rounds)
    print(f"{sum(met)} of {len(met)} targets met")
    if options.json:
        modules = [{"module": os.path.realpath(module.__file__)} for module in (hmc, hmc._hmc)]
        with open(options.json, "w") as out:
            out.writelines(json.dumps(line) + "\n" for line in modules + measured)


if __name__ == "__main__":
    main()
