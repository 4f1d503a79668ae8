#include "sender.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/failpoint.h"
#include "treadle/status.h"

enum {
    GONE_LOOKS_MAX = 1000, /* the number may be another thread's by then */
    IDLE_LOOKS =
        2, /* that find nothing new, until the thread sleeps: a wake costs as much as a look or two */
    WAIT_PAUSES = 100, /* of a processor, until it is given away: about as long as a send takes */
};

/* What owners see of the thread (MO-9). */
enum { NO_THREAD, AWAKE, ASLEEP };

/* Per process, because fork handlers are, and one thread is enough for any number of loops. */
static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tdl_node open; /* holds that are not closed */
    tdl_atomic_u32 state; /* changed under the lock */
    pthread_t thread;
    pid_t tid;
    bool running;  /* the thread exists */
    bool stopping; /* it is asked to end, and none may be started */
} sender = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

void tdl__sender_lock(void)
{
    pthread_mutex_lock(&sender.lock);
}

void tdl__sender_unlock(void)
{
    pthread_mutex_unlock(&sender.lock);
}

void tdl__hold_wait(void)
{
    for (int i = 0; i < WAIT_PAUSES; i++) {
        tdl_cpu_pause();
    }
    (void)sched_yield();
}

/* The file to send to: a duplicate if others may close the descriptor, so that the number cannot become
 * another file's between the look and the send. A number that is still there behind the dup had not been
 * closed by then. */
static int open_file(const struct tdl_held *held)
{
    if (held->fd_now == NULL) {
        return held->fd;
    }
    int fd = fcntl(held->fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && tdl_load_acquire_shared_u32((const uint32_t *)held->fd_now) != (uint32_t)held->fd) {
        close(fd);
        errno = EBADF;
        return -1;
    }
    return fd;
}

