/* The command line of every measuring tool: `--name value` or `--name=value`, -h, --help and --version.
 * All options stand in one table, from which the help is printed and against which each value is checked.
 *
 *     static long samples = 5;
 *     static const struct tdl_option options[] = {
 *         {.name = "samples", .help = "samples that count", .number = &samples, .low = 1, .high = 1000000},
 *     };
 *     const struct tdl_command command = {.tool = "micro", .about = "...", .version = "1.0",
 *                                         .options = options, .count = 1};
 *     int code = tdl_options_parse(&command, argc, argv);
 *     if (code >= 0)
 *         return code;
 */
#ifndef TREADLE_CLI_OPTIONS_H
#define TREADLE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#define TDL_EXIT_USAGE 2 /* a command line that cannot be used */

/* One option. Exactly one of number, text, list and flag is set; it holds the default before the command
 * line was read and the given value after. */
struct tdl_option {
    const char *name;
    const char *help;
    const char *unit; /* of a number; NULL: a count */
    long *number;
    long low;
    long high;
    const char **text;
    const char *const *choices; /* NULL-terminated: all that text may be; NULL: anything but empty */
    const char *value_name;     /* how the help calls the value; NULL: N, or the choices */
    struct tdl_option_list *list;
    bool *flag; /* takes no value */
};

/* The values of an option that may be given several times. */
#define TDL_OPTION_LIST_MAX 64
struct tdl_option_list {
    const char *values[TDL_OPTION_LIST_MAX];
    size_t count;
};

struct tdl_command {
    const char *tool;
    const char *about;
    const char *version;
    const struct tdl_option *options;
    size_t count;
};

/* Reads the command line into the options. What is wrong is said on standard error in one line that names the
 * option, what is allowed and what was given.
 * Thread:  owner
 * Owns:    values point into argv
 * Errors:  -1 to go on; else the exit code: 0 after --help or --version, TDL_EXIT_USAGE for wrong use
 * Cost:    O(arguments * options) */
int tdl_options_parse(const struct tdl_command *command, int argc, char **argv);

/* Says what is wrong with an option's value, in the one form that all tools use.
 * Thread:  any
 * Owns:    nothing
 * Errors:  returns TDL_EXIT_USAGE
 * Cost:    O(1) */
int tdl_options_refuse(const char *tool, const char *name, const char *allowed, const char *got);

#endif
