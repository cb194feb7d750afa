// RLX in C#, in one file: your game or robot is driven by an agent elsewhere. .NET Standard 2.0, TCP, no dependencies.
//
//     using Surreal.Rlx;
//
//     var agent = new AgentProxy("localhost:7001");
//     agent.Begin();
//     Value action = agent.Update(null, game.State());           // the first update of an episode has no reward
//     while (playing) {
//         double reward = game.Step(action.AsInt());
//         action = agent.Update(reward, game.State(), game.IsOver);
//     }
//
// An AgentProxy waits for its answers, and is for one thread at a time. An RlxAgent never waits for the network: it is
// for engines and robots. TLS is not included: for a server that requires it, use stunnel.
//
// A state is a Value: a number, text, an array of numbers of any dimensions (float[], byte[,,], ...), NDArray, Image,
// List<Value>, Dict, or null. Failures are exceptions:
//     RlxError                 base of all errors of this file
//     |-- CodecError           bytes that are not a valid message, or a value of another kind than requested
//     `-- AgentProxyError      the agent gave no action
//         |-- ReplyError       the server answered with an error; the connection stays open
//         `-- ConnectionLost   no connection, or no answer in time: connect again
using System;
using System.Collections;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Net.Sockets;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading;

namespace Surreal.Rlx {
    public class RlxError : Exception { public RlxError(string text, Exception cause = null) : base(text, cause) {} }
    public class CodecError : RlxError { public CodecError(string text, Exception cause = null) : base(text, cause) {} }
    public class AgentProxyError : RlxError { public AgentProxyError(string text, Exception cause = null) : base(text, cause) {} }
    public class ReplyError : AgentProxyError { public ReplyError(string text) : base(text) {} }
    public class ConnectionLost : AgentProxyError { public ConnectionLost(string text, Exception cause = null) : base(text, cause) {} }

    /// <summary>An array of any shape, in C order; `Dtype` is NumPy's name.</summary>
    public sealed class NDArray {
        public string Dtype;
        public uint[] Shape;
        public byte[] Bytes;

        /// <summary>Copy an array of numbers or truth values, of any dimensions.</summary>
        public static NDArray Of(Array items) {
            if (!Names.TryGetValue(items.GetType().GetElementType(), out string dtype))
                throw new CodecError("arrays of " + items.GetType().GetElementType() + " are not sent");
            var bytes = new byte[Buffer.ByteLength(items)];
            Buffer.BlockCopy(items, 0, bytes, 0, bytes.Length);
            uint[] shape = Enumerable.Range(0, items.Rank).Select(i => (uint)items.GetLength(i)).ToArray();
            return new NDArray { Dtype = dtype, Shape = shape, Bytes = bytes };
        }

        /// <summary>The numbers, whatever their dtype; text and other dtypes that C# lacks throw.</summary>
        public double[] ToNumbers() {
            Type type = Names.FirstOrDefault(pair => pair.Value == Dtype).Key;
            if (type == null) throw new CodecError("an array of dtype " + Dtype + " holds no numbers of C#");
            Array items = Array.CreateInstance(type, Checked().Bytes.Length / (int)ItemSize());
            Buffer.BlockCopy(Bytes, 0, items, 0, Bytes.Length);
            return items.Cast<object>().Select(Convert.ToDouble).ToArray();
        }

        internal NDArray Checked() {
            long size = ItemSize(), items = 1;
            if (size == 0) throw new CodecError("dtype " + Codec.Shorten(Dtype) + " is not accepted");
            long most = Bytes.Length / size; // `items` stays above it when there are more: the product may overflow
            foreach (uint extent in Shape) items = extent == 0 ? 0 : items > most / extent ? most + 1 : items * extent;
            if (Bytes.Length % size != 0 || items != most)
                throw new CodecError("an array's bytes are not as its shape and dtype say");
            return this;
        }

        // Bytes of an item, 0 if the dtype is not accepted.
        private long ItemSize() {
            Match text = Text.Match(Dtype);
            if (text.Success) return long.Parse(text.Groups[2].Value) * (text.Groups[1].Value == "U" ? 4 : 1);
            return Sizes.FirstOrDefault(pair => pair.Key.IsMatch(Dtype)).Value;
        }

