"""What agents and guards see of a program: observed.py (asyncio|treadle) AGENT. Prints their records, in an
order of its own."""
import asyncio
import os
import socket
import sys

import twin

ARM, AGENT = sys.argv[1:]
NAMES = ("ann", "bob")
records = []


async def both(request):
    """Two requests at a time, the second begun while the first waits."""
    await asyncio.gather(*[request(name) for name in NAMES])


async def sentry():
    import sentry_sdk
    from sentry_sdk.integrations.asyncio import AsyncioIntegration

    class Kept(sentry_sdk.transport.Transport):
        def capture_envelope(self, envelope):
            event = envelope.get_event()
            if event is not None:
                records.append((event["message"], event.get("tags")))

    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=Kept, integrations=[AsyncioIntegration()],
                    auto_session_tracking=False, send_client_reports=False)

    def job(name):
        tag = sentry_sdk.get_isolation_scope()._tags.get("user")
        sentry_sdk.capture_message(f"job of {name}")
        return tag

    async def request(name):
        with sentry_sdk.isolation_scope() as scope:
            scope.set_tag("user", name)
            await asyncio.sleep(0)
            records.append(
                (name, "job sees", await asyncio.get_running_loop().run_in_executor(None, job, name))
            )
            await asyncio.sleep(0)
            sentry_sdk.capture_message(f"end of {name}")

    await both(request)
    sentry_sdk.flush(2)


def opentelemetry():
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

    def tell():
        spans = exporter.get_finished_spans()
        names = {span.context.span_id: span.name for span in spans}
        records.extend((span.name, span.parent and names.get(span.parent.span_id)) for span in spans)

    return trace.get_tracer("test"), tell


async def opentelemetry_threading():
    from opentelemetry.instrumentation.threading import ThreadingInstrumentor

    tracer, tell = opentelemetry()
    ThreadingInstrumentor().instrument()

    def job(name):
        with tracer.start_as_current_span(f"job of {name}"):
            return name

    async def request(name):
        with tracer.start_as_current_span(name):
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, job, name)
            await asyncio.to_thread(job, name + " to_thread")

    await both(request)
    tell()


async def opentelemetry_asyncio():
    os.environ["OTEL_PYTHON_ASYNCIO_COROUTINE_NAMES_TO_TRACE"] = "traced"
    os.environ["OTEL_PYTHON_ASYNCIO_TO_THREAD_FUNCTION_NAMES_TO_TRACE"] = "job"
    os.environ["OTEL_PYTHON_ASYNCIO_FUTURE_TRACE_ENABLED"] = "true"
    from opentelemetry.instrumentation.asyncio import AsyncioInstrumentor

    tracer, tell = opentelemetry()
    AsyncioInstrumentor().instrument()

    async def traced():
        await asyncio.sleep(0)

    def job():
        return 1

    async def request(name):
        with tracer.start_as_current_span(name):
            await asyncio.wait_for(traced(), 5)
            await asyncio.gather(traced(), traced())
            await asyncio.to_thread(job)

    await both(request)
    tell()


async def ddtrace():
    os.environ.update(DD_INSTRUMENTATION_TELEMETRY_ENABLED="false", DD_REMOTE_CONFIGURATION_ENABLED="false",
                      DD_TRACE_STARTUP_LOGS="false", DD_TRACE_AGENT_URL="http://127.0.0.1:9")
    import ddtrace
    from ddtrace.trace import TraceFilter, tracer

    class Kept(TraceFilter):
        def process_trace(self, trace):
            names = {span.span_id: span.name for span in trace}
            records.extend((span.name, names.get(span.parent_id)) for span in trace)
            return None

    tracer.configure(trace_processors=[Kept()])
    ddtrace.patch(futures=True, asyncio=True)

    def job(name):
        with tracer.trace(f"job of {name}"):
            return name

    async def child(name):
        with tracer.trace(f"task of {name}"):
            await asyncio.sleep(0)

    async def request(name):
        with tracer.trace(name):
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, job, name)
            await asyncio.create_task(child(name))

    await both(request)


async def elastic():
    import elasticapm
    from elasticapm.traces import execution_context

    client = elasticapm.Client(
        service_name="test",
        disable_send=True,
        metrics_interval="0ms",
        central_config=False,
        cloud_provider="none",
        transport_class="elasticapm.transport.base.Transport",
    )
    elasticapm.instrument()

    def job(name):
        transaction = execution_context.get_transaction()
        records.append((name, "job sees", transaction and transaction.name))
        return name

    async def request(name):
        client.begin_transaction("request")
        elasticapm.set_transaction_name(name)
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, job, name)
        async with elasticapm.async_capture_span("span"):
            await asyncio.sleep(0)
        transaction = client.end_transaction(name)
        records.append((name, "ended", transaction and transaction.name))

    await asyncio.gather(*[asyncio.create_task(request(name)) for name in NAMES])
    client.close()


async def pytest_socket():
    import pytest_socket

    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def tries(what):
        for name, connect in [
            ("numeric", lambda: loop.create_connection(asyncio.Protocol, "127.0.0.1", port)),
            ("other", lambda: loop.create_connection(asyncio.Protocol, "127.0.0.2", port)),
            ("streams", lambda: asyncio.open_connection("127.0.0.1", port)),
            (
                "datagram",
                lambda: loop.create_datagram_endpoint(
                    asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port)
                ),
            ),
        ]:
            try:
                made = await connect()
            except Exception as exc:
                records.append((what, name, type(exc).__name__))
            else:
                records.append((what, name, "connected"))
                (made[1] if name == "streams" else made[0]).close()

    pytest_socket.disable_socket()
    await tries("disabled")
    pytest_socket.enable_socket()
    pytest_socket.socket_allow_hosts(["127.0.0.1"])
    await tries("127.0.0.1 allowed")
    socket.socket.connect = pytest_socket._true_connect
    await tries("enabled")
    server.close()


loop = (twin.reference_loop if ARM == "asyncio" else twin.subject_loop)()
asyncio.set_event_loop(loop)
loop.run_until_complete(globals()[AGENT]())
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
for record in sorted(map(repr, records)):
    print(record)
