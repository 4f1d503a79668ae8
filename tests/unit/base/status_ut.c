/* Goal: every status has one value, a name and a text. Method: expand the list and look each up. */
#include "suite.h"

#include <string.h>

#include "treadle/status.h"

struct row {
    int value;
    const char *name;
    const char *text;
};

static const struct row rows[] = {
#define ROW(name, value, text) {value, #name, text},
    TDL_STATUS_MAP(ROW)
#undef ROW
};
static const size_t row_count = sizeof rows / sizeof rows[0];

START_TEST(every_code_answers_its_own_name_and_text)
{
    for (size_t i = 0; i < row_count; i++) {
        ck_assert_str_eq(tdl_status_name(rows[i].value), rows[i].name);
        ck_assert_str_eq(tdl_status_text(rows[i].value), rows[i].text);
        ck_assert_uint_gt(strlen(rows[i].text), 0);
    }
}
END_TEST

START_TEST(no_two_codes_share_a_value_and_all_are_negative)
{
    for (size_t i = 0; i < row_count; i++) {
        ck_assert_int_lt(rows[i].value, 0);
        for (size_t j = i + 1; j < row_count; j++) {
            ck_assert_msg(rows[i].value != rows[j].value, "%s and %s", rows[i].name, rows[j].name);
        }
    }
}
END_TEST

START_TEST(system_errors_are_negated_errno_and_the_other_blocks_lie_outside_its_range)
{
    ck_assert_int_eq(TDL_EAGAIN, -EAGAIN);
    ck_assert_int_eq(TDL_ENOMEM, -ENOMEM);
    ck_assert_int_le(TDL_EAI_ADDRFAMILY, -3000);
    ck_assert_int_lt(TDL_ECLOSED, -4095);
}
END_TEST

START_TEST(success_and_unknown_codes_have_words_too)
{
    ck_assert_str_eq(tdl_status_name(0), "OK");
    ck_assert_str_eq(tdl_status_name(17), "OK");
    ck_assert_str_eq(tdl_status_text(0), "success");
    ck_assert_str_eq(tdl_status_name(-999999), "UNKNOWN");
    ck_assert_str_eq(tdl_status_text(-999999), "unknown error");
}
END_TEST

SUITE("base/status", every_code_answers_its_own_name_and_text,
      no_two_codes_share_a_value_and_all_are_negative,
      system_errors_are_negated_errno_and_the_other_blocks_lie_outside_its_range,
      success_and_unknown_codes_have_words_too)
