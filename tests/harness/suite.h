/* One check program per file: SUITE("base/list", case, case, ...) writes its main. */
#ifndef TREADLE_TEST_SUITE_H
#define TREADLE_TEST_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int suite_run(const char *name, const TTest *const *cases, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    for (size_t i = 0; i < count; i++) {
        tcase_add_test(tcase, cases[i]);
    }
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#define SUITE(name, ...)                                                                                     \
    int main(void)                                                                                           \
    {                                                                                                        \
        const TTest *const cases[] = {__VA_ARGS__};                                                          \
        return suite_run(name, cases, sizeof cases / sizeof cases[0]);                                       \
    }

#endif