        private static readonly Dictionary<Type, string> Names = new Dictionary<Type, string> {
            { typeof(bool), "bool" }, { typeof(sbyte), "int8" }, { typeof(byte), "uint8" }, { typeof(short), "int16" },
            { typeof(ushort), "uint16" }, { typeof(int), "int32" }, { typeof(uint), "uint32" }, { typeof(long), "int64" },
            { typeof(ulong), "uint64" }, { typeof(float), "float32" }, { typeof(double), "float64" },
        };
        private static readonly Regex Text = new Regex(@"^[<>=|]?([US])([1-9][0-9]{0,8})\z");
        private static readonly Dictionary<Regex, long> Sizes = new Dictionary<Regex, long> {
            { new Regex(@"^(?:float32|u?int32|[<>=|]?[iuf]4)\z"), 4 },
            { new Regex(@"^(?:u?int8|bool|[<>=|]?(?:[iub]1|\?))\z"), 1 },
            { new Regex(@"^(?:float16|u?int16|[<>=|]?[iuf]2)\z"), 2 },
            { new Regex(@"^(?:float64|u?int64|complex64|[<>=|]?[iufc]8)\z"), 8 },
            { new Regex(@"^(?:datetime64|timedelta64|[<>=|]?[mM]8)(?:\[[^\]]{1,12}\])?\z"), 8 },
            { new Regex(@"^(?:complex128|[<>=|]?c16)\z"), 16 },
        };
    }

    /// <summary>An image as Pillow keeps it: mode L, RGB, RGBA, CMYK, YCbCr, LAB, HSV, 1, I, F or P.</summary>
    public sealed class Image {
        public string Mode;
        public uint Width, Height;
        public byte[] Bytes;

        internal Image Checked() {
            long line = Width; // bytes of one row
            switch (Mode) {
                case "1": line = (line + 7) / 8; break;
                case "L": case "P": break;
                case "RGB": case "YCbCr": case "LAB": case "HSV": line *= 3; break;
                case "RGBA": case "CMYK": case "I": case "F": line *= 4; break;
                default: throw new CodecError("image mode " + Codec.Shorten(Mode) + " is not known");
            }
            // By division: the product of two announced sizes may overflow.
            long size = Bytes.Length;
            if (line == 0 || Height == 0 ? size != 0 : size % Height != 0 || size / Height != line)
                throw new CodecError("an image's bytes are not as its size says");
            return this;
        }
    }

    /// <summary>Keys and values in the order written. If a key occurs twice, the last entry counts.</summary>
    public sealed class Dict : IEnumerable<KeyValuePair<string, Value>> {
        private readonly List<KeyValuePair<string, Value>> entries = new List<KeyValuePair<string, Value>>();
        public int Count => entries.Count;
        /// <summary>The entry of a key, or Value.Null if there is none.</summary>
        public Value this[string key] => entries.LastOrDefault(entry => entry.Key == key).Value ?? Value.Null;
        public void Add(string key, Value value) => entries.Add(new KeyValuePair<string, Value>(key, value));
        public IEnumerator<KeyValuePair<string, Value>> GetEnumerator() => entries.GetEnumerator();
        IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();
    }

    /// <summary>Anything that a message can hold. C#'s null means Value.Null.</summary>
    public sealed class Value {
        public static readonly Value Null = new Value(null);
        /// <summary>null, bool, int, long, double, string, NDArray, Image, List of Value, or Dict.</summary>
        public readonly object Data;

        private Value(object data) => Data = data;
        public static implicit operator Value(bool item) => new Value(item);
        public static implicit operator Value(int item) => new Value(item);
        public static implicit operator Value(long item) => new Value(item);
        public static implicit operator Value(double item) => new Value(item);
        public static implicit operator Value(string item) => new Value(item);
        public static implicit operator Value(NDArray item) => new Value(item);
        public static implicit operator Value(Image item) => new Value(item);
        public static implicit operator Value(Dict item) => new Value(item);
        public static implicit operator Value(List<Value> item) => new Value(item);
        public static implicit operator Value(Array items) => new Value(items == null ? null : NDArray.Of(items));

        public bool IsNull => Data == null;
        /// <summary>A whole number; also one in a float or a one-element array.</summary>
        public int AsInt() {
            double number = AsDouble();
            return (int)number == number ? (int)number : throw new CodecError("expected a whole number, got " + number);
        }

        public double AsDouble() {
            double[] numbers = AsNumbers();
            return numbers.Length == 1 ? numbers[0] : throw new CodecError("expected a number");
        }

