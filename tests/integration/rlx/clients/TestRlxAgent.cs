// A program with the tests of clients/csharp/RlxAgent.cs; test_csharp.py builds and runs it.
//
//     mono test.exe                                          values, refusals, frames, mutations
//     mono test.exe golden < lines of "NAME FRAME_HEX"       prints them, read and written again
//     mono test.exe play HOST:PORT                           against a server for CartPole that requires a token
//     mono test.exe episodes HOST:PORT N                     prints each answer: "EPISODE STEP EXECUTED"
//     mono test.exe rate HOST:PORT                           a line from stdin continues
//     mono test.exe pause HOST:PORT                          states that are sent begin with less than 100
//     mono test.exe amend HOST:PORT                          prints the answers to one amendment
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Text;
using System.Threading;
using Surreal.Rlx;

static class TestRlxAgent {
    static int failures;

    static void Check(bool isTrue, string what) {
        if (isTrue) return;
        ++failures;
        Console.WriteLine("failed: " + what);
    }

    static void Throws<T>(Action action, string what) where T : Exception {
        try {
            action();
        } catch (Exception error) {
            Check(error is T, what + ": raises " + error);
            return;
        }
        Check(false, what + ": raises nothing");
    }

    static string Hex(byte[] bytes) => BitConverter.ToString(bytes).Replace("-", "").ToLowerInvariant();

    static byte[] Unhex(string text) =>
        Enumerable.Range(0, text.Length / 2).Select(i => Convert.ToByte(text.Substring(2 * i, 2), 16)).ToArray();

    static byte[] Payload(byte[] frame) {
        var reader = new FrameReader();
        reader.Feed(frame, frame.Length);
        return reader.Next();
    }

    static Value RoundTrip(Value value) => Codec.Decode(Codec.Encode(new Dict { { "value", value } }))["value"];

    static byte[] Encoded(Value value) => Codec.Encode(new Dict { { "a", value } });

    // The messages of the golden vectors, made here; the file has what RELAAX's encoder wrote for them.
    static readonly Dictionary<string, Dict> Known = new Dictionary<string, Dict> {
        { "init", new Dict { { "command", "init" }, { "exploit", false } } },
        { "ready", new Dict { { "response", "ready" } } },
        { "reset", new Dict { { "command", "reset" } } },
        { "done", new Dict { { "response", "done" } } },
        { "update_list", new Dict {
            { "command", "update" }, { "reward", null }, { "state", new List<Value> { 1, -2.5 } }, { "terminal", false },
        } },
        { "nd_u8", new Dict { { "s", new byte[,] { { 0, 1, 2 }, { 3, 4, 5 } } } } },
        { "nd_empty", new Dict { { "s", new double[0] } } },
        { "img_L", new Dict { { "s", new Image { Mode = "L", Width = 3, Height = 2, Bytes = new byte[] { 0, 1, 2, 3, 4, 5 } } } } },
        { "img_1", new Dict { { "s", new Image { Mode = "1", Width = 8, Height = 1, Bytes = new byte[] { 0xa5 } } } } },
        { "dict", new Dict { { "s", new Dict { { "a", 1 }, { "b", new List<Value> { null, true, "x" } } } } } },
        { "i64", new Dict { { "d", 1L << 40 } } },
        { "f64", new Dict { { "d", 0.5 } } },
        { "error", new Dict { { "response", "error" }, { "message", "can't reset agent" } } },
        { "action_i64", new Dict { { "response", "action" }, { "data", 2L } } },
    };

    static void Golden() {
        int seen = 0;
        for (string line; (line = Console.ReadLine()) != null;) {
            string[] words = line.Split(' ');
            byte[] payload = Payload(Unhex(words[1]));
            Console.WriteLine(words[0] + " " + Hex(Codec.Frame(Codec.Encode(Codec.Decode(payload)))));
            if (!Known.TryGetValue(words[0], out Dict message)) continue;
            ++seen;
            Check(Codec.Encode(message).SequenceEqual(payload), words[0] + ": the message made here is written differently");
        }
        Check(seen == Known.Count, "a golden vector is missing");
    }

