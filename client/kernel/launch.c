/* The native launcher of a kernel: a usual call is checked, packed and launched without Python.
 *
 * It is called with (kernel, args, grid, block, shared), and knows only usual calls: tensors that
 * may be passed as they are, numbers of Python that fit, the device that it was made for, torch's
 * current stream. Everything else, and whatever the driver refuses, goes to kernel._launch(args,
 * grid, block, shared), which has the conversions and the errors: nothing was launched then.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WORDS 5         /* kernel, args, grid, block, shared */
#define MOST_BYTES 4096 /* of arguments, on the stack */

typedef struct { /* CUlaunchConfig */
  unsigned grid[3], block[3], shared;
  uint64_t stream, attributes;
  unsigned count;
} Config;
typedef int (*Driver)(const Config*, void*, void**, void**);

typedef struct {
  char format;      /* of Python's struct; 'P': a pointer, 'T': bfloat16 */
  char contiguous;  /* whether a tensor has to be */
  char complex;     /* whether it may be complex, so that it is asked whether it is conjugated */
  unsigned offset;  /* in the memory of the arguments */
  uint64_t mask;    /* the bits of an address that are 0 */
  PyObject* dtypes; /* a tuple; empty: all */
} Parameter;

typedef struct {
  PyObject_VAR_HEAD
  vectorcallfunc call;
  PyObject *tensor, *parameter;   /* torch.Tensor, torch.nn.Parameter */
  PyObject *get_device, *get_stream, *number; /* torch's functions; the device as a number */
  Driver driver;
  void* kernel;
  long device;
  uint64_t lowest; /* no address on a GPU is below it */
  unsigned bytes;  /* of the arguments */
  Parameter parameters[];
} Launcher;

static PyObject *s_data_ptr, *s_dtype, *s_get_device, *s_is_contiguous, *s_is_conj, *s_is_neg,
    *s_launch;

/* Below, 0 says that a value is not usual; an error of Python's may be set then. */

static int says(PyObject* tensor, PyObject* method, PyObject* wanted) {
  PyObject* found = PyObject_CallMethodNoArgs(tensor, method);
  Py_XDECREF(found); /* True and False live on */
  return found == wanted;
}

static int has_dtype(PyObject* tensor, PyObject* dtypes) {
  Py_ssize_t count = PyTuple_GET_SIZE(dtypes);
  if (count == 0) return 1;
  PyObject* found = PyObject_GetAttr(tensor, s_dtype);
  if (found == NULL) return 0;
  int fits = 0;
  for (Py_ssize_t i = 0; i < count && !fits; ++i) fits = PyTuple_GET_ITEM(dtypes, i) == found;
  Py_DECREF(found);
  return fits;
}

static int pointer(const Launcher* self, const Parameter* one, PyObject* value, uint64_t* into) {
  PyObject* type = (PyObject*)Py_TYPE(value);
  if ((type != self->tensor && type != self->parameter) || !has_dtype(value, one->dtypes)) return 0;
  PyObject* found = PyObject_CallMethodNoArgs(value, s_get_device);
  if (found == NULL) return 0;
  long device = PyLong_AsLong(found);
  Py_DECREF(found);
  if (device != self->device || (found = PyObject_CallMethodNoArgs(value, s_data_ptr)) == NULL)
    return 0;
  *into = PyLong_AsUnsignedLongLong(found);
  Py_DECREF(found);
  return *into >= self->lowest && (*into & one->mask) == 0 && !PyErr_Occurred() &&
         (!one->contiguous || says(value, s_is_contiguous, Py_True)) &&
         (!one->complex || says(value, s_is_conj, Py_False)) && says(value, s_is_neg, Py_False);
}

#define SIGNED(type)                                                  \
  {                                                                   \
    int over;                                                         \
    long long found = PyLong_AsLongLongAndOverflow(value, &over);     \
    if (over || found != (type)found) return 0;                       \
    *(type*)into = (type)found;                                       \
    return 1;                                                         \
  }
#define UNSIGNED(type)                                                \
  {                                                                   \
    unsigned long long found = PyLong_AsUnsignedLongLong(value);      \
    if (found != (type)found || (found == ~0ULL && PyErr_Occurred())) \
      return 0;                                                       \
    *(type*)into = (type)found;                                       \
    return 1;                                                         \
  }

