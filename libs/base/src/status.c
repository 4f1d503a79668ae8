#include "treadle/status.h"

#include <stddef.h>

struct status_row {
    int value;
    const char *name;
    const char *text;
};

static const struct status_row status_rows[] = {
#define STATUS_ROW(name, value, text) {(value), #name, (text)},
    TDL_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

static const struct status_row *status_find(int status)
{
    for (size_t i = 0; i < sizeof status_rows / sizeof status_rows[0]; i++) {
        if (status_rows[i].value == status) {
            return &status_rows[i];
        }
    }
    return NULL;
}

const char *tdl_status_name(int status)
{
    if (status >= 0) {
        return "OK";
    }
    const struct status_row *row = status_find(status);
    return row != NULL ? row->name : "UNKNOWN";
}

const char *tdl_status_text(int status)
{
    if (status >= 0) {
        return "success";
    }
    const struct status_row *row = status_find(status);
    return row != NULL ? row->text : "unknown error";
}