        /// <summary>All numbers of a number, a nested list or an array, in order.</summary>
        public double[] AsNumbers() {
            if (Data is NDArray array) return array.ToNumbers();
            if (Data is List<Value> list) return list.SelectMany(item => (item ?? Null).AsNumbers()).ToArray();
            if (Data is bool || Data is int || Data is long || Data is double) return new[] { Convert.ToDouble(Data) };
            throw new CodecError("expected a number");
        }

        public bool AsBool() => As<bool>("a truth value");
        public string AsString() => As<string>("text");
        public NDArray AsArray() => As<NDArray>("an array");
        public Image AsImage() => As<Image>("an image");
        public List<Value> AsList() => As<List<Value>>("a list");
        public Dict AsDict() => As<Dict>("a dictionary");
        public Value this[string key] => AsDict()[key];

        private T As<T>(string wanted) => Data is T found ? found : throw new CodecError("expected " + wanted);
    }

    // -- the payload: u32 version, then (key, type, value)*; little-endian --------------------------------------------

    internal enum Kind : byte { None, Null, Int4, String, Double, Boolean, Image, NDArray, List, UInt4, Int64, Dict }

    public static class Codec {
        // Bounds on what a peer may send, checked before anything is allocated.
        public const int MaxBytes = 16 << 20, MaxItems = 1000000, MaxDepth = 32, MaxDimensions = 32;
        internal static readonly UTF8Encoding Text = new UTF8Encoding(false, true);

        public static byte[] Encode(Dict message) {
            if (BitConverter.IsLittleEndian) return new Writer().Message(message);
            throw new CodecError("this machine is big-endian; arrays would be sent as they lie in memory");
        }

        public static Dict Decode(byte[] payload) => new Reader(payload).Message();

        /// <summary>LENGTH ':' PAYLOAD ','</summary>
        public static byte[] Frame(byte[] payload) {
            if (payload.Length > 999999999) throw new CodecError("a message is longer than nine digits can say");
            byte[] head = Text.GetBytes(payload.Length + ":"), whole = new byte[head.Length + payload.Length + 1];
            head.CopyTo(whole, 0);
            payload.CopyTo(whole, head.Length);
            whole[whole.Length - 1] = (byte)',';
            return whole;
        }

        internal static string Shorten(string text) => text.Substring(0, Math.Min(text.Length, 40)); // for messages
    }

    internal sealed class Writer {
        private readonly BinaryWriter output = new BinaryWriter(new MemoryStream()); // numbers are little-endian

        internal byte[] Message(Dict message) {
            Numbers(1).Entries(message, 0);
            return ((MemoryStream)output.BaseStream).ToArray();
        }

        private void Entries(Dict dict, int depth) {
            foreach (KeyValuePair<string, Value> entry in dict) Text(entry.Key).Item(entry.Value, depth);
        }

        private void Item(Value value, int depth) {
            if (depth > 200) throw new CodecError("lists and dictionaries are nested deeper than 200");
            object data = value?.Data;
            if (data == null) Type(Kind.Null);
            else if (data is bool truth) Type(Kind.Boolean).Write(truth);
            else if (data is int number) Type(Kind.Int4).Write(number);
            else if (data is long large) Type(Kind.Int64).Write(large);
            else if (data is double real) Type(Kind.Double).Write(real);
            else if (data is string text) {
                Type(Kind.String);
                Text(text);
            } else if (data is Image image) {
                Type(Kind.Image);
                Text(image.Checked().Mode).Numbers(image.Width, image.Height).Raw(image.Bytes);
            } else if (data is NDArray array) {
                Type(Kind.NDArray);
                Text(array.Checked().Dtype).Numbers((uint)array.Shape.Length).Numbers(array.Shape).Raw(array.Bytes);
            } else if (data is Dict dict) {
                Type(Kind.Dict).Write(dict.Count);
                Entries(dict, depth + 1);
            } else if (data is List<Value> list) {
                Type(Kind.List).Write(list.Count);
                foreach (Value item in list) Item(item, depth + 1);
            }
        }

        private BinaryWriter Type(Kind kind) {
            output.Write((byte)kind);
            return output;
        }
        private Writer Numbers(params uint[] numbers) {
            foreach (uint number in numbers) output.Write(number);
            return this;
        }

