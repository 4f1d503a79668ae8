/* The JSON object every tool writes (perf/schema.json): who measured, on what machine, each sample, and a
 * summary per case. The Python tools write the same, so that perf/bench/compare.py reads both. */
#ifndef TREADLE_CLI_REPORT_H
#define TREADLE_CLI_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One measurement of one case. `value` is the case's figure in `unit`; the times are per operation. A sample
 * with an error counts as failed and leaves the figures out. */
struct tdl_sample {
    const char *name;
    const char *title;
    const char *unit;
    int round;
    double ops;
    double value;
    double wall_us;
    double cpu_us;
    const char *error; /* NULL when the sample is good */
    bool unsupported;  /* with an error: this machine cannot do it, nothing went wrong */
};

struct tdl_report;

/* Makes an empty report of `tool`, measured on `arm`.
 * Thread:  owner
 * Owns:    the caller frees it with tdl_report_free
 * Errors:  NULL without memory
 * Cost:    O(1), reads the machine's description */
struct tdl_report *tdl_report_new(const char *tool, const char *arm);

/* Records an option the run was given, as a number.
 * Thread:  owner
 * Owns:    the report copies
 * Errors:  aborts without memory
 * Cost:    O(1) */
void tdl_report_number(struct tdl_report *report, const char *name, double value);

/* Records an option the run was given, as text.
 * Thread:  owner
 * Owns:    the report copies
 * Errors:  aborts without memory
 * Cost:    O(length) */
void tdl_report_text(struct tdl_report *report, const char *name, const char *value);

/* Adds a sample.
 * Thread:  owner
 * Owns:    the report copies
 * Errors:  aborts without memory
 * Cost:    O(1) amortised */
void tdl_report_sample(struct tdl_report *report, const struct tdl_sample *sample);

/* The JSON object, with the summary of the samples so far.
 * Thread:  owner
 * Owns:    the caller frees the text
 * Errors:  NULL without memory
 * Cost:    O(samples log samples) */
char *tdl_report_text_of(const struct tdl_report *report, size_t *length);

/* The commit that the tool was built from.
 * Thread:  any
 * Owns:    static
 * Errors:  none; "unknown" outside a repository
 * Cost:    O(1) */
const char *tdl_report_commit(void);

/* Frees the report; NULL is allowed.
 * Thread:  owner
 * Owns:    takes the report
 * Errors:  none
 * Cost:    O(samples) */
void tdl_report_free(struct tdl_report *report);

#endif
