/* What the fileio tests share: a scratch folder, a context of the wanted kind, and one operation run to
 * its end. */
#ifndef FILEIO_SCRATCH_H
#define FILEIO_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "treadle/fileio.h"

struct variant {
    enum tdl_fio_engine engine;
    enum tdl_fio_mode mode;
    uint32_t limit;
    bool sqpoll;
};

extern int scratch_fd; /* the folder */

void scratch_make(void);
void scratch_remove(void);

/* A new file of `length` bytes of a pattern, opened for reading and writing. */
int scratch_file(const char *name, size_t length);

/* The byte that the pattern has at an offset. */
unsigned char pattern_at(size_t offset);

/* The options of a variant. */
struct tdl_fio_options variant_options(const struct variant *v);

/* Opens and starts; 0, or the negative code that says why this kind is not to be had here. */
int variant_open(struct tdl_fio *f, const struct variant *v);

/* Stages the operation, runs the context dry, and gives its result. */
int64_t run(struct tdl_fio *f, struct tdl_fop *op);

/* Closes and checks that nothing was left. */
void close_empty(struct tdl_fio *f);

/* The engines, in the order of their numbers. */
extern const enum tdl_fio_engine engines[4];

/* False where this machine refuses the engine; the case then has nothing to show. */
bool open_engine(struct tdl_fio *f, struct variant v);

/* The count, or under a sanitizer a part of it. */
unsigned scaled(unsigned count);

/* Closes a context that holds so many operations: all come back, canceled or not. */
void close_all(struct tdl_fio *f, unsigned count);

#endif