    static void Values() {
        Check(RoundTrip(null).IsNull, "null");
        Check(RoundTrip(true).AsBool() && !RoundTrip(false).AsBool(), "booleans");
        Check(RoundTrip(-5).AsInt() == -5 && RoundTrip(int.MaxValue).AsInt() == int.MaxValue, "INT4");
        Check(RoundTrip(1L << 62).Data.Equals(1L << 62) && RoundTrip(7L).AsInt() == 7, "INT64");
        Check(RoundTrip(4000000000u).AsDouble() == 4000000000.0, "uint");
        Check(RoundTrip(0.1).AsDouble() == 0.1 && RoundTrip(2.0).AsInt() == 2 && RoundTrip(0.5f).AsDouble() == 0.5, "DOUBLE");
        Check(RoundTrip("gr\u00fc\u00df \ud83d\ude00").AsString() == "gr\u00fc\u00df \ud83d\ude00", "text");
        var nested = new List<Value> { 1, 2.5, new List<Value> { 3 } };
        Check(RoundTrip(nested).AsNumbers().SequenceEqual(new[] { 1, 2.5, 3 }), "nested lists");
        Check(RoundTrip(new Dict { { "a", 1 }, { "a", 2 } })["a"].AsInt() == 2, "the last of duplicate keys");
        Check(RoundTrip(new Dict())["missing"].IsNull, "a missing key");

        NDArray array = RoundTrip(new short[,] { { 1, -2 }, { 3, 4 }, { 5, 6 } }).AsArray();
        Check(array.Dtype == "int16" && array.Shape.SequenceEqual(new[] { 3u, 2u }), "dtype and shape");
        Check(array.ToNumbers().SequenceEqual(new double[] { 1, -2, 3, 4, 5, 6 }), "an array's numbers");
        Check(RoundTrip(new[] { true, false }).AsNumbers().SequenceEqual(new double[] { 1, 0 }), "truth values");
        Check(RoundTrip(new[] { 0.5f }).AsDouble() == 0.5, "an array of one number is a number");
        Check(RoundTrip(Array("<U2", new byte[8], 1)).AsArray().Dtype == "<U2", "dtypes that C# lacks keep their bytes");
        Check(RoundTrip(Array("float32", new byte[0], 3, 0, 2)).AsArray().Shape.Length == 3, "an array without items");
        foreach (string dtype in "<M8[ns] datetime64[25us] timedelta64 >i8 c16 S8 ? |b1 U2 bool float16".Split(' '))
            Encoded(Array(dtype, new byte[0], 0));
        foreach (string dtype in "O|object|V8|f16|<U0||float128|i3|<|i8[ns]|M8[|M4|float32\n".Split('|'))
            Throws<CodecError>(() => Encoded(Array(dtype, new byte[0], 0)), "dtype " + dtype);

        Throws<CodecError>(() => Encoded(Array("float32", new byte[8], 3)), "a shape that lies");
        Throws<CodecError>(() => Encoded(Array("uint8", new byte[0], 1u << 31, 1u << 31, 4)), "a shape that wraps around");
        Throws<CodecError>(() => Encoded(new Image { Mode = "L", Width = 2, Height = 2, Bytes = new byte[1] }), "an image that lies");
        var huge = new Image { Mode = "RGBA", Width = 1u << 31, Height = 1u << 31, Bytes = new byte[0] };
        Throws<CodecError>(() => Encoded(huge), "an image whose size wraps around");
        Throws<CodecError>(() => Encoded(new[] { 'x' }), "an array of letters");
        Throws<CodecError>(() => Encoded("\ud800"), "half a letter");
        Throws<CodecError>(() => ((Value)"x").AsInt(), "text is not a number");
        foreach (double wrong in new[] { 0.5, double.NaN, double.PositiveInfinity, 3e9 })
            Throws<CodecError>(() => ((Value)wrong).AsInt(), wrong + " is not a whole number");
    }

    static NDArray Array(string dtype, byte[] bytes, params uint[] shape) =>
        new NDArray { Dtype = dtype, Shape = shape, Bytes = bytes };

