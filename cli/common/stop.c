#include "stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static sigset_t watched;
static sigset_t mask_before;
static struct sigaction pipe_before;
static void (*on_stop)(void *);
static void *on_stop_data;

static void *await_signal(void *arg)
{
    int number;
    (void)arg;
    if (sigwait(&watched, &number) != 0) {
        return NULL;
    }
    tdl_stop_guard();
    on_stop(on_stop_data);
    (void)fflush(stdout);
    _exit(TDL_EXIT_STOPPED);
}

static bool is_ignored(int number)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

int tdl_stop_watch(void (*finish)(void *data), void *data)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    pthread_t thread;
    on_stop = finish;
    on_stop_data = data;
    (void)sigemptyset(&watched);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!is_ignored(numbers[i])) {
            (void)sigaddset(&watched, numbers[i]);
        }
    }
    (void)sigaction(SIGPIPE, &ignore, &pipe_before);
    int code = pthread_sigmask(SIG_BLOCK, &watched, &mask_before);
    if (code == 0) {
        code = pthread_create(&thread, NULL, await_signal, NULL);
    }
    if (code == 0) {
        code = pthread_detach(thread);
    }
    return -code;
}

void tdl_stop_guard(void)
{
    (void)pthread_mutex_lock(&guard);
}

void tdl_stop_unguard(void)
{
    (void)pthread_mutex_unlock(&guard);
}

void tdl_stop_after_fork(void)
{
    (void)sigaction(SIGPIPE, &pipe_before, NULL);
    (void)sigprocmask(SIG_SETMASK, &mask_before, NULL);
}
