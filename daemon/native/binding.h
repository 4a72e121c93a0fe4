// Bind functions to Python from their signatures alone, without pybind11.
//
// What a type accepts and refuses is pybind11's and torch's own business: the casters' unit (casters.cc) holds their
// conversions, compiled once, behind the plain functions that are declared here. A binding unit, made for one list of
// signatures, only puts these together: this file and a table of entries.

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

// A call goes through some twenty small functions of this file, which are not inlined in a unit that does not optimise,
// as units of load_inline are by default.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__)
#pragma GCC optimize("O2")
#endif

// A function of a line or two, which is inlined also where nothing else is.
#define WARMCC_INLINE __attribute__((always_inline)) inline

namespace warmcc __attribute__((visibility("hidden"))) {

// Ends a value. Of a tensor's destructor no part is inlined without optimisation: the casters' unit has it.
template <class T>
WARMCC_INLINE void end(T& value) {
  value.~T();
}
void end(at::Tensor& value);

// Room for a value that is not there at first. What std::optional has is never inlined without optimisation.
template <class T>
struct Slot {
  alignas(T) unsigned char room[sizeof(T)];
  bool full = false;

  WARMCC_INLINE Slot() {}  // written out, else `{}` fills the room with zeros
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  WARMCC_INLINE ~Slot() {
    if (full) warmcc::end(**this);
  }
  WARMCC_INLINE T& operator*() { return *reinterpret_cast<T*>(room); }
};

// Room for a caster of pybind11's, which holds the value that it loads.
template <class T>
struct Loaded {
  alignas(std::max_align_t) unsigned char room[sizeof(T) + 64];
  T* value = nullptr;
  void (*end)(void* room) = nullptr;

  WARMCC_INLINE Loaded() {}
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  WARMCC_INLINE ~Loaded() {
    if (end != nullptr) end(room);
  }
};

struct Text;  // of a signature, in pybind11's notation

using Function = void (*)();
using Load = bool (*)(void* self, std::size_t index, PyObject* from, bool convert);
using Describe = void (*)(Text&);
using Run = void (*)(void (*body)(void*), void* self);

// One function: how it is called, how its signature reads, and how many arguments it takes.
// `call` gives null for a Python error, and try_next when the arguments do not fit.
struct Entry {
  PyObject* (*call)(Function function, PyObject* const* arguments, bool convert, Run run);
  Describe describe;
  std::size_t arguments;
};

WARMCC_INLINE PyObject* try_next() { return reinterpret_cast<PyObject*>(1); }

// ---------------------------------------------------------------- what casters.cc provides

#define WARMCC_FOR_EACH_TYPE(X)                                                                            \
  X(bool) X(signed char) X(unsigned char) X(short) X(unsigned short) X(int) X(unsigned int) X(long)          \
  X(unsigned long) X(long long) X(unsigned long long) X(float) X(double) X(std::string) X(std::string_view)  \
  X(at::Tensor) X(at::Generator) X(c10::Scalar) X(c10::SymInt) X(c10::ScalarType) X(c10::Device)             \
  X(c10::Layout) X(c10::MemoryFormat) X(c10::ArrayRef<std::int64_t>) X(c10::ArrayRef<c10::SymInt>)

#define WARMCC_DECLARE(T)                                             \
  bool load(PyObject* from, bool convert, Loaded<T>& to);             \
  PyObject* cast(T&& value);                                          \
  void describe(Text& text, const T*);
WARMCC_FOR_EACH_TYPE(WARMCC_DECLARE)
#undef WARMCC_DECLARE

// Elements of the most common vectors, which pybind11 loads as a whole; the element of others is loaded by the binding
// unit, through two functions more for each.
#define WARMCC_FOR_EACH_ELEMENT(X) X(int) X(long) X(float) X(double) X(std::string) X(at::Tensor)

template <class>
constexpr bool is_element = false;

#define WARMCC_DECLARE(T)                                             \
  template <>                                                         \
  constexpr bool is_element<T> = true;                                \
  bool load(PyObject* from, bool convert, Loaded<std::vector<T>>& to);
WARMCC_FOR_EACH_ELEMENT(WARMCC_DECLARE)
#undef WARMCC_DECLARE

bool load_list(PyObject* from, bool convert, Load load, void* self);
bool load_optional(PyObject* from, bool convert, Load load, void* self);
PyObject* cast_tensors(at::Tensor* const* tensors, std::size_t size);  // moves from them
bool load_tuple(PyObject* from, bool convert, std::size_t size, Load load, void* self);
void describe_list(Text& text, Describe element);
void describe_optional(Text& text, Describe element);
void describe_tuple(Text& text, const Describe* elements, std::size_t size);
void describe_function(Text& text, const Describe* arguments, std::size_t size, Describe result);

// ---------------------------------------------------------------- types, and types made of them

template <class T>
struct Type {
  Loaded<T> held;
  WARMCC_INLINE Type() {}
  WARMCC_INLINE ~Type() {}
  WARMCC_INLINE bool load(PyObject* from, bool convert) { return warmcc::load(from, convert, held); }
  WARMCC_INLINE T& get() { return *held.value; }
  WARMCC_INLINE static PyObject* cast(T&& value) { return warmcc::cast(static_cast<T&&>(value)); }
  static void describe(Text& text) { warmcc::describe(text, static_cast<const T*>(nullptr)); }
};

template <class T, bool whole>
struct Vector {
  std::vector<T> held;
  static bool load_one(void* self, std::size_t, PyObject* from, bool convert) {
    Type<T> one;
    if (!one.load(from, convert)) return false;
    static_cast<Vector*>(self)->held.push_back(static_cast<T&&>(one.get()));
    return true;
  }
  bool load(PyObject* from, bool convert) { return load_list(from, convert, load_one, this); }
  std::vector<T>& get() { return held; }
};
template <class T>
struct Vector<T, true> {
  Loaded<std::vector<T>> held;
  bool load(PyObject* from, bool convert) { return warmcc::load(from, convert, held); }
  std::vector<T>& get() { return *held.value; }
};

template <class T>
struct Type<std::vector<T>> : Vector<T, is_element<T>> {
  static PyObject* cast(std::vector<T>&& value) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(value.size()));
    if (list == nullptr) return nullptr;
    Py_ssize_t index = 0;
    for (auto&& one : value) {
      PyObject* item = nullptr;
      try {
        item = Type<T>::cast(static_cast<T>(std::move(one)));
      } catch (...) {
        Py_DECREF(list);
        throw;
      }
      if (item == nullptr) {
        Py_DECREF(list);
        return nullptr;
      }
      PyList_SET_ITEM(list, index++, item);
    }
    return list;
  }
  static void describe(Text& text) { describe_list(text, Type<T>::describe); }
};