    static void Limits() {
        string deep = "01000000010000007308" + string.Concat(Enumerable.Repeat("0100000008", 70000));
        Throws<CodecError>(() => Codec.Decode(Unhex(deep)), "70,000 nested lists");
        Throws<CodecError>(() => Codec.Decode(Unhex("01000000010000007308ffffffff")), "a list of 4 billion");
        Throws<CodecError>(() => Codec.Decode(Unhex("010000000100000073ff")), "an unknown type");
        Throws<CodecError>(() => Codec.Decode(Unhex("0100")), "half a version");
        foreach (string text in new[] { "ff", "c0af", "eda080", "f4908080", "e28" })
            Throws<CodecError>(() => Codec.Decode(Unhex("01000000" + "0" + text.Length / 2 + "000000" + text + "01")), "a key " + text);
        Throws<CodecError>(() => Codec.Decode(Encoded(new List<Value>(new Value[Codec.MaxItems]))), "too many items");
        Throws<CodecError>(() => Codec.Decode(Encoded(new byte[Codec.MaxBytes])), "too many bytes");

        byte[] stream = Encoding.ASCII.GetBytes("3:abc,0:,05:hello,");
        for (int size = 1; size <= stream.Length; ++size) {
            var reader = new FrameReader();
            string found = "";
            for (int i = 0; i < stream.Length; i += size) {
                byte[] piece = stream.Skip(i).Take(size).ToArray();
                reader.Feed(piece, piece.Length);
                for (byte[] payload; (payload = reader.Next()) != null;) found += Encoding.ASCII.GetString(payload) + "|";
            }
            Check(found == "abc||hello|", "frames in pieces of " + size);
        }
        foreach (string bad in new[] { "x", ":", "3:abcd", "1234567890:", "999999999:", "999999999" })
            Throws<CodecError>(() => Payload(Encoding.ASCII.GetBytes(bad)), "frame " + bad);
    }

    // Damaged payloads raise only CodecError.
    static void Mutations() {
        var random = new Random(1);
        List<byte[]> payloads = Known.Values.Select(Codec.Encode).ToList();
        for (int round = 0; round < 20000; ++round) {
            byte[] payload = (byte[])payloads[random.Next(payloads.Count)].Clone();
            for (int count = random.Next(1, 4); count > 0; --count) payload[random.Next(payload.Length)] = (byte)random.Next(256);
            if (random.Next(4) == 0) payload = payload.Take(random.Next(payload.Length)).ToArray();
            try {
                Codec.Encode(Codec.Decode(payload));
            } catch (CodecError) {
            } catch (Exception error) {
                Check(false, Hex(payload) + " raises " + error);
            }
        }
    }

