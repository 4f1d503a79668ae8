/* Goal: what its owner leaves waiting is sent by the thread, once, and never to another file; the thread
 * exists only while a hold is open, and in no fork. Method: socket pairs on which the test waits for what
 * the thread sends. */
#include "suite.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "treadle/hold.h"

static struct tdl_hold hold;
static int ours, theirs;

static void make_pair(int *one, int *other)
{
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    *one = pair[0];
    *other = pair[1];
}

static void setup(uint64_t limit_ns)
{
    make_pair(&ours, &theirs);
    tdl_hold_init(&hold);
    tdl_hold_set_limit(&hold, limit_ns);
}

static void teardown(void)
{
    tdl_hold_over(&hold);
    tdl_hold_close(&hold);
    close(ours);
    close(theirs);
}

static struct tdl_held *begin(int fd, const char *text, const int *fd_now)
{
    struct tdl_held *held = tdl_hold_begin(&hold, fd, fd_now, text, strlen(text));
    ck_assert_ptr_nonnull(held);
    return held;
}

static void finish(struct tdl_held *held, uint32_t sent, int error)
{
    tdl_hold_take(&hold, held);
    ck_assert_uint_eq(held->sent, sent);
    ck_assert_int_eq(held->error, error);
    tdl_hold_end(&hold, held);
}

static void check_nothing(int fd)
{
    char byte;
    ck_assert_int_eq(recv(fd, &byte, 1, 0), -1);
    ck_assert_int_eq(errno, EAGAIN);
}

/* Waits for the bytes, as long as it takes; nothing comes behind them. */
static void check_arrives(int fd, const char *text)
{
    char got[100];
    size_t len = 0;
    while (len < strlen(text)) {
        struct pollfd readable = {fd, POLLIN, 0};
        ck_assert_int_eq(poll(&readable, 1, -1), 1);
        ssize_t n = recv(fd, got + len, strlen(text) - len, 0);
        ck_assert_int_gt(n, 0);
        len += (size_t)n;
    }
    ck_assert_int_eq(memcmp(got, text, len), 0);
    check_nothing(fd);
}

static int count_threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(dir);
    return count;
}

START_TEST(what_waits_is_sent_and_its_owner_is_late_until_the_step_is_over)
{
    setup(TDL_HOLD_LIMIT_NS);
    ck_assert(!tdl_hold_is_late(&hold));
    struct tdl_held *held = begin(ours, "progress", NULL);
    check_arrives(theirs, "progress");
    ck_assert_int_lt(tdl_held_append(&hold, held, "more", 4), 0);
    finish(held, 8, 0);
    ck_assert(tdl_hold_is_late(&hold));
    ck_assert_ptr_null(tdl_hold_begin(&hold, ours, NULL, "c", 1));
    tdl_hold_over(&hold);
    held = begin(ours, "next", NULL);
    check_arrives(theirs, "next");
    finish(held, 4, 0);
    teardown();
}
END_TEST

START_TEST(all_that_is_held_is_sent_for_who_ends_the_process)
{
    int other, peer;
    setup(UINT64_MAX / 2);
    make_pair(&other, &peer);
    struct tdl_held *first = begin(ours, "one", NULL);
    struct tdl_held *second = begin(other, "two", NULL);
    check_nothing(theirs);
    tdl_hold_send_all();
    check_arrives(theirs, "one");
    check_arrives(peer, "two");
    tdl_hold_send_all();
    check_nothing(theirs);
    finish(first, 3, 0);
    finish(second, 3, 0);
    tdl_hold_send_all();
    close(other);
    close(peer);
    teardown();
}
END_TEST

START_TEST(a_full_socket_keeps_the_rest_for_its_owner)
{
    static char much[1000 * 1000];
    setup(UINT64_MAX / 2);
    struct tdl_held *held = begin(ours, "x", NULL);
    ck_assert_int_eq(tdl_held_append(&hold, held, much, sizeof much), 0);
    tdl_hold_send_all();
    tdl_hold_take(&hold, held);
    ck_assert_uint_gt(held->sent, 0);
    ck_assert_uint_lt(held->sent, held->len);
    ck_assert_int_eq(held->error, 0);
    tdl_hold_end(&hold, held);
    teardown();
}
END_TEST

