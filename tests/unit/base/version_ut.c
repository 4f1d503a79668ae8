/* Goal: a program can tell headers from the library that runs. Method: compare the two of one build. */
#include "suite.h"

#include "treadle/version.h"

START_TEST(the_library_says_the_version_of_its_headers)
{
    ck_assert_str_eq(tdl_version(), TDL_VERSION);
}
END_TEST

SUITE("base/version", the_library_says_the_version_of_its_headers)
