"""Starts Granian by its own class, its workers by the start method that is asked for."""
import multiprocessing
import sys

from granian import Granian

if __name__ == "__main__":
    method, port, workers = sys.argv[1:]
    multiprocessing.set_start_method(method)
    Granian("asgi:app", interface="asgi", port=int(port), workers=int(workers)).serve()