static void send_one(struct tdl_held *held)
{
    if (held->error != 0 || held->sent == held->len) {
        return;
    }
    int fd = open_file(held);
    ssize_t n = -1;
    if (fd >= 0) {
        do {
            n = send(fd, held->data + held->sent, held->len - held->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        } while (n < 0 && errno == EINTR);
    }
    int error = n < 0 ? errno : 0;
    if (fd >= 0 && held->fd_now != NULL) {
        close(fd);
    }
    if (n >= 0) {
        held->sent += (uint32_t)n;
    } else if (error != EAGAIN && error != EWOULDBLOCK) {
        held->error = error;
    }
}

/* What a full socket does not take waits for its owner, as it would if the owner had sent it. */
static void send_hold_locked(struct tdl_hold *h)
{
    if (!tdl__hold_enter(h, TDL__HOLD_BUSY)) {
        return;
    }
    for (struct tdl_node *at = h->entries.next; at != &h->entries; at = at->next) {
        send_one(TDL_CONTAINER_OF(at, struct tdl_held, node));
    }
    tdl__hold_leave(h, TDL__HOLD_SENT);
}

/* Send what has waited long enough. The time may be that of a later begin than the state: what is held now
 * began later then, and is looked at again, or was sent in time. Returns when to look again, no later than
 * `next`. */
static uint64_t look_locked(struct tdl_hold *h, uint64_t now, uint64_t next, bool *news)
{
    uint32_t word = tdl_load_acquire_u32(&h->word);
    uint32_t state = word & TDL__HOLD_STATE;
    if (word - state != h->seen) {
        h->seen = word - state;
        *news = true;
    }
    if (state == TDL__HOLD_NONE || state == TDL__HOLD_SENT) {
        return next;
    }
    uint64_t due = tdl_load_relaxed_u64(&h->begun_ns) + h->limit_ns;
    if (now >= due) {
        send_hold_locked(h);
        return next;
    }
    *news = true;
    return due < next ? due : next;
}

static uint64_t look_at_all_locked(bool *news)
{
    uint64_t now = tdl_clock_ns();
    uint64_t next = now + TDL_HOLD_LIMIT_NS;
    for (struct tdl_node *at = sender.open.next; at != &sender.open; at = at->next) {
        next = look_locked(TDL_CONTAINER_OF(at, struct tdl_hold, link), now, next, news);
    }
    return next;
}

/* Whether something has begun to be held since the last look. */
static bool news_locked(void)
{
    for (struct tdl_node *at = sender.open.next; at != &sender.open; at = at->next) {
        struct tdl_hold *h = TDL_CONTAINER_OF(at, struct tdl_hold, link);
        if ((tdl_load_seq_u32(&h->word) & ~(uint32_t)TDL__HOLD_STATE) != h->seen) { /* MO-9 */
            return true;
        }
    }
    return false;
}

static void sleep_locked(void)
{
    tdl_store_seq_u32(&sender.state, ASLEEP); /* MO-9 */
    while (!sender.stopping && tdl_load_relaxed_u32(&sender.state) == ASLEEP && !news_locked()) {
        pthread_cond_wait(&sender.changed, &sender.lock);
    }
    if (!sender.stopping) {
        tdl_store_seq_u32(&sender.state, AWAKE);
    }
}

/* While programs hold, the thread looks as often as something may be held. A look costs two switches of a
 * processor, some 15 us on a virtual machine, so it is not made more often than that. */
static void *sender_main(void *arg)
{
    (void)arg;
    uint32_t idle = 0;
    (void)pthread_setname_np(pthread_self(), "treadle-hold");
    pthread_mutex_lock(&sender.lock);
    sender.tid = (pid_t)syscall(SYS_gettid);
    while (!sender.stopping) {
        bool news = false;
        uint64_t next = look_at_all_locked(&news);
        idle = news ? 0 : idle + 1;
        if (idle >= IDLE_LOOKS) {
            sleep_locked();
            continue;
        }
        struct timespec until = tdl_clock_timespec(next);
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
    if (TDL_FAIL(TDL_FAIL_THREAD)) {
        return TDL_EAGAIN;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    sender.tid = 0;
    sender.running = pthread_create(&sender.thread, NULL, sender_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (sender.running) {
        tdl_store_seq_u32(&sender.state, AWAKE);
    }
    return sender.running ? 0 : TDL_EAGAIN;
}

bool tdl__sender_is_awake(void)
{
    return tdl_load_seq_u32(&sender.state) == AWAKE; /* MO-9 */
}

bool tdl__sender_rouse(void)
{
    pthread_mutex_lock(&sender.lock);
    bool there = !sender.stopping && (sender.running || start_locked() == 0);
    bool wake = there && tdl_load_relaxed_u32(&sender.state) == ASLEEP;
    if (wake) {
        tdl_store_seq_u32(&sender.state, AWAKE);
    }
    pthread_mutex_unlock(&sender.lock);
    if (wake) {
        pthread_cond_signal(&sender.changed);
    }
    return there;
}

/* A joined thread is counted by the kernel for a moment more, and Python's fork warns of threads by that
 * count. */
static void wait_until_gone(pid_t tid)
{
    for (int looks = 0; looks < GONE_LOOKS_MAX && syscall(SYS_tgkill, getpid(), tid, 0) == 0; looks++) {
        (void)sched_yield();
    }
}

/* Ends the thread and leaves the lock held. */
static void stop_locked(void)
{
    while (sender.stopping) { /* by another */
        pthread_mutex_unlock(&sender.lock);
        (void)sched_yield();
        pthread_mutex_lock(&sender.lock);
    }
    if (!sender.running) {
        return;
    }
    sender.stopping = true;
    tdl_store_seq_u32(&sender.state, NO_THREAD); /* what is held from now on comes to the lock (MO-9) */
    pthread_cond_signal(&sender.changed);
    pthread_mutex_unlock(&sender.lock);
    (void)pthread_join(sender.thread, NULL);
    wait_until_gone(sender.tid);
    pthread_mutex_lock(&sender.lock);
    sender.running = sender.stopping = false;
}

static void send_all_locked(void)
{
    for (struct tdl_node *at = sender.open.next; at != &sender.open; at = at->next) {
        send_hold_locked(TDL_CONTAINER_OF(at, struct tdl_hold, link));
    }
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
    for (struct tdl_node *at = sender.open.next; at != &sender.open; at = at->next) {
        struct tdl_hold *h = TDL_CONTAINER_OF(at, struct tdl_hold, link);
        if ((tdl_load_relaxed_u32(&h->word) & TDL__HOLD_STATE) == TDL__HOLD_NONE) {
            continue;
        }
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
    tdl_node_init(&sender.open);
    int rc = pthread_atfork(fork_prepare, fork_parent, fork_child);
    TDL_ASSERT(rc == 0);
}

void tdl__sender_open(struct tdl_hold *h)
{
    pthread_once(&sender.once, sender_init);
    pthread_mutex_lock(&sender.lock);
    tdl_node_init(&h->link);
    tdl_node_insert_before(&sender.open, &h->link);
    pthread_mutex_unlock(&sender.lock);
}

void tdl__sender_close(struct tdl_hold *h)
{
    pthread_mutex_lock(&sender.lock);
    tdl_node_remove(&h->link);
    if (!tdl_node_is_linked(&sender.open)) {
        stop_locked();
    }
    pthread_mutex_unlock(&sender.lock);
}

void tdl_hold_send_all(void)
{
    pthread_once(&sender.once, sender_init);
    pthread_mutex_lock(&sender.lock);
    send_all_locked();
    pthread_mutex_unlock(&sender.lock);
}
