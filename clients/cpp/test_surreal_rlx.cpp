// A program with the tests of surreal_rlx.hpp:
//
//     g++ -std=c++17 test_surreal_rlx.cpp -o test && ./test                        values, refusals, frames, mutations
//     ./test golden < lines of "NAME FRAME_HEX"                                    prints them, read and written again
//     ./test play HOST:PORT                                                        against a server for CartPole
#include "surreal_rlx.hpp"

#include <cstdio>
#include <functional>
#include <iostream>
#include <sstream>

namespace rlx = surreal::rlx;

namespace {

int failures = 0;

void check(bool is_true, const std::string& what) {
    if (!is_true) {
        ++failures;
        std::printf("failed: %s\n", what.c_str());
    }
}

template <class Exception>
void check_throws(const std::function<void()>& action, const std::string& what) {
    try {
        action();
    } catch (const Exception&) {
        return;
    } catch (const std::exception& error) {
        check(false, what + ": raises " + error.what());
        return;
    }
    check(false, what + ": raises nothing");
}

std::string hex(const rlx::Bytes& bytes) {
    std::string text;
    for (std::uint8_t byte : bytes) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

rlx::Bytes unhex(const std::string& text) {
    rlx::Bytes bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
        bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return bytes;
}

rlx::Bytes payload_of(const rlx::Bytes& data) {
    rlx::FrameReader reader;
    reader.feed(data.data(), data.size());
    const auto payload = reader.next();
    if (!payload) throw rlx::CodecError("the frame is not whole");
    return *payload;
}

rlx::Value round_trip(const rlx::Value& value) {
    return rlx::find(rlx::decode(rlx::encode({{"value", value}})), "value");
}

// The messages of the golden vectors, made here; the file has what RELAAX's encoder wrote for them.
const std::vector<std::pair<std::string, rlx::Dict>>& known_messages() {
    static const std::vector<std::pair<std::string, rlx::Dict>> known = {
        {"init", {{"command", "init"}, {"exploit", false}}},
        {"ready", {{"response", "ready"}}},
        {"reset", {{"command", "reset"}}},
        {"done", {{"response", "done"}}},
        {"update_list",
         {{"command", "update"}, {"reward", nullptr}, {"state", rlx::List{1, -2.5}}, {"terminal", false}}},
        {"nd_u8", {{"s", rlx::NDArray::of(std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5}, {2, 3})}}},
        {"nd_empty", {{"s", std::vector<double>{}}}},
        {"img_L", {{"s", rlx::Image{"L", 3, 2, {0, 1, 2, 3, 4, 5}}}}},
        {"img_1", {{"s", rlx::Image{"1", 8, 1, {0xa5}}}}},
        {"dict", {{"s", rlx::Dict{{"a", 1}, {"b", rlx::List{nullptr, true, "x"}}}}}},
        {"i64", {{"d", std::int64_t{1} << 40}}},
        {"f64", {{"d", 0.5}}},
        {"error", {{"response", "error"}, {"message", "can't reset agent"}}},
        {"action_i64", {{"response", "action"}, {"data", std::int64_t{2}}}},
    };
    return known;
}

int golden() {
    std::string line;
    std::size_t seen = 0;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string name, text;
        words >> name >> text;
        const rlx::Bytes payload = payload_of(unhex(text));
        std::printf("%s %s\n", name.c_str(), hex(rlx::frame(rlx::encode(rlx::decode(payload)))).c_str());
        for (const auto& [known, message] : known_messages()) {
            if (known != name) continue;
            ++seen;
            check(rlx::encode(message) == payload, name + ": the message made here is written differently");
        }
    }
    check(seen == known_messages().size(), "a golden vector is missing");
    return failures;
}

