/* Goal: a false assertion stops the process and says where. Method: a child process with its stderr on a
 * pipe; what it wrote and how it ended is what counts. */
#include "suite.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "treadle/assert.h"

static void break_assertion(void)
{
    int apples = 1;
    TDL_ASSERT(apples == 2);
}

static void break_verification(void)
{
    int apples = 1;
    TDL_VERIFY(apples == 2);
    (void)apples;
}

/* Runs the function in a child; returns its wait status and what it wrote to stderr. */
static int run_child(void (*function)(void), char *text, size_t size)
{
    int ends[2], status = 0;
    size_t used = 0;
    ssize_t got;

    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        function();
        _exit(0);
    }
    (void)close(ends[1]);
    while (used + 1 < size && (got = read(ends[0], text + used, size - used - 1)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
    (void)close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

START_TEST(a_true_assertion_does_nothing)
{
    TDL_ASSERT(1 + 1 == 2);
    TDL_VERIFY(1 + 1 == 2);
}
END_TEST

START_TEST(a_false_assertion_prints_file_line_and_expression_and_aborts)
{
    char text[512];
    int status = run_child(break_assertion, text, sizeof text);
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGABRT);
    ck_assert_ptr_nonnull(strstr(text, "assert_ut.c:15: assertion failed: apples == 2\n"));
}
END_TEST

START_TEST(a_verification_stops_debug_builds_only)
{
    char text[512];
    int status = run_child(break_verification, text, sizeof text);
#ifdef TDL_DEBUG
    ck_assert(WIFSIGNALED(status));
#else
    ck_assert(WIFEXITED(status));
    ck_assert_str_eq(text, "");
#endif
}
END_TEST

SUITE("base/assert", a_true_assertion_does_nothing,
      a_false_assertion_prints_file_line_and_expression_and_aborts, a_verification_stops_debug_builds_only)
