#include "bench.h"

#include "cpus.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/status.h"
#include "treadle/version.h"

#define OPTIONS_MAX 32

/* The run that the command line asked for. There is one, and a signal ends it from another thread. */
struct run {
    const struct tdl_bench *bench;
    struct tdl_option_list patterns;
    long samples;
    long warmup;
    const char *json;
    const char *arm;
    const char *cpus;
    bool list;
    bool quiet; /* standard output is the JSON's */
    int json_fd;
    struct tdl_report *report;
    size_t measured; /* good samples that count */
    bool failed;
};

struct tdl_bench_clock tdl_bench_begin(void)
{
    return (struct tdl_bench_clock){.wall_ns = tdl_clock_ns(), .cpu_ns = tdl_clock_process_ns()};
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

/* Options */

static size_t join_options(struct run *run, bool *smoke, struct tdl_option out[OPTIONS_MAX])
{
    const struct tdl_option common[] = {
        {.name = "case",
         .help = "a case's name or a shell pattern; may be given again; without it: all",
         .list = &run->patterns,
         .value_name = "PATTERN"},
        {.name = "samples",
         .help = "samples that count, per case",
         .number = &run->samples,
         .low = 1,
         .high = 1000000},
        {.name = "warmup", .help = "samples before those", .number = &run->warmup, .low = 0, .high = 1000000},
        {.name = "json",
         .help = "write the JSON object there; - for standard output",
         .text = &run->json,
         .value_name = "FILE"},
        {.name = "arm", .help = "what the figures are filed under, to keep builds apart", .text = &run->arm},
        {.name = "cpus",
         .help = "processors to run on, as in 0-2,5; without it: all allowed",
         .text = &run->cpus,
         .value_name = "LIST"},
        {.name = "smoke", .help = "a few operations per case, once: does it run at all", .flag = smoke},
        {.name = "list", .help = "name the cases and exit", .flag = &run->list},
    };
    const struct tdl_bench *bench = run->bench;
    size_t count = sizeof common / sizeof *common;
    TDL_ASSERT(count + bench->option_count <= OPTIONS_MAX);
    memcpy(out, common, sizeof common);
    for (size_t i = 0; i < bench->option_count; i++) {
        out[count + i] = bench->options[i];
    }
    return count + bench->option_count;
}

/* Every pattern has to match something: a case that is silently not measured looks like one that was. */
static int check_patterns(const struct run *run)
{
    const struct tdl_bench *bench = run->bench;
    for (size_t i = 0; i < run->patterns.count; i++) {
        bool matched = false;
        for (size_t j = 0; j < bench->case_count && !matched; j++) {
            matched = fnmatch(run->patterns.values[i], bench->cases[j].name, 0) == 0;
        }
        if (!matched) {
            return tdl_options_refuse(bench->tool, "case", "a case that --list names, or a pattern of them",
                                      run->patterns.values[i]);
        }
    }
    return -1;
}

static int check_cpus(const struct run *run)
{
    char allowed[TDL_CPUS_TEXT];
    char text[TDL_CPUS_TEXT + 64];
    if (run->cpus == NULL || tdl_cpus_bind(run->cpus) == 0) {
        return -1;
    }
    tdl_cpus_describe(allowed, sizeof allowed);
    (void)snprintf(text, sizeof text, "a list of processors out of %s", allowed);
    return tdl_options_refuse(run->bench->tool, "cpus", text, run->cpus);
}

/* Writes the report as it is now over what the file held. */
static int write_report(const struct run *run)
{
    size_t length = 0;
    char *text = tdl_report_text_of(run->report, &length);
    int code = text == NULL ? -ENOMEM : 0;
    for (size_t done = 0; code == 0 && done < length;) {
        ssize_t n = write(run->json_fd, text + done, length - done);
        if (n < 0 && errno != EINTR) {
            code = -errno;
        }
        done += n < 0 ? 0 : (size_t)n;
    }
    free(text);
    return code;
}

/* Standard output may be a file that somebody else writes to as well. */
static bool rewinds(const struct run *run)
{
    return !run->quiet && lseek(run->json_fd, 0, SEEK_SET) == 0;
}

static int rewrite_report(const struct run *run)
{
    if (rewinds(run) && ftruncate(run->json_fd, 0) != 0 && errno != EINVAL) { /* EINVAL: a device */
        return -errno;
    }
    return write_report(run);
}

static int refuse_json(const struct run *run, int code)
{
    char text[256];
    (void)snprintf(text, sizeof text, "a file that can be written (%s)", tdl_status_text(code));
    return tdl_options_refuse(run->bench->tool, "json", text, run->json);
}

/* Opens the file and writes the report without samples, since a folder, a full disk or a missing
 * permission should show before anything is measured. */
static int open_json(struct run *run)
{
    run->quiet = run->json != NULL && strcmp(run->json, "-") == 0;
    if (run->json == NULL) {
        return -1;
    }
    run->json_fd =
        run->quiet ? STDOUT_FILENO : open(run->json, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (run->json_fd < 0) {
        return refuse_json(run, -errno);
    }
    int code = rewinds(run) ? rewrite_report(run) : 0;
    return code == 0 ? -1 : refuse_json(run, code);
}

static void record_options(const struct run *run)
{
    const struct tdl_bench *bench = run->bench;
    tdl_report_number(run->report, "samples", (double)run->samples);
    tdl_report_number(run->report, "warmup", (double)run->warmup);
    tdl_report_number(run->report, "smoke", bench->smoke ? 1 : 0);
    for (size_t i = 0; i < bench->option_count; i++) {
        const struct tdl_option *o = &bench->options[i];
        if (o->number != NULL) {
            tdl_report_number(run->report, o->name, (double)*o->number);
        } else if (o->text != NULL) {
            tdl_report_text(run->report, o->name, *o->text);
        }
    }
}

/* Returns -1 to go on, or the exit code. Nothing is measured before all of it was looked at. */
static int prepare(struct run *run, struct tdl_bench *bench, int argc, char **argv)
{
    struct tdl_option options[OPTIONS_MAX];
    char version[128];
    (void)snprintf(version, sizeof version, "%s (%s)", TDL_VERSION, tdl_report_commit());
    struct tdl_command command = {
        .tool = bench->tool, .about = bench->about, .version = version, .options = options};
    command.count = join_options(run, &bench->smoke, options);
    int code = tdl_options_parse(&command, argc, argv);
    if (code >= 0 || run->list) {
        return code;
    }
    if (bench->smoke) {
        run->samples = 1;
        run->warmup = 0;
    }
    code = check_patterns(run);
    if (code < 0) {
        code = check_cpus(run);
    }
    if (code < 0 && bench->check != NULL) {
        code = bench->check(bench) == 0 ? -1 : TDL_EXIT_USAGE;
    }
    if (code >= 0) {
        return code;
    }
    tdl_stop_guard();
    run->report = tdl_report_new(bench->tool, run->arm);
    TDL_ASSERT(run->report != NULL);
    record_options(run);
    code = open_json(run);
    tdl_stop_unguard();
    return code;
}

/* Cases */

static bool is_chosen(const struct run *run, const struct tdl_bench_case *one)
{
    for (size_t i = 0; i < run->patterns.count; i++) {
        if (fnmatch(run->patterns.values[i], one->name, 0) == 0) {
            return true;
        }
    }
    return run->patterns.count == 0;
}

static void take_once(const struct tdl_bench *bench, const struct tdl_bench_case *one, struct tdl_sample *out)
{
    const char *unit = one->unit == NULL ? TDL_BENCH_CPU_UNIT : one->unit;
    *out = (struct tdl_sample){.name = one->name, .title = one->title, .unit = unit};
    int code = one->take(bench, out);
    if (code != 0 && out->error == NULL) {
        out->error = tdl_status_text(code);
    }
    out->unsupported = code == -ENOTSUP;
}

static void print_sample(const struct tdl_sample *sample)
{
    if (sample->error != NULL) {
        (void)printf("%-22s %s: %s\n", sample->name, sample->unsupported ? "unsupported" : "failed",
                     sample->error);
    } else {
        (void)printf("%-22s %12.4f %s   wall %.4f us/op\n", sample->name, sample->value, sample->unit,
                     sample->wall_us);
    }
    (void)fflush(stdout);
}

static void run_case(struct run *run, const struct tdl_bench_case *one)
{
    for (long i = 0; i < run->warmup + run->samples; i++) {
        struct tdl_sample sample;
        take_once(run->bench, one, &sample);
        if (sample.error == NULL && i < run->warmup) {
            continue;
        }
        sample.round = (int)(i < run->warmup ? 0 : i - run->warmup);
        tdl_stop_guard();
        tdl_report_sample(run->report, &sample);
        run->measured += sample.error == NULL;
        run->failed = run->failed || (sample.error != NULL && !sample.unsupported);
        tdl_stop_unguard();
        if (!run->quiet) {
            print_sample(&sample);
        }
        if (sample.error != NULL) {
            return;
        }
    }
}

/* Writes what was measured so far and removes what was made. Returns the exit code. */
static int finish(struct run *run)
{
    const struct tdl_bench *bench = run->bench;
    if (bench->cleanup != NULL) {
        bench->cleanup();
    }
    int code = run->json_fd < 0 ? 0 : rewrite_report(run);
    if (code != 0) {
        (void)fprintf(stderr, "%s: --json: %s: %s\n", bench->tool, run->json, tdl_status_text(code));
    }
    return code != 0 || run->failed || run->measured == 0 ? 1 : 0;
}

static void stop(void *data)
{
    struct run *run = data;
    if (run->report != NULL) {
        (void)finish(run);
    } else if (run->bench->cleanup != NULL) {
        run->bench->cleanup();
    }
    (void)fprintf(stderr, "%s: stopped after %zu samples\n", run->bench->tool, run->measured);
}

static void print_cases(const struct tdl_bench *bench)
{
    for (size_t i = 0; i < bench->case_count; i++) {
        (void)printf("%-22s %s [%s]\n", bench->cases[i].name, bench->cases[i].title,
                     bench->cases[i].unit == NULL ? TDL_BENCH_CPU_UNIT : bench->cases[i].unit);
    }
}

int tdl_bench_main(struct tdl_bench *bench, int argc, char **argv)
{
    static struct run run;
    run = (struct run){.bench = bench, .samples = 5, .warmup = 1, .arm = bench->tool, .json_fd = -1};
    int code = tdl_stop_watch(stop, &run);
    TDL_ASSERT(code == 0);
    code = prepare(&run, bench, argc, argv);
    if (run.list && code < 0) {
        print_cases(bench);
        code = 0;
    }
    if (code < 0) {
        for (size_t i = 0; i < bench->case_count; i++) {
            if (is_chosen(&run, &bench->cases[i])) {
                run_case(&run, &bench->cases[i]);
            }
        }
    }
    /* From here on a signal waits, and the process ends before it is looked at. */
    tdl_stop_guard();
    if (code < 0) {
        code = finish(&run);
        if (run.measured == 0) {
            (void)fprintf(stderr, "%s: nothing could be measured\n", bench->tool);
        }
    } else if (bench->cleanup != NULL) {
        bench->cleanup();
    }
    tdl_report_free(run.report);
    return code;
}