template <class T>
struct Type<std::optional<T>> {
  std::optional<T> held;
  static bool load_one(void* self, std::size_t, PyObject* from, bool convert) {
    Type<T> one;
    if (!one.load(from, convert)) return false;
    static_cast<Type*>(self)->held.emplace(std::move(one.get()));
    return true;
  }
  bool load(PyObject* from, bool convert) { return load_optional(from, convert, load_one, this); }
  std::optional<T>& get() { return held; }
  static PyObject* cast(std::optional<T>&& value) {
    if (value.has_value()) return Type<T>::cast(std::move(*value));
    Py_INCREF(Py_None);
    return Py_None;
  }
  static void describe(Text& text) { describe_optional(text, Type<T>::describe); }
};

// Values of types, each known by its place.
template <std::size_t, class T>
struct Place {
  Type<T> value;
  WARMCC_INLINE Place() {}
  WARMCC_INLINE ~Place() {}
};
template <class Indices, class... T>
struct Row;
template <std::size_t... I, class... T>
struct Row<std::index_sequence<I...>, T...> : Place<I, T>... {
  WARMCC_INLINE Row() {}
  WARMCC_INLINE ~Row() {}
};
template <std::size_t I, class T>
WARMCC_INLINE Type<T>& at(Place<I, T>& place) {
  return place.value;
}

template <class Tuple, class Indices>
struct Elements;

