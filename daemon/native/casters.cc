// The conversions of pybind11 and torch, and pybind11's own function objects, behind the functions of binding.h.
//
// Compiled once for each compiler, torch and set of flags, and linked into every extension whose binding unit uses it:
// what a call accepts, refuses, raises and documents is what pybind11 does with the same signature, because it is
// pybind11 that does it. A call that gives each argument by its place goes past pybind11's dispatcher; what comes of one
// that fails is handed to the dispatcher, which tells it. Containers go through pybind11's caster for a container of
// `Item`, whose own caster hands each element back to the binding unit.

#include <exception>

namespace py = pybind11;

extern "C" {
extern __attribute__((visibility("hidden"))) const char* const warmcc_module_name;
extern __attribute__((visibility("hidden"))) const char* const warmcc_names[];
extern __attribute__((visibility("hidden"))) const char* const warmcc_docs[];
extern __attribute__((visibility("hidden"))) void (*const warmcc_functions[])();
__attribute__((visibility("hidden"))) void* warmcc_init();
}

namespace warmcc __attribute__((visibility("hidden"))) {

struct Text {
  std::string text;
  std::vector<const std::type_info*> types;
};

struct Item {};

namespace {

struct Frame {
  Load load;
  void* self;
  std::size_t index;
};
thread_local Frame* frame = nullptr;  // of the innermost container that is being loaded

}  // namespace

bool load_item(PyObject* from, bool convert) {
  Frame& mine = *frame;
  return mine.load(mine.self, mine.index++, from, convert);
}

}  // namespace warmcc

namespace pybind11 {
namespace detail {
template <>
struct type_caster<warmcc::Item> {
  PYBIND11_TYPE_CASTER(warmcc::Item, const_name("\1"));
  bool load(handle from, bool convert) { return warmcc::load_item(from.ptr(), convert); }
};
}  // namespace detail
}  // namespace pybind11

namespace warmcc __attribute__((visibility("hidden"))) {
namespace {

template <class Container>
bool load_items(PyObject* from, bool convert, Load load, void* self) {
  struct Entered {
    Frame mine;
    Frame* outer = std::exchange(frame, &mine);
    ~Entered() { frame = outer; }
  } entered{{load, self, 0}};
  return py::detail::make_caster<Container>().load(from, convert);
}

template <class Caster>
void append(Text& text, const Describe* elements) {
  for (const char* at = Caster::name.text; *at != '\0'; ++at) {
    if (*at == '\1') {
      (*elements++)(text);
    } else {
      text.text.push_back(*at);
    }
  }
  for (const std::type_info* type : decltype(Caster::name)::types()) {
    if (type != nullptr) text.types.push_back(type);
  }
}

// Calls visit(std::integral_constant<size>) for a size that is known at run time.
template <class Visit, std::size_t... I>
bool with_size(std::size_t size, Visit&& visit, std::index_sequence<I...>) {
  return ((size == I + 1 && visit(std::make_index_sequence<I + 1>())) || ...);
}

using Sizes = std::make_index_sequence<8>;  // of tuples: signature.py knows this limit

template <std::size_t>
using ItemAt = Item;

template <std::size_t... I>
std::tuple<ItemAt<I>...> items(std::index_sequence<I...>);

}  // namespace

bool load_list(PyObject* from, bool convert, Load load, void* self) {
  return load_items<std::vector<Item>>(from, convert, load, self);
}

bool load_optional(PyObject* from, bool convert, Load load, void* self) {
  return load_items<std::optional<Item>>(from, convert, load, self);
}

bool load_tuple(PyObject* from, bool convert, std::size_t size, Load load, void* self) {
  return with_size(
      size, [&](auto indices) { return load_items<decltype(items(indices))>(from, convert, load, self); }, Sizes());
}

void describe_list(Text& text, Describe element) { append<py::detail::make_caster<std::vector<Item>>>(text, &element); }

void describe_optional(Text& text, Describe element) {
  append<py::detail::make_caster<std::optional<Item>>>(text, &element);
}

void describe_tuple(Text& text, const Describe* elements, std::size_t size) {
  with_size(
      size,
      [&](auto indices) {
        append<py::detail::make_caster<decltype(items(indices))>>(text, elements);
        return true;
      },
      Sizes());
}

void describe_function(Text& text, const Describe* arguments, std::size_t size, Describe result) {
  text.text += "(";
  for (std::size_t i = 0; i < size; ++i) {
    text.text += i == 0 ? "{" : ", {";
    arguments[i](text);
    text.text += "}";
  }
  text.text += ") -> ";
  if (result != nullptr) {
    result(text);
  } else {
    append<py::detail::make_caster<py::detail::void_type>>(text, nullptr);
  }
}

namespace {

// The value stays in the caster. One that pybind11 finds in a Python object could be moved from, if it were more than
// its bytes.
template <class T>
bool load_whole(PyObject* from, bool convert, Loaded<T>& to) {
  using Caster = py::detail::make_caster<T>;
  static_assert(sizeof(Caster) <= sizeof(to.room) && alignof(Caster) <= alignof(std::max_align_t));
  static_assert(!std::is_base_of_v<py::detail::type_caster_generic, Caster> || std::is_trivially_copyable_v<T>);
  auto* caster = ::new (static_cast<void*>(to.room)) Caster;
  if constexpr (!std::is_trivially_destructible_v<Caster>) {
    to.end = [](void* room) { static_cast<Caster*>(room)->~Caster(); };
  }
  if (!caster->load(from, convert)) return false;
  to.value = &caster->operator T&();
  return true;
}

template <class T>
PyObject* cast_whole(T&& value) {
  auto policy = py::detail::return_value_policy_override<T>::policy(py::return_value_policy::automatic);
  return py::detail::make_caster<T>::cast(std::forward<T>(value), policy, py::handle()).ptr();
}

}  // namespace

void end(at::Tensor& value) { value.~Tensor(); }

PyObject* cast_tensors(at::Tensor* const* tensors, std::size_t size) {
  auto tuple = py::reinterpret_steal<py::object>(PyTuple_New(static_cast<Py_ssize_t>(size)));
  if (!tuple) return nullptr;
  for (std::size_t i = 0; i < size; ++i) {
    PyObject* item = cast_whole<at::Tensor>(std::move(*tensors[i]));
    if (item == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), item);
  }
  return tuple.release().ptr();
}

