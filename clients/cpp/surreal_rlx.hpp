// RLX in C++17, in one header: your environment is driven by an agent elsewhere. POSIX sockets, no dependencies.
//
//     #include "surreal_rlx.hpp"
//     namespace rlx = surreal::rlx;
//
//     rlx::AgentProxy agent("localhost:7001");
//     agent.connect();
//     agent.init();
//     rlx::Value action = agent.update(nullptr, state);          // the first update of an episode has no reward
//     while (playing) {
//         auto [reward, is_over] = game.step(action.as_int());
//         action = agent.update(reward, game.state(), is_over);
//     }
//
// A state is an rlx::Value: numbers, text, rlx::Value(std::vector<float>{...}), rlx::NDArray, rlx::Image, rlx::List,
// rlx::Dict, or nullptr. Failures are exceptions:
//
//     std::runtime_error
//     `-- Error                    base of all errors of this header
//         |-- CodecError           bytes that are not a valid message, or a value of another kind than requested
//         `-- AgentProxyError      the agent gave no action
//             |-- ReplyError       the server answered with an error; the connection stays open
//             `-- ConnectionLost   no connection, or no answer in time: connect again
//
// An AgentProxy is for one thread at a time. TLS is not included: for a server that requires it, use stunnel.
#ifndef SURREAL_RLX_HPP
#define SURREAL_RLX_HPP

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "arrays are sent as they lie in memory, which has to be little-endian"
#endif

namespace surreal::rlx {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct CodecError : Error {
    using Error::Error;
};
struct AgentProxyError : Error {
    using Error::Error;
};
struct ReplyError : AgentProxyError {
    using AgentProxyError::AgentProxyError;
};
struct ConnectionLost : AgentProxyError {
    using AgentProxyError::AgentProxyError;
};

using Bytes = std::vector<std::uint8_t>;

// Bounds on what a peer may send, checked before anything is allocated.
struct Limits {
    std::size_t max_bytes = 16u << 20;
    std::size_t max_items = 1'000'000;
    int max_depth = 32;
    std::uint32_t max_dimensions = 32;
};

namespace detail {

template <class T>
constexpr const char* dtype_name() {
    if constexpr (std::is_same_v<T, float>) {
        return "float32";
    } else if constexpr (std::is_same_v<T, double>) {
        return "float64";
    } else if constexpr (std::is_same_v<T, bool>) {
        return "bool";
    } else {
        static_assert(std::is_integral_v<T> && sizeof(T) <= 8, "an array holds numbers");
        constexpr bool is_signed = std::is_signed_v<T>;
        constexpr std::size_t size = sizeof(T);
        return size == 1   ? (is_signed ? "int8" : "uint8")
               : size == 2 ? (is_signed ? "int16" : "uint16")
               : size == 4 ? (is_signed ? "int32" : "uint32")
                           : (is_signed ? "int64" : "uint64");
    }
}

}  // namespace detail

// An array of any shape, in C order; `dtype` is NumPy's name.
struct NDArray {
    std::string dtype;
    std::vector<std::uint32_t> shape;
    Bytes bytes;

    // Copy numbers; without a shape, the array has one dimension.
    template <class T>
    static NDArray of(const std::vector<T>& items, std::vector<std::uint32_t> shape = {}) {
        static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no bytes; use std::uint8_t and dtype \"bool\"");
        return of(items.data(), items.size(), std::move(shape));
    }

    template <class T>
    static NDArray of(const T* items, std::size_t count, std::vector<std::uint32_t> shape = {}) {
        if (shape.empty()) shape.push_back(static_cast<std::uint32_t>(count));
        std::size_t size = 1;
        for (std::uint32_t extent : shape) size *= extent;
        if (size != count)
            throw CodecError("an array's shape holds " + std::to_string(size) + " items, not " + std::to_string(count));
        NDArray array{detail::dtype_name<T>(), std::move(shape), Bytes(count * sizeof(T))};
        if (count != 0) std::memcpy(array.bytes.data(), items, array.bytes.size());
        return array;
    }