template <template <class...> class Tuple, class... T, std::size_t... I>
struct Elements<Tuple<T...>, std::index_sequence<I...>> {
  Row<std::index_sequence<I...>, T...> loaded;
  Slot<Tuple<T...>> held;
  static bool load_one(void* self, std::size_t index, PyObject* from, bool convert) {
    auto& loaded = static_cast<Elements*>(self)->loaded;
    return ((index == I && at<I>(loaded).load(from, convert)) || ...);
  }
  bool load(PyObject* from, bool convert) {
    if (!load_tuple(from, convert, sizeof...(T), load_one, this)) return false;
    ::new (static_cast<void*>(held.room)) Tuple<T...>(static_cast<T&&>(at<I>(loaded).get())...);
    held.full = true;
    return true;
  }
  Tuple<T...>& get() { return *held; }
  static PyObject* cast(Tuple<T...>&& value) {
    if constexpr ((std::is_same_v<T, at::Tensor> && ...)) {
      at::Tensor* const tensors[] = {&std::get<I>(value)...};
      return cast_tensors(tensors, sizeof...(T));
    }
    PyObject* items[] = {Type<T>::cast(std::move(std::get<I>(value)))...};
    PyObject* tuple = ((items[I] != nullptr) && ...) ? PyTuple_New(sizeof...(T)) : nullptr;
    for (std::size_t i = 0; i < sizeof...(T); ++i) {
      if (tuple != nullptr) {
        PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), items[i]);
      } else {
        Py_XDECREF(items[i]);
      }
    }
    return tuple;
  }
  static void describe(Text& text) {
    const Describe elements[] = {Type<T>::describe...};
    describe_tuple(text, elements, sizeof...(T));
  }
};

template <class... T>
struct Type<std::tuple<T...>> : Elements<std::tuple<T...>, std::index_sequence_for<T...>> {};
template <class A, class B>
struct Type<std::pair<A, B>> : Elements<std::pair<A, B>, std::index_sequence_for<A, B>> {};

// ---------------------------------------------------------------- functions

template <class T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

// How a parameter is passed. By the C++ ABI of GCC and Clang, one that has a destructor to call is the address of a
// value, which the caller ends ("non-trivial for the purposes of calls"). So the value that was loaded is passed where
// it is: to move it would take calls that are not inlined without optimisation.
template <class T>
using Passed = std::conditional_t<std::is_reference_v<T> || std::is_trivially_destructible_v<T>, T, T&>;

template <class T>
WARMCC_INLINE Passed<T>&& pass(Plain<T>& value) {
  if constexpr (std::is_lvalue_reference_v<Passed<T>>) {
    return value;
  } else {
    return static_cast<Passed<T>&&>(value);
  }
}

template <class Signature, class Indices>
struct Bound;

template <class R, class... A, std::size_t... I>
struct Bound<R(A...), std::index_sequence<I...>> {
  struct Call {
    R (*function)(Passed<A>...);
    Row<std::index_sequence<I...>, Plain<A>...> arguments;
    Slot<std::conditional_t<std::is_void_v<R>, bool, R>> result;
    explicit Call(Function given) : function(reinterpret_cast<R (*)(Passed<A>...)>(given)) {}
  };

  static void run(void* self) {
    auto& call = *static_cast<Call*>(self);
    if constexpr (std::is_void_v<R>) {
      call.function(pass<A>(at<I>(call.arguments).get())...);
    } else {
      ::new (static_cast<void*>(call.result.room)) R(call.function(pass<A>(at<I>(call.arguments).get())...));
      call.result.full = true;
    }
  }

  static PyObject* call(Function function, PyObject* const* arguments, bool convert, Run run_guarded) {
    Call one(function);
    if (!(at<I>(one.arguments).load(arguments[I], convert) && ...)) return try_next();
    run_guarded(run, &one);
    if constexpr (std::is_void_v<R>) {
      Py_INCREF(Py_None);
      return Py_None;
    } else {
      return Type<R>::cast(static_cast<R&&>(*one.result));
    }
  }

  static void describe(Text& text) {
    const Describe arguments[] = {Type<Plain<A>>::describe..., nullptr};
    if constexpr (std::is_void_v<R>) {
      describe_function(text, arguments, sizeof...(A), nullptr);
    } else {
      describe_function(text, arguments, sizeof...(A), Type<R>::describe);
    }
  }
};

template <class R, class... A>
constexpr Entry entry(R (*)(A...)) {
  using This = Bound<R(A...), std::index_sequence_for<A...>>;
  return {This::call, This::describe, sizeof...(A)};
}

extern const Entry entries[];
extern const std::size_t entry_count;
extern const bool error_handling;  // stock's with_pytorch_error_handling

}  // namespace warmcc
