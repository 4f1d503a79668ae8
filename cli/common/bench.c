#include "bench.h"

#include "treadle/assert.h"
#include "treadle/status.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_PATTERNS 64

struct choices {
    const char *patterns[MAX_PATTERNS];
    size_t pattern_count;
    long samples;
    long warmup;
    const char *json;
    bool list;
};

uint64_t tdl_bench_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

struct tdl_bench_clock tdl_bench_begin(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (struct tdl_bench_clock){.wall_ns = tdl_bench_now_ns(),
                                    .cpu_ns = (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec};
}

void tdl_bench_end(const struct tdl_bench_clock *begin, double ops, struct tdl_sample *out)
{
    struct tdl_bench_clock end = tdl_bench_begin();
    out->ops = ops;
    out->wall_us = (double)(end.wall_ns - begin->wall_ns) / 1e3 / ops;
    out->cpu_us = (double)(end.cpu_ns - begin->cpu_ns) / 1e3 / ops;
    out->value = out->cpu_us;
}

size_t tdl_bench_count(const struct tdl_bench *bench, size_t full, size_t least)
{
    size_t count = bench->smoke ? full / 1000 : full;
    return count < least ? least : count;
}

static void print_usage(const struct tdl_bench *bench, FILE *out)
{
    (void)fprintf(out,
                  "%s: %s\n\n"
                  "  --case PATTERN   a case's name or a shell pattern; repeatable; default: all\n"
                  "  --samples N      samples that count, per case (5)\n"
                  "  --warmup N       samples before those (1)\n"
                  "  --json FILE      write the JSON object there; - for standard output\n"
                  "  --smoke          a few operations per case, once: does it run at all\n"
                  "  --list           name the cases and exit\n"
                  "  --help           this text\n",
                  bench->tool, bench->about);
    for (size_t i = 0; i < bench->option_count; i++) {
        const struct tdl_bench_option *o = &bench->options[i];
        (void)fprintf(out, "  --%-14s %s", o->name, o->help);
        if (o->number != NULL)
            (void)fprintf(out, " (%ld)\n", *o->number);
        else
            (void)fprintf(out, " (%s)\n", *o->text == NULL ? "none" : *o->text);
    }
}

static bool parse_long(const char *text, long low, long high, long *out)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        return false;
    *out = value;
    return true;
}

/* Takes the value of a tool's own option; false when there is no such option or the value is wrong. */
static bool take_option(const struct tdl_bench *bench, const char *name, const char *value)
{
    for (size_t i = 0; i < bench->option_count; i++) {
        const struct tdl_bench_option *o = &bench->options[i];
        if (strcmp(o->name, name) != 0)
            continue;
        if (o->number != NULL)
            return parse_long(value, o->low, o->high, o->number);
        *o->text = value;
        return true;
    }
    return false;
}

static bool take_value(const struct tdl_bench *bench, struct choices *choices, const char *name,
                       const char *value)
{
    if (strcmp(name, "case") == 0) {
        if (choices->pattern_count == MAX_PATTERNS)
            return false;
        choices->patterns[choices->pattern_count++] = value;
        return true;
    }
    if (strcmp(name, "samples") == 0)
        return parse_long(value, 1, 1000000, &choices->samples);
    if (strcmp(name, "warmup") == 0)
        return parse_long(value, 0, 1000000, &choices->warmup);
    if (strcmp(name, "json") == 0) {
        choices->json = value;
        return true;
    }
    return take_option(bench, name, value);
}

/* Returns -1 to go on, or the exit code. */
static int parse(struct tdl_bench *bench, struct choices *choices, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--help") == 0) {
            print_usage(bench, stdout);
            return 0;
        }
        if (strcmp(name, "--smoke") == 0) {
            bench->smoke = true;
        } else if (strcmp(name, "--list") == 0) {
            choices->list = true;
        } else if (strncmp(name, "--", 2) != 0 || i + 1 == argc ||
                   !take_value(bench, choices, name + 2, argv[i + 1])) {
            (void)fprintf(stderr, "%s: cannot use %s%s%s; see --help\n", bench->tool, name,
                          i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "");
            return 2;
        } else {
            i++;
        }
    }
    if (bench->smoke) {
        choices->samples = 1;
        choices->warmup = 0;
    }
    return -1;
}

