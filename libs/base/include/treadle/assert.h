/* Assertions that stay in release builds: a broken invariant stops the process where it is seen, with
 * file and line, since in an event loop the alternative is a silent hang.
 *
 * Example:
 *     int used = 1, size = 2;
 *     TDL_ASSERT(used <= size);
 *     TDL_VERIFY(used + size == 3);
 */
#ifndef TREADLE_ASSERT_H
#define TREADLE_ASSERT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Prints file, line and expression to stderr and aborts.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  does not return
 * Cost:    one write, then abort */
__attribute__((noreturn, cold)) void tdl_assert_fail(const char *file, int line, const char *expression);

/* Aborts unless the expression holds, in every build; for O(1) checks.
 * Thread:  any, signal-safe if the expression is
 * Owns:    nothing
 * Errors:  does not return if the expression is false
 * Cost:    one branch */
#define TDL_ASSERT(expression)                                                                               \
    (__builtin_expect(!!(expression), 1) ? (void)0 : tdl_assert_fail(__FILE__, __LINE__, #expression))

/* Aborts unless the expression holds, in debug builds only; for checks that walk.
 * Thread:  any, signal-safe if the expression is
 * Owns:    nothing
 * Errors:  does not return if the expression is false
 * Cost:    the expression with TDL_DEBUG, else nothing: the expression is compiled but not run */
#ifdef TDL_DEBUG
#define TDL_VERIFY(expression) TDL_ASSERT(expression)
#else
#define TDL_VERIFY(expression) ((void)sizeof(!!(expression)))
#endif

#ifdef __cplusplus
}
#endif

#endif