void values() {
    check(round_trip(nullptr).is_null(), "null");
    check(round_trip(true).as_bool() && !round_trip(false).as_bool(), "booleans");
    check(round_trip(-5).as_int() == -5 && round_trip(2'147'483'647).as_int() == 2'147'483'647, "INT4");
    check(round_trip(std::int64_t{1} << 62).as_int() == std::int64_t{1} << 62, "INT64");
    check(round_trip(std::uint32_t{4'000'000'000u}).as_int() == 4'000'000'000, "uint32_t");
    check(round_trip(std::size_t{7}).as_int() == 7, "size_t");
    check(round_trip(0.1).as_double() == 0.1 && round_trip(2.0).as_int() == 2, "DOUBLE");
    check(round_trip(0.5f).as_double() == 0.5, "float");
    check(round_trip("gr\xc3\xbc\xc3\x9f").as_string() == "gr\xc3\xbc\xc3\x9f", "text");
    check(round_trip(rlx::List{1, 2.5, rlx::List{3}}).as_numbers() == std::vector<double>{1, 2.5, 3}, "nested lists");
    check(round_trip(rlx::Dict{{"a", 1}, {"a", 2}})["a"].as_int() == 2, "the last of duplicate keys");
    check(round_trip(rlx::Dict{})["missing"].is_null(), "a missing key");

    const rlx::NDArray array =
        round_trip(rlx::NDArray::of(std::vector<std::int16_t>{1, -2, 3, 4, 5, 6}, {3, 2})).as_array();
    check(array.dtype == "int16" && array.shape == std::vector<std::uint32_t>{3, 2}, "dtype and shape");
    check(array.to<float>() == std::vector<float>{1, -2, 3, 4, 5, 6}, "an array's numbers");
    check(round_trip(std::vector<float>{0.5f}).as_double() == 0.5, "an array of one number is a number");
    const rlx::NDArray text{"<U2", {1}, rlx::Bytes(8)};
    check(round_trip(text).as_array().bytes == text.bytes, "dtypes that C++ lacks keep their bytes");
    const rlx::NDArray empty{"float32", {3, 0, 2}, {}};
    check(round_trip(empty).as_array().shape == empty.shape, "an array without items");

    check_throws<rlx::CodecError>([] { rlx::encode({{"a", rlx::NDArray{"float32", {3}, rlx::Bytes(8)}}}); },
                                  "a shape that lies");
    check_throws<rlx::CodecError>([] { rlx::NDArray::of(std::vector<int>{1, 2}, {3}); }, "a shape for other items");
    check_throws<rlx::CodecError>([] { rlx::encode({{"a", rlx::Image{"L", 2, 2, {1}}}}); }, "an image that lies");
    const rlx::Image huge{"RGBA", 0x80000000u, 0x80000000u, {}};
    check_throws<rlx::CodecError>([&] { rlx::encode({{"a", huge}}); }, "an image whose size wraps around");
    for (const char* dtype : {"<M8[ns]", "datetime64[25us]", "timedelta64", ">i8", "c16", "S8", "?", "|b1", "U2"}) {
        rlx::encode({{"a", rlx::NDArray{dtype, {0}, {}}}});
    }
    check_throws<rlx::CodecError>([] { rlx::encode({{"a", std::numeric_limits<std::uint64_t>::max()}}); },
                                  "beyond 64 bits");
    for (const char* dtype :
         {"O", "object", "V8", "f16", "<U0", "", "float128", "i3", "|O", "<", "i8[ns]", "M8[", "M4"}) {
        check_throws<rlx::CodecError>([dtype] { rlx::encode({{"a", rlx::NDArray{dtype, {0}, {}}}}); },
                                      std::string("dtype ") + dtype);
    }
    check_throws<rlx::CodecError>([] { rlx::Value("x").as_int(); }, "text is no number");
    check_throws<rlx::CodecError>([] { rlx::Value(0.5).as_int(); }, "0.5 is not whole");
}

void limits() {
    std::string deep = "01000000010000007308";
    for (int i = 0; i < 70'000; ++i) deep += "0100000008";
    check_throws<rlx::CodecError>([&] { rlx::decode(unhex(deep)); }, "70,000 nested lists");
    check_throws<rlx::CodecError>([] { rlx::decode(unhex("01000000010000007308ffffffff")); }, "a list of 4 billion");
    check_throws<rlx::CodecError>([] { rlx::decode(unhex("010000000100000073ff")); }, "an unknown type");
    check_throws<rlx::CodecError>([] { rlx::decode(unhex("0100")); }, "half a version");
    check_throws<rlx::CodecError>([] { rlx::decode(unhex("01000000020000007301ff01")); }, "a key that is not UTF-8");
    rlx::Limits few;
    few.max_items = 10;
    const rlx::Bytes many = rlx::encode({{"a", rlx::List(11)}});
    check_throws<rlx::CodecError>([&] { rlx::decode(many, few); }, "too many items");
    few.max_bytes = 8;
    check_throws<rlx::CodecError>([&] { rlx::decode(many, few); }, "too many bytes");

    const std::string stream = "3:abc,0:,05:hello,";
    for (std::size_t size = 1; size <= stream.size(); ++size) {
        rlx::FrameReader reader;
        std::string found;
        for (std::size_t i = 0; i < stream.size(); i += size) {
            const std::string piece = stream.substr(i, size);
            reader.feed(reinterpret_cast<const std::uint8_t*>(piece.data()), piece.size());
            while (const auto payload = reader.next()) found += std::string(payload->begin(), payload->end()) + "|";
        }
        check(found == "abc||hello|", "frames in pieces of " + std::to_string(size));
    }
    for (const std::string bad : {"x", ":", "3:abcd", "1234567890:", "999999999:"}) {
        check_throws<rlx::CodecError>([&] { payload_of(rlx::Bytes(bad.begin(), bad.end())); }, "frame " + bad);
    }
}

// Damaged payloads raise only CodecError.
void mutations() {
    std::mt19937 random(1);
    const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random()) % bound; };
    for (int round = 0; round < 50'000; ++round) {
        rlx::Bytes payload = rlx::encode(known_messages()[below(known_messages().size())].second);
        for (std::size_t count = 1 + below(3); count > 0; --count)
            payload[below(payload.size())] = static_cast<std::uint8_t>(below(256));
        if (below(4) == 0) payload.resize(below(payload.size()));
        try {
            rlx::encode(rlx::decode(payload));
        } catch (const rlx::CodecError&) {
        } catch (const std::exception& error) {
            check(false, hex(payload) + " raises " + error.what());
        }
    }
}

void play(const std::string& address) {
    rlx::AgentProxy agent(address);
    check_throws<rlx::ConnectionLost>([&] { agent.reset(); }, "nothing works before connect");
    agent.connect();
    check_throws<rlx::ReplyError>([&] { agent.update(nullptr, std::vector<float>(4)); }, "init comes first");
    agent.init(true);
    check_throws<rlx::ReplyError>([&] { agent.update(nullptr, rlx::List{1, 2, 3}); }, "a state that does not fit");
    check(agent.update(nullptr, rlx::List{0.0, 0.0, 0.1, 0.0}).as_int() == 1, "an action for a list");
    agent.init();
    check(agent.update(nullptr, std::vector<float>{0, 0, 0.1f, 0}).as_int() == 1, "an action for floats");
    check(agent.update(1.0, std::vector<double>{0, 0, -0.1, 0}).as_int() == 0, "an action for doubles");
    check_throws<rlx::ReplyError>([&] { agent.update(1.0, std::vector<float>(4), false, false, 0); },
                                  "an intervention that is not recorded");
    check(agent.update(0.5, std::vector<float>(4), true).is_null(), "no action at the end");
    agent.scalar("cpp", 2.5, 3);
    agent.histogram("sizes", {1, 2, 3});
    agent.update(nullptr, std::vector<float>(4));
    agent.reset();
    agent.disconnect();

    std::vector<long> numbers;
    rlx::run_episodes(agent, 20, [&](long number) {
        numbers.push_back(number);
        agent.update(nullptr, std::vector<float>(4));
        for (int step = 1; step < 10; ++step) agent.update(1.0, std::vector<float>(4), false, step == 9);
        return 9.0;
    });
    check(numbers.size() == 20 && numbers.back() == 19, "twenty episodes");
    check(!agent.is_connected(), "disconnected at the end");

    agent.connect();
    agent.init();
    agent.update(nullptr, std::vector<float>(4));
    agent.update(0.0, std::vector<float>(4), false, false, nullptr, 30);
    const rlx::Value step_id = agent.outputs["step_id"];
    check(agent.amend(step_id, 2.5) && !agent.amend(step_id, 3), "a reward that becomes known later");
    agent.reset();
    agent.disconnect();

    rlx::Options named;
    named.policy = "ones";
    named.want = {"q_values", "probabilities"};
    rlx::AgentProxy curious(address, named);
    curious.begin();
    check(curious.update(nullptr, rlx::List{0.0, 0.0, -0.1, 0.0}).as_int() == 1, "the named policy acts");
    check(curious.outputs["q_values"].as_numbers() == std::vector<double>{9, 1}, "Q values");
    check(curious.outputs["probabilities"].is_null(), "the policy has no probabilities");
    check(curious.update(1.0, rlx::List{0.0, 0.0, 0.0, 0.0}, true).is_null(), "no action at the end");
    check(curious.outputs["q_values"].is_null(), "no outputs at the end");
    named.policy = "onse";
    rlx::AgentProxy mistaken(address, named);
    check_throws<rlx::ReplyError>([&] { mistaken.begin(); }, "a policy that the server does not have");

    rlx::Options hasty;
    hasty.connect_timeout_s = 2;
    rlx::AgentProxy lonely("127.0.0.1:1", hasty);
    check_throws<rlx::ConnectionLost>([&] { lonely.connect(1); }, "nobody there");
    check_throws<rlx::AgentProxyError>([] { rlx::AgentProxy("nowhere"); }, "an address without a port");
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    try {
        if (what == "golden") {
            golden();
        } else if (what == "play" && argc > 2) {
            play(argv[2]);
        } else if (what.empty()) {
            values();
            limits();
            mutations();
        } else {
            std::printf("what is %s?\n", what.c_str());
            return 2;
        }
    } catch (const std::exception& error) {
        check(false, error.what());
    }
    if (failures == 0 && what != "golden") std::printf("all is well\n");
    return failures == 0 ? 0 : 1;
}