START_TEST(a_failed_send_is_kept_for_the_owner_and_not_tried_again)
{
    setup(UINT64_MAX / 2);
    close(theirs);
    struct tdl_held *held = begin(ours, "x", NULL);
    tdl_hold_send_all();
    tdl_hold_send_all();
    finish(held, 0, EPIPE);
    theirs = dup(ours);
    teardown();
}
END_TEST

START_TEST(nothing_is_sent_to_the_file_that_has_the_number_now)
{
    int peer, now;
    setup(UINT64_MAX / 2);
    now = ours;
    struct tdl_held *held = begin(ours, "x", &now);
    int number = ours;
    now = -1; /* as a socket object does before it closes the descriptor */
    close(ours);
    make_pair(&ours, &peer);
    ck_assert_int_eq(ours, number);
    tdl_hold_send_all();
    check_nothing(peer);
    finish(held, 0, EBADF);
    close(peer);
    teardown();
}
END_TEST

START_TEST(a_number_that_is_still_there_is_sent_to)
{
    setup(UINT64_MAX / 2);
    struct tdl_held *held = begin(ours, "x", &ours);
    tdl_hold_send_all();
    check_arrives(theirs, "x");
    finish(held, 1, 0);
    teardown();
}
END_TEST

START_TEST(the_thread_comes_with_the_first_that_is_held_and_goes_with_the_last_hold)
{
    struct tdl_hold other;
    int before = count_threads();
    setup(UINT64_MAX / 2);
    tdl_hold_init(&other);
    ck_assert_int_eq(count_threads(), before);
    finish(begin(ours, "x", NULL), 0, 0);
    ck_assert_int_eq(count_threads(), before + 1);
    finish(begin(ours, "x", NULL), 0, 0);
    tdl_hold_close(&other);
    ck_assert_int_eq(count_threads(), before + 1);
    teardown();
    ck_assert_int_eq(count_threads(), before);
}
END_TEST

START_TEST(a_fork_sends_first_and_leaves_nothing_to_its_child)
{
    int before = count_threads();
    setup(UINT64_MAX / 2);
    struct tdl_held *held = begin(ours, "x", NULL);
    pid_t pid = fork();
    if (pid == 0) {
        tdl_hold_take(&hold, held);
        bool empty = held->sent == held->len;
        tdl_hold_end(&hold, held);
        tdl_hold_over(&hold);
        held = tdl_hold_begin(&hold, ours, NULL, "c", 1); /* a thread of its own */
        bool begun = held != NULL;
        tdl_hold_send_all();
        _exit(empty && begun ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(count_threads(), before);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    check_arrives(theirs, "xc");
    finish(held, 1, 0);
    tdl_hold_over(&hold);
    finish(begin(ours, "y", NULL), 0, 0);
    ck_assert_int_eq(count_threads(), before + 1);
    teardown();
}
END_TEST

START_TEST(what_a_full_socket_did_not_take_before_a_fork_is_the_parents)
{
    static char much[1000 * 1000];
    setup(UINT64_MAX / 2);
    struct tdl_held *held = begin(ours, "x", NULL);
    ck_assert_int_eq(tdl_held_append(&hold, held, much, sizeof much), 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(held->sent == held->len ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    tdl_hold_take(&hold, held);
    ck_assert_uint_lt(held->sent, held->len);
    tdl_hold_end(&hold, held);
    teardown();
}
END_TEST

SUITE("hold/sender", what_waits_is_sent_and_its_owner_is_late_until_the_step_is_over,
      all_that_is_held_is_sent_for_who_ends_the_process, a_full_socket_keeps_the_rest_for_its_owner,
      a_failed_send_is_kept_for_the_owner_and_not_tried_again,
      nothing_is_sent_to_the_file_that_has_the_number_now, a_number_that_is_still_there_is_sent_to,
      the_thread_comes_with_the_first_that_is_held_and_goes_with_the_last_hold,
      a_fork_sends_first_and_leaves_nothing_to_its_child,
      what_a_full_socket_did_not_take_before_a_fork_is_the_parents)
