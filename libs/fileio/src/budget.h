/* The inline budget: how much a turn may spend on answers out of the page cache, which are copied on the
 * owner's thread, and when an attempt is worth its call. Costs are estimated, not measured: reading a
 * clock for each answer would cost a tenth of it. */
#ifndef TREADLE_FILEIO_BUDGET_H
#define TREADLE_FILEIO_BUDGET_H

#include "internal.h"

/* A hit's estimated cost: the call, and the copy. */
uint32_t tdl__budget_hit_ns(uint64_t calls, uint64_t bytes);

/* Charges answers to this turn. */
void tdl__budget_spend(struct tdl_fio *f, uint64_t calls, uint64_t bytes);

/* Whether an inline attempt to read so much is skipped since the last ones missed; counts the skipped one. */
bool tdl__budget_skips(struct tdl_fio *f, uint64_t bytes);

/* An inline read hit, or missed, the page cache. */
void tdl__budget_hit(struct tdl_fio *f);
void tdl__budget_miss(struct tdl_fio *f);

/* Whether this turn's submissions may go on: while reads hit, the kernel copies them inside of the
 * submitting call. */
bool tdl__budget_may_submit(const struct tdl_fio *f);

/* Charges a read that was submitted. */
void tdl__budget_submitted(struct tdl_fio *f, uint64_t bytes);

/* Who is about to wait may submit anew. */
void tdl__budget_renew_submissions(struct tdl_fio *f);

/* Whether the descriptor does direct I/O; asked of the kernel once a turn for reads of the same file. */
bool tdl__budget_is_direct(struct tdl_fio *f, int fd);

#endif
