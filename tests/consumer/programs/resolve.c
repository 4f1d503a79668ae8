/* resolve alone: a number needs no database. */
#include <treadle/lookup.h>
#include <treadle/numeric.h>

int main(void)
{
    struct tdl_numeric answer;
    struct tdl_lookup lookup;

    if (!tdl_numeric_forward(&answer, "127.0.0.1", "80", NULL) || answer.address.any.sa_family != AF_INET) {
        return 1;
    }
    if (tdl_lookup_forward(&lookup, "localhost", "80", NULL, NULL) != 0) {
        return 1;
    }
    tdl_lookup_clear(&lookup);
    return tdl_lookup_slots() > 0 ? 0 : 1;
}
