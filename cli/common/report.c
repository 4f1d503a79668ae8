#include "report.h"

#include "cpus.h"

#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "treadle/assert.h"
#include "treadle/version.h"

#ifndef TREADLE_COMMIT
#define TREADLE_COMMIT "unknown"
#endif

struct tdl_report {
    json_t *root;
    json_t *args;
    json_t *samples;
};

/* jansson steals references in the _new calls and fails only without memory, which ends a tool anyway. */
static void put(json_t *object, const char *name, json_t *value)
{
    TDL_ASSERT(json_object_set_new(object, name, value) == 0);
}

static void read_cpu_name(char *name, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    (void)snprintf(name, size, "unknown");
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            colon[strcspn(colon, "\n")] = '\0';
            (void)snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    (void)fclose(file);
}

static bool read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool found = fgets(line, (int)size, file) != NULL;
    line[found ? strcspn(line, "\n") : 0] = '\0';
    (void)fclose(file);
    return found;
}

static json_t *describe_build(void)
{
    json_t *build = json_object();
    put(build, "type", json_string(TREADLE_BUILD_TYPE));
    put(build, "compiler", json_string(TREADLE_COMPILER));
    put(build, "flags", json_string(TREADLE_FLAGS));
    /* The tools stand on the C libraries alone; libuv belongs to the Python module. */
    put(build, "libuv", json_string("none"));
    return build;
}

static json_t *describe_machine(void)
{
    char cpu[200];
    struct utsname system;
    char text[TDL_CPUS_TEXT];
    cpu_set_t allowed;
    double load = 0;
    json_t *machine = json_object();
    read_cpu_name(cpu, sizeof cpu);
    int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    put(machine, "cpu", json_string(cpu));
    put(machine, "cores", json_integer(cores));
    put(machine, "kernel", json_string(uname(&system) == 0 ? system.release : "unknown"));
    put(machine, "load", json_real(getloadavg(&load, 1) == 1 ? load : 0));
    tdl_cpus_describe(text, sizeof text);
    put(machine, "affinity", json_string(text));
    if (read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text)) {
        put(machine, "governor", json_string(text));
    }
    return machine;
}

struct tdl_report *tdl_report_new(const char *tool, const char *arm)
{
    struct tdl_report *report = malloc(sizeof *report);
    if (report == NULL) {
        return NULL;
    }
    report->root = json_object();
    report->args = json_object();
    report->samples = json_array();
    put(report->root, "tool", json_string(tool));
    put(report->root, "version", json_string(TDL_VERSION));
    put(report->root, "commit", json_string(TREADLE_COMMIT));
    put(report->root, "arm", json_string(arm));
    put(report->root, "build", describe_build());
    put(report->root, "args", report->args);
    put(report->root, "samples", report->samples);
    return report;
}

void tdl_report_number(struct tdl_report *report, const char *name, double value)
{
    bool whole = value >= -1e15 && value <= 1e15 && (double)(json_int_t)value == value;
    put(report->args, name, whole ? json_integer((json_int_t)value) : json_real(value));
}

void tdl_report_text(struct tdl_report *report, const char *name, const char *value)
{
    put(report->args, name, value == NULL ? json_null() : json_string(value));
}

void tdl_report_sample(struct tdl_report *report, const struct tdl_sample *sample)
{
    json_t *object = json_object();
    put(object, "case", json_string(sample->name));
    put(object, "unit", json_string(sample->unit));
    put(object, "round", json_integer(sample->round));
    put(object, "ok", json_boolean(sample->error == NULL));
    if (sample->title != NULL) {
        put(object, "title", json_string(sample->title));
    }
    if (sample->error == NULL) {
        put(object, "ops", json_real(sample->ops));
        put(object, "value", json_real(sample->value));
        put(object, "wall_us", json_real(sample->wall_us));
        put(object, "cpu_us", json_real(sample->cpu_us));
    } else {
        put(object, "kind", json_string(sample->unsupported ? "unsupported" : "failed"));
        put(object, "error", json_string(sample->error));
    }
    TDL_ASSERT(json_array_append_new(report->samples, object) == 0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool higher_is_better(const char *unit)
{
    size_t length = strlen(unit);
    return length >= 2 && strcmp(unit + length - 2, "/s") == 0;
}

/* Sorts `values` and puts their median, extremes and counts beside the unit. */
static json_t *fold(double *values, size_t n, size_t failed, const char *unit)
{
    json_t *summary = json_object();
    qsort(values, n, sizeof *values, by_value);
    double median = n == 0 ? 0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    put(summary, "median", n == 0 ? json_null() : json_real(median));
    put(summary, "min", n == 0 ? json_null() : json_real(values[0]));
    put(summary, "max", n == 0 ? json_null() : json_real(values[n - 1]));
    put(summary, "n", json_integer((json_int_t)n));
    put(summary, "failed", json_integer((json_int_t)failed));
    put(summary, "unit", json_string(unit));
    put(summary, "better", json_string(higher_is_better(unit) ? "higher" : "lower"));
    return summary;
}

static json_t *summarize_case(const json_t *samples, const char *name, double *values)
{
    size_t n = 0;
    size_t failed = 0;
    const char *unit = "";
    for (size_t i = 0; i < json_array_size(samples); i++) {
        const json_t *sample = json_array_get(samples, i);
        if (strcmp(json_string_value(json_object_get(sample, "case")), name) != 0) {
            continue;
        }
        unit = json_string_value(json_object_get(sample, "unit"));
        if (json_is_true(json_object_get(sample, "ok"))) {
            values[n++] = json_number_value(json_object_get(sample, "value"));
        } else {
            failed++;
        }
    }
    return fold(values, n, failed, unit);
}

static json_t *summarize(const json_t *samples)
{
    json_t *summary = json_object();
    size_t count = json_array_size(samples);
    double *values = calloc(count + 1, sizeof *values);
    TDL_ASSERT(values != NULL);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(samples, i), "case"));
        if (json_object_get(summary, name) == NULL) {
            put(summary, name, summarize_case(samples, name, values));
        }
    }
    free(values);
    return summary;
}

char *tdl_report_text_of(const struct tdl_report *report, size_t *length)
{
    put(report->root, "machine", describe_machine());
    put(report->root, "summary", summarize(report->samples));
    char *text = json_dumps(report->root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    char *line = text == NULL ? NULL : realloc(text, strlen(text) + 2);
    if (line == NULL) {
        free(text);
        return NULL;
    }
    *length = strlen(line) + 1;
    memcpy(line + *length - 1, "\n", 2);
    return line;
}

const char *tdl_report_commit(void)
{
    return TREADLE_COMMIT;
}

void tdl_report_free(struct tdl_report *report)
{
    if (report == NULL) {
        return;
    }
    json_decref(report->root);
    free(report);
}