        private Writer Raw(byte[] bytes) {
            output.Write(bytes.Length);
            output.Write(bytes);
            return this;
        }

        private Writer Text(string text) {
            try {
                return Raw(Codec.Text.GetBytes(text));
            } catch (ArgumentException error) {
                throw new CodecError("a text cannot be written as UTF-8", error);
            }
        }
    }

    internal sealed class Reader {
        private readonly byte[] data;
        private int at;
        private long itemsLeft = Codec.MaxItems;

        internal Reader(byte[] data) => this.data = data;
        internal Dict Message() {
            if (data.Length > Codec.MaxBytes) throw new CodecError("a message of " + data.Length + " bytes is over the limit");
            UInt(); // the version is ignored
            var found = new Dict();
            while (at < data.Length) {
                TakeItems(1);
                found.Add(Text(), Item(0));
            }
            return found;
        }

        private Value Item(int depth) {
            byte kind = data[Skip(1)];
            switch ((Kind)kind) {
                case Kind.None: case Kind.Null: return Value.Null;
                case Kind.Int4: return BitConverter.ToInt32(data, Skip(4));
                case Kind.String: return Text();
                case Kind.Double: return BitConverter.ToDouble(data, Skip(8));
                case Kind.Boolean: return data[Skip(1)] == 1;
                case Kind.Image: return new Image { Mode = Text(), Width = UInt(), Height = UInt(), Bytes = Raw() }.Checked();
                case Kind.NDArray: return Array();
                case Kind.UInt4: return (long)UInt();
                case Kind.Int64: return BitConverter.ToInt64(data, Skip(8));
                case Kind.List:
                    var list = new List<Value>();
                    for (uint left = Count(depth); left > 0; --left) list.Add(Item(depth + 1));
                    return list;
                case Kind.Dict:
                    var dict = new Dict();
                    for (uint left = Count(depth); left > 0; --left) dict.Add(Text(), Item(depth + 1));
                    return dict;
                default: throw new CodecError("type id " + kind + " is not one of the protocol's");
            }
        }

        private NDArray Array() {
            string dtype = Text();
            uint dimensions = UInt();
            if (dimensions > Codec.MaxDimensions)
                throw new CodecError("an array of " + dimensions + " dimensions is over the limit");
            var shape = new uint[dimensions];
            for (int i = 0; i < shape.Length; ++i) shape[i] = UInt();
            return new NDArray { Dtype = dtype, Shape = shape, Bytes = Raw() }.Checked();
        }

        private uint UInt() => BitConverter.ToUInt32(data, Skip(4));
        private byte[] Raw() {
            uint count = UInt();
            int start = Skip(count);
            var bytes = new byte[count];
            Buffer.BlockCopy(data, start, bytes, 0, bytes.Length);
            return bytes;
        }

        private string Text() {
            try {
                return Codec.Text.GetString(Raw());
            } catch (ArgumentException error) {
                throw new CodecError("a text is not UTF-8", error);
            }
        }

        private uint Count(int depth) {
            if (depth >= Codec.MaxDepth) throw new CodecError("lists and dictionaries are nested too deep");
            return TakeItems(UInt());
        }

        private uint TakeItems(uint count) {
            itemsLeft -= count;
            return itemsLeft >= 0 ? count : throw new CodecError("a message holds more items than the limit allows");
        }

        // Pass over bytes, and return where they begin.
        private int Skip(long count) {
            if (count > data.Length - at)
                throw new CodecError(count + " bytes are announced, but " + (data.Length - at) + " are left");
            at += (int)count;
            return at - (int)count;
        }
    }

    /// <summary>Splits a stream into payloads, whatever pieces it arrives in.</summary>
    public sealed class FrameReader {
        private readonly MemoryStream buffer = new MemoryStream();
        public void Feed(byte[] data, int count) => buffer.Write(data, 0, count);

        /// <summary>The next payload, or null if it is not complete.</summary>
        public byte[] Next() {
            byte[] data = buffer.GetBuffer();
            int size = (int)buffer.Length, length = 0, start = 0;
            for (; start < size && (data[start] != ':' || start == 0); ++start) {
                if (data[start] < '0' || data[start] > '9' || start == 9) throw new CodecError("a frame begins with no length");
                length = 10 * length + data[start] - '0';
            }
            if (length > Codec.MaxBytes) throw new CodecError("a frame of " + length + " bytes is over the limit");
            int end = ++start + length;
            if (end >= size) return null;
            if (data[end] != ',') throw new CodecError("expected a comma after " + length + " bytes");
            var payload = new byte[length];
            Buffer.BlockCopy(data, start, payload, 0, length);
            buffer.SetLength(0);
            buffer.Write(data, end + 1, size - end - 1);
            return payload;
        }
    }

