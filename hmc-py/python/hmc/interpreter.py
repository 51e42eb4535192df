"""Refuses sub-interpreters before the native half is loaded: its classes and its state exist once in a process."""

import ctypes


def _is_main() -> bool:
    # Of CPython's stable interface; the main interpreter's number is 0. There is no public way to it in Python.
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api.PyInterpreterState_GetID.restype = ctypes.c_int64
    api.PyInterpreterState_GetID.argtypes = [ctypes.c_void_p]
    return bool(api.PyInterpreterState_GetID(api.PyInterpreterState_Get()) == 0)


if not _is_main():
    raise ImportError(
        "hmc cannot be used in a sub-interpreter: its native half exists once in a process; import it in the main "
        "interpreter, or use another process"
    )
