// CartPole's physics (Barto, Sutton and Anderson 1983), driven by an agent elsewhere.
//
//     g++ -std=c++17 -O2 cartpole.cpp -o cartpole && ./cartpole localhost:7001 [EPISODES] [--exploit]
//
// The server needs the environment's spaces: `surreal rlx-server` with a configuration for CartPole-v1.
#include "surreal_rlx.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rlx = surreal::rlx;

namespace {

class CartPole {
public:
    static constexpr int MAX_STEPS = 500;

    std::vector<float> reset() {
        std::uniform_real_distribution<double> small(-0.05, 0.05);
        for (double& number : state_) number = small(random_);
        steps_ = 0;
        return state();
    }

    // Push the cart to the left (0) or to the right (1); returns whether the pole fell.
    bool step(std::int64_t action) {
        constexpr double gravity = 9.8, pole_mass = 0.1, total_mass = 1.1, half_length = 0.5, tau = 0.02;
        auto& [x, x_dot, theta, theta_dot] = state_;
        const double force = action == 1 ? 10.0 : -10.0;
        const double sine = std::sin(theta), cosine = std::cos(theta);
        const double push = (force + pole_mass * half_length * theta_dot * theta_dot * sine) / total_mass;
        const double theta_acceleration =
            (gravity * sine - cosine * push) / (half_length * (4.0 / 3.0 - pole_mass * cosine * cosine / total_mass));
        const double x_acceleration = push - pole_mass * half_length * theta_acceleration * cosine / total_mass;
        x += tau * x_dot;
        x_dot += tau * x_acceleration;
        theta += tau * theta_dot;
        theta_dot += tau * theta_acceleration;
        ++steps_;
        return std::abs(x) > 2.4 || std::abs(theta) > 12 * 2 * 3.14159265358979323846 / 360;
    }

    bool is_out_of_time() const { return steps_ >= MAX_STEPS; }

    std::vector<float> state() const { return {state_.begin(), state_.end()}; }

private:
    std::array<double, 4> state_{};
    int steps_ = 0;
    std::mt19937 random_{std::random_device{}()};
};

// A whole number above 0, or 0 if the text is not one.
long count_from(const char* text) {
    char* end = nullptr;
    const long count = std::strtol(text, &end, 10);
    return end == text || *end != '\0' || count < 1 ? 0 : count;
}

}  // namespace

int main(int argc, char** argv) {
    const char* address = argc > 1 ? argv[1] : "localhost:7001";
    const long episodes = argc > 2 ? count_from(argv[2]) : 100;
    const bool exploit = argc > 3 && std::strcmp(argv[3], "--exploit") == 0;
    if (episodes == 0 || argc > 4 || (argc > 3 && !exploit)) {
        std::fprintf(stderr, "usage: %s [HOST:PORT [EPISODES [--exploit]]]; EPISODES is a whole number above 0\n", argv[0]);
        return 2;
    }
    const char* token = std::getenv("SURREAL_RLX_TOKEN");
    try {
        rlx::Options options;
        options.token = token == nullptr ? "" : token;
        rlx::AgentProxy agent(address, options);
        CartPole game;
        rlx::run_episodes(
            agent, episodes,
            [&](long number) {
                double total = 0.0;
                rlx::Value action = agent.update(nullptr, game.reset());
                for (bool is_over = false; !is_over;) {
                    const bool has_fallen = game.step(action.as_int());
                    is_over = has_fallen || game.is_out_of_time();
                    total += 1.0;
                    // The time limit ends the episode although the pole stands: truncated, not terminal.
                    action = agent.update(1.0, game.state(), has_fallen, is_over && !has_fallen);
                }
                std::printf("episode %ld: %g\n", number, total);
                return total;
            },
            exploit);
    } catch (const rlx::Error& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
    return 0;
}
