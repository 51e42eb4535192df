"""Forked children: what they are told, and what they find at addresses of their parent's memory."""

from __future__ import annotations

import faulthandler
import gc
import inspect
import io
import logging
import multiprocessing
import os
import signal
import threading
import time

import pytest
from conftest import LIMIT

import hmc
from hmc import _hmc

np = pytest.importorskip("numpy")

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def in_child(body):
    """What ``body`` returns in a forked child, or the signal that ended it; a child that hangs ends by SIGALRM."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT)
        try:
            said = body()
        except BaseException as e:
            said = repr(e)
        os.write(write, str(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        said = f.read()
    _, status = os.waitpid(pid, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else said


def told(call):
    """Nothing if the call says that the process forked; else what it said."""
    try:
        return f"returned {call()!r}"
    except hmc.Forked:
        return ""
    except BaseException as e:
        return repr(e)


def test_every_method_says_that_the_process_forked(pair, tmp_path):
    a, b, peer, back = pair
    region, array = a.allocate(4096), bytearray(64)
    registered = a.register(array)
    window = peer.expose(region, label=1)
    theirs = back.expose(b.allocate(64), label=2)
    remote = peer.window(2)
    batch = peer.prepare_put([(0, 0, 8)])
    blocks = a.generations(8, 8)
    op, group = peer.put_nb(bytes(8)), a._core._group([0, 1])
    waker, out = _hmc.Waker(), bytearray(8)
    core = a._core
    ops = [peer.put_nb(bytes(8)) for _ in range(4)]
    dst = np.zeros(8, np.uint8)
    regions = {
        "write": lambda r: r.write(b"x"), "read_into": lambda r: r.read_into(out), "read": lambda r: r.read(1),
        "write_from_address": lambda r: r.write_from_address(dst.ctypes.data, 8),
        "read_to_address": lambda r: r.read_to_address(dst.ctypes.data, 8),
        "copy_within": lambda r: r.copy_within(0, 8, 8), "fill": lambda r: r.fill(1), "crc32c": lambda r: r.crc32c(),
        "load_flag": lambda r: r.load_flag(0), "store_flag": lambda r: r.store_flag(0, 1),
        "__buffer__": memoryview, "__dlpack__": lambda r: r.__dlpack__(),
    }
    table = {
        "Core": {
            "_start": lambda: core._start(5), "_listen_tcp": lambda: core._listen_tcp("127.0.0.1:0"),
            "_listen_uds": lambda: core._listen_uds(str(tmp_path / "listeners")), "_allow_insecure": core._allow_insecure,
            "_close_listeners": core._close_listeners, "_connect": lambda: core._connect(1, b.address, 2),
            "_loopback": core._loopback, "_end_place": lambda: core._end_place("127.0.0.1", 1, 2),
            "_connect_named": lambda: core._connect_named(7, b.address, 2), "_call": lambda: core._call(7, peer), "_let_go": lambda: core._let_go(7), "_beside": lambda: core._beside(),
            "_at": lambda: core._at("127.0.0.1", 1, 2), "peer": lambda: core.peer(1), "_recv_any": lambda: core._recv_any(1),
            "_group": lambda: core._group([0, 1]), "register": lambda: core.register(array),
            "allocate": lambda: core.allocate(1), "generations": lambda: core.generations(8, 8), "put_remote": lambda: core.put_remote("127.0.0.1", 1),
            "get_remote": lambda: core.get_remote("127.0.0.1", 1), "put_nb": lambda: core.put_nb("127.0.0.1", 1),
            "get_nb": lambda: core.get_nb("127.0.0.1", 1), "_wait": lambda: core._wait([1], 1),
            "_ctrl_send": lambda: core._ctrl_send(1, 1), "_ctrl_recv": lambda: core._ctrl_recv(1), "stats": core.stats,
            "close": core.close, "_check_process": core._check_process, "_own_ip": lambda: core._own_ip("10.0.0.1"),
            "_know": lambda: core._know("10.0.0.1", 1, 2, peer), "_fileno": core._fileno, "_clear_events": core._clear_events,
        },
        "Peer": {
            "put": lambda: peer.put(b"x"), "get": lambda: peer.get(out), "put_nb": lambda: peer.put_nb(b"x"),
            "get_nb": lambda: peer.get_nb(out), "put_notify": lambda: peer.put_notify(b"x", tag=1),
            "prepare_put": lambda: peer.prepare_put([(0, 0, 1)]), "prepare_get": lambda: peer.prepare_get([(0, 0, 1)]),
            "expose": lambda: peer.expose(region, label=9), "window": lambda: peer.window(2),
            "send_tag": lambda: peer.send_tag(1), "recv_tag": lambda: peer.recv_tag(timeout=1),
            "recv_notify": lambda: peer.recv_notify(timeout=1), "send": lambda: peer.send(b"x"),
            "recv": lambda: peer.recv(timeout=1), "send_data": lambda: peer.send_data(b"x"),
            "recv_data": lambda: peer.recv_data(out), "isend_data": lambda: peer.isend_data(b"x"),
            "irecv_data": lambda: peer.irecv_data(out), "_time_put": lambda: peer._time_put(8, 1),
            "send_int": lambda: peer.send_int(1), "recv_int": lambda: peer.recv_int(timeout=1),
            "put into a window": lambda: peer.put(b"x", window=remote),
            "disconnect": lambda: peer.disconnect(),
        },
        "Region": {f"{name} of {kind}": (lambda c=call, r=of: c(r)) for name, call in regions.items()
                   for kind, of in [("memory", region), ("the buffer", a._core.region), ("an array", registered)]},
        "Window": {"revoke": window.revoke},
        "Generations": {"advance": lambda: blocks.advance(0), "a block's": lambda: blocks[0]},
        "Batch": {"run": batch.run, "post": batch.post},
        "Op": {"wait": lambda: ops[0].wait(1), "done": ops[1].done, "cancel": ops[2].cancel,
               "_watch": lambda: ops[3]._watch(waker, 1)},
        "RawGroup": {"barrier": lambda: group.barrier(1)},
        "Waker": {"take": waker.take},
    }
    # Methods that the table lacks. Collectives are one call in Rust, whose own table has each of them.
    plain = {"Core": {"_unstart"}, "Peer": {"explain"}, "Region": {"__dlpack_device__"}, "Window": set(), "Batch": set(), "Generations": set(),
             "Op": set(), "Waker": {"fileno"}}
    missing = [f"{kind}.{name} is not in the table" for kind, known in plain.items()
               for name, what in vars(getattr(_hmc, kind)).items()
               if inspect.isroutine(what) and not (name.startswith("__") and name != "__dlpack__")
               and name not in known and not any(n.split(" ")[0] == name for n in table[kind])]

    def child():
        wrong = list(missing)
        for kind, calls in table.items():
            for name, call in calls.items():
                if said := told(call):
                    wrong.append(f"{kind}.{name}: {said}")
        plain = [region.nbytes == 4096, len(region) == 4096, "4096" in repr(region), not a._core._is_live, core._unstart() is None, not peer.connected,
                 peer.conn is None, repr(peer) != "", registered.array is array]
        with a:
            pass
        return "\n".join(wrong) + str(all(plain))

    assert in_child(child) == "True"
    # The parent goes on.
    op.wait()
    peer.put(b"still works")
    assert b.buffer.read(11) == b"still works"
    window.revoke()
    theirs.revoke()


@pytest.mark.parametrize("view", [memoryview, lambda r: np.frombuffer(r, np.uint8), np.from_dlpack],
                         ids=["memoryview", "numpy", "dlpack"])
@pytest.mark.parametrize("start", ["fork", "multiprocessing"])
def test_a_view_from_before_the_fork_faults_and_shows_no_other_memory(view, start):
    with hmc.Session(rank=0, buffer_size=1 << 20) as s:
        region = s.allocate(1 << 24)
        region.fill(7)
        views = [view(region), view(s._core.region)]
        for at in views:

            def child(at=at):
                taken = [bytearray(1 << 20) for _ in range(64)]
                taken += [np.ones(1 << 24, np.uint8), np.zeros(1 << 30, np.uint8)]
                faulthandler.disable()
                with hmc.Session(rank=1, buffer_size=1 << 20) as own:
                    own.buffer.fill(9, nbytes=64)
                    return f"read {at[0]} beside {len(taken)}"

            if start == "fork":
                assert in_child(child) == -signal.SIGSEGV
            else:
                process = multiprocessing.get_context("fork").Process(target=child)
                process.start()
                process.join(LIMIT)
                assert process.exitcode == -signal.SIGSEGV
        assert views[0][0] == 7


def test_a_child_that_drops_inherited_regions_keeps_its_own_arrays():
    with hmc.Session(rank=0, buffer_size=0) as s:
        held = [s.allocate(1 << 24) for _ in range(8)]

        def child():
            arrays = [np.full(1 << 24, 5, np.uint8) for _ in range(16)]
            held.clear()
            return all((array == 5).all() for array in arrays)

        assert in_child(child) == "True"
        held[0].fill(1)


def test_registered_arrays_are_the_child_s_own_copies():
    with hmc.Session(rank=0, buffer_size=0) as s:
        array = np.full(4096, 7, np.uint8)
        region = s.register(array)

        def child():
            array[:] = 8
            return f"{array[0]} {told(lambda: region.read(1))}"

        assert in_child(child) == "8 "
        assert region.read(1) == b"\x07"


def test_calls_of_the_cxx_hmc_that_have_nothing_to_do_say_that_the_process_forked(pair):
    """In the parent each of them succeeds, also where there is nothing to end or to wait for."""
    a, _, _, _ = pair
    raises = {
        "close_server": a.close_server, "disconnect": lambda: a.disconnect("10.0.0.9", 1), "wait": lambda: a.wait(0),
        "wait for a list": lambda: a.wait([0, 0]), "wait for nothing": lambda: a.wait([]),
        "check_conn": lambda: a.check_conn("10.0.0.9", 1),
    }
    comm = a.comm
    answers = {
        "closeServer": comm.closeServer, "closeCtrl": comm.closeCtrl, "closeCtrlPeer": lambda: comm.closeCtrlPeer(7),
        "disConnect": lambda: comm.disConnect("10.0.0.9", 1), "wait": lambda: comm.wait(0),
        "initCtrlServer": lambda: comm.initCtrlServer("127.0.0.1", 0),
    }

    def child():
        wrong = {name: said for name, call in raises.items() if (said := told(call))}
        # A call of the binding answers with a status.
        wrong |= {f"comm.{name}": status for name, call in answers.items() if (status := call()) == hmc.status_t.SUCCESS}
        # Nor where the tags of all peers are over.
        comm._silent.add(None)
        return wrong or comm.closeCtrlPeer(7) == hmc.status_t.ERROR

    assert in_child(child) == "True"
    assert all(call() in (None, False) for call in raises.values())
    assert [call() for call in answers.values()] == [hmc.status_t.SUCCESS] * len(answers)


def test_a_lock_that_a_thread_of_the_parent_has_stops_no_child():
    """A thread that starts a session holds its lock until the buffer is there."""
    with hmc.create_session(0) as s:
        with s._held:
            calls = [lambda: s.connect("127.0.0.1", 1), lambda: s.connect(1, 0, "127.0.0.1", 1, 2),
                     lambda: s.init_server("127.0.0.1", 1), lambda: s.isend(np.zeros(1), 1), lambda: s.recv(src=1)]
            holder = []
            # Of another thread than the child's.
            thread = threading.Thread(target=lambda: holder.append([in_child(lambda c=call: told(c)) for call in calls]))
            thread.start()
            thread.join()
    assert holder == [[""] * len(calls)]


def test_what_a_child_says_is_heard():
    """The thread that carries the library's words to ``logging`` is not in a child: it gets one of its own."""
    heard = logging.StreamHandler(out := io.StringIO())
    logging.getLogger("hmc").addHandler(heard)

    def warned():
        end = time.monotonic() + 10
        with hmc.Session(rank=0, buffer_size=0, accept_upstream=True):
            while "C++ HMC" not in out.getvalue() and time.monotonic() < end:
                time.sleep(0.001)
        return out.getvalue().count("C++ HMC")

    try:
        assert warned() == 1
        out.truncate(0)
        assert in_child(warned) == "1"
    finally:
        logging.getLogger("hmc").removeHandler(heard)