    // The numbers, whatever their dtype; text and other dtypes that C++ lacks throw.
    template <class T>
    std::vector<T> to() const {
        if (dtype == "float32") return convert<T, float>();
        if (dtype == "float64") return convert<T, double>();
        if (dtype == "int64") return convert<T, std::int64_t>();
        if (dtype == "int32") return convert<T, std::int32_t>();
        if (dtype == "int16") return convert<T, std::int16_t>();
        if (dtype == "int8") return convert<T, std::int8_t>();
        if (dtype == "uint64") return convert<T, std::uint64_t>();
        if (dtype == "uint32") return convert<T, std::uint32_t>();
        if (dtype == "uint16") return convert<T, std::uint16_t>();
        if (dtype == "uint8" || dtype == "bool") return convert<T, std::uint8_t>();
        throw CodecError("an array of dtype " + dtype + " holds no numbers of C++");
    }

private:
    template <class T, class Item>
    std::vector<T> convert() const {
        std::vector<T> items;
        items.reserve(bytes.size() / sizeof(Item));
        for (std::size_t i = 0; i + sizeof(Item) <= bytes.size(); i += sizeof(Item)) {
            Item item;
            std::memcpy(&item, bytes.data() + i, sizeof(Item));
            items.push_back(static_cast<T>(item));
        }
        return items;
    }
};

// An image as Pillow keeps it: mode L, RGB, RGBA, CMYK, YCbCr, LAB, HSV, 1, I, F or P. Python reads it as an array.
struct Image {
    std::string mode;
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    Bytes bytes;
};

class Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in the order written

// Anything that a message can hold.
class Value {
public:
    using Variant =
        std::variant<std::nullptr_t, bool, std::int32_t, std::int64_t, double, std::string, Image, NDArray, List, Dict>;

    Value() : data(nullptr) {}
    Value(std::nullptr_t) : data(nullptr) {}
    Value(bool value) : data(value) {}
    Value(double value) : data(value) {}
    Value(float value) : data(static_cast<double>(value)) {}
    // Whole numbers of up to 32 bits are written as INT4, others as INT64.
    template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
    Value(T value) {
        if constexpr (sizeof(T) < 4 || (sizeof(T) == 4 && std::is_signed_v<T>)) {
            data = static_cast<std::int32_t>(value);
        } else {
            if constexpr (sizeof(T) == 8 && !std::is_signed_v<T>) {
                if (value > static_cast<T>(std::numeric_limits<std::int64_t>::max()))
                    throw CodecError("a number does not fit into 64 bits");
            }
            data = static_cast<std::int64_t>(value);
        }
    }
    Value(const char* text) : data(std::string(text)) {}
    Value(std::string text) : data(std::move(text)) {}
    Value(Image image) : data(std::move(image)) {}
    Value(NDArray array) : data(std::move(array)) {}
    Value(List list) : data(std::move(list)) {}
    Value(Dict dict) : data(std::move(dict)) {}
    // A vector of numbers is an array of one dimension.
    template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
    Value(const std::vector<T>& items) : data(NDArray::of(items)) {}
    // A pointer would silently convert to true.
    template <class T, std::enable_if_t<!std::is_same_v<std::remove_cv_t<T>, char>, int> = 0>
    Value(T*) = delete;

    bool is_null() const { return std::holds_alternative<std::nullptr_t>(data); }

    // A whole number; also one in a float or a one-element array.
    std::int64_t as_int() const {
        if (const auto* value = std::get_if<std::int32_t>(&data)) return *value;
        if (const auto* value = std::get_if<std::int64_t>(&data)) return *value;
        const double value = as_double();
        if (std::floor(value) != value || std::abs(value) > 9.0e18)
            throw CodecError("expected a whole number, got " + std::to_string(value));
        return static_cast<std::int64_t>(value);
    }

    double as_double() const {
        if (const auto* value = std::get_if<double>(&data)) return *value;
        if (const auto* value = std::get_if<std::int32_t>(&data)) return *value;
        if (const auto* value = std::get_if<std::int64_t>(&data)) return static_cast<double>(*value);
        if (const auto* value = std::get_if<bool>(&data)) return *value ? 1.0 : 0.0;
        if (const auto* array = std::get_if<NDArray>(&data)) {
            const auto items = array->to<double>();
            if (items.size() == 1) return items[0];
        }
        throw CodecError("expected a number");
    }