    // -- the connection -----------------------------------------------------------------------------------------------

    public sealed class Options {
        public double TimeoutS = 60.0; // longest wait for one answer
        public double ConnectTimeoutS = 10.0; // longest wait for one attempt to connect
        public string Token; // the token that the server requires
        public string Policy; // the one of the server's policies that acts; null: the run's, which learns
        public string[] Want; // what Outputs has after each action: "q_values", "probabilities"
        public double RateHz = 20.0; // of RlxAgent: updates per second, in (0, 1000]
        public Value SafeAction; // of RlxAgent: the action that is taken when the agent's is late
    }

    /// <summary>One session with a server: one environment, one agent. The calls are those of the Python client.</summary>
    public sealed class AgentProxy : IDisposable {
        private readonly Options options;
        private readonly string host;
        private readonly int port;
        private readonly Random random = new Random(Guid.NewGuid().GetHashCode());
        private readonly byte[] piece = new byte[16384];
        private FrameReader reader;
        private volatile Socket socket;

        /// <param name="address">`host:port` or `[IPv6]:port`, with or without `rlx://` before it.</param>
        public AgentProxy(string address, Options options = null) {
            const string form = @"^(?:rlx://)?(?:\[(?<host>[^]]+)]|(?<host>[^:/]+)):(?<port>[0-9]{1,5})/?\z";
            Match found = Regex.Match(address, form);
            if (!found.Success) throw new AgentProxyError(address + " is not an address; write host:port");
            host = found.Groups["host"].Value;
            port = int.Parse(found.Groups["port"].Value);
            this.options = options ?? new Options();
        }

        public bool IsConnected => socket != null;
        /// <summary>The last answer to `Update`: Outputs["q_values"], if the options want it, or Value.Null.</summary>
        public Dict Outputs { get; private set; } = new Dict();
        /// <summary>Up to `retry` attempts, with jittered waits between them that double from 0.5 s to 8 s.</summary>
        public void Connect(int retry = 6) => Retrying(retry, Open, default(CancellationToken));

        /// <summary>Begin a session; `exploit`: act greedily, and do not learn.</summary>
        public void Init(bool exploit = false) {
            var request = new Dict { { "command", "init" }, { "exploit", exploit } };
            if (!string.IsNullOrEmpty(options.Token)) request.Add("token", options.Token);
            if (options.Policy != null) request.Add("policy", options.Policy);
            if (options.Want != null) request.Add("want", options.Want.Select(name => (Value)name).ToList());
            Exchange(request);
        }

        /// <summary>Tell the agent what its last action led to, and ask for the next one.</summary>
        /// <param name="reward">null in the first update of an episode.</param>
        /// <param name="truncated">the episode is over because of a limit, not by the game's rules.</param>
        /// <param name="executedAction">an intervention: what was done instead of the agent's last action.</param>
        /// <param name="amendWithinS">for how long `Amend` may replace the reward, s; Outputs["step_id"] is for it.</param>
        /// <returns>The action; Value.Null when the episode is over.</returns>
        public Value Update(Value reward, Value state, bool terminal = false, bool truncated = false, Value executedAction = null, Value amendWithinS = null) =>
            (Outputs = Exchange(UpdateRequest(reward, state, terminal, truncated, executedAction, amendWithinS)))["data"];

        internal static Dict UpdateRequest(Value reward, Value state, bool terminal, bool truncated, Value executedAction, Value amendWithinS = null) {
            var request = new Dict { { "command", "update" }, { "reward", reward }, { "state", state }, { "terminal", terminal || truncated } };
            if (truncated) request.Add("truncated", true);
            if (executedAction != null) request.Add("executed_action", executedAction);
            if (amendWithinS != null) request.Add("amend_within_s", amendWithinS);
            return request;
        }