#define WARMCC_DEFINE(T)                                                                                  \
  bool load(PyObject* from, bool convert, Loaded<T>& to) { return load_whole(from, convert, to); }        \
  PyObject* cast(T&& value) { return cast_whole<T>(static_cast<T&&>(value)); }                            \
  void describe(Text& text, const T*) { append<py::detail::make_caster<T>>(text, nullptr); }
WARMCC_FOR_EACH_TYPE(WARMCC_DEFINE)

#define WARMCC_DEFINE_VECTOR(T) \
  bool load(PyObject* from, bool convert, Loaded<std::vector<T>>& to) { return load_whole(from, convert, to); }
WARMCC_FOR_EACH_ELEMENT(WARMCC_DEFINE_VECTOR)

// ---------------------------------------------------------------- function objects and the module

namespace {

void run_plain(void (*body)(void*), void* self) { body(self); }

void run_handling_errors(void (*body)(void*), void* self) {
  torch::wrap_pybind_function([body](void* self) { body(self); })(self);
}

Run chosen_run() { return error_handling ? run_handling_errors : run_plain; }

// What came of a call that failed: an exception, or what an entry gave in place of a value.
struct Outcome {
  std::exception_ptr error;
  PyObject* given = try_next();
};
thread_local const Outcome* outcome = nullptr;  // that the dispatcher is to tell, in place of a call

struct Bindable : py::cpp_function {
  Bindable(std::size_t index, const char* name, const char* doc, py::handle module) {
    const Entry& entry = entries[index];
    auto record = make_function_record();
    py::detail::function_record* kept = record.get();
    kept->data[0] = const_cast<Entry*>(&entry);
    kept->data[1] = reinterpret_cast<void*>(warmcc_functions[index]);
    kept->impl = [](py::detail::function_call& call) -> py::handle { return dispatch(call); };
    kept->nargs_pos = static_cast<std::uint16_t>(entry.arguments);
    py::detail::process_attributes<py::name, py::scope, py::sibling, const char*>::init(
        py::name(name), py::scope(module), py::sibling(py::getattr(module, name, py::none())), doc, kept);
    Text text;
    entry.describe(text);
    text.types.push_back(nullptr);
    initialize_generic(std::move(record), text.text.c_str(), text.types.data(), entry.arguments);
    call_directly(kept);
  }

