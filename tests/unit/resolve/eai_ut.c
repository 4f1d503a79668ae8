/* Goal: every code of libc has its status, and each status a text.
 * Method: the whole list, and codes that libc does not have. */
#include <check.h>

#include "treadle/lookup.h"
#include "treadle/status.h"

START_TEST(every_code_of_libc_has_a_status_of_its_own)
{
    static const int codes[] = {EAI_BADFLAGS,   EAI_NONAME,   EAI_AGAIN,   EAI_FAIL,   EAI_FAMILY,
                                EAI_SOCKTYPE,   EAI_SERVICE,  EAI_MEMORY,  EAI_SYSTEM, EAI_NODATA,
                                EAI_ADDRFAMILY, EAI_OVERFLOW, EAI_CANCELED};
    const size_t count = sizeof codes / sizeof codes[0];
    for (size_t i = 0; i < count; i++) {
        int status = tdl_eai_status(codes[i]);
        ck_assert_int_le(status, -3000);
        ck_assert_str_ne(tdl_status_text(status), tdl_status_text(-999999));
        for (size_t k = 0; k < i; k++) {
            ck_assert_int_ne(status, tdl_eai_status(codes[k]));
        }
    }
}
END_TEST

START_TEST(success_stays_and_a_stranger_is_a_failure)
{
    ck_assert_int_eq(tdl_eai_status(0), 0);
    ck_assert_int_eq(tdl_eai_status(-31337), TDL_EAI_FAIL);
    ck_assert_int_eq(tdl_eai_status(5), TDL_EAI_FAIL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("eai");
    TCase *tcase = tcase_create("eai");
    tcase_add_test(tcase, every_code_of_libc_has_a_status_of_its_own);
    tcase_add_test(tcase, success_stays_and_a_stranger_is_a_failure);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
