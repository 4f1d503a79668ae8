"""The TLS protocol and transport: asyncio's own state machine, whose reads and writes of records are in C.

Handshake, shutdown, timeouts, errors and their texts are those of the running Python, inherited.
"""

from __future__ import annotations

import ssl
from asyncio import sslproto, streams
from typing import TYPE_CHECKING, Any

from . import _asyncio, _treadle

_SSLProtocol: Any = sslproto.SSLProtocol
_State = sslproto.SSLProtocolState


class SSLTransport(_asyncio.SSLTransport):  # type: ignore[misc]
    """What the application writes to and closes; write() is in C.

    A second close() lets go of the connection, as on asyncio; what is called after that does nothing, where
    asyncio raises AttributeError.
    """

    if TYPE_CHECKING:

        def write(self, data: Any, /) -> None: ...  # _tls_setup() puts it here

    def close(self) -> None:
        """Send what is written and close_notify, then close."""
        protocol = self._ssl_protocol
        ended = not self._closed and protocol._state is _State.FLUSHING
        super().close()
        # The peer's end came while reading was paused: asyncio would wait for a resume_reading() here.
        if ended:
            protocol._loop.call_soon(protocol._flush_ended)  # or a callback of the flush itself closes

    def is_closing(self) -> bool:
        """Return True if this or the transport below is closing or closed."""
        protocol = self._ssl_protocol
        return (
            self._closed
            or protocol is None
            or protocol._transport is not None
            and protocol._transport.is_closing()
        )

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._force_close(None)

    def _force_close(self, exc: BaseException | None) -> None:
        self._closed = True
        if self._ssl_protocol is not None:
            self._ssl_protocol._abort(exc)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection, or default."""
        return default if self._ssl_protocol is None else super().get_extra_info(name, default)

    def get_protocol(self) -> Any:
        """Return the protocol in use, None after the end."""
        return None if self._ssl_protocol is None else super().get_protocol()

    def is_reading(self) -> bool:
        """Return True unless paused or closed."""
        return self._ssl_protocol is not None and super().is_reading()

    def pause_reading(self) -> None:
        """Hand no more data to the protocol until resume_reading()."""
        if self._ssl_protocol is not None:
            super().pause_reading()

    def resume_reading(self) -> None:
        """Hand data to the protocol again."""
        if self._ssl_protocol is not None:
            super().resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return the bytes written and not yet given to the transport below."""
        return 0 if self._ssl_protocol is None else super().get_write_buffer_size()

    def writelines(self, list_of_data: Any) -> None:
        """Encrypt and send every piece, or queue it; never blocks."""
        if self._ssl_protocol is not None:
            super().writelines(list_of_data)