  // Python calls the same function object, but for the C function behind it.
  void call_directly(py::detail::function_record* record) {
    auto* made = reinterpret_cast<PyCFunctionObject*>(m_ptr);
    if (record->def == nullptr || made->m_ml != record->def) return;  // it belongs to other functions of its name
    record->def->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(direct));
    record->def->ml_flags = METH_FASTCALL | METH_KEYWORDS;
    PyObject* function = PyCFunction_NewEx(record->def, made->m_self, made->m_module);
    if (function == nullptr) throw py::error_already_set();
    Py_DECREF(m_ptr);
    m_ptr = function;
  }

  // The first of the functions that an object of pybind11's stands for.
  static const py::detail::function_record& first_of(PyObject* self) {
#if PYBIND11_VERSION_MAJOR >= 3
    return *reinterpret_cast<py::detail::function_record_PyObject*>(self)->cpp_func_rec;
#else
    return *static_cast<py::detail::function_record*>(PyCapsule_GetPointer(self, PyCapsule_GetName(self)));
#endif
  }

  static PyObject* direct(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
    const auto& record = first_of(self);
    bool is_alone = record.next == nullptr;  // others may have added overloads, in front or behind
    if (!is_alone || names != nullptr || count != static_cast<Py_ssize_t>(record.nargs)) {
      return tell(nullptr, self, arguments, count, names);
    }
    Outcome failed;
    try {
      py::detail::loader_life_support temporaries;
      failed.given = entry_of(record).call(function_of(record), arguments, true, chosen_run());
#ifdef __GLIBCXX__
    } catch (abi::__forced_unwind&) {
      throw;
#endif
    } catch (...) {
      failed.error = std::current_exception();
    }
    bool done = failed.given != nullptr && failed.given != try_next();
    return done ? failed.given : tell(&failed, self, arguments, count, names);
  }

  // By pybind11's dispatcher, whose function it calls, unless that has failed already.
  static PyObject* tell(
      const Outcome* failed, PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
    Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    auto tuple = py::reinterpret_steal<py::object>(PyTuple_New(count));
    auto dict = py::reinterpret_steal<py::object>(named == 0 ? nullptr : PyDict_New());
    if (!tuple || (named != 0 && !dict)) return nullptr;
    for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(tuple.ptr(), i, py::handle(arguments[i]).inc_ref().ptr());
    for (Py_ssize_t i = 0; i < named; ++i) {
      if (PyDict_SetItem(dict.ptr(), PyTuple_GET_ITEM(names, i), arguments[count + i]) != 0) return nullptr;
    }
    outcome = failed;
    PyObject* result = dispatcher(self, tuple.ptr(), dict.ptr());
    outcome = nullptr;
    return result;
  }

  static const Entry& entry_of(const py::detail::function_record& record) {
    return *static_cast<const Entry*>(record.data[0]);
  }
  static Function function_of(const py::detail::function_record& record) {
    return reinterpret_cast<Function>(record.data[1]);
  }

  static py::handle dispatch(py::detail::function_call& call) {
    if (const Outcome* failed = std::exchange(outcome, nullptr)) {
      if (failed->error) std::rethrow_exception(failed->error);
      return failed->given;
    }
    const Entry& entry = entry_of(call.func);
    static_assert(sizeof(py::handle) == sizeof(PyObject*));
    auto arguments = reinterpret_cast<PyObject* const*>(call.args.data());
    bool convert = entry.arguments == 0 || *call.args_convert.begin();  // no argument is declared, so all have the same
    return entry.call(function_of(call.func), arguments, convert, chosen_run());
  }
};

}  // namespace
}  // namespace warmcc

#undef PYBIND11_EXPORT
#define PYBIND11_EXPORT __attribute__((visibility("hidden")))
PYBIND11_MODULE(warmcc_binding, m) {
#if PYBIND11_VERSION_MAJOR < 3  // from then on, what imports the module names it
  m.attr("__name__") = warmcc_module_name;
#endif
  for (std::size_t i = 0; i < warmcc::entry_count; ++i) {
    const char* name = warmcc_names[i];
    m.add_object(name, warmcc::Bindable(i, name, warmcc_docs[i], m), true /* overwrite */);
  }
}
void* warmcc_init() { return PyInit_warmcc_binding(); }