    // All numbers of a number, a nested list or an array, in order.
    std::vector<double> as_numbers() const {
        if (const auto* array = std::get_if<NDArray>(&data)) return array->to<double>();
        if (const auto* list = std::get_if<List>(&data)) {
            std::vector<double> all;
            for (const Value& item : *list) {
                const auto items = item.as_numbers();
                all.insert(all.end(), items.begin(), items.end());
            }
            return all;
        }
        return {as_double()};
    }

    bool as_bool() const { return get<bool>("a truth value"); }
    const std::string& as_string() const { return get<std::string>("text"); }
    const NDArray& as_array() const { return get<NDArray>("an array"); }
    const Image& as_image() const { return get<Image>("an image"); }
    const List& as_list() const { return get<List>("a list"); }
    const Dict& as_dict() const { return get<Dict>("a dictionary"); }

    // The entry of a dictionary, or null if there is none. If a key occurs twice, the last entry counts.
    const Value& operator[](const std::string& key) const;

    Variant data;

private:
    template <class T>
    const T& get(const char* what) const {
        if (const T* value = std::get_if<T>(&data)) return *value;
        throw CodecError(std::string("expected ") + what);
    }
};

inline const Value& find(const Dict& dict, const std::string& key) {
    static const Value null;
    for (auto entry = dict.rbegin(); entry != dict.rend(); ++entry) {
        if (entry->first == key) return entry->second;
    }
    return null;
}

inline const Value& Value::operator[](const std::string& key) const { return find(as_dict(), key); }

// -- the payload: u32 version, then (key, type, value)*; little-endian ------------------------------------------------

namespace detail {

enum Type : std::uint8_t { NONE = 0, NIL, INT4, STRING, DOUBLE, BOOLEAN, IMAGE, NDARRAY, LIST, UINT4, INT64, DICT };

// Bytes of an item of a dtype, 0 if it is not accepted.
inline std::size_t item_size(const std::string& dtype) {
    static const std::pair<const char*, std::size_t> known[] = {
        {"bool", 1},      {"int8", 1},        {"uint8", 1},      {"int16", 2},       {"uint16", 2}, {"float16", 2},
        {"int32", 4},     {"uint32", 4},      {"float32", 4},    {"int64", 8},       {"uint64", 8}, {"float64", 8},
        {"complex64", 8}, {"complex128", 16}, {"datetime64", 8}, {"timedelta64", 8},
    };
    for (const auto& [name, size] : known) {
        if (dtype == name) return size;
    }
    const std::size_t at = dtype.find_first_of("<>=|") == 0 ? 1 : 0;
    // Times may name their unit, as in datetime64[ns] or <M8[ns].
    if (const std::size_t unit = dtype.find('['); unit != std::string::npos) {
        const std::string kind = dtype.substr(0, unit);
        const bool is_time =
            kind == "datetime64" || kind == "timedelta64" || kind.substr(at) == "M8" || kind.substr(at) == "m8";
        const bool is_unit = dtype.back() == ']' && dtype.size() > unit + 2 && dtype.size() <= unit + 14;
        return is_time && is_unit ? 8 : 0;
    }
    if (dtype.size() <= at || dtype.size() > at + 10) return 0;
    const char kind = dtype[at];
    const std::string digits = dtype.substr(at + 1);
    if (kind == '?') return digits.empty() ? 1 : 0;
    if (digits.empty() || digits[0] == '0' || digits.find_first_not_of("0123456789") != std::string::npos) return 0;
    const std::size_t count = std::stoul(digits);
    const bool is_power = count == 1 || count == 2 || count == 4 || count == 8;
    switch (kind) {
        case 'i':
        case 'u': return is_power ? count : 0;
        case 'f': return is_power && count > 1 ? count : 0;
        case 'c': return count == 8 || count == 16 ? count : 0;
        case 'b': return count == 1 ? 1 : 0;
        case 'm':
        case 'M': return count == 8 ? 8 : 0;
        case 'U': return 4 * count;
        case 'S': return count;
        default: return 0;
    }
}

inline bool is_image_size(const Image& image) {
    const std::string& mode = image.mode;
    std::uint64_t line = image.width;  // bytes of one row
    if (mode == "1") {
        line = (line + 7) / 8;
    } else if (mode == "RGB" || mode == "YCbCr" || mode == "LAB" || mode == "HSV") {
        line *= 3;
    } else if (mode == "RGBA" || mode == "CMYK" || mode == "I" || mode == "F") {
        line *= 4;
    } else if (mode != "L" && mode != "P") {
        throw CodecError("image mode " + mode.substr(0, 20) + " is not known");
    }
    // By division: the product of two announced sizes may overflow.
    if (line == 0 || image.height == 0) return image.bytes.empty();
    return image.bytes.size() / image.height == line && image.bytes.size() % image.height == 0;
}

// The items of a shape; stays at `most` + 1 when there are more.
inline std::uint64_t items_of(const std::vector<std::uint32_t>& shape, std::uint64_t most) {
    std::uint64_t items = 1;
    for (std::uint32_t extent : shape) items = extent == 0 ? 0 : items > most / extent ? most + 1 : items * extent;
    return items;
}

class Writer {
public:
    Bytes out;

