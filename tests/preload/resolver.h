/* A resolver that a test can hold: getaddrinfo(3) and getnameinfo(3) as libc's, but logged, and blocked on
 * demand.
 *
 * Linked ahead of libc, or preloaded into any program. By environment, read once at load:
 *   TDL_RESOLVER_LOG       a file that gets one line for each call, before it is made
 *   TDL_RESOLVER_SLEEP_MS  every call sleeps that long first
 * By name, for programs that can't call the functions below:
 *   sleep-<ms>.test    sleeps, then answers as localhost
 *   system-<n>.test    EAI_SYSTEM with errno n
 *   eai-<n>.test       fails with code -n
 * and getnameinfo of 198.51.100.1 sleeps for as many ms as its port says. */
#ifndef TREADLE_TESTS_RESOLVER_H
#define TREADLE_TESTS_RESOLVER_H

#ifdef __SANITIZE_THREAD__
/* libc guards its resolver's state by locks that ThreadSanitizer does not see. */
const char *__tsan_default_suppressions(void);

__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "race:getaddrinfo\nrace:getnameinfo\n";
}
#endif

/* Blocks every call from now on. */
void resolver_hold(void);

/* Lets go of all calls, blocked ones included. */
void resolver_let_go(void);

/* Calls that are inside now. */
unsigned resolver_inside(void);

/* Calls since load. */
unsigned resolver_calls(void);

/* Sleeps until at least that many calls are inside. */
void resolver_wait_inside(unsigned count);

/* In a forked child, forgets the calls of threads that are gone. */
void resolver_after_fork(void);

#endif
