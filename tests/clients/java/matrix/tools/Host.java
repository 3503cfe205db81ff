package matrix.tools;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's own command line tools, unmodified, many of them in one JVM: starting one for each would cost more than the tools.
 *
 * <p>Lines in: {@code {"start": class, "arguments": [...], "stdin": text}} answered with {@code {"tool": number}};
 * {@code {"look": number, "wait_ms": n}} answered with {@code {"out", "err", "exit": code or null}}, after the tool's end or the wait;
 * {@code {"interrupt": number}} runs the tool's shutdown hooks, as a SIGTERM would, answered with {@code {}}.
 *
 * <p>What a tool may take for a process of its own is given to each: its classes (several keep counters in static fields), its
 * standard streams, its exit and its shutdown hooks. All else is the JVM's.
 */
public final class Host {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<Integer, Tool> tools = new HashMap<>();

    private Host() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        System.setIn(Streams.in());
        System.setOut(Streams.out(Streams.Kind.OUT, System.err));
        System.setErr(Streams.out(Streams.Kind.ERR, System.err));
        Exit.setExitProcedure((code, message) -> Tool.current().exit(code, message));
        Exit.setHaltProcedure((code, message) -> Tool.current().exit(code, message));
        Exit.setShutdownHookAdder((name, hook) -> Tool.current().onInterrupt(hook));
        Host host = new Host();
        answers.println(JSON.writeValueAsString(Map.of("ready", version())));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            answers.println(JSON.writeValueAsString(host.answer(JSON.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String version() {
        return "Kafka tools " + AppInfoParser.getVersion() + " on Java " + System.getProperty("java.version");
    }

    private Map<String, ?> answer(JsonNode request) {
        if (request.has("start")) {
            int number = tools.size();
            String[] arguments = new String[request.get("arguments").size()];
            for (int place = 0; place < arguments.length; place++) {
                arguments[place] = request.get("arguments").get(place).asText();
            }
            tools.put(number, Tool.start(request.get("start").asText(), arguments, request.get("stdin").asText()));
            return Map.of("tool", number);
        }
        if (request.has("interrupt")) {
            tools.get(request.get("interrupt").asInt()).interrupt();
            return Map.of();
        }
        return tools.get(request.get("look").asInt()).look(request.get("wait_ms").asLong());
    }
}