    void u8(std::uint8_t value) { out.push_back(value); }
    void u32(std::size_t value) {
        if (value > 0xffffffffu) throw CodecError("a size of " + std::to_string(value) + " is too large");
        little(static_cast<std::uint32_t>(value));
    }
    void raw(const void* data, std::size_t size) {
        u32(size);
        const auto* bytes = static_cast<const std::uint8_t*>(data);
        out.insert(out.end(), bytes, bytes + size);
    }
    void text(const std::string& value) { raw(value.data(), value.size()); }

    void entries(const Dict& dict, int depth) {
        for (const auto& [key, value] : dict) {
            text(key);
            this->value(value, depth);
        }
    }

    void value(const Value& value, int depth) {
        if (depth > 200) throw CodecError("lists and dictionaries are nested deeper than 200");
        std::visit([this, depth](const auto& item) { write(item, depth); }, value.data);
    }

private:
    template <class T>
    void little(T value) {
        std::uint8_t bytes[sizeof(T)];
        std::memcpy(bytes, &value, sizeof(T));
        out.insert(out.end(), bytes, bytes + sizeof(T));
    }

    void write(std::nullptr_t, int) { u8(NIL); }
    void write(bool value, int) { u8(BOOLEAN), u8(value ? 1 : 0); }
    void write(std::int32_t value, int) { u8(INT4), little(value); }
    void write(std::int64_t value, int) { u8(INT64), little(value); }
    void write(double value, int) { u8(DOUBLE), little(value); }
    void write(const std::string& value, int) { u8(STRING), text(value); }
    void write(const Image& image, int) {
        if (!is_image_size(image)) throw CodecError("an image's bytes are not as its size says");
        u8(IMAGE), text(image.mode), u32(image.width), u32(image.height), raw(image.bytes.data(), image.bytes.size());
    }
    void write(const NDArray& array, int) {
        const std::size_t item = item_size(array.dtype);
        if (item == 0) throw CodecError("arrays of dtype " + array.dtype.substr(0, 40) + " are not sent");
        const std::uint64_t most = array.bytes.size() / item;
        if (array.bytes.size() % item != 0 || items_of(array.shape, most) != most)
            throw CodecError("an array's bytes are not as its shape and dtype say");
        u8(NDARRAY), text(array.dtype), u32(array.shape.size());
        for (std::uint32_t extent : array.shape) u32(extent);
        raw(array.bytes.data(), array.bytes.size());
    }
    void write(const List& list, int depth) {
        u8(LIST), u32(list.size());
        for (const Value& item : list) value(item, depth + 1);
    }
    void write(const Dict& dict, int depth) { u8(DICT), u32(dict.size()), entries(dict, depth + 1); }
};

class Reader {
public:
    Reader(const std::uint8_t* data, std::size_t size, const Limits& limits)
        : data_(data), size_(size), limits_(limits), items_left_(limits.max_items) {}

