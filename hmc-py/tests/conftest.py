"""What the tests share: ports, processes, and what this machine has."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import hmc
from hmc import listeners

#: Seconds in which a process of a test has to end, or to say its next line. Those in which it, or a process that it started,
#: could run and had no processor do not count, up to ten times as many: importing torch takes 2 s of a processor, and beside a
#: hundred busy threads 20 s.
LIMIT = 60


def pytest_collection_modifyitems(items):
    """Every process that collects the tests gives them the same names (pytest-xdist compares them)."""
    odd = [item.nodeid for item in items if re.search(r"0x[0-9a-f]{6}", item.nodeid)]
    if odd:
        raise pytest.UsageError(f"ids with addresses, which change from process to process: {odd}")


_ports = itertools.cycle(range(10000, 30000))
for _ in range(os.getpid() * 61 % 20000):
    next(_ports)


def free_port():
    """A TCP port of the loopback address that nobody uses. It is none of those that Linux hands out (32768 to 60999 by default):
    another process may get one of these before the test binds it."""
    for port in _ports:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


@pytest.fixture
def ports():
    return [free_port() for _ in range(4)]


def has_ucx():
    """Whether libucp can be loaded, asked in another process: it stays loaded."""
    done = ran("-c", "import hmc; hmc.Session(rank=0, buffer_size=0, ucx=True).close()")
    return done.returncode == 0, done.stderr.strip().splitlines()[-1:] or [""]


_ucx = None


@pytest.fixture
def ucx():
    """Skips where there is no UCX, and says why."""
    global _ucx
    if _ucx is None:
        _ucx = has_ucx()
    there, why = _ucx
    if not there:
        pytest.skip(f"no UCX: {why[0]}")


INFINIBAND = "/sys/class/infiniband"


@pytest.fixture
def rdma():
    """Skips where the kernel has no RDMA device."""
    if not listeners.has_rdma_device():
        pytest.skip(f"no RDMA device: {INFINIBAND} has none")


def rdma_packets():
    """The packets that the soft-RoCE devices of this machine have sent; ``None`` where a device does not count them there."""
    sent = []
    for device in os.listdir(INFINIBAND):
        try:
            with open(f"{INFINIBAND}/{device}/ports/1/hw_counters/sent_pkts") as f:
                sent.append(int(f.read()))
        except OSError:
            return None
    return sum(sent)


@pytest.fixture
def over_rdma(rdma):
    """As ``rdma``; soft-RoCE devices that sent nothing fail the test."""
    before = rdma_packets()
    yield
    assert before is None or rdma_packets() > before, "no RDMA device has sent a packet"


#: Neither UCX nor RDMA can be had, whatever this machine has.
NO_LIBRARIES = {"HMC_UCX_LIB": "/nowhere", "HMC_VERBS_LIB": "/nowhere"}

#: A parameter of tests, for what runs over RDMA verbs: ``pytest -m rdma`` runs these alone.
RDMA = pytest.param("rdma", marks=pytest.mark.rdma)

#: Without UCX the programs run as they are: the environment names another transport.
CONNS = ["ucx", RDMA, "fallback"]


class Env(dict):
    """Variables for the processes of a test, and the transport that its programs name."""

    conn = "UCX"

    def named(self, program):
        """A program of the C++ HMC's guides, which name UCX, with this transport in its place."""
        return program.replace("ConnType.UCX", f"ConnType.{self.conn}")


@pytest.fixture(params=CONNS)
def env(request):
    if request.param == "fallback":
        return Env(HMC_UCX_LIB="/nowhere", HMC_CONN_FALLBACK="auto")
    request.getfixturevalue({"ucx": "ucx", "rdma": "over_rdma"}[request.param])
    env = Env()
    env.conn = request.param.upper()
    return env


