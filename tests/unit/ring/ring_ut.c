/* Goal: what is filled and published comes back once, what is not can be taken back, and a refused ring
 * leaves nothing behind. Method: no-ops through real rings of each set of flags; failpoints for what the
 * kernel may refuse. */
#include "suite.h"

#include <dirent.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "treadle/failpoint.h"
#include "treadle/ring.h"

/* Whether this machine grants rings at all; a test of what it refuses is another's (fileio's refused_ut). */
static bool granted(void)
{
    struct tdl_ring r;
    const struct tdl_ring_options options = {.sq_entries = 8};
    if (tdl_ring_open_proven(&r, &options) != 0) {
        return false;
    }
    tdl_ring_close(&r);
    return true;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static void fill_nops(struct tdl_ring *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct io_uring_sqe *sqe = tdl_ring_sqe(r);
        tdl_sqe_fill(sqe, IORING_OP_NOP, -1, NULL, 0, 0);
        sqe->user_data = i + 1;
    }
}

static void expect_nops_through(struct tdl_ring *r, uint32_t count)
{
    fill_nops(r, count);
    ck_assert_int_eq(tdl_ring_enter(r, tdl_ring_publish(r), count, IORING_ENTER_GETEVENTS, UINT64_MAX),
                     (int)count);
    ck_assert_uint_eq(tdl_ring_ready(r), count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(tdl_ring_cqe(r, i)->user_data, i + 1);
        ck_assert_int_eq(tdl_ring_cqe(r, i)->res, 0);
    }
    tdl_ring_seen(r, count);
    ck_assert_uint_eq(tdl_ring_ready(r), 0);
    ck_assert_uint_eq(tdl_ring_space(r), r->sq_entries);
}

START_TEST(entries_come_back_in_order_with_each_set_of_flags)
{
    const uint32_t masks[] = {0, ~TDL_RING_SETUP_NO_SQARRAY, ~IORING_SETUP_SINGLE_ISSUER,
                              IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE, IORING_SETUP_CLAMP};
    for (size_t i = 0; granted() && i < sizeof masks / sizeof masks[0]; i++) {
        struct tdl_ring r;
        const struct tdl_ring_options options = {.sq_entries = 8, .cq_entries = 32, .flags_mask = masks[i]};
        ck_assert_int_eq(tdl_ring_open(&r, &options), 0);
        ck_assert_uint_eq(r.setup_flags & ~(masks[i] != 0 ? masks[i] : UINT32_MAX), 0);
        for (uint32_t round = 0; round < 5; round++) { /* more than the ring has, so that its indices wrap */
            expect_nops_through(&r, 7);
        }
        tdl_ring_close(&r);
        ck_assert_int_eq(r.fd, -1);
    }
}
END_TEST

START_TEST(exact_flags_are_those_or_none)
{
    struct tdl_ring r;
    const struct tdl_ring_options exact = {.sq_entries = 8, .flags_exact = IORING_SETUP_CLAMP};
    if (granted()) {
        ck_assert_int_eq(tdl_ring_open(&r, &exact), 0);
        ck_assert_uint_eq(r.setup_flags, IORING_SETUP_CLAMP);
        tdl_ring_close(&r);
    }
    const struct tdl_ring_options unknown = {.sq_entries = 8, .flags_exact = 1u << 31};
    ck_assert_int_lt(tdl_ring_open(&r, &unknown), 0);
}
END_TEST

START_TEST(what_the_kernel_did_not_take_is_taken_back)
{
    struct tdl_ring r;
    const struct tdl_ring_options options = {.sq_entries = 8};
    if (!granted()) {
        return;
    }
    ck_assert_int_eq(tdl_ring_open(&r, &options), 0);
    fill_nops(&r, 5);
    ck_assert_uint_eq(tdl_ring_publish(&r), 5);
    ck_assert_uint_eq(tdl_ring_space(&r), r.sq_entries - 5);
    ck_assert_uint_eq(tdl_ring_retract(&r), 5);
    ck_assert_uint_eq(tdl_ring_space(&r), r.sq_entries);
    ck_assert_int_eq(tdl_ring_enter(&r, 5, 0, 0, UINT64_MAX), 0);
    expect_nops_through(&r, 3);
    tdl_ring_close(&r);
}
END_TEST

START_TEST(a_wait_ends_with_its_time)
{
    struct tdl_ring r;
    const struct tdl_ring_options options = {.sq_entries = 8};
    if (!granted()) {
        return;
    }
    ck_assert_int_eq(tdl_ring_open(&r, &options), 0);
    if ((r.features & IORING_FEAT_EXT_ARG) != 0) {
        ck_assert_int_eq(tdl_ring_enter(&r, 0, 1, IORING_ENTER_GETEVENTS, 1000), -ETIME);
    }
    tdl_ring_close(&r);
}
END_TEST

START_TEST(a_refused_ring_leaves_no_descriptor)
{
    int before = open_descriptors();
#ifdef TDL_FAILPOINTS
    const struct tdl_ring_options options = {.sq_entries = 8};
    int rc = -1;
    for (uint64_t nth = 1; granted() && rc != 0; nth++) {
        struct tdl_ring r;
        tdl_failpoint_set(TDL_FAIL_SYSCALL, nth);
        rc = tdl_ring_open_proven(&r, &options);
        tdl_failpoint_set(TDL_FAIL_SYSCALL, 0);
        if (rc == 0) {
            tdl_ring_close(&r);
        }
        ck_assert_int_eq(open_descriptors(), before);
        ck_assert_uint_lt(nth, 100);
    }
#endif
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

START_TEST(a_child_closes_its_descriptor_and_not_the_parents_ring)
{
    struct tdl_ring r;
    const struct tdl_ring_options options = {.sq_entries = 8};
    if (!granted()) {
        return;
    }
    ck_assert_int_eq(tdl_ring_open(&r, &options), 0);
    pid_t child = fork();
    if (child == 0) {
        tdl_ring_forget(&r);
        _exit(r.fd == -1 && r.ring_map == NULL ? 7 : 1);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    expect_nops_through(&r, 4);
    tdl_ring_close(&r);
}
END_TEST

SUITE("ring/ring", entries_come_back_in_order_with_each_set_of_flags, exact_flags_are_those_or_none,
      what_the_kernel_did_not_take_is_taken_back, a_wait_ends_with_its_time,
      a_refused_ring_leaves_no_descriptor, a_child_closes_its_descriptor_and_not_the_parents_ring)