    Dict message() {
        if (size_ > limits_.max_bytes)
            throw CodecError("a message of " + std::to_string(size_) + " bytes is over the limit");
        number<std::uint32_t>();  // the version is ignored
        Dict found;
        while (at_ < size_) {
            take_items(1);
            std::string key = text();
            found.emplace_back(std::move(key), value(0));
        }
        return found;
    }

private:
    const std::uint8_t* skip(std::size_t count) {
        if (count > size_ - at_) {
            throw CodecError(std::to_string(count) + " bytes are announced, but " + std::to_string(size_ - at_) +
                             " are left");
        }
        at_ += count;
        return data_ + (at_ - count);
    }
    template <class T>
    T number() {
        T value;
        std::memcpy(&value, skip(sizeof(T)), sizeof(T));
        return value;
    }
    Bytes raw() {
        const auto count = number<std::uint32_t>();
        const std::uint8_t* start = skip(count);
        return Bytes(start, start + count);
    }
    std::string text() {
        const auto count = number<std::uint32_t>();
        const char* start = reinterpret_cast<const char*>(skip(count));
        check_utf8(start, count);
        return std::string(start, count);
    }
    void take_items(std::size_t count) {
        if (count > items_left_) throw CodecError("a message holds more items than the limit allows");
        items_left_ -= count;
    }
    std::uint32_t count(int depth, std::size_t least) {
        if (depth >= limits_.max_depth) throw CodecError("lists and dictionaries are nested deeper than the limit");
        const auto count = number<std::uint32_t>();
        if (count * least > size_ - at_)
            throw CodecError(std::to_string(count) + " entries are announced, more than there are bytes");
        take_items(count);
        return count;
    }

    Value value(int depth) {
        switch (const auto type = number<std::uint8_t>(); type) {
            case NONE:
            case NIL: return nullptr;
            case INT4: return number<std::int32_t>();
            case STRING: return text();
            case DOUBLE: return number<double>();
            case BOOLEAN: return number<std::uint8_t>() == 1;
            case IMAGE: return image();
            case NDARRAY: return array();
            case UINT4: return static_cast<std::int64_t>(number<std::uint32_t>());
            case INT64: return number<std::int64_t>();
            case LIST: {
                List list;
                for (auto left = count(depth, 1); left > 0; --left) list.push_back(value(depth + 1));
                return list;
            }
            case DICT: {
                Dict dict;
                for (auto left = count(depth, 5); left > 0; --left) {
                    std::string key = text();
                    dict.emplace_back(std::move(key), value(depth + 1));
                }
                return dict;
            }
            default: throw CodecError("type id " + std::to_string(type) + " is not one of the protocol's");
        }
    }

    Value image() {
        Image image;
        image.mode = text();
        image.width = number<std::uint32_t>();
        image.height = number<std::uint32_t>();
        image.bytes = raw();
        if (!is_image_size(image)) throw CodecError("an image's bytes are not as its size says");
        return image;
    }

    Value array() {
        NDArray array;
        array.dtype = text();
        const std::size_t item = item_size(array.dtype);
        if (item == 0) throw CodecError("dtype " + array.dtype.substr(0, 40) + " is not one that is accepted");
        const auto ndim = number<std::uint32_t>();
        if (ndim > limits_.max_dimensions)
            throw CodecError("an array of " + std::to_string(ndim) + " dimensions is over the limit");
        for (std::uint32_t i = 0; i < ndim; ++i) array.shape.push_back(number<std::uint32_t>());
        array.bytes = raw();
        const std::uint64_t most = array.bytes.size() / item;
        if (array.bytes.size() % item != 0 || items_of(array.shape, most) != most)
            throw CodecError("an array's bytes are not as its shape and dtype say");
        return array;
    }

    static void check_utf8(const char* text, std::size_t size) {
        const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
        for (std::size_t i = 0; i < size;) {
            const std::uint8_t lead = byte(i);
            const std::size_t length = lead < 0x80   ? 1
                                       : lead < 0xc2 ? 0
                                       : lead < 0xe0 ? 2
                                       : lead < 0xf0 ? 3
                                       : lead < 0xf5 ? 4
                                                     : 0;
            if (length == 0 || length > size - i) throw CodecError("a text is not UTF-8");
            for (std::size_t j = 1; j < length; ++j) {
                if ((byte(i + j) & 0xc0) != 0x80) throw CodecError("a text is not UTF-8");
            }
            const std::uint8_t next = length > 1 ? byte(i + 1) : 0;
            const bool is_overlong = (lead == 0xe0 && next < 0xa0) || (lead == 0xf0 && next < 0x90);
            const bool is_outside = (lead == 0xed && next > 0x9f) || (lead == 0xf4 && next > 0x8f);
            if (is_overlong || is_outside) throw CodecError("a text is not UTF-8");
            i += length;
        }
    }

    const std::uint8_t* data_;
    std::size_t size_;
    std::size_t at_ = 0;
    Limits limits_;
    std::size_t items_left_;
};

}  // namespace detail

