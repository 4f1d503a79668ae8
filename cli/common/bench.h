/* The frame of a measuring tool: its options, its cases, how a case is timed and where the figures go.
 *
 *     static int take_chain(const struct tdl_bench *bench, struct tdl_sample *out) { ... }
 *     static const struct tdl_bench_case cases[] = {{"chain", "self-rescheduling chain", NULL, take_chain}};
 *     int main(int argc, char **argv)
 *     {
 *         struct tdl_bench bench = {.tool = "micro", .about = "...", .cases = cases, .case_count = 1};
 *         return tdl_bench_main(&bench, argc, argv);
 *     }
 */
#ifndef TREADLE_CLI_BENCH_H
#define TREADLE_CLI_BENCH_H

#include "options.h"
#include "report.h"

#include <stddef.h>

#define TDL_BENCH_CPU_UNIT "cpu us/op"

struct tdl_bench;

/* A case: `take` measures once and returns 0, or a negative status that makes the sample a failed one
 * (-ENOTSUP: unsupported here). It fills ops and the times, best by tdl_bench_end, and may set value, unit
 * and error. */
struct tdl_bench_case {
    const char *name;
    const char *title;
    const char *unit; /* NULL: CPU microseconds per operation */
    int (*take)(const struct tdl_bench *bench, struct tdl_sample *out);
};

struct tdl_bench {
    const char *tool;
    const char *about;
    const struct tdl_bench_case *cases;
    size_t case_count;
    const struct tdl_option *options; /* beyond those that every tool has */
    size_t option_count;
    /* Looks at the options together before anything is measured; returns 0, or what tdl_options_refuse
     * returned. May be NULL. */
    int (*check)(const struct tdl_bench *bench);
    /* Removes what the tool made and ends what it started, at the end and when a signal ends it: then from
     * another thread, inside tdl_stop_guard, while the cases still run. May be NULL. */
    void (*cleanup)(void);
    bool smoke; /* set by --smoke: a few operations, once */
};

/* The clocks at the start of a measurement. */
struct tdl_bench_clock {
    uint64_t wall_ns;
    uint64_t cpu_ns;
};

/* Parses the command line, runs the chosen cases, prints the figures and writes the JSON that was asked
 * for.
 * Thread:  owner
 * Owns:    the caller keeps bench and what it points to
 * Errors:  returns the process's exit code: 0; 1 when a case failed, nothing could be measured or the
 *          figures could not be written; 2 for wrong use. A signal ends the process with 130, what was
 *          measured is written first
 * Cost:    the cases */
int tdl_bench_main(struct tdl_bench *bench, int argc, char **argv);

/* How many operations a case should do: `full`, or a thousandth of it (at least `least`) in a smoke run.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
size_t tdl_bench_count(const struct tdl_bench *bench, size_t full, size_t least);

/* Reads the clocks: wall time and the CPU time of all threads of the process.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1), one system call */
struct tdl_bench_clock tdl_bench_begin(void);

/* Reads the clocks again and stores `ops` and what each operation took; value becomes the CPU time.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1), one system call */
void tdl_bench_end(const struct tdl_bench_clock *begin, double ops, struct tdl_sample *out);

#endif