static int integer(char format, PyObject* value, void* into) {
  if (!PyLong_CheckExact(value)) return 0;
  switch (format) {
    case 'b': SIGNED(int8_t)
    case 'B': UNSIGNED(uint8_t)
    case 'h': SIGNED(int16_t)
    case 'H': UNSIGNED(uint16_t)
    case 'i': SIGNED(int32_t)
    case 'I': UNSIGNED(uint32_t)
    case 'q': SIGNED(int64_t)
    case 'Q': UNSIGNED(uint64_t)
  }
  return 0;
}

static uint16_t bfloat16(double wide) { /* rounded to nearest, ties to even */
  float narrow = (float)wide;
  if (narrow != narrow) return 0x7FC0;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  return (uint16_t)(((uint64_t)bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static int argument(const Launcher* self, const Parameter* one, PyObject* value, void* into) {
  switch (one->format) {
    case 'P':
      return pointer(self, one, value, into);
    case '?':
      if (!PyBool_Check(value)) return 0;
      *(char*)into = value == Py_True;
      return 1;
    case 'd':
      if (!PyFloat_CheckExact(value)) return 0;
      *(double*)into = PyFloat_AS_DOUBLE(value);
      return 1;
    case 'T':
      if (!PyFloat_CheckExact(value)) return 0;
      *(uint16_t*)into = bfloat16(PyFloat_AS_DOUBLE(value));
      return 1;
    case 'f': {
      if (!PyFloat_CheckExact(value)) return 0;
      double wide = PyFloat_AS_DOUBLE(value);
      float narrow = (float)wide;
      *(float*)into = narrow;
      return !Py_IS_INFINITY(narrow) || Py_IS_INFINITY(wide);
    }
  }
  return integer(one->format, value, into);
}

/* A grid or a block: a number, or up to three. */
static int dims(PyObject* value, unsigned* into) {
  into[1] = into[2] = 1;
  if (!PyTuple_CheckExact(value)) return integer('I', value, into);
  Py_ssize_t count = PyTuple_GET_SIZE(value);
  if (count < 1 || count > 3) return 0;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!integer('I', PyTuple_GET_ITEM(value, i), into + i)) return 0;
  return 1;
}

static int arguments(const Launcher* self, PyObject* given, char* memory, void** slots) {
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) {
    const Parameter* one = &self->parameters[i];
    slots[i] = memory + one->offset;
    if (!argument(self, one, PyTuple_GET_ITEM(given, i), slots[i])) return 0;
  }
  return 1;
}

/* The current stream, if the current device is the launcher's. */
static int stream(const Launcher* self, uint64_t* into) {
  PyObject* found = PyObject_CallNoArgs(self->get_device);
  if (found == NULL) return 0;
  long device = PyLong_AsLong(found);
  Py_DECREF(found);
  if (device != self->device) return 0;
  found = PyObject_CallOneArg(self->get_stream, self->number);
  if (found == NULL) return 0;
  int fits = integer('Q', found, into);
  Py_DECREF(found);
  return fits;
}

static PyObject* launched(const Launcher* self, PyObject* const* words, PyObject* grid) {
  Config config = {0};
  uint64_t memory[MOST_BYTES / 8]; /* each argument begins at a multiple of 8 */
  void* slots[MOST_BYTES / 8];
  if (PyTuple_CheckExact(words[1]) && PyTuple_GET_SIZE(words[1]) == Py_SIZE(self) &&
      dims(grid, config.grid) && dims(words[3], config.block) &&
      integer('I', words[4], &config.shared) && stream(self, &config.stream) &&
      arguments(self, words[1], (char*)memory, slots)) {
    if (!config.grid[0] || !config.grid[1] || !config.grid[2]) Py_RETURN_NONE;
    int code;
    Py_BEGIN_ALLOW_THREADS /* the driver waits while its queue is full */
    code = self->driver(&config, self->kernel, slots, NULL);
    Py_END_ALLOW_THREADS
    if (code == 0) Py_RETURN_NONE;
  }
  PyErr_Clear();
  return PyObject_CallMethodObjArgs(words[0], s_launch, words[1], grid, words[3], words[4], NULL);
}

static PyObject* launch(PyObject* object, PyObject* const* words, size_t flags, PyObject* names) {
  const Launcher* self = (const Launcher*)object;
  if (PyVectorcall_NARGS(flags) != WORDS || names != NULL)
    return PyErr_Format(PyExc_TypeError, "(kernel, args, grid, block, shared) is expected");
  PyObject *given = words[1], *grid = words[2];
  if (PyLong_CheckExact(grid) || !PyCallable_Check(grid) || !PyTuple_CheckExact(given) ||
      PyTuple_GET_SIZE(given) != Py_SIZE(self))
    return launched(self, words, grid);
  /* A function of the caller's: it may raise, or change what the arguments hold. */
  PyObject* found = PyObject_CallObject(grid, given);
  if (found == NULL) return NULL;
  PyObject* result = launched(self, words, found);
  Py_DECREF(found);
  return result;
}

static void released(PyObject* object) {
  Launcher* self = (Launcher*)object;
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) Py_XDECREF(self->parameters[i].dtypes);
  Py_XDECREF(self->tensor);
  Py_XDECREF(self->parameter);
  Py_XDECREF(self->get_device);
  Py_XDECREF(self->get_stream);
  Py_XDECREF(self->number);
  Py_TYPE(object)->tp_free(object);
}