inline Bytes encode(const Dict& message) {
    detail::Writer writer;
    writer.u32(1);
    writer.entries(message, 0);
    return std::move(writer.out);
}

inline Dict decode(const Bytes& payload, const Limits& limits = {}) {
    return detail::Reader(payload.data(), payload.size(), limits).message();
}

// -- frames: LENGTH ':' PAYLOAD ',' -----------------------------------------------------------------------------------

inline Bytes frame(const Bytes& payload) {
    if (payload.size() > 999'999'999) throw CodecError("a message is longer than nine digits can say");
    const std::string head = std::to_string(payload.size()) + ":";
    Bytes whole(head.begin(), head.end());
    whole.reserve(head.size() + payload.size() + 1);
    whole.insert(whole.end(), payload.begin(), payload.end());
    whole.push_back(',');
    return whole;
}

// Splits a stream into payloads, whatever pieces it arrives in.
class FrameReader {
public:
    explicit FrameReader(const Limits& limits = {}) : max_bytes_(limits.max_bytes) {}

    void feed(const std::uint8_t* data, std::size_t size) { buffer_.insert(buffer_.end(), data, data + size); }

    // The next payload, if it is complete.
    std::optional<Bytes> next() {
        std::size_t length = 0;
        for (std::size_t i = 0; i < buffer_.size(); ++i) {
            const std::uint8_t letter = buffer_[i];
            if (letter == ':' && i > 0) {
                if (length > max_bytes_)
                    throw CodecError("a frame of " + std::to_string(length) + " bytes is over the limit");
                const std::size_t end = i + 1 + length;
                if (end >= buffer_.size()) return std::nullopt;
                if (buffer_[end] != ',')
                    throw CodecError("expected a comma after " + std::to_string(length) + " bytes");
                const auto start = buffer_.begin() + static_cast<std::ptrdiff_t>(i + 1);
                Bytes payload(start, start + static_cast<std::ptrdiff_t>(length));
                buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(end + 1));
                return payload;
            }
            if (letter < '0' || letter > '9' || i >= 9) throw CodecError("expected the length of a frame");
            length = 10 * length + (letter - '0');
        }
        return std::nullopt;
    }

private:
    Bytes buffer_;
    std::size_t max_bytes_;
};

// -- the connection ---------------------------------------------------------------------------------------------------

namespace detail {

using Clock = std::chrono::steady_clock;

class Socket {
public:
    Socket() = default;
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() { close(); }

    bool is_open() const { return fd_ >= 0; }

    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }

    void connect(const std::string& host, const std::string& port, Clock::time_point deadline) {
        close();
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        addrinfo* found = nullptr;
        if (const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); code != 0) {
            throw ConnectionLost("host " + host + " is not found: " + ::gai_strerror(code));
        }
        const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> guard(found, ::freeaddrinfo);
        std::string reason = "it has no address";
        for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
            reason = attempt(*address, deadline);
            if (reason.empty()) return;
            close();
        }
        throw ConnectionLost("no connection to " + host + ":" + port + ": " + reason);
    }

    void send(const Bytes& data, Clock::time_point deadline) {
        for (std::size_t sent = 0; sent < data.size();) {
            const ssize_t count = ::send(fd_, data.data() + sent, data.size() - sent, SEND_FLAGS);
            if (count >= 0) {
                sent += static_cast<std::size_t>(count);
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                wait(POLLOUT, deadline);
            } else if (errno != EINTR) {
                throw ConnectionLost(std::string("the connection is lost: ") + std::strerror(errno));
            }
        }
    }

    std::size_t receive(std::uint8_t* into, std::size_t size, Clock::time_point deadline) {
        while (true) {
            const ssize_t count = ::recv(fd_, into, size, 0);
            if (count > 0) return static_cast<std::size_t>(count);
            if (count == 0) throw ConnectionLost("the server closed the connection");
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                wait(POLLIN, deadline);
            } else if (errno != EINTR) {
                throw ConnectionLost(std::string("the connection is lost: ") + std::strerror(errno));
            }
        }
    }

private:
#ifdef MSG_NOSIGNAL
    static constexpr int SEND_FLAGS = MSG_NOSIGNAL;
#else
    static constexpr int SEND_FLAGS = 0;
