"""add_reader, add_writer and the sock_ methods, against asyncio."""
import asyncio
import gc
import os
import socket
import threading
import weakref

import pytest
import treadle

from twin import twin


def pair():
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    return a, b


@pytest.mark.parametrize("base", [asyncio.SelectorEventLoop, treadle.Loop])
def test_who_makes_the_future_of_a_receive_may_take_the_reader_away_before(base):
    class Loop(base):
        def create_future(self):
            if idle:
                self.remove_reader(idle.pop())
            return super().create_future()

    async def main():
        received = []
        for data in (b"first", b"second"):
            loop.call_soon(loop.call_soon, b.send, data)
            received.append(await loop.sock_recv(a, 10))
            idle.append(a)
        return received

    idle = []
    loop = Loop()
    a, b = pair()
    try:
        assert loop.run_until_complete(main()) == [b"first", b"second"]
    finally:
        loop.close()
        a.close()
        b.close()


@twin
async def test_a_reader_is_called_while_data_is_there(t):
    a, b = pair()

    def readable(tag):
        data = a.recv(1)
        t.log(tag, data)
        if data == b"c":
            t.loop.remove_reader(a)
            done.set_result(None)

    done = t.loop.create_future()
    t.log(t.loop.add_reader(a, readable, "tag"))
    b.send(b"abcd")
    await done
    await t.turns(5)
    t.log(t.loop.remove_reader(a), a.recv(10))
    a.close()
    b.close()


@twin
async def test_a_writer_is_called_while_there_is_room(t):
    a, b = pair()
    count = [0]

    def writable():
        count[0] += 1
        if count[0] == 3:
            t.log(t.loop.remove_writer(a.fileno()))
            done.set_result(None)

    done = t.loop.create_future()
    t.log(t.loop.add_writer(a.fileno(), writable))
    await done
    await t.turns(5)
    t.log(count, t.loop.remove_writer(a))
    a.close()
    b.close()


@twin
async def test_reader_and_writer_of_one_descriptor(t):
    a, b = pair()
    reads, writes = t.loop.create_future(), t.loop.create_future()

    def readable():
        t.log("read", a.recv(100))
        t.loop.remove_reader(a)
        reads.set_result(None)

    def writable():
        t.log("write")
        t.loop.remove_writer(a)
        writes.set_result(None)

    t.loop.add_writer(a, writable)
    t.loop.add_reader(a, readable)
    await writes
    b.send(b"x")
    await reads
    a.close()
    b.close()


@twin
async def test_replacing_a_reader_keeps_the_writer(t):
    a, b = pair()
    done = t.loop.create_future()
    t.loop.add_reader(a, t.log, "old")
    t.loop.add_writer(a, lambda: (t.log("writer"), t.loop.remove_writer(a)))
    t.loop.add_reader(a, lambda: (t.log("new", a.recv(5)), t.loop.remove_reader(a), done.set_result(None)))
    b.send(b"data")
    await done
    await t.turns(3)
    a.close()
    b.close()


@twin
async def test_a_reader_removed_in_the_same_generation_is_not_called(t):
    pairs = [pair() for _ in range(2)]

    def first(other):
        t.log("one ran")
        for p in pairs:
            t.loop.remove_reader(p[0])

    for i, (a, b) in enumerate(pairs):
        t.loop.add_reader(a, first, i)
        b.send(b"x")
    await t.turns(6)
    for a, b in pairs:
        a.close()
        b.close()


@twin
async def test_wrong_descriptors_answer_as_asyncio(t):
    a, b = pair()
    a.close()
    for fd in (a, -1, None, "x", 1.5, object()):
        t.call(t.loop.add_reader, fd, t.log)
        t.call(t.loop.add_writer, fd, t.log)
        t.call(t.loop.remove_reader, fd)
        t.call(t.loop.remove_writer, fd)
    t.call(t.loop.add_reader, 10 ** 6, t.log)
    t.call(t.loop.remove_reader, 10 ** 6)
    b.close()


class Numbered:
    def __init__(self, number):
        self.number = number

    def fileno(self):
        return self.number


@twin
async def test_numbers_out_of_range_and_of_other_types_answer_as_asyncio(t):
    r, w = os.pipe()
    for value in (2**31 - 1, 2**31, 2**40, 2**100, -2**31, -2**40, -2**100):
        for fd in (value, Numbered(value), Numbered(str(value))):
            for call in (t.loop.add_reader, t.loop.add_writer):
                t.call(call, fd, t.log)
            for call in (t.loop.remove_reader, t.loop.remove_writer):
                t.call(call, fd)
    for fd in (Numbered("x"), Numbered(None), Numbered([])):
        t.call(t.loop.add_reader, fd, t.log)
        t.call(t.loop.remove_reader, fd)
    for fd in (Numbered(str(r)), Numbered(float(r) + 0.5)):
        t.call(t.loop.add_reader, fd, t.log)
        t.call(t.loop.remove_reader, fd)
    for port in (-1, 65536, 2**31, 2**100):
        try:
            await t.loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        except Exception as exc:
            t.log(exc)
    os.close(r)
    os.close(w)