    static void Play(string address) {
        var agent = new AgentProxy(address, new Options { Token = "secret" });
        Throws<ConnectionLost>(() => agent.Reset(), "nothing works before Connect");
        agent.Connect();
        agent.Init(true);
        Throws<ReplyError>(() => agent.Update(null, new List<Value> { 1, 2, 3 }), "a state that does not fit");
        Check(agent.Update(null, new List<Value> { 0.0, 0.0, 0.1, 0.0 }).AsInt() == 1, "an action for a list");
        agent.Init();
        Check(agent.Update(null, new[] { 0, 0, 0.1f, 0 }).AsInt() == 1, "an action for floats");
        Check(agent.Update(1.0, new[] { 0, 0, -0.1, 0 }).AsInt() == 0, "an action for doubles");
        Throws<ReplyError>(() => agent.Update(1.0, new float[4], executedAction: 0), "an intervention that is not recorded");
        Check(!agent.Amend(agent.Outputs["step_id"], 2), "a reward that is final");
        Check(agent.Update(0.5, new float[4], true, amendWithinS: 30).IsNull, "no action at the end");
        Value stepId = agent.Outputs["step_id"];
        using (var engine = new RlxAgent(address, new Options { Token = "secret", SafeAction = -1 }))
        using (var isAnswered = new ManualResetEventSlim()) { // another session
            bool isInTime = false, isAgain = true;
            engine.Amend(stepId, 2, found => isInTime = found);
            engine.Amend(stepId, 4, found => { isAgain = found; isAnswered.Set(); });
            Check(isAnswered.Wait(30000) && isInTime && !isAgain, "an RlxAgent amends a reward once");
        }
        Check(!agent.Amend(stepId, 3), "what was accepted is final");
        agent.Scalar("csharp", 2.5, 3);
        agent.Histogram("sizes", new double[] { 1, 2, 3 });
        agent.Update(null, new float[4]);
        agent.Reset();
        agent.Disconnect();

        var named = new Options { Token = "secret", Policy = "ones", Want = new[] { "q_values", "probabilities" }, SafeAction = -1 };
        var curious = new AgentProxy(address, named);
        curious.Begin();
        Check(curious.Update(null, new[] { 0, 0, -0.1f, 0 }).AsInt() == 1, "the named policy acts");
        Check(curious.Outputs["q_values"].AsNumbers().SequenceEqual(new double[] { 9, 1 }), "Q values");
        Check(curious.Outputs["probabilities"].IsNull, "the policy has no probabilities");
        Check(curious.Update(1.0, new float[4], true).IsNull, "no action at the end");
        Check(curious.Outputs["q_values"].IsNull, "no outputs at the end");
        using (var engine = new RlxAgent(address, named)) {
            Value action = engine.Update(null, new[] { 0, 0, -0.1f, 0 });
            for (; engine.IsLate; action = engine.Update(1.0, new float[4]))
                Check(engine.Outputs.Count == 0, "no outputs with the safe action");
            Check(action.AsInt() == 1 && engine.Outputs["q_values"].AsNumbers()[0] == 9, "Q values at a fixed rate");
        }
        named.Policy = "onse";
        Throws<ReplyError>(() => new AgentProxy(address, named).Begin(), "a policy that the server does not have");

        var wrong = new AgentProxy("rlx://" + address, new Options { Token = "guess" });
        Throws<ReplyError>(() => wrong.Begin(), "a wrong token");
        var lonely = new AgentProxy("127.0.0.1:1", new Options { ConnectTimeoutS = 2 });
        Throws<ConnectionLost>(() => lonely.Connect(1), "no server there");
        Throws<ConnectionLost>(() => new AgentProxy("[::1]:1").Connect(1), "no server there by IPv6");
        foreach (string text in new[] { "nowhere", ":7001", "host:", "rlxs://host:7001", "host:x" })
            Throws<AgentProxyError>(() => new AgentProxy(text), "address " + text);
    }

    static void Episodes(string address, int episodes) {
        var agent = new AgentProxy(address);
        agent.RunEpisodes(episodes, number => {
            agent.Update(null, new float[] { number, 0, 0, 0 });
            for (int step = 1; step <= 20; ++step) {
                Value executed = step % 7 == 0 ? 1 : (Value)null; // a person takes over
                agent.Update(1.0, new float[] { number, step, 0, 0 }, step == 20, executedAction: executed);
                Console.WriteLine(number + " " + step + " " + (executed?.Data ?? "agent's"));
            }
            return 20;
        });
        Check(!agent.IsConnected, "disconnected at the end");
    }

    // An agent of a robot: with its server, with one that does not answer, without one, and with one again.
    static void Rate(string address) {
        using (var agent = new RlxAgent(address, new Options { RateHz = 50, SafeAction = -1 })) {
            while (!agent.IsConnected) Thread.Sleep(5);
            Value action = agent.Update(null, new float[4]);
            foreach (bool shouldBeLate in new[] { false, true, false }) {
                int on = 0;
                for (int step = 0; on < 5; ++step) {
                    Check(agent.IsLate == (action.AsInt() == -1), "the safe action is taken if the agent's is late");
                    on = agent.IsLate == shouldBeLate ? on + 1 : 0;
                    action = agent.Update(1.0, new float[] { step, 0, 0, 0 });
                }
                Console.WriteLine(shouldBeLate ? "late" : "in time");
                Console.ReadLine();
            }
            // Deadlines are whole periods after the start.
            agent.Update(null, new float[4]);
            var watch = Stopwatch.StartNew();
            for (int step = 0; step < 25; ++step) agent.Update(1.0, new float[4]);
            Check(watch.Elapsed.TotalSeconds > 0.48, "25 updates at 50 Hz took " + watch.Elapsed.TotalSeconds + " s");
            while (agent.IsLate) agent.Update(1.0, new float[4]);
            agent.Scalar("rate", 50);
            Check(agent.Update(1.0, new float[4], true).IsNull, "no action at the end");
        }
        Throws<AgentProxyError>(() => new RlxAgent(address, new Options { RateHz = 50 }), "no safe action");
        Throws<AgentProxyError>(() => new RlxAgent(address, new Options { RateHz = 0, SafeAction = 0 }), "a rate of 0");
    }