#endif

    // Try one address; returns why it failed, or nothing.
    std::string attempt(const addrinfo& address, Clock::time_point deadline) {
        fd_ = ::socket(address.ai_family, address.ai_socktype, address.ai_protocol);
        if (fd_ < 0) return std::strerror(errno);
        ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
        ::fcntl(fd_, F_SETFL, O_NONBLOCK);
        const int on = 1;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        ::setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
#ifdef SO_NOSIGPIPE
        ::setsockopt(fd_, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
        if (::connect(fd_, address.ai_addr, address.ai_addrlen) == 0) return "";
        if (errno != EINPROGRESS && errno != EINTR) return std::strerror(errno);
        try {
            wait(POLLOUT, deadline);
        } catch (const ConnectionLost& error) {
            return error.what();
        }
        int code = 0;
        socklen_t size = sizeof(code);
        ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &code, &size);
        return code == 0 ? "" : std::strerror(code);
    }

    void wait(short events, Clock::time_point deadline) {
        while (true) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
            if (left <= 0) throw ConnectionLost("no answer in time");
            pollfd one{fd_, events, 0};
            const int ready = ::poll(&one, 1, static_cast<int>(std::min<long long>(left, 60'000)));
            if (ready > 0) return;
            if (ready < 0 && errno != EINTR) throw ConnectionLost(std::strerror(errno));
        }
    }

    int fd_ = -1;
};

}  // namespace detail

struct Options {
    double timeout_s = 60.0;          // longest wait for one answer
    double connect_timeout_s = 10.0;  // longest wait for one attempt to connect
    std::string token;                // the token that the server requires
    std::string policy;               // the one of the server's policies that acts; empty: the run's, which learns
    std::vector<std::string> want;    // what `outputs` has after each action: "q_values", "probabilities"
};

// One session with a server: one environment, one agent. The calls are those of the Python client.
class AgentProxy {
public:
    // The address is `host:port` or `[IPv6]:port`; nothing connects before `connect`.
    explicit AgentProxy(const std::string& address, Options options = {}) : options_(std::move(options)) {
        const std::size_t colon = address.rfind(':');
        if (colon == std::string::npos || colon + 1 == address.size())
            throw AgentProxyError(address + " is no address; write host:port");
        host_ = address.substr(0, colon);
        port_ = address.substr(colon + 1);
        if (host_.size() > 2 && host_.front() == '[' && host_.back() == ']') host_ = host_.substr(1, host_.size() - 2);
    }

    bool is_connected() const { return socket_.is_open(); }

    // Up to `retry` attempts, with jittered waits between them that double from 0.5 s to 8 s.
    void connect(int retry = 6) {
        retrying(retry, [this] { open(); });
    }

    // Begin a session; `exploit`: act greedily, and do not learn.
    void init(bool exploit = false) {
        Dict request{{"command", "init"}, {"exploit", exploit}};
        if (!options_.token.empty()) request.emplace_back("token", options_.token);
        if (!options_.policy.empty()) request.emplace_back("policy", options_.policy);
        if (!options_.want.empty()) request.emplace_back("want", List(options_.want.begin(), options_.want.end()));
        exchange(request);
    }

    // Tell the agent what its last action led to, and ask for the next one; null when the episode is over. `reward` is
    // null in the first update of an episode. `truncated`: it is over because of a limit, not by the game's rules.
    // `executed_action`: the action that led to this reward, if something replaced the agent's. `amend_within_s`: how
    // long the reward may be amended: the server holds the step back until `amend` is called, or so long.
    Value update(const Value& reward, const Value& state, bool terminal = false, bool truncated = false,
                 const Value& executed_action = nullptr, const Value& amend_within_s = nullptr) {
        Dict request{{"command", "update"}, {"reward", reward}, {"state", state}, {"terminal", terminal || truncated}};
        if (truncated) request.emplace_back("truncated", true);
        if (!executed_action.is_null()) request.emplace_back("executed_action", executed_action);
        if (!amend_within_s.is_null()) request.emplace_back("amend_within_s", amend_within_s);
        outputs = exchange(request);
        return outputs["data"];
    }

    // Replace the reward of a step whose number was outputs["step_id"], also in a later session with the same server.
    // Returns whether it was in time, and the step is experience.
    bool amend(const Value& step_id, const Value& reward) {
        const Dict reply = exchange({{"command", "amend"}, {"step_id", step_id}, {"reward", reward}});
        return find(reply, "is_amended").as_bool();
    }