@twin
async def test_nothing_is_received_at_once(t):
    a, b = pair()
    t.log(await t.loop.sock_recv(a, 0))
    t.log(await t.loop.sock_recv_into(a, bytearray()))
    b.send(b"x")
    t.log(
        await t.loop.sock_recv(a, 0),
        await t.loop.sock_recv_into(a, bytearray()),
        await t.loop.sock_recv(a, 5),
    )
    a.close()
    b.close()


@twin
async def test_a_regular_file_cannot_be_watched(t):
    fd = os.open(__file__, os.O_RDONLY)
    try:
        t.call(t.loop.add_reader, fd, t.log)
    finally:
        os.close(fd)


@twin
async def test_a_transports_descriptor_is_refused(t):
    a, b = pair()
    transport, protocol = await t.loop.create_connection(lambda: t.recorder("p"), sock=a)
    for call in (lambda: t.loop.add_reader(a.fileno(), t.log), lambda: t.loop.add_writer(a.fileno(), t.log),
                 lambda: t.loop.remove_reader(a.fileno()), lambda: t.loop.remove_writer(a.fileno())):
        t.call(call)
    await t.acall(t.loop.sock_recv(a, 10))
    await t.acall(t.loop.sock_sendall(a, b"x"))
    transport.close()
    await protocol.done
    b.close()


@twin
async def test_a_reader_keeps_the_descriptors_blocking_mode(t):
    r, w = os.pipe()
    before = os.get_blocking(r), os.get_blocking(w)
    t.loop.add_reader(r, t.log)
    t.loop.add_writer(w, lambda: t.loop.remove_writer(w))
    await t.turns(3)
    t.loop.remove_reader(r)
    t.log(before == (os.get_blocking(r), os.get_blocking(w)))
    os.close(r)
    os.close(w)


@twin
async def test_remove_close_and_reuse_of_one_number(t):
    for round_ in range(30):
        a, b = pair()
        number = a.fileno()
        got = t.loop.create_future()
        t.loop.add_reader(a, lambda: (t.loop.remove_reader(number), got.set_result(a.recv(4))))
        b.send(b"%d" % round_)
        t.log(await got)
        a.close()
        b.close()


@twin
async def test_a_duplicate_left_open_does_not_call_the_wrong_reader(t):
    a, b = pair()
    copy = os.dup(a.fileno())
    t.loop.add_reader(a, t.log, "must not run")
    t.loop.remove_reader(a)
    a.close()
    b.send(b"x")
    await t.turns(5)
    c, d = pair()
    seen = t.loop.create_future()
    t.loop.add_reader(c, lambda: (t.loop.remove_reader(c), seen.set_result(c.recv(1))))
    d.send(b"y")
    t.log(await seen)
    os.close(copy)
    for s in (b, c, d):
        s.close()


@twin
async def test_a_hang_up_wakes_the_reader(t):
    a, b = pair()
    got = t.loop.create_future()
    t.loop.add_reader(a, lambda: (t.loop.remove_reader(a), got.set_result(a.recv(10))))
    b.close()
    t.log(await got)
    a.close()


@twin
async def test_an_error_wakes_reader_and_writer(t):
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    conn, _ = listener.accept()
    client.setblocking(False)
    import struct
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    got = t.loop.create_future()

    def readable():
        t.loop.remove_reader(client)
        try:
            client.recv(1)
        except OSError as exc:
            got.set_result(type(exc).__name__)

    t.loop.add_reader(client, readable)
    conn.close()
    t.log(await got)
    client.close()
    listener.close()


@twin
async def test_a_reader_that_raises_is_reported_and_called_again(t):
    a, b = pair()
    count = [0]

    def readable():
        count[0] += 1
        if count[0] == 2:
            t.loop.remove_reader(a)
        raise ValueError("in reader")

    t.loop.add_reader(a, readable)
    b.send(b"x")
    await t.turns(6)
    t.log(count)
    a.close()
    b.close()


