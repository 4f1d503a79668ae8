#include "treadle/assert.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static struct iovec assert_part(const char *text)
{
    /* writev never writes through iov_base; the cast only drops the const its type lacks. */
    union {
        const char *in;
        void *out;
    } unconst = {text};
    struct iovec part = {unconst.out, strlen(text)};
    return part;
}

void tdl_assert_fail(const char *file, int line, const char *expression)
{
    char digits[16];
    size_t at = sizeof digits - 1;
    unsigned rest = line > 0 ? (unsigned)line : 0;

    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);

    struct iovec parts[] = {
        assert_part(file),        assert_part(":"),
        assert_part(digits + at), assert_part(": assertion failed: "),
        assert_part(expression),  assert_part("\n"),
    };
    ssize_t written = writev(STDERR_FILENO, parts, (int)(sizeof parts / sizeof parts[0]));
    (void)written;
    abort();
}