@pytest.fixture(autouse=True)
def sockets_of_its_own(tmp_path_factory, monkeypatch):
    """Each test has a folder of control sockets of its own."""
    folder = tmp_path_factory.mktemp("s")
    folder.chmod(0o700)
    monkeypatch.setenv("HMC_UDS_DIR", str(folder))


def unscheduled(pid, tid=None):
    """Seconds in which a thread, or the main thread, of a process was ready to run and had no processor, so far; 0 where the
    kernel does not count them."""
    try:
        with open(f"/proc/{pid}/task/{tid or pid}/schedstat") as f:
            return int(f.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def family(pid):
    """A process and all that it started, as far as they run."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = [int(child) for child in f.read().split()]
    except OSError:  # it has ended, or the kernel does not say
        children = []
    return [pid, *(one for child in children for one in family(child))]


def waited(pid, seen):
    """What :func:`unscheduled` says of a family, those that have ended too: ``seen`` keeps what was known of each."""
    for one in family(pid):
        seen[one] = max(unscheduled(one), seen.get(one, 0.0))
    return sum(seen.values())


def signalled(pid, number):
    """Sends a signal to a process of a test, if that is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Process:
    """A Python process that runs a script; it is ended with the test."""

    def __init__(self, script, *args, env=None):
        self.start(["-c", textwrap.dedent(script), *map(str, args)], env)

    def start(self, args, env=None, cwd=None, limit=LIMIT):
        whole = {**os.environ, **(env or {}), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
        self.limit = limit
        self.process = subprocess.Popen([sys.executable, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=whole, cwd=cwd)

    @property
    def pid(self):
        return self.process.pid

    def in_time(self, what, call):
        """What ``call`` gives, which waits for the process. One that hangs is ended, and says where each of its threads was."""
        done, hung = threading.Event(), threading.Event()

        def watch():
            seen, begun = {}, time.monotonic()
            before = waited(self.pid, seen)
            while time.monotonic() < begun + min(self.limit + waited(self.pid, seen) - before, 10 * self.limit):
                if done.wait(0.2):
                    return
            hung.set()
            # Whoever is left of them would keep the pipes open.
            for pid in (everybody := family(self.pid)):
                signalled(pid, signal.SIGCONT)
                signalled(pid, signal.SIGABRT)
            if not done.wait(10):
                for pid in everybody:
                    signalled(pid, signal.SIGKILL)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            got = call()
        finally:
            done.set()
            watcher.join()
        if hung.is_set():
            out, err = got if isinstance(got, tuple) else self.process.communicate()
            raise AssertionError(f"{what}: not within {self.limit} s of {self.process.args}\n{out}\n{err}")
        return got

    def line(self):
        """The next line that it prints."""
        line = self.in_time("a line", self.process.stdout.readline)
        if not line:
            _, err = self.in_time("its end", self.process.communicate)
            raise AssertionError(f"the process ended ({self.process.returncode}):\n{err}")
        return line.strip()

    def expect(self, text):
        line = self.line()
        assert line == text, line

    def tell(self, text=""):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def states(self):
        """What the kernel says of its threads: ``S`` sleeps, ``T`` is stopped. The main thread's comes first."""
        for task in sorted(os.listdir(f"/proc/{self.pid}/task"), key=int):
            with open(f"/proc/{self.pid}/task/{task}/stat") as f:
                yield f.read().rsplit(")", 1)[1].split()[0]

    def asleep(self):
        """Waits until its main thread sleeps in the kernel: it is in the call that it announced."""
        until("asleep", lambda: next(self.states()) == "S")

    def stop(self):
        """Stops it, and waits until none of its threads runs."""
        self.signal(signal.SIGSTOP)
        until("stopped", lambda: set(self.states()) == {"T"})

    def signal(self, number):
        os.kill(self.pid, number)

    def end(self):
        """Waits for its end; what it printed. It must succeed."""
        out, err = self.in_time("its end", self.process.communicate)
        assert self.process.returncode == 0, f"rc {self.process.returncode}\n{out}\n{err}"
        return out

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=LIMIT)


def ran(*args, env=None, cwd=None, limit=LIMIT):
    """What became of a Python with these arguments, as ``subprocess.run`` has it; one that hangs is ended."""
    process = Process.__new__(Process)
    process.start([*map(str, args)], env, cwd, limit)
    try:
        out, err = process.in_time("its end", process.process.communicate)
    finally:
        process.process.kill()
    return subprocess.CompletedProcess(process.process.args, process.process.returncode, out, err)


@pytest.fixture
def run():
    """Starts processes; the rest of them are killed at the end."""
    started = []

    def start(script, *args, **kwargs):
        process = Process(script, *args, **kwargs)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.process.poll() is None:
            process.process.send_signal(signal.SIGCONT)
            process.kill()
        else:
            process.process.communicate()


@pytest.fixture
def buf():
    return hmc.IOBuffer.create(buffer_size=1 << 16)


@pytest.fixture(params=["shm", "tcp", RDMA])
def pair(request):
    """Two sessions of this process, connected; rank 0's peer and rank 1's."""
    if request.param == "rdma":
        request.getfixturevalue("rdma")
    with hmc.Session(rank=1, listen=["tcp://127.0.0.1:0", "uds"], buffer_size=1 << 20) as b, \
            hmc.Session(rank=0, buffer_size=1 << 20) as a:
        to_b = a.connect(1, b.address, hmc.ConnType[request.param.upper()])
        assert to_b.conn == request.param
        before = rdma_packets() if request.param == "rdma" else None
        yield a, b, to_b, b.peer(0)
        if before is not None and any(moved(session) for session in (a, b)):
            assert rdma_packets() > before, "no RDMA device has sent what the session counts"


def moved(session):
    """The bytes that a session counts as moved by its end; none of one that is closed."""
    try:
        return sum(peer["bytes_out"] for peer in session.stats()["peers"].values())
    except hmc.HMCError:
        return 0


class Tensor:
    """A tensor of int16 as C code exports it, by version ``major`` of DLPack: ``shape`` and ``strides`` in elements, the first one
    ``first`` bytes behind the address of ``array``."""

    #: All that were made: without a deleter nobody says when whoever took one is done with it.
    made = []

    def __init__(self, array, shape, strides=None, first=0, major=1):
        self.made.append(self)
        class Struct(ctypes.Structure):
            _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p),
                        ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]

        numbers = ctypes.c_int64 * len(shape)
        self.array, self.shape_of, self.strides_of = array, numbers(*shape), None if strides is None else numbers(*strides)
        address = lambda given: None if given is None else ctypes.addressof(given)
        self.tensor = Struct(major, 0, None, None, 0, array.ctypes.data, (1, 0), len(shape), 0, 16, 1, address(self.shape_of),
                             address(self.strides_of), first)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor_versioned", None)


def until(what, look, limit=LIMIT):
    """Looks until it is true."""
    end = time.monotonic() + limit
    while not look():
        assert time.monotonic() < end, f"{what}: not within {limit} s"
        time.sleep(0.005)


def asleep(thread):
    """Waits until a thread of this process sleeps in a call. In one look it may only wait for the interpreter, which it could have
    had between two."""
    def sleeps():
        with open(f"/proc/self/task/{thread.native_id}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "S"

    def twice():
        first = sleeps()
        time.sleep(0.02)
        return first and sleeps()

    until("the thread sleeps", lambda: thread.native_id is not None and twice())


@contextlib.contextmanager
def written(*arrays):
    """Another thread writes 1 or 2 into all bytes of the arrays, again and again."""
    over, begun = threading.Event(), threading.Event()

    def write():
        while not over.is_set():
            for value in (2, 1):
                for array in arrays:
                    array[:] = value
            begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert begun.wait(LIMIT)
    try:
        yield
    finally:
        over.set()
        thread.join()
