/* Goal: a child counts one fork more than its parent, however often somebody began to count. Method: fork. */
#include "suite.h"

#include <sys/wait.h>
#include <unistd.h>

#include "treadle/fork.h"

/* What a child says with its exit status. */
static int status_of(pid_t child)
{
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(each_generation_counts_one_more)
{
    tdl_fork_watch();
    tdl_fork_watch();
    uint32_t born = tdl_fork_count();
    pid_t child = fork();
    if (child == 0) {
        uint32_t here = tdl_fork_count();
        pid_t grandchild = fork();
        if (grandchild == 0) {
            _exit((int)(tdl_fork_count() - born));
        }
        _exit(status_of(grandchild) == 2 && here == born + 1 ? 1 : 99);
    }
    ck_assert_int_eq(status_of(child), 1);
    ck_assert_uint_eq(tdl_fork_count(), born);
}
END_TEST

SUITE("base/fork", each_generation_counts_one_more)