class TLSProtocol(_treadle.TLSBase, _SSLProtocol):  # type: ignore[misc]
    """The protocol between a stream transport and the application."""

    _app_transport: SSLTransport | None
    _app_transport_created: bool
    _ssl_buffer: bytearray
    _shutdown_timeout_handle: Any
    max_size = 1  # of the buffer that SSLProtocol would keep for each connection; the loop has one for all

    def __init__(
        self,
        loop: Any,
        app_protocol: Any,
        sslcontext: Any,
        waiter: Any,
        server_side: bool = False,
        server_hostname: Any = None,
        **kwargs: Any,
    ) -> None:
        if not server_side and sslcontext and sslcontext.check_hostname and not server_hostname:
            # Else nobody checks who the peer is (gh-156793).
            raise ValueError("check_hostname requires server_hostname")
        super().__init__(loop, app_protocol, sslcontext, waiter, server_side, server_hostname, **kwargs)

    def _set_app_protocol(self, app_protocol: Any) -> None:
        _treadle._streams_watch(self._loop, app_protocol)
        super()._set_app_protocol(app_protocol)

    def _on_handshake_complete(self, handshake_exc: Any) -> None:
        super()._on_handshake_complete(handshake_exc)
        traceback = handshake_exc.__traceback__ if isinstance(handshake_exc, BaseException) else None
        if (
            traceback is not None
            and traceback.tb_frame.f_code is _SSLProtocol._on_handshake_complete.__code__
        ):
            traceback.tb_frame.clear()  # its argument is what has it in its traceback (gh-159049)
        handshake_exc = traceback = None  # that frame knows this one

    def _on_shutdown_complete(self, shutdown_exc: BaseException | None) -> None:
        if shutdown_exc is not None:
            super()._on_shutdown_complete(shutdown_exc)
            return
        # Else close() has started it; it ends with the connection (gh-160520).
        if self._shutdown_timeout_handle is None:
            self._shutdown_timeout_handle = self._loop.call_later(
                self._ssl_shutdown_timeout, self._check_shutdown_timeout
            )
        self._loop.call_soon(self._transport.close)

    def _abort(self, exc: BaseException | None = None) -> None:
        self._set_state(_State.UNWRAPPED)
        if self._transport is not None:
            self._transport._force_close(exc)

    def _get_app_transport(self) -> Any:
        if self._app_transport is None:
            if self._app_transport_created:
                raise RuntimeError("Creating _SSLProtocolTransport twice")
            self._app_transport = SSLTransport(self._loop, self)
            self._app_transport_created = True
        return self._app_transport

    def _set_write_buffer_limits(self, high: Any = None, low: Any = None) -> None:
        super()._set_write_buffer_limits(high, low)
        self._note()

    def _set_read_buffer_limits(self, high: Any = None, low: Any = None) -> None:
        super()._set_read_buffer_limits(high, low)
        self._note()

    def _note(self) -> None:
        own = self.__dict__
        self._note_limits(
            own.get("_outgoing_high_water", 0),
            own.get("_outgoing_low_water", 0),
            own.get("_incoming_high_water", 0),
            own.get("_incoming_low_water", 0),
        )

    # A transport that is not treadle's own fills a buffer of this connection, and may do so over several
    # turns.

    def get_buffer(self, n: int) -> Any:
        """Return memory for received records."""
        if len(self._ssl_buffer) < 65536:
            self._ssl_buffer = bytearray(65536)
            self._ssl_buffer_view = memoryview(self._ssl_buffer)
        return self._ssl_buffer_view

    def buffer_updated(self, nbytes: int) -> None:
        """Take the first nbytes of that memory."""
        self._incoming.write(self._ssl_buffer_view[:nbytes])
        self._advance()

    def _advance(self) -> None:
        """Go on with what the connection was doing, now that more records are there."""
        state = self._state
        if state is _State.WRAPPED:
            self._do_read()
        elif state is _State.DO_HANDSHAKE:
            self._do_handshake()
        elif state is _State.FLUSHING:
            self._do_flush()
        elif state is _State.SHUTDOWN:
            self._do_shutdown()

    def _flush_ended(self) -> None:
        """End what close() left to be flushed, if nothing did meanwhile."""
        if self._state is _State.FLUSHING:
            self._do_flush()

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        """Close, as asyncio does, behind the alert in which OpenSSL tells the peer why."""
        if isinstance(exc, ssl.SSLError) and self._transport is not None:
            try:
                self._send_alert()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as raised:  # another's transport may refuse to write
                self._loop.call_exception_handler({"message": message, "exception": raised, "protocol": self})
        super()._fatal_error(exc, message)

    def _send_alert(self) -> None:
        data = self._outgoing.read()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _failed(self, exc: Exception) -> None:
        try:
            raise exc
        except Exception as raised:
            self._fatal_error(raised, "Fatal error on SSL protocol")
        finally:
            del exc


def take_buffered(protocol: Any, ssl_protocol: Any) -> None:
    """Give TLS the records that a StreamReader has read already: they came in one segment with what it was
    asked for."""
    if isinstance(protocol, streams.StreamReaderProtocol):
        reader = getattr(protocol, "_stream_reader", None)
        if reader is not None and reader._buffer:
            ssl_protocol._incoming.write(reader._buffer)
            reader._buffer.clear()


def move_reader(protocol: Any, transport: Any, tls_transport: Any) -> None:
    """Let a StreamReader pause and resume the TLS transport from now on, and not the one below
    (gh-152431)."""
    if isinstance(protocol, streams.StreamReaderProtocol):
        reader = getattr(protocol, "_stream_reader", None)
        if reader is not None and reader._transport is transport:
            reader._transport = tls_transport


class AcceptWaiter:
    """Stands for the future that asyncio's task for an accepted connection waits on."""

    __slots__ = ("_loop", "_protocol", "_transport")

    def __init__(self, loop: Any, protocol: Any) -> None:
        self._loop = loop
        self._protocol = protocol
        self._transport: Any = None

    def cancelled(self) -> bool:
        """Return False: nobody can cancel it."""
        return False

    def set_result(self, result: Any) -> None:
        """The handshake is done."""
        self._protocol = self._transport = None

    def set_exception(self, exc: BaseException) -> None:
        """The handshake failed: close, and tell in debug mode."""
        protocol, transport = self._protocol, self._transport
        self._protocol = self._transport = None
        transport.close()
        self._loop._accept_failed_connection(exc, protocol, transport)


class Acceptor:
    """Makes the TLS protocol of each connection that a listening socket accepts."""

    def __init__(
        self, loop: Any, protocol_factory: Any, sslcontext: Any, handshake_timeout: Any, shutdown_timeout: Any
    ) -> None:
        self._loop = loop
        self._protocol_factory = protocol_factory
        self._sslcontext = sslcontext
        self._timeouts = {
            "ssl_handshake_timeout": handshake_timeout,
            "ssl_shutdown_timeout": shutdown_timeout,
        }

    def __call__(self) -> Any:
        protocol = self._protocol_factory()
        waiter = AcceptWaiter(self._loop, protocol)
        tls = TLSProtocol(self._loop, protocol, self._sslcontext, waiter, True, None, **self._timeouts)
        waiter._transport = tls._app_transport
        return tls


_treadle._tls_setup(_State.WRAPPED, _State.FLUSHING, sslproto.SSLAgainErrors, SSLTransport)