        /// <summary>Replace the reward of a step that the server holds back; false if it is too late, or not experience.</summary>
        public bool Amend(Value stepId, Value reward) => !stepId.IsNull &&
            Exchange(new Dict { { "command", "amend" }, { "step_id", stepId }, { "reward", reward } })["is_amended"].AsBool();
        /// <summary>Abandon the current episode.</summary>
        public void Reset() => Exchange(new Dict { { "command", "reset" } });
        /// <summary>A number for the run's metrics; without x, at the global step of the run.</summary>
        public void Scalar(string name, double y, Value x = null) => Metrics(Record("scalar", name, y, x));
        /// <summary>The distribution of numbers, for the run's metrics.</summary>
        public void Histogram(string name, double[] y, Value x = null) => Metrics(Record("histogram", name, y, x));
        public void Metrics(params Value[] records) =>
            Exchange(new Dict { { "command", "update_metrics" }, { "data", records.ToList() } });
        public static Value Record(string method, string name, Value y, Value x = null) =>
            new Dict { { "method", method }, { "name", name }, { "y", y }, { "x", x } };

        public void Disconnect() { socket?.Close(); socket = null; }
        public void Dispose() => Disconnect();

        /// <summary>Connect and begin a session; retry both together, as a full server closes connections at once.</summary>
        public void Begin(bool exploit = false, int attempts = 10, CancellationToken stop = default(CancellationToken)) =>
            Retrying(attempts, () => { Open(); Init(exploit); }, stop);

        /// <summary>Play `episodes` episodes, forever if negative. After a lost connection, connect again and repeat the
        /// episode; any other failure ends the run with it.</summary>
        /// <param name="episode">plays the episode of a number, and returns its reward.</param>
        public void RunEpisodes(long episodes, Func<long, double> episode, bool exploit = false) {
            Begin(exploit);
            for (long number = 0; episodes < 0 || number < episodes;) {
                double reward;
                try {
                    reward = episode(number);
                } catch (ConnectionLost) {
                    Begin(exploit);
                    continue;
                }
                ++number;
                Value[] records = { Record("scalar", "episode_reward", reward), Record("scalar", "game_score", reward) };
                try {
                    Metrics(records);
                } catch (ConnectionLost) { // servers drop connections at the end of an episode
                    Begin(exploit);
                    Metrics(records);
                }
            }
            Disconnect();
        }

        internal Dict Exchange(Dict request) {
            Socket link = socket;
            if (link == null) throw new ConnectionLost("not connected to " + host + ":" + port);
            byte[] data = Codec.Frame(Codec.Encode(request));
            var waited = Stopwatch.StartNew();
            Dict reply;
            try {
                link.SendTimeout = LeftMs(waited);
                link.Send(data);
                byte[] payload;
                while ((payload = reader.Next()) == null) {
                    link.ReceiveTimeout = LeftMs(waited);
                    int count = link.Receive(piece);
                    if (count == 0) throw new ConnectionLost("the server closed the connection");
                    reader.Feed(piece, count);
                }
                reply = Codec.Decode(payload);
            } catch (Exception error) {
                Disconnect(); // the answer to this request would be taken for the answer to the next
                if (error is SocketException || error is ObjectDisposedException)
                    throw new ConnectionLost("the connection is lost: " + error.Message, error);
                throw;
            }
            if (reply["response"].IsNull) throw new AgentProxyError("the server answers without a `response`");
            if (reply["response"].AsString() != "error") return reply;
            throw new ReplyError(reply["message"].Data as string ?? "the server gives no reason");
        }

        private void Open() {
            Disconnect();
            reader = new FrameReader();
            var link = new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = true }; // for IPv6 and IPv4
            link.SetSocketOption(SocketOptionLevel.Socket, SocketOptionName.KeepAlive, true);
            Exception failure = null;
            var connecting = new Thread(() => { // after work in a pool of threads, Mono may take a minute to exit
                try { link.Connect(host, port); } catch (Exception error) { failure = error; }
            }) { IsBackground = true };
            connecting.Start();
            if (!connecting.Join(TimeSpan.FromSeconds(options.ConnectTimeoutS))) failure = new TimeoutException();
            socket = failure == null ? link : null;
            if (failure == null) return;
            link.Close();
            throw new ConnectionLost("no connection to " + host + ":" + port + ": " + failure.Message, failure);
        }

        private int LeftMs(Stopwatch waited) {
            double left = 1000 * options.TimeoutS - waited.ElapsedMilliseconds;
            return left >= 1 ? (int)Math.Min(left, 1e9) : throw new ConnectionLost("no answer in time");
        }