@twin
async def test_sock_recv_sendall_and_recv_into(t):
    a, b = pair()
    await t.acall(t.loop.sock_sendall(a, b"hello"))
    await t.acall(t.loop.sock_recv(b, 100))
    later = t.loop.create_task(t.loop.sock_recv(b, 100))
    await t.turns(2)
    await t.acall(t.loop.sock_sendall(a, bytearray(b"again")))
    t.log(await later)
    buffer = bytearray(10)
    into = t.loop.create_task(t.loop.sock_recv_into(b, buffer))
    await t.turns(2)
    await t.acall(t.loop.sock_sendall(a, memoryview(b"view")))
    t.log(await into, bytes(buffer))
    await t.acall(t.loop.sock_sendall(a, b""))
    a.close()
    await t.acall(t.loop.sock_recv(b, 100))
    await t.acall(t.loop.sock_sendall(b, b"x"))
    b.close()


@twin
async def test_sock_sendall_of_much_data(t):
    a, b = pair()
    data = os.urandom(2_000_000)
    sender = t.loop.create_task(t.loop.sock_sendall(a, data))
    got = bytearray()
    while len(got) < len(data):
        got += await t.loop.sock_recv(b, 65536)
    await sender
    t.log(bytes(got) == data)
    a.close()
    b.close()


@twin
async def test_sock_accept_and_connect(t):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    accept = t.loop.create_task(t.loop.sock_accept(listener))
    client = socket.socket()
    client.setblocking(False)
    await t.acall(t.loop.sock_connect(client, listener.getsockname()))
    conn, address = await accept
    t.log(conn.getblocking(), address == client.getsockname())
    await t.loop.sock_sendall(client, b"ping")
    t.log(await t.loop.sock_recv(conn, 10))
    for s in (listener, client, conn):
        s.close()


@twin
async def test_sock_connect_errors(t):
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    address = probe.getsockname()
    probe.close()
    client = socket.socket()
    client.setblocking(False)
    try:
        await t.loop.sock_connect(client, address)
    except OSError as exc:
        t.log(type(exc).__name__, exc.errno)
    client.close()
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    await t.acall(t.loop.sock_connect(client, "/nonexistent/socket"))
    client.close()


@twin
async def test_sock_connect_resolves_names(t):
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.socket()
    client.setblocking(False)
    await t.acall(t.loop.sock_connect(client, ("localhost", listener.getsockname()[1])))
    client.close()
    listener.close()


@twin
async def test_sock_connect_takes_ipv6_four_tuples(t):
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        t.log("no IPv6")
        return
    client = socket.socket(socket.AF_INET6)
    client.setblocking(False)
    await t.acall(t.loop.sock_connect(client, listener.getsockname()))
    client.close()
    listener.close()


@twin
async def test_sock_methods_refuse_blocking_sockets_in_debug_mode(t):
    a, b = socket.socketpair()
    if t.debug:
        await t.acall(t.loop.sock_recv(a, 1))
        await t.acall(t.loop.sock_recv_into(a, bytearray(1)))
        await t.acall(t.loop.sock_sendall(a, b"x"))
        await t.acall(t.loop.sock_accept(a))
        await t.acall(t.loop.sock_connect(a, "x"))
        await t.acall(t.loop.sock_recvfrom(a, 1))
        await t.acall(t.loop.sock_sendto(a, b"x", "y"))
    a.close()
    b.close()


@twin
async def test_canceled_sock_operations_leave_the_socket_usable(t):
    a, b = pair()
    for at in range(3):
        task = t.loop.create_task(t.loop.sock_recv(a, 10))
        await t.turns(at)
        task.cancel()
        await asyncio.wait([task])
        t.log(task.cancelled())
    receiver = t.loop.create_task(t.loop.sock_recv(a, 10))
    await t.loop.sock_sendall(b, b"still")
    t.log(await receiver)
    filler = t.loop.create_task(t.loop.sock_sendall(a, b"x" * 5_000_000))
    await t.turns(3)
    filler.cancel()
    await asyncio.wait([filler])
    t.log(filler.cancelled())
    a.close()
    b.close()


@twin
async def test_datagram_sock_methods(t):
    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for s in (a, b):
        s.bind(("127.0.0.1", 0))
        s.setblocking(False)
    t.log(await t.loop.sock_sendto(a, b"one", b.getsockname()))
    data, address = await t.loop.sock_recvfrom(b, 100)
    t.log(data, address == a.getsockname())
    buffer = bytearray(100)
    task = t.loop.create_task(t.loop.sock_recvfrom_into(b, buffer))
    await t.turns(2)
    await t.loop.sock_sendto(a, b"two!", b.getsockname())
    count, address = await task
    t.log(count, address == a.getsockname(), bytes(buffer[:count]))
    task = t.loop.create_task(t.loop.sock_recvfrom_into(b, buffer, 2))
    await t.loop.sock_sendto(a, b"three", b.getsockname())
    t.log((await task)[0])
    await t.acall(t.loop.sock_recvfrom_into(b, buffer, 1000))
    a.close()
    b.close()


