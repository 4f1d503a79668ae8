#include "sender.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "treadle/assert.h"
#include "treadle/failpoint.h"
#include "treadle/status.h"

enum { GONE_LOOKS_MAX = 1000 }; /* the number may be another thread's by then */

/* Per process, because fork handlers are, and one thread is enough for any number of loops. */
static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tdl_node busy; /* holds with entries */
    uint32_t open;        /* holds that are not closed */
    uint32_t begun;       /* times that a hold became busy */
    pthread_t thread;
    pid_t tid;
    bool running;  /* the thread exists */
    bool asleep;   /* it waits without a time limit */
    bool stopping; /* it is asked to end, and nothing may be held */
} sender = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void tdl__sender_lock(void)
{
    pthread_mutex_lock(&sender.lock);
}

void tdl__sender_unlock(void)
{
    pthread_mutex_unlock(&sender.lock);
}

/* The file to send to: a duplicate if others may close the descriptor, so that the number cannot become another file's
 * between the look and the send. A number that is still there behind the dup had not been closed by then. */
static int open_file(const struct tdl_held *held)
{
    if (held->fd_now == NULL)
        return held->fd;
    int fd = fcntl(held->fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && tdl_load_acquire_shared_u32((const uint32_t *)held->fd_now) != (uint32_t)held->fd) {
        close(fd);
        errno = EBADF;
        return -1;
    }
    return fd;
}

