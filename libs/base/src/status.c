#include "treadle/status.h"

#include <stddef.h>

struct tdl__status_row {
    int value;
    const char *name;
    const char *text;
};

static const struct tdl__status_row tdl__status_rows[] = {
#define TDL__STATUS_ROW(name, value, text) {(value), #name, (text)},
    TDL_STATUS_MAP(TDL__STATUS_ROW)
#undef TDL__STATUS_ROW
};

static const struct tdl__status_row *tdl__status_find(int status)
{
    for (size_t i = 0; i < sizeof tdl__status_rows / sizeof tdl__status_rows[0]; i++)
        if (tdl__status_rows[i].value == status)
            return &tdl__status_rows[i];
    return NULL;
}

const char *tdl_status_name(int status)
{
    if (status >= 0)
        return "OK";
    const struct tdl__status_row *row = tdl__status_find(status);
    return row != NULL ? row->name : "UNKNOWN";
}

const char *tdl_status_text(int status)
{
    if (status >= 0)
        return "success";
    const struct tdl__status_row *row = tdl__status_find(status);
    return row != NULL ? row->text : "unknown error";
}