        private void Retrying(int attempts, Action action, CancellationToken stop) {
            for (int attempt = 1;; ++attempt) {
                try { action(); return; } catch (ConnectionLost) {
                    if (attempt >= attempts) throw;
                    double longest = Math.Min(8.0, 0.5 * Math.Pow(2.0, attempt - 1));
                    if (stop.WaitHandle.WaitOne((int)(1000 * longest * (0.5 + 0.5 * random.NextDouble())))) throw;
                }
            }
        }
    }

    // -- engines and robots -------------------------------------------------------------------------------------------

    /// <summary>An agent whose actions leave in time, whatever the network and the server do.</summary>
    /// A robot calls `Update`, which returns at a fixed rate. An engine, which has its own clock, calls `Take` for the
    /// action of the last observation, and then `Post` with the next; both return at once. If the answer is late, both
    /// ways give the safe action. A thread keeps the connection, and connects again when it is lost.
    /// A step whose action was late is not experience, because the agent did not choose what happened: the episode is
    /// cut before it, and continues with the next observation for which the agent has time. A pause does the same.
    public sealed class RlxAgent : IDisposable {
        private readonly AgentProxy proxy;
        private readonly Options options;
        private readonly bool exploit;
        private readonly Thread thread;
        private readonly CancellationTokenSource stop = new CancellationTokenSource();
        private readonly Stopwatch clock = Stopwatch.StartNew();
        private readonly object gate = new object(); // guards what follows
        private readonly List<Value> records = new List<Value>();
        private readonly Queue<(Value, Value, Action<bool>)> amendments = new Queue<(Value, Value, Action<bool>)>();
        private Dict request; // on its way, or about to be
        private Dict answer; // until it is taken
        private RlxError failure;
        private bool isReady, isOver, isCut, isPaused;
        private bool isResting; // whether the safe action of a pause was taken, and nothing after it
        private double deadlineS;

        /// <param name="exploit">act greedily, and do not learn.</param>
        public RlxAgent(string address, Options options, bool exploit = false) {
            if (!(options.RateHz > 0 && options.RateHz <= 1000) || options.SafeAction == null)
                throw new AgentProxyError("an RlxAgent needs RateHz in (0, 1000] and SafeAction");
            this.options = options;
            this.exploit = exploit;
            proxy = new AgentProxy(address, options);
            thread = new Thread(Work) { IsBackground = true, Name = "RlxAgent" };
            thread.Start();
        }

        public bool IsConnected { get { lock (gate) return isReady; } }
        public bool IsPaused { get { lock (gate) return isPaused; } }
        /// <summary>Whether the last action was the safe one, because the agent's was late, or because of a pause.</summary>
        public bool IsLate { get; private set; }
        public Dict Outputs { get; private set; } = new Dict(); // as of an AgentProxy; empty if the action was late
        /// <summary>Actions that were late, and deadlines that the caller itself missed.</summary>
        public long Missed { get; private set; }

        /// <summary>As `AgentProxy.Update`, but returns at the next deadline, with the safe action if need be.</summary>
        public Value Update(Value reward, Value state, bool terminal = false, bool truncated = false, Value executedAction = null, Value amendWithinS = null) {
            bool waits;
            lock (gate) {
                isResting &= isPaused;
                waits = isResting;
                while (waits && isPaused && !stop.IsCancellationRequested) Monitor.Wait(gate);
            }
            Post(reward, state, terminal, truncated, executedAction, amendWithinS);
            double now = clock.Elapsed.TotalSeconds, periodS = 1 / options.RateHz;
            if (waits || reward == null || reward.IsNull) deadlineS = now; // a reset, or a pause, takes its time
            if (waits) return Take(); // the safe action: this observation is old
            long passed = (long)Math.Max(0, Math.Floor((now - deadlineS) / periodS));
            Missed += passed;
            deadlineS += (passed + 1) * periodS;
            Thread.Sleep(TimeSpan.FromSeconds(deadlineS - now));
            return Take();
        }

        /// <summary>Hand over an observation; the arguments are those of `Update`.</summary>
        public void Post(Value reward, Value state, bool terminal = false, bool truncated = false, Value executedAction = null, Value amendWithinS = null) {
            lock (gate) {
                isOver = terminal || truncated;
                bool isBusy = !isReady || request != null || isPaused || isResting;
                isCut |= isBusy;
                if (isBusy || (isCut && isOver)) return;
                if (isCut) (reward, executedAction, amendWithinS) = (null, null, null); // a reward of null in an episode cuts it
                request = AgentProxy.UpdateRequest(reward, state, terminal, truncated, executedAction, amendWithinS);
                isCut = false;
                answer = null;
                Monitor.PulseAll(gate);
            }
        }

        /// <summary>Take the action for the last observation, or the safe one; Value.Null when the episode is over.</summary>
        public Value Take() {
            lock (gate) {
                if (failure != null) throw failure;
                if (isPaused) answer = null;
                Outputs = answer ?? new Dict();
                IsLate = answer == null && !isOver;
                answer = null;
                if (IsLate && !isPaused && !isResting) ++Missed;
                isResting = isPaused;
                if (!IsLate) return isOver ? Value.Null : Outputs["data"];
                isCut = true;
                return options.SafeAction;
            }
        }

        /// <summary>Pause, from any thread. `Update` returns the safe action at the next deadline; its next call waits
        /// for `Resume`, and returns it again. `Take` returns it in a pause, and once more after it.</summary>
        public void Pause() { lock (gate) isPaused = true; }

        /// <summary>End a pause, from any thread; the agent begins an episode with the next observation.</summary>
        public void Resume() {
            lock (gate) {
                isPaused = false;
                Monitor.PulseAll(gate);
            }
        }

        /// <summary>As `AgentProxy.Amend`, when there is time; `done` gets the result on another thread. If an answer is
        /// lost, it is sent again, and counts once: `done` then gets false although the first was in time.</summary>
        public void Amend(Value stepId, Value reward, Action<bool> done = null) {
            lock (gate) {
                amendments.Enqueue((stepId ?? Value.Null, reward, done));
                Monitor.PulseAll(gate);
            }
        }

        /// <summary>Abandon the current episode.</summary>
        public void Reset() { lock (gate) isCut = true; }
        /// <summary>A number for the run's metrics. It is sent when there is time.</summary>
        public void Scalar(string name, double y, Value x = null) => Add(AgentProxy.Record("scalar", name, y, x));
        /// <summary>The distribution of numbers, for the run's metrics. It is sent when there is time.</summary>
        public void Histogram(string name, double[] y, Value x = null) => Add(AgentProxy.Record("histogram", name, y, x));

        /// <summary>End the session; waits at most a second for what is still to be sent.</summary>
        public void Dispose() {
            lock (gate) {
                stop.Cancel();
                Monitor.PulseAll(gate);
            }
            thread.Join(1000);
            proxy.Disconnect();
        }

        private void Add(Value record) {
            lock (gate) {
                if (records.Count < 500) records.Add(record); // servers take no more at once either
                Monitor.PulseAll(gate);
            }
        }

        private void Work() {
            while (!stop.IsCancellationRequested) {
                try {
                    proxy.Begin(exploit, int.MaxValue, stop.Token);
                    lock (gate) isReady = true;
                    while (WorkOnce()) {}
                } catch (ConnectionLost) {
                    lock (gate) (isReady, isCut, request) = (false, true, null);
                } catch (RlxError error) {
                    lock (gate) failure = error;
                    return;
                }
            }
        }

        // Whether there was something to do before the end.
        private bool WorkOnce() {
            Dict asked;
            Value[] noted;
            Value stepId = null, amended = null;
            Action<bool> done = null;
            lock (gate) {
                while (request == null && records.Count == 0 && amendments.Count == 0 && !stop.IsCancellationRequested) Monitor.Wait(gate);
                asked = request;
                noted = records.ToArray();
                if (amendments.Count > 0) (stepId, amended, done) = amendments.Peek();
            }
            if (asked != null) {
                Dict reply = proxy.Exchange(asked);
                lock (gate) {
                    request = null;
                    answer = isCut ? null : reply;
                }
            } else if (noted.Length > 0) {
                proxy.Metrics(noted);
                lock (gate) records.RemoveRange(0, noted.Length);
            } else if (stepId != null) { // one that is not answered is sent again
                bool isInTime = proxy.Amend(stepId, amended);
                lock (gate) amendments.Dequeue();
                done?.Invoke(isInTime);
                return true;
            }
            return asked != null || noted.Length > 0;
        }
    }
}