def test_what_a_child_drops_closes_none_of_its_descriptors(pair):
    """As in a program that detaches itself: it closes all descriptors, and opens its own under the same numbers."""
    a, b, peer, _ = pair
    everything = [a.allocate(64), a.register(bytearray(8)), peer.expose(a.allocate(64), label=1), _hmc.Waker(),
                  peer.prepare_put([(0, 0, 8)]), _hmc.Core(buffer_size=4096), memoryview(a.allocate(64)), peer, a, b]
    del a, b, peer

    def child():
        links = {int(n): os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")}
        mine = os.open("/dev/null", os.O_RDONLY)
        taken = [fd for fd, to in links.items() if fd > 2 and not to.startswith("pipe:")]
        for fd in taken:
            os.dup2(mine, fd)
        everything.clear()
        gc.collect()
        closed = [links[fd] for fd in taken if not os.path.exists(f"/proc/self/fd/{fd}")]
        return closed or len(taken) > 8

    assert in_child(child) == "True"


def test_the_thread_that_makes_a_buffer_is_no_thread_of_the_childs():
    cores = [_hmc.Core(buffer_size=1 << 29)]

    def child():
        # One of their threads has the place of the parent's.
        own = [_hmc.Core(buffer_size=64 << 20, settings={"lazy": True}) for _ in range(16)]
        cores.clear()
        gc.collect()
        return {core.region.nbytes for core in own}

    assert in_child(child) == str({64 << 20})
    assert cores[0].region.nbytes == 1 << 29
