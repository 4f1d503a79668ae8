#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_WIDTH 24
#define LINE_MAX_BYTES 512

int tdl_options_refuse(const char *tool, const char *name, const char *allowed, const char *got)
{
    (void)fprintf(stderr, "%s: --%s: %s%s%s\n", tool, name, allowed, got == NULL ? "" : ", got ",
                  got == NULL    ? ""
                  : *got == '\0' ? "nothing"
                                 : got);
    return TDL_EXIT_USAGE;
}

static void join_choices(const char *const *choices, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; choices[i] != NULL && used < size; i++) {
        const char *between = i == 0 ? "" : choices[i + 1] == NULL ? " or " : ", ";
        int n = snprintf(out + used, size - used, "%s%s", between, choices[i]);
        used += n < 0 ? 0 : (size_t)n;
    }
}

/* What a value may be, in words: the range with its unit, or the choices. */
static void describe_range(const struct tdl_option *option, char *out, size_t size)
{
    out[0] = '\0';
    if (option->number != NULL) {
        (void)snprintf(out, size, "%ld to %ld%s%s", option->low, option->high,
                       option->unit == NULL ? "" : " ", option->unit == NULL ? "" : option->unit);
    } else if (option->choices != NULL) {
        join_choices(option->choices, out, size);
    }
}

static const char *value_name(const struct tdl_option *option)
{
    if (option->flag != NULL) {
        return "";
    }
    if (option->value_name != NULL) {
        return option->value_name;
    }
    return option->number != NULL ? "N" : "NAME";
}

static void print_option(const struct tdl_option *option)
{
    char name[64];
    char range[LINE_MAX_BYTES];
    (void)snprintf(name, sizeof name, "--%s %s", option->name, value_name(option));
    describe_range(option, range, sizeof range);
    (void)printf("  %-*s %s", NAME_WIDTH, name, option->help);
    if (range[0] != '\0') {
        (void)printf("; %s", range);
    }
    if (option->number != NULL) {
        (void)printf("; default %ld", *option->number);
    } else if (option->text != NULL && *option->text != NULL) {
        (void)printf("; default %s", *option->text);
    }
    (void)putchar('\n');
}

static void print_help(const struct tdl_command *command)
{
    (void)printf("%s: %s\n\nUsage: %s [--name value | --name=value]...\n\n", command->tool, command->about,
                 command->tool);
    for (size_t i = 0; i < command->count; i++) {
        print_option(&command->options[i]);
    }
    (void)printf("  %-*s this text\n  %-*s the version and the commit it was built from\n", NAME_WIDTH,
                 "-h, --help", NAME_WIDTH, "--version");
}

static bool parse_number(const struct tdl_option *option, const char *value)
{
    char *end = NULL;
    errno = 0;
    long number = strtol(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || number < option->low || number > option->high) {
        return false;
    }
    *option->number = number;
    return true;
}

static bool is_choice(const char *const *choices, const char *value)
{
    for (size_t i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], value) == 0) {
            return true;
        }
    }
    return false;
}

static int take_value(const struct tdl_command *command, const struct tdl_option *option, const char *value)
{
    char range[LINE_MAX_BYTES];
    describe_range(option, range, sizeof range);
    if (option->number != NULL) {
        return parse_number(option, value) ? -1
                                           : tdl_options_refuse(command->tool, option->name, range, value);
    }
    if (*value == '\0') {
        return tdl_options_refuse(command->tool, option->name, "needs a value", value);
    }
    if (option->list != NULL) {
        if (option->list->count == TDL_OPTION_LIST_MAX) {
            return tdl_options_refuse(command->tool, option->name, "64 times at most", NULL);
        }
        option->list->values[option->list->count++] = value;
        return -1;
    }
    if (option->choices != NULL && !is_choice(option->choices, value)) {
        return tdl_options_refuse(command->tool, option->name, range, value);
    }
    *option->text = value;
    return -1;
}

static const struct tdl_option *find(const struct tdl_command *command, const char *name, size_t length)
{
    for (size_t i = 0; i < command->count; i++) {
        const char *known = command->options[i].name;
        if (strlen(known) == length && strncmp(known, name, length) == 0) {
            return &command->options[i];
        }
    }
    return NULL;
}

static int refuse_argument(const struct tdl_command *command, const char *argument)
{
    (void)fprintf(stderr, "%s: %s: no such option; %s --help lists them\n", command->tool, argument,
                  command->tool);
    return TDL_EXIT_USAGE;
}

/* Takes the option at *i and moves *i over its value. */
static int take_argument(const struct tdl_command *command, char **argv, int *i)
{
    const char *argument = argv[*i];
    if (strncmp(argument, "--", 2) != 0) {
        return refuse_argument(command, argument);
    }
    const char *name = argument + 2;
    const char *equals = strchr(name, '=');
    const struct tdl_option *option =
        find(command, name, equals == NULL ? strlen(name) : (size_t)(equals - name));
    if (option == NULL) {
        return refuse_argument(command, argument);
    }
    if (option->flag != NULL) {
        *option->flag = true;
        return equals == NULL ? -1
                              : tdl_options_refuse(command->tool, option->name, "takes no value", equals + 1);
    }
    if (equals != NULL) {
        return take_value(command, option, equals + 1);
    }
    if (argv[*i + 1] == NULL) {
        return tdl_options_refuse(command->tool, option->name, "needs a value", NULL);
    }
    *i += 1;
    return take_value(command, option, argv[*i]);
}

/* Whoever asks for help gets it, whatever else stands on the line. */
static bool is_asked(int argc, char **argv, const char *name, const char *other)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0 || strcmp(argv[i], other) == 0) {
            return true;
        }
    }
    return false;
}

int tdl_options_parse(const struct tdl_command *command, int argc, char **argv)
{
    if (is_asked(argc, argv, "--help", "-h")) {
        print_help(command);
        return 0;
    }
    if (is_asked(argc, argv, "--version", "--version")) {
        (void)printf("%s %s\n", command->tool, command->version);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        int code = take_argument(command, argv, &i);
        if (code >= 0) {
            return code;
        }
    }
    return -1;
}
