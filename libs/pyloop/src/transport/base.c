/* What transports of every kind share. */
#include "transport/base.h"

int tdl__parse_write_limits(TdlLoop *loop, PyObject *args, PyObject *kwargs, size_t *high_water,
                            size_t *low_water)
{
    static const char *const names[] = {"high", "low", NULL};
    PyObject *high = Py_None;
    PyObject *low = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:set_write_buffer_limits", TDL_KEYWORDS(names), &high,
                                     &low)) {
        return -1;
    }
    PyObject *limits = PyObject_CallMethod(loop->state->support, "write_buffer_limits", "OO", high, low);
    Py_ssize_t high_size = 0;
    Py_ssize_t low_size = 0;
    int ok = limits != NULL && PyArg_ParseTuple(limits, "nn", &high_size, &low_size);
    Py_XDECREF(limits);
    if (!ok) {
        return -1;
    }
    *high_water = (size_t)high_size;
    *low_water = (size_t)low_size;
    return 0;
}

/* A mark as asyncio's inherited code sets it. */
int tdl__parse_water(PyObject *value, size_t *water)
{
    Py_ssize_t size = value != NULL ? PyNumber_AsSsize_t(value, PyExc_OverflowError) : 0;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a transport's mark cannot be deleted");
    } else if (size < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a transport's mark must not be negative");
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    *water = (size_t)size;
    return 0;
}

int tdl__parse_flag(PyObject *value, bool *flag)
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a transport's flag cannot be deleted");
        return -1;
    }
    int truth = PyObject_IsTrue(value);
    if (truth < 0) {
        return -1;
    }
    *flag = truth > 0;
    return 0;
}