static void send_one_locked(struct tdl_held *held)
{
    if (held->error != 0 || held->sent == held->len)
        return;
    int fd = open_file(held);
    ssize_t n = -1;
    if (fd >= 0) {
        do
            n = send(fd, held->data + held->sent, held->len - held->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
    }
    int error = n < 0 ? errno : 0;
    if (fd >= 0 && held->fd_now != NULL)
        close(fd);
    if (n >= 0)
        held->sent += (uint32_t)n;
    else if (error != EAGAIN && error != EWOULDBLOCK)
        held->error = error;
}

static void send_hold_locked(struct tdl_hold *h)
{
    tdl_store_relaxed_u32(&h->late, true);
    for (struct tdl_node *at = h->entries.next; at != &h->entries; at = at->next)
        send_one_locked(TDL_CONTAINER_OF(at, struct tdl_held, node));
}

/* Sends what has waited long enough; returns when to look again, 0 if nothing waits. What a full socket did not take waits for its
 * owner, as it would if the owner had sent it. */
static uint64_t send_late_locked(void)
{
    uint64_t now = now_ns();
    uint64_t next = 0;
    for (struct tdl_node *at = sender.busy.next; at != &sender.busy; at = at->next) {
        struct tdl_hold *h = TDL_CONTAINER_OF(at, struct tdl_hold, busy);
        uint64_t due = h->since_ns + h->limit_ns;
        if (tdl_hold_is_late(h))
            continue;
        if (now >= due)
            send_hold_locked(h);
        else if (next == 0 || due < next)
            next = due;
    }
    return next;
}

/* While programs hold, the thread looks once in a millisecond, which costs their threads nothing; only after a
 * millisecond without does it sleep so that it must be woken. */
static void *sender_main(void *arg)
{
    (void)arg;
    uint32_t seen = 0;
    (void)pthread_setname_np(pthread_self(), "treadle-hold");
    pthread_mutex_lock(&sender.lock);
    sender.tid = (pid_t)syscall(SYS_gettid);
    while (!sender.stopping) {
        uint64_t next = send_late_locked();
        if (next == 0 && sender.begun == seen) {
            sender.asleep = true;
            while (sender.asleep && !sender.stopping)
                pthread_cond_wait(&sender.changed, &sender.lock);
            sender.asleep = false;
            continue;
        }
        seen = sender.begun;
        next = next != 0 ? next : now_ns() + TDL_HOLD_LIMIT_NS;
        struct timespec until = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
        (void)pthread_cond_timedwait(&sender.changed, &sender.lock, &until);
    }
    pthread_mutex_unlock(&sender.lock);
    return NULL;
}

/* Signals are blocked around the start, so that the thread never runs a handler of the process. */
static int start_locked(void)
{
    sigset_t all;
    sigset_t before;
    if (TDL_FAIL(TDL_FAIL_THREAD))
        return TDL_EAGAIN;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    sender.tid = 0;
    sender.running = pthread_create(&sender.thread, NULL, sender_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return sender.running ? 0 : TDL_EAGAIN;
}

int tdl__sender_busy_locked(struct tdl_hold *h, bool *wake)
{
    if (sender.stopping || (!sender.running && start_locked() < 0))
        return TDL_EAGAIN;
    h->since_ns = now_ns();
    tdl_node_insert_before(&sender.busy, &h->busy);
    sender.begun++;
    *wake = sender.asleep;
    sender.asleep = false;
    return 0;
}

void tdl__sender_wake(void)
{
    pthread_cond_signal(&sender.changed);
}

/* A joined thread is counted by the kernel for a moment more, and Python's fork warns of threads by that count. */
static void wait_until_gone(pid_t tid)
{
    for (int looks = 0; looks < GONE_LOOKS_MAX && syscall(SYS_tgkill, getpid(), tid, 0) == 0; looks++)
        (void)sched_yield();
}

/* Ends the thread and leaves the lock held. */
static void stop_locked(void)
{
    while (sender.stopping) { /* by another */
        pthread_mutex_unlock(&sender.lock);
        (void)sched_yield();
        pthread_mutex_lock(&sender.lock);
    }
    if (!sender.running)
        return;
    sender.stopping = true;
    pthread_cond_signal(&sender.changed);
    pthread_mutex_unlock(&sender.lock);
    (void)pthread_join(sender.thread, NULL);
    wait_until_gone(sender.tid);
    pthread_mutex_lock(&sender.lock);
    sender.running = sender.stopping = false;
}

static void send_all_locked(void)
{
    for (struct tdl_node *at = sender.busy.next; at != &sender.busy; at = at->next)
        send_hold_locked(TDL_CONTAINER_OF(at, struct tdl_hold, busy));
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&sender.lock);
    stop_locked();
    send_all_locked();
}

/* The next that is held starts a thread again. */
static void fork_parent(void)
{
    pthread_mutex_unlock(&sender.lock);
}

/* What a full socket did not take is the parent's to send. */
static void fork_child(void)
{
    for (struct tdl_node *at = sender.busy.next; at != &sender.busy; at = at->next) {
        struct tdl_hold *h = TDL_CONTAINER_OF(at, struct tdl_hold, busy);
        for (struct tdl_node *entry = h->entries.next; entry != &h->entries; entry = entry->next) {
            struct tdl_held *held = TDL_CONTAINER_OF(entry, struct tdl_held, node);
            held->sent = held->len;
            held->error = 0;
        }
    }
    pthread_mutex_unlock(&sender.lock);
}

static void sender_init(void)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&sender.changed, &clock);
    pthread_condattr_destroy(&clock);
    tdl_node_init(&sender.busy);
    int rc = pthread_atfork(fork_prepare, fork_parent, fork_child);
    TDL_ASSERT(rc == 0);
}

void tdl__sender_open(void)
{
    pthread_once(&sender.once, sender_init);
    pthread_mutex_lock(&sender.lock);
    sender.open++;
    pthread_mutex_unlock(&sender.lock);
}

void tdl__sender_close(void)
{
    pthread_mutex_lock(&sender.lock);
    TDL_ASSERT(sender.open > 0);
    sender.open--;
    if (sender.open == 0)
        stop_locked();
    pthread_mutex_unlock(&sender.lock);
}

void tdl_hold_send_all(void)
{
    pthread_mutex_lock(&sender.lock);
    if (sender.open > 0) /* the ring is made with the first hold */
        send_all_locked();
    pthread_mutex_unlock(&sender.lock);
}
