/* The descriptor behind what a program gives for a file: its number now, and whether it still has it
 * later. */
#include "ground/fileno.h"

#include "ground/state.h"

#include <limits.h>

/* The number that an object gives, open or not, as a new int; or NULL and a ValueError for an object that
 * gives none. */
PyObject *tdl__number_of(PyObject *fileobj)
{
    if (PyLong_Check(fileobj)) {
        return Py_NewRef(fileobj);
    }
    PyObject *given = PyObject_CallMethod(fileobj, "fileno", NULL);
    PyObject *number = given != NULL ? PyNumber_Long(given) : NULL;
    Py_XDECREF(given);
    if (number == NULL &&
        (PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_TypeError) ||
         PyErr_ExceptionMatches(PyExc_ValueError))) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "Invalid file object: %R", fileobj);
    }
    return number;
}

int tdl__fd_of(PyObject *fileobj)
{
    PyObject *number = tdl__number_of(fileobj);
    if (number == NULL) {
        return -1;
    }
    int overflow;
    long fd = PyLong_AsLongAndOverflow(number, &overflow);
    if (overflow < 0 || (overflow == 0 && fd < 0)) {
        PyErr_Format(PyExc_ValueError, "Invalid file descriptor: %S", number);
    } else if (overflow > 0 || fd > INT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "Python int too large to convert to C int");
    }
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : (int)fd;
}

/* Where a socket object keeps its number, if it is the one given: whoever remembers the number looks there
 * before it uses it, since a closed socket's number may be another's. Checked against the number, not
 * believed. */
const int *tdl__socket_number(const struct tdl_module_state *st, PyObject *sock, int fd)
{
    return tdl__socket_field(sock, (PyTypeObject *)st->standard.raw_socket_type, fd);
}

/* Take back what an object has that could not be made: its end would close the descriptor, and the caller
 * too. */
static void let_descriptor_go(PyObject *sock)
{
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *number = PyObject_CallMethod(sock, "detach", NULL);
    if (number == NULL) {
        PyErr_WriteUnraisable(sock);
    }
    Py_XDECREF(number);
    PyErr_SetRaisedException(raised);
}

PyObject *tdl__socket_over(const struct tdl_module_state *st, int family, int type, int proto, int fd)
{
    PyTypeObject *cls = (PyTypeObject *)st->socket_type;
    PyObject *args = Py_BuildValue("(iiii)", family, type, proto, fd);
    PyObject *sock = args != NULL ? cls->tp_new(cls, args, NULL) : NULL;
    if (sock != NULL && cls->tp_init(sock, args, NULL) < 0) {
        let_descriptor_go(sock);
        Py_CLEAR(sock);
    }
    Py_XDECREF(args);
    return sock;
}

/* The descriptor of a socket that may be closed: -1 then, and no exception. */
int tdl__fd_of_open(PyObject *fileobj)
{
    int fd = tdl__fd_of(fileobj);
    if (fd < 0) {
        PyErr_Clear();
    }
    return fd;
}
