"""What of CPython's test.test_asyncio is not asked of treadle, each with its reason. This is the only list.

A whole module stands here when all of it tests the insides of asyncio's own loop classes through mocks; a
test, by its name without the package, when it looks at one private attribute. A test that passes does not
belong here: the run says so.
"""

MODULES = {
    "test_selector_events": "mocks of BaseSelectorEventLoop's and its transports' private attributes; no loop runs",
    "test_unix_events": "mocks of the unix loop's private attributes; its functional parts are in test_events",
    "test_proactor_events": "the Windows loop",
    "test_windows_events": "the Windows loop",
    "test_windows_utils": "the Windows loop",
}

TESTS = {
    "test_events.EPollEventLoopTests.test_internal_fds": "asserts the private counter of the self-pipe's descriptors; treadle wakes by an eventfd",
    "test_subprocess.GenericWatcherTests.test_create_subprocess_fails_with_inactive_watcher": "asks for an error from an inactive child watcher; treadle watches children by pidfd and uses no watcher",
    "test_sslproto.SslProtoHandshakeTests.test_connection_lost_when_busy": "makes a transport of a mock socket; a poller in C asks the kernel about real ones",
    "test_ssl.TestSSL.test_remote_shutdown_receives_trailing_data_on_slow_socket": "replaces methods of the transport by what reads its private _read_ready_cb",
    **{
        f"test_subprocess.{name}": "looks at the private child watcher; treadle watches children by pidfd itself"
        for name in (
            "SubprocessPidfdWatcherTests.test_watcher_implementation",
            "SubprocessThreadedWatcherTests.test_watcher_implementation",
            "SubprocessThreadedWatcherTests.test_pid_not_reaped_before_exit_published",
        )
    },
}

# Of these, what passes when the number that a mock gives as its descriptor happens to be open.
BY_CHANCE = {"test_sslproto.SslProtoHandshakeTests.test_connection_lost_when_busy"}