static PyTypeObject Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "warmcc.NativeLauncher",
    .tp_basicsize = sizeof(Launcher),
    .tp_itemsize = sizeof(Parameter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Launcher, call),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = released,
};

/* launcher(parameters, (Tensor, Parameter), (get_device, get_stream), driver, kernel, device,
 * lowest); each of the parameters is (format, offset, mask, contiguous, complex, dtypes). */
static PyObject* launcher(PyObject* module, PyObject* words) {
  (void)module;
  PyObject *parameters, *tensor, *parameter, *get_device, *get_stream, *number;
  unsigned long long driver, kernel, lowest;
  if (!PyArg_ParseTuple(words, "O!(OO)(OO)KKO!K", &PyTuple_Type, &parameters, &tensor, &parameter,
                        &get_device, &get_stream, &driver, &kernel, &PyLong_Type, &number, &lowest))
    return NULL;
  Py_ssize_t count = PyTuple_GET_SIZE(parameters);
  if (count > MOST_BYTES / 8) return PyErr_Format(PyExc_ValueError, "too many parameters");
  Launcher* self = PyObject_NewVar(Launcher, &Type, count);
  if (self == NULL) return NULL;
  memset(self->parameters, 0, count * sizeof(Parameter));
  self->call = launch;
  self->tensor = Py_NewRef(tensor);
  self->parameter = Py_NewRef(parameter);
  self->get_device = Py_NewRef(get_device);
  self->get_stream = Py_NewRef(get_stream);
  self->number = Py_NewRef(number);
  self->driver = (Driver)(uintptr_t)driver;
  self->kernel = (void*)(uintptr_t)kernel;
  self->device = PyLong_AsLong(number);
  self->lowest = lowest;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Parameter* one = &self->parameters[i];
    int format;
    unsigned long long mask;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(parameters, i), "CIKbbO!", &format, &one->offset, &mask,
                          &one->contiguous, &one->complex, &PyTuple_Type, &one->dtypes)) {
      one->dtypes = NULL;
      Py_DECREF(self);
      return NULL;
    }
    Py_INCREF(one->dtypes);
    one->format = (char)format;
    one->mask = mask;
    if (one->offset % 8 || one->offset + 8 > MOST_BYTES) {
      Py_DECREF(self);
      return PyErr_Format(PyExc_ValueError, "an argument does not fit");
    }
  }
  return (PyObject*)self;
}

static PyMethodDef methods[] = {{"launcher", launcher, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "warmcc_launch", NULL, -1, methods};

PyMODINIT_FUNC PyInit_warmcc_launch(void) {
  s_data_ptr = PyUnicode_InternFromString("data_ptr");
  s_dtype = PyUnicode_InternFromString("dtype");
  s_get_device = PyUnicode_InternFromString("get_device");
  s_is_contiguous = PyUnicode_InternFromString("is_contiguous");
  s_is_conj = PyUnicode_InternFromString("is_conj");
  s_is_neg = PyUnicode_InternFromString("is_neg");
  s_launch = PyUnicode_InternFromString("_launch");
  if (PyErr_Occurred()) return NULL;
  if (PyType_Ready(&Type) < 0) return NULL;
  return PyModule_Create(&definition);
}