    // The last answer to `update`: outputs["q_values"], if the options want it; null if the policy has none.
    Value outputs = Dict{};

    // Abandon the current episode.
    void reset() { exchange({{"command", "reset"}}); }

    // Values for the run's metrics; without x, at the global step of the run.
    void scalar(const std::string& name, double y, const Value& x = nullptr) {
        metrics({record("scalar", name, y, x)});
    }
    void histogram(const std::string& name, const std::vector<double>& y, const Value& x = nullptr) {
        metrics({record("histogram", name, y, x)});
    }
    void metrics(List records) { exchange({{"command", "update_metrics"}, {"data", std::move(records)}}); }
    static Value record(const char* method, const std::string& name, Value y, Value x = nullptr) {
        return Dict{{"method", method}, {"name", name}, {"y", std::move(y)}, {"x", std::move(x)}};
    }

    void disconnect() { socket_.close(); }

    // Connect and begin a session, and retry both together: a full server closes the connection at once.
    void begin(bool exploit = false, int attempts = 10) {
        retrying(attempts, [this, exploit] {
            open();
            init(exploit);
        });
    }

private:
    void open() {
        reader_ = FrameReader();
        socket_.connect(host_, port_, deadline(options_.connect_timeout_s));
    }

    Dict exchange(const Dict& request) {
        if (!socket_.is_open()) throw ConnectionLost("not connected to " + host_ + ":" + port_);
        const Bytes data = frame(encode(request));
        const auto until = deadline(options_.timeout_s);
        Dict reply;
        try {
            socket_.send(data, until);
            std::optional<Bytes> payload;
            while (!(payload = reader_.next())) {
                std::uint8_t piece[16384];
                reader_.feed(piece, socket_.receive(piece, sizeof(piece), until));
            }
            reply = decode(*payload);
        } catch (...) {
            socket_.close();  // the answer to this request would be taken for the answer to the next
            throw;
        }
        const Value& response = find(reply, "response");
        if (response.is_null()) {
            socket_.close();
            throw AgentProxyError("the server answers without a `response`");
        }
        if (response.as_string() == "error") {
            const Value& message = find(reply, "message");
            throw ReplyError(message.is_null() ? "the server gives no reason" : message.as_string());
        }
        return reply;
    }

    template <class Action>
    void retrying(int attempts, Action action) {
        for (int attempt = 1;; ++attempt) {
            try {
                return action();
            } catch (const ConnectionLost&) {
                socket_.close();
                if (attempt >= attempts) throw;
            }
            const double longest = std::min(8.0, 0.5 * std::pow(2.0, attempt - 1));
            std::this_thread::sleep_for(
                std::chrono::duration<double>(std::uniform_real_distribution<>(longest / 2, longest)(random_)));
        }
    }

    static detail::Clock::time_point deadline(double seconds) {
        return detail::Clock::now() +
               std::chrono::duration_cast<detail::Clock::duration>(std::chrono::duration<double>(seconds));
    }

    std::string host_, port_;
    Options options_;
    detail::Socket socket_;
    FrameReader reader_;
    std::mt19937 random_{std::random_device{}()};
};

// Play `episodes` episodes (forever if negative): `episode(number)` plays one with the agent and returns its reward.
// After a lost connection, connect again and repeat the episode; any other failure ends the run with it.
inline void run_episodes(AgentProxy& agent, long episodes, const std::function<double(long)>& episode,
                         bool exploit = false) {
    const auto note = [&agent](double reward) {
        agent.metrics({AgentProxy::record("scalar", "episode_reward", reward),
                       AgentProxy::record("scalar", "game_score", reward)});
    };
    agent.begin(exploit);
    for (long number = 0; episodes < 0 || number < episodes;) {
        try {
            const double reward = episode(number);
            ++number;
            try {
                note(reward);
            } catch (const ConnectionLost&) {  // servers drop connections at the end of an episode
                agent.begin(exploit);
                note(reward);
            }
        } catch (const ConnectionLost&) {
            agent.begin(exploit);
        }
    }
    agent.disconnect();
}

}  // namespace surreal::rlx

#endif  // SURREAL_RLX_HPP