    // An agent of a robot that is paused, and one of an engine.
    static void Pause(string address) {
        Value second = null, last = null;
        var robot = new RlxAgent(address, new Options { RateHz = 10, SafeAction = -1 });
        Func<int, int> send = label => robot.Update(1.0, new float[] { label, 0, 0, 0 }).AsInt();
        Action<int> untilInTime = label => {
            while (send(label) == -1) {}
        };
        untilInTime(1);
        robot.Pause();
        long missed = robot.Missed;
        Check(send(101) == -1 && robot.IsLate && robot.IsPaused, "the safe action in a pause");
        var thread = new Thread(() => second = send(102));
        thread.Start();
        Check(!thread.Join(2000), "the second update of a pause waits, more than one period");
        robot.Resume();
        Check(thread.Join(30000) && second.AsInt() == -1, "the first action after a pause is the safe one");
        send(2);
        Check(robot.Missed < missed + 15, "a pause of 20 periods misses no deadlines, not " + (robot.Missed - missed));
        untilInTime(2);
        robot.Pause();
        send(103);
        robot.Resume();
        send(6); // as if no update had come in the pause
        untilInTime(3);
        robot.Pause();
        send(104);
        thread = new Thread(() => last = send(105));
        thread.Start();
        robot.Dispose();
        Check(thread.Join(30000) && last.AsInt() == -1, "the end of the agent ends a pause");

        using (var engine = new RlxAgent(address, new Options { SafeAction = -1 })) {
            Action<int> postAndTake = label => {
                do {
                    engine.Post(1.0, new float[] { label, 0, 0, 0 });
                    Thread.Sleep(10);
                } while (engine.Take().AsInt() == -1);
            };
            postAndTake(4);
            missed = engine.Missed;
            engine.Pause();
            for (int label = 201; label < 204; ++label) {
                engine.Post(1.0, new float[] { label, 0, 0, 0 });
                Check(engine.Take().AsInt() == -1 && engine.IsLate, "an engine's safe action");
                if (label == 202) engine.Resume();
            }
            Check(engine.Missed == missed, "an engine's pause misses nothing");
            postAndTake(5);
        }
    }

    // An amendment through a network that loses its first answer.
    static void Amend(string address) {
        using (var agent = new RlxAgent(address, new Options { RateHz = 20, SafeAction = -1 }))
        using (var isAnswered = new ManualResetEventSlim()) {
            Value stepId = Value.Null;
            while (stepId.IsNull) {
                agent.Update(null, new float[4]);
                agent.Update(0.5, new float[4], true, amendWithinS: 30);
                stepId = agent.Outputs["step_id"];
            }
            agent.Amend(stepId, 2, isInTime => {
                Console.WriteLine(isInTime);
                isAnswered.Set();
            });
            Check(isAnswered.Wait(30000), "an amendment is answered, if not at once");
        }
    }

    static int Main(string[] arguments) {
        string what = arguments.FirstOrDefault() ?? "";
        Console.SetOut(new StreamWriter(Console.OpenStandardOutput()) { AutoFlush = true });
        if (what == "golden") Golden();
        else if (what == "play") Play(arguments[1]);
        else if (what == "episodes") Episodes(arguments[1], int.Parse(arguments[2]));
        else if (what == "rate") Rate(arguments[1]);
        else if (what == "pause") Pause(arguments[1]);
        else if (what == "amend") Amend(arguments[1]);
        else {
            Values();
            Limits();
            Mutations();
        }
        return failures == 0 ? 0 : 1;
    }
}
