/* An explorer of interleavings: runs a few simulated threads of real source files through every order of
 * their atomic operations, and through every value a load may return under its memory order.
 *
 * Memory is a history of messages per word. A load of order relaxed or acquire may return any message not
 * older than what the thread knows of; an acquire load learns what the writer knew if that released; a seq
 * load returns nothing older than the last seq write to the word; a read-modify-write takes the newest.
 * This is weaker than C11 where it differs, but for two things it does not show: writes to one word land in
 * the order executed, and a failing compare-and-swap sees the newest value. A state seen before (messages,
 * knowledge and what each thread has read so far) is not explored again. */
#ifndef TREADLE_TEST_MODEL_H
#define TREADLE_TEST_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_order { MODEL_RELAXED, MODEL_ACQUIRE, MODEL_RELEASE, MODEL_ACQ_REL, MODEL_SEQ };
enum model_operation { MODEL_SET, MODEL_ADD, MODEL_SUB, MODEL_OR };

/* The operations of the stand-in atomic.h. */
void model_init(const void *word, uint64_t value);
uint64_t model_load(const void *word, enum model_order order);
void model_store(const void *word, uint64_t value, enum model_order order);
uint64_t model_rmw(const void *word, enum model_operation operation, uint64_t operand,
                   enum model_order order);
bool model_cas(const void *word, uint64_t *expected, uint64_t desired, enum model_order order);
/* Sleeps until there is something the thread has not seen, then sees the newest of every word. */
void model_pause(void);

/* Memory that is not atomic: a read or write that is not ordered after the last write is a violation. */
void model_plain_write(const void *memory);
void model_plain_read(const void *memory);
/* The word's memory is gone: an access that is not ordered before this, or comes after it, is a violation. */
void model_kill(const void *word);

/* Names a word in the trace of a violation. Words named in setup have the same place in every execution, so
 * that equal states are seen to be equal. */
void model_name(const void *word, const char *name);
/* Ends the execution as a violation; does not return. */
_Noreturn void model_fail(const char *why);
#define MODEL_CHECK(expression) ((expression) ? (void)0 : model_fail(#expression))

/* Writes to the one simulated eventfd so far, and what it holds. */
unsigned model_eventfd_writes(void);
uint64_t model_eventfd_value(void);

struct model_scenario {
    const char *name;
    void (*setup)(void);      /* makes the objects anew, before each execution */
    void (*threads[3])(void); /* NULL ends the list */
    void (*finish)(void);     /* checks what holds when all threads have ended */
};

/* Explores the scenarios. Exit code 0: no violation; with --expect-violation in argv: one was found. */
int model_main(int argc, char **argv, const struct model_scenario *scenarios, size_t count);

#endif
