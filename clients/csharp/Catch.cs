// Catch: a ball falls straight down, and a paddle at the bottom should be below it. An agent elsewhere moves the paddle.
//
//     mcs RlxAgent.cs Catch.cs -out:catch.exe && mono catch.exe --rlx-server localhost:7001 [--exploit True]
//
// It ends when 95 of 100 balls were caught. State: ball x, ball y, paddle x, each in 0..1. Actions: 0 left,
// 1 stay, 2 right. Reward: 1 for a catch, -1 for a miss; an episode is one ball. Token: $SURREAL_RLX_TOKEN.
using System;
using Surreal.Rlx;

public sealed class Catch {
    public const int Columns = 5, Rows = 8;
    private readonly Random random;
    private int ball, row, paddle;

    public Catch(Random random) {
        this.random = random;
        Reset();
    }

    public void Reset() {
        ball = random.Next(Columns);
        row = 0;
        paddle = Columns / 2;
    }

    public bool IsOver => row == Rows - 1;

    /// <summary>Move the paddle, and let the ball fall by a row; returns the reward.</summary>
    public double Step(int action) {
        paddle = Math.Max(0, Math.Min(Columns - 1, paddle + action - 1));
        ++row;
        return !IsOver ? 0 : ball == paddle ? 1 : -1;
    }

    public float[] State() => new[] { ball / (Columns - 1f), row / (Rows - 1f), paddle / (Columns - 1f) };
}

public static class Program {
    public static int Main(string[] arguments) {
        var options = new Options { Token = Environment.GetEnvironmentVariable("SURREAL_RLX_TOKEN") };
        bool exploit = Option(arguments, "--exploit", "False") == "True";
        var game = new Catch(new Random());
        try {
            var agent = new AgentProxy(Option(arguments, "--rlx-server", "localhost:7001"), options);
            for (int episodes = 100, caught = 0; caught < 95; episodes += 100) {
                caught = 0;
                agent.RunEpisodes(100, number => {
                    double reward = Play(agent, game);
                    caught += reward > 0 ? 1 : 0;
                    return reward;
                }, exploit);
                Console.WriteLine("episode " + episodes + ": " + caught + " of 100 caught");
            }
        } catch (RlxError error) {
            Console.Error.WriteLine("error: " + error.Message);
            return 1;
        }
        return 0;
    }

    private static double Play(AgentProxy agent, Catch game) {
        game.Reset();
        double reward = 0;
        Value action = agent.Update(null, game.State()); // no reward yet
        while (!game.IsOver) {
            reward = game.Step(action.AsInt());
            action = agent.Update(reward, game.State(), game.IsOver);
        }
        return reward;
    }

    private static string Option(string[] arguments, string name, string otherwise) {
        int at = Array.IndexOf(arguments, name);
        return at >= 0 && at + 1 < arguments.Length ? arguments[at + 1] : otherwise;
    }
}