@twin
async def test_sock_sendfile_and_its_refusals(t, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 1000)
    a, b = pair()
    with open(path, "rb") as file:
        async def drain(size):
            got = bytearray()
            while len(got) < size:
                got += await t.loop.sock_recv(b, 65536)
            return bytes(got)

        for offset, count in ((0, None), (10, 100), (255_000, 5000), (300_000, None)):
            expected = path.read_bytes()[offset:None if count is None else offset + count]
            reader = t.loop.create_task(drain(len(expected)))
            sent = await t.loop.sock_sendfile(a, file, offset, count)
            t.log(sent, await reader == expected, file.tell() if sent else "see test_mended")
        with open(path, "r") as text:
            await t.acall(t.loop.sock_sendfile(a, text))
        await t.acall(t.loop.sock_sendfile(a, file, 0, -1))
        await t.acall(t.loop.sock_sendfile(a, file, 0, 1.5))
        await t.acall(t.loop.sock_sendfile(a, file, -5))
    import io
    await t.acall(t.loop.sock_sendfile(a, io.BytesIO(b"x"), fallback=False))
    reader = t.loop.create_task(t.loop.sock_recv(b, 10))
    await t.acall(t.loop.sock_sendfile(a, io.BytesIO(b"fallback")))
    t.log(await reader)
    a.close()
    b.close()


@twin
def test_readers_left_at_close_are_dropped(t):
    a, b = pair()
    callback = t.watch(lambda: None)
    t.loop.add_reader(a, callback)
    t.loop.add_writer(b, callback)
    t.loop.close()
    del callback
    a.close()
    b.close()


@twin
async def test_a_descriptor_closed_under_its_reader_neither_spins_nor_crashes(t):
    a, b = pair()
    t.loop.add_reader(a, t.log, "must not run")
    fd = a.fileno()
    a.close()
    b.close()
    await asyncio.sleep(0.002)
    t.log(t.loop.remove_reader(fd))


@twin
async def test_a_socket_closed_while_it_is_watched_is_found_by_itself(t):
    for add, remove in ((t.loop.add_reader, t.loop.remove_reader), (t.loop.add_writer, t.loop.remove_writer)):
        a, b = pair()
        add(a, t.log, "must not run")
        a.close()
        t.call(add, a, t.log, "must not run either")
        t.call(remove, a)
        t.call(remove, a)
        t.call(add, a, t.log, "must not run at all")
        b.close()


@twin
async def test_a_closed_socket_watched_by_its_number_is_found_by_that(t):
    for add, remove in ((t.loop.add_reader, t.loop.remove_reader), (t.loop.add_writer, t.loop.remove_writer)):
        a, b = pair()
        fd = a.fileno()
        add(fd, t.log, "must not run")
        t.call(add, a, t.log, "must not run either")
        a.close()
        t.call(remove, a)
        t.log(remove(fd), remove(fd))
        b.close()


@twin
async def test_closed_objects_without_a_number(t):
    read_end, write_end = os.pipe()
    file = open(read_end, "rb", buffering=0)
    t.loop.add_reader(file, t.log, "must not run")
    file.close()
    t.call(t.loop.remove_reader, file)
    t.call(t.loop.add_writer, file, t.log)
    t.log(t.loop.remove_reader(read_end))
    os.close(write_end)


@twin
async def test_a_watched_socket_lives_until_it_is_watched_no_more(t):
    a, b = pair()
    fd, seen, alive = a.fileno(), t.loop.create_future(), weakref.ref(a)
    t.loop.add_reader(a, lambda: seen.done() or seen.set_result(os.read(fd, 10)))
    t.loop.add_writer(a, int)
    del a
    gc.collect()
    b.send(b"still here")
    t.log(await seen)
    t.log(t.loop.remove_reader(fd), alive() is not None)
    kept = alive()
    t.log(t.loop.remove_writer(fd))
    kept.close()
    del kept
    t.log(alive())
    b.close()


@twin
async def test_many_readers_are_all_served(t):
    pairs = [pair() for _ in range(200)]
    got = []
    done = t.loop.create_future()

    def readable(i, sock):
        got.append((i, sock.recv(10)))
        t.loop.remove_reader(sock)
        if len(got) == len(pairs):
            done.set_result(None)

    for i, (a, _) in enumerate(pairs):
        t.loop.add_reader(a, readable, i, a)
    for i, (_, b) in enumerate(pairs):
        b.send(b"%d" % i)
    await done
    t.log(sorted(got))
    for p in pairs:
        for s in p:
            s.close()