static bool is_chosen(const struct choices *choices, const struct tdl_bench_case *one)
{
    for (size_t i = 0; i < choices->pattern_count; i++) {
        if (fnmatch(choices->patterns[i], one->name, 0) == 0)
            return true;
    }
    return choices->pattern_count == 0;
}

static void run_once(const struct tdl_bench *bench, const struct tdl_bench_case *one, struct tdl_sample *out)
{
    const char *unit = one->unit == NULL ? TDL_BENCH_CPU_UNIT : one->unit;
    *out = (struct tdl_sample){.name = one->name, .title = one->title, .unit = unit};
    int code = one->take(bench, out);
    if (code != 0 && out->error == NULL)
        out->error = tdl_status_text(code);
    out->unsupported = code == -ENOTSUP;
}

static bool run_case(const struct tdl_bench *bench, const struct choices *choices,
                     const struct tdl_bench_case *one, struct tdl_report *report, bool quiet)
{
    for (long i = 0; i < choices->warmup + choices->samples; i++) {
        struct tdl_sample sample;
        run_once(bench, one, &sample);
        if (sample.error == NULL && i < choices->warmup)
            continue;
        sample.round = (int)(i < choices->warmup ? 0 : i - choices->warmup);
        tdl_report_sample(report, &sample);
        if (sample.error != NULL) {
            if (!quiet)
                (void)printf("%-22s %s: %s\n", one->name, sample.unsupported ? "unsupported" : "failed",
                             sample.error);
            return sample.unsupported;
        }
        if (!quiet)
            (void)printf("%-22s %12.4f %s   wall %.4f us/op\n", one->name, sample.value, sample.unit,
                         sample.wall_us);
        (void)fflush(stdout);
    }
    return true;
}

static void record_options(const struct tdl_bench *bench, const struct choices *choices,
                           struct tdl_report *report)
{
    tdl_report_number(report, "samples", (double)choices->samples);
    tdl_report_number(report, "warmup", (double)choices->warmup);
    tdl_report_number(report, "smoke", bench->smoke ? 1 : 0);
    for (size_t i = 0; i < bench->option_count; i++) {
        const struct tdl_bench_option *o = &bench->options[i];
        if (o->number != NULL)
            tdl_report_number(report, o->name, (double)*o->number);
        else
            tdl_report_text(report, o->name, *o->text);
    }
}

static int run_chosen(const struct tdl_bench *bench, const struct choices *choices)
{
    size_t chosen = 0;
    bool good = true;
    bool quiet = choices->json != NULL && strcmp(choices->json, "-") == 0;
    struct tdl_report *report = tdl_report_new(bench->tool, bench->arm == NULL ? bench->tool : bench->arm);
    TDL_ASSERT(report != NULL);
    record_options(bench, choices, report);
    for (size_t i = 0; i < bench->case_count; i++) {
        if (is_chosen(choices, &bench->cases[i])) {
            chosen++;
            good = run_case(bench, choices, &bench->cases[i], report, quiet) && good;
        }
    }
    int code = choices->json == NULL ? 0 : tdl_report_write(report, choices->json);
    tdl_report_free(report);
    if (code != 0)
        (void)fprintf(stderr, "%s: %s: %s\n", bench->tool, choices->json, tdl_status_text(code));
    if (chosen == 0)
        (void)fprintf(stderr, "%s: no case matches; --list names them\n", bench->tool);
    return chosen == 0 ? 2 : code != 0 || !good ? 1 : 0;
}

int tdl_bench_main(struct tdl_bench *bench, int argc, char **argv)
{
    struct choices choices = {.samples = 5, .warmup = 1};
    int code = parse(bench, &choices, argc, argv);
    if (code >= 0)
        return code;
    if (choices.list) {
        for (size_t i = 0; i < bench->case_count; i++)
            (void)printf("%-22s %s [%s]\n", bench->cases[i].name, bench->cases[i].title,
                         bench->cases[i].unit == NULL ? TDL_BENCH_CPU_UNIT : bench->cases[i].unit);
        return 0;
    }
    return run_chosen(bench, &choices);
}
